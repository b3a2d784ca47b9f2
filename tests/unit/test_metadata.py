"""Metadata as JSON: what is stored, and the part that is named where one cannot be."""

import numpy as np
import pytest

from mvindex.errors import DocumentError
from mvindex.records import Document, dump_metadata

_LOOP: dict = {}
_LOOP["a"] = _LOOP


class _Silent:
    def __repr__(self):
        raise RuntimeError("no repr")


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        ({"a": 1, "year": float("1e400")}, "metadata: 'year': expected a finite number, got inf"),
        ({"a": {"b": [1, {"c": np.float32("nan")}]}}, "metadata: 'a': 'b': 'c': expected a finite number, got nan"),
        (
            {"a": {1, 2}},
            "metadata: 'a': expected a string, number, boolean, null, date, list or object, got set {1, 2}",
        ),
        ({"a": {"b": b"x"}}, "metadata: 'a': 'b': expected .*, got bytes b'x'"),
        ({"a": np.datetime64("NaT")}, "metadata: 'a': expected .*, got datetime64"),
        ({"a": _Silent()}, "metadata: 'a': expected .*, got _Silent that cannot be shown"),
        ({"a": 10**5000}, "metadata: 'a': "),
        ({"a": {2: 1}}, "metadata: 'a': expected a string without NUL as key, got int 2"),
        ({"a": np.array([{2: 1}])}, "metadata: 'a': expected a string without NUL as key, got int 2"),
        ({"a\0": 1}, r"expected a string without NUL as key, got str 'a\\x00'"),
        ({"\ud800": 1}, "as key, got str"),
        ({"a": ["b", "c\0"]}, "metadata: 'a' holds a NUL character"),
        ({"a": "\ud800"}, "metadata: 'a' holds a lone surrogate"),
        (_LOOP, "at most 64 objects and lists inside one another"),
        ({"a": np.zeros(100_001)}, "at most 100,000 values"),
        (None, "metadata: expected an object, got NoneType"),
        ([], "metadata: expected an object, got list"),
    ],
)
def test_the_part_of_metadata_that_cannot_be_stored_is_named(metadata, message):
    for refused in (lambda: dump_metadata(metadata, "d"), lambda: Document("d", "t", metadata=metadata)):
        with pytest.raises(DocumentError, match=f"document 'd': .*{message}"):
            refused()


def test_values_of_numpy_are_plain_json():
    metadata = {"b": np.array([np.int64(1), None, "x"], dtype=object), "a": np.array(5), "c": np.array([True])}
    assert dump_metadata(metadata, "d") == '{"a":5,"b":[1,null,"x"],"c":[true]}'
