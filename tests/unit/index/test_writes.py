"""A write with a mark is carried out once, whatever other writers do before it is sent again."""

import pytest

import mvindex
from mvindex.index import store_of
from mvindex.index.protocol import delete_documents, replace_metadata


@pytest.fixture(params=[None, 3], ids=["one", "shards"])
def path(request, tmp_path):
    with mvindex.create(tmp_path / "a.mvx", dim=2, shards=request.param) as index:
        add(index, "a", {"n": 1})
    return tmp_path / "a.mvx"


def add(index, doc_id, metadata):
    index.add_views([mvindex.Document(doc_id, "", metadata=metadata)], [[[1.0, 0.0]]])


@pytest.mark.parametrize("number", [1, 2])
def test_a_deletion_that_is_sent_again_leaves_what_came_since(path, number):
    """Also one that found nothing at first."""
    with mvindex.open(path) as index:
        first = delete_documents(store_of(index), None, {"n": number}, False, "mark")
        add(index, "b", {"n": number})
    with mvindex.open(path) as index:
        assert delete_documents(store_of(index), None, {"n": number}, False, "mark") == first == 2 - number
        assert index.get("b") is not None
        assert delete_documents(store_of(index), None, {"n": number}, False, "another") == 1


def test_an_update_that_is_sent_again_undoes_no_later_one(path):
    with mvindex.open(path) as index:
        assert replace_metadata(store_of(index), {"a": {"n": 2}}, "mark") == 1
        index.update("a", metadata={"n": 3})
    with mvindex.open(path) as index:
        assert replace_metadata(store_of(index), {"a": {"n": 2}}, "mark") == 1
        assert index.get("a").metadata == {"n": 3}
