"""The report as tables for a terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


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
