"""The command `mvindex eval`."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mvindex.cli.compare import MeasureOption, print_comparison
from mvindex.cli.flags import RerankFlags, SearchFlags
from mvindex.cli.gate import REFUSED, SECTIONS, Gate, append_summary, parse_thresholds
from mvindex.cli.options import (
    QUESTION_BATCH,
    QUESTIONS,
    DeviceOption,
    ForceRunOption,
    IndexOption,
    PartialOption,
    QuestionFormatOption,
    SplitOption,
    ThreadsOption,
    TrecOption,
    find_judged_files,
    open_chosen,
    parse_cutoffs,
    parse_question_format,
    split_batches,
)
from mvindex.cli.output import JsonOption, Output, OutputOption, option, print_report
from mvindex.errors import ConfigError

if TYPE_CHECKING:
    from mvindex.measure.compare import RunReport

GATE = "Gate"


def evaluate(  # noqa: PLR0913 - each option is a flag of the command
    questions: Annotated[
        list[str],
        option(
            "Take the questions from JSONL, DPR, BEIR queries or id<TAB>text; or a BEIR folder, or "
            "ir_datasets:NAME. May be repeated.",
            QUESTIONS,
            "FILE",
        ),
    ],
    index: IndexOption = None,
    *,
    format: QuestionFormatOption = None,
    at: Annotated[str, option("Measure R@k at these k.", QUESTIONS, "K,...")] = "1,5,20,100",
    qrels: Annotated[
        str | None,
        option("Read relevance judgements, BEIR or TREC: adds nDCG@10, MRR@10 and recall.", QUESTIONS, "FILE"),
    ] = None,
    split: SplitOption = None,
    compare: Annotated[
        list[str] | None,
        option(
            "Compare with this TREC run file by nDCG@10 or --measure; needs judgements. May be repeated.",
            QUESTIONS,
            "RUN",
        ),
    ] = None,
    measure: MeasureOption = None,
    regex: Annotated[
        bool, option("Read answers as regular expressions (CuratedTREC).", QUESTIONS, names=("--regex",))
    ] = False,
    citations: Annotated[
        bool, option("Also measure how often what a hit cites holds an answer.", QUESTIONS, names=("--citations",))
    ] = False,
    fail_below: Annotated[
        list[str] | None,
        option(
            "Exit with 3 where a measure is below a value: R@1=.85, gold.R@1=.85, nDCG@10=.4; may be repeated.",
            GATE,
            "MEASURE=VALUE",
        ),
    ] = None,
    baseline: Annotated[
        str | None,
        option(
            "Exit with 3 where the index is worse than this TREC run, --trec of an earlier eval, and that is "
            "hardly chance.",
            GATE,
            "RUN",
        ),
    ] = None,
    summary: Annotated[
        str | None, option("Append the measures as Markdown to this file, such as $GITHUB_STEP_SUMMARY.", GATE, "FILE")
    ] = None,
    search: SearchFlags,
    rerank: RerankFlags,
    trec: TrecOption = None,
    force: ForceRunOption = False,
    allow_partial: PartialOption = False,
    device: DeviceOption = None,
    threads: ThreadsOption = None,
    output: OutputOption = Output.TABLE,
    as_json: JsonOption = False,
) -> None:
    """Measure retrieval quality: recall of gold passages, DPR's answer accuracy, and metrics by judgements.

    What is measured depends on what the files know: passages, answers or judgements.

    Example: mvindex eval --questions questions.jsonl

    Example: mvindex eval --index corpus.mvx --questions queries.jsonl --qrels qrels.tsv --json

    Example: mvindex eval --questions questions.jsonl --fail-below R@1=.85 --baseline main.run
    """
    from mvindex.cli.progress import show_count_progress
    from mvindex.measure.compare import open_run, read_run
    from mvindex.measure.metrics import Evaluation
    from mvindex.measure.questions import read_qrels, read_questions

    request = search.request()
    rerank.check()
    thresholds = parse_thresholds(fail_below or [])
    cutoffs, question_format = parse_cutoffs(at), parse_question_format(format)
    questions, qrels = find_judged_files(questions, qrels, split)
    judged = read_qrels(qrels) if qrels else None
    _check_judged({"--compare": compare, "--measure": measure}, judged is not None)
    others = {path: read_run(path) for path in compare or ()}
    gate = Gate(thresholds=thresholds, baseline=baseline, run=None if baseline is None else read_run(baseline))
    from mvindex.cli.search import Searcher

    with (
        open_chosen(index, device, allow_partial=allow_partial) as target,
        open_run(trec, force=force) if trec else nullcontext() as run,
    ):
        # Without a shard, its documents would look like gold documents that the index does not have.
        documents = None if target.missing_shards else target
        cutoffs = (*cutoffs, *gate.cutoffs)
        measures = [f"R@{cutoff}" for cutoff in cutoffs] + (measure or []) + gate.judged_measures
        evaluation = Evaluation(cutoffs, judged, regex, documents, citations=citations, measures=measures)
        own: dict[str, list[str]] = {}
        gold: dict[str, dict[str, int]] = {}
        searcher = Searcher(target, replace(request, top_k=evaluation.needed_depth), rerank, device)
        with show_count_progress("questions", None) as advance:
            for batch in split_batches(read_questions(questions, question_format), QUESTION_BATCH):
                results = searcher.search([question.text for question in batch])
                for question, result in zip(batch, results, strict=True):
                    evaluation.add(question, result)
                    if question.passage_id is not None:
                        gold[question.id] = {question.passage_id: 1}
                    if others or baseline is not None:
                        own[question.id] = [hit.id for hit in result.hits]
                    if run is not None:
                        run.add(question.id, result.hits)
                advance(len(batch))
        missing = list(target.missing_shards)
        report = evaluation.report() | searcher.described | ({"missing_shards": missing} if missing else {})
    from mvindex.measure.compare import DEFAULT_MEASURES, compare_runs

    compared = None
    if others and judged is not None:
        compared = compare_runs({**others, "this": own}, judged, measure or DEFAULT_MEASURES)
    try:
        verdict = gate.verdict(report, own, gold if judged is None else judged, measure)
    except ConfigError:
        _print_all(report, compared, None, output)  # what was measured is right
        raise
    _print_all(report, compared, verdict.as_json() if gate.is_set else None, output)
    if summary is not None:
        append_summary(summary, report, verdict)
    verdict.show()
    if not verdict.passed:
        raise typer.Exit(REFUSED)


def _check_judged(options: Mapping[str, object], is_judged: bool) -> None:
    """Check that there are judgements where options need them."""
    for name, value in options.items():
        if value and not is_judged:
            raise typer.BadParameter(f"{name}: needs judgements, --qrels FILE")


def _print_all(
    report: Mapping[str, Any], compared: RunReport | None, gate: Mapping[str, Any] | None, output: Output
) -> None:
    """Print the report, the comparison with other runs, and, for programs, the gate."""
    if output is Output.TABLE:
        _print_report(report, output)
        if compared is not None:
            print_comparison(compared, output)
        return
    added = {"compared": None if compared is None else asdict(compared), "gate": gate}
    print_report("", {**report, **{name: value for name, value in added.items() if value is not None}}, output)


def _print_report(report: Mapping[str, Any], output: Output) -> None:
    """Print the report; for people, shares of questions in percent and other measures as numbers."""
    if output is not Output.TABLE:
        print_report("", report, output)
        return
    for section in SECTIONS:
        if section in report:
            shown = {name: _shown_measure(section, name, value) for name, value in report[section].items()}
            print_report(f"{section.replace('_', ' ')} ({report['counts'][section]:,} questions)", shown, output)
            typer.echo()
    print_report("evaluation", {name: value for name, value in report.items() if not isinstance(value, dict)}, output)


def _shown_measure(section: str, name: str, value: float) -> str:
    return f"{value:.4f}" if section == "qrels" and not name.startswith("R@") else f"{100 * value:.2f} %"
