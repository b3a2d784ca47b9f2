"""The command `mvindex eval`."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import replace
from typing import Annotated, Any

import typer

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
    questions: Annotated[list[str], typer.Option(help="Question files: JSONL, DPR, BEIR queries, or id<TAB>text.")],
    index: IndexOption = None,
    format: QuestionFormatOption = None,
    at: Annotated[str, typer.Option(help="Cut-offs of R@k.")] = "1,5,20,100",
    qrels: Annotated[
        str | None, typer.Option(help="Relevance judgements, BEIR or TREC: adds nDCG@10, MRR@10 and recall.")
    ] = None,
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
    judged = read_qrels(qrels) if qrels else None
    from mvindex.cli.search import Searcher, describe_search

    with (
        open_chosen(index, device, allow_partial=allow_partial) as target,
        open_run(trec, force=force) if trec else nullcontext() as run,
    ):
        # Without a shard, its documents would look like gold documents that the index does not have.
        documents = None if target.missing_shards else target
        evaluation = Evaluation(cutoffs, judged, regex, documents, citations=citations)
        options = replace(options, top_k=evaluation.needed_depth)
        searcher, named = Searcher(target, options, reranking, device), describe_search(target, options, reranking)
        with render.show_question_progress(None) as progress:
            for batch in split_batches(read_questions(questions, question_format), QUESTION_BATCH):
                results = searcher.search([question.text for question in batch])
                for question, result in zip(batch, results, strict=True):
                    evaluation.add(question, result)
                    if run is not None:
                        run.add(question.id, result.hits)
                progress.advance(progress.task_ids[0], len(batch))
        missing = list(target.missing_shards)
        report = evaluation.report() | named | ({"missing_shards": missing} if missing else {})
    render.print_json(report) if as_json else _print_report(report)


def _print_report(report: Mapping[str, Any]) -> None:
    from mvindex.cli import render

    for section in ("gold", "answer", "citations", "gold_citations", "qrels"):
        if section in report:
            shares = {name: f"{100 * value:.2f} %" for name, value in report[section].items()}
            render.print_table(f"{section} ({report['counts'][section]:,} questions)", shares)
    render.print_table("evaluation", {name: value for name, value in report.items() if not isinstance(value, dict)})
