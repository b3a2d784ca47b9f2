"""The report in both themes, on paper, and on screens from a phone on."""

import pytest
from browser import CONTRASTS
from made_report import made_report

pytestmark = [pytest.mark.needs("chromium"), pytest.mark.usefixtures("quiet")]


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("num_views", [4, 8])
def test_every_text_stands_out_from_its_ground(browser, theme, num_views):
    browser.show(made_report(num_views), theme=theme)
    found = browser.ask(CONTRASTS)
    assert len(found) > 300
    assert [one for one in found if one[1] < 4.5] == []


def test_the_button_changes_the_theme_until_the_page_is_opened_again(browser):
    ground = "return getComputedStyle(document.body).backgroundColor"
    dark = browser.show(made_report(), theme="dark").ask(ground)
    light = browser.show(made_report(), theme="light").ask(ground)
    assert dark != light
    button = browser.page.locator(".theme")
    assert button.inner_text() == "Dark theme"
    button.click()
    assert browser.ask(ground) == dark
    assert button.inner_text() == "Light theme"
    browser.page.reload()
    assert browser.ask(ground) == light


def test_paper_is_light_and_shows_every_question(browser):
    browser.show(made_report(), theme="dark")
    browser.ask("document.documentElement.dataset.theme = 'dark'; dispatchEvent(new Event('beforeprint'))")
    browser.set(1280, "dark", media="print")
    assert browser.ask("return getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert browser.ask("return getComputedStyle(document.querySelector('h1')).color") == "rgb(23, 32, 43)"
    assert browser.number("details.hard[open]") == 4
    browser.ask("dispatchEvent(new Event('afterprint'))")
    assert browser.number("details.hard[open]") == 1


@pytest.mark.parametrize("width", [360, 1280])
@pytest.mark.parametrize("num_views", [1, 8, 32])
def test_the_page_never_scrolls_sideways_only_wide_tables_do(browser, width, num_views):
    browser.show(made_report(num_views, num_questions=12), width)
    browser.ask("for (const one of document.querySelectorAll('details')) one.open = true")
    browser.settle()
    assert browser.ask("return document.documentElement.scrollWidth") <= width
    wider = browser.ask("""
      const inside = (node) => node.closest(".scroll, #contents ul, .unseen");
      return [...document.querySelectorAll("main *")].filter((one) =>
        !inside(one) && one.getBoundingClientRect().right > innerWidth + 0.5).map((one) => one.outerHTML.slice(0, 80));
    """)
    assert wider == []
    if width == 360:
        some = "return [...document.querySelectorAll('.scroll')].some((one) => one.scrollWidth > one.clientWidth)"
        assert browser.ask(some)


def test_documents_stand_side_by_side_and_on_a_phone_one_below_the_other(browser):
    places = "return [...document.querySelectorAll('.side')].slice(0, 2).map((one) => one.getBoundingClientRect().top)"
    wide = browser.show(made_report()).ask(places)
    narrow = browser.show(made_report(), width=360).ask(places)
    assert wide[0] == wide[1]
    assert narrow[1] > narrow[0] + 100


def test_plots_follow_the_width_of_the_window(browser):
    width = "return document.querySelector('.plot svg').getBoundingClientRect().width"
    wide = browser.show(made_report()).ask(width)
    browser.set(360, "light")
    browser.settle()
    browser.settle()
    assert browser.ask(width) < min(wide, 330)
    assert browser.count("Each view alone", ".mark .bar") == 8
