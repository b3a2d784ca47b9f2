"""The commands that look after an index: `mvindex get`, `delete`, `info` and `build`."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mvindex.cli.assemble import build_part
from mvindex.cli.options import (
    QUESTION_BATCH,
    FilterOption,
    IndexOption,
    JsonOption,
    PartialOption,
    QuestionFormatOption,
    batches,
    chosen_path,
    is_address,
    note,
    open_chosen,
    open_chosen_local,
    parse_cutoffs,
    parse_filter,
    parse_value,
    question_format,
    unsupported,
)
from mvindex.errors import QueryError

if TYPE_CHECKING:
    from mvindex.eval.questions import Question
    from mvindex.index import Index


def get(
    ids: Annotated[list[str], typer.Argument(help="Document ids.")],
    index: IndexOption = None,
    allow_partial: PartialOption = False,
    as_json: JsonOption = False,
) -> None:
    """Show documents by id. Exit 1 when one is not there.

    Example: mvindex get 17 --json
    """
    from mvindex.cli import render as display

    with open_chosen(index, None, allow_partial=allow_partial) as target:
        documents = {document.id: document for document in target.get(ids)}
        missing = [doc_id for doc_id in ids if doc_id not in documents]
        for document in documents.values():
            row = {"id": document.id, "title": document.title, "text": document.text, "metadata": document.metadata}
            display.print_json(row) if as_json else display.print_table(document.id, row)
    if missing:
        raise QueryError(f"there is no document {', '.join(map(repr, missing))}")


def delete(
    ids: Annotated[list[str] | None, typer.Argument(help="Document ids.", show_default=False)] = None,
    index: IndexOption = None,
    filter_json: FilterOption = None,
    as_json: JsonOption = False,
) -> None:
    """Delete documents by id or by a filter, all in one step.

    Example: mvindex delete 17 18, or: mvindex delete --filter '{"lang": "de"}'
    """
    from mvindex.cli import render as display

    if bool(ids) == (filter_json is not None):
        raise typer.BadParameter("give either ids or --filter")
    with open_chosen(index, None) as target:
        count = target.delete(filter=parse_filter(filter_json)) if filter_json is not None else target.delete(ids=ids)
        row = {"deleted": count, "documents": len(target)}
    if ids and count < len(set(ids)):
        note(f"{len(set(ids)) - count} of the ids were not in the index")
    display.print_json(row) if as_json else display.print_table("delete", row)


def info(
    index: IndexOption = None,
    probe: Annotated[
        bool, typer.Option("--probe", help="In Milvus: also try what the server can do, on collections made for it.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Show what an index is: encoder, dims, engine, sizes; and which exact scan this machine has for it.

    Example: mvindex info --index corpus.mvx --json
    """
    from dataclasses import asdict

    from mvindex import engines
    from mvindex.cli import render as display

    with open_chosen(index, None) as target:
        row = asdict(target.info()) | {"unsupported": unsupported(target)}
    if probe:
        with open_chosen_local(index) as local:
            row["server"] = {**(row["server"] or {}), "probed": dict(local.probe())}
    row = {name: value for name, value in row.items() if name != "server" or value is not None}
    if "server" not in row:
        row["scan"] = engines.scan_name()
    display.print_json(row) if as_json else display.print_table(row["path"], row)


def build(  # noqa: PLR0913 - each option is a flag of the command
    kind: Annotated[
        str | None,
        typer.Option(
            help="exact (the scan), or a kind of an installed engine: flat (exact), hnsw, ivf-flat, ivf-sq8, ivf-pq, "
            "ivf-rabitq; in Milvus those that info lists. Chosen by size, memory and target recall by default."
        ),
    ] = None,
    index: IndexOption = None,
    nlist: Annotated[
        int | None, typer.Option(help="Of ivf kinds: the number of inverted lists; by the number of views by default.")
    ] = None,
    parameters: Annotated[
        list[str] | None, typer.Option("--set", help="Another parameter of the kind, NAME=NUMBER; may be repeated.")
    ] = None,
    target_recall: Annotated[
        float, typer.Option(help="Without --kind: the share of the exact answer that should be found.")
    ] = 0.97,
    shard: Annotated[
        int | None, typer.Option(help="Of an index in shards: build this one only, from 0; needs --kind.")
    ] = None,
    train_only: Annotated[
        bool,
        typer.Option("--train-only", help="Learn what ivf engines of all shards share, for --shard; needs --kind."),
    ] = False,
    lexical: Annotated[
        str | None,
        typer.Option(help="Enable lexical search only: unicode or english (stems); none disables it."),
    ] = None,
    questions: Annotated[
        str | None, typer.Option(help="Questions that measure what the build costs in recall; see mvindex eval.")
    ] = None,
    format: QuestionFormatOption = None,
    at: Annotated[str, typer.Option(help="With --questions: cut-offs of R@k.")] = "1,5,20",
    as_json: JsonOption = False,
) -> None:
    """Build a search engine over all documents and make it the active one; exact needs none and undoes a build.

    Files that are derived and damaged (see mvindex verify) are made again first. An ivf build that was stopped goes on
    where it was; `mvindex tune` then chooses how it is searched.

    Example: mvindex build, or: mvindex build --kind hnsw --questions questions.jsonl
    """
    from dataclasses import asdict

    from mvindex.cli import render as display
    from mvindex.engines import parse_kind
    from mvindex.lexical.tokenizer import parse_lexical

    if not is_address(index):  # a server has kinds of its own
        parse_value("--kind", kind, parse_kind)
    if format is not None and questions is None:
        raise typer.BadParameter(f"--format {format}: belongs to --questions FILE")
    if lexical is not None:
        others = {"--kind": kind, "--nlist": nlist, "--set": parameters, "--shard": shard}
        others |= {"--questions": questions, "--train-only": train_only or None}
        if named := [name for name, value in others.items() if value is not None]:
            raise typer.BadParameter(f"--lexical is a build of its own; give it without {named[0]}")
        if lexical != "none":
            parse_value("--lexical", lexical, parse_lexical)
        _build_lexical(index, lexical, as_json)
        return
    # Read before anything is built: a bad line costs nothing then.
    read = _read_questions(questions, format) if questions is not None else None
    cutoffs = parse_cutoffs(at)
    started = time.monotonic()
    chosen: dict[str, Any] = {"kind": kind, "nlist": nlist} | _parameters(parameters)
    if shard is not None or train_only:
        build_part(chosen_path(index), shard, chosen, as_json)
        return
    with _open_for_build(index) as target:
        if target.rebuild_lexical_if_damaged():
            note("made again from the texts: the lexical index")
        with display.step_progress() as on_progress:
            report = target.build(**chosen, target_recall=target_recall, on_progress=on_progress)
        row: dict[str, Any] = asdict(report)
        row["seconds"] = round(time.monotonic() - started, 2)
        measured = None if read is None else _measure(target, read, cutoffs)
    if as_json:
        display.print_json(row if measured is None else row | {"measured": measured})
        return
    display.print_table("build", row)
    if measured is not None:
        _print_measured(row, measured)


def _parameters(given: Sequence[str] | None) -> dict[str, dict[str, int]]:
    """Return the parameters of --set, to be passed on; nothing without any, as an index in Milvus takes none."""
    found = {}
    for each in given or ():
        name, _, value = each.partition("=")
        if not name or not value.isascii() or not value.isdigit():
            raise typer.BadParameter(f"--set: expected NAME=NUMBER, got {each!r}")
        found[name] = int(value)
    return {"parameters": found} if found else {}


def _build_lexical(place: str | None, lexical: str, as_json: bool) -> None:
    from mvindex.cli import render as display

    started, done = time.monotonic(), 0
    with _open_for_build(place) as target, display.step_progress() as on_progress:

        def advance(count: int) -> None:
            nonlocal done
            done += count
            on_progress("counting terms", done, None)

        if lexical == "none":
            target.disable_lexical()
        else:
            target.enable_lexical(lexical, advance)
        row: dict[str, Any] = {"lexical": target.info().lexical, "documents": len(target)}
    row["seconds"] = round(time.monotonic() - started, 2)
    display.print_json(row) if as_json else display.print_table("build", row)


def _open_for_build(place: str | None) -> Index:
    """Open the index; first make damaged derived files again."""
    from mvindex.errors import DamagedIndex
    from mvindex.maintenance import repair

    try:
        return open_chosen_local(place)
    except DamagedIndex as err:
        made_again = repair(chosen_path(place)).made_again
        if not made_again:
            raise
        note(f"{err}")
        for file in made_again:
            note(f"made again from the catalog: {file}")
        return open_chosen_local(place)


def _read_questions(file: str, format: str | None) -> list[Question]:
    from mvindex.eval.questions import read_questions

    return list(read_questions([file], question_format(format)))


def _measure(index: Index, questions: Sequence[Question], cutoffs: tuple[int, ...]) -> dict[str, Any]:
    """Return what the questions find by the exact search of all views, before, and by the engine, after.

    R@k of gold passages, where the questions have some, and how often both have the same document first.
    """
    from mvindex.eval.metrics import Evaluation

    before, after = Evaluation(cutoffs), Evaluation(cutoffs)
    num_same = 0
    for batch in batches(questions, QUESTION_BATCH):
        vectors = index.encode_queries([question.text for question in batch])
        truth = index.search(vectors, top_k=before.needed_depth, exact=True)
        found = index.search(vectors, top_k=before.needed_depth)
        for question, exact_result, result in zip(batch, truth, found, strict=True):
            before.add(question, exact_result)
            after.add(question, result)
            num_same += [hit.id for hit in exact_result.hits[:1]] == [hit.id for hit in result.hits[:1]]
    reports = {"before": before.report(), "after": after.report()}
    shown = {name: {key: report[key] for key in ("gold", "exact") if key in report} for name, report in reports.items()}
    return {"questions": len(questions), "same_first": round(num_same / len(questions), 4), **shown}


def _print_measured(row: dict[str, Any], measured: dict[str, Any]) -> None:
    from mvindex.cli import render as display

    before, after = measured["before"], measured["after"]
    table = {
        "views": f"{row['views']:,}",
        "bytes": f"{row['stored_bytes']:,} (store) -> {row['engine_bytes']:,} (engine)",
    }
    for name, share in before.get("gold", {}).items():
        table[name] = f"{100 * share:.2f} % -> {100 * after['gold'][name]:.2f} %"
    table["same document first"] = f"{100 * measured['same_first']:.2f} %"
    table["certified"] = f"{before['exact']:,} -> {after['exact']:,}"
    display.print_table(f"exact search of all views -> this engine ({measured['questions']:,} questions)", table)
