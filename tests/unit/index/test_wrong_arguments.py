"""Arguments that no index can use: each is refused by name, with an error of mvindex."""

import numpy as np
import pytest

import mvindex
from mvindex.errors import MvindexError


class _Silent:
    def __repr__(self):
        raise RuntimeError("no repr")


_WRONG = [
    None, -1, 1.5, 10**5000, "", "\0", "\ud800", b"a", [None], ["a", None], [["a"]], {"a": 1}, object(), _Silent(),
    [_Silent()], np.int64(-3), np.array([1]), np.array([[None]]), float("nan"),
]  # fmt: skip
_DOCUMENT = mvindex.Document("q", "t")
_CALLS = {
    "get": lambda index, wrong: index.get(wrong),
    "delete": lambda index, wrong: index.delete([wrong]),
    "encode_queries": lambda index, wrong: index.encode_queries(wrong),
    "encode_queries one": lambda index, wrong: index.encode_queries([wrong]),
    "set_filter_fields": lambda index, wrong: index.admin.set_filter_fields({id(wrong): "int"}),
    "tune_fusion": lambda index, wrong: index.admin.tune_fusion(["t"] * 30, [wrong] * 30),
    "tune_confidence": lambda index, wrong: index.admin.tune_confidence(["t"] * 30, [{"a": wrong}] * 30),
    "metadata key": lambda index, wrong: index.update("a", metadata={"a": {id(wrong): 1}}),
    "sync_folder": lambda index, wrong: mvindex.sync_folder(index, [wrong]),
    "read_files": lambda _, wrong: list(mvindex.read_files([wrong])),
    "open": lambda index, wrong: mvindex.open(index.where, device=[wrong]),
    "load_encoder": lambda _, wrong: mvindex.load_encoder("minilm-views", device=[wrong]),
    "delete filter": lambda index, wrong: index.delete(filter={"a": {"contains_any": [wrong]}, "$or": wrong}),
    "delete all": lambda index, wrong: index.delete(all=wrong),
    "update id": lambda index, wrong: index.update(wrong, metadata={}),
    "update": lambda index, wrong: index.update("a", metadata=[wrong]),
    "update_all": lambda index, wrong: index.update_all(wrong),
    "scan after": lambda index, wrong: list(index.scan(after=[wrong])),
    "scan limit": lambda index, wrong: list(index.scan(limit=[wrong])),
    "filter": lambda index, wrong: index.search([1, 0], filter={"a": {"eq": [wrong]}}),
    "filter id": lambda index, wrong: index.search([1, 0], filter={"id": {"in": ["a", [wrong]]}}),
    "filter operator": lambda index, wrong: index.search([1, 0], filter={"a": {id(wrong): wrong}}),
    "filter exists": lambda index, wrong: index.search([1, 0], filter={"a": {"exists": wrong}}),
    "top_k": lambda index, wrong: index.search([1, 0], top_k=[wrong]),
    "query": lambda index, wrong: index.search(wrong),
    "temperature": lambda index, wrong: index.search([1, 0], scoring="drpq", temperature=[wrong]),
    "add_views documents": lambda index, wrong: index.add_views(wrong, [[[1.0, 0.0]]]),
    "add_views document": lambda index, wrong: index.add_views([wrong], [[[1.0, 0.0]]]),
    "add_views views": lambda index, wrong: index.add_views([_DOCUMENT], wrong),
    "view_texts": lambda _, wrong: mvindex.Document("x", "text", view_texts=[[wrong]]),
    "span": lambda _, wrong: mvindex.Document("x", "text", view_texts=[mvindex.ViewText("v", [wrong, wrong])]),
}


@pytest.fixture(scope="module")
def index(tmp_path_factory):
    with mvindex.create(tmp_path_factory.mktemp("wrong") / "w.mvx", dim=2) as made:
        made.add_views([mvindex.Document("a", "t", metadata={"a": ["x"]})], [[[1.0, 0.0]]])
        yield made


@pytest.mark.parametrize("call", _CALLS)
def test_a_wrong_argument_is_an_error_of_mvindex(index, call):
    for wrong in _WRONG:
        # An id that is a string may be unknown, and a missing one is not given.
        if call in ("get", "delete") and (wrong == "" or (call == "get" and wrong in ([["a"]], {"a": 1}))):
            continue
        with pytest.raises(MvindexError):
            _CALLS[call](index, wrong)
    assert len(index) == 1


@pytest.mark.parametrize(
    "option",
    [
        "offset", "cursor", "citations", "context", "max_chars", "max_tokens", "diversity", "min_confidence", "mode",
        "positives", "negatives", "like", "rerank", "rerank_on", "rerank_depth", "fields", "weights", "fusion",
    ],
)  # fmt: skip
def test_a_wrong_option_of_a_search_is_an_error_of_mvindex(index, option):
    for wrong in (-1, 1.5, "\0", b"a", ["a", None], [["a"]], object(), np.int64(-3), np.array([[None]]), float("nan")):
        with pytest.raises(MvindexError):
            index.search([1, 0], **{option: wrong})


def test_numbers_of_numpy_are_taken_as_arguments(tmp_path):
    with mvindex.create(tmp_path / "n.mvx", dim=np.int64(2), shards=np.int8(2), temperature=np.float32(0.5)) as index:
        index.add_views([mvindex.Document(np.str_("a"), "t")], np.ones((1, 1, 2)))
        options = {"scoring": "drpq", "temperature": np.float32(0.25), "candidates": np.int64(10)}
        assert [hit.id for hit in index.search([1, 0], top_k=np.uint8(3), **options).hits] == ["a"]
        assert index.get(np.array(["a"]))[0].id == "a"
        assert index.delete(ids=np.array(["a"])) == 1
    view = mvindex.ViewText("v", np.array([0, 2]))
    assert view.span == (0, 2)
