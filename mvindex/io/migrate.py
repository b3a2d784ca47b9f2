"""An index moved elsewhere: `mvindex migrate`. Vectors, texts, ids and ordinals stay as they are; nothing is encoded.

What was moved is known by its content, so that a run that was interrupted goes on where it was.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from mvindex.errors import ConfigError, StoreError
from mvindex.index import Index
from mvindex.index.backends import find_backend
from mvindex.index.factory import index_exists, open_index
from mvindex.index.options import as_vectors
from mvindex.records import Floats, SearchResult
from mvindex.store.embedded import EmbeddedStore, create_store

_SEED = 7
_TOP_K = 20
# What a new index takes over from the old one.
_KEPT = ("dim", "dtype", "encoder", "temperature", "prune_views")
_MARK = "migrated_from"


@dataclass(frozen=True, slots=True, kw_only=True)
class MigrateReport:
    """What was done. moved: documents written by this run, the others were there; queries: compared, all the same."""

    source: str
    target: str
    documents: int
    moved: int
    queries: int


def migrate(
    source: str | Path,
    target: str | Path,
    *,
    queries: int = 0,
    on_progress: Callable[[str, int, int | None], None] = lambda what, done, total: None,
) -> MigrateReport:
    """What was done: the index at target, a directory or an address, holds what that at source does, and no more.

    queries: so many are asked of both at the end, and must give the same; StoreError where one does not. ConfigError
    when something else stands at the target than what an earlier run from this source has made.
    """
    with open_index(source) as old, _target(old, target) as new:
        total, moved, looked_at = len(old), 0, 0
        for count, num_moved in new.take(old.batches(), old.next_ordinal):
            looked_at, moved = looked_at + count, moved + num_moved
            on_progress("moving", looked_at, total)
        new.refresh()
        if len(new) != total:
            raise StoreError(
                f"{new.where}: has {len(new):,} documents and {old.where} {total:,}: one of them was written to "
                "meanwhile, or since an earlier run; remove the target and migrate again"
            )
        for number, query in enumerate(_sampled(old, queries), start=1):
            _compare(old, new, query)
            on_progress("comparing answers", number, queries)
        return MigrateReport(source=old.where, target=new.where, documents=total, moved=moved, queries=queries)


def _target(old: Index, target: str | Path) -> Index:
    """The index to be filled: new, or left unfinished by a run from the same source."""
    settings = old.settings
    mark = str(settings["index_id"])
    if not index_exists(target):
        kept = {name: settings.get(name) for name in _KEPT}
        backend = find_backend(target)
        if backend is not None:
            return backend.create(str(target), {**kept, _MARK: mark}, None)
        words = {name: settings.get(name) for name in ("lexical", "fusion")}
        create_store(Path(target), {**kept, **words, _MARK: mark})
        return Index(EmbeddedStore(Path(target)))
    new = open_index(target)
    if new.settings.get(_MARK) != mark:
        where = new.where
        new.close()
        raise ConfigError(f"{where} exists already, and was not made from {old.where}; give a new place")
    return new


def _sampled(index: Index, count: int) -> Floats:
    """Queries between views of documents drawn by chance, (count, dim)."""
    dim = index.dim or 1
    drawn = np.random.default_rng(_SEED)
    views: list[Floats] = []
    for batch in index.batches() if count else ():
        rows = batch.views.rows
        views.append(rows[drawn.integers(len(rows), size=min(count, len(rows)))])
        if len(views) > 64:
            break
    if not views:
        return np.empty((0, dim), dtype=np.float32)
    pool = np.concatenate(views)
    pairs = pool[drawn.integers(len(pool), size=(2, count))]
    return as_vectors(pairs[0] + 0.5 * pairs[1], dim)


def _compare(old: Index, new: Index, query: Floats) -> None:
    """Nothing; StoreError when the two answer differently."""
    for scoring in ("max", "drpq"):
        one, other = (_plain(index.search(query, _TOP_K, scoring=scoring, exact=True)) for index in (old, new))
        if one != other:
            raise StoreError(f"{new.where}: answers otherwise than {old.where} ({scoring}): {other} instead of {one}")


def _plain(result: SearchResult) -> SearchResult:
    """What must be the same: how many searches it took may differ."""
    return replace(result, rounds=0)
