"""Formats of the extra `files`: PDF, Word, PowerPoint, Excel and EPUB, as passages that know page or row."""
