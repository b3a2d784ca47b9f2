"""A line that stands above an answer is never cited: headings, questions of a FAQ, headers of tables."""

import pytest

from mvindex.corpus.text.citation import Citer

FAQ = """# Help

## How do I reset my password?

Open Settings, choose Security and press "Forgot". A mail arrives within two minutes.

## Which payment methods do you accept?

We take Visa, iDEAL and bank transfer.

## Where is your office?

Our office is at Canal Street 4.
"""
HOURS = "From nine to five."


@pytest.mark.parametrize(
    ("question", "begin"),
    [
        ("How do I reset my password?", "Open Settings"),
        ("resetting a forgotten password", "Open Settings"),
        ("Which payment methods do you accept?", "We take Visa"),
        ("what methods of payment are there", "We take Visa"),
        ("Where is your office?", "Our office"),
        ("help", "Open Settings"),
    ],
)
def test_the_sentence_under_the_question_of_a_faq_is_cited(question, begin):
    assert Citer(question).cite(FAQ, "Help").text.startswith(begin)


@pytest.mark.parametrize(
    "text",
    [
        f"# Opening hours\n\n{HOURS}",
        f"## Opening hours {{#hours}}\n{HOURS}",
        f"# Shop\n\n## Opening hours\n\n{HOURS}",
        f"Opening hours\n=============\n\n{HOURS}",
        f"Opening hours\n---\n{HOURS}",
        f"*************\nOpening hours\n*************\n\n{HOURS}",
        f"**Opening hours**\n\n{HOURS}",
        f"**What are the opening hours?**\n{HOURS}",
        f"1. Opening hours\n\n{HOURS}",
        f"2.3 Opening hours\n\n{HOURS}",
        f"OPENING HOURS\n\n{HOURS}",
        f"Opening hours\n\n{HOURS}",
        f"== Opening hours\n\n{HOURS}",
        f"What are the opening hours?\n\n{HOURS}",
        f"What are the opening hours?\n{HOURS}",
        f"- What are the opening hours?\n\n  {HOURS}",
        f"<h2>Opening hours</h2>\n{HOURS}",
        f"<summary>Opening hours</summary>\n\n{HOURS}",
    ],
)
def test_a_heading_of_any_form_is_not_cited(text):
    assert Citer("opening hours").cite(text).text.removeprefix("- ") == HOURS


def test_a_line_that_the_title_names_is_a_heading():
    text = f"opening hours 2024\n{HOURS}"
    assert Citer("opening hours 2024").cite(text, "Shop > Opening hours 2024").text == HOURS


@pytest.mark.parametrize(
    "text",
    [
        "Q: What are the opening hours?\nA: From nine to five.\n\nQ: Where?\nA: Here.",
        "Q: What are the opening hours? A: From nine to five.",
        "**Q1:** I come late. What are the opening hours?\n**A1:** From nine to five.",
        "Question: what are the opening hours?\n\nAnswer: From nine to five.",
    ],
)
def test_the_answer_of_a_pair_is_cited(text):
    assert HOURS in Citer("what are the opening hours").cite(text).text


@pytest.mark.parametrize(
    ("text", "question", "cited"),
    [
        ("# Opening hours", "opening hours", "# Opening hours"),
        ("Founded in 1923\n\nThe company makes pumps.", "when was it founded", "Founded in 1923"),
        ("Phone: 555 1234\n\nWe answer within two days.", "phone", "Phone: 555 1234"),
        ("Cats\nDogs\n\nBirds\n", "dogs", "Dogs"),
        ("It closed in May. Why did it close? Nobody knows.", "when did it close", "It closed in May."),
        ("Denver won the cup. It was in May.", "who won the cup", "Denver won the cup."),
    ],
)
def test_what_says_something_is_no_heading(text, question, cited):
    assert Citer(question).cite(text, "Denver won the cup.").text == cited


ROWS = "| PX-1036 | Ax | 4 |\n| PX-1037 | Orbitex. Inc | 583 |\n"


@pytest.mark.parametrize(
    "text",
    [
        f"| part | maker | stock |\n|---|:-:|--:|\n{ROWS}\nMore.",
        "part | maker | stock\n--- | --- | ---\nax-1036 | Ax | 4\nPX-1037 | Orbitex. Inc | 583",
        f"+---+---+---+\n| part | maker | stock |\n+===+===+===+\n{ROWS}",
    ],
)
@pytest.mark.parametrize("question", ["what is the stock of part PX-1037?", "Orbitex"])
def test_a_row_of_a_table_is_cited_with_the_names_of_its_columns(text, question):
    cited = Citer(question).cite(text)
    assert cited.text == "part: PX-1037; maker: Orbitex. Inc; stock: 583"
    assert text[cited.start : cited.end].strip("| ") == "PX-1037 | Orbitex. Inc | 583"


@pytest.mark.parametrize(
    ("text", "cited"),
    [
        (f"| part | maker | stock |\n|---|---|---|\n{ROWS}", "part: PX-1036; maker: Ax; stock: 4"),
        ("=====  =====\npart   stock\n=====  =====\nA1     4\nB2     5\n=====  =====\n", "part: A1; stock: 4"),
        (r"| a\|b | |" "\n|---|---|\n" r"| x\|y | z |", "a|b: x|y; z"),
    ],
)
def test_the_header_of_a_table_is_not_cited(text, cited):
    assert Citer("a|b part maker stock").cite(text).text == cited


def test_of_a_long_row_the_cells_beside_the_answer_are_cited():
    long = "word " * 130
    cited = Citer("who is Bob?").cite(f"| name | note | job |\n|---|---|---|\n| Bob. Jr | {long}| Smith |\n")
    assert cited.text.startswith("name: Bob") and "Smith" not in cited.text


SIMPLE_TABLE = """
==========  =========  =================
Option      Default    Meaning
==========  =========  =================
--jobs      4          Number of workers
--cache                Where files - all
            ~/.oil     - are kept
==========  =========  =================

--jobs is an option.
"""
LIST_TABLE = """
.. list-table::
   :header-rows: 1
   :widths: 1 2 3

   * - Option
     - Default
     - Meaning
   * - --jobs
     - 4
     - Number of workers
   * - --cache
     - ~/.oil
     - Where files - all
       are kept

--jobs is an option.
"""


@pytest.mark.parametrize(
    ("text", "question", "expected"),
    [
        (SIMPLE_TABLE, "the default number of workers", "Option: --jobs; Default: 4; Meaning: Number of workers"),
        (
            SIMPLE_TABLE,
            "where are all files?",
            "Option: --cache; Default: ~/.oil; Meaning: Where files - all - are kept",
        ),
        (SIMPLE_TABLE, "what is an option?", "--jobs is an option."),
        (LIST_TABLE, "the default number of workers", "Option: --jobs; Default: 4; Meaning: Number of workers"),
        (
            LIST_TABLE,
            "where are files kept?",
            "Option: --cache; Default: ~/.oil; Meaning: Where files - all\n       are kept",
        ),
        (LIST_TABLE, "what is an option?", "--jobs is an option."),
    ],
)
def test_rows_of_tables_of_restructuredtext_are_cited_with_the_names_of_their_columns(text, question, expected):
    cited = Citer(question).cite(text)
    assert cited.text == expected
    assert expected.split()[-1] in text[cited.start : cited.end] and "==" not in text[cited.start : cited.end]


QUESTIONS = ("How do I install it?", "Is it free?", "What is a view?", "Where are logs?", "Can I delete a document?")
ANSWERS = (
    "Run `pip install oil`.",
    "Yes, under MIT.",
    "A vector of a sentence.",
    "See /var/log/oil.",
    "Call delete(id).",
)


@pytest.mark.parametrize(
    "form",
    [
        "## {q} {{ #own }}\n\n{a}\n\n",
        "**{q}**\n\n{a}\n\n",
        "{q}\n-------------------------\n\n{a}\n\n",
        "Q: {q}\nA: {a}\n\n",
        "Q: {q} A: {a} ",
        "- Q: {q}\n- A: {a}\n",
        "- **Q:** {q}\n  **A:** {a}\n",
        "<details><summary>{q}</summary>\n\n{a}\n\n</details>\n\n",
        "1. {q}\n\n   {a}\n\n",
        ".. _label {q}:\n\n{q}\n\n{a}\n\n",
    ],
)
def test_the_answer_of_a_faq_is_cited_and_never_its_question(form):
    text = "".join(form.format(q=q, a=a) for q, a in zip(QUESTIONS, ANSWERS, strict=True))
    found = [
        Citer(question).cite(text, "FAQ").text.lstrip("-* ").removeprefix("A:").lstrip("* ") for question in QUESTIONS
    ]
    assert found == list(ANSWERS)


@pytest.mark.parametrize(
    "form",
    [
        '??? question "{q}"\n\n    {a}\n\n',
        ".. dropdown:: {q}\n\n   {a}\n\n",
        "- **{q}** {a}\n",
        "**Q: {q}** A: {a}\n",
        "- **Q:** {q} / **A:** {a}\n",
    ],
)
def test_a_question_that_names_its_answer_is_cited_with_it(form):
    text = "".join(form.format(q=q, a=a) for q, a in zip(QUESTIONS, ANSWERS, strict=True))
    for question, answer in zip(QUESTIONS, ANSWERS, strict=True):
        assert answer in Citer(question).cite(text, "FAQ").text


GRID = """\
+---------+------------+
| option  | meaning    |
|         | of it      |
+=========+============+
| --jobs  | Number of  |
|         | workers.   |
+---------+------------+
| --cache | Where - at |
+---------+------------+

--jobs is an option.
"""
NO_HEADER = "=======  =========\n--jobs   Workers.\n--cache  The files.\n=======  =========\n\nEnd.\n"


@pytest.mark.parametrize(
    ("text", "title", "question", "expected"),
    [
        (GRID, "", "number of workers", "option: --jobs; meaning of it: Number of workers."),
        (GRID, "", "where is the cache at", "option: --cache; meaning of it: Where - at"),
        (NO_HEADER, "", "what are files", "--cache  The files."),
        ("| --jobs | 4 |\n| --cache | 5 |\n", "Options > option | default", "cache", "option: --cache; default: 5"),
        ("--jobs   4\n--cache  5\n", "Options > option | default", "cache", "option: --cache; default: 5"),
        (
            "* - --jobs\n     - 4\n   * - --cache\n     - 5",
            "A > option | default",
            "cache",
            "option: --cache; default: 5",
        ),
        ("| a | b c |\n|   | d   |\n+---+-----+", "A > x | y", "b", "x: a; y: b c d"),
    ],
)
def test_rows_of_grids_and_of_tables_that_begin_before_the_text(text, title, question, expected):
    assert Citer(question).cite(text, title).text == expected


@pytest.mark.parametrize("rule", ["", "\n======================"])
def test_of_headings_without_text_each_is_cited(rule):
    names = ["Install the server", "Configure certificates", "Rotate all tokens"]
    text = "\n\n".join(f"{name}{rule}" if rule else f"## {name}" for name in names)
    assert [names[row] in Citer(name).cite(text, "Guide").text for row, name in enumerate(names)] == [True] * 3


@pytest.mark.parametrize(
    ("text", "question", "cited"),
    [
        (
            "# A\n\n- `--quiet`\n\n  Says less.\n\n- `--force`\n\n  Overwrites it.",
            "What does --force do?",
            "--force`\n\n  Over",
        ),
        ("# A\n\n`--quiet`\n\nSays less.\n\n`--force`\n\nOverwrites it.", "What does --force do?", "`--force`\n\nOver"),
        ("# A\n\nTerm\n\n:   The meaning.\n\nView\n\n:   A vector.\n", "What is a view?", "View\n\n:   A vector."),
    ],
)
def test_what_a_name_stands_for_is_cited_with_it(text, question, cited):
    assert cited in Citer(question).cite(text, "A").text


@pytest.mark.parametrize("mark", ["- ", ""])
def test_names_that_stand_for_nothing_are_cited_alone(mark):
    names = "\n\n".join(f"{mark}`{name}`" for name in ("alpha", "beta", "gamma"))
    assert Citer("beta").cite(f"# Names\n\n{names}\n\nText after it.\n", "X").text == f"{mark}`beta`"


def test_the_last_tab_of_a_text_is_cited():
    tabs = [
        f'=== "{name}"\n\n    ```sh\n    {tool} install x\n    ```'
        for name, tool in (("Linux", "apt"), ("Windows", "choco"))
    ]
    text = "# A\n\n" + "\n\n".join(tabs) + "\n"
    assert "choco install x" in Citer("how to install on Windows").cite(text, "X").text


@pytest.mark.parametrize("shell", ["Bash", "Zsh", "PowerShell"])
def test_what_a_sentence_says_of_several_tabs_is_said_of_each(shell):
    tabs = [f'=== "{name}"\n\n    ```sh\n    setup-{name}\n    ```\n\n' for name in ("Bash", "Zsh", "PowerShell")]
    text = f"# A\n\nTo enable shell autocompletion for the commands, run:\n\n{''.join(tabs)}Then restart the shell.\n"
    assert f"setup-{shell}" in Citer(f"enable shell autocompletion in {shell}").cite(text, "X").text
    assert "setup-Bash" in Citer("enable shell autocompletion").cite(text, "X").text


@pytest.mark.parametrize("fence", ["```", "````", "~~~"])
def test_a_fence_below_code_underlines_nothing(fence):
    text = f"### Homebrew\n\nIt is in the core packages.\n\n{fence}console\n$ brew install uv\n{fence}"
    assert Citer("Homebrew").cite(text, "Installing > Homebrew").text.startswith("It is in the core packages.")


@pytest.mark.parametrize(
    "text",
    ["So why is it quick? It keeps all in memory.", "Speed\nmatters. So why is it quick?\nIt keeps all in memory."],
)
def test_the_sentence_after_a_question_in_a_paragraph_is_cited(text):
    assert Citer("Why is it quick?").cite(text).text == "It keeps all in memory."


def test_each_question_of_a_list_may_be_cited():
    text = "Ask them:\n\n- What does it cost?\n- When was it made?\n- Who made it?\n"
    assert "When was it made?" in Citer("when was it made").cite(text).text


def test_the_first_sentence_of_a_definition_may_say_its_name():
    text = ".. py:data:: SESSION_REFRESH\n\n    Control whether the session cookie is sent with every response.\n"
    assert (
        "Control whether"
        in Citer("Is the session cookie sent with every response?").cite(text, "Config > SESSION_REFRESH").text
    )


@pytest.mark.parametrize("before", ["set to", "see", "made by using", "of the"])
def test_a_line_that_goes_on_ends_no_sentence(before):
    text = f"The version must be {before}\nPython 3.12 by all. Others matter too."
    assert Citer("which version").cite(text).text == text.partition(" Others")[0]
