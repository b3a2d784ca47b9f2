"""The cards of the report that show measures: what is measured, how to read it, the chart, and its numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from mvindex.measure.analysis.page import charts
from mvindex.measure.analysis.page.charts import Axes, Series
from mvindex.measure.analysis.page.documents import hardest_questions, maps
from mvindex.measure.analysis.page.markup import (
    Content,
    Markup,
    bytes_text,
    count,
    counted,
    decimal,
    element,
    facts,
    make_folded_table,
    percent,
    points,
    table,
)

Report: TypeAlias = Mapping[str, Any]

_RECALL = "recall (% of questions)"
_SLOT = "view (slot, from 0)"
RELEVANT = {
    "gold": "the document that is marked as right",
    "answer": "a document whose text holds the answer",
    "best": "the document that the whole index ranks first",
}


@dataclass(frozen=True, slots=True)
class Card:
    """A section of the report as a card.

    keys: the section's names in `left_out`. data: what the card shows, or None where the report has no numbers for it.
    source: a text, or a function of the report that gives it. empty: why there may be no data without a reason.
    """

    title: str
    keys: Sequence[str]
    data: Callable[[Report], Any]
    body: Callable[[Any, Report], Content]
    good: str
    bad: str
    source: str | Callable[[Report], str]
    is_wide: bool = False
    empty: str = "the analysis gave no numbers for it"

    def show(self, report: Report) -> Markup:
        """Return the card; where its numbers are missing, its title and the reason."""
        data = self.data(report)
        title = element("h3", self.title)
        if not data:
            reason = next((report["left_out"][key] for key in self.keys if key in report["left_out"]), self.empty)
            return element("article", title, element("p", element("b", "Left out: "), reason), class_="card left-out")
        source = self.source if isinstance(self.source, str) else self.source(report)
        reading = (
            element("b", "Good: ", class_="good"),
            f"{self.good}; ",
            element("b", "bad: ", class_="bad"),
            f"{self.bad}.",
        )
        content = (title, element("p", reading, class_="reading"), self.body(data, report))
        return element(
            "article", content, element("p", f"Source: {source}.", class_="source"),
            class_="card wide" if self.is_wide else "card",
        )  # fmt: skip


def cutoff_names(report: Report) -> list[str]:
    """Return R@1, R@5 and so on, as in the report."""
    return [f"R@{cutoff}" for cutoff in report["recall"]["cutoffs"]]


def main_cutoff(report: Report) -> str:
    """Return the R@k that single figures show: R@5 as in the papers, else the first."""
    names = cutoff_names(report)
    return "R@5" if "R@5" in names else names[0]


def _recall(recall: Report, report: Report) -> Content:
    names, single = cutoff_names(report), report["one_vector"]
    series = [
        Series("all views", [recall["whole"][name] for name in names], [recall["interval"][name] for name in names])
    ]
    header, columns = ["first k", "all views", "95% interval"], [recall["whole"]]
    if single:
        series.append(Series(single["name"], [single[name] for name in names]))
        header, columns = [*header, single["name"], "points more"], [*columns, single]
    rows = []
    for name in names:
        low, high = recall["interval"][name]
        row = [name, percent(recall["whole"][name]), f"{percent(low)} to {percent(high)}"]
        rows.append([*row, percent(single[name]), points(recall["whole"][name] - single[name])] if single else row)
    drawn = charts.bars(names, series, Axes("documents looked at", _RECALL))
    return drawn, make_folded_table("recall of all views and of one vector", header, rows)


def _single_view(rows: Sequence[Report], report: Report) -> Content:
    name, names = main_cutoff(report), cutoff_names(report)
    single = report["one_vector"]
    compared = {"all views": report["recall"]["whole"], single["name"]: single}
    drawn = charts.bars(
        [str(row["slot"]) for row in rows],
        [Series(name, [row[name] for row in rows])],
        Axes(_SLOT, f"{name} (% of questions)"),
        {label: values[name] for label, values in compared.items()},
    )
    shown = [[f"view {row['slot']}", percent(row["documents"]), *_shares(row, names)] for row in rows]
    shown += [[label, percent(1), *_shares(values, names)] for label, values in compared.items()]
    return drawn, make_folded_table("recall of each view", ["view", "documents that have it", *names], shown)


def _fewer(rows: Sequence[Report], report: Report) -> Content:
    first = [[str(row["views"]), f"{row['views_per_document']:.2f}"] for row in rows]
    return _trend(rows, report, _Steps("most views per document", ["views", "per document"], first))


def _pruned(rows: Sequence[Report], report: Report) -> Content:
    first = [[f"{row['eps']:g}", decimal(row["cosine"]), count(row["views"])] for row in rows]
    return _trend(rows, report, _Steps("EPS (distance)", ["EPS", "cosine", "views"], first))


@dataclass(frozen=True, slots=True)
class _Steps:
    """The steps of a trend: title of the x axis, and the first columns of its table; the first cell is the step."""

    title: str
    header: list[str]
    cells: list[list[str]]


def _trend(rows: Sequence[Report], report: Report, steps: _Steps) -> Content:
    names = cutoff_names(report)
    series = [Series(name, [row[name] for row in rows]) for name in names]
    series.append(Series("share of the bytes", [row["share"] for row in rows], is_quiet=True))
    drawn = charts.trend([cells[0] for cells in steps.cells], series, Axes(steps.title, "recall and bytes (%)"))
    cells = [
        [*first, bytes_text(row["bytes"]), percent(row["share"]), *_shares(row, names)]
        for first, row in zip(steps.cells, rows, strict=True)
    ]
    numbers = table(steps.title, [*steps.header, "bytes", "share", *names], cells)
    return element("div", element("div", drawn), numbers, class_="split")


def _usage(usage: Sequence[Report], _: Report) -> Content:
    total = sum(row["available"] for row in usage)
    series = [
        Series("questions won", [row["wins"] for row in usage]),
        Series("share of all views", [row["available"] / total for row in usage], is_quiet=True),
    ]
    drawn = charts.bars([str(row["slot"]) for row in usage], series, Axes(_SLOT, "share (%)"))
    rows = [
        [f"view {row['slot']}", *map(percent, (row["wins"], row["available"] / total, row["available"]))]
        for row in usage
    ]
    header = ["view", "questions won", "share of all views", "documents that have it"]
    return drawn, make_folded_table("questions won by each view", header, rows)


def _local(local: Report, report: Report) -> Content:
    margin, most = local["margin"], report["subject"]["views_per_document"]
    rows = [
        (name, decimal(margin[key]))
        for key, name in (("p10", "10th percentile"), ("p50", "median"), ("mean", "mean"), ("p90", "90th percentile"))
    ]
    return (
        facts([
            ("Local variation (LV)", decimal(local["lv"])),
            ("Perplexity of the winners (PPL)", f"{local['ppl']:.2f} of {most:.1f} views"),
        ]),
        table("margin of the best view", ["best minus second-best score", "over the pairs"], rows),
    )  # fmt: skip


def _similarity(values: Sequence[Sequence[float | None]], _: Report) -> Content:
    others = [
        value
        for row, line in enumerate(values)
        for column, value in enumerate(line)
        if value is not None and row != column
    ]
    drawn = charts.matrix(values, Axes("view", "view"), min(0.0, *others), 1.0)
    return drawn, _matrix_table("mean cosine between views", "cosine", values)


def _histogram(histogram: Report, report: Report) -> Content:
    drawn = charts.histogram(histogram["edges"], histogram["counts"], Axes("cosine", "pairs of views"))
    near = report["similarity"].get("near_duplicates")
    caption = "views within EPS of another one of their document"
    rows = [[f"{row['eps']:g}", percent(row["share"])] for row in near or ()]
    return drawn, make_folded_table(caption, ["EPS", "share of the views"], rows) if near else None


def _attention(attention: Report, _: Report) -> Content:
    values = attention["kl"]
    most = max(value for line in values for value in line if value is not None)
    drawn = charts.matrix(values, Axes("to view", "from view"), 0.0, most or 1.0)
    return drawn, _matrix_table("KL divergence of the views' attention, in nats", "KL", values)


def _gradient(gradient: Report, _: Report) -> Content:
    weights = gradient["by_rank"]
    ranks = [str(rank) for rank in range(1, len(weights) + 1)]
    axes = Axes("rank of the view by score", "gradient weight r(c_j)", is_percent=False)
    drawn = charts.bars(ranks, [Series("r", weights)], axes, {"even share": 1 / len(weights)})
    return (
        facts([("Mean largest r", decimal(gradient["max"])), ("Mean variance of r", decimal(gradient["variance"]))]),
        drawn,
        make_folded_table("gradient weight by rank", ["rank", "r"], zip(ranks, map(decimal, weights), strict=True)),
    )  # fmt: skip


def _answers(recall: Report, report: Report) -> Content:
    names = cutoff_names(report)
    series = [Series("a document holds the answer", [recall["answer"][name] for name in names])]
    for key, text in (("answer_view", "its winning view holds it"), ("answer_citation", "its citation holds it")):
        if recall[key]:
            series.append(Series(text, [recall[key][name] for name in names]))
    drawn = charts.bars(names, series, Axes("documents looked at", "questions (%)"))
    rows = [[name, *(percent(one.values[row]) for one in series)] for row, name in enumerate(names)]
    return drawn, make_folded_table("answer accuracy", ["first k", *(one.name for one in series)], rows)


def _matrix_table(caption: str, corner: str, values: Sequence[Sequence[float | None]]) -> Markup:
    rows = [[f"view {slot}", *map(decimal, line)] for slot, line in enumerate(values)]
    return make_folded_table(caption, [corner, *(f"view {slot}" for slot in range(len(values)))], rows)


def _shares(row: Report, names: Sequence[str]) -> list[str]:
    return [percent(row[name]) for name in names]


def _with_pairs(values: Sequence[Sequence[float | None]]) -> Sequence[Sequence[float | None]] | None:
    return values if len(values) > 1 else None


CHAPTERS: Mapping[str, Sequence[Card]] = {
    "Do the views pay?": (
        Card(
            "Recall: all views against one vector", ["recall"], lambda report: report["recall"], _recall,
            good="all views lie clearly above the one vector, beyond the whisker",
            bad="both are level, so the further views of a document find nothing more",
            source=lambda report: f"share of questions with {RELEVANT[report['questions']['target']]} among the first "
            "k documents; whiskers: 95% bootstrap interval",
        ),
        Card(
            "Each view as the only one", ["single_view"], lambda report: report["single_view"], _single_view,
            good="the views differ from each other, and all of them together reach higher than any one",
            bad="every single view does as well as all together: the views have collapsed into one",
            source="that view as the document's only vector (CAMVR, tables 2 and 7)",
        ),
        Card(
            "Recall with fewer views", ["fewer_views"], lambda report: report["fewer_views"], _fewer,
            good="recall keeps rising to the right: each further view pays for its bytes",
            bad="recall is flat while the bytes grow: fewer views would do",
            source="the views of each document that differ most from each other; bytes as of the whole index",
            is_wide=True,
        ),
        Card(
            "Recall without near-duplicate views", ["pruned"], lambda report: report["pruned"], _pruned,
            good="the bytes fall while recall stays: that EPS is free to use",
            bad="recall falls as soon as the bytes do: every view is needed",
            source="views within EPS (the distance of unit vectors) of a view that stays are left out; steps are not "
            "to scale",
            is_wide=True,
        ),
    ),
    "Do they differ?": (
        Card(
            "Which views win", ["usage"], lambda report: report["usage"], _usage,
            good="each view wins about its share, so that all are of use",
            bad="one view wins nearly always: the others add nothing",
            source="the best view of the relevant document, per question; compare MVR, eq. 10",
        ),
        Card(
            "How far the best view stands out", ["local"], lambda report: report["local"], _local,
            good="a clear margin together with a perplexity well above 1: views are distinguished and several are used",
            bad="a margin near 0, or a perplexity near 1, which is one view doing all the work",
            source=lambda report: "MVR, eq. 9 (LV) and eq. 10 (PPL), over "
            f"{counted(report['local']['pairs'], 'pair')} of a question and its document",
        ),
        Card(
            "How similar the views are", ["similarity"],
            lambda report: report["similarity"] and _with_pairs(report["similarity"]["heat"]),
            _similarity,
            good="low numbers off the diagonal: the views of a document point in different directions",
            bad="numbers near 1 throughout: they are near copies of each other",
            source=lambda report: "mean cosine of two views of one document, over "
            f"{counted(report['similarity']['documents'], 'document')}",
        ),
        Card(
            "Cosines between views of one document", ["similarity"],
            lambda report: report["similarity"] and report["similarity"]["histogram"], _histogram,
            good="the hill lies well left of 1",
            bad="it leans on 1: many views repeat another one of their document",
            source="all pairs of views of a document",
        ),
    ),
    "How they look and learn": (
        Card(
            "Where the views look", ["attention"],
            lambda report: report["attention"], _attention,
            good="high numbers off the diagonal: the views read different parts of the text",
            bad="numbers near 0 throughout: they read the same, and will say the same",
            source=lambda report: "KL divergence of the last layer's attention, in nats (CAMVR, eq. 14), over "
            f"{counted(report['attention']['documents'], 'document')}; mean {decimal(report['attention']['mean'])}",
        ),
        Card(
            "Gradient weight of a view, by rank", ["gradient"], lambda report: report["gradient"], _gradient,
            good="the best view leads and the next ones still get some: training separates views, starving none",
            bad="the best one gets all (1), or all get the same: the rest learns nothing, or nothing of their own",
            source=lambda report: f"r(c_j), DRPQ eq. 11, at temperature {report['gradient']['temperature']:g}, "
            f"mean over {counted(report['gradient']['pairs'], 'pair')}",
        ),
    ),
    "Do they hold the answers?": (
        Card(
            "Answers found, and held by winning view and citation", ["recall.answer", "recall"],
            lambda report: report["recall"] if report["recall"] and report["recall"]["answer"] else None, _answers,
            good="the second bar is nearly as high as the first: documents are found by the snippet that answers",
            bad="it is far lower: they are found by context, and a snippet shown to a reader would mislead",
            source="answer accuracy as in DPR; answer-view accuracy, CAMVR eq. 15",
        ),
    ),
    "From close by": (
        Card(
            "Documents and their questions", ["maps"], lambda report: report["maps"], lambda data, _: maps(data),
            good="the views lie apart and questions are tied to different ones",
            bad="the views lie on one spot, or all ties lead to one view",
            source="the two main directions of the document's views and questions (principal components)",
            is_wide=True,
        ),
        Card(
            "Hardest questions", ["hardest"], lambda report: report["hardest"], lambda data, _: hardest_questions(data),
            good="what was retrieved answers as well, or the relevant snippet lost by little",
            bad="the winning snippet has nothing to do with the question, or the relevant span is cut in an odd place",
            source="the questions whose relevant document ranks lowest; tags are slots, the highlighted span won",
            is_wide=True,
            empty="every question has its document at rank 1",
        ),
    ),
}  # fmt: skip
