"""The HTML report without a browser: what is in the file, and how it is written."""

import base64
import hashlib
import json
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import jsonschema
import pytest

from mvindex.errors import ConfigError, ExtraMissing
from mvindex.measure.analysis.page import check_target, make_page, write_page
from mvindex.plugins import install_command

pytest.importorskip("altair")
pytest.importorskip("vl_convert")

from tests.helpers.made_report import SENTENCES, emptied, hostile_report, made_report, passage  # noqa: E402

ROOT = Path(__file__).parents[4]
SCHEMA = ROOT / "schemas" / "records" / "analysis.schema.json"
QUESTION_SECTIONS = (
    "recall", "single_view", "one_vector", "fewer_views", "pruned", "local", "usage", "gradient", "hardest", "maps",
)  # fmt: skip


class Page(HTMLParser):
    """All tags with their attributes, all text, and both again by card (the title of an article)."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.text, self.cards = [], "", {}
        self._card, self._is_title = None, False
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag == "article":
            self._card = {"text": "", "tags": []}
        if self._card is not None:
            self._card["tags"].append(self.tags[-1])
            self._is_title = tag == "h3"

    def handle_endtag(self, tag):
        if tag == "article":
            self._card = None

    def handle_data(self, data):
        self.text += data
        if self._is_title:
            self.cards[data], self._is_title = self._card, False
        elif self._card is not None:
            self._card["text"] += data

    def labels(self, card):
        """The labels of a card's marks."""
        tags = self.cards[card]["tags"]
        return [values["aria-label"] for tag, values in tags if values.get("aria-roledescription") not in ("axis", None)
                and tag == "path" and "aria-label" in values]  # fmt: skip

    def count(self, card, **attributes):
        found = {key.rstrip("_"): value for key, value in attributes.items()}
        return sum(found.items() <= values.items() for _, values in self.cards[card]["tags"])


@pytest.fixture(scope="module")
def text():
    return make_page(made_report())


@pytest.fixture(scope="module")
def page(text):
    return Page(text)


@pytest.mark.parametrize("num_views", [1, 8, 32])
def test_the_report_of_these_tests_is_one_that_analyze_could_print(num_views):
    jsonschema.validate(made_report(num_views), json.loads(SCHEMA.read_text(encoding="utf-8")))


def test_the_policy_allows_the_own_style_and_nothing_else(text, page):
    policy = next(values["content"] for _, values in page.tags if values.get("http-equiv") == "Content-Security-Policy")
    style = re.search(r"<style>(.*)</style>", text, re.DOTALL)[1]
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    assert policy == (
        f"default-src 'none'; style-src 'sha256-{digest}'; img-src data:; base-uri 'none'; form-action 'none'"
    )
    assert not any("style" in values for _, values in page.tags)


def test_no_tag_names_another_file_or_runs_a_script(page):
    for tag, values in page.tags:
        assert tag not in ("script", "iframe", "img", "object", "embed", "form")
        assert not [name for name in values if name.startswith("on")]
        for name in {"src", "href", "xlink:href", "action", "data"} & set(values):
            assert values[name].startswith(("#", "data:,")), (tag, values)


def test_hostile_texts_stay_texts():
    report, texts = hostile_report()
    page = Page(make_page(report))
    test_no_tag_names_another_file_or_runs_a_script(page)
    assert {tag for tag, _ in page.tags} <= {tag for tag, _ in Page(make_page(made_report())).tags}
    for text in texts.values():
        assert text.replace("\0", "\ufffd").replace("\ud800", "\ufffd") in page.text


def test_every_number_has_a_mark_that_says_it(page):
    report = made_report()
    names = [f"R@{cutoff}" for cutoff in report["recall"]["cutoffs"]]
    recall = [f"{name}, all views: {report['recall']['whole'][name]:.1%}" for name in names]
    recall += [f"{name}, mean of the views: {report['one_vector'][name]:.1%}" for name in names]
    assert sorted(page.labels("Recall: all views against one vector")) == sorted(recall)
    assert page.labels("Each view as the only one") == [
        f"{row['slot']}, R@5: {row['R@5']:.1%}" for row in report["single_view"]
    ]
    kl = report["attention"]["kl"]
    assert f"from view 2, to view 5: {kl[2][5]:.3f}" in page.labels("Where the views look")
    filled = [number for number in report["similarity"]["histogram"]["counts"] if number]
    counts = {
        "Recall with fewer views": (len(names) + 1) * 8,
        "Recall without near-duplicate views": (len(names) + 1) * len(report["pruned"]),
        "Which views win": 2 * 8,
        "How similar the views are": 8 * 8,
        "Where the views look": 8 * 8,
        "Cosines between views of one document": len(filled),
        "Gradient weight of a view, by rank": 8,
        "Answers found, and held by winning view and citation": 3 * len(names),
        "Documents and their questions": 3 * (8 + 6),
    }
    assert {card: len(page.labels(card)) for card in counts} == counts
    assert "Left out" not in page.text


def test_the_verdict_and_key_figures_come_first(page):
    report = made_report()
    verdict = report["verdict"]
    for expected in (
        "Pays",
        verdict["headline"],
        *verdict["reasons"],
        *verdict["advice"],
        "95% interval 72.1% to 75.8%",
    ):
        assert page.text.index(expected.replace("`", "")) < page.text.index("Recall: all views against one vector")
    assert "oxygen.mvx \u00b7 mvindex view analysis" in page.text
    assert "11,204" not in page.text and "about 1,204 documents" in page.text


def test_the_hardest_questions_show_the_snippets_that_won(text, page):
    marks = re.findall(r"<mark[^>]*>(.*?)</mark>", text)
    won = ["winning view 2" + SENTENCES[2], "winning view 0" + SENTENCES[0]]
    assert [re.sub("<[^>]*>", "", mark) for mark in marks] == won * 4
    assert page.count("Hardest questions", class_="item") == 4
    assert (
        "not found" in page.cards["Hardest questions"]["text"] and "rank 121" in page.cards["Hardest questions"]["text"]
    )


def test_spans_count_characters_as_python_does_and_may_be_missing():
    report = made_report(num_hard=1, num_maps=1)
    report["hardest"][0]["relevant"] = passage("w", 2, 4, before="\U0001f600 \U0001f468\u200d\U0001f680 e\u0301 ")
    report["hardest"][0]["retrieved"] = passage("r", 1, 3, has_spans=False)
    text = make_page(report)
    assert [re.sub("<[^>]*>", "", mark) for mark in re.findall(r"<mark[^>]*>(.*?)</mark>", text)] == [
        "winning view 2" + SENTENCES[2]
    ]
    assert text.count(" no span") == 3


def test_sections_without_numbers_are_named_with_the_reason():
    report = emptied(made_report(), *QUESTION_SECTIONS, "attention", "similarity", why="there are no questions <here>")
    report |= {"questions": None, "verdict": {"level": "unknown", "headline": "?", "reasons": [], "advice": []}}
    page = Page(make_page(report))
    left_out = [card for card in page.cards.values() if card["text"] == "Left out: there are no questions <here>"]
    assert len(left_out) == 13
    assert not any(tag == "svg" for tag, _ in page.tags)


@pytest.mark.parametrize(
    ("level", "name"),
    [("mixed", "Mixed"), ("does not pay", "Does not pay"), ("collapsed", "Collapsed"), ("unknown", "Unknown")],
)
def test_each_level_has_its_name(level, name):
    report = emptied(made_report(), *QUESTION_SECTIONS, "attention", "similarity")
    report["verdict"] = {"level": level, "headline": "h", "reasons": [], "advice": []}
    assert f"Verdict: {name}" in re.sub("[^a-zA-Z :]", "", Page(make_page(report)).text).replace("  ", " ")


def test_a_reader_is_warned_of_numbers_that_do_not_compare():
    report = emptied(made_report(), *QUESTION_SECTIONS, "attention", "similarity")
    report["sample"] = {"documents": 20_000, "of": 21_015_324, "seed": 0, "is_all": False}
    report["questions"] |= {"target": "best", "gold_missing": 7}
    text = Page(make_page(report)).text
    assert "There are no judgements" in text and "20,000 of 21,015,324 documents" in text and "7 questions" in text


def test_few_views_and_few_numbers_are_drawn():
    report = made_report(1, num_questions=0, num_maps=1)
    report["recall"]["answer_view"] = report["recall"]["answer_citation"] = report["one_vector"] = report[
        "single_view"
    ] = None
    for place in report["maps"][0]["views"]:
        place.update(x=0.0, y=0.0)
    page = Page(make_page(report))
    assert len(page.labels("Answers found, and held by winning view and citation")) == 4
    assert "No question is about this document." in page.text


def test_an_existing_page_stays_unless_forced(tmp_path, text):
    target = tmp_path / "report.html"
    target.write_text("mine", encoding="ascii")
    with pytest.raises(ConfigError, match=r"report\.html: exists.*--force"):
        write_page(made_report(), target)
    assert target.read_text(encoding="ascii") == "mine"
    write_page(made_report(), target, force=True)
    assert target.read_text(encoding="utf-8") == text
    assert list(tmp_path.iterdir()) == [target]


def test_errors_of_the_file_system_name_the_file_and_leave_nothing(tmp_path):
    report = emptied(made_report(), *QUESTION_SECTIONS, "attention", "similarity")
    with pytest.raises(ConfigError, match=r"nowhere: is not a folder"):
        write_page(report, tmp_path / "nowhere" / "report.html")
    with pytest.raises(ConfigError, match="not a plain file"):
        write_page(report, tmp_path, force=True)
    with pytest.raises(ConfigError, match="cannot be written"):
        write_page(report, tmp_path / f"{'n' * 250}.html")
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


@pytest.mark.parametrize("package", ["altair", "vl_convert"])
def test_a_missing_package_is_named_with_its_extra_before_there_is_a_report(tmp_path, monkeypatch, package):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ExtraMissing, match=f"{package}.*{re.escape(install_command('reports'))}"):
        check_target(tmp_path / "new.html", force=False)


def test_the_charts_library_is_imported_for_a_report_only():
    code = "import sys, mvindex.measure.analysis.page, mvindex.cli.analyze; sys.exit('altair' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0
