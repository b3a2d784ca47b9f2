"""Evaluation: gold recall, answer accuracy, metrics over judgements."""

import json
import math
import random
from pathlib import Path

import jsonschema
import pytest

from mvindex.errors import QueryError
from mvindex.measure import metrics as evaluate
from mvindex.measure.metrics import Evaluation
from mvindex.measure.questions import Question
from mvindex.records import Citation, Hit, SearchResult

SCHEMAS = Path(__file__).parents[3] / "schemas/records"
EVAL_SCHEMA = json.loads((SCHEMAS / "eval.schema.json").read_text())
RESULT_SCHEMA = json.loads((SCHEMAS / "query_result.schema.json").read_text())


def result(*doc_ids, texts=None, scores=None, exact=True, short_by=0):
    hits = tuple(
        Hit(doc_id, scores[row] if scores else -float(row), 0, None, None, texts[row] if texts else "", doc_id, {})
        for row, doc_id in enumerate(doc_ids)
    )
    return SearchResult(hits, exact, short_by, 1)


def report(evaluation):
    made = evaluation.report()
    jsonschema.validate(made, EVAL_SCHEMA)
    return json.loads(json.dumps(made))


# --- gold documents


def test_further_measures_over_judgements_are_added():
    """The relevant document of one question is second, that of the other is not found."""
    evaluation = Evaluation(qrels={"1": {"b": 1}, "2": {"z": 1}}, measures=["R@1", "P@2", "AP", "R@100"])
    for question_id in ("1", "2"):
        evaluation.add(Question(question_id, "?"), result("a", "b"))
    found = report(evaluation)["qrels"]
    # nDCG: 1 / log2(3) for the first question.
    assert found == {
        "nDCG@10": 0.3155,
        "MRR@10": 0.25,
        "R@100": 0.5,
        "R@1": 0.0,
        "P@2": 0.25,
        "AP": 0.25,
    }
    assert Evaluation((5,), {"1": {}}, measures=["P@300", "AP"]).needed_depth == 300
    assert Evaluation((500,), {"1": {}}, measures=["AP"]).needed_depth == 500


def test_gold_recall_is_the_share_of_questions_whose_gold_document_is_among_the_first_k():
    evaluation = Evaluation(cutoffs=(1, 2, 5))
    evaluation.add(Question("1", "?", passage_id="a"), result("a", "b"))  # rank 1
    evaluation.add(Question("2", "?", passage_id="a"), result("b", "c", "a"))  # rank 3
    evaluation.add(Question("3", "?", passage_id="a"), result("b", "c", "d", "e", "f", "a"))  # rank 6, beyond
    # 1 of 3, 1 of 3, 2 of 3
    assert report(evaluation)["gold"] == {"R@1": 0.3333, "R@2": 0.3333, "R@5": 0.6667}


def test_questions_without_gold_document_are_left_out_of_gold_recall():
    evaluation = Evaluation(cutoffs=(1,))
    evaluation.add(Question("1", "?", passage_id="a"), result("a"))
    evaluation.add(Question("2", "?"), result("b"))
    made = report(evaluation)
    assert made["gold"] == {"R@1": 1.0}
    assert (made["questions"], made["counts"]["gold"]) == (2, 1)


def test_a_gold_document_that_the_index_lacks_is_a_miss_and_reported():
    evaluation = Evaluation(cutoffs=(1,), documents={"a", "b", "c"})
    evaluation.add(Question("1", "?", passage_id="gone"), result("a"))
    evaluation.add(Question("2", "?", passage_id="c"), result("a"))
    evaluation.add(Question("3", "?", passage_id="a"), result("a"))
    made = report(evaluation)
    assert made["gold"] == {"R@1": 0.3333}
    assert (made["gold_missing"], made["documents"]) == (1, 3)


def test_relevant_documents_that_the_index_lacks_are_reported():
    judged = {"1": {"a": 1, "gone": 2, "irrelevant": 0}, "2": {"other": 1}, "unasked": {"nowhere": 1}}
    evaluation = Evaluation(qrels=judged, documents={"a"})
    evaluation.add(Question("1", "?"), result("a"))
    evaluation.add(Question("2", "?"), result("a"))
    assert report(evaluation)["relevant_missing"] == 2


def test_without_the_index_nothing_is_said_of_its_documents():
    made = report(Evaluation())
    assert "documents" not in made
    assert "gold_missing" not in made


# --- answers


def test_answer_accuracy_is_the_share_of_questions_with_an_answer_in_the_first_k_texts():
    evaluation = Evaluation(cutoffs=(1, 2))
    texts = ["the first cup", "won by Denver", "Denver again"]
    evaluation.add(Question("1", "?", ("Denver",)), result("a", "b", "c", texts=texts))  # rank 2
    evaluation.add(Question("2", "?", ("a cup", "FIRST cup")), result("a", "b", "c", texts=texts))  # rank 1
    evaluation.add(Question("3", "?", ("again",)), result("a", "b", "c", texts=texts))  # rank 3, beyond
    evaluation.add(Question("4", "?"), result("a", "b", "c", texts=texts))
    made = report(evaluation)
    assert made["answer"] == {"R@1": 0.3333, "R@2": 0.6667}
    assert made["counts"]["answer"] == 3


def test_an_answer_in_the_title_alone_does_not_count():
    evaluation = Evaluation(cutoffs=(1,))
    evaluation.add(Question("1", "?", ("Denver",)), result("Denver", texts=["a city"]))  # the helper's title is the id
    assert report(evaluation)["answer"] == {"R@1": 0.0}


def test_an_empty_tuple_of_answers_is_no_answer_known():
    evaluation = Evaluation(cutoffs=(1,))
    evaluation.add(Question("1", "?", ()), result("a"))
    assert "answer" not in report(evaluation)


def test_answers_are_patterns_with_regex():
    evaluation = Evaluation(cutoffs=(1,), regex=True)
    evaluation.add(Question("1", "?", (r"\b19\d\d\b",)), result("a", texts=["in 1972."]))
    assert report(evaluation)["answer"] == {"R@1": 1.0}
    with pytest.raises(QueryError, match="^question '2': answers: expected"):
        evaluation.add(Question("2", "?", ("(",)), result("a", texts=["x"]))


# --- citations


def cited_hit(doc_id, snippet, citation, text="Denver won. In May."):
    cited = None if citation is None else Citation(citation, 0, len(citation), {})
    begin = max(0, text.find(snippet))
    return Hit(doc_id, 1.0, 0, (begin, begin + len(snippet)), snippet, text, "", {}, citation=cited)


def test_citations_of_first_hits_and_of_gold_documents_are_counted_apart():
    evaluation = Evaluation(cutoffs=(2,), citations=True)
    hits = [
        (cited_hit("a", "In May.", "Denver won."), cited_hit("g", "Denver won.", "Denver won.")),
        (cited_hit("g", "In May.", "Denver won."), cited_hit("b", "Denver won.", "Denver won.")),
        (cited_hit("a", "Denver won.", None, text="Denver."), cited_hit("b", "x", "x"), cited_hit("g", "x", "x")),
    ]
    for number, own in enumerate(hits):
        evaluation.add(Question(str(number), "?", ("Denver",), "g"), SearchResult(own, True, 0, 1))
    evaluation.add(Question("no answer known", "?"), SearchResult(hits[0], True, 0, 1))
    evaluation.add(Question("no hits", "?", ("Denver",), "g"), SearchResult((), True, 0, 1))
    made = report(evaluation)
    assert made["citations"] == {"text": 1.0, "snippet": 0.3333, "citation": 0.6667}
    assert made["gold_citations"] == {"text": 1.0, "snippet": 0.5, "citation": 1.0}  # the third is beyond the cut-off
    assert (made["counts"]["citations"], made["counts"]["gold_citations"]) == (3, 2)


def test_citations_are_counted_where_they_are_asked_for_only():
    evaluation = Evaluation(cutoffs=(1,))
    evaluation.add(Question("1", "?", ("x",)), result("a"))
    assert not {"citations", "gold_citations"} & report(evaluation).keys()


# --- judgements


def test_qrels_metrics_are_those_worked_by_hand():
    qrels = {"1": {"a": 3, "b": 1, "c": 0, "z": 2}, "2": {"d": 1}, "3": {"e": 1}}
    evaluation = Evaluation(cutoffs=(1,), qrels=qrels)
    evaluation.add(Question("1", "?"), result("c", "b", "x", "a"))
    evaluation.add(Question("2", "?"), result("d"))
    evaluation.add(Question("3", "?"), result())
    # Question 1: DCG = 1/log2(3) + 3/log2(5) = 0.630930 + 1.292030 = 1.922960;
    #             ideal 3, 2, 1: 3/log2(2) + 2/log2(3) + 1/log2(4) = 3 + 1.261860 + 0.5 = 4.761860; nDCG 0.403825.
    #             First relevant at rank 2: RR 1/2. Recall 2 of 3.
    # Question 2: all 1. Question 3: no hits, all 0.
    # nDCG (0.403825 + 1 + 0) / 3 = 0.467942; MRR 1.5 / 3; recall (2/3 + 1) / 3 = 0.555556.
    assert report(evaluation)["qrels"] == {"nDCG@10": 0.4679, "MRR@10": 0.5, "R@100": 0.5556}


def test_mrr_and_ndcg_stop_at_10_and_recall_at_100():
    qrels = {"1": {"d10": 1}, "2": {"d99": 1, "d100": 1}}  # d10 stands at rank 11, d99 at 100, d100 at 101
    evaluation = Evaluation(qrels=qrels)
    for question_id in qrels:
        evaluation.add(Question(question_id, "?"), result(*(f"d{row}" for row in range(150))))
    # Recall: 1 of 1 and 1 of 2.
    assert report(evaluation)["qrels"] == {"nDCG@10": 0.0, "MRR@10": 0.0, "R@100": 0.75}


@pytest.mark.parametrize("doc_ids", [("a", "z"), ("z", "a")])
def test_equal_scores_are_judged_in_the_order_of_the_hits(doc_ids):
    # Tools that read the scores alone order ties by falling id, others by rising id.
    evaluation = Evaluation(qrels={"1": {doc_ids[0]: 1}})
    evaluation.add(Question("1", "?"), result(*doc_ids, scores=[0.5, 0.5]))
    assert report(evaluation)["qrels"] == {"nDCG@10": 1.0, "MRR@10": 1.0, "R@100": 1.0}


def test_questions_without_judgement_are_left_out_and_counted():
    evaluation = Evaluation(qrels={"1": {"a": 1}, "never searched": {"a": 1}})
    for question_id in ["1", "2", "3"]:
        evaluation.add(Question(question_id, "?"), result("a"))
    made = report(evaluation)
    assert made["qrels"] == {"nDCG@10": 1.0, "MRR@10": 1.0, "R@100": 1.0}
    assert (made["counts"]["qrels"], made["unjudged"], made["questions"], made["unasked"]) == (1, 2, 3, 1)


def slow_metrics(grades, doc_ids):
    """nDCG@10, RR@10 and recall at 100 and 1000 of one question, by their definitions."""

    def gain(ordered):
        return sum(max(grade, 0) / math.log2(rank + 1) for rank, grade in enumerate(ordered[:10], 1))

    got = [grades.get(doc_id, 0) for doc_id in doc_ids]
    ideal = gain(sorted(grades.values(), reverse=True))
    relevant = sum(grade > 0 for grade in grades.values())
    return {
        "nDCG@10": gain(got) / ideal if ideal else 0.0,
        "MRR@10": next((1 / rank for rank, grade in enumerate(got[:10], 1) if grade > 0), 0.0),
        "R@100": sum(grade > 0 for grade in got[:100]) / relevant if relevant else 0.0,
        "R@1000": sum(grade > 0 for grade in got[:1000]) / relevant if relevant else 0.0,
    }


@pytest.mark.parametrize("batch", [1, 7, 1000])
def test_qrels_metrics_agree_with_a_plain_reference_at_any_batch_size(monkeypatch, batch):
    monkeypatch.setattr(evaluate, "_BATCH", batch)
    monkeypatch.setattr(evaluate, "_CELLS", 1000 * batch)
    chance = random.Random(5)
    docs = [f"d{row}" for row in range(1500)]
    qrels = {
        str(row): {doc_id: chance.choice([-1, 0, 1, 2]) for doc_id in chance.sample(docs, 60)} for row in range(40)
    }
    ranked = {question_id: chance.sample(docs, chance.choice([0, 3, 50, 1200])) for question_id in qrels}
    evaluation = Evaluation(cutoffs=(1000,), qrels=qrels)
    for question_id, doc_ids in ranked.items():
        evaluation.add(Question(question_id, "?"), result(*doc_ids))
    each = [slow_metrics(qrels[question_id], ranked[question_id]) for question_id in qrels]
    assert report(evaluation)["qrels"] == {
        name: pytest.approx(sum(metrics[name] for metrics in each) / len(each), abs=5.1e-5) for name in each[0]
    }


def test_a_report_in_between_changes_nothing():
    reported = Evaluation(qrels={"1": {"a": 1}, "2": {"a": 1}})
    left = Evaluation(qrels={"1": {"a": 1}, "2": {"a": 1}})
    for question_id, doc_ids in {"1": ["a"], "2": ["b", "a"]}.items():
        reported.add(Question(question_id, "?", passage_id="a"), result(*doc_ids))
        left.add(Question(question_id, "?", passage_id="a"), result(*doc_ids))
        reported.report()
    assert report(reported) == report(left)


# --- the report as a whole


def test_sections_without_questions_are_absent_not_zero():
    evaluation = Evaluation(qrels={"9": {"a": 1}}, documents=[])
    evaluation.add(Question("1", "?"), result("a"))
    assert report(evaluation) == {
        "questions": 1,
        "documents": 0,
        "gold_missing": 0,
        "unjudged": 1,
        "unasked": 1,
        "relevant_missing": 0,
        "exact": 1,
        "short": 0,
        "counts": {"gold": 0, "answer": 0, "qrels": 0},
    }


def test_certified_and_short_results_are_counted():
    evaluation = Evaluation()
    evaluation.add(Question("1", "?"), result("a", exact=True))
    evaluation.add(Question("2", "?"), result("a", exact=False, short_by=3))
    evaluation.add(Question("3", "?"), result("a", exact=False))
    made = report(evaluation)
    assert (made["questions"], made["exact"], made["short"]) == (3, 1, 1)


@pytest.mark.parametrize(
    ("cutoffs", "qrels", "depth"),
    [((5, 1), None, 5), ((5, 1), {"1": {"a": 1}}, 100), ((1, 200), {}, 200), ((1000,), {}, 1000), ((2000,), {}, 2000)],
)
def test_the_needed_depth_serves_every_figure(cutoffs, qrels, depth):
    assert Evaluation(cutoffs, qrels).needed_depth == depth


def test_cutoffs_are_reported_in_order_and_once():
    evaluation = Evaluation(cutoffs=(20, 1, 20))
    evaluation.add(Question("1", "?", passage_id="a"), result("a"))
    assert list(report(evaluation)["gold"]) == ["R@1", "R@20"]


@pytest.mark.parametrize("cutoffs", [(), (0,), (5, -1), (1.0,), (True,), ("5",)])
def test_cutoffs_that_are_not_whole_numbers_from_1_are_refused(cutoffs):
    with pytest.raises(QueryError, match="expected whole numbers from 1"):
        Evaluation(cutoffs=cutoffs)


def test_the_schemas_are_valid_and_take_a_query_result():
    for schema in [EVAL_SCHEMA, RESULT_SCHEMA]:
        jsonschema.Draft202012Validator.check_schema(schema)
    hit = {"id": "a", "score": 0.5, "slot": 2, "span": [3, 9], "snippet": "a text", "title": "", "text": "in a text"}
    line = {"query": "?", "query_id": "7", "exact": True, "short_by": 0, "hits": [hit | {"metadata": {}}]}
    jsonschema.validate(line, RESULT_SCHEMA)
    jsonschema.validate(line | {"hits": [hit | {"metadata": {}, "span": None, "snippet": None}]}, RESULT_SCHEMA)
    for wrong in [hit, hit | {"metadata": {}, "span": [3]}, hit | {"metadata": {}, "slot": -1}]:
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(line | {"hits": [wrong]}, RESULT_SCHEMA)
