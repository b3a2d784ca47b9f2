"""The command `mvindex query`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

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
    TopKOption,
    TrecOption,
    WeightsOption,
    note,
    open_chosen,
    parse_question_format,
    parse_rerank_options,
    parse_search_options,
    prepare_queries,
    split_batches,
)
from mvindex.cli.terminal import print_json

if TYPE_CHECKING:
    from mvindex.eval.run_files import RunWriter
    from mvindex.search.options import SearchOptions


class _Query(NamedTuple):
    """A query and its id."""

    id: str
    text: str


def query(  # noqa: PLR0913 - each option is a flag of the command
    text: Annotated[str | None, typer.Argument(help="The query.", show_default=False)] = None,
    index: IndexOption = None,
    queries: Annotated[str | None, typer.Option(help="File of queries instead; - is stdin.")] = None,
    also: Annotated[
        list[str] | None, typer.Option(help="Another wording of the query, searched together with it; repeatable.")
    ] = None,
    combine: Annotated[
        str | None,
        typer.Option(help="With --also: max (default), sum or mean of a document's scores for the wordings."),
    ] = None,
    format: QuestionFormatOption = None,
    top_k: TopKOption = 10,
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
    explain: Annotated[
        bool,
        typer.Option("--explain", help="Show every view's score, the best view's margin, and drpq's weights."),
    ] = False,
    trec: TrecOption = None,
    force: ForceRunOption = False,
    allow_partial: PartialOption = False,
    device: DeviceOption = None,
    threads: ThreadsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Search for a query, or for a file of queries: top-k distinct documents, each with the sentence that answers best.

    Example: mvindex query "when did the oil crisis begin?" --top-k 5 --json
    """
    from mvindex.cli.results import print_result, result_as_json

    if (text is None) == (queries is None):
        raise typer.BadParameter("expected either a query or --queries FILE")
    if format is not None and queries is None:
        raise typer.BadParameter(f"--format {format}: belongs to --queries FILE")
    _check_group_options(also, combine, text=text, rerank=rerank, explain=explain)
    options = parse_search_options(
        top_k=top_k,
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
    questions: Iterable[_Query] = [_Query("1", text)] if text is not None else _read_queries(queries or "-", format)
    from mvindex.cli.search import Searcher, describe_search

    with (
        open_chosen(index, device, allow_partial=allow_partial) as target,
        _open_run(trec, force) if trec else nullcontext() as run,
    ):
        searcher = Searcher(target, options, reranking, device)
        named = describe_search(target, options, reranking) | _describe_group(also, combine)
        for batch in split_batches(questions, QUESTION_BATCH):
            texts = [question.text for question in batch]
            # Encoded once: the search and every explanation then use the same vector.
            vectors = target.encode_queries(_encoded_texts(texts, options)) if explain else None
            results = [searcher.search_group([*texts, *also], combine)] if also else searcher.search(texts, vectors)
            for row, (question, result) in enumerate(zip(batch, results, strict=True)):
                if run is not None:
                    run.add(question.id, result.hits)
                views = None
                if vectors is not None:
                    ids = [hit.id for hit in result.hits]
                    views = target.explain_all(vectors[row], ids, options.aggregate.value, temperature=temperature)
                if as_json:
                    identity = {"query_id": question.id} if queries is not None else {}
                    print_json(identity | result_as_json(question.text, result, named, views))
                elif trec is None:
                    print_result(question.text, result, named, views)
        prepare_queries(target)
    if trec not in (None, "-"):
        note(f"wrote {trec}")


def _encoded_texts(texts: list[str], options: SearchOptions) -> list[str]:
    """Return the texts as a search encodes them: without operators."""
    if not options.operators:
        return texts
    from mvindex.lexical.operators import parse_operators

    return [parse_operators(text).text for text in texts]


def _check_group_options(
    also: list[str] | None, combine: str | None, *, text: str | None, rerank: str | None, explain: bool
) -> None:
    """Raise BadParameter for options that do not go with --also, or need it."""
    if not also:
        if combine is not None:
            raise typer.BadParameter(f"--combine {combine}: belongs to --also TEXT")
        return
    if text is None:
        raise typer.BadParameter("--also: belongs to a query, not to --queries FILE")
    if explain or rerank is not None:
        raise typer.BadParameter(f"--also: does not go with {'--explain' if explain else '--rerank'}")


def _describe_group(also: list[str] | None, combine: str | None) -> dict[str, Any]:
    return {"also": also, "combine": combine or "max"} if also else {}


def _read_queries(path: str, format: str | None) -> Iterator[_Query]:
    from mvindex.eval.questions import read_questions

    return (_Query(one.id, one.text) for one in read_questions([path], parse_question_format(format)))


def _open_run(path: str, force: bool) -> AbstractContextManager[RunWriter]:
    from mvindex.eval.run_files import open_run

    return open_run(path, force=force)
