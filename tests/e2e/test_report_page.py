"""The report's page as a reader meets it: in real headless Chromium."""

import http.server
import json
import sys
import threading
from pathlib import Path

import pytest

from mvindex.analysis.page import write_page

pytest.importorskip("selenium", reason="NOT RUN: needs selenium (the extra dev)")
from selenium import webdriver  # noqa: E402
from selenium.webdriver.chrome.service import Service  # noqa: E402
from selenium.webdriver.common.action_chains import ActionChains  # noqa: E402
from selenium.webdriver.common.keys import Keys  # noqa: E402

sys.path.insert(0, str(Path(__file__).parents[1] / "unit"))
from made_report import SENTENCES, emptied, made_report, passage  # noqa: E402

pytestmark = pytest.mark.needs("chromium")
FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update", "--disable-dev-shm-usage",
)  # fmt: skip
ASKED = ("recall", "alone", "one_vector", "kept", "pruned", "local", "usage", "gradient", "hardest", "maps")
# The contrast of each text that is seen with what it stands on, by the formula of WCAG 2.
CONTRASTS = """
const pen = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
const known = new Map();
function rgba(colour) {
  if (!known.has(colour)) {
    pen.clearRect(0, 0, 1, 1); pen.fillStyle = colour; pen.fillRect(0, 0, 1, 1);
    known.set(colour, [...pen.getImageData(0, 0, 1, 1).data]);
  }
  return known.get(colour);
}
function light(colour) {
  const linear = (v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
  const [r, g, b] = rgba(colour).map((v) => linear(v / 255));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}
function ground(node) {
  const under = node instanceof SVGElement && node.previousElementSibling;
  if (under && (under.matches(".cell") || under.matches(".disc"))) return getComputedStyle(under).fill;
  for (let one = node; one; one = one.parentElement) {
    const colour = getComputedStyle(one).backgroundColor;
    if (rgba(colour)[3] === 255) return colour;
  }
}
const found = [];
for (const node of document.body.querySelectorAll("*:not(script, noscript, option, .unseen)")) {
  const text = [...node.childNodes].filter((child) => child.nodeType === 3).map((child) => child.data).join("").trim();
  if (!text || !node.checkVisibility()) continue;
  const style = getComputedStyle(node);
  const [one, other] = [light(node instanceof SVGElement ? style.fill : style.color), light(ground(node))];
  found.push([text.slice(0, 40), (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05)]);
}
return found;
"""


class Browser:
    """Chromium with a page in it."""

    def __init__(self, folder):
        options = webdriver.ChromeOptions()
        options.binary_location = "/usr/bin/chromium"
        for flag in (*FLAGS, f"--user-data-dir={folder / 'profile'}"):
            options.add_argument(flag)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        self.driver = webdriver.Chrome(options=options, service=Service("/usr/bin/chromedriver"))
        self.driver.set_script_timeout(30)
        self._file = folder / "report.html"

    def show(self, report, width=1280, theme="light"):
        write_page(report, self._file, force=True)
        self.set(width, theme)
        self.driver.get(self._file.as_uri())
        self.settle()
        return self

    def set(self, width, theme, media=""):
        self.driver.execute_cdp_cmd(
            "Emulation.setEmulatedMedia",
            {"media": media, "features": [{"name": "prefers-color-scheme", "value": theme}]},
        )
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)

    def settle(self):
        """Waits until the plots are drawn: two frames after the page is there."""
        self.driver.execute_async_script(
            "const done = arguments[0]; requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done, 50)));"
        )

    def ask(self, script, *values):
        return self.driver.execute_script(script, *values)

    def number(self, selector):
        return self.ask("return document.querySelectorAll(arguments[0]).length", selector)

    def attributes(self, selector, *names):
        """These attributes, which are numbers, of all elements that match."""
        script = (
            "return [...document.querySelectorAll(arguments[0])].map((one) => "
            "arguments[1].map((name) => Number(one.getAttribute(name))));"
        )
        return self.ask(script, selector, names)

    def choose_document(self, place):
        self.ask(
            "const one = document.querySelector('select'); one.value = arguments[0]; "
            "one.dispatchEvent(new Event('change'));",
            place,
        )
        self.settle()

    def count(self, title, selector):
        """How many elements of a card match."""
        script = (
            "const card = [...document.querySelectorAll('article')].find((one) => "
            "one.querySelector('h3').textContent === arguments[0]); return card.querySelectorAll(arguments[1]).length;"
        )
        return self.ask(script, title, selector)

    def texts(self, selector):
        return self.ask("return [...document.querySelectorAll(arguments[0])].map((one) => one.textContent)", selector)

    def tip(self):
        """The words beside the mark that is being read; None where there are none."""
        shown = self.texts(".tip:not([hidden])")
        assert len(shown) <= 1
        return shown[0] if shown else None

    def console(self):
        return self.driver.get_log("browser")

    def press(self, *keys):
        for key in keys:
            ActionChains(self.driver).send_keys(key).perform()


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    found = Browser(tmp_path_factory.mktemp("browser"))
    yield found
    found.driver.quit()


@pytest.fixture(autouse=True)
def quiet(browser):
    """No page of any test may leave an error or a warning in the console."""
    browser.console()
    yield
    assert browser.console() == []


def test_the_page_asks_for_no_other_file_when_read_from_disk(browser):
    browser.driver.get("about:blank")
    browser.driver.get_log("performance")
    browser.show(made_report())
    events = [json.loads(entry["message"])["message"] for entry in browser.driver.get_log("performance")]
    asked = [one["params"] for one in events if one["method"] == "Network.requestWillBeSent"]
    # The empty tab that Chromium starts with may still be loading files of its own.
    ours = [one["request"]["url"] for one in asked if "report.html" in one["documentURL"]]
    assert [Path(url).name for url in ours] == ["report.html"]
    assert browser.ask("return performance.getEntriesByType('resource').length") == 0


def test_a_server_of_the_page_is_asked_once(browser, tmp_path):
    asked = []

    class Handler(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *args):
            super().__init__(*args, directory=str(tmp_path))

        def log_message(self, *_):
            asked.append(self.path)

    write_page(made_report(), tmp_path / "report.html")
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        browser.driver.get(f"http://127.0.0.1:{server.server_port}/report.html")
        browser.settle()
        server.shutdown()
    assert asked == ["/report.html"]
    assert browser.texts("h1") == ["oxygen.mvx"]


def test_the_policy_stops_a_connection_and_a_foreign_script(browser):
    browser.show(made_report())
    stopped = browser.driver.execute_async_script("""
      const done = arguments[0], found = [];
      document.addEventListener("securitypolicyviolation", (event) => found.push(event.effectiveDirective));
      fetch("http://127.0.0.1:9/").catch(() => {
        const script = document.createElement("script");
        script.textContent = "window.broken = 1";
        document.body.append(script);
        setTimeout(() => done([found, window.broken ?? null]), 200);
      });
    """)
    assert stopped == [["connect-src", "script-src-elem"], None]
    # Read here what the test provoked, so that nothing is left for `quiet`.
    assert all("Content Security Policy" in entry["message"] for entry in browser.console())


def test_the_verdict_comes_first_in_colour_and_words(browser):
    report = made_report()
    browser.show(report)
    assert browser.ask("return document.querySelector('main').firstElementChild.id") == "verdict"
    text = browser.texts("#verdict")[0]
    verdict = report["verdict"]
    for wanted in ("Pays", verdict["headline"], *verdict["reasons"], *verdict["advice"]):
        assert wanted.replace("`", "") in text
    assert browser.texts("#verdict code") == ["mvindex ingest --prune-views 0.3"]
    assert browser.driver.title == "oxygen.mvx \u00b7 mvindex view analysis"


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


def test_the_tab_and_arrow_keys_read_the_map(browser):
    browser.show(made_report())
    browser.ask("document.querySelector('select').focus()")
    browser.press(Keys.TAB)
    assert SENTENCES[0] in browser.tip()
    browser.press(Keys.ARROW_RIGHT, Keys.ARROW_RIGHT)
    assert SENTENCES[2] in browser.tip()
    browser.press(Keys.END)
    assert "question 5" in browser.tip()
    browser.press(Keys.ESCAPE)
    assert browser.tip() is None


def test_up_and_down_step_over_the_rows_of_a_matrix(browser):
    browser.show(made_report())
    browser.ask("document.querySelector('.cell').parentNode.focus()")
    browser.press(Keys.ARROW_DOWN, Keys.ARROW_DOWN, Keys.ARROW_RIGHT)
    assert browser.tip().startswith("Views 2 and 1")


def test_the_pointer_reads_a_mark(browser):
    browser.show(made_report())
    disc = browser.driver.find_element("css selector", ".mark.view .disc")
    ActionChains(browser.driver).move_to_element(disc).perform()
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


def hostile_report():
    texts = {
        "tags": "</script><img src=x onerror='window.broken=1'><svg onload='window.broken=1'>",
        "arabic": "\u0627\u0644\u0623\u0643\u0633\u062c\u064a\u0646 \u202e override",
        "emoji": "\U0001f9ea\U0001f469\u200d\U0001f52c" * 20,
        "long": "x" * 100_000,
        "controls": "a\u2028b\u2029c\x01\x1bd<!--",
    }
    report = made_report(num_hard=len(texts), num_maps=len(texts))
    for question, shown, text in zip(report["hardest"], report["maps"], texts.values(), strict=True):
        question.update(question=text, id=text, answers=[text])
        for side in ("wanted", "found"):
            question[side].update(id=text, title=text, text=text)
        shown.update(id=text, title=text)
        for place in (*shown["views"], *shown["questions"]):
            place.update({"snippet" if "snippet" in place else "text": text})
    report["verdict"].update(headline=texts["tags"], reasons=list(texts.values()), advice=[texts["tags"]])
    report["one_vector"]["name"] = texts["tags"]
    report["subject"]["path"] = f"/data/{texts['tags']}"
    report["attention"], report["left_out"] = None, {"attention": texts["tags"], texts["tags"]: texts["arabic"]}
    return report, texts


def test_hostile_texts_stay_texts(browser):
    report, texts = hostile_report()
    browser.show(report, width=360)
    assert browser.ask("return [window.broken ?? null, document.images.length, document.scripts.length]") == [
        None,
        0,
        2,
    ]
    assert browser.texts("#verdict h2") == [texts["tags"]]
    assert browser.texts(".asked-for") == list(texts.values())
    shown = "\n".join(browser.texts("main"))
    assert all(text in shown for text in texts.values())
    for place in range(len(texts)):
        browser.choose_document(place)
        browser.ask("document.querySelector('.mark.view').focus()")
        assert browser.tip()
    assert browser.ask("return document.documentElement.scrollWidth") <= 360


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
    button = browser.driver.find_element("css selector", ".theme")
    assert button.text == "Dark theme"
    button.click()
    assert browser.ask(ground) == dark
    assert button.text == "Light theme"
    browser.driver.refresh()
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
