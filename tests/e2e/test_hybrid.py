"""Search by words, and by words and views, from the command line: real processes, a real encoder."""

import json

import jsonschema
import pytest

import mvindex as package
from tests.helpers.cli import lines, mvindex, ok, read_passages, schema, write_tsv
from tests.helpers.tiny_classifiers import save_classifiers

pytestmark = pytest.mark.needs("minilm")
QUESTION = "Where did the black death originate?"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with an index of 40 passages and their words, and questions about them."""
    folder = tmp_path_factory.mktemp("hybrid")
    write_tsv(folder / "corpus.tsv", read_passages(40, first=190))
    asked = [{"id": "origin", "question": QUESTION, "passage_id": "201"}]
    (folder / "questions.jsonl").write_text("".join(json.dumps(question) + "\n" for question in asked))
    ok(mvindex("ingest", "corpus.tsv", "--lexical", "english", cwd=folder))
    return folder


@pytest.fixture
def copy(folder, tmp_path):
    """A folder of its own with a copy of that index."""
    ok(mvindex("snapshot", tmp_path / "copy.mvx", "--index", "corpus.mvx", cwd=folder))
    return tmp_path


def answer(folder, *arguments):
    [line] = lines(mvindex("query", QUESTION, *arguments, "--json", cwd=folder))
    jsonschema.validate(line, schema("query_result"))
    return line


def test_hybrid_says_what_views_and_words_have_to_do_with_each_score(folder):
    line = answer(folder, "--hybrid", "--fusion", "minmax", "--weights", "2,1", "-k", "5", "--explain")
    assert (line["mode"], line["fusion"], line["weights"], line["exact"]) == ("hybrid", "minmax", [2, 1], True)
    assert len(line["hits"]) == 5
    for hit in line["hits"]:
        assert [part["name"] for part in hit["components"]] == ["dense", "lexical"]
        assert hit["score"] == pytest.approx(sum(part["contribution"] for part in hit["components"]), abs=1e-6)
        assert hit["components"][0]["score"] == pytest.approx(hit["views"][0]["score"], abs=1e-6)
    # The best by views is the best of a scale up to 1, twice.
    assert max(hit["components"][0]["contribution"] for hit in line["hits"]) == 2
    shown = ok(mvindex("query", QUESTION, "--hybrid", "--explain", cwd=folder)).stdout
    assert "mode hybrid" in " ".join(shown.split())
    assert "lexical  rank 1" in shown


def test_words_alone_answer_without_an_encoder(folder):
    line = answer(folder, "--mode", "lexical", "-k", "3")
    assert line["mode"] == "lexical"
    with package.open(folder / "corpus.mvx") as index:
        found = index.search(QUESTION, 3, mode="lexical")
        # Private: whether an encoder was loaded, no answer shows.
        assert index._encoder is None
    assert [hit["id"] for hit in line["hits"]] == [hit.id for hit in found.hits]
    assert all(hit["snippet"] == hit["citation"]["text"] for hit in line["hits"])


def test_evaluation_measures_every_mode(folder):
    for mode in ("lexical", "hybrid"):
        done = ok(mvindex("eval", "--questions", "questions.jsonl", "--mode", mode, "--json", cwd=folder))
        [report] = lines(done)
        assert report["mode"] == mode
        assert report["gold"]["R@20"] == 1


@pytest.mark.full
def test_fusion_is_tuned_by_questions_and_used_from_then_on(copy):
    asked = [
        {"id": row[0], "question": " ".join(row[1].split()[5:12]), "passage_id": row[0]}
        for row in read_passages(30, first=190)
    ]
    asked.append({"id": "none", "question": "Who?"})
    (copy / "many.jsonl").write_text("".join(json.dumps(question) + "\n" for question in asked))
    # A fusion that is bad on purpose, so that a better one is a gain.
    with package.open(copy / "copy.mvx") as index:
        index.admin.set_hybrid_weights("zscore", (2.0, 0.0))
    [report] = lines(mvindex("tune", "--fusion", "--queries", "many.jsonl", "--json", cwd=copy))
    assert (report["questions"], report["unjudged"], report["missing"]) == (30, 1, 0)
    assert report["chosen"] == report["points"][0]
    assert report["chosen"]["ndcg"] > report["current"]["ndcg"]
    line = answer(copy, "--hybrid")
    assert (line["fusion"], line["weights"]) == (report["chosen"]["method"], report["chosen"]["weights"])
    shown = mvindex("tune", "--fusion", "--queries", "many.jsonl", cwd=copy)
    assert "nothing was changed" in ok(shown).stderr
    assert "nDCG@10" in shown.stdout
    [info] = lines(mvindex("info", "--json", cwd=copy))
    assert info["fusion"].items() <= report["chosen"].items()
    assert (info["fusion"]["method"], info["fusion"]["weights"]) == (line["fusion"], line["weights"])


@pytest.mark.full
def test_fusion_is_tuned_by_judgements_of_a_file(folder, copy):
    asked = [(str(number), " ".join(row[1].split()[:6]), row[0]) for number, row in enumerate(read_passages(25, 190))]
    (copy / "queries.tsv").write_text("".join(f"{number}\t{text}\n" for number, text, _ in asked))
    (copy / "qrels.txt").write_text("".join(f"{number} 0 {gold} 2\n" for number, _, gold in asked))
    options = ("--queries", "queries.tsv", "--qrels", "qrels.txt", "--json")
    [report] = lines(mvindex("tune", "--fusion", *options, cwd=copy))
    assert (report["questions"], report["unjudged"]) == (25, 0)
    refused = mvindex("tune", "--fusion", "--queries", folder / "questions.jsonl", cwd=copy)
    assert refused.returncode == 1
    assert "1 questions are judged; expected 20" in refused.stderr


@pytest.mark.full
def test_a_cross_encoder_orders_what_was_found(folder, tmp_path):
    checkpoint = save_classifiers(tmp_path) / "1"
    options = ("-k", "3", "--rerank", checkpoint, "--rerank-on", "text", "--rerank-depth", "9")
    for mode in (("--mode", "dense"), ("--hybrid",), ("--mode", "lexical")):
        line = answer(folder, *mode, *options)
        scores = [hit["score"] for hit in line["hits"]]
        assert (line["rerank_on"], line["rerank_depth"], len(scores)) == ("text", 9, 3)
        assert scores == sorted(scores, reverse=True)
        assert all(hit["components"][-1]["name"] == "rerank" for hit in line["hits"])
    with package.open(folder / "corpus.mvx") as index:
        found = index.search(QUESTION, 3, rerank=checkpoint, rerank_on="text", rerank_depth=9)
    dense = answer(folder, *options)
    assert [(hit["id"], hit["score"]) for hit in dense["hits"]] == [(hit.id, hit.score) for hit in found.hits]
    [report] = lines(mvindex("eval", "--questions", "questions.jsonl", "--rerank", checkpoint, "--json", cwd=folder))
    jsonschema.validate(report, schema("eval"))
    assert report["rerank"] == str(checkpoint)


def test_a_text_is_searched_by_both_where_the_index_has_words(folder):
    line = answer(folder)
    assert line == answer(folder, "--hybrid")
    assert line["mode"] == "hybrid"
    weighted = answer(folder, "--weights", "2,1")
    assert (weighted["mode"], weighted["weights"]) == ("hybrid", [2, 1])


@pytest.mark.full
def test_dense_results_name_no_fusion(folder):
    line = answer(folder, "--mode", "dense")
    assert line["mode"] == "dense"
    assert not {"fusion", "weights"} & line.keys()
    assert all("components" not in hit for hit in line["hits"])


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (["--mode", "lexical", "--fusion", "rrf"], "belongs to --hybrid"),
        (["--mode", "dense", "--weights", "1,1"], "belongs to --hybrid"),
        (["--hybrid", "--mode", "lexical"], "short for"),
        (["--hybrid", "--weights", "1,x"], "expected two numbers"),
        (["--rerank-on", "text"], "belongs to --rerank"),
        (["--rerank", "nowhere/at-all", "--rerank-on", "title"], "expected snippet or text"),
        (["--mode", "fuzzy"], "expected auto, dense, lexical or hybrid"),
    ],
)
def test_options_that_do_not_go_together_are_refused(folder, arguments, what):
    done = mvindex("query", QUESTION, *arguments, cwd=folder)
    assert done.returncode in (1, 2)
    assert what in " ".join(done.stderr.replace("│", " ").split())


def test_an_index_gets_words_by_a_build_and_loses_them_by_another(folder):
    ok(mvindex("snapshot", "other.mvx", "--index", "corpus.mvx", cwd=folder))
    before = answer(folder, "--mode", "lexical", "--index", "other.mvx")
    [built] = lines(mvindex("build", "--lexical", "none", "--index", "other.mvx", "--json", cwd=folder))
    assert built["lexical"] is None
    refused = mvindex("query", QUESTION, "--hybrid", "--index", "other.mvx", cwd=folder)
    assert refused.returncode != 0
    assert "mvindex build --lexical" in refused.stderr
    ok(mvindex("build", "--lexical", "english", "--index", "other.mvx", cwd=folder))
    assert answer(folder, "--mode", "lexical", "--index", "other.mvx") == before
    mixed = mvindex("build", "--lexical", "english", "--kind", "exact", "--index", "other.mvx", cwd=folder)
    assert mixed.returncode == 2


def test_an_ingest_with_other_words_than_the_index_has_is_refused(folder):
    done = mvindex("ingest", "corpus.tsv", "--lexical", "unicode", cwd=folder)
    assert done.returncode != 0
    assert "made with lexical 'english', not 'unicode'" in done.stderr


def test_other_wordings_are_searched_as_one(tmp_path):
    write_tsv(tmp_path / "corpus.tsv", read_passages(12, first=195))
    ok(mvindex("ingest", "corpus.tsv", cwd=tmp_path))
    asked = ["where did the black death originate?", "--also", "origin of the plague", "--also", "Crimea", "-k", "3"]
    [found] = lines(mvindex("query", *asked, "--combine", "mean", "--json", cwd=tmp_path))
    jsonschema.validate(found, schema("query_result"))
    assert (found["also"], found["combine"], found["exact"]) == (["origin of the plague", "Crimea"], "mean", True)
    with package.open(tmp_path / "corpus.mvx") as index:
        group = package.QueryGroup([asked[0], "origin of the plague", "Crimea"], "mean")
        assert [hit["id"] for hit in found["hits"]] == [hit.id for hit in index.search(group, 3).hits]
    for wrong in (
        ["x", "--combine", "sum"],
        ["x", "--also", "y", "--explain"],
        ["x", "--also", "y", "--combine", "min"],
    ):
        assert mvindex("query", *wrong, cwd=tmp_path).returncode != 0


def test_operators_demand_phrases_and_words(folder):
    signed = '"black death" -china where did it originate?'
    [line] = lines(
        mvindex("query", signed, "--operators", "--index", "corpus.mvx", "--explain", "-k", "40", "--json", cwd=folder)
    )
    jsonschema.validate(line, schema("query_result"))
    assert (line["mode"], line["operators"]) == ("hybrid", True)
    texts = [f"{hit['title']} {hit['text']}".lower() for hit in line["hits"]]
    assert texts and all("black death" in text and "china" not in text for text in texts)
    [plain] = lines(mvindex("query", signed, "--index", "corpus.mvx", "-k", "40", "--json", cwd=folder))
    assert len(plain["hits"]) == 40 and "operators" not in plain
    refused = mvindex("query", signed, "--operators", "--index", "corpus.mvx", "--mode", "dense", cwd=folder)
    assert refused.returncode == 2 and "dense reads none" in " ".join(refused.stderr.split())


def test_numbers_of_a_fusion_are_set_on_the_command_line(copy):
    def tune(*values):
        options = [part for value in values for part in ("--set", value)]
        return mvindex("tune", "--fusion", *options, "--index", "copy.mvx", "--json", cwd=copy)

    expected = {"method": "rrf", "weights": [1.0, 2.0], "depth": 50, "k1": 0.9}
    assert json.loads(ok(tune("method=rrf", "weights=1,2", "k1=0.9", "depth=50")).stdout) == {"fusion": expected}
    assert json.loads(ok(mvindex("info", "--index", "copy.mvx", "--json", cwd=copy)).stdout)["fusion"] == expected
    for value, message in (
        ("k1=x", "expected a number"),
        ("b=2", "from 0 to 1"),
        ("k1", "NAME=VALUE"),
        ("c=1", "got 'c'"),
    ):
        refused = tune(value)
        assert refused.returncode and message in " ".join(refused.stderr.split())
    assert json.loads(ok(tune("method=zscore")).stdout) == {"fusion": {"method": "zscore", "weights": [1.0, 1.0]}}
    assert json.loads(ok(mvindex("info", "--index", "copy.mvx", "--json", cwd=copy)).stdout)["fusion"] is None
