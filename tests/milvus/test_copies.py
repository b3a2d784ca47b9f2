"""Pickles of an index in Milvus: the address, and no secret."""

import pickle  # noqa: TID251 - what joblib and DataLoader do

import numpy as np
import pytest

import mvindex
from mvindex.errors import ConfigError
from mvindex_connectors.milvus.address import parse_address


@pytest.mark.needs("milvus-lite")
def test_a_pickled_index_opens_again(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with mvindex.create("milvus-lite:x.db", dim=4) as index:
        index.add_views([mvindex.Document("a", "text")], np.ones((1, 1, 4), dtype=np.float32))
        dumped = pickle.dumps(index)
    monkeypatch.chdir("/")
    with pickle.loads(dumped) as same:
        assert [hit.id for hit in same.search(np.ones(4)).hits] == ["a"]


def test_the_shown_address_of_lite_opens_the_same_collection():
    for text in ("milvus-lite:a.db", "milvus-lite:a.db?collection=b"):
        assert parse_address(parse_address(text).shown).collection == parse_address(text).collection


def test_an_address_with_a_secret_is_not_pickled():
    assert parse_address("milvus://host/name?timeout=3").reopens == "milvus://host/name?timeout=3"
    with pytest.raises(ConfigError, match=r"MVINDEX_MILVUS_TOKEN.*pickle") as refused:
        _ = parse_address("milvus://root:hidden@host/name").reopens
    assert "hidden" not in str(refused.value)
