"""The report's page without a browser: what is in the file, and how it comes to be."""

import base64
import hashlib
import json
import re
import sys
from html.parser import HTMLParser
from pathlib import Path

import jsonschema
import pytest

from mvindex.analysis import page
from mvindex.analysis.page import check_target, make_page, write_page
from mvindex.errors import ConfigError

sys.path.insert(0, str(Path(__file__).parent))
from made_report import made_report  # noqa: E402

HOSTILE = [
    "</script><img src=x onerror=alert(1)>", "<!--", "]]>", "&lt;&amp;", "<!--data-->", "<!--script-->",
    "\u2028\u2029", "\x00\x01\x1b\x7f\x85", "\ud800 alone", "\u202eright to left", "\U0001f600", "a\\u003cb",
]  # fmt: skip


SCHEMA = Path(__file__).parents[2] / "schemas" / "records" / "analysis.schema.json"


class Parts(HTMLParser):
    """The content of each script and style, and all attributes of all tags."""

    def __init__(self, text):
        super().__init__()
        self.contents, self.tags, self._open = {}, [], None
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        values = dict(attrs)
        self.tags.append((tag, values))
        if tag in ("script", "style"):
            self._open = values.get("id", tag)
            self.contents[self._open] = ""

    def handle_endtag(self, tag):
        self._open = None

    def handle_data(self, data):
        if self._open:
            self.contents[self._open] += data


@pytest.mark.parametrize("num_views", [1, 8, 32])
def test_the_report_of_these_tests_is_one_that_analyze_could_print(num_views):
    jsonschema.validate(made_report(num_views), json.loads(SCHEMA.read_text(encoding="utf-8")))


def test_the_page_holds_the_report_to_the_last_character():
    report = {**made_report(), "left_out": {text: text for text in HOSTILE}}
    assert json.loads(Parts(make_page(report)).contents["report"]) == report


def test_hostile_texts_add_no_tag_and_leave_the_file_plain_ascii():
    plain, hostile = Parts(make_page({})), Parts(make_page({"verdict": HOSTILE}))
    assert hostile.tags == plain.tags
    assert make_page({"verdict": HOSTILE}).isascii()
    assert not re.search(r"[<>&\x00-\x1f\x7f]", hostile.contents["report"])


def test_the_policy_lets_in_the_own_style_and_script_and_no_connection():
    parts = Parts(make_page(made_report()))
    policy = next(tag[1]["content"] for tag in parts.tags if tag[1].get("http-equiv") == "Content-Security-Policy")
    rules = dict(rule.split(" ", 1) for rule in policy.split("; "))

    def digest(content):
        return f"'sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}'"

    assert rules == {
        "default-src": "'none'",
        "script-src": digest(parts.contents["script"]),
        "style-src": digest(parts.contents["style"]),
        "img-src": "data:",
        "base-uri": "'none'",
        "form-action": "'none'",
    }


def test_no_tag_of_the_page_names_another_file():
    for tag, values in Parts(make_page(made_report())).tags:
        for name in {"src", "href", "action", "data"} & set(values):
            assert values[name].startswith(("#", "data:")), (tag, values)


def test_no_script_or_style_file_is_forgotten():
    folder = Path(page.__file__).parent
    assert sorted(page.SCRIPTS) == sorted(path.stem for path in folder.glob("scripts/*"))
    assert sorted(page.STYLES) == sorted(path.stem for path in folder.glob("styles/*"))


def test_no_script_makes_markup_of_strings():
    for path in Path(page.__file__).parent.glob("scripts/*.js"):
        forbidden = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|new Function|</script|<!--"
        assert not re.search(forbidden, path.read_text(encoding="ascii")), path.name


def test_an_existing_page_stays_unless_forced(tmp_path):
    target = tmp_path / "report.html"
    target.write_text("mine", encoding="ascii")
    with pytest.raises(ConfigError, match=r"report\.html: exists.*--force"):
        write_page(made_report(), target)
    assert target.read_text(encoding="ascii") == "mine"
    write_page(made_report(), target, force=True)
    assert target.read_text(encoding="ascii") == make_page(made_report())
    assert list(tmp_path.iterdir()) == [target]


@pytest.mark.parametrize("value", [float("nan"), float("inf"), {1, 2}])
def test_what_json_cannot_hold_is_refused_and_nothing_is_written(tmp_path, value):
    with pytest.raises(ConfigError, match="cannot be written as JSON"):
        write_page({"version": value}, tmp_path / "report.html")
    assert list(tmp_path.iterdir()) == []


def test_a_missing_folder_is_named(tmp_path):
    with pytest.raises(ConfigError, match=r"nowhere: is not a folder"):
        write_page(made_report(), tmp_path / "nowhere" / "report.html")


def test_a_folder_in_the_pages_place_is_refused_even_with_force(tmp_path):
    with pytest.raises(ConfigError, match="not a plain file"):
        write_page(made_report(), tmp_path, force=True)


def test_what_the_file_system_refuses_is_told_and_leaves_nothing(tmp_path):
    with pytest.raises(ConfigError, match="cannot be written"):
        write_page(made_report(), tmp_path / f"{'n' * 250}.html")
    assert list(tmp_path.iterdir()) == []


def test_a_target_is_refused_before_there_is_a_report(tmp_path):
    taken = tmp_path / "report.html"
    taken.touch()
    check_target(tmp_path / "new.html", force=False)
    check_target(taken, force=True)
    with pytest.raises(ConfigError, match="exists"):
        check_target(taken, force=False)
    with pytest.raises(ConfigError, match="is not a folder"):
        check_target(taken / "new.html", force=True)
