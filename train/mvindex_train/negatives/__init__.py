"""Hard negatives: documents that rank high for a question and do not answer it.

config.py says what is wanted. bm25.py and dense.py propose candidates (candidates.py), filters.py and
cross_encoder.py leave out what is no negative, mining.py puts them together for a batch of questions, merging.py adds
those of an earlier round, output.py keeps a long run on disk, run.py is the whole command. This file imports nothing.
"""
