"""The commands `mvindex build` and `assemble`."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mvindex.cli.maintenance import is_served, refuse_options, run_job
from mvindex.cli.options import (
    QUESTION_BATCH,
    QUESTIONS,
    FilterFieldOption,
    IndexOption,
    JsonOption,
    Output,
    OutputOption,
    QuestionFormatOption,
    ThreadsOption,
    check_value,
    explain_wait,
    index_directory,
    is_address,
    note,
    one_place,
    open_chosen_local,
    option,
    parse_choice,
    parse_cutoffs,
    parse_field_types,
    parse_question_format,
    print_report,
    switch,
)
from mvindex.records import batched

if TYPE_CHECKING:
    from mvindex.index import Index
    from mvindex.measure.questions import Question


def build(  # noqa: PLR0913 - each option is a flag of the command
    kind: Annotated[
        str | None,
        option(
            "Build this kind: exact (a scan), or one of an installed engine: flat (exact), graph, hnsw, ivf-flat, "
            "ivf-sq8, ivf-pq, ivf-rabitq. For Milvus, see mvindex info. Default: by size, memory and --target-recall."
        ),
    ] = None,
    index: IndexOption = None,
    nlist: Annotated[
        int | None, option("Make so many inverted lists in an ivf kind (default: by the number of views).")
    ] = None,
    parameters: Annotated[
        list[str] | None,
        option("Set another parameter of the kind; may be repeated.", metavar="NAME=NUMBER", names=("--set",)),
    ] = None,
    target_recall: Annotated[
        float,
        option("Find this share of the exact top-k: without --kind by the choice of one, with kind graph by its beam."),
    ] = 0.98,
    shard: Annotated[int | None, option("Build this shard only, from 0; needs --kind.")] = None,
    train_only: Annotated[
        bool, switch("--train-only", "Train the quantizer that ivf engines of all shards share; needs --kind.")
    ] = False,
    lexical: Annotated[
        str | None,
        option(
            "Only enable lexical search, with the terms unicode, english (stems), bigrams or auto "
            "(by the texts); none disables it.",
            metavar="TERMS",
        ),
    ] = None,
    filter_field: FilterFieldOption = None,
    questions: Annotated[
        str | None,
        option("Measure the recall of these questions before and after; see mvindex eval.", QUESTIONS, "FILE"),
    ] = None,
    format: QuestionFormatOption = None,
    at: Annotated[str, option("Measure R@k of --questions at these k.", QUESTIONS, "K,...")] = "1,5,20",
    threads: ThreadsOption = None,
    output: OutputOption = Output.TABLE,
    as_json: JsonOption = False,
) -> None:
    """Build a search engine over all documents and make it the active one.

    --kind exact removes it. Where the index is large enough, it writes copies of the views that the certified scan
    reads, a byte a dimension. Each new process then maps their file at its first exact query.

    Derived files that are damaged (see mvindex verify) are rebuilt first. An interrupted ivf build continues where it
    stopped. Run mvindex tune afterwards to choose its search parameters.

    Example: mvindex build

    Example: mvindex build --kind hnsw --questions questions.jsonl

    Example: mvindex build --index grpc://127.0.0.1:7700/wiki
    """
    from mvindex.cli.progress import show_step_progress
    from mvindex.engines import parse_kind

    if not is_address(index):  # a server has kinds of its own
        check_value("--kind", kind, parse_kind)
    if format is not None and questions is None:
        raise typer.BadParameter(f"--format {format}: belongs to --questions FILE")
    if lexical is not None or filter_field:
        others = {"--kind": kind, "--nlist": nlist, "--set": parameters, "--shard": shard}
        _refuse_others(lexical, filter_field, others | {"--questions": questions, "--train-only": train_only or None})
        _build_table(index, lexical, filter_field or [], output)
        return
    # Read first, so that a bad line stops the command before the build.
    measured_questions = _read_questions(questions, format) if questions is not None else None
    cutoffs = parse_cutoffs(at)
    started = time.monotonic()
    chosen: dict[str, Any] = {"kind": kind, "nlist": nlist} | _parse_parameters(parameters)
    if shard is not None or train_only:
        _build_shard(index_directory(index), shard, chosen, output)
        return
    if index is not None and is_served(index):
        refuse_options({"--questions": questions})
        given = chosen.get("parameters", {}) | ({} if nlist is None else {"nlist": nlist})
        report = run_job(index, lambda admin: admin.build(kind, parameters=given, target_recall=target_recall))
        row = dict(report) | {"seconds": round(time.monotonic() - started, 2)}
        print_report("", row, output, _summary(row))
        return
    with _open_for_build(index) as target:
        with explain_wait("checking the lexical index, all of it"):
            is_lexical_rebuilt = target.admin.rebuild_lexical_if_damaged()
        if is_lexical_rebuilt:
            note("rebuilt from the texts: the lexical index")
        if target.admin.rebuild_columns_if_damaged():
            note("rebuilt from the metadata: the columns of filter fields")
        with show_step_progress() as on_progress:
            built = target.admin.build(**chosen, target_recall=target_recall, on_progress=on_progress)
        row = asdict(built)
        row["seconds"] = round(time.monotonic() - started, 2)
        measured = None if measured_questions is None else _measure_recall(target, measured_questions, cutoffs)
        summary = _summary(row)
    if output is not Output.TABLE or measured is None:
        print_report("", row if measured is None else row | {"measured": measured}, output, summary)
        return
    print_report("", row, output, summary)
    _print_measured(row, measured)


def _summary(row: Mapping[str, Any]) -> list[str]:
    """Return what was built and what to do next, in sentences."""
    from mvindex.measure.planning.units import format_bytes, format_seconds

    took, size = format_seconds(row["seconds"]), format_bytes(row["engine_bytes"])
    said = [
        f"The engine is now {row['kind']}: {row['views']:,} views of {row['documents']:,} documents, {size}, "
        f"built in {took}."
    ]
    measured = row.get("measured")
    if row["kind"] in ("exact", "flat"):
        said.append("Its results are exact.")
    elif measured:
        said.append(
            f"Of {measured['questions']} questions made of stored views it finds {measured['recall_10']:.1%} of the "
            f"best 10 and {measured['recall_100']:.1%} of the best 100."
        )
        said.append(_costs_of(measured))
    else:
        said.append("Its results are approximate: mvindex tune measures their recall and sets its search parameters.")
    return said


def _costs_of(measured: Mapping[str, Any]) -> str:
    """Return what a query costs by the engine and by the scan, and so which of them answers."""
    shown = [
        f"{measured[f'ms_{documents}']:.2f} and {measured[f'exact_ms_{documents}']:.2f} for the best {documents}"
        for documents in (10, 100)
    ]
    return f"CPU milliseconds a query, by the engine and by the exact scan: {', '.join(shown)}. The faster one answers."


def _build_shard(path: Path, shard: int | None, chosen: Mapping[str, Any], output: Output) -> None:
    """Build the engine of one shard; without a number, train what the engines of all shards share."""
    from mvindex.cli.progress import show_step_progress
    from mvindex.engines import parse_kind
    from mvindex.engines.build import engine_choice
    from mvindex.engines.build_shards import build_one_shard, train_shards
    from mvindex.store.sharded import open_sharded_store

    if chosen["kind"] is None:
        raise typer.BadParameter("--shard, --train-only: expected --kind too, the same in each step of the build")
    row: dict[str, Any]
    choice = engine_choice(parse_kind(chosen["kind"]), chosen["nlist"], chosen.get("parameters"))
    with closing(open_sharded_store(path)) as store, show_step_progress() as on_progress:
        if shard is None:
            row = {"trained": str(train_shards(path, store.sharding.stores, choice, on_progress))}
        else:
            row = {"shard": shard, **asdict(build_one_shard(store, shard, choice, on_progress))}
    print_report("build", row, output)


def _parse_parameters(texts: Sequence[str] | None) -> dict[str, dict[str, int]]:
    """Return the parameters of --set as a keyword argument; none without --set, as an index in Milvus takes none."""
    found = {}
    for each in texts or ():
        name, _, value = each.partition("=")
        if not name or not value.isascii() or not value.isdigit():
            raise typer.BadParameter(f"--set: expected NAME=NUMBER, got {each!r}")
        found[name] = int(value)
    return {"parameters": found} if found else {}


def _refuse_others(lexical: str | None, fields: Sequence[str] | None, others: Mapping[str, object]) -> None:
    """Refuse options of an engine beside --lexical or --filter-field, and one of these beside the other."""
    own = "--filter-field" if lexical is None else "--lexical"
    others = {**others, "--filter-field": None if lexical is None else fields}
    if named := [name for name, value in others.items() if value is not None]:
        raise typer.BadParameter(f"{own}: expected no other build option, got {named[0]}")


def _build_table(place: str | None, lexical: str | None, fields: Sequence[str], output: Output) -> None:
    """Enable lexical search with this tokenizer, or remove it (none); without one, declare the filter fields."""
    from mvindex.cli.progress import show_step_progress
    from mvindex.store.lexical.tokenizer import AUTO, NONE, Lexical

    if lexical not in (NONE, AUTO, None):
        parse_choice("--lexical", lexical, Lexical)
    declared = {} if list(fields) == ["none"] else parse_field_types(fields)
    started = time.monotonic()
    with _open_for_build(place) as target:
        row: dict[str, Any] = {}
        if lexical is None:
            with show_step_progress() as on_progress:
                on_progress("reading metadata", 0, 1)
                target.admin.set_filter_fields({**target.info().filter_fields, **declared} if declared else {})
            row["filter_fields"] = target.info().filter_fields
        else:
            _set_lexical(target, lexical)
            row["lexical"] = target.info().lexical
        row |= {"documents": len(target), "seconds": round(time.monotonic() - started, 2)}
    print_report("build", row, output)


def _set_lexical(index: Index, lexical: str) -> None:
    from mvindex.cli.progress import show_count_progress
    from mvindex.store.lexical.tokenizer import NONE

    with show_count_progress("indexing terms", None) as advance:
        if lexical == NONE:
            index.admin.disable_lexical()
        else:
            index.admin.enable_lexical(lexical, advance)


def _open_for_build(place: str | None) -> Index:
    """Open the index, after rebuilding derived files that are damaged."""
    from mvindex.errors import DamagedIndex
    from mvindex.maintenance.dispatch import repair

    try:
        return open_chosen_local(place)
    except DamagedIndex as err:
        rebuilt = repair(index_directory(place)).made_again
        if not rebuilt:
            raise
        note(f"{err}")
        for file in rebuilt:
            note(f"rebuilt from the catalog: {file}")
        return open_chosen_local(place)


def _read_questions(file: str, format: str | None) -> list[Question]:
    from mvindex.measure.questions import read_questions

    return list(read_questions([file], parse_question_format(format)))


def _measure_recall(index: Index, questions: Sequence[Question], cutoffs: tuple[int, ...]) -> dict[str, Any]:
    """Return R@k of gold passages by the exact search of all views (before) and by the engine (after).

    same_first is the share of questions for which both rank the same document first.
    """
    from mvindex.measure.metrics import Evaluation

    before, after = Evaluation(cutoffs), Evaluation(cutoffs)
    num_same = 0
    for batch in batched(questions, QUESTION_BATCH):
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
    from mvindex.cli import terminal

    before, after = measured["before"], measured["after"]
    table = {
        "views": f"{row['views']:,}",
        "bytes": f"{row['stored_bytes']:,} (store) -> {row['engine_bytes']:,} (engine)",
    }
    for name, share in before.get("gold", {}).items():
        table[name] = f"{100 * share:.2f} % -> {100 * after['gold'][name]:.2f} %"
    table["same document first"] = f"{100 * measured['same_first']:.2f} %"
    table["certified"] = f"{before['exact']:,} -> {after['exact']:,}"
    terminal.print_table(f"exact search -> this engine ({measured['questions']:,} questions)", table)


def assemble(
    ctx: typer.Context,
    directory: Annotated[
        str | None,
        typer.Argument(metavar="DIR", help="The directory with all the shards, as --index.", show_default=False),
    ] = None,
    index: IndexOption = None,
    output: OutputOption = Output.TABLE,
    as_json: JsonOption = False,
) -> None:
    """Make one index of shards that were filled separately.

    Checks that all shards exist, have equal settings, have read the same corpora to the end, and have no document in
    common. Copy shards from other machines into the index directory first. Run the command again after each corpus;
    no data is rewritten.

    Fill the shards first by mvindex ingest corpus.tsv --shard 0/16, and so on to 15/16.

    Example: mvindex assemble corpus.mvx
    """
    from mvindex.cli.progress import show_count_progress
    from mvindex.ingest.shards import assemble as assemble_shards

    path = index_directory(one_place(ctx, directory, index))
    with show_count_progress("documents", None) as advance:
        row = asdict(assemble_shards(path, advance))
    print_report("assemble", row, output)
