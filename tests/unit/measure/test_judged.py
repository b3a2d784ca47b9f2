"""Measures over judgements: figures worked by hand, and those of ir_measures (trec_eval) on drawn rankings."""

import tracemalloc

import ir_measures
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mvindex.errors import ConfigError
from mvindex.measure.metrics import measure_values, parse_measure

# Both compute in double precision; sums in another order differ by less.
TOLERANCE = 1e-9
NAMES = [
    "nDCG@10", "nDCG@1", "nDCG@3", "nDCG", "nDCG(judged_only=True)@5", "NDCG@2", "AP", "AP@2", "AP(rel=2)",
    "AP(rel=2)@3", "MAP", "MAP(judged_only=True)@4", "MRR@10", "RR", "RR@2", "RR(rel=3)@5", "RR(rel=2)", "R@1", "R@100",
    "R(rel=2)@3", "Recall(judged_only=True)@2", "P@5", "P@1", "P(rel=2)@3", "Precision(judged_only=True,rel=2)@2",
    "Success@1", "Success@10", "Success(rel=3)@4", "Rprec", "RPrec(rel=2)", "Rprec(judged_only=True)",
    "Judged@3", "Judged",
]  # fmt: skip
# Two alphabets share letters, so that rankings hold judged and unjudged documents.
JUDGED, FOUND = "abcdefgh", "cdefghijkl"
GRADES = st.dictionaries(st.sampled_from(JUDGED), st.integers(0, 4), min_size=1)
RANKING = st.lists(st.sampled_from(FOUND), unique=True, min_size=1)


def by_ir_measures(name, qrels, rankings):
    # Descending numbers instead of scores: its providers order equal ones differently.
    run = {asked: {doc: -float(rank) for rank, doc in enumerate(docs)} for asked, docs in rankings.items()}
    measure = ir_measures.parse_measure(name)
    return {one.query_id: one.value for one in ir_measures.iter_calc([measure], qrels, run) if one.query_id in run}


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=60, deadline=None)
@given(material=st.lists(st.tuples(GRADES, RANKING), min_size=1, max_size=4))
def test_figures_are_those_of_ir_measures(name, material):
    qrels = {f"q{number}": grades for number, (grades, _) in enumerate(material)}
    rankings = {f"q{number}": documents for number, (_, documents) in enumerate(material)}
    expected = by_ir_measures(name, qrels, rankings)
    assert measure_values(parse_measure(name), qrels, rankings) == pytest.approx(expected, abs=TOLERANCE)


# Not compared with pytrec_eval, which does not return from some grades below 0; TREC has -2 for spam.
@pytest.mark.parametrize("name", ["nDCG@10", "nDCG", "AP", "MRR@10", "R@2", "P@3", "Success@2", "Rprec", "Judged@3"])
@settings(max_examples=30, deadline=None)
@given(grades=st.dictionaries(st.sampled_from(JUDGED), st.integers(-2, 3), min_size=1), documents=RANKING)
def test_a_negative_grade_counts_as_0(name, grades, documents):
    measure, raised = parse_measure(name), {doc: max(grade, 0) for doc, grade in grades.items()}
    assert measure_values(measure, {"q": grades}, {"q": documents}) == measure_values(
        measure, {"q": raised}, {"q": documents}
    )


def test_figures_worked_by_hand():
    """Relevant: b of grade 2, c and z of grade 1. Ranked: a (judged 0), b, x (no judgement), c."""
    qrels, rankings = {"q": {"a": 0, "b": 2, "c": 1, "z": 1}}, {"q": ["a", "b", "x", "c"]}
    expected = {
        "P@2": 1 / 2, "P@8": 2 / 8, "P(rel=2)@2": 1 / 2, "R@2": 1 / 3, "R@4": 2 / 3, "R(rel=2)@4": 1.0,
        "AP": (1 / 2 + 2 / 4) / 3, "AP@2": (1 / 2) / 3, "RR": 1 / 2, "RR@1": 0.0, "Success@1": 0.0, "Success@2": 1.0,
        # The first 3 of the ranking, 3 being the number of relevant documents.
        "Rprec": 1 / 3,
        "Judged": 3 / 4, "Judged@2": 1.0, "Judged@8": 3 / 4,
        # DCG 2/log2(3) + 1/log2(5) = 1.692536; ideal 2 + 1/log2(3) + 1/log2(4) = 3.130930; first two 2.630930.
        "nDCG": 0.540586, "nDCG@2": 0.479624,
        # Without x, c is third: 1.261860 + 0.5.
        "nDCG(judged_only=True)": 0.562727,
    }  # fmt: skip
    found = {name: measure_values(parse_measure(name), qrels, rankings)["q"] for name in expected}
    assert found == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("name", NAMES)
def test_without_hits_or_relevant_documents_a_measure_is_zero(name):
    qrels = {"no hits": {"a": 1}, "not relevant": {"a": 0}, "no judgement": {}}
    rankings = {"no hits": [], "not relevant": ["x"], "no judgement": ["x"], "not judged": ["a"]}
    found = measure_values(parse_measure(name), qrels, rankings)
    assert found == {"no hits": 0.0, "not relevant": 0.0, "no judgement": 0.0}


@pytest.mark.parametrize(
    "name",
    [
        "nDCG@0", "P@0", "R(cutoff=0)", "nDCG@-1", "nDCG@1.5", "P@99999999999", "P@1000001", "none@3", "", "R(rel=0)@5",
        "SDCG@10", "P", "R", "Success", "Rprec@5", "nDCG@ten", "nDCG(rel=2)@10", "Judged(rel=2)@3", "P(rel=x)@5",
        "P(rel=2,rel=3)@5", "P(2)@5", "AP(judged_only=Maybe)", "nDCG@10 ", "ndcg@10",
    ],
)  # fmt: skip
def test_a_measure_that_is_not_known_is_refused_with_those_that_are(name):
    with pytest.raises(
        ConfigError, match="measure: expected nDCG, AP, RR .*such as nDCG@10 or P.rel=2.@5.*, got"
    ) as caught:
        parse_measure(name)
    assert repr(name)[:60] in str(caught.value)


@pytest.mark.parametrize("grade", [1.5, 10**20, "1", None])
def test_a_grade_that_is_no_whole_number_is_named(grade):
    with pytest.raises(
        ConfigError, match="question 'q', document 'a': grade: expected a whole number up to 1,000,000,000"
    ):
        measure_values(parse_measure("nDCG@10"), {"q": {"a": grade}}, {"q": ["a"]})


def test_a_ranking_that_holds_a_document_twice_is_named():
    with pytest.raises(ConfigError, match="ranking of question 'q': expected each document once"):
        measure_values(parse_measure("R@10"), {"q": {"a": 1}}, {"q": ["a", "a"]})


def test_one_long_line_of_judgements_does_not_widen_the_others():
    qrels = {str(n): {"a": 1} for n in range(300)} | {"long": dict.fromkeys(map(str, range(100_000)), 1)}
    tracemalloc.start()
    values = measure_values(parse_measure("nDCG@10"), qrels, {name: ["a", "b"] for name in qrels})
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 40_000_000 and list(values) == list(qrels) and values["0"] == 1 and values["long"] == 0


@pytest.mark.parametrize("name", ["P(rel=1_0)@5", "P(rel=+2)@5", "P(rel=٢)@5"])
def test_a_number_is_of_plain_digits(name):
    with pytest.raises(ConfigError, match="measure: expected"):
        parse_measure(name)
