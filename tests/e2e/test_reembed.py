"""`mvindex reembed` as a user calls it."""

import json
import shutil

import numpy as np
import pytest

import mvindex as package
from tests.helpers.cli import lines, mvindex, ok

TEXTS = {
    "embargo": "The oil embargo began in October 1973. Prices rose fourfold. Cars waited in lines at petrol stations.",
    "river": "The Danube rises in the Black Forest. It flows through ten countries. Its delta is in Romania.",
    "bread": "Bread is baked of flour and water. Yeast makes the dough rise. The crust turns brown in the oven.",
}
QUESTIONS = {"embargo": "When did the oil crisis begin?", "river": "Where does the Danube rise?"}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A folder with an index of three texts, and questions about two of them."""
    folder = tmp_path_factory.mktemp("made")
    with package.create(folder / "notes.mvx", encoder="minilm-views", lexical="english") as index:
        index.add([package.Document(doc_id, text) for doc_id, text in TEXTS.items()])
    questions = [{"question": text, "passage_id": doc_id} for doc_id, text in QUESTIONS.items()]
    (folder / "questions.jsonl").write_text("".join(json.dumps(each) + "\n" for each in questions))
    return folder


@pytest.fixture
def folder(made, tmp_path):
    """A copy of that folder, to be changed."""
    return shutil.copytree(made, tmp_path, dirs_exist_ok=True)


def test_reembed_changes_the_encoder_and_measures_both(folder):
    done = mvindex(
        "reembed", "notes.mvx", "--encoder", "minilm-views", "--family", "single", "--questions", "questions.jsonl",
        "--json", cwd=folder,
    )  # fmt: skip
    (report,) = lines(ok(done))
    assert (report["documents"], report["encoded"], report["views_after"], report["engine"]) == (3, 3, 3, "exact")
    assert report["views_before"] > 3 and not report["stopped"]
    assert report["measured"] == {"before": {"R@1": 1.0, "R@10": 1.0}, "after": {"R@1": 1.0, "R@10": 1.0}}
    (info,) = lines(mvindex("info", "--json", cwd=folder))
    assert (info["encoder"]["family"], info["views"], info["lexical"]) == ("single", 3, "english")
    (hit,) = lines(mvindex("query", "When did the oil crisis begin?", "--top-k", "1", "--json", cwd=folder))
    assert hit["hits"][0]["id"] == "embargo"
    again = lines(mvindex("reembed", "--encoder", "minilm-views", "--family", "single", "--json", cwd=folder))
    assert again[0]["encoded"] == 0


def test_a_table_shows_the_measures_and_that_an_engine_was_built_again(folder):
    pytest.importorskip("faiss")
    with package.open(folder / "notes.mvx") as index:
        index.admin.build(kind="flat")
    done = ok(
        mvindex("reembed", "--encoder", "minilm-views", "--views", "2", "--questions", "questions.jsonl", cwd=folder)
    )
    assert "R@10" in done.stdout and "before" in done.stdout
    assert "the engine flat was built again" in done.stderr


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (["--encoder", "no-such-model"], 1, "no-such-model"),
        (["--encoder", "minilm-views", "--family", "nonsense"], 2, "--family"),
        (["--encoder", "minilm-views", "--views", "some"], 2, "--views: expected a whole number or auto, got 'some'"),
        (["--encoder", "minilm-views", "--questions", "none.jsonl"], 1, "none.jsonl"),
        (["--encoder", "minilm-views", "--questions", "plain.tsv"], 1, "plain.tsv: expected questions with the id"),
        (["--encoder", "minilm-views", "--format", "tsv"], 2, "belongs to --questions"),
        (["--encoder", "minilm-views", "--index", "grpc://127.0.0.1:1/notes"], 1, "Stop the server"),
        ([], 2, "--encoder"),
    ],
)
def test_wrong_options_are_refused_before_anything_is_written(folder, options, code, message):
    (folder / "plain.tsv").write_text("q1\tWhere is it?\n")
    before = sorted(path.name for path in (folder / "notes.mvx").iterdir())
    done = mvindex("reembed", *options, cwd=folder)
    assert (done.returncode, message in done.stderr) == (code, True), done.stderr
    assert sorted(path.name for path in (folder / "notes.mvx").iterdir()) == before


def test_vectors_without_texts_are_refused_with_the_way_out(tmp_path):
    with package.create(tmp_path / "given.mvx", dim=4) as index:
        index.add_views([package.Document("bare", "")], np.eye(4)[:1])
    bare = mvindex("reembed", "given.mvx", "--encoder", "minilm-views", cwd=tmp_path)
    assert bare.returncode == 1 and "given.mvx: document 'bare': expected a text or a title to encode" in bare.stderr


def test_an_index_in_shards_is_reembedded_and_measured_as_a_whole(folder):
    with package.create(folder / "shards.mvx", encoder="minilm-views", shards=2) as index:
        index.add([package.Document(doc_id, text) for doc_id, text in TEXTS.items()])
    done = mvindex(
        "reembed", "shards.mvx", "--encoder", "minilm-views", "--family", "single", "--questions", "questions.jsonl",
        "--json", cwd=folder,
    )  # fmt: skip
    (report,) = lines(ok(done))
    assert (report["documents"], report["encoded"], report["views_after"]) == (3, 3, 3)
    assert report["measured"] == {"before": {"R@1": 1.0, "R@10": 1.0}, "after": {"R@1": 1.0, "R@10": 1.0}}
    (info,) = lines(mvindex("info", "-i", "shards.mvx", "--json", cwd=folder))
    assert (info["encoder"]["family"], info["shards"]) == ("single", 2)
