"""The search page in headless Chromium: results, filters, documents, keyboard, and texts that look like HTML.

Screenshots go to build/page, for people to look at.
"""

import json
import os
import time
from pathlib import Path
from urllib.parse import urlencode

import pytest
from serving_tools import fill, served

import mvindex
from mvindex import Document
from tests.helpers.marks import long

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
        {"year": 1973, "source": "news", "tags": ["energy", "history"], "lang": "en"},
    ),
    Document(
        "cats", "Cats sleep most of the day. They hunt at night. Mice fear them.", "", {"year": 2001, "lang": "en"}
    ),
    Document(
        "long",
        "Nothing happens here at all. " * 60 + "Then a comet struck the quiet town. " + "It was calm. " * 60,
        "",
        {"lang": "de"},
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
def many(tmp_path_factory):
    """With an index of 25 short documents."""
    folder = tmp_path_factory.mktemp("many")
    with mvindex.create(folder / "many.mvx", encoder="minilm", lexical="none") as index:
        index.add([Document(f"d{number}", f"Number {number} is a number.") for number in range(25)])
    with served(f"--index=many={folder / 'many.mvx'}", "--http", "0") as serving:
        yield serving


@pytest.fixture(scope="module")
def faceted(tmp_path_factory):
    """With an index of 60 laws, and after them of documents of two other kinds."""
    folder = tmp_path_factory.mktemp("facets")
    laws = [Document(f"l{n}", f"Law {n} is in force.", "", {"kind": "law" if n % 2 else "act"}) for n in range(60)]
    kinds = ("recipe", "review")
    others = [Document(f"r{n}", f"A recipe with cheese, number {n}.", "", {"kind": kinds[n % 2]}) for n in range(12)]
    with mvindex.create(folder / "facets.mvx", encoder="minilm", lexical="none") as index:
        index.add(laws + others)
    with served(f"--index=facets={folder / 'facets.mvx'}", "--http", "0") as serving:
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


def show(browser, serving, theme="light", width=1280, **address):
    """Open the page at an address and wait until it is done."""
    browser.set(width, theme)
    browser.page.goto("about:blank")
    browser.page.goto(f"{serving.http}/?{urlencode({'index': 'page'} | address)}")
    settled(browser)


def settled(browser):
    wait(lambda: browser.number("main[aria-busy=false]"))
    browser.settle()
    # Results fade in again after a search that took long: pale text has less contrast.
    browser.ask("return Promise.allSettled(document.getAnimations().map((each) => each.finished)).then(() => null)")


def wait(happened, seconds=60):
    deadline = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.1)


def ids(browser, side="one"):
    return browser.ask(
        "return [...document.querySelectorAll(arguments[0] + ' .hit')].map((one) => one.dataset.id)", f"#{side}"
    )


def address(browser):
    return browser.ask("return Object.fromEntries(new URLSearchParams(location.search))")


def here(browser):
    return browser.ask("const one = document.activeElement; return one.closest('.hit')?.dataset.id ?? one.id")


def test_a_query_shows_one_ranking_with_the_cited_sentences_marked(browser, serving):
    show(browser, serving)
    browser.page.fill("#query", "why did the oil price rise?")
    browser.press("Enter")
    wait(lambda: ids(browser))
    with mvindex.open(serving.url("page")) as client:
        hits = client.search("why did the oil price rise?", top_k=10).hits
    assert ids(browser) == [hit.id for hit in hits] and ids(browser)[0] == "oil"
    assert browser.texts("#one li:first-child mark") == [hits[0].citation.text]
    assert hits[0].citation.text in DOCUMENTS[1].text
    assert browser.texts("#one-state") == ["Exact: proven to be the best of all documents."]
    assert browser.texts("#one-head")[0].startswith("By meaning:")
    assert not browser.page.is_visible("#other") and not browser.page.is_visible("#side")
    assert browser.texts("#status")[0].startswith("4 documents in ")
    browser.picture(PICTURES / "results.png")


def test_explain_opens_the_views_of_every_document_and_moves_to_this_one(browser, serving):
    show(browser, serving, q="why did the oil price rise?")
    assert browser.number(".view") == 0
    browser.page.click("#one li:first-child .explain")
    wait(lambda: browser.number(".view"))
    settled(browser)
    with mvindex.open(serving.url("page")) as client:
        hit = client.search("why did the oil price rise?", top_k=1).hits[0]
        views = client.explain("why did the oil price rise?", "oil")
    scores = [float(text) for text in browser.texts("#one li:first-child .view span")]
    assert scores == [round(view.score, 2) for view in sorted(views)] and len(scores) > 2
    heights = [row[0] for row in browser.attributes("#one li:first-child .view rect.score", "height")]
    assert sorted(range(len(scores)), key=lambda n: heights[n])[-1] == hit.slot
    assert browser.number("#one li:first-child .view.won") == 1 and here(browser) == "oil"
    assert address(browser)["explain"] == "1"


@pytest.mark.parametrize("by", ["focus", "pointer"])
def test_another_view_shows_its_snippet_under_the_pointer(browser, serving, by):
    show(browser, serving, q="why did the oil price rise?", explain="1")
    other = "#one li:first-child .view:not(.won)"
    below = "return document.querySelectorAll('#one .hit')[1].getBoundingClientRect().top"
    before = browser.ask(below)
    if by == "focus":
        browser.ask("document.querySelector(arguments[0]).focus()", other)
    else:
        browser.page.hover(f"{other} >> nth=0")
    [words] = browser.texts(".tip:not([hidden]) p")
    [snippet] = browser.texts(".tip:not([hidden]) blockquote")
    assert "behind" in words and snippet in DOCUMENTS[1].text
    assert browser.texts("#one li:first-child mark.other") == [snippet]
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


def test_compare_shows_two_rankings_side_by_side_with_the_rank_in_the_other(browser, serving):
    show(browser, serving, q="animals")
    browser.page.click("#options summary")
    browser.page.select_option("#with", "drpq")
    wait(lambda: len(ids(browser, "other")) == 4)
    settled(browser)
    with mvindex.open(serving.url("page")) as client:
        orders = [[hit.id for hit in client.search("animals", top_k=4, scoring=how).hits] for how in ("max", "drpq")]
    assert [ids(browser, side) for side in ("one", "other")] == orders
    moved = [doc_id for doc_id, other in zip(*orders, strict=True) if doc_id != other]
    assert len(moved) == 2
    up, down = (1 + orders[1].index(doc_id) for doc_id in moved)
    assert browser.texts("#one .moved") == [f"\u25b2 {up} in all views", f"\u25bc {down} in all views"]
    assert browser.number("#other .moved") == 2 and "4 of them in both" in browser.texts("#status")[0]
    left, right = browser.ask(
        "return ['one', 'other'].map((id) => document.getElementById(id).getBoundingClientRect().left)"
    )
    assert right - left > 400
    browser.picture(PICTURES / "compare.png")


def test_bars_of_both_rankings_have_one_scale_and_those_of_drpq_show_weights(browser, serving):
    show(browser, serving, q="why did the oil price rise?", **{"with": "drpq"})
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
    assert browser.number("#one rect.weight") == 0


def test_an_index_with_lexical_search_is_searched_by_both_and_explains_the_parts(browser, serving):
    question = "Mice hunt at night"
    show(browser, serving, q=question)
    assert browser.ask("return document.getElementById('mode-label').hidden")
    show(browser, serving, index="lexical", q=question, explain="1")
    assert browser.texts("#one-head")[0].startswith("By meaning and terms:")
    with mvindex.open(serving.url("lexical")) as client:
        found = client.search(question, top_k=10, mode="hybrid").hits
        by_terms = client.search(question, top_k=10, mode="lexical").hits
    assert ids(browser) == [hit.id for hit in found] and found[0].id == "cats"
    for hit, said in zip(found, browser.texts("#one .components"), strict=True):
        dense, lexical = hit.components
        assert said.startswith(
            f"Views: rank {dense.rank}, score {dense.score:.4f}, adding {dense.contribution:.4f}; terms: "
        )
        where = "not ranked" if lexical.rank is None else f"rank {lexical.rank}"
        assert said.endswith(f"{where}, score {lexical.score:.4f}, adding {lexical.contribution:.4f}.")
    browser.picture(PICTURES / "hybrid.png")
    browser.page.click("#options summary")
    browser.page.select_option("#mode", "lexical")
    wait(lambda: browser.texts("#one-head")[0].startswith("By terms:"))
    settled(browser)
    assert ids(browser) == [hit.id for hit in by_terms]


def test_chips_of_metadata_filter_and_a_second_click_takes_the_filter_away(browser, serving):
    show(browser, serving, q="animals")
    chips = ["lang: en", "lang: de"]
    assert browser.texts(".chip") == chips
    browser.page.click(".chip:has-text('lang: en')")
    wait(lambda: sorted(ids(browser)) == ["cats", "oil"])
    settled(browser)
    assert json.loads(address(browser)["filter"]) == {"lang": "en"}
    assert browser.texts(".chip[aria-pressed=true]") == ["lang: en \u00d7"]
    browser.page.click(".chip:has-text('lang: de')")
    wait(lambda: sorted(ids(browser)) == ["cats", "long", "oil"])
    settled(browser)
    assert json.loads(address(browser)["filter"]) == {"lang": {"in": ["en", "de"]}}
    for left in ({"lang": "de"}, None):
        browser.page.click(".chip[aria-pressed=true] >> nth=0")
        settled(browser)
        assert json.loads(address(browser).get("filter", "null")) == left
    wait(lambda: len(ids(browser)) == 4)


def test_a_click_on_metadata_of_a_document_filters_by_it(browser, serving):
    show(browser, serving, q="animals")
    browser.page.click("#one .meta button:has-text('year: 2001')")
    wait(lambda: ids(browser) == ["cats"])
    assert browser.page.input_value("#filter") == '{"year":2001}'
    # Of a list, each member has a button.
    show(browser, serving, q="animals")
    browser.page.click("#one .meta button:has-text('tags: history')")
    wait(lambda: ids(browser) == ["oil"])
    assert json.loads(address(browser)["filter"]) == {"tags": {"contains": "history"}}
    browser.page.click("#one .meta button:has-text('tags: energy')")
    settled(browser)
    assert json.loads(address(browser)["filter"]) == {"tags": {"contains_any": ["history", "energy"]}}
    assert browser.texts(".chip[aria-pressed=true]") == ["tags: history \u00d7", "tags: energy \u00d7"]
    show(browser, serving, q="animals")
    assert "<i>k</i>: </p><script>1</script>" in browser.texts("#one .meta button")


@pytest.mark.parametrize(
    ("given", "key", "value", "on", "off"),
    [
        ("{}", "year", 1, '{"year":1}', "{}"),
        ('{"year":{"gte":1}}', "year", 2, '{"year":{"gte":1,"in":[2]}}', '{"year":{"gte":1}}'),
        ('{"year":{"gte":1,"in":[3]}}', "year", 2, '{"year":{"gte":1,"in":[3,2]}}', '{"year":{"gte":1,"in":[3]}}'),
        ('{"year":{}}', "year", 2, '{"year":2}', "{}"),
        ("{}", "__proto__", 2, '{"__proto__":2}', "{}"),
        ("{}", "constructor", "a", '{"constructor":"a"}', "{}"),
    ],
)
def test_a_chip_adds_and_removes_its_value_and_nothing_else(browser, serving, given, key, value, on, off):
    show(browser, serving, q="animals")
    script = """async ([given, key, value]) => {
        const { toggled } = await import("/filters.js");
        const on = toggled(JSON.parse(given), key, value);
        return [on, toggled(on, key, value)].map((each) => JSON.stringify(each));
    }"""
    assert browser.page.evaluate(script, [given, key, value]) == [on, off]


def test_the_chip_of_a_range_leaves_the_values_of_its_field(browser, serving):
    show(browser, serving, q="animals", filter='{"year": {"gte": 1, "in": [2001, 1973]}}')
    browser.page.click(".chip[aria-pressed=true]:has-text('gte')")
    settled(browser)
    assert json.loads(address(browser)["filter"]) == {"year": {"in": [2001, 1973]}}


def test_a_filter_without_matches_can_be_removed(browser, serving):
    show(browser, serving, q="animals", filter='{"year": 3000}')
    assert browser.texts("#blank h2") == ["Nothing passes the filter"]
    browser.picture(PICTURES / "nothing.png")
    browser.page.click("#blank button")
    wait(lambda: len(ids(browser)) == 4)
    assert browser.page.input_value("#filter") == ""


def test_a_malformed_filter_is_reported_by_the_page_or_the_server(browser, serving):
    show(browser, serving, q="animals", filter="{")
    assert browser.number("#status.fault") == 1 and "JSON" in browser.texts("#status")[0]
    assert browser.number("#filter[aria-invalid=true]") == 1 and browser.number("#results[hidden]") == 1
    show(browser, serving, q="animals", filter='{"year": {"nearly": 1}}')
    assert browser.number("#status.fault") == 1 and "nearly" in browser.texts("#status")[0]
    # Chromium logs every response of status 400; this test provokes one.
    assert all("400" in said for said in browser.console())


def test_a_document_has_its_own_page_whose_text_is_as_warm_as_its_views(browser, serving):
    show(browser, serving, q="why did the oil price rise?")
    browser.page.click("#one li:first-child h3 a")
    wait(lambda: browser.number("#document:not([hidden])"))
    settled(browser)
    with mvindex.open(serving.url("page")) as client:
        views = client.explain("why did the oil price rise?", "oil")
    spans = [view for view in sorted(views, key=lambda view: view.span or (0, 0)) if view.span]
    tags = browser.ask("return [...document.querySelectorAll('.tag')].map((one) => one.lastChild.textContent)")
    best = max(spans, key=lambda view: view.score)
    assert tags == [("\u2605 " if view is best else "") + f"{view.score:.2f}" for view in spans]
    text = browser.ask(
        "const one = document.querySelector('.text.whole').cloneNode(true);"
        "one.querySelectorAll('.tag').forEach((tag) => tag.remove()); return one.textContent"
    )
    assert text == DOCUMENTS[1].text
    # The warmest part is the best view's, the coldest that of the lowest score.
    low = min(spans, key=lambda view: view.score)
    for view, level in ((best, 4), (low, 0)):
        assert view.snippet in "".join(browser.texts(f".text.whole .heat-{level}:not(.tag)"))
    assert browser.ask("return document.activeElement.id") == "document-title"
    browser.picture(PICTURES / "document.png")
    browser.page.click(".back")
    wait(lambda: ids(browser))
    assert ids(browser)[0] == "oil"
    browser.page.go_back()
    wait(lambda: browser.number("#document:not([hidden])"))


def test_documents_like_one_are_found_from_its_page_and_have_an_address(browser, serving):
    show(browser, serving, q="why did the oil price rise?", doc="oil")
    browser.page.click("text=More like this")
    wait(lambda: ids(browser))
    settled(browser)
    with mvindex.open(serving.url("page")) as client:
        alike = [hit.id for hit in client.search(like="oil", top_k=10)]
    assert ids(browser) == alike and len(alike) == 3
    assert address(browser) == {"index": "page", "like": "oil"}
    assert browser.texts("#one-head") == ["More like oil: the two nearest views decide"]
    assert not browser.number("#one .explain")
    browser.page.click("#one h3 a")
    wait(lambda: browser.number("#document:not([hidden])"))
    settled(browser)
    browser.page.click(".back")
    wait(lambda: ids(browser) == alike)
    show(browser, serving, like="oil", filter='{"lang": "en"}')
    assert ids(browser) == ["cats"]
    browser.page.fill("#query", "a comet")
    wait(lambda: address(browser).get("q") == "a comet" and "like" not in address(browser))


def test_all_documents_can_be_browsed_without_a_query(browser, serving):
    show(browser, serving)
    browser.page.click("text=Browse all 4 documents")
    wait(lambda: ids(browser))
    assert ids(browser) == [each.id for each in DOCUMENTS]
    browser.page.click("#one a >> nth=1")
    wait(lambda: browser.number("#document:not([hidden])"))
    settled(browser)
    assert browser.texts("#document-title") == ["Oil crisis"] and browser.texts(".text.whole") == [DOCUMENTS[1].text]
    # An empty query browses too, by the filter.
    show(browser, serving, filter='{"lang": "de"}')
    browser.page.click("[type=submit]")
    wait(lambda: ids(browser) == ["long"])


def test_ten_more_documents_are_shown_at_a_time(browser, many):
    show(browser, many, index="many", q="number 7")
    assert len(ids(browser)) == 10
    before = ids(browser)
    browser.page.click("#more")
    wait(lambda: len(ids(browser)) == 20)
    settled(browser)
    assert ids(browser)[:10] == before and here(browser) == ids(browser)[10]
    browser.page.reload()
    wait(lambda: len(ids(browser)) == 20)
    browser.page.click("#more")
    wait(lambda: len(ids(browser)) == 25)
    settled(browser)
    assert not browser.page.is_visible("#more")
    show(browser, many, index="many", browse="1")
    assert len(ids(browser)) == 20
    browser.page.click("#more")
    wait(lambda: len(ids(browser)) == 5)


def test_texts_are_shown_as_texts(browser, serving):
    show(browser, serving, q="a plague")
    [text] = browser.ask(
        "return [...document.querySelectorAll('#one .hit')].filter((one) => one.dataset.id === 'evil')"
        ".map((one) => one.querySelector('.text').textContent)"
    )
    assert text == EVIL
    assert "<b>Plague</b> of markup" in browser.texts("#one .title")
    assert browser.number("#results script, #results img, #results b, li i") == 0
    show(browser, serving, q="a plague", doc="evil")
    assert browser.texts("#document-title") == ["<b>Plague</b> of markup"]
    assert browser.number("#document script, #document img, #document b") == 0
    assert browser.page.title() == "a plague \u2013 mvindex"


def test_the_page_works_by_keyboard_only(browser, serving):
    show(browser, serving, q="cats", **{"with": "drpq"})
    browser.ask("document.getElementById('query').focus()")
    side = "return document.activeElement.closest('ol').id"
    browser.press("ArrowDown")
    assert (here(browser), browser.ask(side)) == ("cats", "one")
    assert browser.number(".hit.twin") == 2
    browser.press("ArrowRight")
    assert (here(browser), browser.ask(side)) == ("cats", "other")
    browser.press("ArrowDown", "ArrowLeft")
    assert (here(browser), browser.ask(side)) == (ids(browser)[1], "one")
    browser.press("ArrowUp", "ArrowUp")
    assert here(browser) == "query"
    show(browser, serving, q="cats")
    browser.press("ArrowDown", "e")
    wait(lambda: browser.number(".view"))
    settled(browser)
    assert browser.ask("return document.activeElement.className").startswith("view") and here(browser) == "cats"
    browser.press("/")
    assert here(browser) == "query"
    browser.press("ArrowDown", "Enter")
    wait(lambda: browser.number("#document:not([hidden])"))


def typed(browser, text):
    """Type a letter at a time, without Enter."""
    browser.page.focus("#query")
    browser.page.keyboard.type(text, delay=10)


def test_results_come_as_one_types_and_make_one_entry_of_the_history(browser, serving):
    show(browser, serving, q="cats")
    browser.page.fill("#query", "")
    typed(browser, "why did the oil ")
    wait(lambda: address(browser).get("q") == "why did the oil")
    typed(browser, "price rise")
    wait(lambda: address(browser).get("q") == "why did the oil price rise")
    settled(browser)
    assert ids(browser)[0] == "oil" and here(browser) == "query"
    assert browser.page.input_value("#query") == "why did the oil price rise"
    browser.press("Enter")
    settled(browser)
    # One step back is the search before, not a part of what was typed.
    browser.page.go_back()
    wait(lambda: ids(browser) and ids(browser)[0] == "cats")
    assert browser.page.input_value("#query") == "cats"
    browser.page.go_forward()
    wait(lambda: ids(browser) and ids(browser)[0] == "oil")


def test_a_space_at_the_end_of_what_is_typed_stays(browser, serving):
    show(browser, serving)
    typed(browser, "oil ")
    wait(lambda: address(browser).get("q") == "oil")
    settled(browser)
    assert browser.page.input_value("#query") == "oil "


def test_fast_letters_are_searched_together_and_late_answers_are_dropped(browser, serving):
    show(browser, serving)
    held = []
    browser.page.route("**/search", lambda route: held.append(route))
    browser.page.focus("#query")
    browser.ask(
        "const query = document.getElementById('query');"
        "for (const letter of 'cats') { query.value += letter; query.dispatchEvent(new Event('input')) }"
    )
    wait(lambda: browser.ask("return 1") and held)
    browser.page.fill("#query", "oil price")
    wait(lambda: browser.ask("return 1") and len(held) == 2)
    assert [json.loads(route.request.post_data)["query"] for route in held] == ["cats", "oil price"]
    held[1].continue_()
    wait(lambda: ids(browser))
    assert ids(browser)[0] == "oil"
    held[0].abort()
    browser.page.unroute("**/search")
    time.sleep(0.3)
    assert ids(browser)[0] == "oil" and browser.texts("#status.fault") == []


def test_values_of_the_results_are_offered_before_those_of_the_sample(browser, faceted):
    show(browser, faceted, index="facets", q="recipes with cheese")
    offered = browser.texts(".chip")
    assert set(offered[:2]) == {"kind: recipe", "kind: review"} and "kind: law" in offered
    browser.page.click(".chip:has-text('kind: review')")
    settled(browser)
    assert json.loads(address(browser)["filter"]) == {"kind": "review"}
    assert browser.ask("return document.activeElement.dataset.name") == "kind: review"
    browser.press("Enter")
    settled(browser)
    assert "filter" not in address(browser)


def test_escape_goes_back_from_a_document_to_its_place_in_the_results(browser, serving):
    show(browser, serving, q="animals")
    second = ids(browser)[1]
    browser.page.click("#one h3 a >> nth=1")
    wait(lambda: browser.number("#document:not([hidden])"))
    settled(browser)
    browser.press("Escape")
    wait(lambda: browser.number("#document[hidden]"))
    settled(browser)
    assert here(browser) == second
    browser.press("Escape")
    assert here(browser) == "query"


def test_an_address_of_an_earlier_version_is_opened(browser, serving):
    browser.page.goto("about:blank")
    browser.page.goto(f"{serving.http}/#{urlencode({'index': 'page', 'q': 'cats'})}")
    wait(lambda: ids(browser) and ids(browser)[0] == "cats")
    assert address(browser) == {"index": "page", "q": "cats"} and browser.ask("return location.hash") == ""


def test_a_running_search_is_shown_and_its_address_restores_it(browser, serving):
    show(browser, serving, q="cats")
    held = []
    browser.page.route("**/search", lambda route: held.append(route))
    browser.page.fill("#query", "oil")
    browser.press("Enter")
    # Asked something, the browser tells of its requests.
    wait(lambda: browser.ask("return 1") and len(held) == 1)
    assert browser.number("main[aria-busy=true]") == 1
    assert browser.texts("#status.busy") == ["Searching \u2026"]
    browser.picture(PICTURES / "searching.png")
    held[0].continue_()
    browser.page.unroute("**/search")
    wait(lambda: ids(browser)[0] == "oil")
    settled(browser)
    browser.page.reload()
    wait(lambda: ids(browser))
    assert browser.page.input_value("#query") == "oil" and ids(browser)[0] == "oil"
    browser.page.go_back()
    wait(lambda: ids(browser) and ids(browser)[0] == "cats")


def test_the_page_offers_titles_of_its_documents_before_the_first_search(browser, serving):
    show(browser, serving)
    assert browser.number("#results[hidden]") == 1 and "sentence" in browser.texts("#blank p")[0]
    assert browser.texts("#about")[0].startswith("4 documents, ")
    assert browser.ask("return document.activeElement.id") == "query"
    assert browser.texts(".examples a") == ["<b>Plague</b> of markup", "Oil crisis"]
    browser.picture(PICTURES / "welcome.png")
    browser.page.click("text=Oil crisis")
    wait(lambda: ids(browser) and ids(browser)[0] == "oil")


def test_the_page_asks_for_a_token_and_says_that_an_index_takes_no_texts(browser, guarded):
    show(browser, guarded, theme="dark", index="given")
    assert (
        browser.texts("#status") == ["This server requires a token."]
        and browser.ask("return document.activeElement.id") == "token"
    )
    browser.picture(PICTURES / "token.png")
    browser.page.fill("#token", "wrong-0123456789")
    browser.press("Enter")
    wait(lambda: "not one of this server" in browser.texts("#status")[0])
    settled(browser)
    assert all("401" in said for said in browser.console())
    browser.page.fill("#token", TOKEN)
    browser.press("Enter")
    wait(lambda: browser.number("#blank:not([hidden])"))
    settled(browser)
    assert browser.texts("#blank h2") == ["This index takes no texts"]
    assert browser.page.is_disabled("#query") and browser.page.is_disabled("[type=submit]")
    assert TOKEN not in browser.page.url and TOKEN not in browser.ask("return JSON.stringify({...localStorage})")
    browser.picture(PICTURES / "vectors.png")
    browser.page.click("text=Browse its documents")
    wait(lambda: len(ids(browser)) == 3)


def test_a_phone_shows_one_ranking_at_a_time(browser, serving):
    show(browser, serving, width=390, q="cats", **{"with": "drpq"})
    seen = "return ['one', 'other'].map((id) => document.getElementById(id).checkVisibility())"
    assert browser.ask(seen) == [True, False]
    browser.page.click("#side [value=other]")
    assert browser.ask(seen) == [False, True]
    browser.ask("document.querySelector('#other .hit a').focus()")
    browser.press("ArrowLeft")
    assert browser.ask(seen) == [True, False]
    assert browser.ask("return document.activeElement.closest('ol').id") == "one"


def test_a_long_text_is_cut_around_its_citation_and_expands(browser, serving):
    show(browser, serving, q="what did the comet hit?")
    assert ids(browser)[0] == "long"
    first = "#one li:first-child "
    assert "comet" in browser.texts(first + "mark.won")[0]
    cut = browser.texts(first + ".text")[0]
    assert len(cut) < 2000 and cut.startswith("\u2026 ")
    # Cut at spaces of the text.
    inside = cut.removeprefix("\u2026 ").partition(" \u2026 ")[0]
    assert f" {inside} " in DOCUMENTS[3].text
    browser.ask("document.querySelector(arguments[0]).click()", first + ".text .more")
    assert len(browser.texts(first + ".text")[0]) > len(DOCUMENTS[3].text)


SCREENS = {
    "welcome": {},
    "explained": {"q": "why did the oil price rise?", "explain": "1", "filter": '{"lang": "en"}'},
    "compared": {"q": "why did the oil price rise?", "with": "drpq"},
    "document": {"q": "why did the oil price rise?", "doc": "oil"},
    "browsed": {"browse": "1"},
}


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("screen", SCREENS)
def test_every_text_is_legible_and_nothing_overflows(browser, serving, theme, width, screen):
    from tests.browser import CONTRASTS

    show(browser, serving, theme, width, **SCREENS[screen])
    browser.ask("document.querySelector('.view:not(.won)')?.focus();"
                "for (const each of document.querySelectorAll('details')) each.open = true")  # fmt: skip
    time.sleep(0.4)
    browser.picture(PICTURES / f"{screen}-{theme}-{width}.png")
    found = browser.ask(CONTRASTS)
    assert len(found) > 30 and [row for row in found if row[1] < 4.5] == []
    marks = browser.ask(CONTRASTS.replace("const found = [];", MARKS))
    assert len(marks) >= 5 and [row for row in marks if row[1] < 3] == []
    assert browser.ask("return document.documentElement.scrollWidth - document.documentElement.clientWidth") <= 0


# The contrast of each theme at each width is measured above; axe's other rules depend on one of the two at most.
@pytest.mark.needs("axe")
@pytest.mark.parametrize(("theme", "width"), [("light", 1280), ("dark", 390), long("dark", 1280), long("light", 390)])
@pytest.mark.parametrize("screen", SCREENS)
def test_axe_finds_nothing_against_wcag_2_2_aa(browser, serving, theme, width, screen):
    show(browser, serving, theme, width, **SCREENS[screen])
    browser.ask("for (const each of document.querySelectorAll('details')) each.open = true")
    # By the debugger's protocol, which the page's policy does not apply to.
    browser.page.evaluate(Path(os.environ["MVINDEX_AXE"]).read_text(encoding="utf-8"))
    rules = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
    found = browser.page.evaluate("(rules) => axe.run({ runOnly: rules })", rules)
    assert [(each["id"], [node["html"] for node in each["nodes"]]) for each in found["violations"]] == []
    assert len(found["passes"]) > 20


def test_the_page_loads_nothing_from_other_hosts(browser, serving):
    browser.requests()
    show(browser, serving, q="cats")
    urls = set(browser.requests())
    assert len(urls) >= 5 and all(url.startswith((serving.http, "about:")) for url in urls)
