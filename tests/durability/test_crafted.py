"""Indexes whose checksums are right and whose numbers are not: compiled loops must not follow them."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
import xxhash

import mvindex
from mvindex.durable import file_checksum
from mvindex.errors import DamagedIndex, EngineUnavailable
from mvindex.kernels import expecting_work
from mvindex.store.lexical.postings import PackedBlock, Postings, encode_plainly
from mvindex.store.rows import row_checksum
from mvindex.store.schema import settings_checksum
from mvindex.store.views import ROW_DTYPE, range_checksums
from mvindex.testing import unit

DOCUMENTS, VIEWS, DIM = 64, 2, 64
QUERY = np.random.default_rng(1).standard_normal(DIM).astype(np.float32)
FAR = 1 << 30


@pytest.fixture
def made(tmp_path):
    views = unit(np.random.default_rng(0).standard_normal((DOCUMENTS, VIEWS, DIM)))
    with mvindex.create(tmp_path / "x.mvx", dim=DIM, dtype="fp32", lexical="unicode") as index:
        index.add_views([mvindex.Document(str(n), "common word") for n in range(DOCUMENTS)], views)
        index.admin.build("graph")
    (generation,) = (tmp_path / "x.mvx").glob("generation-*")
    return generation


def catalog(generation):
    return closing(sqlite3.connect(generation / "catalog.sqlite", isolation_level=None))


def change_array(generation, name, change):
    """Change an array of the graph, and all checksums that tell of it."""
    (path,) = generation.glob(f"engine-graph-*/{name}.npy")
    array = np.load(path)
    changed = change(array)
    np.save(path, array if changed is None else changed)
    with catalog(generation) as connection:
        stored = dict(connection.execute("SELECT key, value FROM settings WHERE key != 'checksum'"))
        engine = json.loads(stored["engine"])
        engine["checksums"][path.name] = file_checksum(path)
        engine["settings"].pop("measured", None)
        stored["engine"] = json.dumps(engine, ensure_ascii=False)
        connection.execute("UPDATE settings SET value = ? WHERE key = 'engine'", (stored["engine"],))
        connection.execute("UPDATE settings SET value = ? WHERE key = 'checksum'", (settings_checksum(stored),))


def hits(generation, **request):
    with mvindex.open(generation.parent) as index, expecting_work():
        return index.search(QUERY, top_k=5, **request).hits


@pytest.mark.parametrize("value", [FAR, DOCUMENTS * VIEWS, -FAR])
@pytest.mark.parametrize("name", ["links", "owners"])
def test_a_walk_leaves_out_what_is_beyond_the_graph(made, name, value):
    assert len(hits(made)) == 5
    change_array(made, name, lambda array: array.__setitem__(slice(None, None, 3), value))
    assert len({hit.id for hit in hits(made)}) == 5


@pytest.mark.parametrize("name", ["owners", "factors"])
def test_a_walk_finds_no_document_twice(made, name):
    change_array(made, name, lambda array: array.fill(3) if name == "owners" else array.fill(np.nan))
    found = hits(made)
    assert len({hit.id for hit in found}) == len(found)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("entries", lambda array: array.fill(FAR)),
        ("entries", lambda array: array.fill(-1)),
        ("starts", lambda array: array.__setitem__(slice(1, -1), 1 << 40)),
        ("starts", lambda array: array.__setitem__(slice(3, 5), [(1 << 63) - 4096, -(1 << 62)])),
        ("starts", lambda array: array[:0].copy()),
        ("owners", lambda array: array.astype(np.int64)),
        ("factors", lambda array: array[:, :1].copy()),
    ],
)
def test_a_graph_whose_arrays_do_not_fit_is_refused(made, name, change):
    change_array(made, name, change)
    with pytest.raises(EngineUnavailable, match="mvindex build"):
        hits(made)


def test_a_graph_of_more_documents_than_there_are_is_refused(made):
    (engine,) = made.glob("engine-graph-*")
    with catalog(made) as connection:
        (record,) = connection.execute("SELECT value FROM settings WHERE key = 'engine'").fetchone()
    with mvindex.create(made.parent.parent / "less.mvx", dim=DIM, dtype="fp32", lexical="unicode") as index:
        index.add_views([mvindex.Document("one", "common word")], [unit(np.ones((1, DIM)))])
    (other,) = (made.parent.parent / "less.mvx").glob("generation-*")
    engine.rename(other / engine.name)
    with catalog(other) as connection:
        stored = dict(connection.execute("SELECT key, value FROM settings WHERE key != 'checksum'")) | {
            "engine": record
        }
        connection.execute("UPDATE settings SET value = ? WHERE key = 'engine'", (record,))
        connection.execute("UPDATE settings SET value = ? WHERE key = 'checksum'", (settings_checksum(stored),))
    with pytest.raises(EngineUnavailable, match=f"it is of {DOCUMENTS} documents, the index has 1"):
        hits(other)


def test_views_that_begin_so_far_apart_that_differences_wrap_around_are_refused(made):
    (path,), (views,) = made.glob("rows-*.bin"), made.glob("views-*")
    rows = np.fromfile(path, ROW_DTYPE)
    rows["view_start"][30:32] = (1 << 63) - 1 - 4096, -(1 << 62)
    starts = np.append(rows["view_start"], DOCUMENTS * VIEWS) * 4 * DIM
    rows["checksum"] = range_checksums(memoryview(views.read_bytes()), starts[:-1], starts[1:])
    rows.tofile(path)
    checksum = np.uint64(xxhash.xxh3_64_intdigest(Path(path).read_bytes())).view(np.int64)
    with catalog(made) as connection:
        connection.execute("UPDATE blocks SET checksum = ? WHERE name LIKE 'rows-%'", (int(checksum),))
    with pytest.raises(DamagedIndex, match="do not follow each other"):
        hits(made, exact=True)


@pytest.mark.parametrize("rows", [[0, 200_000, (1 << 32) + 2], [0, 1 << 31], [0, DOCUMENTS]])
def test_document_rows_of_a_term_that_are_beyond_the_index_are_refused(made, rows):
    with catalog(made) as connection:
        (segment,) = connection.execute("SELECT first_row, num_rows, num_blocks FROM lexical_segments").fetchall()
        for key, block in connection.execute("SELECT key, postings FROM lexical_blocks").fetchall():
            hashes = PackedBlock(block).all().hashes
            starts = np.arange(len(hashes) + 1) * len(rows)
            forged = Postings(hashes, starts, np.tile(rows, len(hashes)), np.ones(starts[-1], dtype=np.int64))
            (data,) = encode_plainly(forged, np.array([0, len(hashes)]))
            connection.execute(
                "UPDATE lexical_blocks SET postings = ?, checksum = ? WHERE key = ?",
                (data, row_checksum(*segment, key % 1024, data), key),
            )
    with mvindex.open(made.parent) as index, pytest.raises(DamagedIndex, match="of a term are out of order"):
        index.search("common", mode="lexical")
    assert not mvindex.verify(made.parent).is_sound
