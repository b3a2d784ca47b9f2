"""Corpora for indexes in shards, the same ones unsharded, and what is compared of both."""

import numpy as np

import mvindex
from mvindex.index import store_of
from mvindex.index.factory import create_shard_index, open_shard_index
from mvindex.ingest import Entry
from mvindex.store.shard_layout import ShardPlace

DIM = 8


def corpus(count, seed=0, prefix="d"):
    """Documents with one to three views of few different values, so that scores tie within and across shards."""
    rng = np.random.default_rng(seed)
    documents = [
        mvindex.Document(f"{prefix}{n}", f"text {n} of {seed}", metadata={"even": n % 2 == 0}) for n in range(count)
    ]
    views = [rng.integers(-1, 2, (int(rng.integers(1, 4)), DIM)).astype(np.float32) for _ in range(count)]
    return documents, [np.where(rows.any(axis=1, keepdims=True), rows, np.float32(1)) for rows in views]


def fill_shard(path, place, *corpora):
    """One shard filled alone, as a process of its own does."""
    for documents, views in corpora:
        is_new = not (path / place.directory).exists()
        dim = views[0].shape[-1]
        with create_shard_index(path, place, dim=dim) if is_new else open_shard_index(path, place) as shard:
            shard.add_views(documents, views)


def fill_shards(path, count, *corpora):
    for number in range(count):
        fill_shard(path, ShardPlace(number, count), *corpora)


def stored(index):
    """Return all that searches can see, by id: ordinal, text, metadata and views."""
    return {doc_id: value for part in store_of(index).parts() for doc_id, value in stored_in(part.store).items()}


def stored_in(store):
    """Return what stored() does, for one embedded store."""
    found, snapshot = {}, store.snapshot
    with store.reading(snapshot) as reader:
        for row, document in reader.documents(np.flatnonzero(snapshot.alive).tolist()).items():
            views = snapshot.views.fetch(np.array([row]))[0].tolist()
            ordinal = int(snapshot.views.ordinals(np.array([row]))[0])
            found[document.id] = (ordinal, document.text, document.metadata, views)
    return found


def order(index):
    """The ids in the order of their ordinals."""
    return [doc_id for doc_id, _ in sorted(stored(index).items(), key=lambda item: item[1][0])]


def answers(index, queries, **options):
    """Ids, scores and slots of every query's hits."""
    return [
        ([(hit.id, hit.score, hit.slot, hit.text) for hit in result.hits], result.exact)
        for result in index.search(queries, **options)
    ]


def entries(documents, views):
    return [Entry(f"line {n}", *pair) for n, pair in enumerate(zip(documents, views, strict=True), start=1)]
