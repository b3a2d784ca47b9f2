"""The command `mvindex ingest`."""

from __future__ import annotations

import os
import shlex
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mvindex.cli.flags import FileFlags
from mvindex.cli.options import (
    CORPUS,
    MACHINE,
    NEW_INDEX,
    DeviceOption,
    FilterFieldOption,
    IndexOption,
    JsonOption,
    Output,
    OutputOption,
    ThreadsOption,
    check_value,
    explain_wait,
    index_directory,
    is_address,
    note,
    option,
    parse_choice,
    parse_field_types,
    prepare_queries,
    print_report,
)
from mvindex.errors import ConfigError
from mvindex.paths import expand_home

if TYPE_CHECKING:
    from mvindex.corpus import Corpus, CorpusOptions, Source
    from mvindex.index import Index, IndexProtocol
    from mvindex.ingest import IngestReport
    from mvindex.ingest.files import CorpusIngestReport
    from mvindex.records import IndexInfo
    from mvindex.store.shard_layout import ShardPlace

_ONE_VIEW = "1 view per document stands for its text."


def ingest(  # noqa: PLR0913 - each option is a flag of the command
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE",
            help="Files, folders, patterns, addresses (https://, s3://) or "
            "ir_datasets:NAME; - is stdin. .gz and .zst are read.",
        ),
    ],
    index: IndexOption = None,
    format: Annotated[
        str | None,
        option(
            "Read the files as csv (any delimiter), json, jsonl, parquet, arrow, dpr, msmarco, beir, markdown, "
            "html, text, ... (default: detected).",
            CORPUS,
        ),
    ] = None,
    id_field: Annotated[
        str | None,
        option("Take the id from this column; '' makes ids from file and row (default: guessed).", CORPUS, "NAME"),
    ] = None,
    text_field: Annotated[
        str | None,
        option(
            "Take the text from this column, or several: title,body; '*' is all (default: guessed).", CORPUS, "NAME,..."
        ),
    ] = None,
    title_field: Annotated[
        str | None, option("Take the title from this column; '' for none (default: guessed).", CORPUS, "NAME")
    ] = None,
    on_error: Annotated[
        str, option("Stop at a bad row, or skip it into a rejects file.", CORPUS, "stop|skip")
    ] = "stop",
    *,
    reading: FileFlags,
    encoder: Annotated[
        str | None,
        option("Encode texts by this: minilm-views (default), e5-views, minilm, a directory, a hub id.", NEW_INDEX),
    ] = None,
    family: Annotated[
        str | None,
        option("Make views in this way: snippets (default), single, or another of `mvindex families`.", NEW_INDEX),
    ] = None,
    views: Annotated[
        str | None,
        option(
            "Make at most so many views of a document (default 8); auto: one for each part of the text, up to 256.",
            NEW_INDEX,
            "NUMBER|auto",
        ),
    ] = None,
    dtype: Annotated[str | None, option("Store views in this type (default: fp16).", NEW_INDEX, "fp16|fp32")] = None,
    temperature: Annotated[
        float | None,
        option("Divide view scores by this in drpq scoring (default: that of the encoder, or 1).", NEW_INDEX),
    ] = None,
    prune_views: Annotated[
        float | None,
        option(
            "Leave out views this close to another view of their document (docs/how-to/pruning.md).", NEW_INDEX, "EPS"
        ),
    ] = None,
    lexical: Annotated[
        str | None,
        option(
            "Search these terms beside the views: unicode, english (stems), bigrams (quicker for "
            "Chinese, Japanese, Korean, Thai) or none. auto, the default in a directory, takes what suits the first "
            "texts (docs/how-to/hybrid.md).",
            NEW_INDEX,
            "TERMS",
        ),
    ] = None,
    filter_field: FilterFieldOption = None,
    shards: Annotated[int | None, option("Split the documents by id into this many stores.", NEW_INDEX)] = None,
    shard: Annotated[
        str | None,
        option(
            "Fill one shard only, from 0 to COUNT - 1: 0/16 to 15/16 in an array job, then mvindex assemble.",
            NEW_INDEX,
            "NUMBER/COUNT",
        ),
    ] = None,
    device: DeviceOption = None,
    devices: Annotated[
        str | None,
        option("Encode on several GPUs at once, by their numbers, a process each; cpu may be one.", MACHINE, "0,1,..."),
    ] = None,
    threads: ThreadsOption = None,
    output: OutputOption = Output.TABLE,
    as_json: JsonOption = False,
) -> None:
    """Read files, encode their documents, and add them to an index, which is made if there is none.

    Files of prose (Markdown, HTML, text, and with mvindex[files] PDF and Office files) are split into passages that
    know their page or line. Of a folder all files that can be read are; mvindex sync also deletes what is gone.

    Known ids are replaced, unchanged documents skipped; after an interruption, the same command continues.

    With --shard, every process reads the whole corpus and stores its part; the processes are independent and may run
    on several machines. Once all shards are complete, mvindex assemble makes one index from them.

    Columns are guessed by their names and reported on stderr; see docs/how-to/rows.md.

    Example: mvindex ingest corpus.tsv

    Example: mvindex ingest products.csv --text-field name,description --index products.mvx

    Example: mvindex ingest notes/ --include '*.md'
    """
    from mvindex.cli.progress import DocumentProgress
    from mvindex.corpus import CorpusOptions, FolderFile, FolderOptions, find_format, is_folder, open_corpus
    from mvindex.corpus.paths import names_of
    from mvindex.encoder.checkpoint.families import parse_family
    from mvindex.index.factory import has_shard
    from mvindex.ingest.files import CorpusIngest, OnError
    from mvindex.ingest.views import check_eps
    from mvindex.store.lexical.tokenizer import AUTO, NONE, Lexical
    from mvindex.store.views import ViewType

    device = _chosen_device(device, devices)
    place = _parse_place(shards, shard)
    check_value("--family", family, parse_family)
    if dtype is not None:
        parse_choice("--dtype", dtype, ViewType)
    if lexical not in (None, AUTO, NONE):
        parse_choice("--lexical", lexical, Lexical)
    skip_or_stop = parse_choice("--on-error", on_error, OnError)
    files = names_of(files)
    reading.check(has_folder=any(map(is_folder, files)))
    check_value("--format", format, find_format)
    options = CorpusOptions(
        format=format, id_field=id_field, text_field=text_field, title_field=title_field, **reading.limits()
    )
    corpus = open_corpus(
        files,
        options,
        lambda source: note(f"reading {source}"),
        FolderOptions(**reading.choice()),
    )
    in_folders = sum(isinstance(file, FolderFile) for file in corpus.files)
    if in_folders:
        note(f"reading files of folders: {in_folders:,}")
    path = expand_home(index or default_path(files if is_folder(files[0]) else corpus.paths))
    new: dict[str, Any] = {
        "encoder": encoder,
        "family": family,
        "max_views": parse_views(views),
        "dtype": dtype,
        "temperature": temperature,
        "prune_views": None if prune_views is None else check_eps(prune_views),
        "shards": shards,
        "lexical": lexical,
        "filter_fields": parse_field_types(filter_field) if filter_field else None,
    }
    if place is not None and lexical in (None, AUTO) and not has_shard(index_directory(path), place):
        new["lexical"] = _lexical_of_shards(files, options)
    with open_for_ingest(path, new, device, place) as target:
        _refuse_same_names(target, corpus)
        stem = _rejects_stem(path)
        run = CorpusIngest(
            target.add_entries,
            corpus,
            skip_or_stop,
            stem if place is None else stem.with_name(f"{stem.name}.{place.directory}"),
            note,
            # Every process reads the same bad rows: that of the first shard writes them.
            rejects_bad_rows=place is None or place.number == 0,
        )
        started = time.monotonic()
        with DocumentProgress(corpus.bytes_total) as progress, stop_on_interrupt() as should_stop:
            report = run.run(lambda count: progress.advance(count, corpus.bytes_read, run.rows_read), should_stop)
        if corpus.left_out:
            note(f"left out: {corpus.left_out}")
        _print_ingest(report, path, target, time.monotonic() - started, output)
        _note_replaced(report.ingest.replaced, corpus)
        if lexical in (None, AUTO) and report.ingest.added and (terms := target.info().lexical) is not None:
            note(f"lexical search: {terms} terms")
        if not report.ingest.stopped:
            prepare_queries(target)
    is_rejected = bool(report.rejected or report.rejected_files)
    if report.ingest.stopped or (is_rejected and skip_or_stop is OnError.STOP):
        raise typer.Exit(1)


def _refuse_same_names(index: IndexProtocol, corpus: Corpus) -> None:
    """Raise ConfigError where the index has documents of another folder of the same name, which would be replaced."""
    from mvindex.corpus import FolderFile

    for name, path in {(file.folder, file.folder_path) for file in corpus.files if isinstance(file, FolderFile)}:
        for other in index.scan({"folder": name, "folder_path": {"ne": path}}, limit=1):
            raise ConfigError(
                f"{path}: the index has documents of another folder named {name!r}, "
                f"{other.metadata.get('folder_path')}. If it was moved, take mvindex sync --name {name}; else "
                "mvindex sync with another --name"
            )


def _note_replaced(count: int, corpus: Corpus) -> None:
    """Note that so many documents were replaced, where those may be of another file of the same name."""
    if count and corpus.named_in_ids:
        note(
            f"documents replaced: {count}; ids of {corpus.named_in_ids[0]} are made of its name: "
            "if another file has that name, give --id-field, or name both with their folders"
        )


def _chosen_device(device: str | None, devices: str | None) -> str | None:
    """Return the name of the device, or of several, that --device or --devices gives."""
    from mvindex.encoder.devices import parse_devices

    if devices is None:
        return device
    if device is not None:
        raise typer.BadParameter(f"--device {device} and --devices {devices}: give one of the two")
    check_value("--devices", devices, parse_devices)
    return ",".join(parse_devices(devices))


def _lexical_of_shards(paths: Sequence[str], options: CorpusOptions) -> str:
    """Return the terms that suit the first texts of a whole corpus: all shards of an index have the same."""
    from mvindex.corpus import Row, open_corpus
    from mvindex.store.lexical.tokenizer import detect_lexical

    if "-" in paths:
        raise ConfigError(
            "stdin cannot be read twice: with --shard, expected --lexical unicode, english, bigrams or none"
        )
    with open_corpus(paths, options) as corpus:
        return detect_lexical(row.document.text or row.document.title for row in corpus if isinstance(row, Row)).value


def parse_views(value: str | None) -> int | str | None:
    """Return the number of --views, or "auto"."""
    if value is None or value == "auto":
        return value
    if not value.isdecimal():
        raise typer.BadParameter(f"--views: expected a whole number or auto, got {value!r}")
    return int(value)


def default_path(paths: Sequence[str]) -> Path:
    """NAME.mvx in the current directory, after the first input file without the endings of its format."""
    from mvindex.corpus.inputs import COMPRESSED_SUFFIXES
    from mvindex.corpus.paths import shown_address
    from mvindex.corpus.registry import has_reader

    if paths[0] == "-":
        raise ConfigError("expected --index DIR, since stdin has no name to derive it from")
    if os.path.isdir(paths[0]):
        return Path(os.path.basename(os.path.realpath(paths[0])) + ".mvx")
    path = Path(shown_address(paths[0]))
    if path.suffix.lower() in COMPRESSED_SUFFIXES:
        path = path.with_suffix("")
    return Path((path.stem if has_reader(path.name) else path.name) + ".mvx")


def _rejects_stem(place: str) -> Path:
    """Return the path stem of rejects files: the directory of the index, or its collection in the current directory."""
    name = place.partition("?")[0].rstrip("/").rpartition("/")[2]
    return Path(name if is_address(place) else place).absolute().with_suffix("")


def _parse_place(shards: int | None, shard: str | None) -> ShardPlace | None:
    """Return the shard of --shard; None without it."""
    from mvindex.store.shard_layout import checked_count, parse_place

    if shards is not None and shard is not None:
        raise typer.BadParameter(
            f"--shards {shards} fills all shards, --shard {shard} one of them: give one of the two"
        )
    if shards is not None:
        checked_count(shards)
    return None if shard is None else parse_place(shard)


@contextmanager
def open_for_ingest(
    path: str, new: dict[str, Any], device: str | None, place: ShardPlace | None
) -> Iterator[IndexProtocol]:
    """Open the index, or create it; remove one that was created and stayed empty."""
    from mvindex.index.factory import has_shard, index_exists, open_index, open_shard_index, remove_untouched

    if index_exists(path) if place is None else has_shard(index_directory(path), place):
        with open_index(path, device=device) if place is None else open_shard_index(Path(path), place, device) as index:
            _check_settings(index, new)
            yield index
        return
    with _create(path, new, device, place) as index:
        try:
            yield index
        finally:
            remove_untouched(index)


def _create(path: str, new: dict[str, Any], device: str | None, place: ShardPlace | None) -> Index:
    """Create an index, or a shard of one."""
    from mvindex.encoder import load_encoder
    from mvindex.encoder.checkpoint.hub import DEFAULT
    from mvindex.index.factory import check_temperature, create_index, create_shard_index, default_lexical, new_settings
    from mvindex.store.shard_layout import check_place

    chosen = {name: value for name, value in new.items() if value is not None}
    shards = chosen.pop("shards", None)
    settings = {
        name: chosen.pop(name)
        for name in ("dtype", "temperature", "prune_views", "lexical", "filter_fields")
        if name in chosen
    }
    settings.setdefault("lexical", default_lexical(path, has_texts=True))
    # Checked before the encoder, which takes seconds to load.
    if "temperature" in settings:
        check_temperature(settings["temperature"])
    if place is not None:
        check_place(Path(path), place)
    source = chosen.pop("encoder", DEFAULT)
    with explain_wait(f"loading the encoder {source}"):
        encoder = load_encoder(source, device=device, **chosen)
    if place is None:
        return create_index(path, *new_settings(encoder=encoder, **settings), shards)
    return create_shard_index(Path(path), place, encoder=encoder, **settings)


def _check_settings(index: IndexProtocol, new: dict[str, Any]) -> None:
    """Raise ConfigError when an option for a new index differs from this one; equal options are accepted."""
    from mvindex.encoder.checkpoint.families import AUTO_VIEWS
    from mvindex.store.lexical.tokenizer import AUTO, NONE

    info = index.info()
    encoder = info.encoder or {}
    has = {**encoder, "encoder": encoder.get("source"), "dtype": info.dtype, "temperature": info.temperature}
    has |= {"prune_views": info.prune_views, "shards": info.shards, "lexical": info.lexical or NONE}
    has["filter_fields"] = info.filter_fields
    for name, value in new.items():
        if (name, value) == ("lexical", AUTO):
            continue
        if name == "encoder" and value is not None and os.path.isdir(value):
            value = has[name] if has[name] in (os.path.abspath(value), os.path.realpath(value)) else value
        if (name, value) == ("max_views", "auto"):
            value = AUTO_VIEWS
        if value is not None and value != has.get(name):
            flag = "views" if name == "max_views" else name.replace("_", "-")
            raise ConfigError(f"{index.where} was made with {flag} {has.get(name)!r}, not {value!r}; see mvindex info")


@contextmanager
def stop_on_interrupt(*, is_writing: bool = True) -> Iterator[Callable[[], bool]]:
    """Make the first Ctrl-C request a stop; a second one interrupts at once."""
    unit, left = ("chunk", "stored documents are safe") if is_writing else ("row", "nothing is changed")
    is_requested = False

    def request_stop(number: int, frame: Any) -> None:
        nonlocal is_requested
        is_requested = True
        signal.signal(signal.SIGINT, before)
        note(f"stopping after this {unit}; press Ctrl-C again to stop at once ({left})")

    before = signal.signal(signal.SIGINT, request_stop)
    try:
        yield lambda: is_requested
    finally:
        signal.signal(signal.SIGINT, before)


def _print_ingest(report: CorpusIngestReport, path: str, index: IndexProtocol, seconds: float, output: Output) -> None:
    done = report.ingest
    files = [str(file) for file in report.rejects_files]
    if is_address(path):
        path = index.where  # without secrets
    row = {
        "index": path,
        "documents": len(index),
        "added": done.added,
        "replaced": done.replaced,
        "updated": done.updated,
        "unchanged": done.unchanged,
        **({"repeated": done.repeated} if done.repeated else {}),
        **({"elsewhere": done.elsewhere} if done.elsewhere else {}),
        **_view_counts(done, index.info()),
        "rejected": report.rejected,
        **({"rejected_files": report.rejected_files} if report.rejected_files else {}),
        **({"warnings": report.warnings} if report.warnings else {}),
        "rejects_files": files,
        "stopped": done.stopped,
        "seconds": round(seconds, 2),
    }
    print_report("", row, output, _summary(row))
    if report.rejected_files:
        note(f"files that could not be read: {report.rejected_files:,}, reasons in {report.reasons_file}")
    if done.repeated:
        note(f"rows without an id that repeat an earlier content: {done.repeated}; each content is one document")
    if report.rejected:
        note(f"rows rejected: {report.rejected:,}, reasons in {report.reasons_file}")
    if report.rejected_in_folders:
        note("correct the files of the folder, and run the same command again")
    if report.rejects_files:
        note("correct the rows in these files, and ingest them:")
        for file, source in report.rejects_files.items():
            note(f"  mvindex ingest {shlex.quote(str(file))} {_flags_of(source)} --index {shlex.quote(path)}")
        note("(a row rejected for a duplicate id would then replace the document that has it)")
    if done.stopped:
        note("stopped before the end; the same command continues from here")


def _summary(row: Mapping[str, Any]) -> list[str]:
    """Return what became of the documents, and what to do next, in sentences."""
    from mvindex.measure.planning.units import format_seconds

    kinds = ("added", "replaced", "updated", "unchanged", "rejected")
    done = [f"{row[kind]:,} {kind}" for kind in kinds if row[kind]]
    rate = f", {row['added'] / row['seconds']:,.0f} documents per second" if row["added"] and row["seconds"] > 1 else ""
    took = f"in {format_seconds(row['seconds'])}{rate}"
    count = f"{row['documents']:,} document" + ("" if row["documents"] == 1 else "s")
    said = [f"{row['index']} has {count}: {', '.join(done) or 'no change'}, {took}."]
    if row["added"] or row["replaced"]:
        views = row["views_per_document"]
        said.append(f"{views:g} views per document stand for parts of its text." if views != 1 else _ONE_VIEW)
    if row["documents"] and not row["stopped"]:
        said.append(f'Search it: mvindex query "your question" --index {shlex.quote(row["index"])}')
    return said


def _flags_of(source: Source) -> str:
    """Return the options with which a file of rejected rows is read as their source was, without the default ones."""
    options = source.options_again()
    defaults: dict[str, str | None] = {}
    if options.format != "csv":
        title = "title" if source.title_field or options.format != "dpr" else ""
        id_field = "_id" if options.format == "beir" else "id"
        defaults = {"--id-field": id_field, "--text-field": "text", "--title-field": title}
    fields = {"--id-field": options.id_field, "--text-field": options.text_field, "--title-field": options.title_field}
    given = [
        f"{flag} {shlex.quote(value)}" for flag, value in fields.items() if value not in (None, defaults.get(flag))
    ]
    return " ".join([f"--format {options.format}", *given])


def _view_counts(done: IngestReport, info: IndexInfo) -> dict[str, int | float | None]:
    """Return the views of documents added and replaced, before and after pruning, and their bytes in the store."""
    from mvindex.store.views import ViewType

    stored = done.added + done.replaced
    view_bytes = (info.dim or 0) * ViewType(info.dtype).dtype.itemsize
    return {
        "views_given": done.views_given,
        "views_stored": done.views_stored,
        "views_encoded": done.views_encoded,
        "views_reused": done.views_reused,
        "views_per_document": round(done.views_stored / stored, 2) if stored else None,
        "view_bytes_given": done.views_given * view_bytes,
        "view_bytes_stored": done.views_stored * view_bytes,
    }
