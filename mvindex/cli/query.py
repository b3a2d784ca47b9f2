"""The commands `mvindex query` and `mvindex eval`."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Annotated, Any

import typer

from mvindex.cli.options import (
    QUESTION_BATCH,
    CandidatesOption,
    DeviceOption,
    FilterOption,
    FusionOption,
    HybridOption,
    IndexOption,
    JsonOption,
    ModeOption,
    PartialOption,
    QuestionFormatOption,
    RerankDepthOption,
    RerankOnOption,
    RerankOption,
    ScoringOption,
    TemperatureOption,
    WeightsOption,
    batches,
    check_scoring,
    note,
    open_chosen,
    parse_cutoffs,
    parse_filter,
    parse_mode_options,
    question_format,
    rerank_of,
    scoring_of,
)


def query(  # noqa: PLR0913 - each option is a flag of the command
    text: Annotated[str | None, typer.Argument(help="The question.", show_default=False)] = None,
    index: IndexOption = None,
    queries: Annotated[str | None, typer.Option(help="A file of questions instead; - is stdin.")] = None,
    format: QuestionFormatOption = None,
    top_k: Annotated[int, typer.Option("--top-k", "-k", help="Number of documents.")] = 10,
    filter_json: FilterOption = None,
    scoring: ScoringOption = "max",
    temperature: TemperatureOption = None,
    candidates: CandidatesOption = None,
    mode: ModeOption = "dense",
    hybrid: HybridOption = False,
    fusion: FusionOption = None,
    weights: WeightsOption = None,
    rerank: RerankOption = None,
    rerank_on: RerankOnOption = None,
    rerank_depth: RerankDepthOption = None,
    exact: Annotated[bool, typer.Option("--exact", help="Demand a certified answer, whatever the engine.")] = False,
    explain: Annotated[
        bool, typer.Option("--explain", help="Show every view's score, the winner's margin and drpq's weights.")
    ] = False,
    trec: Annotated[str | None, typer.Option(help="Write a TREC run file; with - to stdout.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite the run file.")] = False,
    allow_partial: PartialOption = False,
    device: DeviceOption = None,
    as_json: JsonOption = False,
) -> None:
    """Answer a question, or a file of them: top-k distinct documents, each with the snippet that won.

    Example: mvindex query "when did the oil crisis begin?" --top-k 5 --json
    """
    import numpy as np

    from mvindex.cli import render as display
    from mvindex.eval.questions import Question, read_questions
    from mvindex.eval.run_files import open_run

    if (text is None) == (queries is None):
        raise typer.BadParameter("give either a question or --queries FILE")
    if format is not None and queries is None:
        raise typer.BadParameter(f"--format {format}: belongs to --queries FILE")
    check_scoring(scoring, temperature, candidates, exact)
    options, again = parse_mode_options(mode, hybrid, fusion, weights), rerank_of(rerank, rerank_on, rerank_depth)
    read = [Question("1", text)] if text is not None else read_questions([queries or "-"], question_format(format))
    condition = parse_filter(filter_json)
    with (
        open_chosen(index, device, allow_partial=allow_partial) as target,
        open_run(trec, force=force) if trec else nullcontext() as run,
    ):
        how, mode_arguments = scoring_of(target, scoring, temperature), options.for_index(target)
        arguments = scoring_of(target, scoring, temperature, candidates) | mode_arguments | again
        for batch in batches(read, QUESTION_BATCH):
            texts = [question.text for question in batch]
            # Encoded once: the search and every explanation use the same vector. Lexical search needs none.
            is_lexical = mode_arguments.get("mode") == "lexical"
            vectors = np.empty((len(texts), 0)) if is_lexical and not explain else target.encode_queries(texts)
            text_argument: dict[str, Any] = {"text": texts} if mode_arguments or again else {}
            query = texts if is_lexical else vectors
            results = target.search(query, top_k=top_k, filter=condition, exact=exact, **arguments, **text_argument)
            for question, vector, result in zip(batch, vectors, results, strict=True):
                if run is not None:
                    run.add(question.id, result.hits)
                views = target.explain_all(vector, [hit.id for hit in result.hits], **how) if explain else None
                if as_json:
                    identity = {"query_id": question.id} if queries is not None else {}
                    display.print_json(identity | display.result_json(question.text, result, arguments, views))
                elif trec is None:
                    display.print_result(question.text, result, arguments, views)
    if trec not in (None, "-"):
        note(f"wrote {trec}")


def evaluate(  # noqa: PLR0913 - each option is a flag of the command
    questions: Annotated[list[str], typer.Option(help="Question files: JSONL, DPR, BEIR queries, id<TAB>text.")],
    index: IndexOption = None,
    format: QuestionFormatOption = None,
    at: Annotated[str, typer.Option(help="Cut-offs of R@k.")] = "1,5,20,100",
    qrels: Annotated[str | None, typer.Option(help="Judgements, BEIR or TREC: adds nDCG@10, MRR@10, recall.")] = None,
    regex: Annotated[bool, typer.Option("--regex", help="Answers are patterns (CuratedTREC).")] = False,
    filter_json: FilterOption = None,
    scoring: ScoringOption = "max",
    temperature: TemperatureOption = None,
    candidates: CandidatesOption = None,
    mode: ModeOption = "dense",
    hybrid: HybridOption = False,
    fusion: FusionOption = None,
    weights: WeightsOption = None,
    rerank: RerankOption = None,
    rerank_on: RerankOnOption = None,
    rerank_depth: RerankDepthOption = None,
    exact: Annotated[bool, typer.Option("--exact", help="Demand certified answers, whatever the engine.")] = False,
    trec: Annotated[str | None, typer.Option(help="Write a TREC run file too.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite the run file.")] = False,
    allow_partial: PartialOption = False,
    device: DeviceOption = None,
    as_json: JsonOption = False,
) -> None:
    """Measure retrieval: recall of gold passages, DPR's answer accuracy, metrics over judgements.

    Example: mvindex eval --index corpus.mvx --questions questions.jsonl --at 1,5,20,100 --json
    """
    from mvindex.cli import render as display
    from mvindex.eval.metrics import Evaluation
    from mvindex.eval.questions import read_qrels, read_questions
    from mvindex.eval.run_files import open_run

    check_scoring(scoring, temperature, candidates, exact)
    options, again = parse_mode_options(mode, hybrid, fusion, weights), rerank_of(rerank, rerank_on, rerank_depth)
    condition, cutoffs, shape = parse_filter(filter_json), parse_cutoffs(at), question_format(format)
    judged = read_qrels(qrels) if qrels else None
    with (
        open_chosen(index, device, allow_partial=allow_partial) as target,
        open_run(trec, force=force) if trec else nullcontext() as run,
    ):
        arguments = scoring_of(target, scoring, temperature, candidates) | options.for_index(target) | again
        # Documents of a missing shard are not known.
        evaluation = Evaluation(cutoffs, judged, regex, None if target.missing_shards else target)
        with display.question_progress(None) as progress:
            for batch in batches(read_questions(questions, shape), QUESTION_BATCH):
                texts = [question.text for question in batch]
                found = target.search(texts, top_k=evaluation.needed_depth, filter=condition, exact=exact, **arguments)
                for question, result in zip(batch, found, strict=True):
                    evaluation.add(question, result)
                    if run is not None:
                        run.add(question.id, result.hits)
                progress.advance(progress.task_ids[0], len(batch))
        missing = list(target.missing_shards)
        report = evaluation.report() | arguments | ({"missing_shards": missing} if missing else {})
    if as_json:
        display.print_json(report)
        return
    for section in ("gold", "answer", "qrels"):
        if section in report:
            shares = {name: f"{100 * value:.2f} %" for name, value in report[section].items()}
            display.print_table(f"{section} ({report['counts'][section]:,} questions)", shares)
    display.print_table("evaluation", {name: value for name, value in report.items() if not isinstance(value, dict)})
