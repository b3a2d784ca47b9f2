"""The command `mvindex mine`."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from mvindex.cli.options import ThreadsOption
from mvindex.cli.output import JsonOption, Output, OutputOption, print_report
from mvindex_train.data.options import TrainingFormat
from mvindex_train.negatives.config import MiningConfig, MiningJob, SourceKind

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)


@app.command()
def mine(  # noqa: PLR0913 - each option is a flag of the command
    questions: Annotated[list[str], typer.Argument(help="Files of training data.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="JSONL file to write.")],
    index: Annotated[
        Path | None, typer.Option("--index", "-i", help="Index whose documents are mined.", envvar="MVINDEX_INDEX")
    ] = None,
    passages: Annotated[
        str | None, typer.Option(help="Corpus: mined when there is no index; resolves the ids in the files.")
    ] = None,
    bm25: Annotated[bool, typer.Option("--bm25", help="Short for --source bm25.")] = False,
    source: Annotated[
        SourceKind | None,
        typer.Option(help="Ranking to mine from: dense (default), or bm25 (default without an index)."),
    ] = None,
    format: Annotated[TrainingFormat | None, typer.Option(help="Format of the files (default: detected).")] = None,
    per_question: Annotated[int, typer.Option(help="Number of negatives for each question, over all sources.")] = 30,
    depth: Annotated[int, typer.Option(help="Number of ranks read from each source.")] = 200,
    skip_top: Annotated[int, typer.Option(help="Number of first ranks to skip, for noisy labels.")] = 0,
    sample: Annotated[
        bool, typer.Option("--sample", help="Sample uniformly from the ranks instead of the first ones.")
    ] = False,
    seed: Annotated[int, typer.Option(help="Seed of --sample.")] = 0,
    exact: Annotated[bool, typer.Option("--exact", help="Certified dense rankings, with any engine.")] = False,
    regex: Annotated[bool, typer.Option("--regex", help="Answers are regular expressions (CuratedTREC).")] = False,
    encoder: Annotated[
        str | None,
        typer.Option(help="Checkpoint that ranks instead of the index's encoder; encodes the documents again."),
    ] = None,
    cross_encoder: Annotated[
        str | None, typer.Option(help="Folder or hub id of a sequence classifier (safetensors).")
    ] = None,
    keep_below: Annotated[
        float | None, typer.Option(help="Drop candidates that the cross-encoder scores higher.")
    ] = None,
    teacher: Annotated[
        bool, typer.Option("--teacher", help="Write the cross-encoder's scores, for distillation.")
    ] = False,
    merge: Annotated[str | None, typer.Option(help="Output of an earlier run, whose negatives are added.")] = None,
    device: Annotated[str | None, typer.Option(help="cpu or cuda (default: the fastest available).")] = None,
    threads: ThreadsOption = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite the output, or restart.")] = False,
    output: OutputOption = Output.TABLE,
    as_json: JsonOption = False,
) -> None:
    """Mine hard negatives: documents that rank high for a question and are neither its positive nor contain an answer.

    Repeat the command to resume an interrupted run.

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
