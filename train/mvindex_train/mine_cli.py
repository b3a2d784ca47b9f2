"""The command `mvindex mine`: parses, calls, prints."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from mvindex_train.data.options import TrainingFormat
from mvindex_train.negatives.config import MiningConfig, MiningJob, SourceKind

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)


@app.command()
def mine(  # noqa: PLR0913 - each option is a flag of the command
    questions: Annotated[list[str], typer.Argument(help="Files of training data, with positives.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="The JSONL file to write.")],
    index: Annotated[
        Path | None, typer.Option("--index", "-i", help="Mine its documents.", envvar="MVINDEX_INDEX")
    ] = None,
    passages: Annotated[
        str | None, typer.Option(help="A corpus: mined where no index is given; resolves ids of the questions' files.")
    ] = None,
    bm25: Annotated[bool, typer.Option("--bm25", help="The same as --source bm25.")] = False,
    source: Annotated[
        SourceKind | None, typer.Option(help="Who ranks documents; dense by default, bm25 without an index.")
    ] = None,
    format: Annotated[TrainingFormat | None, typer.Option(help="Of the questions' files; found by itself.")] = None,
    per_question: Annotated[int, typer.Option(help="Negatives wanted for each question, of all sources.")] = 30,
    depth: Annotated[int, typer.Option(help="Ranks looked at, of each source.")] = 200,
    skip_top: Annotated[int, typer.Option(help="First ranks left out, where labels are noisy.")] = 0,
    sample: Annotated[bool, typer.Option("--sample", help="Drawn uniformly from the ranks, not the first.")] = False,
    seed: Annotated[int, typer.Option(help="Of --sample.")] = 0,
    exact: Annotated[bool, typer.Option("--exact", help="Certified dense rankings, whatever the engine.")] = False,
    regex: Annotated[bool, typer.Option("--regex", help="Answers are patterns (CuratedTREC).")] = False,
    encoder: Annotated[
        str | None, typer.Option(help="Checkpoint that ranks instead of the index's own; encodes the documents anew.")
    ] = None,
    cross_encoder: Annotated[
        str | None, typer.Option(help="Directory or hub id of a sequence classifier (safetensors).")
    ] = None,
    keep_below: Annotated[
        float | None, typer.Option(help="Candidates that the cross-encoder scores higher are left out.")
    ] = None,
    teacher: Annotated[
        bool, typer.Option("--teacher", help="Write the cross-encoder's scores (distillation).")
    ] = False,
    merge: Annotated[
        str | None, typer.Option(help="An earlier file of mine: its negatives are added, with their sources.")
    ] = None,
    device: Annotated[str | None, typer.Option(help="cpu or cuda; the best there is by default.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite the output, or begin anew.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="JSON on stdout.")] = False,
) -> None:
    """Mine hard negatives: documents that rank high for a question, without its positives and its answers.

    Interrupted, give the same command again to go on.

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
    _run(job, as_json)


def _choose_source(source: SourceKind | None, bm25: bool, index: Path | None) -> SourceKind:
    if bm25 and source not in (None, SourceKind.BM25):
        raise typer.BadParameter(f"--bm25 is --source bm25; it does not go with --source {source.value}")
    if source is not None:
        return source
    return SourceKind.BM25 if bm25 or index is None else SourceKind.DENSE


def _run(job: MiningJob, as_json: bool) -> None:
    """Nothing; the job is done and its report is on stdout."""
    from mvindex.cli import render as display
    from mvindex_train.negatives.run import MiningRun

    started = time.monotonic()
    with display.question_progress(None) as progress:
        task = progress.task_ids[0]
        report = MiningRun(job, _note, lambda count: progress.advance(task, count)).run()
    report["seconds"] = round(time.monotonic() - started, 2)
    display.print_json(report) if as_json else display.print_table("mine", report)
    for note in _notes(report, job.config.per_question):
        _note(note)


def _notes(report: dict[str, Any], per_question: int) -> list[str]:
    """What a reader of the report should know."""
    notes = []
    if report["without_answers"]:
        notes.append(f"{report['without_answers']:,} questions have no answers: only their positives were removed")
    if report["too_few"]:
        notes.append(f"{report['too_few']:,} questions got fewer than {per_question} new negatives; give more --depth")
    return notes


def _note(text: str) -> None:
    sys.stderr.write(text + "\n")
