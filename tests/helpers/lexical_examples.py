"""Indexes with words, and what is found in them beside a plain sum."""

import numpy as np
import pytest

import mvindex
from tests.helpers import lexical_reference as slow

RTOL = 2.0**-22  # a float32, and sums in another order


def made(path, texts, **options):
    """An index of these texts, each with one view; ids d0, d1 and so on."""
    index = mvindex.create(path, dim=2, lexical="unicode", **options)
    documents = [mvindex.Document(f"d{number}", text) for number, text in enumerate(texts)]
    index.add_views(documents, np.ones((len(texts), 1, 2), dtype=np.float32))
    return index


def hits(index, question, **options):
    return [(hit.id, hit.score) for hit in index.search(question, mode="lexical", **options).hits]


def check_against_slow(index, question):
    """Every document that matches, with the score of a plain sum, in falling scores."""
    want = {doc_id: score for doc_id, score in slow.bm25(list(index), question).items() if score > 0}
    found = hits(index, question, top_k=10_000)
    assert len(found) == len(want) == len(dict(found))
    assert dict(found) == pytest.approx(want, rel=RTOL)
    assert [score for _, score in found] == sorted((score for _, score in found), reverse=True)
