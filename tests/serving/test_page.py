"""The search page in real headless Chromium: found, explained, walked by keyboard, and never fooled by a text.

Screenshots go to build/page, for people to look at.
"""

import sys
import time
from pathlib import Path

import pytest
from serving_tools import served

import mvindex
from mvindex import Document

pytestmark = [pytest.mark.needs("chromium"), pytest.mark.needs("minilm")]

ROOT = Path(__file__).parents[2]
PICTURES = ROOT / "build" / "page"
EVIL = 'A plague came. <script>document.title="owned"</script><img src=x onerror="document.title=1">'
DOCUMENTS = [
    Document("evil", EVIL, "<b>Plague</b> of markup", {"<i>k</i>": "</p><script>1</script>"}),
    Document(
        "oil",
        "\U0001f6e2\ufe0f Oil was cheap for years. The oil price rose in 1973 because of an embargo. "
        "Cars queued for fuel. Speed limits came. "
        "Sundays had no traffic at all in some countries. Later the price fell again.",
        "Oil crisis",
        {"year": 1973},
    ),
    Document("cats", "Cats sleep most of the day. They hunt at night. Mice fear them.", "", {"year": 2001}),
    Document(
        "long", "Nothing happens here at all. " * 60 + "Then a comet struck the quiet town. " + "It was calm. " * 60
    ),
]


@pytest.fixture(scope="module")
def serving(tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "page.mvx"
    with mvindex.create(path, encoder="minilm") as index:
        index.add(DOCUMENTS)
    with served(f"--index=page={path}", "--http", "0") as serving:
        yield serving


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    sys.path.insert(0, str(ROOT / "tests" / "e2e" / "report"))
    from browser import Browser

    found = Browser(tmp_path_factory.mktemp("browser"))
    yield found
    found.close()


@pytest.fixture(autouse=True)
def quiet(browser):
    """No console message: above all none of the policy's, which would be a breach of it."""
    browser.console()
    yield
    assert browser.console() == []


def ask(browser, serving, text, theme="light", width=1280, filter=""):
    browser.set(width, theme)
    browser.page.goto("about:blank")
    browser.page.goto(serving.http + "/")
    wait(lambda: browser.texts("#index option") == ["page"])
    browser.ask("document.getElementById('filter').value = arguments[0]", filter)
    browser.ask("document.getElementById('query').value = arguments[0]", text)
    browser.ask("document.getElementById('form').requestSubmit()")
    wait(lambda: " ms" in browser.texts("#status")[0] or browser.number("#status.fault"))
    browser.settle()


def wait(happened, seconds=60):
    deadline = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.1)


def ids(browser, side):
    return browser.ask(
        "return [...document.querySelectorAll(arguments[0] + ' .hit')].map((one) => one.dataset.id)", f"#{side}"
    )


def test_a_question_finds_documents_by_max_and_by_drpq_side_by_side(browser, serving):
    ask(browser, serving, "why did the oil price rise?")
    for side in ("max", "drpq"):
        assert ids(browser, side)[0] == "oil" and sorted(ids(browser, side)) == ["cats", "evil", "long", "oil"]
        assert browser.texts(f"#{side}-state") == ["certified exact"]
    left, right = browser.ask(
        "return ['max', 'drpq'].map((id) => document.getElementById(id).getBoundingClientRect().left)"
    )
    assert right - left > 400
    browser.picture(PICTURES / "light.png")


def test_the_winning_snippet_is_marked_exactly_and_each_view_has_a_bar(browser, serving):
    """The text begins with an emoji of two code points, which JavaScript counts as three units."""
    ask(browser, serving, "why did the oil price rise?")
    with mvindex.open(serving.url("page")) as client:
        hit = client.search("why did the oil price rise?", top_k=1).hits[0]
        views = client.explain("why did the oil price rise?", "oil")
    assert hit.snippet in DOCUMENTS[1].text
    assert browser.texts("#max li:first-child mark.won") == [hit.snippet]
    scores = [float(text) for text in browser.texts("#max li:first-child .view span")]
    assert scores == [round(view.score, 2) for view in sorted(views)] and len(scores) > 2
    heights = [row[0] for row in browser.attributes("#max li:first-child .view rect", "height")]
    assert sorted(range(len(scores)), key=lambda n: heights[n])[-1] == hit.slot
    assert browser.number("#max li:first-child .view.won") == 1


def test_a_runner_up_shows_its_snippet_while_it_has_the_focus(browser, serving):
    ask(browser, serving, "why did the oil price rise?")
    other = "#max li:first-child .view:not(.won)"
    browser.ask("document.querySelector(arguments[0]).focus()", other)
    assert browser.number("#max li:first-child mark.other") == 1
    [words] = browser.texts("#max li:first-child .what")
    assert "behind" in words
    browser.ask("document.activeElement.blur()")
    assert browser.number("mark.other") == 0


def test_texts_are_shown_as_texts(browser, serving):
    ask(browser, serving, "a plague")
    [text] = browser.ask(
        "return [...document.querySelectorAll('#max .hit')].filter((one) => one.dataset.id === 'evil')"
        ".map((one) => one.querySelector('.text').textContent)"
    )
    assert text == EVIL
    assert "<b>Plague</b> of markup" in browser.texts("#max .title")
    assert browser.number("#results script, #results img, #results b, #results i") == 0
    assert browser.page.title() == "mvindex"


def test_the_keyboard_alone_is_enough(browser, serving):
    ask(browser, serving, "cats")
    browser.ask("document.getElementById('query').focus()")

    def here():
        return browser.ask(
            "const one = document.activeElement; return [one.closest('ol')?.id ?? one.id, one.dataset.id ?? null]"
        )

    browser.press("ArrowDown")
    assert here() == ["max", "cats"]
    assert browser.number(".hit.twin") == 2
    browser.press("ArrowRight")
    assert here() == ["drpq", "cats"]
    browser.press("ArrowDown", "ArrowLeft")
    assert here() == ["max", ids(browser, "max")[1]]
    browser.press("ArrowUp", "Tab")
    assert browser.ask("return document.activeElement.className").startswith("view")
    browser.press("/")
    assert here() == ["query", None]
    browser.press("Enter")


def test_a_filter_keeps_out_and_a_wrong_one_is_told(browser, serving):
    ask(browser, serving, "animals", filter='{"year": {"gte": 1990}}')
    assert ids(browser, "max") == ids(browser, "drpq") == ["cats"]
    ask(browser, serving, "animals", filter="{")
    assert browser.number("#status.fault") == 1 and "JSON" in browser.texts("#status")[0]


def test_a_filter_that_the_server_refuses_is_told(browser, serving):
    ask(browser, serving, "animals", filter='{"year": {"nearly": 1}}')
    assert browser.number("#status.fault") == 1 and "nearly" in browser.texts("#status")[0]
    # Chromium notes every answer of status 400; that is what this test asked for.
    assert all("400" in said for said in browser.console())


def test_a_long_text_is_cut_around_its_snippet_and_opens(browser, serving):
    ask(browser, serving, "what did the comet hit?")
    assert ids(browser, "max")[0] == "long"
    first = "#max li:first-child "
    assert "comet" in browser.texts(first + "mark.won")[0]
    assert len(browser.texts(first + ".text")[0]) < 2000
    browser.ask("document.querySelector(arguments[0]).click()", first + ".more")
    assert len(browser.texts(first + ".text")[0]) > len(DOCUMENTS[3].text)


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_every_text_can_be_read_and_nothing_sticks_out(browser, serving, theme, width):
    from browser import CONTRASTS

    ask(browser, serving, "why did the oil price rise?", theme, width)
    browser.ask("document.querySelector('.view:not(.won)').focus()")
    time.sleep(0.4)
    browser.picture(PICTURES / f"{theme}-{width}.png")
    poor = [row for row in browser.ask(CONTRASTS) if row[1] < 4.5]
    assert poor == []
    assert browser.ask("return document.documentElement.scrollWidth - document.documentElement.clientWidth") <= 0


def test_the_page_asks_nobody_else(browser, serving):
    browser.requests()
    ask(browser, serving, "cats")
    urls = set(browser.requests())
    assert len(urls) >= 5 and all(url.startswith((serving.http, "about:")) for url in urls)
