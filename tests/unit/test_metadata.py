"""Metadata of documents: how much of it, and how deep, is taken."""

import json
import sqlite3
import sys

import pytest

import mvindex
from mvindex import Document
from mvindex.errors import DocumentError, StoreError
from mvindex.records import MAX_METADATA_DEPTH, MAX_METADATA_VALUES
from mvindex.store.rows import metadata_checksum
from mvindex.testing import unit


def nested(depth, list_at=None):
    """Return metadata of so many objects inside one another, or lists below a depth."""
    value = {}
    for level in range(depth - 1):
        value = [value] if list_at is not None and level < depth - list_at else {"a": value}
    return value


@pytest.mark.parametrize("list_at", [None, 3])
def test_metadata_of_many_levels_are_refused(list_at):
    assert Document("d", "t", metadata=nested(MAX_METADATA_DEPTH, list_at)).metadata
    for depth in (MAX_METADATA_DEPTH + 1, 250, 100_000):
        with pytest.raises(DocumentError, match=f"at most {MAX_METADATA_DEPTH} objects and lists inside"):
            Document("d", "t", metadata=nested(depth, list_at))


def test_metadata_of_many_values_are_refused():
    assert Document("d", "t", metadata={str(n): n for n in range(MAX_METADATA_VALUES)}).metadata
    for many in (
        {str(n): n for n in range(MAX_METADATA_VALUES + 1)},
        {"a": [{} for _ in range(MAX_METADATA_VALUES)]},
        {str(n): {"a": [1]} for n in range(MAX_METADATA_VALUES // 3 + 1)},
    ):
        with pytest.raises(DocumentError, match="at most 100,000 values"):
            Document("d", "t", metadata=many)


def test_an_update_is_refused_too(tmp_path):
    with mvindex.create(tmp_path / "a.mvx", dim=2) as index:
        index.add_views([Document("d", "t", metadata={"a": 1})], unit([[[1.0, 0.0]]]))
        with pytest.raises(DocumentError, match="inside one another"):
            index.update("d", metadata=nested(250))
        assert index.get("d").metadata == {"a": 1}


def test_deep_metadata_are_not_taken_for_damage_by_a_deep_stack(tmp_path):
    """Written by a program without the limit: sound, and read where the stack has room."""
    path = tmp_path / "a.mvx"
    with mvindex.create(path, dim=2) as index:
        index.add_views([Document("d", "t")], unit([[[1.0, 0.0]]]))
        catalog = index._store.snapshot.source.catalog.path
    dumped = json.dumps(nested(250))
    with sqlite3.connect(catalog) as connection:
        connection.execute("UPDATE metadata SET json = ?, checksum = ?", (dumped, metadata_checksum(0, dumped)))
    connection.close()

    def deep(left, act):
        return deep(left - 1, act) if left else act()

    with mvindex.open(path) as index:
        room = sys.getrecursionlimit() - 250
        with pytest.raises(StoreError, match="nothing is damaged") as refused:
            deep(room, lambda: index.search([1.0, 0.0], top_k=1))
        assert type(refused.value) is StoreError
        assert index.search([1.0, 0.0], top_k=1).hits[0].metadata == nested(250)
