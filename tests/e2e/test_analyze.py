"""`mvindex analyze` from the command line, and `mvindex.measure.analysis` over an index with a custom encoder."""

import json
from pathlib import Path

import jsonschema
import numpy as np
import pytest

import mvindex
from mvindex.errors import ConfigError, Unsupported
from mvindex.measure.analysis import AnalysisOptions, analyze
from mvindex.measure.metrics import Evaluation
from mvindex.measure.questions import Question
from tests.helpers.cli import mvindex as run_command

ROOT = Path(__file__).parents[2]
SCHEMA = json.loads((ROOT / "schemas/records/analysis.schema.json").read_text())
LETTERS = "abcdefghijklmnopqrstuvwxyz"


def letters(text):
    """Counts of letters, of unit length."""
    counts = np.array([text.lower().count(letter) for letter in LETTERS]) + 1e-3
    return counts / np.linalg.norm(counts)


def views_of(texts):
    """A view a word."""
    return [np.stack([letters(word) for word in text.split()]) for text in texts]


def encoder():
    return mvindex.CallableEncoder(
        views_of, query_function=lambda texts: np.stack([letters(text) for text in texts]), name="words", dim=26
    )


WORDS = ["zebra quick", "lamp", "moon yellow tree", "lamp lamp", "frog bridge", "quiet night sky", "moon"]


@pytest.fixture(scope="module")
def index(tmp_path_factory):
    path = tmp_path_factory.mktemp("analysis") / "words.mvx"
    with mvindex.create(path, encoder=encoder()) as made:
        made.add([mvindex.Document(str(row), text) for row, text in enumerate(WORDS)])
        yield made


GOLD = [("zebra", "0"), ("quick", "0"), ("yellow", "2"), ("tree", "2"), ("lamp", "3"), ("sky", "5"), ("bridge", "4")]


def questions(answers=None):
    return [Question(f"q{row}", text, answers, gold) for row, (text, gold) in enumerate(GOLD)]


def test_every_section_is_there_with_the_recall_that_an_evaluation_finds(index):
    report = analyze(index, questions(("lamp",)))
    jsonschema.validate(json.loads(json.dumps(report)), SCHEMA)
    evaluation = Evaluation((1, 5, 20, 100))
    for question in questions():
        evaluation.add(question, index.search(question.text, top_k=100, mode="dense"))
    assert {name: round(value, 4) for name, value in report["recall"]["whole"].items()} == evaluation.report()["gold"]
    assert report["left_out"] == {"attention": "the encoder's attention cannot be read"}
    assert report["questions"]["per_document"] == pytest.approx(7 / 5)
    # "lamp lamp" stands behind "lamp" for the question "lamp": the only one not answered at rank 1.
    assert [(row["question"], row["rank"], row["retrieved"]["id"]) for row in report["hardest"]] == [("lamp", 2, "1")]
    assert report["maps"][0]["id"] in ("0", "2")
    assert report["recall"]["answer"]["R@1"] == pytest.approx(1 / 7)


def test_bytes_and_views_are_those_of_the_index(index):
    report = analyze(index, questions())
    views = sum(len(text.split()) for text in WORDS)
    assert report["subject"]["views"] == report["fewer_views"][-1]["vectors"] == views
    assert report["fewer_views"][-1]["bytes"] == report["subject"]["view_bytes"] == views * 26 * 2
    assert report["fewer_views"][0]["vectors"] == len(WORDS)
    # The one exact duplicate goes at the smallest EPS.
    assert report["pruned"][0]["views"] == views - 1


def test_without_gold_the_documents_that_hold_an_answer_are_relevant(index):
    asked = [Question("1", "moon", ("sky",)), Question("2", "frog", ("nowhere",))]
    report = analyze(index, asked)
    assert report["questions"]["target"] == "answer"
    # Two documents have the word "moon", and the one that holds the answer has not; the other answer is in none.
    assert (report["recall"]["whole"]["R@1"], report["recall"]["whole"]["R@20"]) == (0.0, 0.5)
    assert report["recall"]["answer"]["R@20"] == 0.5


def test_without_gold_and_answers_the_document_ranked_first_is_relevant(index):
    report = analyze(index, [Question("1", "lamp")])
    assert report["questions"]["target"] == "best"
    assert report["recall"]["whole"]["R@1"] == 1.0
    assert report["single_view"][1]["R@100"] == 0.0  # the best is a document of one word: it has no second view


def test_without_questions_the_views_are_compared_with_each_other(index):
    report = analyze(index)
    jsonschema.validate(json.loads(json.dumps(report)), SCHEMA)
    assert report["verdict"]["level"] == "unknown"
    assert report["similarity"]["documents"] == 5
    assert report["recall"] is report["questions"] is None
    assert report["left_out"]["recall"] == "there are no questions"


def test_documents_judged_relevant_are_relevant(index):
    judged = {"1": {"3": 1, "1": 0}, "2": {"4": 2}}
    report = analyze(index, [Question("1", "lamp"), Question("2", "frog"), Question("3", "sky")], qrels=judged)
    assert (report["questions"]["target"], report["questions"]["used"]) == ("gold", 2)
    assert report["recall"]["whole"] == {"R@1": 0.5, "R@5": 1.0, "R@20": 1.0, "R@100": 1.0}


def test_gold_that_is_not_in_the_index_is_a_miss_and_counted(index):
    report = analyze(index, [*questions(), Question("x", "zebra", None, "nowhere")])
    assert report["questions"]["gold_missing"] == 1
    assert report["recall"]["whole"]["R@100"] == pytest.approx(7 / 8)


def test_documents_of_one_view_leave_nothing_to_compare(tmp_path):
    with mvindex.create(tmp_path / "one.mvx", encoder=encoder()) as one:
        one.add([mvindex.Document(word, word) for word in ("lamp", "moon", "frog")])
        report = analyze(one, [Question("1", "moon", None, "moon")])
    jsonschema.validate(json.loads(json.dumps(report)), SCHEMA)
    assert report["verdict"]["headline"].startswith("Every document has one view")
    assert report["recall"]["whole"]["R@1"] == 1.0


def test_views_that_are_all_alike_have_collapsed(tmp_path):
    same = mvindex.CallableEncoder(
        lambda texts: [np.stack([letters(text)] * 3) for text in texts],
        query_function=lambda texts: np.stack([letters(text) for text in texts]),
        name="alike",
        dim=26,
    )
    with mvindex.create(tmp_path / "alike.mvx", encoder=same) as index:
        index.add([mvindex.Document(str(row), text) for row, text in enumerate(WORDS)])
        report = analyze(index, questions())
    assert report["verdict"]["level"] == "collapsed"
    assert report["local"]["lv"] == pytest.approx(0, abs=1e-6)
    assert report["similarity"]["mean_cosine"] == pytest.approx(1, abs=1e-3)


def test_a_sample_of_documents_keeps_the_relevant_ones(index):
    report = analyze(index, questions()[:2], AnalysisOptions(max_documents=3))
    assert report["sample"] == {"documents": 3, "of": 7, "seed": 0, "is_all": False}
    assert report["recall"]["whole"]["R@1"] == 1.0


@pytest.mark.parametrize(
    "options", [{"max_questions": 0}, {"max_documents": True}, {"seed": -1}, {"scale": 0.0}, {"cutoffs": (0,)}]
)
def test_options_out_of_range_are_refused(options):
    with pytest.raises(ConfigError, match=next(iter(options))):
        AnalysisOptions(**options)


def test_an_empty_index_cannot_be_analysed(tmp_path):
    with mvindex.create(tmp_path / "empty.mvx", encoder=encoder()) as empty, pytest.raises(Unsupported, match="empty"):
        analyze(empty, questions())


@pytest.mark.needs("minilm")
def test_the_command_prints_json_and_writes_the_page(tmp_path):
    rows = (ROOT / "examples/squad/passages.tsv").read_text(encoding="utf-8").splitlines()[170:190]
    header = "id\ttext\ttitle"
    (tmp_path / "corpus.tsv").write_text("\n".join([header, *rows]) + "\n", encoding="utf-8")
    asked = "id\tquestion\n1\tWhen did the oil crisis begin?\n2\tWho was affected?\n"
    (tmp_path / "questions.tsv").write_text(asked, encoding="utf-8")
    done = run_command(
        "analyze", "minilm", "--passages", "corpus.tsv", "--questions", "questions.tsv", "--html", "report.html",
        "--attention-documents", "4", "--json", cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    jsonschema.validate(report, SCHEMA)
    assert (report["subject"]["kind"], report["subject"]["path"]) == ("checkpoint", "minilm")
    assert report["attention"]["documents"] > 0
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "</html>" in page
    again = run_command("analyze", "minilm", "--passages", "corpus.tsv", "--html", "report.html", cwd=tmp_path)
    assert (again.returncode, again.stdout) == (1, "")
    assert "report.html" in again.stderr
    assert "--force" in again.stderr
