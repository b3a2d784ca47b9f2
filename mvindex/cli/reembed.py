"""The command `mvindex reembed`."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mvindex.cli.ingest import parse_views, stop_on_interrupt
from mvindex.cli.maintenance import is_served
from mvindex.cli.options import (
    QUESTION_BATCH,
    QUESTIONS,
    DeviceOption,
    IndexOption,
    JsonOption,
    Output,
    OutputOption,
    QuestionFormatOption,
    ThreadsOption,
    check_value,
    explain_wait,
    note,
    one_place,
    open_chosen_local,
    option,
    parse_question_format,
    prepare_queries,
    print_report,
    switch,
)
from mvindex.errors import ConfigError, Unsupported
from mvindex.records import batched
from mvindex.store.protocol import Operation

if TYPE_CHECKING:
    from mvindex.index import Index
    from mvindex.measure.questions import Question

_CUTOFFS = (1, 10)


def reembed(  # noqa: PLR0913 - each option is a flag of the command
    ctx: typer.Context,
    encoder: Annotated[str, option("Encode texts by this from now on: minilm-views, e5-views, a directory, a hub id.")],
    place: Annotated[str | None, typer.Argument(metavar="INDEX", help="The index; or --index.")] = None,
    index: IndexOption = None,
    family: Annotated[str | None, option("Make views in this way: one of `mvindex families`.")] = None,
    views: Annotated[
        str | None, option("Make at most so many views of a document (default 8).", metavar="NUMBER|auto")
    ] = None,
    texts_only: Annotated[
        bool,
        switch("--texts-only", "Encode title and text alone of documents that had view texts or given vectors, too."),
    ] = False,
    questions: Annotated[
        str | None,
        option(
            "Measure R@1 and R@10 of these questions by the old and the new encoder; see mvindex eval.",
            QUESTIONS,
            "FILE",
        ),
    ] = None,
    format: QuestionFormatOption = None,
    device: DeviceOption = None,
    threads: ThreadsOption = None,
    output: OutputOption = Output.TABLE,
    as_json: JsonOption = False,
) -> None:
    """Change the encoder of an index: encode all its texts again, and switch to the new views in one commit.

    Ids, texts, metadata, terms and settings stay. Searches go on with the old views until the switch; writers are
    refused meanwhile. An engine is built again; tune it again. Needs disk space for two more copies while it runs.

    If interrupted, the index is as it was, and the same command encodes only the rest; another encoder begins anew.

    Example: mvindex reembed corpus.mvx --encoder minilm

    Example: mvindex reembed corpus.mvx --encoder my-model --questions questions.jsonl --json
    """
    from mvindex.cli.progress import show_step_progress
    from mvindex.encoder import load_encoder
    from mvindex.encoder.checkpoint.families import parse_family

    check_value("--family", family, parse_family)
    if format is not None and questions is None:
        raise typer.BadParameter(f"--format {format}: belongs to --questions FILE")
    asked = None if questions is None else _read_questions(questions, format)
    chosen: dict[str, Any] = {"family": family, "max_views": parse_views(views), "device": device}
    started = time.monotonic()
    path = one_place(ctx, place, index)
    if path is not None and is_served(path):
        raise Unsupported(
            f"{path}: expected an index in a directory, got one behind a server, which is its writer. Stop the server, "
            "and re-embed the directory there"
        )
    with open_chosen_local(path, device) as target:
        target.capabilities.check(Operation.REEMBED, target.where)
        with explain_wait(f"loading the encoder {encoder}"):
            loaded = load_encoder(encoder, **chosen)
        before = target.info().encoder
        measured = {} if asked is None or before is None else {"before": _recall(target, asked)}

        def measure(made: Index) -> None:
            if asked is not None:
                measured["after"] = _recall(made, asked)

        with show_step_progress() as on_progress, stop_on_interrupt() as should_stop:
            report = target.admin.reembed(
                loaded, texts_only=texts_only, before_switch=measure, should_stop=should_stop, on_progress=on_progress
            )
        if not report.stopped:
            prepare_queries(target)
        row: dict[str, Any] = {"index": target.where, **asdict(report), "seconds": round(time.monotonic() - started, 2)}
    print_report("reembed", row | ({"measured": measured} if measured else {}), output)
    if report.stopped:
        note("stopped before the switch: the index is as it was; the same command continues from here")
        raise typer.Exit(1)
    if report.engine != "exact":
        note(f"the engine {report.engine} was built again, with its defaults of search: mvindex tune sets them")


def _read_questions(file: str, format: str | None) -> list[Question]:
    from mvindex.measure.questions import read_questions

    found = list(read_questions([file], parse_question_format(format)))
    if all(question.passage_id is None for question in found):
        raise ConfigError(f"--questions {file}: expected questions with the id of their document, got none with it")
    return found


def _recall(index: Index, questions: Sequence[Question]) -> dict[str, float]:
    """Return R@1 and R@10 of the documents that answer the questions."""
    from mvindex.measure.metrics import Evaluation

    evaluation = Evaluation(_CUTOFFS)
    for batch in batched(questions, QUESTION_BATCH):
        results = index.search([question.text for question in batch], top_k=evaluation.needed_depth)
        for question, result in zip(batch, results, strict=True):
            evaluation.add(question, result)
    shares: dict[str, float] = evaluation.report()["gold"]
    return shares
