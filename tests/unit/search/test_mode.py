"""The mode of a search where the caller names none, and what its result says of it."""

import numpy as np
import pytest

import mvindex
from mvindex.errors import QueryError
from mvindex.search.request import parse_options

VECTOR = np.array([0.2, 0.9], dtype=np.float32)


def made(path, lexical):
    index = mvindex.create(path, dim=2, lexical=lexical)
    documents = [mvindex.Document("crisis", "Oil prices rose."), mvindex.Document("river", "Rivers flow.")]
    index.add_views(documents, np.array([[0.8, 0.2], [0.1, 0.9]]))
    return index


@pytest.mark.parametrize(
    ("lexical", "options", "mode"),
    [
        ("unicode", {"text": "oil"}, "hybrid"),
        ("unicode", {}, "dense"),
        ("unicode", {"text": "oil", "mode": "dense"}, "dense"),
        ("unicode", {"text": "oil", "mode": "lexical"}, "lexical"),
        ("unicode", {"text": "oil", "weights": (1, 2)}, "hybrid"),
        (None, {"text": "oil"}, "dense"),
        (None, {}, "dense"),
    ],
)
def test_a_result_says_how_it_was_searched(tmp_path, lexical, options, mode):
    with made(tmp_path / "a.mvx", lexical) as index:
        result = index.search(VECTOR, **options)
        assert result.mode == mode
        several = {**options, "text": [options["text"]]} if "text" in options else options
        assert [one.mode for one in index.search(VECTOR[None], **several)] == [mode]
        if options.get("mode") is None:
            assert result == index.search(VECTOR, **{**options, "mode": mode})


def test_reranked_hits_name_the_mode_that_was_used(tmp_path):
    with made(tmp_path / "a.mvx", "unicode") as index:
        result = index.search(VECTOR, text="oil", rerank=lambda query, hits: [len(hit.text) for hit in hits])
        assert result.mode == "hybrid"
        assert [part.name for part in result.hits[0].components] == ["dense", "lexical", "hybrid", "rerank"]


@pytest.mark.parametrize("mode", ["dense", "lexical"])
def test_a_fusion_belongs_to_hybrid_search(mode):
    assert parse_options(fusion="rrf").mode.value == "hybrid"
    with pytest.raises(QueryError, match="expected mode='hybrid'"):
        parse_options(mode=mode, fusion="rrf")
