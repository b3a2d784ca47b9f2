"""The embedded index: what it gives back, what it takes, and what it says of itself."""

import numpy as np
import pytest

import mvindex
from mvindex.errors import (
    ConfigError,
    QueryError,
    StoreError,
    Unsupported,
)
from tests.helpers.index_examples import documents, one_vector, vectors


def test_documents_come_back_whole(index):
    metadata = {"year": 1990, "tags": ["a", "ü"], "nested": {"x": None}}
    index.add_views([mvindex.Document("naïve \U0001f600", "text \u2028 more", "title", metadata)], vectors(1))
    found = index.get("naïve \U0001f600")
    assert (found.id, found.text, found.title) == ("naïve \U0001f600", "text \u2028 more", "title")
    assert found.metadata == metadata
    assert index.get("not there") is None
    assert "3" in index and "not there" not in index
    assert [document.id for document in index][:2] == ["0", "1"]


def test_an_index_opened_again_is_the_same(index, tmp_path):
    query = np.ones(4)
    before = index.search(query, top_k=10)
    with mvindex.open(tmp_path / "x.mvx") as again:
        assert again.search(query, top_k=10) == before
        assert len(again) == 10


def test_the_arguments_of_create_and_open_are_checked(tmp_path):
    for wrong in ({}, {"dim": 3, "encoder": one_vector}, {"dim": 0}, {"dim": True}, {"dim": 3, "dtype": "int8"}):
        with pytest.raises(ConfigError):
            mvindex.create(tmp_path / "z.mvx", **wrong)
    with pytest.raises(TypeError):
        mvindex.create(tmp_path / "z.mvx", dim=3, colour="red")
    assert not (tmp_path / "z.mvx").exists()
    mvindex.create(tmp_path / "z.mvx", dim=3).close()
    with pytest.raises(ConfigError, match="exists"):
        mvindex.create(tmp_path / "z.mvx", dim=3)
    with pytest.raises(StoreError, match="no mvindex index"):
        mvindex.open(tmp_path / "nothing.mvx")
    with pytest.raises(Unsupported, match="URL"):
        mvindex.open("nothing://localhost:1/x")
    with pytest.raises(Unsupported, match="expected grpc://HOST:PORT/NAME"):
        mvindex.open("http://localhost:7780/x")


def test_an_index_of_given_vectors_takes_vectors_only(index):
    with pytest.raises(QueryError, match="given vectors"):
        index.search("a text")
    with pytest.raises(QueryError, match="given vectors"):
        index.add(documents(1))


def test_an_index_of_a_callable_wants_the_same_callable_again(tmp_path):
    with mvindex.create(tmp_path / "y.mvx", encoder=one_vector) as index:
        index.add(documents(3))
    with mvindex.open(tmp_path / "y.mvx") as again, pytest.raises(ConfigError):
        again.search("text")
    with pytest.raises(ConfigError, match="expected the encoder"):
        mvindex.open(tmp_path / "y.mvx", encoder=mvindex.CallableEncoder(one_vector, name="other"))
    with mvindex.open(tmp_path / "y.mvx", encoder=one_vector) as again:
        assert len(again.search("text", top_k=2).hits) == 2


def test_explain_lists_every_view_best_first(index):
    query = vectors(10)[3, 1]
    scored = index.explain(query, "3")
    assert [view.slot for view in scored] == [1, 0]
    assert scored[0].score == index.search(query, top_k=1).hits[0].score
    with pytest.raises(QueryError, match="no document"):
        index.explain(query, "nope")


def test_several_are_explained_in_the_order_asked_for_and_none_that_is_not_there(index):
    query = vectors(10)[3, 1]
    found = index.explain_all(query, ["4", "nope", "3", "4"])
    assert list(found) == ["4", "3"]
    assert found == {doc_id: index.explain(query, doc_id) for doc_id in ("4", "3")}
    assert index.explain_all(query, "3") == {"3": found["3"]}
    assert index.explain_all(query, []) == index.explain_all(query, ["nope"]) == {}
    for wrong, message in (
        (["3", 4], "id: expected a string"),
        (["a\0"], "NUL"),
        (["\ud800"], "expected valid Unicode"),
    ):
        with pytest.raises(QueryError, match=message):
            index.explain_all(query, wrong)
    with pytest.raises(QueryError, match="one query"):
        index.explain_all(vectors(10)[3], ["3"])


def test_delete_wants_one_kind_of_choice(index):
    for wrong in ({}, {"ids": ["1"], "filter": {"id": "1"}}):
        with pytest.raises(QueryError):
            index.delete(**wrong)
    assert index.delete(filter={"id": {"in": ["1", "2"]}}) == 2
    assert index.delete(ids=["1", "3", "3"]) == 1
    assert len(index) == 7


def test_info_says_what_the_index_is(index):
    index.delete(ids="0")
    info = index.info()
    assert (info.documents, info.views, info.num_deleted, info.dim, info.dtype) == (9, 18, 1, 4, "fp16")
    assert (info.kind, info.encoder, info.fresh_documents) == ("exact", None, 0)
    assert info.size_bytes > 0


@pytest.mark.parametrize(("views_each", "count", "dim"), [(7, 1171, 384), (8, 683, 768), (1, 1, 3), (300, 1, 2)])
def test_a_last_document_that_crosses_a_scan_block_is_found(tmp_path, views_each, count, dim):
    """1,171 documents of 7 views are 8,197 views: the stretch of 8,192 ends inside the last document."""
    vectors = np.random.default_rng(0).standard_normal((count, views_each, dim)).astype(np.float32)
    with mvindex.create(tmp_path / "y.mvx", dim=dim) as index:
        index.add_views([mvindex.Document(str(n), "t") for n in range(count)], vectors)
        result = index.search(vectors[-1, -1], top_k=count)
        assert len(result.hits) == count
        assert result.hits[0].id == str(count - 1)


def test_a_nul_in_an_id_never_reaches_another_document(index):
    for use in (
        lambda: index.delete(ids="1\0zzz"),
        lambda: index.get("1\0"),
        lambda: index.delete(filter={"id": "1\0"}),
    ):
        with pytest.raises(QueryError, match="NUL"):
            use()
    assert len(index) == 10
