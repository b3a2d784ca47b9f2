"""The citable parts of a text: sentences, lines of lists and tables, windows."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mvindex.corpus.text.units import LONGEST_CHARS, split_units


def parts(text):
    return [text[begin:end] for begin, end in split_units(text)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("It began in 1973. It ended in 1974!", ["It began in 1973.", "It ended in 1974!"]),
        ("Dr. A. Smith et al. found it. Etc. it was.", ["Dr. A. Smith et al. found it.", "Etc. it was."]),
        (
            "It cost 3.5 dollars. (See below.) \u201cYes.\u201d No.",
            ["It cost 3.5 dollars.", "(See below.)", "\u201cYes.\u201d", "No."],
        ),
        ("It rose.[3] It fell.[citation needed] And rose.", ["It rose.[3]", "It fell.[citation needed]", "And rose."]),
        ("- one\n- two\n1. three\n", ["- one", "- two", "1. three"]),
        (
            "1. One thing. And more.\n12. Two. In 1973. It ended.",
            ["1. One thing.", "And more.", "12. Two.", "In 1973.", "It ended."],
        ),
        ("Name\tAge\nBob\t3\nAnn\t4", ["Name\tAge", "Bob\t3", "Ann\t4"]),
        ("A Title\n\nfirst line", ["A Title", "first line"]),
        ("A Title\nThe text.", ["A Title", "The text."]),
        (
            "a line of more than fifty characters that was wrapped\nGoes on here. Then more.",
            ["a line of more than fifty characters that was wrapped\nGoes on here.", "Then more."],
        ),
        ("short\nbut going on", ["short\nbut going on"]),
        ("石油危机始于1973年。它很严重！", ["石油危机始于1973年。", "它很严重！"]),
        ("name | age\nann | 3\nbob | 4", ["name | age", "ann | 3", "bob | 4"]),
        (
            "It needs the plugin\n[`keyrings.a-plugin-of-a-very-long-name`](https://example.org/a/b) to run. Next.",
            [
                "It needs the plugin\n[`keyrings.a-plugin-of-a-very-long-name`](https://example.org/a/b) to run.",
                "Next.",
            ],
        ),
        ("It is off. `pip` differs. :data:`.session` too.", ["It is off.", "`pip` differs.", ":data:`.session` too."]),
        ("", []),
        (" \n . ?", []),
    ],
)
def test_a_text_is_cut_where_a_reader_would_cut_it(text, expected):
    assert parts(text) == expected


def test_a_long_part_is_cut_between_clauses_then_words_then_anywhere():
    clauses = "one two three, " * 100
    assert all(part.endswith("three,") for part in parts(clauses)[:-1])
    assert all(part.split()[0] == "word" for part in parts("word " * 300))
    for text in (clauses, "word " * 300, "x" * 2000):
        assert "".join(parts(text)).replace(" ", "") == text.replace(" ", "")
        assert max(map(len, parts(text))) <= LONGEST_CHARS


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "First. To run it:\n\n```sh title='x'\nuv run a\nuv run b\n```\n\nThen done.",
            ["First.", "To run it:\n\n```sh title='x'\nuv run a\nuv run b", "Then done."],
        ),
        ("Like this::\n\n    a = 1\n\n    b = 2\n\nDone.", ["Like this::\n\n    a = 1\n\n    b = 2", "Done."]),
        (
            "Set it.\n\n.. code-block:: python\n    :caption: x.py\n\n    a = 1\n\nDone.",
            ["Set it.\n\n.. code-block:: python\n    :caption: x.py\n\n    a = 1", "Done."],
        ),
        (
            ".. group-tab:: Windows\n\n   .. code-block:: text\n\n      > run\n\n.. _next:\n\nDone.",
            [".. group-tab:: Windows\n\n   .. code-block:: text\n\n      > run", ".. _next:", "Done."],
        ),
        (
            '=== "pip"\n\n    ```sh\n    pip install a\n    ```\n\n=== "uv"\n\n    Use uv. Twice.',
            ['=== "pip"\n\n    ```sh\n    pip install a', '=== "uv"\n\n    Use uv.', "Twice."],
        ),
        (
            ".. py:data:: MAX_SIZE\n\n    The limit. It is in bytes.",
            [".. py:data:: MAX_SIZE\n\n    The limit.", "It is in bytes."],
        ),
        ("# Install\n\n```sh\npip\n```", ["# Install", "sh", "pip"]),
        ("term\n    Its definition. More.", ["term\n    Its definition.", "More."]),
        ("Install it:\n\n$ pip install a\n\nDone.", ["Install it:\n\n$ pip install a", "Done."]),
        ("```\nnever closed\n\nto the end", ["never closed\n\nto the end"]),
        ("Views\n~~~~~\n\nOne. Two.", ["Views", "One.", "Two."]),
        ("FAQ and more\n`````````````\n\nOne. Two.", ["FAQ and more", "One.", "Two."]),
        ("a = 1\nb = 2\n```\n\nThen run it. Done.", ["a = 1\nb = 2", "Then run it.", "Done."]),
        ("a = 1\n```\n\nRun it:\n\n```sh\n$ go", ["a = 1", "Run it:\n\n```sh\n$ go"]),
        ("```{note}\nMind this. And that.\n```\n\nEnd.", ["{note}", "Mind this.", "And that.", "End."]),
        (".. toctree::\n   :maxdepth: 2\n\n   a\n   b\n\nEnd.", [".. toctree::", ":maxdepth: 2", "a", "b", "End."]),
        (".. A comment.\n   Of two lines. Three.\n\nEnd.", [".. A comment.", "Of two lines. Three.", "End."]),
        (".. [1] A note. Of two.", ["[1] A note.", "Of two."]),
    ],
)
def test_code_is_one_part_with_what_introduces_it_and_a_name_with_what_it_names(text, expected):
    assert [part.lstrip("`") for part in parts(text)] == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "Options:\n  -q, --quiet       Say less. Or nothing.\n  --jobs INTEGER    Number of\n"
            "                    workers.\n\nEnd.",
            [
                "Options:",
                "-q, --quiet       Say less. Or nothing.",
                "--jobs INTEGER    Number of\n" + " " * 20 + "workers.",
                "End.",
            ],
        ),
        (
            "=====  ========\na      One. Two.\nb      Three.\n       Four.\n=====  ========\n\nEnd. It is.",
            ["a      One. Two.", "b      Three.\n       Four.", "End.", "It is."],
        ),
        (
            "+---+------+\n| a | One. |\n|   | Two. |\n+---+------+\n| b | C.   |\n+---+------+\n\nEnd.",
            ["| a | One. |\n|   | Two. |", "| b | C.   |", "End."],
        ),
        ("#. One. And.\n#. Two.", ["One.", "And.", "Two."]),
        (
            "It uses\n:doc:`the factory </a/b>`, and\n`views` too. End.",
            ["It uses\n:doc:`the factory </a/b>`, and\n`views` too.", "End."],
        ),
        (
            "You need to use\n:class:`Runner` with\n:setting:`X` off. End.",
            ["You need to use\n:class:`Runner` with\n:setting:`X` off.", "End."],
        ),
        ("`int` is whole\n`str` is text", ["`int` is whole", "`str` is text"]),
        (
            "Jinja's filter marks its result, use ``|safe`` inside\nHTML tags. End.",
            ["Jinja's filter marks its result, use ``|safe`` inside\nHTML tags.", "End."],
        ),
    ],
)
def test_rows_options_and_wrapped_lines_are_whole(text, expected):
    assert [part.removeprefix("#. ") for part in parts(text)] == expected


def test_long_code_is_cut_between_lines_and_its_first_piece_goes_with_the_sentence():
    code = "".join(f"    line_{number} = call({number})\n" for number in range(60))
    found = parts(f"Do it::\n\n{code}")
    assert found[0].startswith("Do it::\n\n    line_0 = ")
    assert all(part.startswith("line_") and part.endswith(")") for part in found[1:])
    assert "".join("".join(found).split()) == "".join(f"Do it:: {code}".split())
    assert 3 < len(found) < 8


def test_long_code_is_cut_at_its_blank_lines():
    functions = [f"def f{number}():\n" + "    a_line = of_code()\n" * 8 for number in range(6)]
    found = parts("```py\n" + "\n".join(functions) + "```")
    assert found == ["```py", *(function.strip() for function in functions)]


MARKUP = (
    "```\n|~~~ sh\n|Run it::\n\n|    |\n|\n\n|.. _a:\n|.. note:: B\n|a b. C|:x: y\n|$ run\n|=== 'T'\n|# H\n|"
    ".. code-block:: c\n|- item\n|<!-- c -->\n|ab\n~~~\n\n|=== ==\n|+--+--+\n|--a  b\n|:::\n|.. c\n|   * - d\n|#. e:\n"
).split("|")


MARKED_UP = st.lists(st.sampled_from([*MARKUP, "word " * 130]), max_size=30).map("".join)


@given(st.one_of(MARKED_UP, st.text(alphabet="aB1. !\n\t-,;é。\u201d", max_size=1500)))
def test_parts_are_in_order_apart_bare_and_hold_every_letter(text):
    units = split_units(text)
    flat = [position for unit in units for position in unit]
    assert flat == sorted(flat) and all(0 < end - begin <= LONGEST_CHARS for begin, end in units)
    assert all(part == part.strip() for part in parts(text))
    assert [char for part in parts(text) for char in part if char.isalnum()] == [
        char for char in text if char.isalnum()
    ]


def test_a_row_of_a_table_is_one_part_or_several_of_whole_cells():
    row = "part: PX-1037; maker: Orbitex. Inc; price (EUR): 5.30; note: Fragile; heavy. Handle with care"
    assert parts(row) == [row]
    cells = [f"column {n}: A value. Of two sentences" for n in range(20)]
    found = parts("; ".join(cells))
    assert [cell for part in found for cell in part.rstrip(";").split("; ")] == cells
    assert len(found) == 3 and max(map(len, found)) <= 300


def test_a_cell_that_is_longer_than_a_part_is_cut_between_sentences():
    found = parts("name: Bob; story: " + "It was so. " * 80 + "; age: 3")
    assert found[0] == "name: Bob;" and found[-1] == "age: 3" and found[2] == "It was so."


def test_a_sentence_with_colons_is_no_row():
    text = "The Normans (Norman: Nourmands; French: Normands; Latin: Normanni) were people. They came."
    assert parts(text) == [
        "The Normans (Norman: Nourmands; French: Normands; Latin: Normanni) were people.",
        "They came.",
    ]
