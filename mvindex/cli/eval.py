"""The command `mvindex eval`."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import asdict, replace
from typing import Annotated, Any

import typer

from mvindex.cli.compare import MeasureOption, print_comparison
from mvindex.cli.options import (
    QUESTION_BATCH,
    QUESTIONS,
    CandidatesOption,
    DeviceOption,
    ExactOption,
    FilterOption,
    ForceRunOption,
    FusionOption,
    HybridOption,
    IndexOption,
    ModeOption,
    OperatorsOption,
    PartialOption,
    QuestionFormatOption,
    RerankDepthOption,
    RerankOnOption,
    RerankOption,
    ScoringOption,
    SplitOption,
    TemperatureOption,
    ThreadsOption,
    TrecOption,
    WeightsOption,
    find_judged_files,
    open_chosen,
    parse_cutoffs,
    parse_question_format,
    parse_rerank_options,
    parse_search_options,
    split_batches,
)
from mvindex.cli.output import JsonOption, Output, OutputOption, print_report


def evaluate(  # noqa: PLR0913 - each option is a flag of the command
    questions: Annotated[
        list[str],
        typer.Option(
            metavar="FILE",
            help="Take the questions from JSONL, DPR, BEIR queries or id<TAB>text; or a BEIR folder, or "
            "ir_datasets:NAME. May be repeated.",
            rich_help_panel=QUESTIONS,
        ),
    ],
    index: IndexOption = None,
    format: QuestionFormatOption = None,
    at: Annotated[
        str, typer.Option(metavar="K,...", help="Measure R@k at these k.", rich_help_panel=QUESTIONS)
    ] = "1,5,20,100",
    qrels: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Read relevance judgements, BEIR or TREC: adds nDCG@10, MRR@10 and recall.",
            rich_help_panel=QUESTIONS,
        ),
    ] = None,
    split: SplitOption = None,
    compare: Annotated[
        list[str] | None,
        typer.Option(
            metavar="RUN",
            help="Compare with this TREC run file by nDCG@10 or --measure; needs judgements. May be repeated.",
            rich_help_panel=QUESTIONS,
        ),
    ] = None,
    measure: MeasureOption = None,
    regex: Annotated[
        bool,
        typer.Option("--regex", help="Read answers as regular expressions (CuratedTREC).", rich_help_panel=QUESTIONS),
    ] = False,
    citations: Annotated[
        bool,
        typer.Option(
            "--citations",
            help="Also measure how often what a hit cites holds an answer.",
            rich_help_panel=QUESTIONS,
        ),
    ] = False,
    filter_json: FilterOption = None,
    scoring: ScoringOption = "max",
    temperature: TemperatureOption = None,
    candidates: CandidatesOption = None,
    mode: ModeOption = "auto",
    hybrid: HybridOption = False,
    fusion: FusionOption = None,
    weights: WeightsOption = None,
    operators: OperatorsOption = False,
    rerank: RerankOption = None,
    rerank_on: RerankOnOption = None,
    rerank_depth: RerankDepthOption = None,
    exact: ExactOption = False,
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
    """
    from mvindex.cli.progress import show_count_progress
    from mvindex.measure.compare import read_run
    from mvindex.measure.metrics import Evaluation
    from mvindex.measure.questions import read_qrels, read_questions
    from mvindex.measure.run_files import open_run

    options = parse_search_options(
        filter_json=filter_json,
        scoring=scoring,
        temperature=temperature,
        candidates=candidates,
        exact=exact,
        mode=mode,
        hybrid=hybrid,
        fusion=fusion,
        weights=weights,
        operators=operators,
    )
    reranking = parse_rerank_options(rerank, rerank_on, rerank_depth)
    cutoffs, question_format = parse_cutoffs(at), parse_question_format(format)
    questions, qrels = find_judged_files(questions, qrels, split)
    judged = read_qrels(qrels) if qrels else None
    _check_judged({"--compare": compare, "--measure": measure}, judged is not None)
    others = {path: read_run(path) for path in compare or ()}
    from mvindex.cli.search import Searcher, describe_search

    with (
        open_chosen(index, device, allow_partial=allow_partial) as target,
        open_run(trec, force=force) if trec else nullcontext() as run,
    ):
        # Without a shard, its documents would look like gold documents that the index does not have.
        documents = None if target.missing_shards else target
        measures = [f"R@{cutoff}" for cutoff in cutoffs] + (measure or [])
        evaluation = Evaluation(cutoffs, judged, regex, documents, citations=citations, measures=measures)
        options = replace(options, top_k=evaluation.needed_depth)
        own: dict[str, list[str]] = {}
        searcher, named = Searcher(target, options, reranking, device), describe_search(target, options, reranking)
        with show_count_progress("questions", None) as advance:
            for batch in split_batches(read_questions(questions, question_format), QUESTION_BATCH):
                results = searcher.search([question.text for question in batch])
                for question, result in zip(batch, results, strict=True):
                    evaluation.add(question, result)
                    if others:
                        own[question.id] = [hit.id for hit in result.hits]
                    if run is not None:
                        run.add(question.id, result.hits)
                advance(len(batch))
        missing = list(target.missing_shards)
        report = evaluation.report() | named | ({"missing_shards": missing} if missing else {})
    if not others or judged is None:
        _print_report(report, output)
        return
    from mvindex.measure.compare import DEFAULT_MEASURES, compare_runs

    compared = compare_runs({**others, "this": own}, judged, measure or DEFAULT_MEASURES)
    if output is not Output.TABLE:
        print_report("", report | {"compared": asdict(compared)}, output)
        return
    _print_report(report, output)
    print_comparison(compared, output)


def _check_judged(options: Mapping[str, object], is_judged: bool) -> None:
    """Check that there are judgements where options need them."""
    for name, value in options.items():
        if value and not is_judged:
            raise typer.BadParameter(f"{name}: needs judgements, --qrels FILE")


def _print_report(report: Mapping[str, Any], output: Output) -> None:
    """Print the report; for people, shares of questions in percent and other measures as numbers."""
    if output is not Output.TABLE:
        print_report("", report, output)
        return
    for section in ("gold", "answer", "citations", "gold_citations", "qrels"):
        if section in report:
            shown = {name: _shown_measure(section, name, value) for name, value in report[section].items()}
            print_report(f"{section.replace('_', ' ')} ({report['counts'][section]:,} questions)", shown, output)
            typer.echo()
    print_report("evaluation", {name: value for name, value in report.items() if not isinstance(value, dict)}, output)


def _shown_measure(section: str, name: str, value: float) -> str:
    return f"{value:.4f}" if section == "qrels" and not name.startswith("R@") else f"{100 * value:.2f} %"
