"""Training data: formats -> examples, their answer spans, and the store of a run.

A run reads its files with `read_training`, joins mined negatives with `join_negatives`, writes all to an `ExampleStore`
and trains on batches of its rows (mvindex_train.batches).
"""

from typing import TYPE_CHECKING

from mvindex.plugins import lazy_names

if TYPE_CHECKING:
    from mvindex_train.data.options import ReadCount, ReadOptions, ReadReport, Split, TrainingFormat
    from mvindex_train.data.read import read_training
    from mvindex_train.data.records import Example, read_examples, write_example
    from mvindex_train.data.store import ExampleStore, JoinReport, join_negatives

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

# Loaded on first use: the help of the command line needs the options alone.
__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "Example": "records",
        "ExampleStore": "store",
        "JoinReport": "store",
        "ReadCount": "options",
        "ReadOptions": "options",
        "ReadReport": "options",
        "Split": "options",
        "TrainingFormat": "options",
        "join_negatives": "store",
        "read_examples": "records",
        "read_training": "read",
        "write_example": "records",
    },
)
