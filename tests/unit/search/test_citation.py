"""Citations of hits: chosen for the text of the query, whatever the mode and wherever the documents are."""

from dataclasses import replace

import numpy as np
import pytest

import mvindex
from mvindex.corpus.text.citation import Citer, ScoredViews
from mvindex.records import Citation
from tests.helpers.io_examples import SentenceEncoder

TEXTS = [
    "The embargo began in October 1973. Prices rose soon after. Nobody was ready.",
    "Bees make honey. They live in hives. Keepers smoke them out in autumn.",
    "An embargo is a ban on trade. Oil was banned.",
]
QUESTION = "when did the embargo begin"


@pytest.fixture(params=[None, 2], ids=["one", "shards"])
def index(request, tmp_path):
    with mvindex.create(tmp_path / "x.mvx", encoder=SentenceEncoder(), lexical="english", shards=request.param) as made:
        made.add([mvindex.Document(f"d{n}", text, f"title {n}") for n, text in enumerate(TEXTS)])
        made.add([mvindex.Document("titled", "", "embargo")])
        yield made


def expected(index, hit, scored=True):
    views = None
    if scored:
        found = sorted(index.explain(QUESTION, hit.id))
        views = ScoredViews(np.array([view.span or (-1, -1) for view in found]), np.array([v.score for v in found]))
    return Citer(QUESTION).cite(hit.text, hit.title, views)


@pytest.mark.parametrize("mode", ["dense", "lexical", "hybrid"])
def test_every_hit_of_a_text_cites_by_its_own_views_and_terms(index, mode):
    found = index.search([QUESTION, QUESTION], mode=mode)
    assert len(found) == 2 and len(found[0].hits) >= 3
    for result in found:
        for hit in result.hits:
            wanted = expected(index, hit, scored=mode != "lexical")
            assert (hit.citation is None) == (hit.text == "")
            if wanted is not None:
                assert (hit.citation.start, hit.citation.end) == (wanted.start, wanted.end)
                assert hit.citation.text == hit.text[wanted.start : wanted.end]
                assert hit.citation.why == pytest.approx(wanted.why, abs=1e-5)
    (best,) = [hit for hit in found[0].hits if hit.id == "d0"]
    assert best.citation.text == "The embargo began in October 1973."


def test_a_vector_cites_where_its_text_is_given(index):
    vector = index.encode_queries([QUESTION])[0]
    assert all(hit.citation is None for hit in index.search(vector).hits)
    by_text = index.search(QUESTION)
    for given in (index.search(vector, text=QUESTION), index.search(vector[None], text=[QUESTION])[0]):
        assert given == by_text and [hit.citation for hit in given.hits] == [hit.citation for hit in by_text.hits]


@pytest.mark.parametrize("mode", ["dense", "lexical", "hybrid"])
def test_without_its_text_a_hit_cites_nothing(index, mode):
    for fields in ((), ("title", "metadata")):
        assert all(hit.citation is None for hit in index.search(QUESTION, mode=mode, fields=fields).hits)
    assert index.search(QUESTION, mode=mode, fields=("text",)).hits[0].citation is not None


def test_a_citation_is_chosen_when_it_is_asked_for_and_stays(index, monkeypatch):
    chosen = []
    cite = Citer.cite
    monkeypatch.setattr(Citer, "cite", lambda *args: (chosen.append(1), cite(*args))[1])
    hits = index.search(QUESTION, top_k=3).hits
    assert [(hit.id, hit.span) for hit in hits] and not chosen
    assert hits[0].citation is hits[0].citation and len(chosen) == 1
    assert hits[0].snippet == hits[0].citation.text and len(chosen) == 1
    assert replace(hits[0], score=1.0).citation == hits[0].citation
    assert isinstance(hits[0].citation, Citation)


def test_reranked_hits_keep_their_citations(index):
    vector = index.encode_queries([QUESTION])[0]
    found = index.search(vector, text=QUESTION, rerank=lambda question, hits: range(len(hits)), top_k=2)
    assert all(hit.citation is not None for hit in found.hits if hit.text)
