"""The report in a real browser as a file: it loads nothing, runs nothing, and no text of a corpus can break out."""

import http.server
import threading
from pathlib import Path

import pytest

from mvindex.measure.analysis.page import write_page
from tests.helpers.made_report import hostile_report, made_report

pytestmark = [pytest.mark.needs("chromium"), pytest.mark.usefixtures("quiet")]


def test_the_page_requests_no_other_file_from_disk_or_from_a_server(browser, tmp_path):
    requested = []

    class Handler(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *args):
            super().__init__(*args, directory=str(tmp_path))

        def log_message(self, *_):
            requested.append(self.path)

    browser.requests()
    browser.show(made_report())
    assert [Path(url).name for url in browser.requests()] == ["report.html"]
    assert browser.ask("return performance.getEntriesByType('resource').length") == 0
    write_page(made_report(), tmp_path / "report.html")
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        browser.page.goto(f"http://127.0.0.1:{server.server_port}/report.html")
        browser.settle()
        server.shutdown()
    assert requested == ["/report.html"]
    assert browser.texts("h1") == ["oxygen.mvx"]


def test_the_policy_stops_a_connection_and_a_script(browser):
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
    messages = browser.console()
    assert messages and all("Content Security Policy" in message for message in messages)


def test_hostile_texts_stay_texts(browser):
    report, texts = hostile_report()
    browser.show(report, width=360)
    seen = browser.ask("return [window.broken ?? null, document.images.length, document.scripts.length]")
    assert seen == [None, 0, 0]
    assert browser.texts("#verdict h2") == [texts["tags"]]
    shown = "\n".join(browser.texts("main"))
    assert all(text in shown for name, text in texts.items() if name != "controls")
    assert browser.ask("return document.documentElement.scrollWidth") <= 360
