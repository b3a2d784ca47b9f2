"""The report in light and dark, on paper, and on screens from a phone on."""

import re

import pytest

from tests.browser import CONTRASTS
from tests.helpers.made_report import made_report

pytestmark = [pytest.mark.needs("chromium"), pytest.mark.usefixtures("quiet")]
REPORT = made_report()


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_every_text_stands_out_from_its_ground_in_the_readers_scheme(browser, theme):
    browser.show(REPORT, theme=theme)
    browser.ask("for (const one of document.querySelectorAll('details')) one.open = true")
    found = browser.ask(CONTRASTS)
    assert len(found) > 300
    assert [one for one in found if one[1] < 4.5] == []
    # The colours of a chart follow too.
    ground, bar = browser.ask("""
      const bar = document.querySelector("path[aria-roledescription=bar]");
      return [getComputedStyle(document.body).backgroundColor, getComputedStyle(bar).fill];
    """)
    expected = {"light": ["rgb(245, 246, 248)", "rgb(11, 95, 168)"], "dark": ["rgb(14, 19, 26)", "rgb(95, 176, 238)"]}
    assert [ground, bar] == expected[theme]


def test_the_strongest_cell_of_a_matrix_leaves_its_number_readable(browser):
    for theme in ("light", "dark"):
        browser.show(REPORT, theme=theme)
        browser.ask("document.body.innerHTML = '<p style>x</p>'; const p = document.querySelector('p');"
                    "p.style.backgroundColor = 'var(--heat)'")  # fmt: skip
        browser.console()
        assert [one for one in browser.ask(CONTRASTS) if one[1] < 4.5] == []


@pytest.mark.parametrize("num_views", [1, 8, 32])
def test_the_report_prints_on_at_most_six_sheets_and_cuts_no_text(browser, num_views):
    report = made_report(num_views)
    browser.show(report)
    sheets = re.findall(rb"/Type\s*/Page\b", browser.page.pdf(format="A4", prefer_css_page_size=True))
    assert 1 < len(sheets) <= 6
    browser.set(718, "light", media="print")
    cut = browser.ask("""
      return [...document.querySelectorAll(".text-box, .scroll, .chart")].filter((one) =>
        one.checkVisibility() && one.scrollHeight > one.clientHeight + 1).map((one) => one.className);
    """)
    assert cut == []


def test_paper_is_light_and_keeps_folded_what_the_reader_folded(browser):
    browser.show(REPORT, theme="dark")
    browser.set(1280, "dark", media="print")
    assert browser.ask("return getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert browser.ask("return getComputedStyle(document.querySelector('h1')).color") == "rgb(23, 32, 43)"
    seen = "return [...document.querySelectorAll('.sides')].map((one) => one.checkVisibility())"
    assert browser.ask(seen) == [True, False, False, False]
    browser.ask("for (const one of document.querySelectorAll('.item')) one.open = true")
    assert browser.ask(seen) == [True] * 4
    # The charts have the same numbers.
    assert (
        browser.ask("return [...document.querySelectorAll('.numbers')].some((one) => one.checkVisibility())") is False
    )


@pytest.mark.parametrize("num_views", [1, 8, 32])
def test_the_page_never_scrolls_sideways_only_wide_parts_do(browser, num_views):
    report = made_report(num_views, num_questions=12)
    for width in (360, 1280):
        browser.show(report, width)
        browser.ask("for (const one of document.querySelectorAll('details')) one.open = true")
        browser.settle()
        assert browser.ask("return document.documentElement.scrollWidth") <= width
        wider = browser.ask("""
          return [...document.querySelectorAll("main *")].filter((one) => !one.closest(".scroll, .chart, .unseen") &&
            one.getBoundingClientRect().right > innerWidth + 0.5).map((one) => one.outerHTML.slice(0, 80));
        """)
        assert wider == []


def test_documents_stand_side_by_side_and_on_a_phone_one_below_the_other(browser):
    tops = "return [...document.querySelectorAll('.side')].slice(0, 2).map((one) => one.getBoundingClientRect().top)"
    wide = browser.show(REPORT).ask(tops)
    narrow = browser.show(REPORT, width=360).ask(tops)
    assert wide[0] == wide[1]
    assert narrow[1] > narrow[0] + 100


def test_headings_are_in_order_ids_are_unique_and_marks_have_tooltips(browser):
    browser.show(REPORT)
    levels = browser.ask("return [...document.querySelectorAll('h1, h2, h3, h4')].map((one) => +one.tagName[1])")
    assert levels.count(1) == 1 and levels[0] == 1
    assert all(after <= before + 1 for before, after in zip(levels, levels[1:], strict=False))
    assert [browser.number(name) for name in ("header", "nav", "main", "footer")] == [1, 1, 1, 1]
    ids = browser.ask("return [...document.querySelectorAll('[id]')].map((one) => one.id)")
    assert len(set(ids)) == len(ids)
    links = browser.ask("return [...document.querySelectorAll('nav a')].map((one) => one.hash.slice(1))")
    assert set(links) <= set(ids)
    assert f"R@1, all views: {REPORT['recall']['whole']['R@1']:.1%}" in browser.texts("svg path > title")
