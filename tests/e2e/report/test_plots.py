"""What the report shows: a mark for each number, the verdict, and what is left out."""

import pytest
from made_report import emptied, made_report

pytestmark = [pytest.mark.needs("chromium"), pytest.mark.usefixtures("quiet")]
ASKED = ("recall", "alone", "one_vector", "kept", "pruned", "local", "usage", "gradient", "hardest", "maps")


def test_the_verdict_comes_first_in_colour_and_words(browser):
    report = made_report()
    browser.show(report)
    assert browser.ask("return document.querySelector('main').firstElementChild.id") == "verdict"
    text = browser.texts("#verdict")[0]
    verdict = report["verdict"]
    for wanted in ("Pays", verdict["headline"], *verdict["reasons"], *verdict["advice"]):
        assert wanted.replace("`", "") in text
    assert browser.texts("#verdict code") == ["mvindex ingest --prune-views 0.3"]
    assert browser.page.title() == "oxygen.mvx \u00b7 mvindex view analysis"


@pytest.mark.parametrize(
    ("level", "name"),
    [("mixed", "Mixed"), ("does not pay", "Does not pay"), ("collapsed", "Collapsed"), ("unknown", "Unknown")],
)
def test_each_level_has_its_name_and_its_colour(browser, level, name):
    colour = "return getComputedStyle(document.querySelector('.level')).color"
    paying = browser.show(made_report()).ask(colour)
    browser.show({**made_report(), "verdict": {"level": level, "headline": "h", "reasons": [], "advice": []}})
    assert name in browser.texts(".level")[0]
    assert browser.ask(colour) != paying


@pytest.mark.parametrize(("num_views", "num_questions"), [(8, 6), (1, 1), (32, 40)])
def test_every_plot_has_one_mark_for_each_number(browser, num_views, num_questions):
    report = made_report(num_views, num_questions)
    browser.show(report)
    cutoffs, n = len(report["recall"]["cutoffs"]), num_views
    filled = sum(1 for number in report["similarity"]["histogram"]["counts"] if number)
    wanted = {
        ("Recall: all views against one vector", ".mark .bar"): 2 * cutoffs,
        ("Recall: all views against one vector", ".whisker"): cutoffs,
        ("Each view alone", ".mark .bar"): n,
        ("Each view alone", ".plot .reference"): 2,
        ("Recall by number of views kept", ".mark .point"): cutoffs * n,
        ("Recall by number of views kept", ".mark .bar"): n,
        ("Recall by number of views kept", "tbody tr"): n,
        ("Pruning near-duplicate views", ".mark .point"): cutoffs * len(report["pruned"]),
        ("Pruning near-duplicate views", ".mark .bar"): len(report["pruned"]),
        ("Pruning near-duplicate views", "tbody tr"): len(report["pruned"]),
        ("Which views win", ".mark .bar"): 2 * n,
        ("How far the best view stands out", ".mark .bar"): 4,
        ("How alike the views are", ".cell"): n * n,
        ("Cosines between views of one document", ".mark .bar"): filled,
        ("Where the views look", ".cell"): n * n,
        ("Gradient weight of a view, by rank", ".mark .bar"): n,
        ("Answers found, and held by the winning view", ".mark .bar"): 2 * cutoffs,
        ("One document and its questions", ".mark .disc"): n,
        ("One document and its questions", ".mark.question"): num_questions,
        ("One document and its questions", ".tie"): num_questions,
        ("Hardest questions", "details.hard"): len(report["hardest"]),
        ("Hardest questions", "mark.span"): 2 * len(report["hardest"]),
        ("Hardest questions", ".text .span"): 2 * n * len(report["hardest"]),
    }
    assert {key: browser.count(*key) for key in wanted} == wanted
    assert browser.texts(".left-out") == []


def test_bars_are_as_high_as_their_numbers_and_say_them(browser):
    report = made_report()
    browser.show(report)
    found = browser.ask("""
      const card = [...document.querySelectorAll("article")].find((one) => one.textContent.includes("CAMVR, tables 2"));
      return [...card.querySelectorAll(".mark")].map((mark) =>
        [Number(mark.querySelector(".bar").getAttribute("height")), mark.getAttribute("aria-label")]);
    """)
    wanted = [row["R@5"] for row in report["alone"]]
    unit = found[0][0] / wanted[0]
    for (height, label), value, slot in zip(found, wanted, range(8), strict=True):
        assert height == pytest.approx(unit * value, abs=0.01)
        assert label.startswith(f"View {slot} alone; R@5: {value:.1%}")


def test_choosing_another_cutoff_redraws_the_views_alone(browser):
    report = made_report()
    browser.show(report)
    label = (
        "return [...document.querySelectorAll('.mark')].map((one) => one.ariaLabel).find((one) => /alone/.test(one))"
    )
    assert "R@5: 57.0%" in browser.ask(label)
    browser.ask("document.querySelector('.choice label').click()")
    assert f"R@1: {report['alone'][0]['R@1']:.1%}" in browser.ask(label)


def test_the_selector_shows_another_document(browser):
    browser.show(made_report())
    before = browser.ask("return [...document.querySelectorAll('.mark.view')].map((one) => one.ariaLabel)")
    browser.choose_document(2)
    after = browser.ask("return [...document.querySelectorAll('.mark.view')].map((one) => one.ariaLabel)")
    assert len(after) == len(before) == 8
    assert all("document 0" in label for label in before)
    assert all("document 2" in label for label in after)


def test_sections_without_numbers_are_named_with_the_reason(browser):
    report = emptied(made_report(), *ASKED, "attention", "similarity", why="there are no questions <here>")
    report |= {"questions": None, "verdict": {"level": "unknown", "headline": "?", "reasons": [], "advice": []}}
    browser.show(report)
    assert len(browser.texts("main .left-out")) == 13
    assert all("Left out: there are no questions <here>" in text for text in browser.texts(".left-out"))
    assert browser.texts(".plot") == []
    assert any("one vector" in text for text in browser.texts("#origin dt"))


def test_answers_without_spans_are_drawn_and_the_rest_is_told(browser):
    report = made_report()
    report["recall"]["answer_view"] = None
    browser.show({**report, "left_out": {"answer_view": "the views have no spans"}})
    assert browser.count("Answers found, and held by the winning view", ".mark .bar") == 4
    assert any("the views have no spans" in text for text in browser.texts("article"))


def test_what_does_not_compare_is_said_above_the_figures(browser):
    report = made_report()
    report["sample"] = {"documents": 20_000, "of": 21_015_324, "seed": 0, "is_all": False}
    report["questions"].update(target="best", gold_missing=7)
    notes = browser.show(report).texts(".notes")[0]
    assert "no judgements" in notes and "20,000 of 21,015,324 documents" in notes and "7 questions" in notes


def test_a_document_without_questions_has_a_map_without_ties(browser):
    browser.show(made_report(num_questions=0))
    assert browser.count("One document and its questions", ".tie") == 0
    assert browser.count("One document and its questions", ".mark.view") == 8
    assert "No question asks for this document." in browser.texts(".map")[0]


def test_views_that_all_lie_on_one_spot_are_drawn_inside_the_map(browser):
    report = made_report()
    for place in (*report["maps"][0]["views"], *report["maps"][0]["questions"]):
        place.update(x=0.0, y=0.0)
    browser.show(report)
    (field,) = browser.attributes(".field", "x", "y", "width", "height")
    places = browser.attributes(".mark .disc", "cx", "cy")
    assert len(places) == 8
    for x, y in places:
        assert field[0] < x < field[0] + field[2] and field[1] < y < field[1] + field[3]
