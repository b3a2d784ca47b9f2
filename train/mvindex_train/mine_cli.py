"""The command `mvindex mine`."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from mvindex.cli.options import (
    DeviceOption,
    JsonOption,
    Output,
    OutputOption,
    ThreadsOption,
    option,
    print_report,
    switch,
)
from mvindex_train.data.options import TrainingFormat
from mvindex_train.negatives.config import MiningConfig, MiningJob, SourceKind

# Headings of options in the help.
_CHOICE, _CROSS_ENCODER = "Choice of negatives", "Cross-encoder"

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)


@app.command()
def mine(  # noqa: PLR0913 - each option is a flag of the command
    questions: Annotated[
        list[str], typer.Argument(metavar="QUESTIONS", help="Files of training data, as those of mvindex train.")
    ],
    out: Annotated[Path, option("Write the negatives to this JSONL file.", metavar="FILE", names=("--out", "-o"))],
    index: Annotated[
        Path | None,
        option("Take negatives from this index.", metavar="DIR", names=("--index", "-i"), envvar="MVINDEX_INDEX"),
    ] = None,
    passages: Annotated[
        str | None,
        option(
            "Look up the ids of the files in this corpus; without an index, take negatives from it.", metavar="FILE"
        ),
    ] = None,
    bm25: Annotated[bool, switch("--bm25", "Short for --source bm25.")] = False,
    source: Annotated[
        SourceKind | None,
        option("Take negatives from this ranking: dense (default with an index), bm25 (default without) or both."),
    ] = None,
    format: Annotated[TrainingFormat | None, option("Read the files in this format (default: detected).")] = None,
    per_question: Annotated[int, option("Write so many negatives for each question, over all rankings.", _CHOICE)] = 30,
    depth: Annotated[int, option("Read so many ranks of each ranking.", _CHOICE)] = 200,
    skip_top: Annotated[int, option("Skip so many first ranks, where labels are noisy.", _CHOICE)] = 0,
    sample: Annotated[bool, switch("--sample", "Draw from the ranks, instead of taking the first.", _CHOICE)] = False,
    seed: Annotated[int, option("Draw from this seed.", _CHOICE)] = 0,
    exact: Annotated[bool, switch("--exact", "Take certified rankings, whatever engine is active.", _CHOICE)] = False,
    regex: Annotated[bool, switch("--regex", "Read answers as regular expressions (CuratedTREC).", _CHOICE)] = False,
    encoder: Annotated[
        str | None,
        option(
            "Rank by this encoder instead of the index's own; the documents are encoded again.", metavar="CHECKPOINT"
        ),
    ] = None,
    cross_encoder: Annotated[
        str | None,
        option(
            "Score the negatives by this sequence classifier: a directory or a hub id.", _CROSS_ENCODER, "CHECKPOINT"
        ),
    ] = None,
    keep_below: Annotated[
        float | None, option("Drop what the cross-encoder scores higher than this.", _CROSS_ENCODER)
    ] = None,
    teacher: Annotated[
        bool, switch("--teacher", "Write the cross-encoder's scores too, to distil them.", _CROSS_ENCODER)
    ] = False,
    merge: Annotated[str | None, option("Add the negatives of an earlier run's file.", _CHOICE, "FILE")] = None,
    device: DeviceOption = None,
    threads: ThreadsOption = None,
    force: Annotated[bool, switch("--force", "Overwrite the file, or begin an interrupted run again.")] = False,
    output: OutputOption = Output.TABLE,
    as_json: JsonOption = False,
) -> None:
    """Mine hard negatives: documents that rank high for a question and are neither its positive nor contain an answer.

    After an interruption, the same command continues.

    Example: mvindex mine train.json --index corpus.mvx --out negatives.jsonl

    Example: mvindex mine train.json --bm25 --passages corpus.tsv --out negatives.jsonl
    """
    config = MiningConfig(
        per_question=per_question, depth=depth, skip_top=skip_top, sample=sample, seed=seed, exact=exact,
        patterns=regex, keep_below=keep_below, teacher=teacher,
    )  # fmt: skip
    job = MiningJob(
        questions=tuple(questions), out=out, index=index, passages=passages, format=format,
        source=_choose_source(source, bm25, index), encoder=encoder, cross_encoder=cross_encoder, merge=merge,
        device=device, force=force, config=config,
    )  # fmt: skip
    _run(job, output)


def _choose_source(source: SourceKind | None, bm25: bool, index: Path | None) -> SourceKind:
    if bm25 and source not in (None, SourceKind.BM25):
        raise typer.BadParameter(f"--bm25 is short for --source bm25 and excludes --source {source.value}")
    if source is not None:
        return source
    return SourceKind.BM25 if bm25 or index is None else SourceKind.DENSE


def _run(job: MiningJob, output: Output) -> None:
    """Run the job and print its report on stdout."""
    from mvindex.cli.progress import show_count_progress
    from mvindex_train.negatives.run import MiningRun

    started = time.monotonic()
    with show_count_progress("questions", None) as advance:
        report = MiningRun(job, _note, advance).run()
    report["seconds"] = round(time.monotonic() - started, 2)
    print_report("mine", report, output)
    for note in _notes(report, job.config.per_question):
        _note(note)


def _notes(report: dict[str, Any], per_question: int) -> list[str]:
    """Return remarks on the report."""
    notes = []
    if report["without_answers"]:
        notes.append(f"{report['without_answers']:,} questions have no answers: only their positives were removed")
    if report["too_few"]:
        notes.append(f"{report['too_few']:,} questions got fewer than {per_question} new negatives; increase --depth")
    return notes


def _note(text: str) -> None:
    sys.stderr.write(text + "\n")
