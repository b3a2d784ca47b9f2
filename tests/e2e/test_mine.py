"""`mvindex mine` as a user meets it: real passages, the packaged encoder, runs that are killed and go on."""

import csv
import json
import subprocess
import sys

import pytest

pytest.importorskip("bm25s")
pytest.importorskip("Stemmer")

from typer.testing import CliRunner  # noqa: E402 - only where the extra is

import mvindex  # noqa: E402 - as above
from mvindex.errors import ConfigError  # noqa: E402 - as above
from mvindex.measure.metrics import has_answer, tokenize  # noqa: E402 - as above
from mvindex_train.data.records import read_examples  # noqa: E402 - as above
from mvindex_train.mine_cli import app  # noqa: E402 - as above
from tests.helpers.cli import read_passages, write_tsv  # noqa: E402 - as below

NUM_PASSAGES, NUM_ENCODED = 300, 24


def mine(*args):
    """The report of a run that ends well, with its notes."""
    result = CliRunner().invoke(app, [*map(str, args), "--json"], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout) | {"notes": result.stderr}


def write_questions(path, rows, has_answers=True):
    """Two questions a passage, in words of its own: by its first sentence, and by its last."""
    with open(path, "w", encoding="utf-8") as file:
        for doc_id, text, _ in rows:
            words = text.split()
            for number, part in enumerate((words[:9], words[-9:])):
                answers = {"answers": [max(words, key=len).strip(".,;()")]} if has_answers else {}
                row = {"id": f"{doc_id}-{number}", "question": " ".join(part), "passage_id": doc_id, **answers}
                file.write(json.dumps(row) + "\n")
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """passages.tsv and questions.jsonl of 300 passages, few.tsv and few.jsonl of the first 24 of them."""
    folder = tmp_path_factory.mktemp("mine")
    rows = read_passages(NUM_PASSAGES)
    write_tsv(folder / "passages.tsv", rows)
    write_questions(folder / "questions.jsonl", rows)
    write_tsv(folder / "few.tsv", rows[:NUM_ENCODED])
    write_questions(folder / "few.jsonl", rows[:NUM_ENCODED])
    return folder


@pytest.fixture(scope="module")
def index(folder):
    """An index of the 24 passages by the packaged encoder."""
    from mvindex.corpus import read_documents

    path = folder / "few.mvx"
    with mvindex.create(path, encoder="minilm") as made:
        made.add(read_documents(str(folder / "few.tsv")))
    return path


def bm25_args(folder, out):
    return [folder / "questions.jsonl", "--bm25", "--passages", folder / "passages.tsv", "--out", out]


def sources_of(examples):
    return {document.metadata["source"] for example in examples for document in example.negatives}


def test_bm25_negatives_are_no_positives_and_hold_no_answer(folder, tmp_path):
    out = tmp_path / "negatives.jsonl"
    report = mine(*bm25_args(folder, out), "--per-question", 5)
    mined = list(read_examples(str(out)))
    assert [path.name for path in tmp_path.iterdir()] == ["negatives.jsonl"]
    assert report["questions"] == len(mined) == 2 * NUM_PASSAGES
    assert report["negatives"] == sum(len(example.negatives) for example in mined)
    assert report["too_few"] == sum(len(example.negatives) < 5 for example in mined) < 60
    # Nearly every question, made of its passage's words, ranks the passage among the first.
    assert report["removed_positive"] > 550
    assert report["removed_answer"] > 0
    for example in mined:
        ids = [document.id for document in example.negatives]
        assert len(set(ids) | {example.positives[0].id}) == len(ids) + 1
        answers = [tokenize(answer) for answer in example.answers]
        assert not any(has_answer(tokenize(document.text), answers) for document in example.negatives)
        ranks = [document.metadata["rank"] for document in example.negatives]
        assert ranks == sorted(ranks)


def test_questions_without_answers_lose_their_positives_only_and_the_run_says_so(folder, tmp_path):
    with open(folder / "few.tsv", encoding="utf-8", newline="") as file:
        rows = list(csv.reader(file, delimiter="\t"))[1:]
    questions = write_questions(tmp_path / "bare.jsonl", rows, has_answers=False)
    out = tmp_path / "out.jsonl"
    report = mine(questions, "--bm25", "--passages", folder / "few.tsv", "--out", out, "--per-question", 3)
    assert (report["without_answers"], report["removed_answer"]) == (48, 0)
    assert "48 questions have no answers: only their positives were removed" in report["notes"]


KILLED = """
import os, signal, sys
from mvindex_train.negatives.output import ResumableOutput

name, least = sys.argv.pop(1), int(sys.argv.pop(1))
original = getattr(ResumableOutput, name)

def killed(self, *args):
    if name == "add":
        original(self, *args)
    if self.finished >= least:
        os.kill(os.getpid(), signal.SIGKILL)
    if name != "add":
        original(self, *args)

setattr(ResumableOutput, name, killed)
from mvindex_train.mine_cli import app
app()
"""


SAMPLED = ["--per-question", "4", "--sample", "--seed", "3", "--depth", "50"]


@pytest.fixture(scope="module")
def uninterrupted(folder, tmp_path_factory):
    """The report and the bytes of a run that nothing disturbs."""
    out = tmp_path_factory.mktemp("whole") / "out.jsonl"
    return mine(*bm25_args(folder, out), *SAMPLED), out.read_bytes()


# After a batch is committed; with its rows on disk, but not yet the word that they are; and before the last rename.
@pytest.mark.parametrize(
    ("where", "least", "finished"),
    [
        ("add", 256, 256),
        pytest.param("_save_state", 512, 256, marks=pytest.mark.full),
        pytest.param("finish", 0, 600, marks=pytest.mark.full),
    ],
)
def test_a_killed_run_goes_on_and_writes_the_same_file(folder, uninterrupted, tmp_path, where, least, finished):
    whole, content = uninterrupted
    out = tmp_path / "out.jsonl"
    command = [sys.executable, "-c", KILLED, where, str(least), *map(str, bm25_args(folder, out)), *SAMPLED]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == -9, done.stderr
    assert not out.exists()
    state = json.loads((tmp_path / "out.jsonl.part.json").read_text(encoding="utf-8"))
    assert state["finished"] == finished
    resumed = mine(*bm25_args(folder, out), *SAMPLED)
    assert f"resuming after {finished} questions" in resumed["notes"]
    assert out.read_bytes() == content
    counts = {"questions", "negatives", "removed_positive", "removed_answer", "too_few"}
    assert {name: resumed[name] for name in counts} == {name: whole[name] for name in counts}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out.jsonl"]


@pytest.mark.full
def test_a_part_of_other_settings_and_an_output_that_exists_are_left_alone(folder, tmp_path):
    out = tmp_path / "out.jsonl"
    command = [sys.executable, "-c", KILLED, "add", "256", *map(str, bm25_args(folder, out))]
    assert subprocess.run(command, capture_output=True, check=False, timeout=120).returncode == -9
    part = (tmp_path / "out.jsonl.part").read_bytes()
    with pytest.raises(ConfigError, match="expected a run with per_question 7, got 30"):
        mine(*bm25_args(folder, out), "--per-question", 7)
    few = [folder / "few.jsonl", "--bm25", "--passages", folder / "passages.tsv", "--out", out]
    with pytest.raises(ConfigError, match="expected a run with questions"):
        mine(*few)
    assert (tmp_path / "out.jsonl.part").read_bytes() == part
    assert mine(*few, "--force")["questions"] == 48
    with pytest.raises(ConfigError, match=r"out\.jsonl: exists already\. .*--force"):
        mine(*few)


def test_what_does_not_go_together_is_wrong_usage(folder, tmp_path):
    args = [*map(str, bm25_args(folder, tmp_path / "out.jsonl")), "--source", "dense"]
    assert CliRunner().invoke(app, args).exit_code == 2
    with pytest.raises(ConfigError, match="stdin.*cannot read again"):
        mine("-", "--bm25", "--passages", folder / "few.tsv", "--out", tmp_path / "out.jsonl")
    with pytest.raises(ConfigError, match=r"missing\.jsonl: cannot be read"):
        mine(tmp_path / "missing.jsonl", "--bm25", "--passages", folder / "few.tsv", "--out", tmp_path / "out.jsonl")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.needs("minilm")
@pytest.mark.full
def test_two_rounds_mine_with_bm25_then_with_the_index_and_keep_both(folder, index, tmp_path):
    first, second = tmp_path / "round1.jsonl", tmp_path / "round2.jsonl"
    questions = [folder / "few.jsonl", "--passages", folder / "few.tsv", "--per-question", 4, "--depth", 20]
    mine(*questions, "--bm25", "--out", first)
    report = mine(*questions, "--index", index, "--merge", first, "--out", second, "--exact")
    earlier, united = list(read_examples(str(first))), list(read_examples(str(second)))
    assert sources_of(united) == {"bm25", "dense", "dense+bm25"}
    assert report["negatives"] == sum(len(example.negatives) for example in united)
    assert 0 < report["merged"] < sum(len(example.negatives) for example in earlier)
    for before, after in zip(earlier, united, strict=True):
        assert {document.id for document in before.negatives} <= {document.id for document in after.negatives}
    # The dense ones are what a search of the index gives, without the positive and the answers.
    with mvindex.open(index) as opened:
        hits = opened.search(united[0].question, top_k=20, exact=True, mode="dense").hits
    answers = [tokenize(answer) for answer in united[0].answers]
    wanted = [
        hit.id for hit in hits if hit.id != united[0].positives[0].id and not has_answer(tokenize(hit.text), answers)
    ]
    assert [document.id for document in united[0].negatives[:4]] == wanted[:4]


@pytest.mark.needs("minilm")
def test_both_sources_share_the_count_and_an_index_gives_bm25_its_documents(folder, index, tmp_path):
    out = tmp_path / "both.jsonl"
    args = [
        folder / "few.jsonl",
        "--passages",
        folder / "few.tsv",
        "--index",
        index,
        "--per-question",
        6,
        "--depth",
        12,
    ]
    report = mine(*args, "--source", "both", "--out", out)
    mined = list(read_examples(str(out)))
    assert report["negatives"] == sum(len(example.negatives) for example in mined)
    assert max(len(example.negatives) for example in mined) == 6
    assert sources_of(mined) == {"bm25", "dense", "bm25+dense", "dense+bm25"}
    from_file, from_index = tmp_path / "file.jsonl", tmp_path / "index.jsonl"
    mine(*args, "--bm25", "--out", from_index)
    mine(*args[:3], *args[5:], "--bm25", "--out", from_file)
    assert from_index.read_bytes() == from_file.read_bytes()


@pytest.mark.needs("minilm")
@pytest.mark.full
def test_an_encoder_of_its_own_ranks_passages_or_an_index_of_another(folder, index, tmp_path):
    same = [
        folder / "few.jsonl",
        "--passages",
        folder / "few.tsv",
        "--source",
        "dense",
        "--per-question",
        3,
        "--depth",
        9,
    ]
    by_index, by_file = tmp_path / "index.jsonl", tmp_path / "file.jsonl"
    assert "encoding" not in mine(*same, "--index", index, "--encoder", "minilm", "--out", by_index)["notes"]
    assert "encoding the documents with minilm" in mine(*same, "--encoder", "minilm", "--out", by_file)["notes"]
    assert by_index.read_bytes() == by_file.read_bytes()


@pytest.fixture(scope="module")
def classifier(tmp_path_factory):
    """A folder with a tiny BERT classifier of random weights."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    folder = tmp_path_factory.mktemp("classifier")
    letters = [*"abcdefghijklmnopqrstuvwxyz0123456789"]
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *letters, *(f"##{letter}" for letter in letters)]
    (folder / "vocab.txt").write_text("\n".join(words), encoding="utf-8")
    transformers.BertTokenizerFast(vocab={word: number for number, word in enumerate(words)}).save_pretrained(folder)
    config = transformers.BertConfig(
        vocab_size=len(words), hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16,
        max_position_embeddings=64, initializer_range=0.5, num_labels=1,
    )  # fmt: skip
    torch.manual_seed(0)
    transformers.BertForSequenceClassification(config).save_pretrained(folder)
    return folder


@pytest.mark.full
def test_a_cross_encoder_filters_and_teaches(folder, classifier, tmp_path):
    args = [folder / "few.jsonl", "--bm25", "--passages", folder / "few.tsv", "--cross-encoder", classifier]
    args += ["--teacher", "--per-question", 4, "--depth", 20, "--device", "cpu"]
    plain, filtered = tmp_path / "plain.jsonl", tmp_path / "filtered.jsonl"
    mine(*args, "--out", plain)
    scores = [score for example in read_examples(str(plain)) for score in example.teacher[1:]]
    limit = round(sorted(scores)[len(scores) // 2], 3)
    report = mine(*args, "--keep-below", limit, "--out", filtered)
    mined = list(read_examples(str(filtered)))
    assert report["removed_cross_encoder"] > len(scores) // 3
    for example in mined:
        assert len(example.teacher) == 1 + len(example.negatives)
        # A pair's score may differ in the last digits from batch to batch.
        assert all(score <= limit + 1e-4 for score in example.teacher[1:])
    assert any(example.teacher[0] > limit for example in mined)
