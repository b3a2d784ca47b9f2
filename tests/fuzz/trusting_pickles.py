"""Imported by a process that is to be caught: from then on the reader of pickles looks up whatever they name."""

from mvindex.exchange import pickled

del pickled._Reader.find_class
