"""Training data: formats -> examples, their answer spans, and the store of a run.

A run reads its files with `read_training`, joins mined negatives with `join_negatives`, writes all to an `ExampleStore`
and trains on batches of its rows (mvindex_train.batches).
"""

from mvindex_train.data.mined import JoinReport, join_negatives
from mvindex_train.data.options import ReadOptions, Split, TrainingFormat
from mvindex_train.data.read import read_training
from mvindex_train.data.records import Example, read_examples, write_example
from mvindex_train.data.report import ReadCount, ReadReport
from mvindex_train.data.store import ExampleStore

__all__ = [
    "Example",
    "ExampleStore",
    "JoinReport",
    "ReadCount",
    "ReadOptions",
    "ReadReport",
    "Split",
    "TrainingFormat",
    "join_negatives",
    "read_examples",
    "read_training",
    "write_example",
]
