"""Torn writes lose nothing acknowledged; damage is named and never answered from."""

import os
import sqlite3
from contextlib import closing

import numpy as np
import pytest

import mvindex
from mvindex.errors import (
    ConfigError,
    DamagedIndex,
    StoreError,
)
from mvindex.store.connections import map_sqlite_errors
from tests.helpers.index_examples import vectors


def test_bytes_of_a_torn_append_are_cut_at_the_next_write(index, tmp_path):
    for name in ("views-000001.f16", "rows-000001.bin"):
        with open(tmp_path / "x.mvx" / "generation-000001" / name, "ab") as file:
            file.write(b"\xff" * 777)
    with mvindex.open(tmp_path / "x.mvx") as again:
        again.add_views([mvindex.Document("new", "t")], vectors(1, seed=3))
        result = again.search(vectors(1, seed=3)[0, 0], top_k=1)
        assert result.hits[0].id == "new"
        assert len(again.search(np.ones(4), top_k=20).hits) == 11


def test_damaged_views_are_named_never_answered_from(index, tmp_path):
    with open(tmp_path / "x.mvx" / "generation-000001" / "views-000001.f16", "r+b") as file:
        file.write(b"\x00\x3c\x00\x3c")
    with mvindex.open(tmp_path / "x.mvx") as again, pytest.raises(DamagedIndex, match="views-000001.f16"):
        again.search(np.ones(4))


@pytest.mark.needs("faiss")
def test_building_is_swapped_in_and_damage_of_an_engine_is_named(index, tmp_path):
    index.admin.build(kind="flat")
    assert index.info().kind == "flat"
    (engine,) = (tmp_path / "x.mvx" / "generation-000001").glob("engine-*")
    with open(engine / "index.faiss", "r+b") as file:
        file.seek(60)
        file.write(b"\xff\xff")
    with mvindex.open(tmp_path / "x.mvx") as again:
        with pytest.raises(DamagedIndex, match="mvindex build"):
            again.search(np.ones(4))
        assert again.search(np.ones(4), exact=True).exact
        again.admin.build(kind="hnsw")
        assert len(again.search(np.ones(4)).hits) == 10
    assert [path.name[:11] for path in (tmp_path / "x.mvx" / "generation-000001").glob("engine-*")] == ["engine-hnsw"]
    with pytest.raises(ConfigError, match="got 'ivf'"):
        index.admin.build(kind="ivf")


@pytest.mark.parametrize(
    ("table", "change"),
    [
        ("texts", "text = 'text 3.'"),
        ("texts", "title = 'x'"),
        ("documents", "id = '33'"),
        ("metadata", "json = '{\"a\":1}'"),
        ("metadata", "json = 'no JSON'"),
    ],
)
def test_a_damaged_catalog_row_is_named(index, tmp_path, table, change):
    connection = sqlite3.connect(tmp_path / "x.mvx" / "generation-000001" / "catalog.sqlite")
    with connection:
        connection.execute(f"UPDATE {table} SET {change} WHERE doc_row = 3")
    connection.close()
    with mvindex.open(tmp_path / "x.mvx") as again, pytest.raises(DamagedIndex, match="row 3"):
        again.search(np.ones(4), top_k=10)


@pytest.mark.needs("faiss")
@pytest.mark.parametrize("make", [os.mkfifo, lambda path: path.symlink_to("/dev"), lambda path: path.write_text("x")])
def test_what_stands_in_the_place_of_an_engine_to_be_removed_stops_no_build(index, tmp_path, make):
    place = tmp_path / "x.mvx" / "generation-000001" / "gone-engine-flat-000001"
    make(place)
    assert index.admin.build(kind="flat").kind == "flat"
    assert not os.path.lexists(place) and os.path.exists("/dev/null")


def test_a_document_whose_metadata_is_gone_is_not_taken_for_an_absent_one(index, tmp_path):
    connection = sqlite3.connect(tmp_path / "x.mvx" / "generation-000001" / "catalog.sqlite")
    connection.execute("DELETE FROM metadata WHERE doc_row = 3")
    connection.commit()
    connection.close()
    with mvindex.open(tmp_path / "x.mvx") as again:
        doc_id = "3"
        for write in (
            lambda: again.delete(ids=[doc_id]),
            lambda: again.update(doc_id, metadata={"a": 1}),
            lambda: again.add_views([mvindex.Document(doc_id, "other")], vectors(1, seed=3)),
        ):
            with pytest.raises(DamagedIndex, match=r"row 3\) is missing"):
                write()


def test_a_database_of_another_program_is_refused(tmp_path):
    (tmp_path / "y.mvx").mkdir()
    for content in (b"x" * 5000, b""):
        (tmp_path / "y.mvx" / "catalog.sqlite").write_bytes(content)
        with pytest.raises(StoreError, match="there is no mvindex index here"):
            mvindex.open(tmp_path / "y.mvx")


def test_a_catalog_of_another_program_is_refused(tmp_path):
    mvindex.create(tmp_path / "a.mvx", dim=4).close()
    (catalog,) = (tmp_path / "a.mvx").rglob("catalog.sqlite")
    with closing(sqlite3.connect(catalog, isolation_level=None)) as connection:
        connection.execute("PRAGMA application_id=7")
    with pytest.raises(StoreError, match="a database of another program \\(application id 7\\)"):
        mvindex.open(tmp_path / "a.mvx")


@pytest.mark.parametrize(
    ("sql", "kind"), [("SELECT CAST(x'ff' AS TEXT)", DamagedIndex), ("SELECT 1 FROM x", StoreError)]
)
def test_only_what_cannot_be_decoded_is_damage(tmp_path, sql, kind):
    with closing(sqlite3.connect(":memory:")) as connection, pytest.raises(StoreError) as caught:
        with map_sqlite_errors(tmp_path):
            connection.execute(sql).fetchall()
    assert type(caught.value) is kind
