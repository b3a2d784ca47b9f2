"""`mvindex tune`: how the active engine is searched, by measurement."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mvindex.cli.options import IndexOption, JsonOption, QuestionFormatOption, note, open_chosen, question_format

if TYPE_CHECKING:
    from mvindex.index import Index
    from mvindex.tuning import PruneReport, TunePoint, TuneReport


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
    prune_budget: Annotated[
        float | None,
        typer.Option(help="Instead: choose how many near-duplicate views a build may leave out, for so much recall."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Measure how much an approximate engine must look at, and keep the fastest setting that reaches the target.

    Every setting's answers are compared with the exact ones. Exit 1, and nothing is changed, when none reaches it.

    Example: mvindex tune --target-recall 0.97 --queries questions.jsonl --top-k 100 --plot tune.png

    Example: mvindex tune --prune-budget 0.005 --queries questions.jsonl
    """
    from mvindex import display
    from mvindex.errors import ConfigError

    if format is not None and queries is None:
        raise typer.BadParameter(f"--format {format}: belongs to --queries FILE")
    if plot is not None and prune_budget is not None:
        raise typer.BadParameter("--plot: draws the frontier of a search, which --prune-budget does not measure")
    if plot is not None:
        _check_plot(plot)
    with open_chosen(index, None) as target:
        vectors = None if queries is None else _vectors(target, queries, format)
        if prune_budget is not None:
            with display.step_progress() as told:
                pruning = target.tune_pruning(vectors, top_k=top_k, budget=prune_budget, on_progress=told)
            _print_pruning(pruning, target.info().kind, as_json)
            return
        with display.step_progress() as told:
            report = target.tune(vectors, top_k=top_k, target_recall=target_recall, on_progress=told)
    _print_report(report, as_json)
    if plot is not None:
        _draw(report, plot)
    if report.chosen is None:
        best = max(report.points, key=lambda point: point.recall)
        raise ConfigError(
            f"no setting reaches recall {target_recall}: the best, {_named(best)}, has {best.recall:.4f}; nothing was "
            "changed. Build with more precise codes (ivf-sq8, ivf-flat), or lower the target"
        )


def _vectors(index: Index, file: str, format: str | None) -> Any:
    if file.endswith(".npy"):
        return _read_vectors(Path(file))
    from mvindex.questions import read_questions

    texts = [question.text for question in read_questions([file], question_format(format))]
    return index.encode_queries(texts)


def _read_vectors(path: Path) -> Any:
    """The vectors of a file, (q, d); ConfigError for anything else. Nothing is unpickled."""
    import numpy as np

    from mvindex.errors import ConfigError

    try:
        vectors = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError) as err:
        raise ConfigError(f"{path}: no vectors can be read from it: {err}") from err
    if not isinstance(vectors, np.ndarray) or vectors.ndim != 2 or vectors.dtype.kind != "f":
        raise ConfigError(f"{path}: wanted vectors, (q, d) of a float type")
    return vectors


def _print_report(report: TuneReport, as_json: bool) -> None:
    from dataclasses import asdict

    from mvindex import display

    if as_json:
        display.print_json(asdict(report) | {"frontier": [asdict(point) for point in report.frontier]})
        return
    header = ("setting", f"recall@{report.top_k}", ">= (95 %)", "ms alone", "in batch", "scored")
    rows = [
        (
            ("-> " if point == report.chosen else "") + _named(point),
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


def _print_pruning(report: PruneReport, kind: str, as_json: bool) -> None:
    from dataclasses import asdict

    from mvindex import display

    if as_json:
        display.print_json(asdict(report))
        return
    header = ("prune_views", "views kept", f"recall@{report.top_k} at least")
    rows = [("all views", "1.0000", "1.0000")]
    for point in report.points:
        mark = "-> " if point == report.chosen else ""
        rows.append((f"{mark}{point.prune_views:g}", f"{point.kept:.4f}", f"{point.recall:.4f}"))
    display.print_grid(f"{report.queries} queries, budget {report.budget:g}: by the views kept alone", header, rows)
    _note_own_views(report.are_own_views)
    if report.chosen is None:
        note("no distance that would leave views out is within the budget: build with all views")
        return
    built = kind if kind != "exact" else "ivf-pq"
    note(f"leave them out by: mvindex build --kind {built} --prune-views {report.chosen.prune_views:g}")


def _note_own_views(are_own_views: bool) -> None:
    if are_own_views:
        note("the queries were views of the index, which are easier to find than questions: give --queries FILE")


def _named(point: TunePoint) -> str:
    return " ".join(f"{name} {value}" for name, value in point.search.items())


def _check_plot(path: Path) -> None:
    from mvindex.extras import require

    if path.suffix not in (".png", ".svg", ".pdf"):
        raise typer.BadParameter(f"--plot {path}: wanted a name that ends in .png, .svg or .pdf")
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
        axes.annotate(_named(chosen), (chosen.ms, chosen.recall), textcoords="offset points", xytext=(8, -12))
    axes.set(xscale="log", xlabel="ms a query, one at a time", ylabel=f"recall@{report.top_k} of documents")
    axes.set_title(f"{report.kind}, {report.queries} queries")
    axes.legend(loc="lower right")
    figure.savefig(path, dpi=150)
    plt.close(figure)
