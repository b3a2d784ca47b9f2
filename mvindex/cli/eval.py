"""The command `mvindex eval`."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from mvindex.cli.compare import MeasureOption, print_report
from mvindex.cli.options import (
    QUESTION_BATCH,
    CandidatesOption,
    DeviceOption,
    ExactOption,
    FilterOption,
    ForceRunOption,
    FusionOption,
    HybridOption,
    IndexOption,
    JsonOption,
    ModeOption,
    OperatorsOption,
    PartialOption,
    QuestionFormatOption,
    RerankDepthOption,
    RerankOnOption,
    RerankOption,
    ScoringOption,
    TemperatureOption,
    ThreadsOption,
    TrecOption,
    WeightsOption,
    open_chosen,
    parse_cutoffs,
    parse_question_format,
    parse_rerank_options,
    parse_search_options,
    split_batches,
)


def evaluate(  # noqa: PLR0913 - each option is a flag of the command
    questions: Annotated[
        list[str],
        typer.Option(
            help="Question files: JSONL, DPR, BEIR queries, id<TAB>text; or a BEIR folder, or ir_datasets:NAME."
        ),
    ],
    index: IndexOption = None,
    format: QuestionFormatOption = None,
    at: Annotated[str, typer.Option(help="Cut-offs of R@k.")] = "1,5,20,100",
    qrels: Annotated[
        str | None, typer.Option(help="Relevance judgements, BEIR or TREC: adds nDCG@10, MRR@10 and recall.")
    ] = None,
    split: Annotated[
        str | None, typer.Option(help="Of a BEIR folder: the judgements to use (default: test, or the only ones).")
    ] = None,
    compare: Annotated[
        list[str] | None,
        typer.Option(help="A TREC run file to compare with, by nDCG@10 or --measure; needs judgements. Repeatable."),
    ] = None,
    measure: MeasureOption = None,
    regex: Annotated[bool, typer.Option("--regex", help="Answers are regular expressions (CuratedTREC).")] = False,
    citations: Annotated[
        bool, typer.Option("--citations", help="Also measure how often what a hit cites holds an answer.")
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
    as_json: JsonOption = False,
) -> None:
    """Measure retrieval quality: recall of gold passages, DPR's answer accuracy, and metrics by judgements.

    Example: mvindex eval --index corpus.mvx --questions questions.jsonl --at 1,5,20,100 --json
    """
    from mvindex.cli import render
    from mvindex.eval.metrics import Evaluation
    from mvindex.eval.questions import read_qrels, read_questions
    from mvindex.eval.run_files import open_run

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
    questions, qrels = _beir_files(questions, qrels, split)
    judged = read_qrels(qrels) if qrels else None
    others = _other_runs(compare, measure, judged is not None)
    from mvindex.cli.search import Searcher, describe_search

    with (
        open_chosen(index, device, allow_partial=allow_partial) as target,
        open_run(trec, force=force) if trec else nullcontext() as run,
    ):
        # Without a shard, its documents would look like gold documents that the index does not have.
        documents = None if target.missing_shards else target
        evaluation = Evaluation(cutoffs, judged, regex, documents, citations=citations)
        options = replace(options, top_k=evaluation.needed_depth)
        own: dict[str, list[str]] = {}
        searcher, named = Searcher(target, options, reranking, device), describe_search(target, options, reranking)
        with render.show_question_progress(None) as progress:
            for batch in split_batches(read_questions(questions, question_format), QUESTION_BATCH):
                results = searcher.search([question.text for question in batch])
                for question, result in zip(batch, results, strict=True):
                    evaluation.add(question, result)
                    if others:
                        own[question.id] = [hit.id for hit in result.hits]
                    if run is not None:
                        run.add(question.id, result.hits)
                progress.advance(progress.task_ids[0], len(batch))
        missing = list(target.missing_shards)
        report = evaluation.report() | named | ({"missing_shards": missing} if missing else {})
    if not others or judged is None:
        render.print_json(report) if as_json else _print_report(report)
        return
    from mvindex.eval.compare import DEFAULT_MEASURES, compare_runs

    compared = compare_runs({**others, "this": own}, judged, measure or DEFAULT_MEASURES)
    if as_json:
        render.print_json(report | {"compared": asdict(compared)})
        return
    _print_report(report)
    print_report(compared)


def _beir_files(questions: list[str], qrels: str | None, split: str | None) -> tuple[list[str], str | None]:
    """Return question files and judgements, where questions may be one folder of the BEIR layout."""
    from mvindex.corpus.beir import beir_qrels, beir_queries
    from mvindex.corpus.ir_names import folder_of

    questions = [folder_of(name) for name in questions]
    if len(questions) != 1 or not Path(questions[0]).is_dir():
        if split is not None:
            raise typer.BadParameter(f"--split {split}: belongs to --questions FOLDER")
        return questions, qrels
    return [beir_queries(questions[0])], qrels or beir_qrels(questions[0], split)


def _other_runs(paths: list[str] | None, measure: list[str] | None, is_judged: bool) -> dict[str, dict[str, list[str]]]:
    """Return the run files to compare with, by their names."""
    from mvindex.eval.compare import read_run

    if measure and not paths:
        raise typer.BadParameter("--measure: belongs to --compare RUN")
    if paths and not is_judged:
        raise typer.BadParameter("--compare: needs judgements, --qrels FILE")
    return {path: read_run(path) for path in paths or ()}


def _print_report(report: Mapping[str, Any]) -> None:
    from mvindex.cli import render

    for section in ("gold", "answer", "citations", "gold_citations", "qrels"):
        if section in report:
            shares = {name: f"{100 * value:.2f} %" for name, value in report[section].items()}
            render.print_table(f"{section} ({report['counts'][section]:,} questions)", shares)
    render.print_table("evaluation", {name: value for name, value in report.items() if not isinstance(value, dict)})
