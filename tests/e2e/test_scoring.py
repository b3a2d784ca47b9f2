"""DRPQ scoring from the command line, question formats, and texts that would command a terminal: real processes."""

import json
import math

import jsonschema
import pytest

import mvindex as package
from mvindex import engines
from tests.helpers.cli import lines, mvindex, ok, read_passages, schema, write_tsv

QUESTIONS = {
    "origin": "Where did the black death originate?",
    "toll": "How much of the European population did the black death kill?",
    "recovery": "When did the world's population recover from the plague?",
    "crusade": "Who led the crusade?",
}
TEMPERATURE = 0.1
# Scores are float32, weights are the softmax of scores rounded to it: 8 views of unit vectors move a sum by less.
SCORE_ATOL = 1e-6
pytestmark = pytest.mark.needs("minilm")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with an index of 40 passages whose temperature is 0.1, and questions about them."""
    folder = tmp_path_factory.mktemp("scoring")
    write_tsv(folder / "corpus.tsv", read_passages(40, first=190))
    asked = [{"id": name, "question": text, "passage_id": "201"} for name, text in QUESTIONS.items()]
    (folder / "questions.jsonl").write_text("".join(json.dumps(question) + "\n" for question in asked))
    (folder / "questions.txt").write_text("".join(f"{text}\n" for text in QUESTIONS.values()))
    ok(
        mvindex(
            "ingest", "corpus.tsv", "--temperature", TEMPERATURE, "--lexical", "none", "--encoder", "minilm", cwd=folder
        )
    )
    return folder


@pytest.fixture(scope="module")
def view_scores(folder):
    """Question -> document id -> the scores of its views by slot, for every document."""
    with package.open(folder / "corpus.mvx") as index:
        # All at once, as the command line encodes a file: other batches give vectors that differ in the last bits.
        vectors = dict(zip(QUESTIONS.values(), index.encode_queries(list(QUESTIONS.values())), strict=True))
        doc_ids = [document.id for document in index]
        return {
            text: {
                doc_id: [view.score for view in sorted(index.explain(vector, doc_id), key=lambda view: view.slot)]
                for doc_id in doc_ids
            }
            for text, vector in vectors.items()
        }


def softmax(scores, temperature):
    weights = [math.exp((score - max(scores)) / temperature) for score in scores]
    return [weight / sum(weights) for weight in weights]


def brute_force(views_of, temperature):
    """Document id -> DRPQ's score, best first; a plain slow function."""
    scores = {
        doc_id: sum(weight * score for weight, score in zip(softmax(scores, temperature), scores, strict=True))
        for doc_id, scores in views_of.items()
    }
    return dict(sorted(scores.items(), key=lambda entry: -entry[1]))


@pytest.mark.parametrize("temperature", [None, *(pytest.param(each, marks=pytest.mark.full) for each in (1.0, 0.02))])
def test_drpq_gives_the_order_of_the_softmax_mean_and_explains_it(folder, view_scores, temperature):
    chosen = [] if temperature is None else ["--temperature", temperature]
    arguments = ["--queries", "questions.jsonl", "-k", "40", "--scoring", "drpq", *chosen, "--explain", "--json"]
    for result in lines(mvindex("query", *arguments, cwd=folder)):
        jsonschema.validate(result, schema("query_result"))
        used = TEMPERATURE if temperature is None else temperature
        assert (result["scoring"], result["temperature"], result["exact"]) == ("drpq", used, True)
        wanted = brute_force(view_scores[result["query"]], used)
        assert [hit["id"] for hit in result["hits"]] == list(wanted)
        for hit in result["hits"]:
            assert hit["score"] == pytest.approx(wanted[hit["id"]], abs=SCORE_ATOL)
            views = sorted(hit["views"], key=lambda view: view["slot"])
            assert [view["score"] for view in views] == view_scores[result["query"]][hit["id"]]
            weights = [view["weight"] for view in views]
            assert sum(weights) == pytest.approx(1.0, abs=1e-12)
            assert weights == pytest.approx(softmax([view["score"] for view in views], used), abs=1e-12)
            assert hit["score"] == pytest.approx(sum(view["weight"] * view["score"] for view in views), abs=SCORE_ATOL)
            assert hit["slot"] == hit["views"][0]["slot"]


@pytest.mark.full
def test_max_names_itself_and_gives_the_whole_weight_to_the_winner(folder):
    (result,) = lines(mvindex("query", QUESTIONS["toll"], "-k", "3", "--explain", "--json", cwd=folder))
    jsonschema.validate(result, schema("query_result"))
    assert result["scoring"] == "max" and "temperature" not in result
    for hit in result["hits"]:
        assert [view["weight"] for view in hit["views"]] == [1.0] + [0.0] * (len(hit["views"]) - 1)
        assert hit["score"] == hit["views"][0]["score"]


@pytest.mark.full
def test_text_shows_the_scoring_and_the_weights(folder):
    shown = ok(mvindex("query", QUESTIONS["toll"], "-k", "1", "--scoring", "drpq", "--explain", cwd=folder)).stdout
    assert " 1 document, exact; mode dense, scoring drpq, temperature 0.1 " in " ".join(shown.split())
    shares = [float(line.split("weight")[1].split()[0]) for line in shown.splitlines() if "weight" in line]
    assert len(shares) > 1 and sum(shares) == pytest.approx(1.0, abs=1e-4 * len(shares))
    by_max = ok(mvindex("query", QUESTIONS["toll"], "-k", "1", "--explain", cwd=folder)).stdout
    assert "scoring max" in by_max and "weight" not in by_max


@pytest.mark.full
def test_few_candidates_are_a_fixed_depth_and_all_views_are_the_whole_answer(folder, view_scores):
    """At depth 1 the only document scored is that of the best view, whoever leads by DRPQ's mean."""
    num_views = sum(len(scores) for scores in view_scores[QUESTIONS["toll"]].values())
    arguments = ["--queries", "questions.jsonl", "--scoring", "drpq", "--temperature", "1", "--json"]
    shallow = lines(mvindex("query", *arguments, "-k", "1", "--candidates", "1", cwd=folder))
    deep = lines(mvindex("query", *arguments, "-k", "40", "--candidates", num_views, cwd=folder))
    misled = 0
    for one, every in zip(shallow, deep, strict=True):
        jsonschema.validate(one, schema("query_result"))
        assert (one["candidates"], every["candidates"]) == (1, num_views)
        views_of = view_scores[one["query"]]
        best_by_view = max(views_of, key=lambda doc_id: max(views_of[doc_id]))
        wanted = brute_force(views_of, 1.0)
        assert [hit["id"] for hit in one["hits"]] == [best_by_view]
        assert [hit["id"] for hit in every["hits"]] == list(wanted) and every["exact"]
        if best_by_view != next(iter(wanted)):
            misled += 1
            assert not one["exact"]
    assert misled, "wanted a question whose best view lies in another document than its best mean"


@pytest.mark.full
def test_a_run_of_drpq_holds_what_the_results_hold(folder):
    arguments = ["--queries", "questions.jsonl", "-k", "5", "--scoring", "drpq", "--temperature", "0.05"]
    results = lines(mvindex("query", *arguments, "--json", cwd=folder))
    run = [line.split() for line in ok(mvindex("query", *arguments, "--trec", "-", cwd=folder)).stdout.splitlines()]
    assert [(qid, doc_id, int(rank), float(score)) for qid, _, doc_id, rank, score, _ in run] == [
        (result["query_id"], hit["id"], rank, pytest.approx(hit["score"], rel=1e-7))
        for result in results
        for rank, hit in enumerate(result["hits"], start=1)
    ]


@pytest.mark.full
def test_eval_reports_its_scoring_and_counts_by_it(folder, view_scores):
    arguments = ["--questions", "questions.jsonl", "--at", "1,5", "--scoring", "drpq"]
    done = ok(mvindex("eval", *arguments, "--temperature", "1", "--trec", "drpq.trec", "--json", cwd=folder))
    report = json.loads(done.stdout)
    jsonschema.validate(report, schema("eval"))
    assert (report["scoring"], report["temperature"]) == ("drpq", 1.0)
    tops = {name: list(brute_force(view_scores[text], 1.0))[:5] for name, text in QUESTIONS.items()}
    for cutoff in (1, 5):
        share = sum("201" in top[:cutoff] for top in tops.values()) / len(tops)
        assert report["gold"][f"R@{cutoff}"] == round(share, 4)
    run = [line.split() for line in (folder / "drpq.trec").read_text().splitlines()]
    assert {name: [row[2] for row in run if row[0] == name] for name in tops} == tops
    table = ok(mvindex("eval", *arguments, "--candidates", "400", cwd=folder)).stdout
    rows = dict(row.split(maxsplit=1) for row in table.splitlines() if row.startswith("  "))
    assert (rows["scoring"], rows["temperature"], rows["candidates"]) == ("drpq", "0.1", "400")
    by_max = json.loads(ok(mvindex("eval", "--questions", "questions.jsonl", "--json", cwd=folder)).stdout)
    jsonschema.validate(by_max, schema("eval"))
    assert by_max["scoring"] == "max" and "temperature" not in by_max


@pytest.mark.full
def test_questions_one_a_line_need_their_format(folder):
    by_id = lines(mvindex("query", "--queries", "questions.jsonl", "-k", "2", "--json", cwd=folder))
    arguments = ["--queries", "questions.txt", "-k", "2", "--json"]
    by_line = lines(mvindex("query", *arguments, "--format", "text", cwd=folder))
    assert [result["query_id"] for result in by_line] == ["1", "2", "3", "4"]
    assert [result["hits"] for result in by_line] == [result["hits"] for result in by_id]
    unknown = mvindex("query", *arguments, cwd=folder)
    assert unknown.returncode == 1 and "questions.txt:1" in unknown.stderr and "`text`" in unknown.stderr
    report = json.loads(
        ok(mvindex("eval", "--questions", "questions.txt", "--format", "text", "--json", cwd=folder)).stdout
    )
    assert report["questions"] == 4
    wrong = mvindex("eval", "--questions", "questions.jsonl", "--format", "tsv", cwd=folder)
    assert wrong.returncode == 1 and "questions.jsonl:1" in wrong.stderr


@pytest.mark.parametrize(
    ("command", "code", "message"),
    [
        ("query x --scoring best", 2, "--scoring: expected max or drpq"),
        ("query x --temperature 0.5", 2, "--temperature 0.5: belongs to --scoring drpq"),
        ("query x --candidates 7", 2, "--candidates 7: belongs to --scoring drpq"),
        ("query x --scoring drpq --candidates 7 --exact", 2, "--candidates 7 limits the search, --exact demands"),
        ("query x --scoring drpq --temperature warm", 2, "'--temperature': "),
        ("query x --scoring drpq --candidates 1.5", 2, "'--candidates': "),
        ("query x --format text", 2, "--format text: belongs to --queries FILE"),
        ("query --queries questions.txt --format csv", 2, "--format: expected jsonl, dpr, tsv or text"),
        ("eval --questions questions.txt --format csv", 2, "--format: expected jsonl, dpr, tsv or text"),
        ("eval --questions questions.jsonl --scoring DRPQ", 2, "--scoring: expected max or drpq"),
        ("eval --questions questions.jsonl --candidates 7", 2, "--candidates 7: belongs to --scoring drpq"),
        ("query x --scoring drpq --temperature 0", 2, "temperature: expected a finite number above 0, got float 0.0"),
        ("query x --scoring drpq --temperature nan", 2, "temperature: expected a finite number above 0, got float nan"),
        ("query x --scoring drpq --candidates 0", 2, "candidates: expected a whole number from 1 on, got 0"),
        (
            "eval --questions questions.jsonl --scoring drpq --temperature -1",
            2,
            "temperature: expected a finite number above 0, got float -1.0",
        ),
        ("ingest corpus.tsv --temperature 0.5", 1, "was made with temperature 0.1, not 0.5"),
        (
            "ingest corpus.tsv --index new.mvx --temperature inf",
            1,
            "temperature: expected a finite number above 0, got float inf",
        ),
    ],
)
def test_wrong_values_are_named_with_what_is_wanted(folder, command, code, message):
    done = mvindex(*command.split(), cwd=folder)
    assert done.returncode == code, done.stderr
    assert message in " ".join(done.stderr.split()) and "Traceback" not in done.stderr
    assert done.stdout == "" and not (folder / "new.mvx").exists()


@pytest.mark.full
def test_info_shows_temperature_and_scan_and_the_same_ingest_may_be_given_again(folder):
    info = json.loads(ok(mvindex("info", "--json", cwd=folder)).stdout)
    assert (info["temperature"], info["scan"]) == (TEMPERATURE, engines.scan_name())
    shown = " ".join(ok(mvindex("info", cwd=folder)).stdout.split())
    assert " temperature 0.1 " in shown and f" scan {engines.scan_name()} " in shown
    report = json.loads(ok(mvindex("ingest", "corpus.tsv", "--temperature", "0.1", "--json", cwd=folder)).stdout)
    assert (report["added"], report["unchanged"]) == (0, 40)


def test_the_module_is_the_program(folder):
    assert ok(mvindex("--version", cwd=folder)).stdout == f"mvindex {package.__version__}\n"
    missing = mvindex("info", "--index", "no.mvx", cwd=folder)
    assert missing.returncode == 1 and missing.stderr.startswith("mvindex: ")


# --- texts that would command a terminal

COMMANDS = "\x1b]0;owned\x07 \x1b[31mred \x9b2J \x7f"
HOSTILE = {
    "id": "d",
    "title": f"Title{COMMANDS}",
    "text": f"Oil{COMMANDS} was dear.\u2028It \x85stayed dear.\r",
    "metadata": {"note": f"note{COMMANDS}", f"key{COMMANDS}": 1},
}


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    folder = tmp_path_factory.mktemp("hostile")
    (folder / "c.jsonl").write_text(json.dumps(HOSTILE) + "\n")
    ok(mvindex("ingest", "c.jsonl", cwd=folder))
    return folder


def controls(text):
    return {char for char in text if (ord(char) < 0x20 and char != "\n") or 0x7F <= ord(char) < 0xA0}


@pytest.mark.parametrize("command", [["query", f"oil{COMMANDS}", "--explain"], ["get", "d"]], ids=["query", "get"])
def test_no_command_reaches_a_terminal_from_a_document(hostile, command, monkeypatch):
    plain = ok(mvindex(*command, cwd=hostile)).stdout
    assert not controls(plain)
    for sign in ("Title␛]0;owned␇", "Oil␛]0;owned␇", "␛[31mred �2J ␡"):
        assert sign in " ".join(plain.split())
    # Told that it writes to a terminal, rich makes commands of its own; those of the document stay signs.
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "200")
    coloured = ok(mvindex(*command, cwd=hostile)).stdout
    assert "\x1b[" in coloured
    assert "\x1b]0;" not in coloured and "\x9b" not in coloured and "␛]0;owned" in coloured


def test_json_is_one_line_without_controls_and_keeps_every_character(hostile):
    for command in (["query", "oil", "--json"], ["get", "d", "--json"]):
        shown = ok(mvindex(*command, cwd=hostile)).stdout
        assert not controls(shown) and len(shown.splitlines()) == 1
        row = json.loads(shown)
        document = row["hits"][0] if "hits" in row else row
        assert {name: document[name] for name in HOSTILE} == HOSTILE


def test_errors_show_what_they_quote_without_commanding(hostile):
    (hostile / "q.jsonl").write_text('{"\\u001b[31mred": 1}\n')
    done = mvindex("query", "--queries", "q.jsonl", cwd=hostile)
    assert done.returncode == 1 and not controls(done.stderr) and "␛[31mred" in done.stderr
