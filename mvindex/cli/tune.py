"""The command `mvindex tune`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from mvindex.cli.maintenance import is_served, refuse_options, run_job
from mvindex.cli.options import (
    QUESTIONS,
    IndexOption,
    JsonOption,
    Output,
    OutputOption,
    QuestionFormatOption,
    ThreadsOption,
    is_on_command_line,
    note,
    open_chosen_local,
    option,
    parse_question_format,
    print_report,
    print_rows,
    switch,
)
from mvindex.cli.terminal import print_json

if TYPE_CHECKING:
    from mvindex.index import IndexProtocol
    from mvindex.search.tuning import FusionReport, TunePoint, TuneReport


def tune(  # noqa: PLR0913 - each option is a flag of the command
    ctx: typer.Context,
    target_recall: Annotated[float, option("Find this share of the exact top-k.")] = 0.98,
    queries: Annotated[
        str | None,
        option(
            "Measure with these questions, or vectors as .npy of shape (q, d) (default: views of the index).",
            QUESTIONS,
            "FILE",
        ),
    ] = None,
    top_k: Annotated[int, option("Measure results of so many documents.", names=("--top-k", "-k"))] = 10,
    index: IndexOption = None,
    format: QuestionFormatOption = None,
    plot: Annotated[
        Path | None, option("Plot recall against time (PNG, SVG or PDF; needs matplotlib).", metavar="FILE")
    ] = None,
    fusion: Annotated[bool, switch("--fusion", "Tune the fusion of hybrid search by nDCG instead.")] = False,
    confidence: Annotated[
        str | None,
        option(
            "Fit hit.confidence on these questions instead; one without a passage_id has no answer.", QUESTIONS, "FILE"
        ),
    ] = None,
    set_: Annotated[
        list[str] | None,
        option(
            "With --fusion: set method, weights, depth, constant, k1 or b without measuring; the rest is as in a "
            "new index. Repeatable.",
            metavar="NAME=VALUE",
            names=("--set",),
        ),
    ] = None,
    qrels: Annotated[
        str | None,
        option(
            "Judge --fusion or --confidence by these, BEIR or TREC (default: passage_id of the questions).",
            QUESTIONS,
            "FILE",
        ),
    ] = None,
    time_limit_s: Annotated[
        float, option("Seconds after which no further setting is measured.", names=("--time-limit",))
    ] = 1800.0,
    threads: ThreadsOption = None,
    output: OutputOption = Output.TABLE,
    as_json: JsonOption = False,
) -> None:
    """Measure the search parameters of an approximate engine, and save the fastest that reach the target recall.

    Recall is measured against exact results. Exit 1 without a change when no setting reaches the target.

    Example: mvindex tune --target-recall 0.97 --queries questions.jsonl --top-k 100 --plot tune.png

    Example: mvindex tune --fusion --queries questions.jsonl --qrels qrels/dev.tsv

    Example: mvindex tune --fusion --set method=rrf --set constant=20 --set k1=0.9 --set b=0.4

    Example: mvindex tune --confidence questions.jsonl
    """
    from mvindex.cli.progress import show_step_progress
    from mvindex.store.protocol import Operation

    # Of an approximate engine's parameters only.
    engine: dict[str, object] = {
        "--plot": plot,
        "--target-recall": is_on_command_line(ctx, "target_recall"),
        "--time-limit": is_on_command_line(ctx, "time_limit_s"),
    }
    is_job = index is not None and is_served(index)
    if is_job:
        refuse_options({"--fusion": fusion, "--set": set_, "--qrels": qrels, "--confidence": confidence})
    if confidence is not None:
        others: dict[str, object] = {
            "--fusion": fusion,
            "--queries": queries,
            "--set": set_,
            "--top-k": is_on_command_line(ctx, "top_k"),
        }
        _check_confidence_options(confidence, others | engine)
        _tune_confidence(index, confidence, format, qrels, output)
        return
    if set_:
        if not fusion or queries is not None or qrels is not None:
            raise typer.BadParameter("--set: belongs to --fusion, without --queries and --qrels")
        _set_fusion(index, set_, output)
        return
    if fusion or qrels is not None:
        _check_fusion_options(fusion, queries, engine)
    if format is not None and queries is None:
        raise typer.BadParameter(f"--format {format}: belongs to --queries FILE")
    if plot is not None:
        _check_plot(plot)
    settings: dict[str, Any] = {"top_k": top_k, "target_recall": target_recall, "time_limit_s": time_limit_s}
    if index is not None and is_job:
        _report(_tuned_by_job(index, queries, format, settings), output, plot)
        return
    with open_chosen_local(index) as target:
        target.capabilities.check(Operation.LEXICAL if fusion else Operation.TUNE, target.where)
        if fusion:
            judged = _read_judged(queries or "", format, qrels)
            with show_step_progress() as on_progress:
                report_of_fusion = target.admin.tune_fusion(
                    judged.texts, judged.relevant, top_k=top_k, on_progress=on_progress
                )
            _print_fusion(report_of_fusion, judged.num_unjudged, output)
            return
        vectors = None if queries is None else _query_vectors(target, queries, format)
        with show_step_progress() as on_progress:
            report = target.admin.tune(vectors, **settings, on_progress=on_progress)
    _report(report, output, plot)


def _tuned_by_job(place: str, queries: str | None, format: str | None, settings: Mapping[str, Any]) -> TuneReport:
    """Return the report of a job of the server; settings: those of Index.tune()."""
    from mvindex.index.factory import open_index
    from mvindex.search.tuning import TunePoint, TuneReport

    vectors = None
    if queries is not None:
        with open_index(place) as target:
            vectors = _query_vectors(target, queries, format)
    found = dict(run_job(place, lambda admin: admin.tune(vectors, **settings)))
    points = tuple(TunePoint(**point) for point in found.pop("points"))
    chosen = found.pop("chosen")
    return TuneReport(**found, points=points, chosen=None if chosen is None else TunePoint(**chosen))


def _report(report: TuneReport, output: Output, plot: Path | None) -> None:
    """Print and plot the report; raise ConfigError where no setting was chosen."""
    from mvindex.errors import ConfigError

    _print_report(report, output)
    if plot is not None:
        _plot(report, plot)
    if not report.points:
        raise ConfigError("--time-limit: no setting was measured within it; nothing was changed")
    if report.chosen is None:
        best = max(report.points, key=lambda point: point.recall)
        raise ConfigError(
            f"no setting reaches recall {report.target_recall}: the best, {_describe(best)}, has {best.recall:.4f}; "
            "nothing was changed. Build an engine with more precise codes (ivf-sq8, ivf-flat), or lower --target-recall"
        )


def _check_fusion_options(fusion: bool, queries: str | None, others: Mapping[str, object]) -> None:
    """Check that --fusion has the options it needs, and no others."""
    if not fusion:
        raise typer.BadParameter("--qrels: belongs to --fusion")
    for name, value in others.items():
        if value:
            raise typer.BadParameter(f"{name}: does not belong to --fusion")
    if queries is None or queries.endswith(".npy"):
        raise typer.BadParameter("--fusion: expected --queries FILE with texts, as lexical search needs them")


def _check_confidence_options(file: str, others: Mapping[str, object]) -> None:
    """Check that --confidence stands alone, and names texts."""
    for name, value in others.items():
        if value:
            raise typer.BadParameter(f"{name}: does not belong to --confidence")
    if file.endswith(".npy"):
        raise typer.BadParameter("--confidence: expected a FILE of questions, got vectors")


def _tune_confidence(path: str | None, file: str, format: str | None, qrels: str | None, output: Output) -> None:
    """Fit the confidences of an index, and print how good they are."""
    from mvindex.cli.progress import show_step_progress
    from mvindex.store.protocol import Operation

    with open_chosen_local(path) as target:
        target.capabilities.check(Operation.TUNE, target.where)
        judged = _read_judged(file, format, qrels, with_unjudged=True)
        with show_step_progress() as on_progress:
            report = target.admin.tune_confidence(judged.texts, judged.relevant, on_progress=on_progress)
    if output is Output.JSON:
        from dataclasses import asdict

        print_json(asdict(report))
        return
    title = f"{report.answerable} questions with an answer, {report.unanswerable} without; cross-validated"
    header = ("mode", "AUROC", "calibration error", "refused at 95 % kept")
    rows = [
        (each.mode, f"{each.auroc:.3f}", f"{each.calibration_error:.3f}", f"{each.refused:.3f}")
        for each in report.points
    ]
    print_rows(title, header, rows, output)


def _set_fusion(path: str | None, values: list[str], output: Output) -> None:
    """Set the fusion of an index to these values."""
    options = dict(_parse_setting(value) for value in values)
    method, weights = options.pop("method", None), options.pop("weights", None)
    with open_chosen_local(path) as target:
        target.admin.set_hybrid_weights(method, weights, **options)
        setting = target.fusion.as_setting()
    print_report("fusion", setting if output is Output.TABLE else {"fusion": setting}, output)


def _parse_setting(text: str) -> tuple[str, Any]:
    """Return the name and the value of NAME=VALUE."""
    name, sign, value = text.partition("=")
    if not sign:
        raise typer.BadParameter(f"--set {text}: expected NAME=VALUE")
    if name == "method":
        return name, value
    if name == "weights":
        return name, value.split(",")
    try:
        return name, int(value) if name == "depth" else float(value)
    except ValueError as err:
        raise typer.BadParameter(f"--set {text}: expected a number, got {value!r}") from err


class _JudgedQuestions(NamedTuple):
    """Questions with the gain of each relevant document by id.

    num_unjudged is the number of questions without any, which are left out unless they are asked for.
    """

    texts: list[str]
    relevant: list[Mapping[str, float]]
    num_unjudged: int


def _read_judged(file: str, format: str | None, qrels: str | None, *, with_unjudged: bool = False) -> _JudgedQuestions:
    """Read questions and their judgements; with_unjudged: also those without a relevant document."""
    from mvindex.measure.questions import read_qrels, read_questions

    questions = list(read_questions([file], parse_question_format(format)))
    judged = None if qrels is None else read_qrels(qrels)
    result = _JudgedQuestions([], [], 0)
    for question in questions:
        gold: Mapping[str, float] = {} if question.passage_id is None else {question.passage_id: 1.0}
        found = gold if judged is None else judged.get(question.id, {})
        if with_unjudged or any(gain > 0 for gain in found.values()):
            result.texts.append(question.text)
            result.relevant.append(found)
    return result._replace(num_unjudged=len(questions) - len(result.texts))


def _print_fusion(report: FusionReport, unjudged: int, output: Output) -> None:
    from dataclasses import asdict

    if output is Output.JSON:
        print_json(asdict(report) | {"unjudged": unjudged})
        return
    singles = [next((point for point in report.points if not point.weights[place]), None) for place in (0, 1)]
    shown = [*report.points[:5], *(point for point in singles if point is not None and point not in report.points[:5])]
    rows = [("-> " if point == report.chosen else "", point) for point in shown] + [("before: ", report.current)]
    header = ("fusion", "dense", "lexical", "depth", "k1", "b", f"nDCG@{report.top_k}")
    table = [
        (
            mark + (f"rrf {point.constant:g}" if point.method == "rrf" else point.method),
            *(f"{number:g}" for number in (*point.weights, point.depth, point.k1, point.b)),
            f"{point.ndcg:.4f}",
        )
        for mark, point in rows
    ]
    title = f"{report.questions} judged questions: the best fusions, and dense and lexical search"
    print_rows(title, header, table, output)
    measured = (
        f"cross-validated: {report.held_out:.4f}, a gain of {report.gain:+.4f} (standard error {report.error:.4f})"
    )
    note(measured if report.chosen else f"{measured}; nothing was changed")
    if unjudged:
        note(f"{unjudged} questions without a relevant document are left out")
    if report.missing:
        note(f"{report.missing} questions have no relevant document among the candidates; they count as 0")


def _query_vectors(index: IndexProtocol, file: str, format: str | None) -> Any:
    """Return the vectors of a .npy file, or of encoded questions."""
    if file.endswith(".npy"):
        return _read_vectors(Path(file))
    from mvindex.measure.questions import read_questions

    texts = [question.text for question in read_questions([file], parse_question_format(format))]
    return index.encode_queries(texts)


def _read_vectors(path: Path) -> Any:
    """Return the vectors of a .npy file, (q, d), without unpickling; raise ConfigError for anything else."""
    import numpy as np

    from mvindex.errors import ConfigError

    try:
        vectors = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError) as err:
        raise ConfigError(f"{path}: expected vectors in NumPy format: {err}") from err
    if not isinstance(vectors, np.ndarray) or vectors.ndim != 2 or vectors.dtype.kind != "f":
        raise ConfigError(f"{path}: expected floating-point vectors of shape (q, d)")
    return vectors


def _print_report(report: TuneReport, output: Output) -> None:
    from dataclasses import asdict

    if output is Output.JSON:
        print_json(asdict(report) | {"frontier": [asdict(point) for point in report.frontier]})
        return
    header = ("setting", f"recall@{report.top_k}", ">= (95 %)", "ms (single query)", "ms (batch)", "documents scored")
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
    exact_ms = "" if report.exact_ms is None else f"{report.exact_ms:.2f}"
    rows.append(("exact scan", "1.0000", "1.0000", exact_ms, f"{report.exact_ms_batch:.2f}", ""))
    title = f"{report.kind}, {report.queries} queries, target recall {report.target_recall}: the fastest settings"
    print_rows(title, header, rows, output)
    for reason, count in report.unmeasured.items():
        note(f"not measured: {count} settings ({reason})")
    if report.are_own_views:
        note("the queries were views of the index, which are easier to find than questions; give --queries FILE")


def _describe(point: TunePoint) -> str:
    return " ".join(f"{name} {value}" for name, value in point.search.items() if name != "top_k")


def _check_plot(path: Path) -> None:
    from mvindex.plugins import require

    if path.suffix not in (".png", ".svg", ".pdf"):
        raise typer.BadParameter(f"--plot: expected a name that ends in .png, .svg or .pdf, got {str(path)!r}")
    require("matplotlib", "reports", "--plot")


def _plot(report: TuneReport, path: Path) -> None:
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 4.5), layout="constrained")
    axes.scatter([p.ms for p in report.points], [p.recall for p in report.points], s=14, color="0.7", label="measured")
    frontier = report.frontier
    axes.plot([p.ms for p in frontier], [p.recall for p in frontier], "o-", color="tab:blue", label="frontier")
    axes.plot(report.exact_ms or report.exact_ms_batch, 1.0, "D", color="black", label="exact scan")
    axes.axhline(report.target_recall, color="tab:red", linewidth=0.8, linestyle="--", label="target")
    if report.chosen is not None:
        chosen = report.chosen
        axes.annotate(_describe(chosen), (chosen.ms, chosen.recall), textcoords="offset points", xytext=(8, -12))
    axes.set(xscale="log", xlabel="ms per query (single queries)", ylabel=f"recall@{report.top_k} of documents")
    axes.set_title(f"{report.kind}, {report.queries} queries")
    axes.legend(loc="lower right")
    figure.savefig(path, dpi=150)
    plt.close(figure)
