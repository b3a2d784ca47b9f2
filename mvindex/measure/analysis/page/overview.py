"""The top and the end of the report: the verdict, caveats, key figures, and how it was measured."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from mvindex.measure.analysis.page.cards import Report, main_cutoff
from mvindex.measure.analysis.page.markup import (
    NONE,
    Content,
    Markup,
    bytes_text,
    count,
    counted,
    decimal,
    element,
    facts,
    percent,
    points,
    user_text,
)

# Level of the verdict -> its name and the class that colours it.
_LEVELS = {
    "pays": ("\u2713 Pays", "good"),
    "mixed": ("\u2248 Mixed", "fair"),
    "does not pay": ("\u2717 Does not pay", "poor"),
    "collapsed": ("\u2717 Collapsed", "poor"),
    "unknown": ("? Unknown", "none"),
}
_ORIGIN = ("subject", "questions", "sample", "scoring", "settings")


def subject_name(report: Report) -> str:
    """Return the last part of the path of the index or encoder."""
    path: str = report["subject"]["path"]
    return path.rstrip("/").rsplit("/", 1)[-1] or path or "unnamed"


def title(report: Report) -> Markup:
    """Return the heading, with one line on what was measured."""
    subject = report["subject"]
    kind = "encoder over a corpus" if subject["kind"] == "checkpoint" else "index"
    about = f"{kind} of {counted(subject['documents'], 'document')}, {counted(subject['views'], 'view')}"
    source = (subject["encoder"] or {}).get("source")
    return fragment_of(
        element("p", "mvindex \u00b7 view analysis", class_="product"),
        element("h1", user_text(subject_name(report))),
        element("p", about, (" \u00b7 encoder ", user_text(str(source))) if source else None, class_="muted"),
    )


def fragment_of(*parts: Markup) -> Markup:
    """Return the parts one after the other."""
    return Markup("".join(parts))


def verdict(report: Report) -> Markup:
    """Return the verdict: its level, the reasons, and what to do."""
    found = report["verdict"]
    name, tone = _LEVELS[found["level"]]
    return element(
        "section",
        element("p", element("span", "Verdict: ", class_="unseen"), name, class_="level"),
        element("h2", found["headline"], id="verdict-title"),
        element("div", _points("Why", found["reasons"]), _points("What to do", found["advice"]), class_="because"),
        id="verdict", class_=f"verdict {tone}", aria_labelledby="verdict-title",
    )  # fmt: skip


def caveats(report: Report) -> Markup | None:
    """Return what a reader must know before comparing these numbers with others; None if there is nothing."""
    questions, sample = report["questions"], report["sample"]
    notes = []
    if questions and questions["target"] == "best":
        notes.append(
            "There are no judgements: the document that the whole index ranks first counts as relevant, so all views "
            "together reach 100% by definition."
        )
    if not sample["is_all"]:
        notes.append(
            f"Searched over a sample of {sample['documents']:,} of {counted(sample['of'], 'document')}: recall over "
            "all of them is lower."
        )
    if questions and questions["gold_missing"]:
        notes.append(
            f"The index does not hold the relevant document of {counted(questions['gold_missing'], 'question')}: these "
            "count as not found in all figures."
        )
    return element("div", (element("p", note) for note in notes), class_="notes", role="note") if notes else None


def tiles(report: Report) -> Markup:
    """Return the key figures, each with what it is to be compared with."""
    shown = (
        element(
            "div", element("dt", name), element("dd", element("strong", value), element("span", note)), class_="tile"
        )
        for name, value, note in _tiles(report)
    )
    return element("section", element("dl", shown, class_="tiles"), aria_label="Key figures")


def _tiles(report: Report) -> Iterator[tuple[str, str, str]]:
    subject, recall, single = report["subject"], report["recall"], report["one_vector"]
    if recall:
        name = main_cutoff(report)
        low, high = recall["interval"][name]
        yield f"{name}, all views", percent(recall["whole"][name]), f"95% interval {percent(low)} to {percent(high)}"
        if single:
            gain = single["gain"][name]
            interval = f"95% interval {points(gain['low'])} to {points(gain['high'])}"
            yield f"{name}, gain over one vector", points(gain["value"]), f"points ({interval}); {single['name']}"
    if report["local"]:
        note = f"of {subject['views_per_document']:.1f}; perplexity of the winners (MVR eq. 10)"
        yield "Views in use per document", f"{report['local']['ppl']:.2f}", note
        yield "Local variation", decimal(report["local"]["lv"]), "how far the best view stands out (MVR eq. 9)"
    if report["similarity"]:
        cosine = decimal(report["similarity"]["mean_cosine"])
        yield "Cosine between views", cosine, "mean within a document; 1 means identical"
        for nearest in report["similarity"].get("near_duplicates", [])[:1]:
            yield "Near-duplicate views", percent(nearest["share"]), f"within EPS {nearest['eps']:g} of another view"
    each = bytes_text(subject["view_bytes"] / max(subject["documents"], 1))
    note = f"{subject['views_per_document']:.2f} views per document (at most {subject['most_views']}), {each} each"
    yield "Size of the vectors", bytes_text(subject["view_bytes"]), note
    if questions := report["questions"]:
        note = f"about {counted(questions['documents'], 'document')}, {questions['per_document']:.2f} each"
        yield "Questions", count(questions["used"]), note


def origin(report: Report) -> list[Markup]:
    """Return all that is needed to repeat the analysis."""
    groups = [(name.capitalize(), _flat(report[name])) for name in _ORIGIN if report[name]]
    groups.append(("Left out", list(report["left_out"].items())))
    return [
        element(
            "article",
            element("h3", name),
            facts([(key.replace("_", " "), user_text(value)) for key, value in entries]),
            class_="card",
        )
        for name, entries in groups
        if entries
    ]


def _flat(values: Mapping[str, Any]) -> list[tuple[str, str]]:
    found = []
    for key, value in values.items():
        nested = _flat(value) if isinstance(value, Mapping) else [("", _plain(value))]
        found += [(f"{key} {inner}".strip(), text) for inner, text in nested]
    return found


def _plain(value: object) -> str:
    if isinstance(value, (list, tuple)):
        return ", ".join(map(_plain, value)) or NONE
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:.4g}" if isinstance(value, float) else NONE if value is None else str(value)


def _points(heading: str, texts: Sequence[str]) -> Markup | None:
    if not texts:
        return None
    return element("div", element("h3", heading), element("ul", (element("li", _with_code(text)) for text in texts)))


def _with_code(text: str) -> Content:
    """Return the text with its parts in backticks, such as commands, as code."""
    parts = text.split("`")
    return (
        [element("code", part) if position % 2 else part for position, part in enumerate(parts)]
        if len(parts) % 2
        else text
    )
