"""The command `mvindex ingest`."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mvindex.cli.options import DeviceOption, IndexOption, JsonOption, chosen_path, is_address, note, parse_choice
from mvindex.cli.terminal import visible
from mvindex.errors import ConfigError

if TYPE_CHECKING:
    from mvindex.index import Index
    from mvindex.index.results import IndexInfo
    from mvindex.ingest import IngestReport
    from mvindex.ingest.files import FileReport
    from mvindex.store.shard_layout import ShardPlace


def ingest(  # noqa: PLR0913 - each option is a flag of the command
    files: Annotated[list[str], typer.Argument(help="Files or patterns; - is stdin. .gz and .zst are read.")],
    index: IndexOption = None,
    format: Annotated[str | None, typer.Option(help="dpr, msmarco, beir, jsonl or parquet; found by itself.")] = None,
    id_field: Annotated[str | None, typer.Option(help="Column or field of the id.")] = None,
    text_field: Annotated[str | None, typer.Option(help="Column or field of the text.")] = None,
    title_field: Annotated[str | None, typer.Option(help="Column or field of the title; '' for none.")] = None,
    on_error: Annotated[str, typer.Option(help="stop at a bad row, or skip it into a rejects file.")] = "stop",
    encoder: Annotated[
        str | None, typer.Option(help="Of a new index: minilm (default), minilm-snippets, a directory, a hub id.")
    ] = None,
    family: Annotated[
        str | None, typer.Option(help="Of a new index: snippets (default), single, or another; see docs/training.md.")
    ] = None,
    views: Annotated[int | None, typer.Option(help="Of a new index: most views a document has (default 8).")] = None,
    dtype: Annotated[str | None, typer.Option(help="Of a new index: fp16 (default) or fp32, as stored.")] = None,
    temperature: Annotated[
        float | None, typer.Option(help="Of a new index: what drpq scoring divides by (default: the encoder's, or 1).")
    ] = None,
    prune_views: Annotated[
        float | None,
        typer.Option(
            help="Of a new index: leave out views this close to a kept one of their document (docs/pruning.md)."
        ),
    ] = None,
    lexical: Annotated[
        str | None,
        typer.Option(
            help="Of a new index: unicode or english (stems) makes texts searchable by words (docs/hybrid.md)."
        ),
    ] = None,
    shards: Annotated[
        int | None, typer.Option(help="Of a new index: put the documents into so many stores, by their ids.")
    ] = None,
    shard: Annotated[
        str | None,
        typer.Option(
            metavar="NUMBER/COUNT",
            help="Fill one shard alone, from 0 to COUNT - 1: 0/16 to 15/16 in an array job, then mvindex assemble.",
        ),
    ] = None,
    device: DeviceOption = None,
    as_json: JsonOption = False,
) -> None:
    """Read corpus files, encode their documents, and add them to an index (made if there is none).

    Known ids are replaced, unchanged documents skipped; interrupted, give the same command again to go on.

    With --shard, every process reads the whole corpus and keeps its part; they know nothing of each other, and may run
    on several machines. Once all shards lie in the index, mvindex assemble makes one index of them.

    Example: mvindex ingest corpus.tsv --index corpus.mvx
    """
    from mvindex.cli import render as display
    from mvindex.corpus import open_corpus
    from mvindex.ingest.files import FileIngest, OnError
    from mvindex.ingest.prune import checked_eps
    from mvindex.lexical.tokenizer import parse_lexical

    place = _parse_place(shards, shard)
    skip_or_stop = parse_choice("--on-error", on_error, OnError)
    options = _corpus_options(format, id_field, text_field, title_field)
    console = display.stderr()
    corpus = open_corpus(
        files,
        options,
        lambda source: console.print(visible(f"reading {source}"), soft_wrap=True, markup=False),
    )
    path = index or str(_default_path(corpus.paths))
    new = {"encoder": encoder, "family": family, "max_views": views, "dtype": dtype, "temperature": temperature}
    new["prune_views"] = None if prune_views is None else checked_eps(prune_views)
    new["shards"] = shards
    new["lexical"] = None if parse_lexical(lexical) is None else lexical
    with _opened_for_ingest(path, new, device, place) as target:
        stem = _rejects_stem(path)
        run = FileIngest(
            target,
            corpus,
            skip_or_stop,
            stem if place is None else stem.with_name(f"{stem.name}.{place.directory}"),
            lambda text: note(text),
            # Every process meets the same bad rows: the first shard's keeps them.
            keeps_bad_rows=place is None or place.number == 0,
        )
        started = time.monotonic()
        with display.DocumentProgress(corpus.bytes_total) as progress, _stop_on_interrupt() as should_stop:
            report = run.run(lambda count: progress.advance(count, corpus.bytes_read), should_stop)
        _print_ingest(report, (path, target), time.monotonic() - started, as_json)
    if report.ingest.stopped:
        raise typer.Exit(1)


def _default_path(paths: Sequence[str]) -> Path:
    """NAME.mvx in the current directory, after the first input file."""
    if paths[0] == "-":
        raise ConfigError("say where the index goes: --index DIR (stdin has no name to take it from)")
    return Path(Path(paths[0]).name.split(".")[0] + ".mvx")


def _rejects_stem(place: str) -> Path:
    """What rejects files are named after: the index's directory, or in this folder its collection."""
    name = place.partition("?")[0].rstrip("/").rpartition("/")[2]
    return Path(name if is_address(place) else place).absolute().with_suffix("")


def _parse_place(shards: int | None, shard: str | None) -> ShardPlace | None:
    """The shard that is meant; None where it is not about a single one."""
    from mvindex.store.shard_layout import checked_count, parse_place

    if shards is not None and shard is not None:
        raise typer.BadParameter(
            f"--shards {shards} fills all shards, --shard {shard} one of them: give one of the two"
        )
    if shards is not None:
        checked_count(shards)
    return None if shard is None else parse_place(shard)


@contextmanager
def _opened_for_ingest(path: str, new: dict[str, Any], device: str | None, place: ShardPlace | None) -> Iterator[Index]:
    """The index at this place, made when there is none; one that was made and stayed empty is removed again."""
    from mvindex.index.factory import index_exists, open_index, remove_untouched
    from mvindex.index.single_shard import has_shard, open_shard_index

    if index_exists(path) if place is None else has_shard(chosen_path(path), place):
        with open_index(path, device=device) if place is None else open_shard_index(Path(path), place, device) as index:
            _refuse_other_settings(index, new)
            yield index
        return
    with _created(path, new, device, place) as index:
        try:
            yield index
        finally:
            remove_untouched(index)


def _created(path: str, new: dict[str, Any], device: str | None, place: ShardPlace | None) -> Index:
    """A new index, or a new shard of one."""
    from mvindex.encoder import load_encoder
    from mvindex.index.factory import create
    from mvindex.index.options import check_temperature
    from mvindex.index.single_shard import create_shard_index
    from mvindex.store.shard_layout import check_place

    chosen = {name: value for name, value in new.items() if value is not None}
    kept = {
        name: chosen.pop(name)
        for name in ("dtype", "temperature", "prune_views", "shards", "lexical")
        if name in chosen
    }
    # Before the seconds that an encoder takes to load.
    if "temperature" in kept:
        check_temperature(kept["temperature"])
    if place is not None:
        check_place(Path(path), place)
    encoder = load_encoder(chosen.pop("encoder", "minilm"), device=device, **chosen)
    if place is None:
        return create(path, encoder=encoder, **kept)
    return create_shard_index(Path(path), place, encoder=encoder, **kept)


def _refuse_other_settings(index: Index, new: dict[str, Any]) -> None:
    """Nothing, when what was asked of a new index is what this one has: an interrupted command may be given again."""
    info = index.info()
    encoder = info.encoder or {}
    has = {**encoder, "encoder": encoder.get("source"), "dtype": info.dtype, "temperature": info.temperature}
    has |= {"prune_views": info.prune_views, "shards": info.shards, "lexical": info.lexical}
    for name, value in new.items():
        if name == "encoder" and value is not None and os.path.isdir(value):
            value = has[name] if has[name] in (os.path.abspath(value), os.path.realpath(value)) else value
        if value is not None and value != has.get(name):
            flag = "views" if name == "max_views" else name.replace("_", "-")
            raise ConfigError(f"{index.where} was made with {flag} {has.get(name)!r}, not {value!r}; see mvindex info")


@contextmanager
def _stop_on_interrupt() -> Iterator[Callable[[], bool]]:
    """Inside it, the first Ctrl-C only asks to stop; a second one interrupts at once."""
    asked = False

    def ask(number: int, frame: Any) -> None:
        nonlocal asked
        asked = True
        signal.signal(signal.SIGINT, before)
        note("stopping after this chunk; Ctrl-C again to stop at once (nothing stored is lost)")

    before = signal.signal(signal.SIGINT, ask)
    try:
        yield lambda: asked
    finally:
        signal.signal(signal.SIGINT, before)


def _print_ingest(report: FileReport, into: tuple[str, Index], seconds: float, as_json: bool) -> None:
    from mvindex.cli import render as display

    done, (path, index) = report.ingest, into
    files = [str(path) for path in report.rejects_files]
    if is_address(path):
        path = index.where  # without secrets
    row = {
        "index": path,
        "documents": len(index),
        "added": done.added,
        "replaced": done.replaced,
        "updated": done.updated,
        "unchanged": done.unchanged,
        **({"elsewhere": done.elsewhere} if done.elsewhere else {}),
        **_view_counts(done, index.info()),
        "rejected": report.rejected,
        "rejects_files": files,
        "stopped": done.stopped,
        "seconds": round(seconds, 2),
    }
    display.print_json(row) if as_json else display.print_table("ingest", row)
    if report.rejected:
        note(f"{report.rejected} rows rejected, reasons in {report.reasons_file}; mend them and ingest again:")
        for file, format in report.rejects_files.items():
            note(f"  mvindex ingest {file} --format {format.value} --index {path}")
        note("(a row rejected for a duplicate id would then replace the document that has it)")
    if done.stopped:
        note("stopped before the end; the same command goes on from here")


def _view_counts(done: IngestReport, info: IndexInfo) -> dict[str, int]:
    """Views of the documents added and replaced, before and after pruning, and the bytes of their rows in the store."""
    from mvindex.store.views import ViewType

    view_bytes = (info.dim or 0) * ViewType(info.dtype).dtype.itemsize
    return {
        "views_given": done.views_given,
        "views_stored": done.views_stored,
        "view_bytes_given": done.views_given * view_bytes,
        "view_bytes_stored": done.views_stored * view_bytes,
    }


def _corpus_options(format: str | None, id_field: str | None, text_field: str | None, title_field: str | None) -> Any:
    from mvindex.corpus import CorpusFormat, CorpusOptions

    chosen = None if format is None else parse_choice("--format", format, CorpusFormat)
    return CorpusOptions(format=chosen, id_field=id_field, text_field=text_field, title_field=title_field)
