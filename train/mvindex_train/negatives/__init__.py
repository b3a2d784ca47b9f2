"""Hard negatives: documents that rank high for a question and do not answer it.

config.py has the settings. bm25.py and dense.py rank candidates (candidates.py), filters.py and a cross-encoder remove
false negatives, miner.py combines them for a batch of questions, merge.py adds those of an earlier round, output.py
makes a long run resumable, run.py is the command. This file imports nothing.
"""
