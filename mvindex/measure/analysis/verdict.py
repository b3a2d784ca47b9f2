"""The verdict: whether several views pay, in words, with reasons and advice, and the report as tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

# Views this similar act as one view in a search; MVR's collapsed models lie at 1.000, working ones at .6 to .8.
COLLAPSED_COSINE = 0.98
COLLAPSED_VARIATION = 0.01
# Less than a point of recall is no reason to store several times as much, or to drop anything.
_A_POINT = 0.01
_HALF_A_POINT = 0.005
_IDLE = 0.02


class Level(Enum):
    """Whether several views pay."""

    PAYS = "pays"
    MIXED = "mixed"
    DOES_NOT_PAY = "does not pay"
    COLLAPSED = "collapsed"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Gain:
    """R@k of all views minus that of the best single vector, with its 95 % interval."""

    k: int
    value: float
    low: float
    high: float


def judge(report: Mapping[str, Any], gains: Sequence[Gain]) -> dict[str, Any]:
    """Return the section `verdict` of a report that has all others: level, headline, reasons and advice.

    - unknown: no document has two views, or there are no questions.
    - collapsed: the views of a document are nearly the same vector (mean cosine above .98, or LV below .01).
    - pays: for some k the gain over the best single vector is at least a point and its interval above zero, and for no
      k is the interval below zero.
    - does not pay: no interval reaches a point.
    - mixed: otherwise; more questions would tell.
    """
    level = _level(report, gains)
    return {
        "level": level.value,
        "headline": _headline(level, report, gains),
        "reasons": _reasons(report, gains),
        "advice": _advice(level, report),
    }


def _level(report: Mapping[str, Any], gains: Sequence[Gain]) -> Level:
    if report["similarity"] is None or not gains:
        return Level.UNKNOWN
    local = report["local"]
    if report["similarity"]["mean_cosine"] > COLLAPSED_COSINE or (local and local["lv"] < COLLAPSED_VARIATION):
        return Level.COLLAPSED
    if any(one.low > 0 and one.value >= _A_POINT for one in gains) and not any(one.high < 0 for one in gains):
        return Level.PAYS
    return Level.DOES_NOT_PAY if all(one.high < _A_POINT for one in gains) else Level.MIXED


def _headline(level: Level, report: Mapping[str, Any], gains: Sequence[Gain]) -> str:
    if level is Level.UNKNOWN:
        if report["similarity"] is None:
            return "Every document has one view: there is nothing to compare."
        return "There are no questions to measure with: it is not known whether the views pay."
    factor = report["subject"]["views_per_document"]
    best = max(gains, key=lambda one: one.value)
    change = f"{100 * best.value:+.1f} points of R@{best.k} over the best single vector"
    if level is Level.COLLAPSED:
        return f"The views of a document are nearly the same vector: {factor:.1f} times the storage buys {change}."
    if level is Level.PAYS:
        return f"The views pay: {change}, for {factor:.1f} times the storage."
    if level is Level.DOES_NOT_PAY:
        return f"The views do not pay on these questions: {change} at most, for {factor:.1f} times the storage."
    return f"Not settled by these questions: {change}, for {factor:.1f} times the storage."


def _reasons(report: Mapping[str, Any], gains: Sequence[Gain]) -> list[str]:
    reasons = [
        f"R@{one.k}: {100 * report['recall']['whole'][f'R@{one.k}']:.1f} % with all views, "
        f"{100 * report['one_vector'][f'R@{one.k}']:.1f} % with {report['one_vector']['name']} "
        f"({100 * one.value:+.1f} points, 95 % interval {100 * one.low:+.1f} to {100 * one.high:+.1f})"
        for one in gains
    ]
    if report["similarity"]:
        reasons.append(
            f"Two views of a document have a cosine of {report['similarity']['mean_cosine']:.3f} on average."
        )
    if report["local"]:
        local = report["local"]
        reasons.append(
            f"LV, how far the winning view stands out, is {local['lv']:.3f} (MVR eq. 9); in the median its score lies "
            f"{local['margin']['p50']:.3f} above the second's."
        )
        reasons.append(
            f"The questions of a document use {local['ppl']:.2f} of its views (PPL, MVR eq. 10), at "
            f"{report['questions']['per_document']:.1f} questions per document."
        )
    return reasons


def _advice(level: Level, report: Mapping[str, Any]) -> list[str]:
    advice = []
    if level is Level.COLLAPSED:
        advice.append(
            "Train longer, or with own_snippet and residual (docs/how-to/training.md, viewers), or use the family"
            " `snippets`."
        )
    if level in (Level.COLLAPSED, Level.DOES_NOT_PAY):
        advice.append(f"One vector per document ({report['one_vector']['name']}) finds as much here.")
    if level is Level.MIXED:
        advice.append("Use more questions: the intervals are too wide for a verdict.")
    if level in (Level.PAYS, Level.MIXED):
        advice += _savings(report)
    idle = [one["slot"] for one in report["usage"] or [] if one["wins"] < _IDLE * one["available"]]
    if idle and level is not Level.COLLAPSED:
        named = ", ".join(str(slot) for slot in idle)
        advice.append(
            f"Slots {named} win fewer than {100 * _IDLE:.0f} in 100 of the questions of documents that have them."
        )
    target = report["questions"]["target"] if report["questions"] else None
    if target == "best":
        advice.append(
            "Use questions with gold documents or answers: here the document that the index ranks first counts "
            "as relevant."
        )
    return advice


def _savings(report: Mapping[str, Any]) -> list[str]:
    """Return advice on pruning and fewer views that save a tenth or more for at most half a point of any recall."""
    whole = report["recall"]["whole"]

    def costs_little(row: Mapping[str, Any]) -> bool:
        return row["share"] <= 0.9 and all(row[name] >= value - _HALF_A_POINT for name, value in whole.items())

    advice = []
    pruned = [row for row in report["pruned"] or [] if costs_little(row)]
    if pruned:
        row = pruned[-1]
        advice.append(
            f"`mvindex ingest --prune-views {row['eps']:g}` saves {100 * (1 - row['share']):.0f} % of the bytes "
            "for half a point of recall or less."
        )
    fewer = [row for row in report["fewer_views"] or [] if costs_little(row)]
    if fewer:
        row = fewer[0]
        advice.append(
            f"{row['views']} views per document, the most different ones, are enough: "
            f"{100 * (1 - row['share']):.0f} % fewer bytes for half a point of recall or less."
        )
    return advice


@dataclass(frozen=True, slots=True)
class Grid:
    """A table: its title, the names of its columns, and its rows."""

    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]


def facts(report: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    """Return title to name to value: the verdict first, then the subject, then single figures."""
    subject, verdict = report["subject"], report["verdict"]
    about = {
        "path": subject["path"],
        "documents": f"{subject['documents']:,}" + _sampled(report),
        "views": f"{subject['views']:,}",
        "views per document": f"{subject['views_per_document']:.2f}, at most {subject['most_views']}",
        "bytes of views": f"{subject['view_bytes']:,}",
        "questions": _questions(report["questions"]),
    }
    shown = {f"verdict: {verdict['level']}": _verdict(verdict), "subject": about, "views": _views(report)}
    return {title: rows for title, rows in shown.items() if rows}


def grids(report: Mapping[str, Any]) -> list[Grid]:
    """Return the tables of recall for the sections that the report has."""
    recall = report["recall"]
    if not recall:
        return []
    names = list(recall["whole"])
    shown = [Grid("recall, % of questions", ["", *names], _recall(report, names))]
    if report["fewer_views"]:
        fewer = [
            [f"{row['views']}", f"{100 * row['share']:.0f}", *_shares(row, names)] for row in report["fewer_views"]
        ]
        pruned = [
            [f"{row['eps']:g}", f"{row['cosine']:.3f}", f"{100 * row['share']:.1f}", *_shares(row, names)]
            for row in report["pruned"]
        ]
        shown.append(Grid("the most different views of each document", ["views", "% of bytes", *names], fewer))
        shown.append(
            Grid("without near-duplicates (--prune-views EPS)", ["EPS", "cosine", "% of bytes", *names], pruned)
        )
    return shown


def _verdict(verdict: Mapping[str, Any]) -> dict[str, str]:
    reasons = {f"because {number}": text for number, text in enumerate(verdict["reasons"], start=1)}
    advice = {f"advice {number}": text for number, text in enumerate(verdict["advice"], start=1)}
    return {"": verdict["headline"], **reasons, **advice}


def _sampled(report: Mapping[str, Any]) -> str:
    sample = report["sample"]
    return "" if sample["is_all"] else f" ({sample['documents']:,} of them searched, a sample)"


def _questions(questions: Mapping[str, Any] | None) -> str:
    if questions is None:
        return "none"
    relevant = {
        "gold": "their gold documents",
        "answer": "documents that hold an answer",
        "best": "the document that the index ranks first, without gold documents and answers",
    }[questions["target"]]
    missing = questions["gold_missing"]
    absent = f"; {missing:,} of them have no gold document in the index" if missing else ""
    return f"{questions['used']:,} of {questions['read']:,}, relevant: {relevant}{absent}"


def _recall(report: Mapping[str, Any], names: Sequence[str]) -> list[list[str]]:
    recall = report["recall"]
    low, high = ({name: bounds[end] for name, bounds in recall["interval"].items()} for end in (0, 1))
    rows = [
        ["all views", *_shares(recall["whole"], names)],
        ["  95 % interval from", *_shares(low, names)],
        ["  to", *_shares(high, names)],
    ]
    if report["one_vector"]:
        rows.append([f"best single vector: {report['one_vector']['name']}", *_shares(report["one_vector"], names)])
        for row in report["single_view"]:
            rows.append([f"only view {row['slot']}, {100 * row['documents']:.0f} % have it", *_shares(row, names)])
    if recall["answer"]:
        rows.append(["answer in the text", *_shares(recall["answer"], names)])
        rows.append(["answer in the winning snippet (CAMVR eq. 15)", *_shares(recall["answer_view"], names)])
        rows.append(["answer in the citation", *_shares(recall["answer_citation"], names)])
    return rows


def _views(report: Mapping[str, Any]) -> dict[str, str]:
    rows = {}
    if report["similarity"]:
        rows["mean cosine of two views of a document"] = f"{report['similarity']['mean_cosine']:.3f}"
    if report["local"]:
        local, margin = report["local"], report["local"]["margin"]
        rows["LV (MVR eq. 9)"] = f"{local['lv']:.3f}, scores times {report['scoring']['scale']:g}"
        rows["PPL (MVR eq. 10)"] = (
            f"{local['ppl']:.2f}, {report['questions']['per_document']:.2f} questions per document"
        )
        spread = f"10 % below {margin['p10']:.3f}, 10 % above {margin['p90']:.3f}"
        rows["best minus second-best score"] = f"{margin['mean']:.3f}; {spread}"
    if report["usage"]:
        rows["wins by slot, %"] = ", ".join(f"{100 * row['wins']:.0f}" for row in report["usage"])
    if report["attention"]:
        attention = report["attention"]
        rows["KL of two views' attention (CAMVR eq. 14)"] = (
            f"{attention['mean']:.3f}, {attention['documents']} documents"
        )
    if report["gradient"]:
        gradient = report["gradient"]
        rows["r(c_j) (DRPQ eq. 11)"] = (
            f"max {gradient['max']:.3f}, variance {gradient['variance']:.3f} at T = {gradient['temperature']:g}"
        )
    return rows


def _shares(row: Mapping[str, Any], names: Sequence[str]) -> list[str]:
    return [f"{100 * row[name]:.1f}" for name in names]
