"""The part of a text that most likely answers a question."""

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mvindex.corpus.text import words
from mvindex.corpus.text.citation import WEIGHTS, Citer, ScoredViews
from mvindex.corpus.text.parted import parted_text

CRISIS = (
    "The 1973 oil crisis began in October 1973 when members of OAPEC proclaimed an embargo. By March 1974 the price of "
    "oil had risen from $3 to nearly $12. It was later called the first oil shock. Sheik Yamani spoke for the members."
)


def features(question, text, title="", views=None):
    parted = parted_text(text, title)
    found = Citer(question).features(parted, views)
    assert all(len(column) == len(parted.units) for column in found.values())
    zeros = [0] * len(parted.units)
    return {name: list(found.get(name, zeros)) for weights in WEIGHTS.values() for name in weights}


@pytest.mark.parametrize(
    ("question", "begin"),
    [
        ("When did the 1973 oil crisis begin?", "The 1973 oil crisis began"),
        ("What did oil cost in March 1974?", "By March 1974"),
        ("How many dollars was the price?", "By March 1974"),
        ("What was the shock called later?", "It was later called"),
        ("Who spoke for the members of OAPEC?", "Sheik Yamani"),
    ],
)
def test_the_sentence_that_answers_is_cited(question, begin):
    cited = Citer(question).cite(CRISIS, "1973 oil crisis")
    assert cited.text.startswith(begin) and CRISIS[cited.start : cited.end] == cited.text
    assert list(cited.why) == ["views", "terms", "context", "cues"]


def test_the_view_that_scores_best_decides_where_terms_do_not():
    text = "Cats sleep. Dogs bark. Birds sing."
    spans = np.array([[0, 11], [12, 22], [23, 34]])
    for best in range(3):
        scores = np.array([0.1, 0.1, 0.1], dtype=np.float32)
        scores[best] = 0.4
        cited = Citer("which animal is loud").cite(text, views=ScoredViews(spans, scores))
        assert (cited.start, cited.end) == tuple(spans[best])
        assert cited.why["views"] == pytest.approx(WEIGHTS["views"]["view"] * 2**0.5)  # (2/3, -1/3, -1/3) / sd


@pytest.mark.parametrize(
    ("spans", "scores", "expected"),
    [
        ([[0, 11], [12, 34]], [1.0, 4.0], [-(2**0.5), 0.5**0.5, 0.5**0.5]),  # 1, 4, 4: mean 3, deviation sqrt(2)
        ([[0, 20], [20, 34]], [1.0, 4.0], [-(0.5**0.5), -(0.5**0.5), 2**0.5]),  # most of the second is in the first
        ([[12, 22], [23, 34]], [1.0, 4.0], [-(0.5**0.5), -(0.5**0.5), 2**0.5]),  # the first has none
        ([[0, 34]], [1.0], [0, 0, 0]),
        ([[-1, -1]], [1.0], [0, 0, 0]),
        ([[0, 11], [-1, -1]], [1.0, 9.0], [0, 0, 0]),
        (np.empty((0, 2)), [1.0, 2.0], [0, 0, 0]),
    ],
)
def test_a_part_has_the_score_of_the_view_that_stands_for_most_of_it(spans, scores, expected):
    views = ScoredViews(np.array(spans, dtype=np.int64), np.array(scores, dtype=np.float32))
    assert features("what", "Cats sleep. Dogs bark. Birds sing.", views=views)["view"] == pytest.approx(expected)


MARKED_UP = """.. _windows:

Activate
--------

Activate the environment. It must exist:

.. tabs::

   .. group-tab:: macOS/Linux

      .. code-block:: text

         $ . .venv/bin/activate

   .. group-tab:: Windows

      .. code-block:: text

         > .venv\\Scripts\\activate

The prompt will change. Three shells work:

- bash
- zsh

.. _prompt change:
"""


@pytest.mark.parametrize(
    ("question", "expected"),
    [
        (
            "activate on windows",
            ".. group-tab:: Windows\n\n      .. code-block:: text\n\n         > .venv\\Scripts\\activate",
        ),
        ("which shells work?", "Three shells work:\n\n- bash\n- zsh"),
        ("is zsh one?", "- zsh"),
        ("what is a prompt change?", "The prompt will change."),
    ],
)
def test_of_markup_a_fact_with_its_name_is_cited_and_no_label_or_directive(question, expected):
    cited = Citer(question).cite(MARKED_UP, "Installation > Activate")
    assert cited.text == expected == MARKED_UP[cited.start : cited.end]


def test_a_text_of_labels_only_is_cited_all_the_same():
    assert Citer("what is b?").cite(".. _a:\n\n.. _b:\n").text == ".. _b:"


@pytest.mark.parametrize(
    ("text", "question", "cited"),
    [
        (
            "Use `black-jupyter`. It is new.\n\n[pre-commit-rev]:\n  https://pre-commit.com/#for-notebooks",
            "pre-commit for notebooks",
            "Use `black-jupyter`.",
        ),
        (
            ".. setting:: DEPTH_LIMIT\n\nDEPTH_LIMIT\n-----------\n\nThe most links to follow.",
            "DEPTH_LIMIT",
            "The most links to follow.",
        ),
        ("Dump items::\n\n    crawl -O a.csv\n\nFor more information see :ref:`feed-exports`", "dump exports", None),
        ("Do run it. See [the style of exports](exports.md).", "run exports", "Do run it."),
        ("See [the style of exports](exports.md).", "exports", "See [the style of exports](exports.md)."),
    ],
)
def test_targets_labels_and_references_to_other_places_are_cited_last(text, question, cited):
    assert Citer(question).cite(text).text == (cited or "Dump items::\n\n    crawl -O a.csv")


def test_a_question_how_to_do_something_is_answered_by_code():
    text = "The language code is in the URL of every page.\n\nDefaults are functions:\n\n```py\n@app.url_defaults\n```"
    assert Citer("put the language into a URL").cite(text).text.startswith("The language")
    how, other = features("how do I put it there?", text), features("why is it there?", text)
    assert how["code"] == [0, 1] and other["code"] == [0, 0]


def test_rare_terms_count_more_and_common_words_nothing():
    found = features("is the oil embargo", "The oil is here. The oil embargo. The end is here.")
    rare, common = np.log1p(2.5 / 1.5), np.log1p(1.5 / 2.5)  # in 1 and in 2 of 3 sentences
    assert found["terms"] == pytest.approx([common / (rare + common), 1.0, 0.0])


def test_other_features_worked_by_hand():
    text = "Bananas arrived. They classified nine crates in 1999. Rome and Paris paid."
    found = features("when were bananas and classes of fruit bought?", text, "Rome fruit")
    # classes: no term of the text, but classif... begins alike; of bananas, classes, fruit, bought.
    assert found["stems"] == pytest.approx([0, 1 / 4, 0])
    assert found["before"] == [0, 1, 0]
    assert found["title"] == [0, 0, 0.5]
    assert (found["date"], found["number"], found["name"]) == ([0, 1, 0], [0, 0, 0], [0, 0, 0])
    assert features("how many crates", text)["number"] == [0, 1, 0]
    assert features("who paid", text)["name"] == pytest.approx([1 / 3, 0, 2 / 3])


def test_scripts_without_spaces_are_compared_by_pairs_of_letters():
    text = "它很严重。石油危机始于1973年。"
    assert Citer("石油危机何时开始").cite(text).text == "石油危机始于1973年。"


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        ("refrigerator", "The re\u00adfrig\u00ader\u00adator hums."),
        ("finance", "The \ufb01nance minister."),
        ("STRASSE", "Die Straße ist lang."),
        ("कलम", "क़लम मेज़ पर है।"),
        ("हिन्दी", "हिन्दी भाषा है।"),
        ("محمد", "كتب مُحَمَّد."),
        ("ガス", "ｶﾞｽ代。"),
        ("석유", "석유를 샀다."),
    ],
)
def test_words_are_compared_in_their_normal_form(question, answer):
    text = f"Nothing is here. {answer} Nor here."
    cited = Citer(question).cite(text)
    assert answer.rstrip(".。।") in cited.text and text[cited.start : cited.end] == cited.text


@pytest.mark.parametrize("text", ["", " \n", "?!"])
def test_a_text_without_letters_has_no_citation(text):
    assert Citer("what").cite(text) is None


def test_the_first_of_equals_is_cited():
    cited = Citer("?").cite("Same words. Same words.")
    assert (cited.start, cited.text) == (0, "Same words.")


@given(st.text(max_size=60), st.text(max_size=300), st.text(max_size=30))
def test_any_text_has_a_citation_inside_it_and_the_same_one_again(question, text, title):
    cited = Citer(question).cite(text, title)
    assert cited == Citer(question).cite(text, title)
    assert cited is None or (
        text[cited.start : cited.end] == cited.text and np.isfinite(list(cited.why.values())).all()
    )


def test_of_long_words_no_stem_is_kept():
    before = words._stem.cache_info().currsize
    for number in range(20):
        assert Citer(f"{number}" + "x" * 30_000).cite("It b.").text == "It b."
    # Those of the text.
    assert words._stem.cache_info().currsize <= before + 2


def test_choosing_a_citation_imports_no_library_for_language():
    cite = "from mvindex.corpus.text.citation import Citer; Citer('a').cite('A. B.')"
    code = f"{cite}; import sys; print('nltk' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


@pytest.mark.parametrize(
    ("text", "question", "cited"),
    [
        (
            "Views are many.\n\nThere are three kinds:\n\n- one\n- two\n",
            "kinds",
            "There are three kinds:\n\n- one\n- two",
        ),
        (
            "Views are many.\n\nIt says of kinds:\n\n    All is well.\n",
            "kinds",
            "It says of kinds:\n\n    All is well.",
        ),
        ("Views are of kinds.\n\nThe kinds of views:", "the kinds of views", "Views are of kinds."),
        ("A view is a vector.\n\nWhat is a view?", "what is a view", "A view is a vector."),
        ("A view is a vector.\n\n## A view", "a view", "A view is a vector."),
    ],
)
def test_what_only_introduces_is_never_cited_by_itself(text, question, cited):
    assert Citer(question).cite(text).text == cited


def test_a_paragraph_that_ends_in_a_colon_is_cited_by_its_last_sentence_too():
    assert Citer("when did he speak?").cite("Tesla was old. In a 1937 interview he spoke:").text.startswith("In a 1937")


@pytest.mark.parametrize(
    ("question", "cited"),
    [
        ("what does --no-detect-types do", "Pass --no-detect-types to keep texts."),
        ("what does --detect-types do", "The old --detect-types is the default."),
        ("what is app.run", "Call app.run() to serve."),
        ('what does "run of the app" mean', "The run of the app ends here."),
        ("MAX_SIZE", "MAX_SIZE limits a file."),
        ("how do I back up an index", "Back up an index by a snapshot."),
    ],
)
def test_a_name_of_several_terms_is_found_whole(question, cited):
    text = (
        "The types detect no detect types. The old --detect-types is the default. "
        "Pass --no-detect-types to keep texts. The app can run, run, run. Call app.run() to serve. "
        "The run of the app ends here. The max of a size is the size of the max. MAX_SIZE limits a file. "
        "An index is rolled back on an error, back to an index. Back up an index by a snapshot."
    )
    assert Citer(question).cite(text).text == cited


def test_a_part_of_an_answer_below_its_heading_beats_another_answer():
    text = "## Can I delete a document?\n\nYes. Call erase(id).\n\n## Is it free?\n\nYes. It is under MIT.\n"
    assert Citer("can I delete a document?").cite(text).text in ("Yes.", "Call erase(id).")
    assert Citer("is it free?").cite(text).text in ("Yes.", "It is under MIT.")
    assert Citer("is it free?").cite(text).start > text.index("free")
