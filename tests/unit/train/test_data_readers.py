"""Each format of training data: told by its content, read as examples, wrong rows named with file and line or entry."""

import gzip
import io
import json
import tracemalloc

import pytest
import zstandard

from mvindex.errors import ConfigError, CorpusError
from mvindex.records import Document
from mvindex_train.data.options import ReadCount, ReadOptions, ReadReport, Split, TrainingFormat
from mvindex_train.data.read import detect, read_training
from mvindex_train.data.records import Example, content_id, dump_example

DPR = [
    {
        "question": "Who wrote it?",
        "answers": ["Ada"],
        "positive_ctxs": [{"title": "A book", "text": "Ada wrote it.", "passage_id": "7", "score": 1.5}],
        "negative_ctxs": [{"title": "", "text": "Plain.", "psg_id": 3}],
        "hard_negative_ctxs": [{"title": "B", "text": "Hard."}, {"title": " ", "text": ""}],
    },
    {"question": "Unanswered?", "answers": [], "positive_ctxs": [], "negative_ctxs": [], "hard_negative_ctxs": []},
    {"question": "And who?", "answers": ["Bob"], "positive_ctxs": [{"title": "C", "text": "Ada.", "psg_id": "8"}]},
]
DPR_EXAMPLES = [
    Example(
        "1",
        "Who wrote it?",
        (Document("7", "Ada wrote it.", "A book"),),
        (Document(content_id("B", "Hard."), "Hard.", "B"), Document("3", "Plain.")),
        ("Ada",),
        (0, 3),
    ),
    Example("3", "And who?", (Document("8", "Ada.", "C"),), answers=("Bob",)),
]
SQUAD = {
    "version": "v2.0",
    "data": [
        {
            "title": "Normans",
            "paragraphs": [
                {
                    "context": "Rollo was a Norman; Rollo ruled.",
                    "qas": [
                        {
                            "id": "a",
                            "question": "Who ruled?",
                            "is_impossible": False,
                            "answers": [{"text": "Rollo", "answer_start": 20}, {"text": "Rollo", "answer_start": 0}],
                        },
                        {"id": "b", "question": "When?", "is_impossible": True, "answers": []},
                        {"id": "c", "question": "A what?", "answers": [{"text": "Norman", "answer_start": 3}]},
                    ],
                },
                {"context": "Second.", "qas": [{"id": "d", "question": "Which?", "answers": []}]},
            ],
        }
    ],
}


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")
    return str(path)


def lines(*rows):
    return "".join(json.dumps(row) + "\n" for row in rows)


def read(path, report=None, **options):
    return list(read_training([path], ReadOptions(**options), report))


@pytest.mark.parametrize(
    "text", [json.dumps(DPR), json.dumps(DPR, indent=4), "\ufeff\n " + json.dumps(DPR), lines(*DPR)]
)
def test_dpr_array_or_lines_give_the_same_examples(tmp_path, text):
    path, report = write(tmp_path / "train.json", text), ReadReport()
    assert detect(path) is TrainingFormat.DPR
    assert read(path, report) == DPR_EXAMPLES
    assert report.counts == {
        ReadCount.EXAMPLES: 2,
        ReadCount.NO_POSITIVE: 1,
        ReadCount.EMPTY_DOCUMENT: 1,
        ReadCount.SPAN_FOUND: 1,
        ReadCount.SPAN_UNFINDABLE: 1,
    }


@pytest.mark.parametrize("compress", [gzip.compress, zstandard.compress], ids=["gz", "zst"])
def test_compressed_files_are_read_as_plain_ones(tmp_path, compress):
    (tmp_path / "train").write_bytes(compress(json.dumps(DPR).encode()))
    assert read(str(tmp_path / "train")) == DPR_EXAMPLES


def test_a_large_array_is_read_in_the_memory_of_one_entry(tmp_path):
    entry = {**DPR[0], "negative_ctxs": [{"title": "", "text": "n" * 20_000, "psg_id": "3"}]}
    path = write(tmp_path / "train.json", json.dumps([entry] * 500))
    tracemalloc.start()
    try:
        num_examples = sum(1 for _ in read_training([path]))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert num_examples == 500
    assert peak < 4_000_000 < 10_000_000 < (tmp_path / "train.json").stat().st_size


def test_two_files_count_their_unnamed_questions_on(tmp_path):
    paths = [write(tmp_path / name, lines({"passage": f"P {name}", "question": "Q?"})) for name in "ab"]
    assert [example.question_id for example in read_training(paths)] == ["1", "2"]


def test_squad_gives_places_and_leaves_out_impossible_questions(tmp_path):
    path, report = write(tmp_path / "train.json", json.dumps(SQUAD)), ReadReport()
    assert detect(path) is TrainingFormat.SQUAD
    first, second = (
        Document("Normans#1", SQUAD["data"][0]["paragraphs"][0]["context"], "Normans"),
        Document("Normans#2", "Second.", "Normans"),
    )
    assert read(path, report) == [
        Example("a", "Who ruled?", (first,), answers=("Rollo",), answer_span=(20, 25)),
        Example("c", "A what?", (first,), answers=("Norman",), answer_span=(12, 18)),
        Example("d", "Which?", (second,)),
    ]
    assert report.counts == {
        ReadCount.EXAMPLES: 3,
        ReadCount.IMPOSSIBLE: 1,
        ReadCount.MISPLACED: 1,
        ReadCount.SPAN_GIVEN: 1,
        ReadCount.SPAN_FOUND: 1,
        ReadCount.NO_ANSWERS: 1,
    }


def test_questions_name_a_row_of_the_passages(tmp_path):
    passages = tmp_path / "passages.tsv.gz"
    passages.write_bytes(gzip.compress(b'id\ttext\ttitle\n7\t"Ada ""A."" wrote"\tA book\n8\tBob.\t\n'))
    path = write(
        tmp_path / "questions.jsonl",
        lines(
            {"id": "q1", "question": "Who?", "answers": ["Ada"], "passage_id": "7"},
            {"id": "q2", "question": "Where?", "answers": ["Rome"], "passage_id": None},
            {"id": "q3", "question": "And who?", "answers": None, "passage_id": 8},
        ),
    )
    report = ReadReport()
    assert detect(path) is TrainingFormat.QUESTIONS
    assert read(path, report, passages=str(passages)) == [
        Example("q1", "Who?", (Document("7", 'Ada "A." wrote', "A book"),), answers=("Ada",), answer_span=(0, 3)),
        Example("q3", "And who?", (Document("8", "Bob."),)),
    ]
    assert report.counts[ReadCount.NO_POSITIVE] == 1
    with pytest.raises(ConfigError, match="passages"):
        read(path)


def test_titles_left_out_are_still_articles(tmp_path):
    path = write(tmp_path / "train.json", json.dumps(DPR))
    example = read(path, title=False)[0]
    assert example.positives == (Document("7", "Ada wrote it.", "", {"article": "A book"}),)
    assert [document.title for document in example.negatives] == ["", ""]


def beir(folder):
    write(folder / "corpus.jsonl", lines(*({"_id": f"d{i}", "title": "", "text": f"Text {i}"} for i in range(4))))
    write(folder / "queries.jsonl", lines({"_id": "q1", "text": "First?"}, {"_id": "q2", "text": "Second?"}))
    head = "query-id\tcorpus-id\tscore\n"
    write(folder / "qrels/train.tsv", head + "q1\td0\t1\nq1\td1\t0\nq1\td2\t2\nq2\td3\t0\n")
    write(folder / "qrels/dev.tsv", head + "q2\td1\t1\n")
    return folder


def test_beir_takes_grades_above_0_the_highest_first(tmp_path):
    folder, report = beir(tmp_path / "set"), ReadReport()
    assert detect(str(folder)) is TrainingFormat.BEIR
    assert read(str(folder), report) == [Example("q1", "First?", (Document("d2", "Text 2"), Document("d0", "Text 0")))]
    assert report.counts[ReadCount.NO_POSITIVE] == 1


def test_beir_takes_the_part_that_is_asked_for_or_the_file_that_is_named(tmp_path):
    folder = beir(tmp_path / "set")
    by_part = read(str(folder), split=Split.DEV)
    assert by_part == read(str(folder / "qrels/dev.tsv")) == [Example("q2", "Second?", (Document("d1", "Text 1"),))]


def test_triples_of_texts_have_ids_by_content(tmp_path):
    path = write(tmp_path / "triples.tsv", 'what is "it"\tit is x\tno it is\n\nwho am i\tme\tyou\n')
    assert detect(path) is TrainingFormat.TRIPLES
    first, second = read(path)
    assert first == Example(
        "1",
        'what is "it"',
        (Document(content_id("", "it is x"), "it is x"),),
        (Document(content_id("", "no it is"), "no it is"),),
    )
    assert (second.question_id, second.positives[0].text, second.negatives[0].text) == ("2", "me", "you")


def test_triples_of_ids_are_looked_up_beside_them(tmp_path):
    path = write(tmp_path / "qidpidtriples.tsv", "11\t0\t2\n12\t1\t0\n")
    write(tmp_path / "queries.train.tsv", "11\tfirst question\n12\tsecond question\n")
    write(tmp_path / "collection.tsv", "0\tzero text\n1\tone text\n2\ttwo text\n")
    assert detect(path) is TrainingFormat.TRIPLE_IDS
    assert read(path) == [
        Example("11", "first question", (Document("0", "zero text"),), (Document("2", "two text"),)),
        Example("12", "second question", (Document("1", "one text"),), (Document("0", "zero text"),)),
    ]


def test_tevatron_keeps_teacher_scores_beside_their_passages(tmp_path):
    row = {
        "query_id": 5,
        "query": "Who?",
        "positive_passages": [{"docid": "1", "title": "A", "text": "Ada."}],
        "negative_passages": [{"docid": "2", "title": "", "text": ""}, {"docid": 3, "text": "Bob."}],
        "answers": ["Ada"],
        "teacher_scores": [9.5, 1.0, 2],
    }
    path = write(tmp_path / "train.jsonl", lines(row))
    assert detect(path) is TrainingFormat.TEVATRON
    assert read(path) == [
        Example("5", "Who?", (Document("1", "Ada.", "A"),), (Document("3", "Bob."),), ("Ada",), (0, 3), (9.5, 2.0))
    ]
    short = write(tmp_path / "short.jsonl", lines(row, {**row, "teacher_scores": [9.5]}))
    with pytest.raises(CorpusError, match=r'short\.jsonl:2: "teacher_scores": expected 3 scores, .*got 1'):
        read(short)


def test_plain_pairs(tmp_path):
    path = write(tmp_path / "pairs.jsonl", lines({"passage": "it is x .", "question": "what ?"}))
    assert detect(path) is TrainingFormat.PAIRS
    assert read(path) == [Example("1", "what ?", (Document(content_id("", "it is x ."), "it is x ."),))]


def test_our_own_rows(tmp_path):
    example = Example("q", "Who?", (Document("1", "Ada."),), (Document("2", "Bob.", "", {"score": 1.5}),))
    path = tmp_path / "mined.jsonl"
    path.write_bytes(dump_example(example))
    assert detect(str(path)) is TrainingFormat.EXAMPLES
    assert read(str(path)) == [example]


GOOD_ENTRY = json.dumps(DPR[0])
BAD_FILES = {
    "empty": ("", r"f: expected training data, got an empty file"),
    "cut short": (f"[{GOOD_ENTRY}, {{", r"f: after entry \d+: invalid JSON: .*premature EOF"),
    "not UTF-8 text": ('[{"question": "\x01"}]', r"f: after entry 0: invalid JSON"),
    "array of strings": ('["a"]', r"f: entry 1: expected an object, got 'a'"),
    "no positive_ctxs": (
        f'[{GOOD_ENTRY}, {{"question": "x"}}]',
        r'f: entry 2: expected "positive_ctxs", got the fields question',
    ),
    "context not an object": (
        '[{"question": "x", "positive_ctxs": [1]}]',
        r"f: entry 1: positive_ctxs\[0\]: expected an object, got 1",
    ),
    "contexts not a list": (
        '[{"question": "x", "positive_ctxs": "a"}]',
        r"f: entry 1: \"positive_ctxs\": expected a list, got 'a'",
    ),
    "text a number": (
        '[{"question": "x", "positive_ctxs": [{"text": 5}]}]',
        r'f: entry 1: positive_ctxs\[0\]: "text": expected a string, got 5',
    ),
    "blank question": (
        '[{"question": " ", "positive_ctxs": [{"text": "a"}]}]',
        r"f: entry 1: question '1': expected visible text, got ' '",
    ),
    "answers a string": (
        '[{"question": "x", "answers": "a", "positive_ctxs": [{"text": "a"}]}]',
        r"f: entry 1: \"answers\": expected a list, got 'a'",
    ),
    "unknown object": ('{"a": 1, "b": [2]}', r"f: expected the fields of SQuAD .* got a, b in the first object"),
    "two columns": ("a\tb\n", r"f: expected JSON, or three columns .* got 2 columns, 'a.tb.n'"),
    "a triple of four": ("a b\tc\td\na b\tc\td\te\n", r"f:2: expected 3 columns .* got 4"),
    "a line no JSON": (
        lines({"passage": "a", "question": "b"}) + "{\n",
        r"f:2: expected one JSON object a line, got invalid JSON",
    ),
    "a surrogate": ('{"passage": "\\ud800", "question": "b"}\n', r"f:1: .*surrogate"),
    "SQuAD without context": (
        '{"data": [{"title": "T", "paragraphs": [{"qas": []}]}]}',
        r"article 1: paragraphs\[0\]: expected",
    ),
    "SQuAD without articles": ('{"data": []}', r"f: expected one example or more, got none"),
    "all impossible": (
        '{"data": [{"paragraphs": [{"context": "c", "qas": [{"is_impossible": true}]}]}]}',
        r"f: expected one example or more, got none \(1 impossible questions, left out\)",
    ),
}


@pytest.mark.parametrize(("text", "message"), BAD_FILES.values(), ids=BAD_FILES)
def test_what_is_wrong_is_named_with_file_and_place(tmp_path, text, message):
    with pytest.raises(CorpusError, match=message):
        read(write(tmp_path / "f", text))


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"queries.train.tsv": "1\tq\n"}, "expected collection.tsv, plain"),
        ({"collection.tsv": "1\ta\n2\tb\n"}, "expected queries.train.tsv or queries.tsv, plain"),
        (
            {"queries.tsv": "1\tq\n", "collection.tsv": "1\ta\n2\tb\n"},
            r"t\.tsv:1: expected the id of a row of .*, got '3'",
        ),
        (
            {"queries.tsv": "7\tq\n", "collection.tsv": "2\ta\n3\tb\n"},
            r"t\.tsv:1: expected the id of a row of .*, got '1'",
        ),
        ({"queries.tsv": "1\tq\n", "collection.tsv": "2\ta\n3\tb\n2\tc\n"}, "two different rows have the id '2'"),
    ],
)
def test_missing_and_doubtful_ids_are_errors(tmp_path, files, message):
    for name, text in files.items():
        write(tmp_path / name, text)
    with pytest.raises(CorpusError, match=message):
        read(write(tmp_path / "t.tsv", "1\t2\t3\n"))


def test_a_folder_that_is_none_is_named(tmp_path):
    with pytest.raises(CorpusError, match="without corpus.jsonl"):
        read(str(tmp_path))


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(CorpusError, match="none.json"):
        read(str(tmp_path / "none.json"))


def test_damaged_compression_is_named(tmp_path):
    stored = io.BytesIO(gzip.compress(json.dumps(DPR).encode())[:-12])
    (tmp_path / "f.gz").write_bytes(stored.getvalue())
    with pytest.raises(CorpusError, match=r"f\.gz: cannot be read"):
        read(str(tmp_path / "f.gz"))
