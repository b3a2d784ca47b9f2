"""The report read by keyboard, pointer and screen reader, and its documents."""

import pytest
from made_report import SENTENCES, made_report, passage

pytestmark = [pytest.mark.needs("chromium"), pytest.mark.usefixtures("quiet")]


def test_the_tab_and_arrow_keys_read_the_map(browser):
    browser.show(made_report())
    browser.ask("document.querySelector('select').focus()")
    browser.press("Tab")
    assert SENTENCES[0] in browser.tip()
    browser.press("ArrowRight", "ArrowRight")
    assert SENTENCES[2] in browser.tip()
    browser.press("End")
    assert "question 5" in browser.tip()
    browser.press("Escape")
    assert browser.tip() is None


def test_up_and_down_step_over_the_rows_of_a_matrix(browser):
    browser.show(made_report())
    browser.ask("document.querySelector('.cell').parentNode.focus()")
    browser.press("ArrowDown", "ArrowDown", "ArrowRight")
    assert browser.tip().startswith("Views 2 and 1")


def test_the_pointer_reads_a_mark(browser):
    browser.show(made_report())
    browser.page.hover(".mark.view .disc >> nth=0")
    assert SENTENCES[0] in browser.tip()


def test_each_plot_is_one_stop_of_the_tab_key_and_each_mark_has_words(browser):
    browser.show(made_report())
    plots = browser.ask("""
      return [...document.querySelectorAll(".plot > svg")].map((one) => [
        one.ariaLabel, one.querySelectorAll(".mark[tabindex='0']").length,
        [...one.querySelectorAll(".mark")].every((mark) => mark.role === "img" && mark.ariaLabel.length > 3),
        document.getElementById(one.getAttribute("aria-describedby")).textContent,
      ]);
    """)
    assert len(plots) == 14
    for label, stops, named, explanation in plots:
        assert label and stops == 1 and named
        assert "Good: " in explanation and "bad: " in explanation


def test_headings_and_landmarks_are_in_order_and_ids_are_unique(browser):
    browser.show(made_report())
    levels = browser.ask("return [...document.querySelectorAll('h1, h2, h3, h4')].map((one) => +one.tagName[1])")
    assert levels.count(1) == 1 and levels[0] == 1
    assert all(after <= before + 1 for before, after in zip(levels, levels[1:], strict=False))
    assert [browser.number(name) for name in ("header", "nav", "main", "footer")] == [1, 1, 1, 1]
    ids = browser.ask("return [...document.querySelectorAll('[id]:not(pattern)')].map((one) => one.id)")
    assert len(set(ids)) == len(ids)


def test_spans_count_characters_as_python_does(browser):
    wanted = passage("w", 2, 4, before="\U0001f600 \U0001f468\u200d\U0001f680 e\u0301 ")
    report = made_report(num_hard=1)
    report["hardest"][0]["wanted"] = wanted
    browser.show(report)
    script = """
      return [...document.querySelector(".text").querySelectorAll(".span")].map((one) =>
        [one.tagName, [...one.childNodes].filter((child) => child.nodeType === 3).map((child) => child.data).join("")]);
    """
    assert browser.ask(script) == [["MARK" if slot == 2 else "SPAN", SENTENCES[slot]] for slot in range(4)]


def test_a_long_text_is_scrolled_to_the_snippet_that_won(browser):
    report = made_report(num_hard=2)
    for question in report["hardest"]:
        question["wanted"] = passage("w", 30, 32)
    browser.show(report)
    browser.ask("document.querySelectorAll('details.hard')[1].open = true")
    browser.settle()
    seen = browser.ask("""
      return [...document.querySelectorAll(".text-box")].filter((one) => one.textContent.length > 2000).map((box) => {
        const [inner, outer] = [box.querySelector("mark").getBoundingClientRect(), box.getBoundingClientRect()];
        return outer.top < inner.top && inner.bottom < outer.bottom;
      });
    """)
    assert seen == [True, True]


def test_views_without_spans_and_a_missing_document_are_told(browser):
    report = made_report(num_hard=1)
    report["hardest"][0]["wanted"] = passage("w", 1, 3, has_spans=False)
    report["hardest"][0]["found"] = None
    browser.show(report)
    assert browser.texts(".scores li")[0].endswith("no span")
    assert browser.count("Hardest questions", ".text .span") == 0
    assert "None." in browser.texts(".side")[1]
