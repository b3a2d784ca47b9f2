"""The part of a text that most likely answers a question."""

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mvindex.corpus.text.citation import WEIGHTS, Citer, ScoredViews, parted_text

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
    assert Citer("?").cite("Same words. Same words.").start == 0


@given(st.text(max_size=60), st.text(max_size=300), st.text(max_size=30))
def test_any_text_has_a_citation_inside_it_and_the_same_one_again(question, text, title):
    cited = Citer(question).cite(text, title)
    assert cited == Citer(question).cite(text, title)
    assert cited is None or (
        text[cited.start : cited.end] == cited.text and np.isfinite(list(cited.why.values())).all()
    )


def test_choosing_a_citation_imports_no_library_for_language():
    cite = "from mvindex.corpus.text.citation import Citer; Citer('a').cite('A. B.')"
    code = f"{cite}; import sys; print('nltk' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
