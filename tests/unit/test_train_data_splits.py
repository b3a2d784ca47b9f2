"""The fixed splits: worked on small copies, and on the shared collections themselves where they are."""

import gzip
import hashlib
import json
from contextlib import ExitStack
from pathlib import Path

import pytest

from mvindex.errors import CorpusError
from mvindex.eval.answers import tokenize
from mvindex_train.data.detect import detect
from mvindex_train.data.options import Part, ReadOptions, TrainingFormat
from mvindex_train.data.read import read_training
from mvindex_train.data.readers.context import Reading
from mvindex_train.data.report import Report
from mvindex_train.data.splits import SharedSet, dev_articles, fold_part, read_shared, shared_examples

SHARED = Path(__file__).parents[3] / "shared/data"
TITLES = [f"Article {number}" for number in range(6)]
AMAZON_TITLES = [f"Product {number}" for number in range(12)]


def sha(text):
    return hashlib.sha256(text.encode()).hexdigest()


def lines(rows):
    return "".join(json.dumps(row) + "\n" for row in rows)


def write_asked(folder, questions_name, passages_name, titles):
    """Passages, two a title, with a question each; ids count on."""
    folder.mkdir(exist_ok=True)
    rows = [(str(n + 1), f"{folder.name} text {n} of {title}", title) for n, title in enumerate(titles * 2)]
    (folder / passages_name).write_text("id\ttext\ttitle\n" + "".join("\t".join(row) + "\n" for row in rows))
    asked = [
        {"id": f"q{n}", "question": f"Q {n}?", "answers": [f"text {int(n) - 1}"], "passage_id": n} for n, _, _ in rows
    ]
    (folder / questions_name).write_text(lines(asked))


@pytest.fixture
def folder(tmp_path):
    write_asked(tmp_path / "squad", "questions.train.jsonl", "passages.tsv", TITLES)
    squad = tmp_path / "squad"
    with (squad / "passages.tsv").open("a") as file:
        file.write("99\ttest text\tA test article\n")
    (squad / "questions.test.jsonl").write_text(lines([{"id": "t", "question": "T?", "passage_id": "99"}]))
    write_asked(tmp_path / "squadshifts_amazon", "questions.jsonl", "passages.tsv", AMAZON_TITLES)
    write_asked(tmp_path / "squadshifts_reddit", "questions.jsonl", "passages.tsv", ["One title"] * 12)
    (tmp_path / "squad_sentences").mkdir()
    pairs = lines([{"passage": "a pair .", "question": "what ?"}]).encode()
    (tmp_path / "squad_sentences/pairs.jsonl.gz").write_bytes(gzip.compress(pairs))
    fever = tmp_path / "fever_sentences"
    (fever / "qrels").mkdir(parents=True)
    (fever / "corpus.jsonl").write_text(lines([{"_id": f"s{n}", "title": "", "text": f"Fact {n}"} for n in "12"]))
    (fever / "queries.jsonl").write_text(lines([{"_id": n, "text": f"Claim {n}"} for n in "12"]))
    for name, n in (("train", 1), ("test", 2)):
        (fever / f"qrels/{name}.tsv").write_text(f"query-id\tcorpus-id\tscore\n{n}\ts{n}\t1\n")
    return tmp_path


def test_squad_dev_is_the_last_four_titles_by_hash_and_test_is_the_test_file(folder):
    dev_titles = set(sorted(TITLES, key=sha)[2:])
    found = {part: list(shared_examples(folder, part, [SharedSet.SQUAD])) for part in Part}
    assert {example.positives[0].title for example in found[Part.DEV]} == dev_titles
    assert {example.positives[0].title for example in found[Part.TRAIN]} == set(TITLES) - dev_titles
    assert [len(found[part]) for part in (Part.TRAIN, Part.DEV, Part.TEST)] == [4, 8, 1]
    assert found[Part.TEST][0].question_id == "squad/t"
    assert found[Part.TEST][0].positives[0].id == "squad/99"


def test_amazon_is_split_by_title_and_reddit_by_text(folder):
    wanted_part = {0: Part.TEST, 1: Part.DEV, 2: Part.TRAIN, 3: Part.TRAIN, 4: Part.TRAIN}
    for shared_set, key in ((SharedSet.AMAZON, "article"), (SharedSet.REDDIT, "text")):
        seen = 0
        for part in Part:
            for example in shared_examples(folder, part, [shared_set]):
                passage, seen = example.positives[0], seen + 1
                value = passage.metadata["article"] if key == "article" else passage.text
                assert wanted_part[int(sha(value), 16) % 5] is part
                assert passage.title == ""
        assert seen == 24


def test_the_parts_of_fifths_by_hand():
    for key in AMAZON_TITLES:
        rest = sum(int(digit, 16) for digit in sha(key)) % 5  # 16 = 1 modulo 5, so that digits add up
        assert fold_part(key) is {0: Part.TEST, 1: Part.DEV}.get(rest, Part.TRAIN)


def test_sentences_are_train_alone_and_fever_takes_its_train_judgements(folder):
    sets = [SharedSet.SQUAD_SENTENCES, SharedSet.FEVER_SENTENCES]
    assert [example.question for example in shared_examples(folder, Part.TRAIN, sets)] == ["what ?", "Claim 1"]
    assert not list(shared_examples(folder, Part.DEV, sets)) + list(shared_examples(folder, Part.TEST, sets))


def test_answers_places_are_found(folder):
    example = next(shared_examples(folder, Part.TEST, [SharedSet.AMAZON]), None) or next(
        shared_examples(folder, Part.TRAIN, [SharedSet.AMAZON])
    )
    assert example.positives[0].text[slice(*example.answer_span)] == example.answers[0]


def test_the_folder_is_read_as_one_format_with_the_part_that_is_asked_for(folder):
    assert detect(str(folder)) is TrainingFormat.SHARED
    for part in Part:
        assert list(read_training([str(folder)], ReadOptions(part=part))) == list(shared_examples(folder, part))


def test_a_missing_collection_is_named(tmp_path):
    with pytest.raises(CorpusError, match="squad: no such folder"):
        list(shared_examples(tmp_path, Part.TRAIN))


def test_fewer_articles_than_are_held_back_are_all_dev():
    assert dev_articles({"a", "b"}) == {"a", "b"}


@pytest.fixture(scope="module")
def parts():
    if not (SHARED / "squad").is_dir():
        pytest.skip("the shared collections are not here")
    with ExitStack() as resources:
        readings = {part: Reading(ReadOptions(part=part), Report(), resources) for part in Part}
        return {part: list(read_shared(str(SHARED), reading)) for part, reading in readings.items()}


@pytest.mark.full
def test_the_counts_of_the_shared_collections(parts):
    names = [shared_set.value for shared_set in SharedSet]
    counts = {
        part: [sum(example.question_id.startswith(f"{name}/") for example in examples) for name in names]
        for part, examples in parts.items()
    }
    # squad: 7,150 train questions, of which 662 are on the four dev articles; the READMEs' totals for the others.
    assert counts[Part.TRAIN] == [7150 - 662, 6120, 5772, 11877, 6666]
    assert counts[Part.DEV] == [662, 2055, 2058, 0, 0]
    assert counts[Part.TEST] == [3420, 1710, 1973, 0, 0]
    assert 6120 + 2055 + 1710 == 9885
    assert 5772 + 2058 + 1973 == 9803


@pytest.mark.full
def test_the_four_dev_articles(parts):
    titles = {e.positives[0].title for e in parts[Part.DEV] if e.question_id.startswith("squad/")}
    assert titles == {"Normans", "Black Death", "Genghis Khan", "Civil disobedience"}


@pytest.mark.full
def test_no_passage_of_one_part_is_in_another_even_normalised(parts):
    exact = {part: {doc.text for example in examples for doc in example.positives} for part, examples in parts.items()}
    texts = {part: {tokenize(text) for text in texts} for part, texts in exact.items()}
    assert not texts[Part.TRAIN] & texts[Part.DEV]
    assert not texts[Part.TRAIN] & texts[Part.TEST]
    assert not texts[Part.DEV] & texts[Part.TEST]
