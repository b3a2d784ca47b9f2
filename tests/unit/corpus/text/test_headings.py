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
        ("=====  =====\npart   stock\n=====  =====\nA1     4\nB2     5\n=====  =====\n", "A1     4"),
        (r"| a\|b | |" "\n|---|---|\n" r"| x\|y | z |", r"a\|b: x\|y; z"),
    ],
)
def test_the_header_of_a_table_is_not_cited(text, cited):
    assert Citer("a|b part maker stock").cite(text).text == cited


def test_of_a_long_row_the_cells_beside_the_answer_are_cited():
    long = "word " * 130
    cited = Citer("who is Bob?").cite(f"| name | note | job |\n|---|---|---|\n| Bob. Jr | {long}| Smith |\n")
    assert cited.text.startswith("name: Bob") and "Smith" not in cited.text
