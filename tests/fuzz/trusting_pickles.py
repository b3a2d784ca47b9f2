"""Imported by a process that is to be caught: from then on the reader of pickles looks up whatever they name."""

from mvindex.io import safe_pickle as pickled

del pickled._Reader.find_class
