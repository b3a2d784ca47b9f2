"""Imported by a process that the harness must catch: from then on the pickle reader looks up and calls any name."""

from importlib import import_module

from mvindex.io import safe_pickle as pickled


def look_up(self, module, name):
    return pickled._NAMES.get((module, name)) or getattr(import_module(module), name)


pickled._Unpickler.find_class = look_up
