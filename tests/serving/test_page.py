"""The search page in headless Chromium: results, explanations, keyboard, and texts that look like HTML.

Screenshots go to build/page, for people to look at.
"""

import time
from pathlib import Path

import pytest
from serving_tools import fill, served

import mvindex
from mvindex import Document

pytestmark = [pytest.mark.needs("chromium"), pytest.mark.needs("minilm"), pytest.mark.usefixtures("quiet")]

ROOT = Path(__file__).parents[2]
TOKEN = "reader-0123456789"
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
        {"year": 1973, "source": "news", "tags": ["energy", "history"]},
    ),
    Document("cats", "Cats sleep most of the day. They hunt at night. Mice fear them.", "", {"year": 2001}),
    Document(
        "long", "Nothing happens here at all. " * 60 + "Then a comet struck the quiet town. " + "It was calm. " * 60
    ),
]


@pytest.fixture(scope="module")
def serving(tmp_path_factory):
    folder = tmp_path_factory.mktemp("page")
    for name, lexical in (("page", "none"), ("lexical", "english")):
        with mvindex.create(folder / f"{name}.mvx", encoder="minilm", lexical=lexical) as index:
            index.add(DOCUMENTS)
    with served(
        f"--index=page={folder / 'page.mvx'}", f"--index=lexical={folder / 'lexical.mvx'}", "--http", "0"
    ) as serving:
        yield serving


@pytest.fixture(scope="module")
def guarded(tmp_path_factory):
    """With a token, and an index that takes no texts."""
    folder = tmp_path_factory.mktemp("guarded")
    fill(folder / "given.mvx", count=3)
    (folder / "tokens").write_text(f"read-only {TOKEN}\n")
    with served(f"--index=given={folder / 'given.mvx'}", "--http", "0", "--token-file", folder / "tokens") as serving:
        yield serving


# Instead of texts: the borders of input fields, and the bars with their base line.
MARKS = """
const found = [];
const beside = (name, one, other) => found.push([name, (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05)]);
for (const node of document.querySelectorAll("input:not([type=checkbox]), select, .view rect, .moved, #side button")) {
  if (!node.checkVisibility()) continue;
  const style = getComputedStyle(node);
  const colour = node instanceof SVGElement ? style.fill : style.borderTopColor;
  const under = ground(node.closest(".hit") || node.parentElement);
  beside(node.id || node.getAttribute("class"), light(colour), light(under));
  const hint = node.placeholder && light(getComputedStyle(node, "::placeholder").color);
  if (hint) beside("placeholder", hint, light(ground(node)));
}
return found;
"""


def ask(browser, serving, text, theme="light", width=1280, filter=""):
    browser.set(width, theme)
    opened(browser, serving)
    wait(lambda: "page" in browser.texts("#index option"))
    browser.ask("document.getElementById('filter').value = arguments[0]", filter)
    browser.ask("document.getElementById('query').value = arguments[0]", text)
    browser.ask("document.getElementById('form').requestSubmit()")
    wait(lambda: " ms" in browser.texts("#status")[0] or browser.number("#status.fault"))
    browser.settle()


def opened(browser, serving, end=""):
    browser.page.goto("about:blank")
    browser.page.goto(f"{serving.http}/{end}")


def wait(happened, seconds=60):
    deadline = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.1)


def ids(browser, side):
    return browser.ask(
        "return [...document.querySelectorAll(arguments[0] + ' .hit')].map((one) => one.dataset.id)", f"#{side}"
    )


def test_a_query_shows_max_and_drpq_side_by_side(browser, serving):
    ask(browser, serving, "why did the oil price rise?")
    for side in ("max", "other"):
        assert ids(browser, side)[0] == "oil" and sorted(ids(browser, side)) == ["cats", "evil", "long", "oil"]
        assert browser.texts(f"#{side}-state") == ["certified exact"]
    left, right = browser.ask(
        "return ['max', 'other'].map((id) => document.getElementById(id).getBoundingClientRect().left)"
    )
    assert right - left > 400
    browser.picture(PICTURES / "light.png")


def test_each_document_shows_its_rank_in_the_other_ranking(browser, serving):
    ask(browser, serving, "animals")
    with mvindex.open(serving.url("page")) as client:
        orders = [[hit.id for hit in client.search("animals", top_k=4, scoring=how).hits] for how in ("max", "drpq")]
    assert [ids(browser, side) for side in ("max", "other")] == orders
    moved = [doc_id for doc_id, other in zip(*orders, strict=True) if doc_id != other]
    assert len(moved) == 2
    ups, downs = (f"\u25b2 {1 + orders[1].index(moved[0])} in DRPQ", f"\u25bc {1 + orders[1].index(moved[1])} in DRPQ")
    assert browser.texts("#max .moved") == [ups, downs]
    assert browser.number("#other .moved") == 2 and "4 of them in both" in browser.texts("#status")[0]
    browser.picture(PICTURES / "moved.png")


def test_the_citation_is_marked_exactly_and_each_view_has_a_bar(browser, serving):
    """The text begins with an emoji of two code points, which JavaScript counts as three units."""
    ask(browser, serving, "why did the oil price rise?")
    with mvindex.open(serving.url("page")) as client:
        hit = client.search("why did the oil price rise?", top_k=1).hits[0]
        views = client.explain("why did the oil price rise?", "oil")
    assert hit.citation.text in DOCUMENTS[1].text
    assert browser.texts("#max li:first-child mark.won") == [hit.citation.text]
    scores = [float(text) for text in browser.texts("#max li:first-child .view span")]
    assert scores == [round(view.score, 2) for view in sorted(views)] and len(scores) > 2
    heights = [row[0] for row in browser.attributes("#max li:first-child .view rect.score", "height")]
    assert sorted(range(len(scores)), key=lambda n: heights[n])[-1] == hit.slot
    assert browser.number("#max li:first-child .view.won") == 1


def test_bars_of_all_documents_have_one_scale_and_those_of_drpq_show_weights(browser, serving):
    ask(browser, serving, "why did the oil price rise?")
    with mvindex.open(serving.url("page")) as client:
        found = client.search("why did the oil price rise?", top_k=4, scoring="drpq").hits
        explained = [client.explain("why did the oil price rise?", hit.id, "drpq") for hit in found]
    views = [view for rows in explained for view in sorted(rows)]
    low, high = min(0, *(view.score for view in views)), max(view.score for view in views)
    heights = [row[0] for row in browser.attributes("#other .view rect.score", "height")]
    assert heights == [pytest.approx(max(1, 32 * abs(view.score) / (high - low)), abs=0.05) for view in views]
    weights = [row[0] for row in browser.attributes("#other .view rect.weight", "height")]
    full = 32 * high / (high - low)
    assert weights == [pytest.approx(max(1, full * view.weight), abs=0.05) for view in views]
    assert browser.number("#max rect.weight") == 0


def test_an_index_with_lexical_search_offers_hybrid_search(browser, serving):
    question = "Mice hunt at night"
    ask(browser, serving, question)
    assert not browser.page.is_visible("#way")
    browser.page.select_option("#index", "lexical")
    wait(lambda: browser.page.is_visible("#way"))
    browser.page.fill("#temperature", "0.5")
    browser.page.select_option("#way", "hybrid")
    wait(lambda: browser.texts("#other-head")[0].startswith("hybrid"))
    with mvindex.open(serving.url("lexical")) as client:
        found = client.search(question, top_k=4, mode="hybrid").hits
    assert ids(browser, "other") == [hit.id for hit in found] and found[0].id == "cats"
    told = browser.texts("#other .components")
    for hit, said in zip(found, told, strict=True):
        dense, lexical = hit.components
        assert said.startswith(
            f"Views: rank {dense.rank}, score {dense.score:.4f}, adding {dense.contribution:.4f}; terms: "
        )
        where = "not ranked" if lexical.rank is None else f"rank {lexical.rank}"
        assert said.endswith(f"{where}, score {lexical.score:.4f}, adding {lexical.contribution:.4f}.")
    assert browser.number("#max .components") == browser.number("#other rect.weight") == 0
    assert browser.page.is_disabled("#temperature") and not browser.page.is_visible("#other-legend")
    browser.settle()
    browser.picture(PICTURES / "hybrid.png")
    browser.page.reload()
    wait(lambda: ids(browser, "other") == [hit.id for hit in found])
    assert browser.texts("#other-head")[0].startswith("hybrid") and browser.page.is_disabled("#temperature")
    browser.page.select_option("#index", "page")
    wait(lambda: not browser.page.is_visible("#way"))
    browser.page.click("[type=submit]")
    wait(lambda: browser.texts("#other-head")[0].startswith("DRPQ"))
    assert not browser.page.is_disabled("#temperature")


@pytest.mark.parametrize("by", ["focus", "pointer"])
def test_another_view_shows_its_snippet_under_the_pointer(browser, serving, by):
    ask(browser, serving, "why did the oil price rise?")
    other = "#max li:first-child .view:not(.won)"
    below = "return document.querySelectorAll('#max .hit')[1].getBoundingClientRect().top"
    before = browser.ask(below)
    if by == "focus":
        browser.ask("document.querySelector(arguments[0]).focus()", other)
    else:
        browser.page.hover(f"{other} >> nth=0")
    [words] = browser.texts(".tip:not([hidden]) p")
    [snippet] = browser.texts(".tip:not([hidden]) blockquote")
    assert "behind" in words and snippet in DOCUMENTS[1].text
    assert browser.texts("#max li:first-child mark.other") == [snippet]
    assert browser.ask(below) == before
    if by == "pointer":
        # The snippet itself may be under the pointer.
        browser.page.hover(".tip:not([hidden])")
        assert browser.number(".tip:not([hidden])") == 1
        browser.press("Escape")
        assert browser.number(".tip:not([hidden])") == 0
        browser.page.hover(f"{other} >> nth=0")
        assert browser.number(".tip:not([hidden])") == 1
        browser.page.mouse.move(1, 1)
    else:
        browser.press("Escape")
    assert browser.number("mark.other") == browser.number(".tip:not([hidden])") == 0


def test_texts_are_shown_as_texts(browser, serving):
    ask(browser, serving, "a plague")
    [text] = browser.ask(
        "return [...document.querySelectorAll('#max .hit')].filter((one) => one.dataset.id === 'evil')"
        ".map((one) => one.querySelector('.text').textContent)"
    )
    assert text == EVIL
    assert "<b>Plague</b> of markup" in browser.texts("#max .title")
    assert browser.number("#results script, #results img, #results b, li i") == 0
    assert browser.page.title() == "mvindex"


def test_the_page_works_by_keyboard_only(browser, serving):
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
    assert here() == ["other", "cats"]
    browser.press("ArrowDown", "ArrowLeft")
    assert here() == ["max", ids(browser, "max")[1]]
    browser.press("ArrowUp", "Tab")
    assert browser.ask("return document.activeElement.className").startswith("view")
    browser.press("/")
    assert here() == ["query", None]
    browser.press("Enter")


def test_a_filter_excludes_documents_and_a_malformed_one_is_reported(browser, serving):
    ask(browser, serving, "animals", filter='{"year": {"gte": 1990}}')
    assert ids(browser, "max") == ids(browser, "other") == ["cats"]
    ask(browser, serving, "animals", filter="{")
    assert browser.number("#status.fault") == 1 and "JSON" in browser.texts("#status")[0]
    assert browser.number("#filter[aria-invalid=true]") == 1 and browser.number("#results[hidden]") == 1


def test_results_stay_visible_while_the_page_finishes_loading(browser, serving):
    held = []
    browser.page.route("**/v1/indexes/page", lambda route: held.append(route))
    opened(browser, serving)
    wait(lambda: "page" in browser.texts("#index option") and held)
    browser.page.fill("#query", "animals")
    browser.page.press("#query", "Enter")
    wait(lambda: " ms" in browser.texts("#status")[0])
    with browser.page.expect_response("**/v1/indexes/page"):
        held[0].continue_()
    browser.page.unroute("**/v1/indexes/page")
    wait(lambda: "4 documents" in browser.texts("#about")[0])
    assert " ms" in browser.texts("#status")[0] and len(ids(browser, "max")) == 4


def test_a_filter_refused_by_the_server_is_reported(browser, serving):
    ask(browser, serving, "animals", filter='{"year": {"nearly": 1}}')
    assert browser.number("#status.fault") == 1 and "nearly" in browser.texts("#status")[0]
    # Chromium logs every response of status 400; this test provokes one.
    assert all("400" in said for said in browser.console())


def test_a_filter_without_matches_can_be_removed(browser, serving):
    ask(browser, serving, "animals", filter='{"year": 3000}')
    assert browser.texts("#blank h2") == ["Nothing passes the filter"]
    browser.picture(PICTURES / "nothing.png")
    browser.page.click("#blank button")
    wait(lambda: len(ids(browser, "max")) == 4)
    assert browser.page.input_value("#filter") == ""


def test_a_click_on_metadata_filters_by_it(browser, serving):
    ask(browser, serving, "animals", filter='{"source": {"exists": true}}')
    assert ids(browser, "max") == ["oil"]
    browser.page.fill("#filter", "")
    browser.press("Enter")
    wait(lambda: len(ids(browser, "max")) == 4)
    browser.page.click("#max .meta button:has-text('year: 2001')")
    wait(lambda: ids(browser, "max") == ["cats"])
    assert browser.page.input_value("#filter") == '{"year":2001}'
    # Lists have no button: no filter matches a list.
    browser.page.fill("#filter", "")
    browser.press("Enter")
    wait(lambda: len(ids(browser, "max")) == 4)
    assert 'tags: ["energy","history"]' in browser.texts("#max .meta span")
    assert "<i>k</i>: </p><script>1</script>" in browser.texts("#max .meta button")


def test_a_running_search_is_shown_and_its_address_restores_it(browser, serving):
    ask(browser, serving, "cats")
    held = []
    browser.page.route("**/search", lambda route: held.append(route))
    browser.page.fill("#query", "oil")
    browser.press("Enter")
    # Asked something, the browser tells of its requests.
    wait(lambda: browser.ask("return 1") and len(held) == 2)
    assert browser.ask("return document.getElementById('results').ariaBusy") == "true"
    assert browser.texts("#status.busy") == ["Searching \u2026"]
    browser.picture(PICTURES / "searching.png")
    for route in held:
        route.continue_()
    browser.page.unroute("**/search")
    wait(lambda: ids(browser, "max")[0] == "oil")
    assert browser.ask("return document.getElementById('results').ariaBusy") == "false"
    browser.page.reload()
    wait(lambda: browser.number("#max .hit") == 4)
    assert browser.page.input_value("#query") == "oil" and ids(browser, "max")[0] == "oil"


def test_the_page_explains_itself_before_the_first_search(browser, serving):
    browser.set(1280, "light")
    opened(browser, serving)
    wait(lambda: browser.number("#blank:not([hidden])"))
    assert browser.number("#results[hidden]") == 1 and "snippet" in browser.texts("#blank p")[0]
    assert browser.texts("#about")[0].startswith("4 documents, ")
    assert browser.ask("return document.activeElement.id") == "query"
    browser.picture(PICTURES / "blank.png")


def test_the_page_asks_for_a_token_and_says_that_an_index_takes_no_texts(browser, guarded):
    browser.set(1280, "dark")
    opened(browser, guarded)
    wait(lambda: browser.number("#status.fault"))
    assert (
        browser.texts("#status") == ["This server requires a token."]
        and browser.ask("return document.activeElement.id") == "token"
    )
    browser.picture(PICTURES / "token.png")
    browser.page.fill("#token", "wrong-0123456789")
    browser.press("Enter")
    wait(lambda: "not one of this server" in browser.texts("#status")[0])
    assert all("401" in said for said in browser.console())
    browser.page.fill("#token", TOKEN)
    browser.press("Enter")
    wait(lambda: browser.number("#blank:not([hidden])"))
    assert browser.texts("#blank h2") == ["This index takes no texts"]
    assert browser.page.is_disabled("#query") and browser.page.is_disabled("[type=submit]")
    assert TOKEN not in browser.page.url and TOKEN not in browser.ask("return JSON.stringify({...localStorage})")
    browser.picture(PICTURES / "vectors.png")


def test_a_phone_shows_one_ranking_at_a_time(browser, serving):
    ask(browser, serving, "cats", width=390)
    seen = "return ['max', 'other'].map((id) => document.getElementById(id).checkVisibility())"
    assert browser.ask(seen) == [True, False]
    browser.page.click("#side [value=other]")
    assert browser.ask(seen) == [False, True]
    browser.ask("document.querySelector('#other .hit').focus()")
    browser.press("ArrowLeft")
    assert browser.ask(seen) == [True, False]
    assert browser.ask("return document.activeElement.closest('ol').id") == "max"


def test_a_long_text_is_cut_around_its_citation_and_expands(browser, serving):
    ask(browser, serving, "what did the comet hit?")
    assert ids(browser, "max")[0] == "long"
    first = "#max li:first-child "
    assert "comet" in browser.texts(first + "mark.won")[0]
    cut = browser.texts(first + ".text")[0]
    assert len(cut) < 2000 and cut.startswith("\u2026 ")
    # Cut at spaces of the text.
    inside = cut.removeprefix("\u2026 ").partition(" \u2026 ")[0]
    assert f" {inside} " in DOCUMENTS[3].text
    browser.ask("document.querySelector(arguments[0]).click()", first + ".more")
    assert len(browser.texts(first + ".text")[0]) > len(DOCUMENTS[3].text)


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_every_text_is_legible_and_nothing_overflows(browser, serving, theme, width):
    from tests.browser import CONTRASTS

    ask(browser, serving, "why did the oil price rise?", theme, width)
    browser.ask("document.querySelector('.view:not(.won)').focus(); document.querySelector('details').open = true")
    time.sleep(0.4)
    browser.picture(PICTURES / f"{theme}-{width}.png")
    found = browser.ask(CONTRASTS)
    assert len(found) > 40 and [row for row in found if row[1] < 4.5] == []
    marks = browser.ask(CONTRASTS.replace("const found = [];", MARKS))
    assert len(marks) > 20 and [row for row in marks if row[1] < 3] == []
    assert browser.ask("return document.documentElement.scrollWidth - document.documentElement.clientWidth") <= 0


def test_the_page_loads_nothing_from_other_hosts(browser, serving):
    browser.requests()
    ask(browser, serving, "cats")
    urls = set(browser.requests())
    assert len(urls) >= 5 and all(url.startswith((serving.http, "about:")) for url in urls)
