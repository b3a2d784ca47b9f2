"""Reading question files and judgements."""

import json
import re
import warnings
from pathlib import Path

import jsonschema
import pytest

from mvindex.errors import CorpusError
from mvindex.measure.questions import Question, QuestionFormat, read_qrels, read_questions

SCHEMA = json.loads((Path(__file__).parents[3] / "schemas/records/question.schema.json").read_text())


@pytest.fixture
def write(tmp_path):
    def write_file(text, name="questions"):
        path = tmp_path / name
        path.write_text(text, encoding="utf-8", newline="")
        return str(path)

    return write_file


def read(*paths, format=None):
    return list(read_questions(paths, format))


def read_row(write, row):
    return read(write(json.dumps(row) + "\n"))[0]


# --- JSONL


def test_a_squad_row_gives_all_four_values(write):
    row = {"id": "q7", "question": "Who won?", "answers": ["Denver", "the Broncos"], "passage_id": "12", "title": "Cup"}
    assert read_row(write, row) == Question("q7", "Who won?", ("Denver", "the Broncos"), "12")


@pytest.mark.parametrize(
    ("answer", "answers"), [(["1972", "in 1972"], ("1972", "in 1972")), ("1972", ("1972",)), ([], None), (None, None)]
)
def test_an_nq_open_row_takes_answer_as_list_or_string_and_its_line_as_id(write, answer, answers):
    assert read_row(write, {"question": "when?", "answer": answer}) == Question("1", "when?", answers, None)


def test_a_beir_row_has_no_answers_even_when_it_carries_a_label_named_answer(write):
    row = {"_id": "21", "text": "Is it so?", "answer": "yes", "metadata": {}}
    assert read_row(write, row) == Question("21", "Is it so?", None, None)


def test_a_beir_row_may_carry_a_list_of_answers(write):
    assert read_row(write, {"_id": "21", "text": "Who?", "answers": ["I"]}).answers == ("I",)


def test_whole_numbers_are_taken_as_ids(write):
    assert read_row(write, {"id": 0, "question": "a", "passage_id": 0}) == Question("0", "a", None, "0")


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"id": "1"}, 'expected a field "question" or "text", got id'),
        ({"question": ""}, "\"question\": expected visible text, got ''"),
        ({"question": "\u200b \n"}, "expected visible text"),
        ({"question": 7}, "\"question\": expected a string, got int '7'"),
        ({"question": None, "text": "x"}, '"question": expected a string, got NoneType'),
        ({"question": "a", "id": True}, '"id": expected a string, got bool'),
        ({"question": "a", "id": ""}, "\"id\": expected visible text, got ''"),
        ({"question": "a", "passage_id": 1.5}, '"passage_id": expected a string, got float'),
        ({"question": "a", "answers": {"text": ["b"]}}, "answers: expected a string or a list"),
        ({"question": "a", "answers": ["b", 3]}, "\"answer\": expected a string, got int '3'"),
        ({"question": "a\ud800"}, "got '\\ud800'"),
        ({"question": "a", "answers": ["\0"]}, "got '\\x00'"),
    ],
)
def test_a_value_of_the_wrong_kind_is_named_with_path_and_line(write, row, message):
    path = write('{"id": "first", "question": "fine"}\n' + json.dumps(row) + "\n")
    with pytest.raises(CorpusError, match=f"^{path}:2: .*{re.escape(message)}"):
        read(path)


@pytest.mark.parametrize("line", ['{"question": "a"', "{}}", "[1]", "3", "[" * 100_000, '{"id": ' + "1" * 5000 + "}"])
def test_a_line_that_is_no_json_object_is_named_with_path_and_line(write, line):
    path = write('{"question": "fine"}\n' + line + "\n")
    with pytest.raises(CorpusError, match=f"^{path}:2: "):
        read(path)


@pytest.mark.parametrize(
    "row",
    [
        {"id": "q7", "question": "Who?", "answers": ["Denver"], "passage_id": "12", "title": "Cup"},
        {"_id": "21", "text": "Is it so?", "metadata": {}},
        {"question": "when?", "answer": "1972"},
    ],
)
def test_rows_that_are_read_fit_the_schema(write, row):
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    jsonschema.validate(row, SCHEMA)
    read_row(write, row)


@pytest.mark.parametrize(
    "row", [{"id": "1"}, {"question": " "}, {"question": "a", "answers": [3]}, {"question": "a", "id": 1.5}]
)
def test_rows_that_are_refused_do_not_fit_the_schema(write, row):
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(row, SCHEMA)
    with pytest.raises(CorpusError):
        read_row(write, row)


# --- DPR


def test_a_dpr_line_gives_question_and_answers_with_its_number_as_id(write):
    path = write("who sings\t['Linda Davis']\nwhere is it\t[\"King's Cross\", 'the \"Tube\"']\n")
    assert read(path) == [
        Question("1", "who sings", ("Linda Davis",)),
        Question("2", "where is it", ("King's Cross", 'the "Tube"')),
    ]


def test_csv_quotes_are_taken_off_question_and_list_once(write):
    path = write('"Who sang ""D\'oh""?"\t"[""it\'s"", \'me\']"\n"""Deep"" or not?"\t[\'a\']\n')
    assert read(path) == [Question("1", 'Who sang "D\'oh"?', ("it's", "me")), Question("2", '"Deep" or not?', ("a",))]


def test_a_question_that_only_begins_with_a_quote_is_kept_as_it_is(write):
    assert read(write("\"Help\" was sung by whom?\t['The Beatles']\n"))[0].text == '"Help" was sung by whom?'


def test_python_escapes_are_decoded_and_a_patterns_own_backslash_stays(write):
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # Python warns of unknown escapes; no warning may reach the user
        answers = read(write("q\t['B.\\xa0B.', '\\\\b5\\\\b', '\\d+', 'a\\\\']\n"))[0].answers
    assert answers == ("B.\xa0B.", r"\b5\b", r"\d+", "a\\")


def test_an_empty_list_stands_for_no_known_answers(write):
    assert read(write("q\t[]\n"))[0].answers is None


@pytest.mark.parametrize(
    "answers",
    [
        "['a'",
        "['a' 'b']",
        "[1, 2]",
        "['a', ['b']]",
        "[__import__('os').getcwd()]",
        "['a'] + ['b']",
        "[" + "[" * 5000 + "]" * 5000 + "]",
        "['\\x']",
        "['\\ud800']",
        "[f'a']",
        "plain",
        "['a'" + " " * 50_000 + "x",
        "['a'," * 20_000 + "x]",
        "['" + "a" * (1 << 20) + "']",
    ],
)
def test_what_is_no_flat_list_of_strings_is_refused_by_line(write, answers):
    path = write(f"fine\t['a']\nq\t{answers}\n")
    with pytest.raises(CorpusError, match=f"^{path}:2: "):
        read(path)


@pytest.mark.parametrize("line", ["only a question", "a\tb\t['c']"])
def test_a_dpr_line_with_other_than_two_columns_is_refused(write, line):
    path = write(f"fine\t['a']\n{line}\n")
    with pytest.raises(CorpusError, match=f"^{path}:2: expected two columns.* got {line.count(chr(9)) + 1} columns"):
        read(path)


# --- TSV, text, detection


def test_a_tsv_line_gives_id_and_question_and_keeps_quotes(write):
    assert read(write('300674\thow many "years"\n125705\twhat [is] it\n')) == [
        Question("300674", 'how many "years"'),
        Question("125705", "what [is] it"),
    ]


def test_a_tsv_header_is_known_by_its_name_and_is_no_question(write):
    assert read(write("qid\tquery\n7\twhat\n")) == [Question("7", "what")]
    with pytest.raises(CorpusError, match="expected one question per line"):
        read(write("qid\tquery\n"))


@pytest.mark.parametrize("line", ["how many years\t12", "\twhat", "1\t ", "1\ta\tb"])
def test_a_tsv_line_of_another_shape_is_refused(write, line):
    path = write(f"1\tfine\n{line}\n")
    with pytest.raises(CorpusError, match=f"^{path}:2: "):
        read(path)


def test_plain_lines_are_questions_only_when_asked_for(write):
    path = write("who is it?\n\n  {and} [why]\there? \n")
    with pytest.raises(CorpusError, match=f"^{path}:1: expected a JSON object.* got 'who is it\\?'. .* format `text`"):
        read(path)
    assert read(path, format=QuestionFormat.TEXT) == [Question("1", "who is it?"), Question("3", "{and} [why]\there?")]


def test_a_given_format_overrides_what_the_first_line_shows(write):
    path = write("1\t[not a list]\n")
    assert read(path, format=QuestionFormat.TSV) == [Question("1", "[not a list]")]
    with pytest.raises(CorpusError, match="expected a Python list of strings"):
        read(path)


def test_files_of_different_formats_follow_each_other(write):
    paths = [
        write('\ufeff{"_id": "a", "text": "one"}\r\n', "x"),
        write("b\ttwo\r\n", "y"),
        write("three\t['c']\r\n", "z"),
    ]
    assert [(question.id, question.text) for question in read(*paths)] == [("a", "one"), ("b", "two"), ("3", "three")]


def test_line_numbers_as_ids_count_on_in_the_next_file(write):
    paths = [write("one\t['a']\n\ntwo\t['b']\n", "x"), write("three\t['c']\n", "y")]
    assert [question.id for question in read(*paths)] == ["1", "3", "4"]


def test_an_id_given_twice_names_both_lines(write):
    first, second = write("a\tone\nb\ttwo\n", "x"), write("c\tthree\nb\tfour\n", "y")
    with pytest.raises(CorpusError, match=f"^{second}:2: expected a unique id, got 'b' again, which is at {first}:2"):
        read(first, second)
    with pytest.raises(CorpusError, match=f"^{first}:1: expected a unique id, got 'a' again, which is at {first}:1"):
        read(first, first)


@pytest.mark.parametrize("text", ["", "\n \n\t\n"])
def test_a_file_without_questions_is_an_error_that_names_it(write, text):
    fine, empty = write("a\tone\n", "x"), write(text, "y")
    with pytest.raises(CorpusError, match=f"^{empty}: expected one question per line, got none"):
        read(fine, empty)


def test_questions_come_before_the_rest_of_the_file_is_read(write):
    questions = read_questions([write("a\tone\nbroken\n")])
    assert next(questions).id == "a"
    with pytest.raises(CorpusError):
        next(questions)


# --- judgements


def test_beir_judgements_are_read_with_and_without_their_header(write):
    expected = {"1": {"d 1": 1, "d2": 0}, "2": {"d 1": 2}}
    lines = "1\td 1\t1\n1\td2\t0\n\n2\td 1\t2\n"
    assert read_qrels(write("query-id\tcorpus-id\tscore\r\n" + lines)) == expected
    assert read_qrels(write(lines)) == expected


def test_trec_judgements_are_read_whatever_the_white_space(write):
    assert read_qrels(write("1 0 a -1\n1  0\tb   3\n2\t0\ta\t1\n")) == {"1": {"a": -1, "b": 3}, "2": {"a": 1}}


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("1\tb\tyes", "got 'yes'"),
        ("1\tb\t1.5", "got '1.5'"),
        ("1\tb\t1_0", "got '1_0'"),
        ("1\tb", "2 columns"),
        ("1 0 b 1", "1 columns"),
        ("1\t\t1", "3 columns"),
        ("1\ta\t0", "got document 'a' twice for question '1'"),
    ],
)
def test_a_judgement_that_cannot_be_read_is_named_by_line(write, line, message):
    path = write(f"query-id\tcorpus-id\tscore\n1\ta\t1\n{line}\n")
    with pytest.raises(CorpusError, match=f"^{path}:3: .*{re.escape(message)}"):
        read_qrels(path)


@pytest.mark.parametrize("text", ["", "query-id\tcorpus-id\tscore\n"])
def test_a_file_without_judgements_is_an_error(write, text):
    with pytest.raises(CorpusError, match="got no judgement"):
        read_qrels(write(text))
