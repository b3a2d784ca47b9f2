"""One reader a format: a file -> a stream of Example, with errors that name file and line."""
