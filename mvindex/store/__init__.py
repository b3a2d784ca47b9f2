"""The embedded store: documents, their text and metadata, and their views, on one disk."""
