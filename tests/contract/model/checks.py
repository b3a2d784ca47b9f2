"""Answers of an index against the model's state."""

import numpy as np

from mvindex.testing import assert_same, true_scores
from tests.contract.model.state import dumped, matches, ranking

__all__ = [
    "check_document",
    "check_documents",
    "check_info",
    "check_parts",
    "check_result",
    "matches",
    "shown",
    "wrong_uses",
]


def shown(state):
    """All that can be seen of a state, to be compared."""
    rows = {
        doc_id: (_words(row.document), row.views.tobytes(), row.views.shape, row.ordinal)
        for doc_id, row in state.rows.items()
    }
    return rows, state.kind


def check_document(found, expected):
    assert (found is None) == (expected is None)
    assert found is None or _words(found) == _words(expected)


def check_documents(index, state, asked_ids):
    """Check that iteration and get() give the state's documents."""
    found = {document.id: document for document in index}
    assert len(index) == len(state.rows) == len(found)
    assert {doc_id: _words(document) for doc_id, document in found.items()} == {
        doc_id: _words(document) for doc_id, document in state.documents.items()
    }
    for doc_id in asked_ids:
        check_document(index.get(doc_id), state.documents.get(doc_id))
        assert (doc_id in index) == (doc_id in state.rows)


def check_info(index, state, settings):
    info = index.info()
    assert info.documents == len(state.rows)
    assert info.views == sum(len(row.views) for row in state.rows.values())
    assert (info.dim, info.dtype, info.prune_views) == (settings.dim, settings.dtype, settings.prune_views)
    assert info.kind == state.kind
    assert (info.fresh_documents, info.num_deleted) == (state.fresh_documents, state.retired)
    assert info.temperature == settings.drpq_temperature


def check_result(result, state, settings, query, *, top_k, filter=None, exact=False, candidates=None, **scoring):
    """Check that the result is the model's; an approximate engine may only find other documents."""
    truth = ranking(state, settings, query, condition=filter, **scoring)
    assert result.exact or not exact
    assert result.exact or state.kind == "hnsw" or candidates is not None
    if result.exact:
        assert_same(result, truth[:top_k])
    assert result.short_by == 0
    found = [(hit.id, np.float32(hit.score), hit.slot) for hit in result.hits]
    assert len(found) == min(top_k, len(truth))
    # In the order of the truth, and none twice.
    places = [truth.index(hit) for hit in found]
    assert places == sorted(set(places))
    for hit in result.hits:
        document = state.rows[hit.id].document
        assert _words(hit) == _words(document)
        won = None if document.text.strip() else document.title
        assert (hit.span, hit.snippet) == (None, won if hit.citation is None else hit.citation.text)


def check_parts(parts, row, settings, query, scoring="max", temperature=None):
    """Check that every view has its score, best first, and its weight in the document's score."""
    [alone] = true_scores(row.views, np.arange(len(row.views) + 1), query[None])
    by_score = sorted(range(len(row.views)), key=lambda slot: (-alone.scores[slot], slot))
    assert [part.slot for part in parts] == by_score
    assert [np.float32(part.score) for part in parts] == [alone.scores[slot] for slot in by_score]
    weights = [part.weight for part in parts]
    if scoring == "max":
        assert weights == [1.0] + [0.0] * (len(parts) - 1)
        return
    scores = alone.scores[by_score].astype(np.float64)
    powers = np.exp((scores - scores[0]) / (temperature or settings.drpq_temperature))
    assert np.allclose(weights, powers / powers.sum(), rtol=1e-9, atol=1e-300)


def _words(shown):
    """Id, text, title and metadata of a document or a hit; True is not 1 here."""
    return shown.id, shown.text, shown.title, dumped(shown.metadata)


def wrong_uses(index, dim):
    """Calls that no index takes."""
    good = np.ones(dim)
    for doc_id in ("a\0", "\ud800", None, b"a"):
        yield lambda doc_id=doc_id: index.get(doc_id)
    for wrong in ({}, {"ids": ["a"], "filter": {}}, {"ids": ["a", "a\0"]}, {"filter": {"year": {"lt": None}}}):
        yield lambda wrong=wrong: index.delete(**wrong)
    yield lambda: index.update("a", metadata={"year": float("nan")})
    yield lambda: index.admin.build("unheard of")
    for query in (good[1:], good * np.nan, good[None, None], object()):
        yield lambda query=query: index.search(query)
    wrongs = ({"top_k": 0}, {"scoring": "mean"}, {"candidates": 3}, {"temperature": 1.0}, {"filter": {"": 1}})
    for wrong in (*wrongs, {"filter": {"year": {"between": [1, 2]}}}, {"filter": []}):
        yield lambda wrong=wrong: index.search(good, **wrong)
