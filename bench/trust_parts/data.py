"""The index that is measured: seeded vectors, texts of about 100 words, metadata; kept under build/bench."""

import os
import shutil
import sys

import numpy as np
from vectors import CACHE, view_chunks

import mvindex

NUM_QUERIES = 256
_WORDS = np.array(
    [f"{first}{last}" for first in ("ba", "ce", "di", "fo", "gu", "ly", "mar", "ne") for last in range(500)]
)


def documents_with_views(num_documents, options):
    """Yield documents and their views, (k, dim) with 1 to --views rows, in chunks of 8,192 documents."""
    rng = np.random.default_rng(options.seed)
    begin = 0
    for rows in view_chunks(num_documents, options.views, options.dim, options.seed):
        documents = []
        for number in range(begin, begin + len(rows)):
            text = " ".join(rng.choice(_WORDS, rng.integers(80, 121)))
            metadata = {"year": int(rng.integers(1990, 2030)), "source": f"s{rng.integers(50)}", "rank": rng.random()}
            documents.append(mvindex.Document(f"doc-{number}", text, f"title {number}", metadata))
        begin += len(rows)
        counts = rng.integers(1, options.views + 1, len(rows))
        yield documents, [views[:count] for views, count in zip(rows, counts, strict=True)]


def cached_indexes(kinds, options):
    """Return the index of each kind by name, and NUM_QUERIES queries near views of different documents, (q, dim)."""
    folder = CACHE / f"trust-{options.documents}x{options.views}x{options.dim}-seed{options.seed}"
    if not folder.exists():
        _build(folder, options)
    for kind in kinds:
        path = folder / f"{kind}.mvx"
        if not path.exists():
            building = folder / f"building-{os.getpid()}.mvx"
            print(f"building {path}", file=sys.stderr)
            shutil.copytree(folder / "exact.mvx", building)
            with mvindex.open(building) as index:
                index.admin.build(kind)
            building.rename(path)
    return {kind: folder / f"{kind}.mvx" for kind in kinds}, np.load(folder / "queries.npy")


def size_bytes(path):
    return sum(file.stat().st_size for file in path.rglob("*") if file.is_file())


def _build(folder, options):
    building = folder.with_name(f"building-{os.getpid()}")
    print(f"building {folder}", file=sys.stderr)
    near = []
    with mvindex.create(building / "exact.mvx", dim=options.dim) as index:
        for documents, views in documents_with_views(options.documents, options):
            near += [rows[0] for rows in views[: NUM_QUERIES - len(near)]]
            index.add_views(documents, views)
    noise = np.random.default_rng(options.seed).standard_normal((len(near), options.dim))
    np.save(building / "queries.npy", (np.stack(near) + 0.05 * noise).astype(np.float32))
    building.rename(folder)
