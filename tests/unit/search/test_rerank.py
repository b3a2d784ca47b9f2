"""Reranking: the order of a hand-made function and of a cross-encoder, what hits then tell, and what is refused."""

import numpy as np
import pytest

import mvindex
from mvindex import Document
from mvindex.encoder.cross_encoder import CrossEncoder
from mvindex.errors import CheckpointError, EncoderError, QueryError
from mvindex.records import Component, SearchResult
from mvindex.search.request import SearchRequest
from mvindex.search.rerank import parse_rerank
from tests.helpers.tiny_classifiers import WORDS, save_classifiers

COUNT = 60


@pytest.fixture(scope="module")
def index(tmp_path_factory):
    """60 documents, the n-th scored 1 - n / 100 by views for the query (1, 0), with "oil" in every third."""
    path = tmp_path_factory.mktemp("reranking") / "a.mvx"
    with mvindex.create(path, dim=2, dtype="fp32", lexical="english") as index:
        texts = [f"the {WORDS[n % len(WORDS)]} {'oil' if n % 3 == 0 else 'house'} {n}" for n in range(COUNT)]
        documents = [Document(f"d{n}", text, "it" if n % 2 else "") for n, text in enumerate(texts)]
        index.add_views(documents, np.array([[[1 - n / 100, 0.0]] for n in range(COUNT)]))
        yield index


QUERY = np.array([1.0, 0.0])


def number(hit):
    return int(hit.id[1:])


def test_documents_come_by_the_new_scores_and_tell_the_old(index):
    asked = []

    def rerank(query, hits):
        asked.append((query, [hit.id for hit in hits]))
        return [number(hit) % 50 for hit in hits]

    found = index.search(QUERY, 3, mode="dense", text="what is it", rerank=rerank)
    assert asked == [("what is it", [f"d{n}" for n in range(50)])]
    assert [(hit.id, hit.score) for hit in found.hits] == [("d49", 49.0), ("d48", 48.0), ("d47", 47.0)]
    before, after = found.hits[0].components
    assert before == Component("dense", 50, pytest.approx(0.51), 0.0)
    assert after == Component("rerank", 1, 49.0, 49.0)
    assert (found.exact, found.short_by) == (True, 0)


def test_equal_scores_keep_the_old_order(index):
    found = index.search(QUERY, 4, text="x", rerank=lambda query, hits: np.array([number(hit) == 7 for hit in hits]))
    assert [hit.id for hit in found.hits] == ["d7", "d0", "d1", "d2"]


def test_as_many_candidates_are_read_as_are_asked_for(index):
    def counted(query, hits):
        return [len(hits)] * len(hits)

    for options, wanted in [({}, 50), ({"top_k": 55}, 55), ({"rerank_depth": 12}, 12), ({"rerank_depth": 999}, COUNT)]:
        found = index.search(QUERY, text="x", rerank=counted, **options)
        assert found.hits[0].score == wanted
        assert len(found.hits) == options.get("top_k", 10) and found.short_by == 0
    assert index.search(QUERY, 70, text="x", rerank=counted).short_by == 0
    none = index.search(QUERY, text="x", rerank=counted, filter={"year": 1})
    assert (none.hits, none.short_by) == ((), 0)


def test_what_was_missing_before_is_missing_after():
    """5 hits of 8 that there are: of 6 that are wanted 1 is missing, of 4 none."""
    hit = mvindex.Hit("d0", 0.5, 0, None, None, "", "", {})
    found = SearchResult((hit,) * 5, False, 3, 1)
    for top_k, short_by in ((6, 1), (4, 0), (8, 3)):
        again = parse_rerank(lambda query, hits: [0] * len(hits), None, None, SearchRequest(top_k=top_k))
        assert again.reranked(["x"], [found])[0].short_by == short_by


def test_several_questions_are_each_reranked_by_their_own(index):
    def rerank(query, hits):
        return [-abs(number(hit) - int(query)) for hit in hits]

    found = index.search(np.array([QUERY, QUERY]), 2, text=["30", "12"], rerank=rerank)
    assert [[hit.id for hit in each.hits] for each in found] == [["d30", "d29"], ["d12", "d11"]]


def test_words_and_both_are_reranked_too_and_parts_still_make_the_score(index):
    def rerank(query, hits):
        return [number(hit) for hit in hits]

    lexical = index.search("oil", 2, mode="lexical", rerank=rerank)
    assert [hit.id for hit in lexical.hits] == ["d57", "d54"]
    assert [part.name for part in lexical.hits[0].components] == ["lexical", "rerank"]
    plain = index.search(QUERY, 50, text="oil", mode="hybrid")
    hybrid = index.search(QUERY, 5, text="oil", mode="hybrid", rerank=rerank)
    assert [hit.id for hit in hybrid.hits] == sorted((hit.id for hit in plain.hits), key=lambda d: -int(d[1:]))[:5]
    old = {hit.id: (rank, hit) for rank, hit in enumerate(plain.hits, start=1)}
    for hit in hybrid.hits:
        rank, was = old[hit.id]
        dense, words, both, new = hit.components
        assert [(each.rank, each.score) for each in (dense, words)] == [(e.rank, e.score) for e in was.components]
        assert (both.name, both.rank, both.score) == ("hybrid", rank, was.score)
        assert sum(part.contribution for part in hit.components) == hit.score == new.score


@pytest.mark.parametrize(
    ("scores", "message"),
    [
        ([1.0] * 49, r"shape \(49,\) for 50 hits"),
        ([[1.0]] * 50, r"shape \(50, 1\)"),
        ([1.0, float("nan")] * 25, "nan for hit 2 of 50"),
        ([float("inf")] * 50, "inf for hit 1"),
        ([10**400] * 50, "inf for hit 1"),
        (["high"] * 50, "50 hits: expected numbers, got <U4"),
        (None, "50 hits: expected numbers, got None"),
    ],
)
def test_scores_that_are_none_are_refused(index, scores, message):
    with pytest.raises(EncoderError, match=message):
        index.search(QUERY, text="x", rerank=lambda query, hits: scores)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rerank": len}, "give it beside the vector"),
        ({"rerank": len, "text": ["a", "b"]}, "a text for each query vector"),
        ({"rerank": 7, "text": "x"}, "rerank is int"),
        ({"rerank": len, "text": "x", "rerank_on": "text"}, "rerank_on="),
        ({"rerank": "a", "text": "x", "rerank_on": "title"}, "expected snippet or text"),
        ({"rerank": len, "text": "x", "rerank_depth": 9}, "rerank_depth is 9, and top_k 10"),
        ({"rerank": len, "text": "x", "rerank_depth": 0}, "rerank_depth: expected a whole number"),
        ({"rerank_depth": 60}, "belongs to rerank="),
        ({"rerank_on": "text"}, "belongs to rerank="),
    ],
    ids=str,
)
def test_what_does_not_go_together_is_refused(index, options, message):
    with pytest.raises(QueryError, match=message):
        index.search(QUERY, **options)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    return save_classifiers(tmp_path_factory.mktemp("classifiers")) / "1"


@pytest.mark.parametrize("read", [None, "snippet", "text"])
def test_a_cross_encoder_orders_by_its_scores_of_snippets_or_texts(tmp_path, checkpoint, read):
    """Snippets are spans of the views; the title stands before them, and stands alone where it is the snippet."""
    texts = ["the old house. what is it", "oil crisis where. the river", "it is past. the oil flows", ""]
    spans = [(0, 14), (0, 16), (0, 11)]
    hits = [
        mvindex.Hit(f"d{n}", 0.5, 0, span, text[slice(*span)], text, "river" if n else "", {})
        for n, (text, span) in enumerate(zip(texts, spans, strict=False))
    ]
    hits.append(mvindex.Hit("d3", 0.5, 0, None, "oil crisis", "", "oil crisis", {}))
    hits.append(mvindex.Hit("d4", 0.5, 0, None, None, "the house flows", "", {}))
    snippets = ["the old house.", "river\noil crisis where", "river\nit is past.", "oil crisis", "the house flows"]
    whole = [texts[0], f"river\n{texts[1]}", f"river\n{texts[2]}", "oil crisis", "the house flows"]
    model = CrossEncoder(str(checkpoint))
    shown = whole if read == "text" else snippets
    scores = model.score([("what is it", Document("x", text)) for text in shown])
    assert len(set(scores)) == 5
    again = parse_rerank(str(checkpoint), read, None, SearchRequest(top_k=5))
    found = again.reranked(["what is it"], [SearchResult(tuple(hits), True, 0, 1)])[0]
    wanted = sorted(zip(scores, (hit.id for hit in hits), strict=True), reverse=True)
    assert [(hit.score, hit.id) for hit in found.hits] == [(pytest.approx(score, abs=2e-5), i) for score, i in wanted]


def test_a_cross_encoder_reranks_an_index_and_is_loaded_once(index, checkpoint, monkeypatch):
    from mvindex.encoder import cross_encoder

    loaded = []
    load = cross_encoder._load
    monkeypatch.setattr(cross_encoder, "_load", lambda folder: (loaded.append(folder), load(folder))[1])
    for given in (checkpoint.parent / "2", str(checkpoint.parent / "2")):
        found = index.search("oil crisis", 20, mode="lexical", rerank=given)
    assert len(loaded) == 1
    scores = [hit.score for hit in found.hits]
    assert scores == sorted(scores, reverse=True) and len(set(scores)) > 1


def test_what_is_no_cross_encoder_is_refused_before_the_search(checkpoint, tmp_path):
    for folder in (tmp_path, checkpoint.parent / "3"):
        with pytest.raises(CheckpointError, match=str(folder)):
            parse_rerank(folder, None, None, SearchRequest())


def test_any_sequence_of_numbers_will_do():
    for kind in (tuple, list, np.array):
        again = parse_rerank(lambda query, hits, kind=kind: kind([1, 3, 2]), None, None, SearchRequest(top_k=3))
        made = tuple(mvindex.Hit(f"d{n}", 0.5, 0, None, None, "", "", {}) for n in range(3))
        assert [hit.id for hit in again.reranked(["x"], [SearchResult(made, True, 0, 1)])[0].hits] == [
            "d1",
            "d2",
            "d0",
        ]
