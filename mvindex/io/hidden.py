"""The hidden index of a folder, in the user's cache: `mvindex grep` makes it, keeps it in step and searches it.

A run that finds every file as it was reads none. Otherwise the folder is synced: new passages get a view of zeros, so
that their terms are found at once. They are then encoded in turn over all files, for as long as a budget lasts; the
rest is deferred until a run that gives it time. All of it is derived from the folder: what is lost is made again.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import xxhash

from mvindex.cache import cache_folder
from mvindex.corpus import Folder, FolderOptions
from mvindex.corpus.passages.outline import SPLIT_VERSION
from mvindex.corpus.registry import has_reader
from mvindex.durable import replace_cached
from mvindex.encoder import Encoder, load_encoder
from mvindex.errors import EncoderError, StoreError
from mvindex.index import Index, embedded_store_of
from mvindex.index.factory import create_index, new_settings, open_local
from mvindex.ingest.pipeline import IngestHooks
from mvindex.io.sync.report import SETTLED_NS, SyncHooks, SyncOptions, reader_versions, state_of
from mvindex.io.sync.run import sync_folder
from mvindex.records import Bools, CountCallback, Document, Floats, Hit, ProgressCallback, Views
from mvindex.search.fusion import Mode
from mvindex.store.lexical.tokenizer import AUTO, required_lexical
from mvindex.store.schema import LEXICAL_KEY

# What ids and metadata call the folder: an index holds one only, and "/" has no name of its own.
_NAME = "files"
_MANIFEST, _DEFERRED, _LOCK, _INDEX = "manifest.json", "deferred.json", "lock", "index.mvx"
# A commit each; the budget is looked at in between.
_ENCODED_AT_ONCE = 128


@dataclass(frozen=True, slots=True, kw_only=True)
class RefreshHooks:
    """Callbacks of a refresh: for a line that people read, and for the progress of its steps."""

    on_note: Callable[[str], None]
    on_progress: ProgressCallback


@dataclass(frozen=True, slots=True, kw_only=True)
class _Manifest:
    """State of a folder, and of the index that was brought in step with it.

    versions: of what reads files and splits them. files: size, times and inode of each; None where it may have changed
    within the resolution of its times. unreadable: folders that cannot be listed. is_encoded: whether no passage is
    left to encode but deferred ones. num_passages, num_bare: of the index, and of them those without views.
    """

    versions: list[str]
    files: Mapping[str, list[int] | None]
    unreadable: Sequence[str]
    is_encoded: bool = False
    num_passages: int = 0
    num_bare: int = 0

    def is_of(self, now: _Manifest) -> bool:
        """Return whether the folder is as it was."""
        is_settled = None not in self.files.values()
        before = (self.versions, self.files, self.unreadable)
        return is_settled and before == (now.versions, now.files, now.unreadable)


class _Later:
    """Stands for the encoder of an index: gives a document one view of zeros, which the encoder replaces later."""

    max_views = None

    def __init__(self, spec: dict[str, Any], dim: int) -> None:
        self.spec, self.dim, self.fingerprint = spec, dim, str(spec["fingerprint"])

    def encode_documents(self, documents: Sequence[Document], on_progress: CountCallback | None = None) -> Views:
        """Return a view of zeros for each document."""
        count = len(documents)
        return Views(
            np.zeros((count, self.dim), np.float32), np.arange(count + 1), np.full((count, 2), -1, dtype=np.int64)
        )

    def encode_queries(self, texts: Sequence[str]) -> Floats:
        """Raise EncoderError: a query is for the encoder itself."""
        raise EncoderError(f"expected documents, got {len(texts)} queries")


class HiddenIndex:
    """The hidden index of a folder.

    Args:
        folder: The folder.

    Raises:
        CorpusError: There is no such folder.
        OSError: The user has no cache directory.

    """

    def __init__(self, folder: str) -> None:
        self._folder = Folder(folder, FolderOptions(), has_reader, _NAME)
        self.place = cache_folder() / "grep" / xxhash.xxh3_128_hexdigest(self._folder.path.encode())
        self._now = _Manifest(versions=[], files={}, unreadable=[])
        self._kept: _Manifest | None = None

    @property
    def files(self) -> Collection[str]:
        """Return the files of the folder that are read, as of open()."""
        return self._now.files.keys()

    @property
    def left_out(self) -> str:
        """Return the number of files that are not read by reason, as of open()."""
        return str(self._folder.left_out)

    @property
    def counts(self) -> tuple[int, int]:
        """Return the number of passages, and of those that have no views yet, as of open()."""
        return (0, 0) if self._kept is None else (self._kept.num_passages, self._kept.num_bare)

    def open(self, hooks: RefreshHooks, *, with_views: bool, budget_s: float, encode_all: bool) -> Index:
        """Bring the index in step with the folder, and return it.

        Args:
            hooks: Callbacks.
            with_views: Whether new passages are encoded.
            budget_s: Seconds to encode for; what is left after them is deferred.
            encode_all: Whether passages that an earlier run deferred are encoded too.

        Raises:
            CorpusError: The folder cannot be read.
            StoreError, OSError: The index cannot be written.

        """
        self._now = self._look()
        self._kept = self._load()
        if self._is_in_step() and not self._must_encode(with_views, encode_all):
            try:
                return self._open(with_views)
            except StoreError:
                self._kept = None  # made again, once it is locked
        self.place.parent.mkdir(0o700, parents=True, exist_ok=True)  # texts of the user's files
        self.place.mkdir(0o700, exist_ok=True)
        with self._lock(hooks.on_note, is_optional=self._is_in_step()) as is_ours:
            if is_ours:
                self._refresh(hooks, with_views, budget_s, encode_all)
        return self._open(with_views)

    @cached_property
    def _encoder(self) -> Encoder:
        return load_encoder()

    def _open(self, with_views: bool) -> Index:
        """Return the index; StoreError where there is none that this version of mvindex can search."""
        index = open_local(self.place / _INDEX)
        try:
            if (setting := index.settings.get(LEXICAL_KEY)) is not None:
                required_lexical(setting, index.where)
            if with_views:
                expected, got = self._encoder.fingerprint, index.settings["encoder"]["fingerprint"]
                if got != expected:
                    raise StoreError(f"{index.where}: expected views of the encoder {expected}, got those of {got}")
                index.use_encoder(self._encoder)
        except BaseException:
            index.close()
            raise
        return index

    def _refresh(self, hooks: RefreshHooks, with_views: bool, budget_s: float, encode_all: bool) -> None:
        """Sync and encode, as the only process that does."""
        self._kept = self._load()  # another process may have done it meanwhile
        self._ensure_index(hooks, with_views)
        if not self._is_in_step():
            self._sync(hooks)
        if self._must_encode(with_views, encode_all):
            self._encode(hooks, budget_s, encode_all)

    def _look(self) -> _Manifest:
        """Return the state of the folder, without opening a file."""
        settled = time.time_ns() - SETTLED_NS
        states = {file.file: state_of(file) for file in self._folder.files()}
        files = {file: state if max(state[1:3]) < settled else None for file, state in states.items()}
        return _Manifest(
            versions=[str(SPLIT_VERSION), *reader_versions()], files=files, unreadable=sorted(self._folder.unreadable)
        )

    def _is_in_step(self) -> bool:
        return self._kept is not None and self._kept.is_of(self._now)

    def _must_encode(self, with_views: bool, encode_all: bool) -> bool:
        kept = self._kept
        return with_views and kept is not None and (not kept.is_encoded or (encode_all and kept.num_bare > 0))

    @contextmanager
    def _lock(self, on_note: Callable[[str], None], *, is_optional: bool) -> Iterator[bool]:
        """Lock the index inside the block; yield False where another process has it, and there is no need to wait."""
        with (self.place / _LOCK).open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if is_optional:
                    yield False
                    return
                on_note("waiting for another mvindex grep, which reads this folder")
                fcntl.flock(file, fcntl.LOCK_EX)
            yield True

    def _sync(self, hooks: RefreshHooks) -> None:
        (self.place / _MANIFEST).unlink(missing_ok=True)
        done = 0

        def count(_: int, size_bytes: int) -> None:
            nonlocal done
            done += size_bytes > 0
            hooks.on_progress("reading files", done, len(self._now.files))

        with open_local(self.place / _INDEX) as index:
            index.use_encoder(_Later(dict(index.settings["encoder"]), index.settings["dim"]))
            sync_hooks = SyncHooks(on_warning=hooks.on_note, on_progress=count)
            sync_folder(index, self._folder.path, SyncOptions(name=_NAME, force=True), sync_hooks)
            bare = _bare_ids(index)
            self._keep(len(index), len(bare), is_encoded=self._deferred().issuperset(bare))

    def _ensure_index(self, hooks: RefreshHooks, with_views: bool) -> None:
        """Create the index where there is none, or make one again that cannot be searched."""
        place = self.place / _INDEX
        try:
            self._open(with_views).close()
        except StoreError as err:
            if place.exists():
                hooks.on_note(f"the hidden index is made again: {err}")
            later = _Later(dict(self._encoder.spec), self._encoder.dim)
            (self.place / _MANIFEST).unlink(missing_ok=True)
            self._kept = None
            shutil.rmtree(place, ignore_errors=True)
            create_index(place, *new_settings(encoder=later, lexical=AUTO), None).close()

    def _encode(self, hooks: RefreshHooks, budget_s: float, encode_all: bool) -> None:
        """Give views to passages without them, in turn over all files, until the budget is spent; defer the rest."""
        with self._open(with_views=True) as index:
            bare = _bare_ids(index)
            deferred = set() if encode_all else self._deferred()
            ids = [doc_id for doc_id in bare if doc_id not in deferred]
            ends, done = time.monotonic() + budget_s, 0
            while done < len(ids) and time.monotonic() < ends:
                hooks.on_progress("encoding passages", done, len(ids))
                documents = index.get(ids[done : done + _ENCODED_AT_ONCE])
                index.add(documents, hooks=IngestHooks(encode_again=True))
                done += _ENCODED_AT_ONCE
            hooks.on_progress("encoding passages", min(done, len(ids)), len(ids))
            left = [*(doc_id for doc_id in bare if doc_id in deferred), *ids[done:]]
            replace_cached(self.place / _DEFERRED, json.dumps(left))
            self._keep(len(index), len(left), is_encoded=True)

    def _deferred(self) -> set[str]:
        return set(_read(self.place / _DEFERRED) or ())

    def _load(self) -> _Manifest | None:
        try:
            return _Manifest(**(_read(self.place / _MANIFEST) or {}))
        except TypeError:
            return None

    def _keep(self, num_passages: int, num_bare: int, *, is_encoded: bool) -> None:
        now = self._now
        self._kept = _Manifest(
            versions=now.versions,
            files=now.files,
            unreadable=now.unreadable,
            is_encoded=is_encoded,
            num_passages=num_passages,
            num_bare=num_bare,
        )
        replace_cached(self.place / _MANIFEST, json.dumps(asdict(self._kept)))


def _bare_ids(index: Index) -> list[str]:
    """Return the ids of the documents whose view is all zeros: the first of each file, then the second, and so on."""
    snapshot = embedded_store_of(index).snapshot
    views = snapshot.views
    rows = snapshot.rows_by_ordinal
    is_bare: Bools = np.logical_not(np.any(views.matrix[views.starts[rows]], axis=1))
    place_in_file: Counter[str] = Counter()
    found = []
    for document, bare in zip(index.scan(), is_bare.tolist(), strict=True):
        file = str(document.metadata.get("file"))
        place_in_file[file] += 1
        if bare:
            found.append((place_in_file[file], document.id))
    return [doc_id for _, doc_id in sorted(found, key=lambda one: one[0])]


def _read(path: os.PathLike[str]) -> Any:
    """Return the JSON of a file; None where there is none, or it is damaged."""
    try:
        with open(path, encoding="utf-8") as file:
            return json.load(file)
    except (OSError, ValueError):
        return None


# Passages on any subject have cosines of up to .39 with words that mean nothing, measured on sources and docs of
# packages. One that has none of the words must be nearer.
_LEAST_COSINE = 0.4
# Of each list: they set its scale, as in hybrid search.
_DEPTH = 100
# Nearly nothing, so that passages are ordered by their terms, and scored by both.
_TERMS_FIRST = (1e-9, 1.0)


class GrepHit(NamedTuple):
    """A hit, with its score in each ranking; None where that was not asked for."""

    hit: Hit
    dense: float | None
    lexical: float | None

    @property
    def is_near(self) -> bool:
        """Return whether the passage has one of the words, or is near in meaning."""
        return bool(self.lexical) or (self.dense is not None and self.dense >= _LEAST_COSINE)


def search_hidden(  # noqa: PLR0913 - a query, and what is searched for it
    index: Index, words: str, top_k: int, mode: Mode, files: Collection[str] | None, *, has_bare: bool
) -> list[GrepHit]:
    """Return the best passages that have one of the words or are near in meaning, best first.

    Args:
        index: The index.
        words: The query.
        top_k: Number of passages, at most.
        mode: By which rankings; AUTO is HYBRID, since a hidden index has a lexical side.
        files: The files that are searched; None for all.
        has_bare: Whether there are passages without views.

    """
    if not len(index) or files == []:
        return []
    mode = Mode.HYBRID if mode is Mode.AUTO else mode
    chosen: dict[str, Any] = {"filter": None if files is None else {"file": {"in": list(files)}}, "mode": mode.value}
    depth = max(top_k, _DEPTH)  # the best of all may be left out, for it has none of the words and is not near
    if has_bare and mode is Mode.HYBRID:
        found = _partly(index, words, depth, chosen)
    else:
        found = [_scored(hit) for hit in index.search(words, depth, **chosen).hits]
    return [hit for hit in found if hit.is_near][:top_k]


def _scored(hit: Hit) -> GrepHit:
    scores = {component.name: component.score for component in hit.components} or {"dense": hit.score}
    return GrepHit(hit, scores.get("dense"), scores.get("lexical"))


def _partly(index: Index, words: str, depth: int, chosen: dict[str, Any]) -> list[GrepHit]:
    """Return the candidates of both rankings, fused as by zscore.

    A passage without views is taken to be as near in meaning as it is by its terms. Its view of zeros has a cosine of
    0, which is farther than any candidate's: fused as it is, it would end behind all of them.
    """
    search: Any = index.search  # with options that are put together
    vector = index.encode_queries([words])[0]
    searches = [search(vector, depth, text=words, **chosen, **extra) for extra in ({}, {"weights": _TERMS_FIRST})]
    found = list({hit.id: _scored(hit) for result in searches for hit in result.hits}.values())
    dense = np.array([hit.dense for hit in found], dtype=np.float64)
    lexical = np.array([hit.lexical for hit in found], dtype=np.float64)
    is_bare = dense == 0
    by_terms = _standardised(lexical, lexical[lexical > 0])
    scores = by_terms + np.where(is_bare, by_terms, _standardised(dense, dense[~is_bare]))
    return [found[place] for place in np.argsort(-scores, kind="stable").tolist()]


def _standardised(scores: np.ndarray[Any, Any], listed: Sequence[float] | np.ndarray[Any, Any]) -> Any:
    """Return the scores on the scale of the best of a list: zero mean, and a standard deviation of one."""
    best = np.sort(np.asarray(listed))[::-1][:_DEPTH]
    spread = best.std() if len(best) else 0.0
    return (scores - best.mean()) / spread if spread > 0 else np.zeros(len(scores))
