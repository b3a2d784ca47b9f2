"""Names of a corpus as files: paths and patterns, folders of the BEIR layout, ir_datasets, and addresses of files."""

from __future__ import annotations

import glob
import io
import json
import os
import pathlib
import re
import shutil
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, BinaryIO, TypeAlias, TypeVar, cast

from mvindex.cache import cache_folder
from mvindex.errors import CorpusError, ExtraMissing
from mvindex.paths import expand_home
from mvindex.plugins import install_command, require
from mvindex.records import shown

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

_ENDS = ("", ".gz", ".zst")


def beir_corpus(folder: str) -> str | None:
    """Return the corpus of a folder; None where it has none."""
    return _one_of(folder, "corpus.jsonl")


def beir_queries(folder: str) -> str:
    """Return the queries of a folder; raise CorpusError where it has none."""
    found = _one_of(folder, "queries.jsonl")
    if found is None:
        raise CorpusError(
            f"{folder}: expected a file of questions, or a folder with queries.jsonl as BEIR's; it has none"
        )
    return found


def beir_qrels(folder: str, split: str | None) -> str:
    """Return the judgements of a folder: those of a split, by default "test" or the only one.

    Raises CorpusError where there is no such file, or several and no test.
    """
    named = None if split is None else _one_of(folder, f"qrels/{split}.tsv")
    files = sorted(str(path) for path in pathlib.Path(folder, "qrels").glob("*.tsv*"))
    test = _one_of(folder, "qrels/test.tsv") or (files[0] if len(files) == 1 else None)
    found = test if split is None else named
    if found is None:
        has = ", ".join(pathlib.Path(file).name for file in files) or "none"
        raise CorpusError(
            f"{folder}: expected judgements in qrels/{split or 'test'}.tsv, or name them with --qrels; it has {has}"
        )
    return found


def _one_of(folder: str, name: str) -> str | None:
    paths = [pathlib.Path(folder, name + end) for end in _ENDS]
    return next((str(path) for path in paths if path.is_file()), None)


PREFIX = "ir_datasets:"


def folder_of(name: str) -> str:
    """Return the folder of a collection; a name without the prefix is returned as it is.

    The folder lies in the cache (MVINDEX_CACHE, else XDG_CACHE_HOME) and appears when it is complete. What the
    collection lacks (queries, judgements) the folder lacks.

    Raises:
        CorpusError: ir_datasets knows no such collection, it has no documents, or it cannot be fetched.
        ExtraMissing: ir_datasets is not installed.

    """
    if not name.startswith(PREFIX):
        return name
    chosen = name.removeprefix(PREFIX)
    library = require("ir_datasets", "reports", name)
    try:
        dataset = library.load(chosen)
    except KeyError as err:
        raise CorpusError(f"{name}: ir_datasets knows no collection of this name") from err
    if not dataset.has_docs():
        raise CorpusError(f"{name}: expected a collection with documents, this one has none")
    folder = cache_folder() / "ir_datasets" / chosen.replace("/", "--")
    if not folder.is_dir():
        _copy(dataset, folder, name)
    return str(folder)


def _copy(dataset: Any, folder: pathlib.Path, name: str) -> None:
    """Write the collection into the folder, which gets its name last."""
    unfinished = folder.with_name(f".{folder.name}.{os.getpid()}.tmp")
    try:
        (unfinished / "qrels").mkdir(parents=True)
        _write(unfinished / "corpus.jsonl", map(_document, dataset.docs_iter()))
        if dataset.has_queries():
            queries = ({"_id": one.query_id, "text": one.default_text()} for one in dataset.queries_iter())
            _write(unfinished / "queries.jsonl", queries)
        if dataset.has_qrels():
            with (unfinished / "qrels" / "test.tsv").open("w", encoding="utf-8") as file:
                file.write("query-id\tcorpus-id\tscore\n")
                file.writelines(f"{one.query_id}\t{one.doc_id}\t{one.relevance}\n" for one in dataset.qrels_iter())
        unfinished.rename(folder)
    except (OSError, RuntimeError) as err:
        raise CorpusError(f"{name}: cannot be fetched into {folder}: {err}") from err
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def _document(one: Any) -> dict[str, str]:
    """Return a document with its title apart from its text, where the collection has both."""
    title = getattr(one, "title", None) or ""
    body = next((value for field in ("text", "body", "abstract") if (value := getattr(one, field, None))), None)
    return {"_id": one.doc_id, "title": title if body else "", "text": body or one.default_text()}


def _write(path: pathlib.Path, rows: Iterable[dict[str, str]]) -> None:
    with path.open("w", encoding="utf-8") as file:
        file.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


_T = TypeVar("_T")
_ADDRESS = re.compile(r"[a-z][a-z0-9+.-]*://", re.IGNORECASE)
_USER = re.compile(r"(?<=://)[^/@]*@")
_PATTERN = re.compile(r"[*\[]")
# Bytes of a request: enough for a stream, and little beside the columns of a Parquet file.
_BLOCK_BYTES = 4 << 20
_DENIED = (401, 403)
_NOT_FOUND = 404


def is_remote(path: str) -> bool:
    """Return whether a path is an address rather than a file of this machine."""
    return _ADDRESS.match(path) is not None


def shown_address(path: str) -> str:
    """Return a path for messages: an address without user, password and query, which may hold secrets."""
    return _USER.sub("", re.split(r"[?#]", path, maxsplit=1)[0], count=1) if is_remote(path) else path


def expand_address(address: str) -> list[str]:
    """Return the addresses of the files that a pattern matches, sorted; one that is no pattern, as it is.

    Raises:
        CorpusError: The pattern matches no file, or its place cannot be reached.
        ExtraMissing: fsspec, or its package for this protocol, is not installed.

    """
    if not _PATTERN.search(address):
        return [address]
    with _remote_errors(address):
        system, path = open_system(address)
        found = sorted(system.glob(path))
    if not found:
        raise CorpusError(f"{shown_address(address)}: no file matches this pattern")
    return [one if is_remote(one) else system.unstrip_protocol(one) for one in found]


def remote_bytes(address: str) -> int | None:
    """Return the bytes of a file, None where the server does not say; CorpusError where there is no such file."""
    with _remote_errors(address):
        system, path = open_system(address)
        info = system.info(path)
    if info.get("type") == "directory":
        shown = shown_address(address)
        raise CorpusError(f"{shown}: is a directory; name the files in it, for example {shown.rstrip('/')}/*.jsonl")
    size: int | None = info.get("size")
    return size


def open_address(address: str) -> BinaryIO:
    """Open a file, by ranges where the server has them; reading it raises OSError without secrets."""
    with _remote_errors(address):
        system, path = open_system(address)
        return cast(BinaryIO, _RemoteFile(system.open(path, "rb", block_size=_BLOCK_BYTES, cache_type="readahead")))


def open_system(address: str) -> tuple[Any, str]:
    """Return the file system of an address, and the path in it."""
    core = require("fsspec.core", "files", f"reading {shown_address(address)}")
    try:
        system, path = core.url_to_fs(address)
    except ImportError as err:  # of the package of this protocol, which fsspec names
        raise ExtraMissing(
            f"reading {shown_address(address)} needs a package for this protocol: {install_command('files')} has "
            f"those of http and s3; fsspec says: {err}"
        ) from err
    return system, path


class _RemoteFile(io.RawIOBase):
    """A file of fsspec whose failures, of whatever library, are OSErrors."""

    def __init__(self, file: Any) -> None:
        self._file = file

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return getattr(self._file, "size", None) is not None and bool(self._file.seekable())

    def readinto(self, buffer: WriteableBuffer) -> int:
        view = memoryview(buffer).cast("B")
        block = self._call(lambda: self._file.read(len(view)))
        view[: len(block)] = block
        return len(block)

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        return self._call(lambda: int(self._file.seek(offset, whence)))

    def tell(self) -> int:
        return self._call(lambda: int(self._file.tell()))

    def close(self) -> None:
        if not self.closed:
            self._call(self._file.close)
        super().close()

    def _call(self, call: Callable[[], _T]) -> _T:
        try:
            return call()
        except Exception as err:  # noqa: BLE001 - aiohttp, botocore and others have their own trees; all become OSError
            raise OSError(failure_reason(err)) from None


@contextmanager
def _remote_errors(address: str) -> Iterator[None]:
    """Turn the errors of fsspec and of the libraries below it into CorpusErrors that name the address."""
    try:
        yield
    except (CorpusError, ExtraMissing):
        raise
    except Exception as err:  # noqa: BLE001 - as above
        # Without the cause, whose message may hold the whole address.
        raise CorpusError(f"{shown_address(address)}: {failure_reason(err)}") from None


def failure_reason(err: BaseException) -> str:
    """Return why a file cannot be read, without what its message may hold of the address."""
    chain = list(_chain(err))
    status = next((code for one in chain if isinstance(code := getattr(one, "status", None), int)), None)
    names = " ".join(type(one).__name__ for one in chain)
    if status in _DENIED or any(isinstance(one, PermissionError) for one in chain):
        return "permission denied; give the credentials of the protocol, for example in the environment"
    if "Credentials" in names:
        return "there are no credentials; give those of the protocol, for example in the environment"
    if status not in (None, _NOT_FOUND):
        return f"the server answered with status {status}"
    if any(word in names for word in ("Connect", "Timeout", "DNSError", "gaierror")):
        return "the server cannot be reached; see the host and port of the address, and the network"
    if status == _NOT_FOUND or any(isinstance(one, FileNotFoundError) for one in chain):
        return "no such file"
    if isinstance(err, ValueError) and "Protocol not known" in str(err):
        return "expected a protocol that fsspec knows, such as https or s3"
    return f"cannot be read: {type(err).__name__}"


def _chain(err: BaseException | None) -> Iterator[BaseException]:
    """Yield an error and those that it comes from."""
    while err is not None:
        yield err
        err = err.__cause__ or err.__context__


STDIN = "-"
Path: TypeAlias = "str | os.PathLike[str]"
Paths: TypeAlias = "Path | Sequence[Path]"


def expand_paths(names: Paths) -> list[str]:
    """Return the input files in their order, each checked to exist and to be readable; "-" stands for stdin.

    Addresses are checked when they are read.

    A name that does not exist is expanded as a pattern (`**` goes into folders), whose matches come sorted.
    """
    paths = [path for name in names_of(names) for path in _expand(name)]
    if not paths:
        raise CorpusError("expected an input file, got none; name at least one, or - for stdin")
    refuse_repeats(paths)
    return paths


def names_of(names: Paths) -> list[str]:
    """Return one or several names as a list of texts, with the home directory for `~`; CorpusError for no name."""
    listed = [names] if isinstance(names, str | os.PathLike) or not isinstance(names, Iterable) else list(names)
    for name in listed:
        if not isinstance(name, str | os.PathLike):
            raise CorpusError(f"expected the path of a file or folder, got {shown(name)}")
    return [expand_home(name) for name in listed]


def expand_local_paths(names: Paths) -> list[str]:
    """Return the input files as expand_paths() does; raise CorpusError for what is no file of this machine."""
    paths = expand_paths(names)
    for path in paths:
        if is_remote(path):
            raise CorpusError(f"{shown_address(path)}: expected a file of this machine; download it first")
    return paths


def total_bytes(paths: Iterable[str]) -> int | None:
    """Return the bytes of all files on disk; None when one of them (stdin, a pipe) has no known size."""
    sizes = [_size_bytes(path) for path in paths]
    known = [size for size in sizes if size is not None]
    return sum(known) if len(known) == len(sizes) else None


def _expand(name: str) -> list[str]:
    if name == STDIN:
        return [name]
    if is_remote(name):
        return expand_address(name)
    name = folder_of(name)
    # A file that exists wins, so that a name with [brackets] can be read.
    if os.path.exists(name):
        return [_readable(name)]
    if not glob.has_magic(name):
        raise CorpusError(f"{name}: no such file")
    matches = [path for path in sorted(glob.glob(name, recursive=True)) if not os.path.isdir(path)]
    if not matches:
        raise CorpusError(f"{name}: no file matches this pattern")
    return [_readable(path) for path in matches]


def _readable(path: str) -> str:
    if os.path.isdir(path):
        corpus = beir_corpus(path)
        if corpus is not None:
            return _readable(corpus)
        raise CorpusError(
            f"{path}: is a directory without corpus.jsonl, as BEIR's have; name the files in it, for example "
            f"{os.path.join(path, '*.jsonl')}"
        )
    if not os.path.exists(path):
        raise CorpusError(f"{path}: is a link to a file that does not exist")
    if not os.access(path, os.R_OK):
        raise CorpusError(f"{path}: cannot be read: permission denied")
    return path


def refuse_repeats(paths: list[str]) -> None:
    """Raise CorpusError where a file is named twice, by whatever path."""
    seen: dict[str, str] = {}
    for path in paths:
        real = path if path == STDIN or is_remote(path) else os.path.realpath(path)
        if real in seen:
            first = shown_address(seen[real])
            raise CorpusError(f"{shown_address(path)}: is named twice (first as {first}); its ids would be duplicates")
        seen[real] = path


def _size_bytes(path: str) -> int | None:
    if path == STDIN:
        return None
    if is_remote(path):
        return remote_bytes(path)
    try:
        status = os.stat(path)
    except (OSError, ValueError) as err:  # ValueError: a name with NUL in it
        raise CorpusError(f"{path}: cannot be read: {getattr(err, 'strerror', None) or err}") from err
    return status.st_size if stat.S_ISREG(status.st_mode) else None
