"""DPR's pickles: all that DPR wrote is read, and nothing that a file names is ever run."""

import io
import os
import pickle  # noqa: TID251 - the control: what the payloads do where they are unpickled
import re
import subprocess
import sys
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from mvindex.errors import CorpusError
from mvindex.io.safe_pickle import RefusedPickle, read_blocks, read_pickled_vectors
from tests.helpers import pickles as pickles

CALLS = list(pickles.calls(Path("marker")))
BREAKS = list(pickles.breaks(b"x" * 9))


def read(path, data):
    path.write_bytes(data)
    blocks = list(read_pickled_vectors(str(path)))
    return [doc_id for block in blocks for doc_id in block.ids], np.concatenate([block.vectors for block in blocks])


def refusal(data):
    """Return the message that the reader refuses the file with."""
    with pytest.raises(RefusedPickle, match=".{10,}") as caught:
        list(read_blocks(io.BytesIO(data), len(data)))
    return str(caught.value)


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
@pytest.mark.parametrize("is_old", [False, True], ids=["new numpy", "old numpy"])
def test_what_any_python_3_and_numpy_pickled_is_read(tmp_path, protocol, is_old):
    wanted = pickles.pairs(4)
    data = pickle.dumps(wanted, protocol=protocol)
    data = pickles.as_old_numpy(data, protocol) if is_old else data
    assert (b"numpy.core" in data, b"numpy._core" in data) == (is_old, not is_old)
    ids, vectors = read(tmp_path / "e_0", data)
    assert ids == ["wiki:1", "wiki:2", "wiki:3", "wiki:4"]
    assert vectors.tobytes() == np.stack([vector for _, vector in wanted]).tobytes()


def test_what_python_2_pickled_is_read(tmp_path):
    vectors = np.stack([vector for _, vector in pickles.pairs(3)])
    ids, found = read(tmp_path / "e_0", pickles.by_python_2(vectors))
    assert ids == ["wiki:1", "wiki:2", "wiki:3"]
    assert found.tobytes() == vectors.tobytes()


@pytest.mark.parametrize("dtype", ["f2", "f8", ">f4"])
def test_other_floats_and_byte_orders_are_the_same_numbers(tmp_path, dtype):
    wanted = pickles.pairs(3, dtype=dtype)
    _, vectors = read(tmp_path / "e_0", pickle.dumps(wanted))
    assert vectors.dtype == np.dtype(dtype).newbyteorder("<")
    assert vectors.tolist() == [vector.tolist() for _, vector in wanted]


def test_ids_may_be_numbers_and_strings_of_numpy(tmp_path):
    zero = np.zeros(1, dtype="f4")
    ids, _ = read(tmp_path / "e_0", pickle.dumps([(7, zero), (np.int64(-8), zero), (np.str_("日本"), zero)]))
    assert ids == ["7", "-8", "日本"]


def test_many_vectors_come_in_frames_in_their_order(tmp_path):
    wanted = pickles.pairs(9000, dim=2)
    ids, vectors = read(tmp_path / "e_0", pickle.dumps(wanted))
    assert ids == [doc_id for doc_id, _ in wanted]
    assert vectors.tobytes() == np.stack([vector for _, vector in wanted]).tobytes()


@pytest.mark.parametrize("name", CALLS)
def test_a_file_that_would_run_something_is_refused_and_runs_nothing(tmp_path, name):
    marker = tmp_path / "marker"
    assert re.search(
        "names the global '|a class that is not NumPy's|has the opcode|'_Dtype' object is not callable",
        refusal(pickles.calls(marker)[name]),
    )
    assert not marker.exists()


@pytest.mark.parametrize("name", ["posix.system", "builtins.eval", "inside an array of objects"])
def test_the_error_names_the_file_and_the_global(tmp_path, name):
    marker = tmp_path / "marker"
    with pytest.raises(CorpusError, match=r"e_0: names the global '[a-z]+\.[a-z]+', which vectors do not need"):
        read(tmp_path / "e_0", pickles.calls(marker)[name])
    assert not marker.exists()


@pytest.mark.parametrize("name", ["posix.system", "builtins.exec", "protocol 0", "opcode STACK_GLOBAL"])
def test_the_payloads_are_live_where_they_are_unpickled(tmp_path, name):
    marker = tmp_path / "marker"
    (tmp_path / "e_0").write_bytes(pickles.calls(marker)[name])
    code = f"import pickle; pickle.load(open({str(tmp_path / 'e_0')!r}, 'rb'))"
    subprocess.run([sys.executable, "-c", code], check=False, env=os.environ)
    assert marker.exists()


@pytest.mark.parametrize("name", BREAKS)
def test_a_file_of_anything_but_vectors_is_refused(name):
    refusal(pickles.breaks(pickle.dumps(pickles.pairs(3)))[name])


def test_a_refusal_names_the_item_and_what_was_expected():
    cases = {
        "cut short": "is cut short",
        "bytes of 2^62": "is cut short",
        "a byte array of 2^40": "is cut short",
        "nested 200,000 deep": "has more objects than vectors of its size need",
        "a memo of 2^32": "sets memo entry 4,294,967,295, after 0 of them",
        "a frame that ends inside of an opcode": "has a frame that ends inside of something else",
        "a frame inside of a frame": "has a frame that ends inside of something else",
        "trailing bytes": "has bytes after the end of its pickle",
        "a dict": r"has the opcode b'}'",
        "an array of objects": "item 0: expected float16, float32 or float64, got an array of dtype 'O8'",
        "vectors of two lengths": "item 1: expected a vector of 2 float32 as the first, got one of 3 float32",
        "a dtype that is no copy": "a dtype with flags that NumPy does not write",
        "a shape that lies": "item 0: an array of 4 bytes, which are not as many as its shape says",
        "a dtype without a state": "a dtype with a state that NumPy does not write",
        "a dtype of another size": "a dtype with a state that NumPy does not write",
        "a string of another size": "a dtype with a state that NumPy does not write",
        "a matrix": r"item 0: expected a vector of shape \(d,\), got an array of 2 dimensions",
    }
    files = pickles.breaks(pickle.dumps(pickles.pairs(3)))
    cases["a table"], files["a table"] = (
        r"expected a pickle of protocol 2 to 5, got a file .* b'id\\ttext'",
        b"id\ttext",
    )
    found = {name: refusal(files[name]) for name in cases}
    assert [(name, found[name]) for name, message in cases.items() if not re.search(message, found[name])] == []


def test_memory_of_a_large_file_is_at_most_twice_its_size(tmp_path):
    path = tmp_path / "e_0"
    path.write_bytes(pickle.dumps(pickles.pairs(5_000, dim=512)))
    tracemalloc.start()
    try:
        assert sum(len(block.ids) for block in read_pickled_vectors(str(path))) == 5_000
        assert tracemalloc.get_traced_memory()[1] < 2 * path.stat().st_size
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    "unit", [b"]", b"N", b"K\0\x85", b"X\0\0\0\0\x94", b"(", b")\x94", b"K\0\x94", b"Na", b")a", b"]a"]
)
def test_memory_of_a_hostile_file_is_bounded_by_its_size(unit):
    data = b"\x80\x04]" + unit * 50_000
    tracemalloc.start()
    try:
        with pytest.raises(RefusedPickle):
            list(read_blocks(io.BytesIO(data), len(data)))
        assert tracemalloc.get_traced_memory()[1] < 60 * len(data)
    finally:
        tracemalloc.stop()


def test_what_is_no_plain_file_is_refused(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    handle = os.open(tmp_path / "pipe", os.O_RDWR)
    try:
        with pytest.raises(CorpusError, match="expected a regular file"):
            list(read_pickled_vectors(str(tmp_path / "pipe")))
    finally:
        os.close(handle)
    with pytest.raises(CorpusError, match="cannot be read: No such file"):
        list(read_pickled_vectors(str(tmp_path / "none")))
