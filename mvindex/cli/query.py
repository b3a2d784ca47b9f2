"""The command `mvindex query`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from mvindex.cli.flags import LikeFlags, PageFlags, RerankFlags, SearchFlags
from mvindex.cli.options import (
    OUTPUT_PANEL,
    QUESTION_BATCH,
    QUESTIONS,
    DeviceOption,
    ForceRunOption,
    IndexOption,
    JsonOption,
    PartialOption,
    QuestionFormatOption,
    ResultOutput,
    ResultOutputOption,
    ThreadsOption,
    TrecOption,
    explain_wait,
    note,
    open_chosen,
    option,
    parse_choice,
    parse_question_format,
    prepare_queries,
    switch,
)
from mvindex.cli.terminal import print_json, print_tsv
from mvindex.records import Combine, batched

if TYPE_CHECKING:
    from mvindex.cli.results import Explained
    from mvindex.index.protocol import IndexProtocol
    from mvindex.measure.compare import RunWriter
    from mvindex.records import SearchResult
    from mvindex.search.like import Like
    from mvindex.search.request import SearchRequest
    from mvindex.store.filters import Filter


# The id of a query that is given by itself.
_ONLY = "1"
# The first documents whose fields are named where a filter has left none.
_SHOWN_DOCUMENTS = 100
_FIRST_SEARCH = (
    "still searching: each new process loads the encoder and reads the views. mvindex serve keeps both in memory; "
    "mvindex query --index grpc://127.0.0.1:7700/NAME then answers in milliseconds"
)


class _Query(NamedTuple):
    """A query and its id, if it has one."""

    id: str | None
    text: str


def query(  # noqa: PLR0913 - each option is a flag of the command
    text: Annotated[str | None, typer.Argument(help="The query.", metavar="QUERY", show_default=False)] = None,
    index: IndexOption = None,
    *,
    queries: Annotated[str | None, option("Search for the queries of a file; - is stdin.", QUESTIONS, "FILE")] = None,
    also: Annotated[
        list[str] | None,
        option("Search for another wording of the query together with it; may be repeated.", QUESTIONS),
    ] = None,
    combine: Annotated[
        str | None,
        option(
            "Combine a document's scores for the wordings of --also in this way (default: max).",
            QUESTIONS,
            "max|sum|mean",
        ),
    ] = None,
    format: QuestionFormatOption = None,
    page: PageFlags,
    like: LikeFlags,
    search: SearchFlags,
    rerank: RerankFlags,
    explain: Annotated[
        bool, switch("--explain", "Show every view's score, the best view's margin, and drpq's weights.", OUTPUT_PANEL)
    ] = False,
    trec: TrecOption = None,
    force: ForceRunOption = False,
    allow_partial: PartialOption = False,
    device: DeviceOption = None,
    threads: ThreadsOption = None,
    output: ResultOutputOption = ResultOutput.TABLE,
    as_json: JsonOption = False,
) -> None:
    """Search for a query, or for a file of queries.

    The result is distinct documents, each with the sentence that answers best. Text output marks that sentence by
    style, or where there is none by »these marks«.

    Example: mvindex query "when did the oil crisis begin?" --top-k 5

    Example: mvindex query --queries questions.jsonl --output trec > dense.run

    Example: mvindex query --like doc-7 --negatives doc-9
    """
    trec = _run_file(trec, output)
    documents = like.documents()
    _check_source(text, queries, format, documents, explain=explain)
    _check_group_options(also, combine, text=text, rerank=rerank.rerank, explain=explain)
    request = search.request(**page.as_options())
    if request.quoting is not None and output in (ResultOutput.TSV, ResultOutput.TREC):
        raise typer.BadParameter(
            "--citations, --context, --max-chars and --max-tokens: expected --output table or json, got "
            f"{output.value}, where a line is a hit"
        )
    rerank.check()
    questions: Iterable[_Query]
    if documents is not None:
        request, questions = request.of_documents(documents), [_Query(_ONLY, "")]
    else:
        questions = [_Query(_ONLY, text)] if text is not None else _read_queries(queries or "-", format)
    from mvindex.cli.search import Searcher

    with (
        open_chosen(index, device, allow_partial=allow_partial) as target,
        _open_run(trec, force) if trec else nullcontext() as run,
    ):
        searcher = Searcher(target, request, rerank, device)
        named = searcher.described | _describe_group(also, combine)
        show = _printer(
            ResultOutput.TREC if trec is not None and output is ResultOutput.TABLE else output,
            named,
            request.num_before,
        )
        num_hits = 0
        for batch in batched(questions, QUESTION_BATCH):
            texts = [question.text for question in batch]
            with explain_wait(_FIRST_SEARCH):
                # Encoded once: the search and every explanation then use the same vector.
                vectors = target.encode_queries(_encoded_texts(texts, request)) if explain else None
                results = [searcher.search_group([*texts, *also], combine)] if also else searcher.search(texts, vectors)
            for row, (question, result) in enumerate(zip(batch, results, strict=True)):
                if run is not None:
                    run.add(question.id or _ONLY, result.hits)
                views = None
                if vectors is not None:
                    ids = [hit.id for hit in result.hits]
                    views = target.explain_all(
                        vectors[row], ids, request.aggregate.value, temperature=search.temperature
                    )
                show(question if queries is not None else question._replace(id=None), result, views)
                num_hits += len(result.hits)
        if num_hits == 0 and request.filter is not None:
            _tell_missing_fields(target, request.filter)
        prepare_queries(target)
    if trec not in (None, "-"):
        note(f"wrote {trec}")


def _tell_missing_fields(target: IndexProtocol, condition: Filter) -> None:
    """Name the fields of a filter that left nothing which no document has, beside those of the first documents."""
    from difflib import get_close_matches

    from mvindex.store.fields import ID
    from mvindex.store.filters import field_names, parse_filter

    for name in sorted(field_names(parse_filter(condition))):
        if name == ID or any(target.scan(filter={name: {"exists": True}}, limit=1)):
            continue
        known = sorted({key for document in target.scan(limit=_SHOWN_DOCUMENTS) for key in document.metadata})
        nearest = get_close_matches(name, known, 1)
        hint = f"did you mean {nearest[0]!r}?" if nearest else f"the first documents have {', '.join(known) or 'none'}"
        note(f"--filter: no document has a field {name!r}; {hint}")


def _printer(
    output: ResultOutput, options: Mapping[str, Any], num_before: int
) -> Callable[[_Query, SearchResult, Explained | None], None]:
    """Return what prints one result in this form; a TREC run is written elsewhere."""
    from mvindex.cli.results import TSV_HEADER, print_result, result_as_json, result_as_rows

    header = [TSV_HEADER]

    def show(query: _Query, result: SearchResult, views: Explained | None) -> None:
        if output is ResultOutput.JSON:
            identity = {} if query.id is None else {"query_id": query.id}
            print_json(identity | result_as_json(query.text, result, options, views))
        elif output is ResultOutput.TSV:
            print_tsv([*header, *result_as_rows(query.id or _ONLY, result, num_before)])
            header.clear()
        elif output is ResultOutput.TABLE:
            print_result(query.text, result, options, views, num_before=num_before)

    return show


def _run_file(trec: str | None, output: ResultOutput) -> str | None:
    """Return where the run is written, - for stdout; None for nowhere."""
    if output is ResultOutput.TREC and trec is not None:
        raise typer.BadParameter(f"--output trec prints the run file; give it without --trec {trec}")
    if trec == "-" and output is not ResultOutput.TABLE:
        raise typer.BadParameter(f"--trec -: expected a file, since stdout has the results as {output.value}")
    return "-" if output is ResultOutput.TREC else trec


def _check_source(
    text: str | None, queries: str | None, format: str | None, documents: Like | None, *, explain: bool
) -> None:
    """Raise BadParameter unless there is one of a query, a file of queries and documents."""
    if (text is not None) + (queries is not None) + (documents is not None) != 1:
        raise typer.BadParameter("expected either a query, --queries FILE, or documents by --like or --positives")
    if documents is not None and explain:
        raise typer.BadParameter("--explain: scores the views for one query; it does not go with --like")
    if format is not None and queries is None:
        raise typer.BadParameter(f"--format {format}: belongs to --queries FILE")


def _encoded_texts(texts: list[str], request: SearchRequest) -> list[str]:
    """Return the texts as a search encodes them: without operators."""
    if not request.operators:
        return texts
    from mvindex.search.plan import parse_operators

    return [parse_operators(text).text for text in texts]


def _check_group_options(
    also: list[str] | None, combine: str | None, *, text: str | None, rerank: str | None, explain: bool
) -> None:
    """Raise BadParameter for options that do not go with --also, or need it."""
    if not also:
        if combine is not None:
            raise typer.BadParameter(f"--combine {combine}: belongs to --also TEXT")
        return
    if combine is not None:
        parse_choice("--combine", combine, Combine)
    if text is None:
        raise typer.BadParameter("--also: belongs to a query, not to --queries FILE")
    if explain or rerank is not None:
        raise typer.BadParameter(f"--also: does not go with {'--explain' if explain else '--rerank'}")


def _describe_group(also: list[str] | None, combine: str | None) -> dict[str, Any]:
    return {"also": also, "combine": combine or "max"} if also else {}


def _read_queries(path: str, format: str | None) -> Iterator[_Query]:
    from mvindex.measure.questions import read_questions

    return (_Query(one.id, one.text) for one in read_questions([path], parse_question_format(format)))


def _open_run(path: str, force: bool) -> AbstractContextManager[RunWriter]:
    from mvindex.measure.compare import open_run

    return open_run(path, force=force)
