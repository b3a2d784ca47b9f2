"""`mvindex tune`: how the active engine is searched, by measurement."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mvindex.cli.options import IndexOption, JsonOption, QuestionFormatOption, note, open_chosen_local, question_format

if TYPE_CHECKING:
    from mvindex.index import Index
    from mvindex.tuning import FusionReport, TunePoint, TuneReport


def tune(  # noqa: PLR0913 - each option is a flag of the command
    target_recall: Annotated[float, typer.Option(help="The share of the exact top_k that should be found.")] = 0.97,
    queries: Annotated[
        str | None, typer.Option(help="Questions, or vectors as .npy (q, d); views of the index without them.")
    ] = None,
    top_k: Annotated[int, typer.Option("--top-k", "-k", help="Documents of an answer.")] = 10,
    index: IndexOption = None,
    format: QuestionFormatOption = None,
    plot: Annotated[
        Path | None, typer.Option(help="Draw recall against time (PNG, SVG or PDF; needs matplotlib).")
    ] = None,
    fusion: Annotated[
        bool,
        typer.Option("--fusion", help="Instead: choose the fusion of hybrid search by nDCG."),
    ] = False,
    qrels: Annotated[
        str | None, typer.Option(help="Of --fusion: judgements, BEIR or TREC; else the questions' passage_id.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Measure how much an approximate engine must look at, and keep the fastest setting that reaches the target.

    Every setting's answers are compared with the exact ones. Exit 1, and nothing is changed, when none reaches it.

    Example: mvindex tune --target-recall 0.97 --queries questions.jsonl --top-k 100 --plot tune.png

    Example: mvindex tune --fusion --queries questions.jsonl --qrels qrels/dev.tsv
    """
    from mvindex.cli import render as display
    from mvindex.errors import ConfigError

    if fusion or qrels is not None:
        _check_fusion(fusion, queries, {"--plot": plot})
    if format is not None and queries is None:
        raise typer.BadParameter(f"--format {format}: belongs to --queries FILE")
    if plot is not None:
        _check_plot(plot)
    with open_chosen_local(index) as target:
        if fusion:
            texts, relevant, unjudged = _read_judged(queries or "", format, qrels)
            with display.step_progress() as on_progress:
                fused = target.tune_fusion(texts, relevant, top_k=top_k, on_progress=on_progress)
            _print_fusion(fused, unjudged, as_json)
            return
        vectors = None if queries is None else _vectors(target, queries, format)
        with display.step_progress() as on_progress:
            report = target.tune(vectors, top_k=top_k, target_recall=target_recall, on_progress=on_progress)
    _print_report(report, as_json)
    if plot is not None:
        _draw(report, plot)
    if report.chosen is None:
        best = max(report.points, key=lambda point: point.recall)
        raise ConfigError(
            f"no setting reaches recall {target_recall}: the best, {_describe(best)}, has {best.recall:.4f}; nothing "
            "was changed. Build with more precise codes (ivf-sq8, ivf-flat), or lower the target"
        )


def _check_fusion(is_fusion: bool, queries: str | None, others: Mapping[str, object]) -> None:
    """Check that --fusion has what it needs, and no option of another measurement."""
    if not is_fusion:
        raise typer.BadParameter("--qrels: belongs to --fusion")
    for option, value in others.items():
        if value is not None:
            raise typer.BadParameter(f"{option}: belongs to another measurement than --fusion")
    if queries is None or queries.endswith(".npy"):
        raise typer.BadParameter("--fusion: expected --queries FILE with texts, for lexical search")


def _read_judged(file: str, format: str | None, qrels: str | None) -> tuple[list[str], list[Mapping[str, float]], int]:
    """Return the questions with a relevant document, the gains of documents for each, and the number of others."""
    from mvindex.eval.questions import read_qrels, read_questions

    questions = list(read_questions([file], question_format(format)))
    judged = None if qrels is None else read_qrels(qrels)
    texts, relevant = [], []
    for question in questions:
        gold: Mapping[str, float] = {} if question.passage_id is None else {question.passage_id: 1.0}
        found = gold if judged is None else judged.get(question.id, {})
        if any(gain > 0 for gain in found.values()):
            texts.append(question.text)
            relevant.append(found)
    return texts, relevant, len(questions) - len(texts)


def _print_fusion(report: FusionReport, unjudged: int, as_json: bool) -> None:
    from dataclasses import asdict

    from mvindex.cli import render as display

    if as_json:
        display.print_json(asdict(report) | {"unjudged": unjudged})
        return
    shown = [*report.points[:5], *(point for point in report.points[5:] if not all(point.weights))]
    rows = [("-> " if point == report.chosen else "", point) for point in shown] + [("before: ", report.current)]
    header = ("fusion", "dense", "lexical", f"nDCG@{report.top_k}")
    table = [
        (mark + point.method, f"{point.weights[0]:g}", f"{point.weights[1]:g}", f"{point.ndcg:.4f}")
        for mark, point in rows
    ]
    display.print_grid(f"{report.questions} judged questions: the best, and each side by itself", header, table)
    summary = (
        f"chosen without the question itself: {report.held_out:.4f}, {report.gain:+.4f} (error {report.error:.4f})"
    )
    note(summary if report.chosen else f"{summary}: no gain, so nothing was changed")
    for count, what in ((unjudged, "without a relevant document are left out"),
                        (report.missing, "have none of theirs among what was found: they count 0")):  # fmt: skip
        if count:
            note(f"{count} questions {what}")


def _vectors(index: Index, file: str, format: str | None) -> Any:
    if file.endswith(".npy"):
        return _read_vectors(Path(file))
    from mvindex.eval.questions import read_questions

    texts = [question.text for question in read_questions([file], question_format(format))]
    return index.encode_queries(texts)


def _read_vectors(path: Path) -> Any:
    """Return the vectors of a file, (q, d); raise ConfigError for anything else. No pickle is loaded."""
    import numpy as np

    from mvindex.errors import ConfigError

    try:
        vectors = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError) as err:
        raise ConfigError(f"{path}: no vectors can be read from it: {err}") from err
    if not isinstance(vectors, np.ndarray) or vectors.ndim != 2 or vectors.dtype.kind != "f":
        raise ConfigError(f"{path}: expected vectors, (q, d) of a float type")
    return vectors


def _print_report(report: TuneReport, as_json: bool) -> None:
    from dataclasses import asdict

    from mvindex.cli import render as display

    if as_json:
        display.print_json(asdict(report) | {"frontier": [asdict(point) for point in report.frontier]})
        return
    header = ("setting", f"recall@{report.top_k}", ">= (95 %)", "ms latency", "ms in batch", "scored")
    rows = [
        (
            ("-> " if point == report.chosen else "") + _describe(point),
            f"{point.recall:.4f}",
            f"{point.low:.4f}",
            f"{point.ms:.2f}",
            f"{point.ms_batch:.2f}",
            f"{point.documents_scored:.0f}",
        )
        for point in report.frontier
    ]
    rows.append(("certified scan", "1.0000", "1.0000", f"{report.exact_ms:.2f}", f"{report.exact_ms_batch:.2f}", ""))
    title = f"{report.kind}, {report.queries} queries, target {report.target_recall}: the frontier"
    display.print_grid(title, header, rows)
    _note_own_views(report.are_own_views)


def _note_own_views(are_own_views: bool) -> None:
    if are_own_views:
        note("the queries were views of the index, which are easier to find than questions: give --queries FILE")


def _describe(point: TunePoint) -> str:
    return " ".join(f"{name} {value}" for name, value in point.search.items())


def _check_plot(path: Path) -> None:
    from mvindex.plugins import require

    if path.suffix not in (".png", ".svg", ".pdf"):
        raise typer.BadParameter(f"--plot {path}: expected a name that ends in .png, .svg or .pdf")
    require("matplotlib", "plot", "--plot")


def _draw(report: TuneReport, path: Path) -> None:
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 4.5), layout="constrained")
    axes.scatter([p.ms for p in report.points], [p.recall for p in report.points], s=14, color="0.7", label="measured")
    frontier = report.frontier
    axes.plot([p.ms for p in frontier], [p.recall for p in frontier], "o-", color="tab:blue", label="frontier")
    axes.plot(report.exact_ms, 1.0, "D", color="black", label="certified scan")
    axes.axhline(report.target_recall, color="tab:red", linewidth=0.8, linestyle="--", label="target")
    if report.chosen is not None:
        chosen = report.chosen
        axes.annotate(_describe(chosen), (chosen.ms, chosen.recall), textcoords="offset points", xytext=(8, -12))
    axes.set(xscale="log", xlabel="ms a query, one at a time", ylabel=f"recall@{report.top_k} of documents")
    axes.set_title(f"{report.kind}, {report.queries} queries")
    axes.legend(loc="lower right")
    figure.savefig(path, dpi=150)
    plt.close(figure)
