"""DPR's pickles: all that DPR wrote is read, and nothing that a file names is ever run."""

import io
import os
import pickle  # noqa: TID251 - the control: what the payloads do where they are unpickled
import subprocess
import sys
from pathlib import Path

import exchange_pickles as pickles
import numpy as np
import pytest

from mvindex.errors import CorpusError
from mvindex.io import limited
from mvindex.io.confined import Refused
from mvindex.io.limited import Reading, read_limited
from mvindex.io.safe_pickle import read_pairs

READING = Reading(module="mvindex.io.safe_pickle")
HERE = str(Path(__file__).parent)
CALLS = list(pickles.calls(Path("marker")))
HUGE = [
    "bytes of 2^62",
    "a byte array of 2^40",
    "a memo of 2^32",
    "a byte array cut short",
    "nested 200,000 deep",
    "a billion laughs",
]
BREAKS = list(pickles.breaks(b"x" * 9))


def read(path, data, reading=READING):
    path.write_bytes(data)
    frames = list(read_limited(str(path), reading))
    return [doc_id for frame in frames for doc_id in frame.ids], np.concatenate([frame.vectors for frame in frames])


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
def test_what_would_run_something_is_refused_and_runs_nothing(tmp_path, name):
    """By the reader alone, without the limits of a process: nothing may depend on these."""
    marker = tmp_path / "marker"
    data = pickles.calls(marker)[name]
    with pytest.raises(Refused, match=r"names the global '|a class that is not NumPy's|' object is not callable"):
        list(read_pairs(io.BytesIO(data), {}))
    assert not marker.exists()


@pytest.mark.parametrize("name", ["posix.system", "builtins.eval", "opcode OBJ", "inside an array of objects"])
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


@pytest.mark.parametrize("name", [name for name in BREAKS if name not in HUGE])
def test_what_is_no_list_of_vectors_is_refused(name):
    data = pickles.breaks(pickle.dumps(pickles.pairs(3)))[name]
    with pytest.raises(Refused, match=".{10,}"):
        list(read_pairs(io.BytesIO(data), {}))


@pytest.mark.parametrize("name", HUGE)
def test_what_breaks_a_process_is_refused_with_its_file(tmp_path, name):
    data = pickles.breaks(pickle.dumps(pickles.pairs(3)))[name]
    with pytest.raises(CorpusError, match=r"e_0: .{10,}"):
        read(tmp_path / "e_0", data)


def test_a_refusal_says_which_item_and_what_was_wanted():
    cases = {
        "cut short": "is cut short",
        "trailing bytes": "has bytes after the end of its pickle",
        "a dict": r"holds dict; wanted a list of pairs \(id, vector\)",
        "an array of objects": "item 0: an array of dtype 'O8'; wanted float16, float32 or float64",
        "vectors of two lengths": "item 1: a vector of 3 float32; the first has 2 float32",
        "a dtype that is no copy": "a dtype with flags that NumPy does not write",
        "a shape that lies": "item 0: an array whose bytes are not as many as its shape says",
        "a dtype without a state": "a dtype with a state that NumPy does not write",
        "a dtype of another size": "a dtype with a state that NumPy does not write",
        "a string of another size": "a dtype with a state that NumPy does not write",
        "a matrix": r"item 0: an array of shape \(2, 2\); wanted a vector \(d,\)",
    }
    for name, message in cases.items():
        with pytest.raises(Refused, match=message):
            list(read_pairs(io.BytesIO(pickles.breaks(pickle.dumps(pickles.pairs(3)))[name]), {}))


def test_more_vectors_than_the_memory_limit_are_refused(tmp_path):
    data = pickle.dumps(pickles.pairs(20_000, dim=512))
    with pytest.raises(CorpusError, match="takes more memory than the limit"):
        read(tmp_path / "e_0", data, Reading(module="mvindex.io.safe_pickle", memory_bytes=20 << 20))
    assert len(read(tmp_path / "e_0", data)[0]) == 20_000


def tried(tmp_path, what):
    """What becomes of a process with limits that tries it."""
    reading = Reading(module="exchange_attempts", paths=(HERE,))
    return read(tmp_path / "e_0", f"{what}\n{tmp_path / 'marker'}".encode(), reading)


@pytest.mark.parametrize("what", ["write", "low write", "read", "run", "system", "fork", "connect"])
def test_a_process_with_limits_opens_and_starts_nothing(tmp_path, what):
    with pytest.raises(CorpusError, match=r"tries [a-z]+[.a-zA-Z_]*, which nothing that only reads vectors does"):
        tried(tmp_path, what)
    assert not (tmp_path / "marker").exists()


def test_a_process_with_limits_has_them_from_the_system_too(tmp_path):
    assert tried(tmp_path, "limits")[0] == [
        "RLIMIT_FSIZE (0, 0)",
        "RLIMIT_NPROC (0, 0)",
        "RLIMIT_CORE (0, 0)",
        "RLIMIT_NOFILE (3, 3)",
        "RLIMIT_CPU (60, 60)",
    ]


def test_how_a_process_with_limits_ended_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr(limited, "_BASE_S", 1)
    for what, message in {
        "allocate": "takes more memory than the limit",
        "compute": r"was ended by SIG(XCPU|KILL); its limits were 2.0 GiB of memory and 1 s",
        "die": "was ended by SIGSEGV",
        "lie": "gave back what it must not: a shape that cannot be",
        "lie in part": "gave back what it must not: a shape that cannot be",
        "nest": "gave back what it must not: maximum recursion depth",
        "paint": r"e_0: no vectors \[2Jhere",
        "leave": "ended with status 3",
    }.items():
        with pytest.raises(CorpusError, match=message):
            tried(tmp_path, what)


def test_what_is_no_plain_file_is_refused(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    handle = os.open(tmp_path / "pipe", os.O_RDWR)
    try:
        with pytest.raises(CorpusError, match="is no plain file"):
            list(read_limited(str(tmp_path / "pipe"), READING))
    finally:
        os.close(handle)
    with pytest.raises(CorpusError, match="cannot be read: No such file"):
        list(read_limited(str(tmp_path / "none"), READING))
