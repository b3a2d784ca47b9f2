"""Read the vectors of a Faiss index in a process of its own: Faiss trusts sizes in a file, and some end the process.

main() runs there: it writes vectors.npy (r, d) and numbers.npy (r,) into a directory that this process reads.
"""

from __future__ import annotations

import json
import resource
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import mvindex
import mvindex_connectors
from mvindex.errors import CorpusError
from mvindex.io.staging import Array

# The paths come first, so that the process reads by the code that started it, and not by another version's.
_BOOT = "import sys; sys.path[:0] = sys.argv[4:]; from mvindex_connectors.io.faiss_reader import main; main()"
_CHUNK = 4096
_REFUSED = 3
_UNIT_ERROR = 1e-3
_BASE_BYTES = 2 << 30
_TIMES_FILE = 4
_MAX_MESSAGE_CHARS = 2000
# Of these, Faiss returns the vectors as they were added.
_EXACT = ("IndexFlat", "IndexHNSWFlat", "IndexNSGFlat", "IndexIVFFlat")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """Options of a reading; memory_bytes: limit of the reading process, by default 2 GiB and four times the file."""

    has_ids: bool = False
    accept_reconstructions: bool = False
    accept_inner_product: bool = False
    memory_bytes: int | None = None


class FaissVectors(NamedTuple):
    """Vectors (r, d), memory-mapped, and the number (r,) by which Faiss knows each."""

    vectors: Array
    numbers: Array


@contextmanager
def read_faiss(path: str, folder: Path, options: ReadOptions) -> Iterator[FaissVectors]:
    """Read the vectors of a Faiss index into a temporary directory in `folder`.

    Raises:
        CorpusError: Faiss cannot read the file within the limits, or what it holds is not accepted.

    """
    try:
        size = Path(path).stat().st_size
    except OSError as err:
        raise CorpusError(f"{path}: cannot be read: {err.strerror or err}") from err
    limit = options.memory_bytes or _BASE_BYTES + _TIMES_FILE * size
    with tempfile.TemporaryDirectory(dir=folder, prefix=".faiss-") as out:
        settings = json.dumps({**asdict(options), "memory_bytes": limit})
        roots = [str(Path(package.__file__ or "").parents[1]) for package in (mvindex, mvindex_connectors)]
        command = [sys.executable, "-I", "-c", _BOOT, str(Path(path).absolute()), out, settings, *roots]
        child = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, check=False, env={"OMP_NUM_THREADS": "1"}
        )
        if child.returncode:
            raise CorpusError(f"{path}: {_describe_end(child)}")
        yield FaissVectors(
            np.load(f"{out}/vectors.npy", mmap_mode="r", allow_pickle=False),
            np.load(f"{out}/numbers.npy", mmap_mode="r", allow_pickle=False),
        )


def _describe_end(child: subprocess.CompletedProcess[bytes]) -> str:
    output = child.stdout if child.returncode == _REFUSED else child.stderr.strip().rpartition(b"\n")[2]
    message = output[:_MAX_MESSAGE_CHARS].decode("utf-8", "replace")
    message = "".join(char if char.isprintable() else " " for char in message)
    if child.returncode == _REFUSED:
        return message
    if child.returncode < 0:
        known = -child.returncode in set(signal.Signals)
        name = signal.Signals(-child.returncode).name if known else f"signal {-child.returncode}"
        return f"Faiss cannot read it: its process was ended by {name}"
    return f"Faiss cannot read it: its process ended with status {child.returncode}: {message}"


class _Refused(Exception):
    """The file is no index whose vectors can be imported; the message says why."""


def _write_vectors(path: str, out: str, options: ReadOptions) -> None:
    import faiss

    whole = _read_index(faiss, path)
    index, labels = _inner_index(faiss, whole)
    if labels is None and not options.has_ids:
        raise _Refused("holds vectors and no ids; give --ids FILE, the id of each vector, one a line, or .npy or .json")
    name = type(index).__name__
    if not isinstance(index, tuple(getattr(faiss, one) for one in _EXACT)) and not options.accept_reconstructions:
        raise _Refused(
            f"is a {name}, which keeps codes: what can be imported are reconstructions, close to the vectors and not "
            "the same; --accept-reconstructions takes them"
        )
    if isinstance(index, faiss.IndexIVF):
        _make_direct_map(index)
    numbers = np.arange(index.ntotal, dtype=np.int64) if labels is None else labels
    np.save(f"{out}/numbers.npy", numbers)
    if not index.ntotal:
        np.save(f"{out}/vectors.npy", np.empty((0, max(index.d, 1)), dtype=np.float32))
        return
    shape = (index.ntotal, index.d)
    vectors = np.lib.format.open_memmap(f"{out}/vectors.npy", mode="w+", dtype=np.float32, shape=shape)
    for begin in range(0, index.ntotal, _CHUNK):
        chunk = index.reconstruct_n(begin, min(_CHUNK, index.ntotal - begin))
        if not options.accept_inner_product:
            _check_metric(faiss, index, begin, chunk)
        vectors[begin : begin + len(chunk)] = chunk
    vectors.flush()


def _read_index(faiss: Any, path: str) -> Any:
    with open(path, "rb") as file:
        reader = faiss.PyCallbackIOReader(file.read)
        try:
            whole = faiss.read_index(reader)
        except RuntimeError as err:
            raise _Refused(f"Faiss cannot read it: {str(err).rpartition('Error: ')[2]:.200}") from err
        if file.read(1):
            raise _Refused("has bytes after the end of its index")
    return whole


def _inner_index(faiss: Any, whole: Any) -> tuple[Any, Any]:
    """Return the index that holds the vectors, valid as long as the whole, and their labels; None for 0, 1, 2, ..."""
    if not isinstance(whole, faiss.IndexIDMap):
        return whole, None
    labels, inner = faiss.vector_to_array(whole.id_map), faiss.downcast_index(whole.index)
    if len(labels) != inner.ntotal:
        raise _Refused(f"expected {inner.ntotal} labels, one for each vector, got {len(labels)}")
    return inner, labels


def _make_direct_map(index: Any) -> None:
    """Let an index of lists return its vectors by number."""
    try:
        index.make_direct_map()
    except RuntimeError as err:
        raise _Refused(
            "its lists have numbers that are not 0, 1, 2, ..., by which Faiss cannot return the vectors; add them to "
            "an IndexIDMap of such an index instead"
        ) from err


def _check_metric(faiss: Any, index: Any, begin: int, vectors: Array) -> None:
    """Raise _Refused when inner products would not order documents as the index does."""
    if index.metric_type == faiss.METRIC_INNER_PRODUCT:
        return
    is_l2 = index.metric_type == faiss.METRIC_L2
    norms = np.linalg.norm(vectors.astype(np.float64), axis=1)
    is_unit = np.abs(norms - 1) <= _UNIT_ERROR
    if is_l2 and is_unit.all():
        return
    bad = int(np.argmin(is_unit))
    reason = f"vector {begin + bad} has length {norms[bad]:.4g}" if is_l2 else "its distance is none of the two"
    raise _Refused(
        f"searches by {'L2 distance' if is_l2 else f'metric {index.metric_type}'}, and {reason}: scores here are inner "
        "products, which order documents as L2 does only for vectors of length 1; --accept-inner-product takes the "
        "vectors as they are, and results will differ from those of Faiss"
    )


def main() -> None:
    """Read a Faiss index in this process, within its memory limit."""
    path, out, options = sys.argv[1], sys.argv[2], ReadOptions(**json.loads(sys.argv[3]))
    import faiss  # noqa: F401 - its libraries are loaded before the limit counts

    with suppress(ValueError, OSError):  # macOS knows the limit and takes none
        resource.setrlimit(resource.RLIMIT_AS, (_used_bytes() + int(options.memory_bytes or 0),) * 2)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    try:
        _write_vectors(path, out, options)
    except _Refused as err:
        sys.stdout.write(str(err))
        sys.exit(_REFUSED)
    except MemoryError:
        sys.stdout.write("Faiss cannot read it: takes more memory than the limit; --memory-limit sets it")
        sys.exit(_REFUSED)


def _used_bytes() -> int:
    """Return the address space in use."""
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[0]) * resource.getpagesize()
    except OSError:
        return 0
