"""The report as a file: it asks for nothing, and no text of a corpus can break out of it."""

import http.server
import threading
from pathlib import Path

import pytest
from made_report import made_report

from mvindex.analysis.page import write_page

pytestmark = [pytest.mark.needs("chromium"), pytest.mark.usefixtures("quiet")]


def test_the_page_asks_for_no_other_file_when_read_from_disk(browser):
    browser.requests()
    browser.show(made_report())
    assert [Path(url).name for url in browser.requests()] == ["report.html"]
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
        browser.page.goto(f"http://127.0.0.1:{server.server_port}/report.html")
        browser.settle()
        server.shutdown()
    assert asked == ["/report.html"]
    assert browser.texts("h1") == ["oxygen.mvx"]


def test_the_policy_stops_a_connection_and_a_foreign_script(browser):
    browser.show(made_report())
    stopped = browser.ask("""
      const found = [];
      document.addEventListener("securitypolicyviolation", (event) => found.push(event.effectiveDirective));
      return new Promise((done) => fetch("http://127.0.0.1:9/").catch(() => {
        const script = document.createElement("script");
        script.textContent = "window.broken = 1";
        document.body.append(script);
        setTimeout(() => done([found, window.broken ?? null]), 200);
      }));
    """)
    assert stopped == [["connect-src", "script-src-elem"], None]
    # Read here what the test provoked, so that nothing is left for `quiet`.
    said = browser.console()
    assert said and all("Content Security Policy" in message for message in said)


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
