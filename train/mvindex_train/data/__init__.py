"""Training data: formats -> examples, where their answers stand, the store of a run, the shared splits.

A run reads its files with `read_training`, joins mined negatives with `join_negatives`, writes all to an `ExampleStore`
and trains on batches of its rows (mvindex_train.batches).
"""

from mvindex_train.data.answers import Located, Reason, locate, with_spans
from mvindex_train.data.mined import JoinReport, join_negatives
from mvindex_train.data.options import Part, ReadOptions, TrainingFormat
from mvindex_train.data.read import read_training
from mvindex_train.data.records import Example, read_examples, write_example
from mvindex_train.data.report import Count, Report
from mvindex_train.data.splits import SharedSet, shared_examples
from mvindex_train.data.store import ExampleStore

__all__ = [
    "Count",
    "Example",
    "ExampleStore",
    "JoinReport",
    "Located",
    "Part",
    "ReadOptions",
    "Reason",
    "Report",
    "SharedSet",
    "TrainingFormat",
    "join_negatives",
    "locate",
    "read_examples",
    "read_training",
    "shared_examples",
    "with_spans",
    "write_example",
]
