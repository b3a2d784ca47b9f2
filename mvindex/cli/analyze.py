"""The command `mvindex analyze`."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mvindex.cli.flags import SearchFlags
from mvindex.cli.options import (
    OUTPUT_PANEL,
    QUESTIONS,
    DeviceOption,
    IndexOption,
    JsonOption,
    Output,
    OutputOption,
    QuestionFormatOption,
    SplitOption,
    ThreadsOption,
    find_judged_files,
    note,
    one_place,
    open_chosen_local,
    option,
    parse_cutoffs,
    parse_question_format,
    print_report,
    search_option,
    switch,
)
from mvindex.errors import ConfigError

if TYPE_CHECKING:
    from mvindex.index import Index


# The heading of options in the help.
_SAMPLES = "Samples"


def analyze(  # noqa: PLR0913 - each option is a flag of the command
    ctx: typer.Context,
    subject: Annotated[
        str | None,
        typer.Argument(
            metavar="SUBJECT",
            help="Analyse this index, as --index; or this encoder, with --passages.",
            show_default=False,
        ),
    ] = None,
    index: IndexOption = None,
    questions: Annotated[
        list[str] | None,
        option("Take questions from JSONL, DPR or id<TAB>text, or a BEIR folder; may be repeated.", QUESTIONS, "FILE"),
    ] = None,
    qrels: Annotated[str | None, option("Read relevance judgements, BEIR or TREC.", QUESTIONS, "FILE")] = None,
    split: SplitOption = None,
    passages: Annotated[str | None, option("Encode this corpus, to analyse an encoder.", metavar="FILE")] = None,
    format: QuestionFormatOption = None,
    at: Annotated[str, option("Measure R@k at these k.", QUESTIONS, "K,...")] = "1,5,20,100",
    scoring: Annotated[str, search_option("scoring", metavar="max|drpq")] = "max",
    temperature: Annotated[float | None, search_option("temperature")] = None,
    regex: Annotated[bool, switch("--regex", "Read answers as regular expressions (CuratedTREC).", QUESTIONS)] = False,
    html: Annotated[
        Path | None, option("Also write the report as one HTML file (needs the extra reports).", OUTPUT_PANEL, "FILE")
    ] = None,
    force: Annotated[bool, switch("--force", "Overwrite the HTML file.", OUTPUT_PANEL)] = False,
    max_questions: Annotated[
        int, option("Use at most so many questions; those of a document stay together.", QUESTIONS)
    ] = 2000,
    max_documents: Annotated[
        int, option("Search at most so many documents; the relevant ones are among them.", _SAMPLES)
    ] = 20000,
    attention_documents: Annotated[
        int, option("Encode so many documents again to read their attention (CAMVR takes 1000); 0 for none.", _SAMPLES)
    ] = 100,
    seed: Annotated[int, option("Draw the samples from this seed.", _SAMPLES)] = 0,
    device: DeviceOption = None,
    threads: ThreadsOption = None,
    output: OutputOption = Output.TABLE,
    as_json: JsonOption = False,
) -> None:
    """Measure whether several views per document pay on your questions, and give a verdict.

    Without questions, the report describes the views only.

    Example: mvindex analyze corpus.mvx

    Example: mvindex analyze corpus.mvx --questions questions.jsonl --html report.html
    """
    from mvindex.cli.progress import show_step_progress
    from mvindex.measure.analysis import AnalysisOptions, page
    from mvindex.measure.analysis import analyze as analyze_index
    from mvindex.measure.questions import read_qrels, read_questions

    SearchFlags(scoring=scoring, temperature=temperature).request()
    options = AnalysisOptions(
        cutoffs=parse_cutoffs(at),
        scoring=scoring,
        temperature=temperature,
        max_questions=max_questions,
        max_documents=max_documents,
        attention_documents=attention_documents,
        regex=regex,
        seed=seed,
    )
    if html is not None:
        page.check_target(html, force)
    if passages is None:
        subject = one_place(ctx, subject, index)
    questions, qrels = find_judged_files(questions or [], qrels, split)
    question_stream = read_questions(questions, parse_question_format(format)) if questions else ()
    judgements = read_qrels(qrels) if qrels else None
    with _open_subject(subject, passages, device) as opened, show_step_progress() as on_step:
        report = analyze_index(opened, question_stream, options, qrels=judgements, on_progress=on_step)
    report["subject"] |= {"path": subject or report["subject"]["path"], "kind": "checkpoint" if passages else "index"}
    if report["questions"]:
        report["questions"]["files"] = list(questions or ())
    if html is not None:
        page.write_page(report, html, force=force)
        note(f"wrote {html}")
    if output is not Output.TABLE:
        print_report("analyze", report, output)
        return
    _print(report)


def _print(report: Mapping[str, Any]) -> None:
    from mvindex.cli import terminal
    from mvindex.measure.analysis.verdict import facts, grids

    for title, rows in facts(report).items():
        terminal.print_table(title, rows)
        typer.echo()
    for grid in grids(report):
        terminal.print_grid(grid.title, grid.header, grid.rows)
        typer.echo()
    for name, reason in report["left_out"].items():
        note(f"{name}: left out, {reason}")


def _is_encoder(path: Path) -> bool:
    """Return whether this names an encoder rather than an index."""
    from mvindex.encoder.checkpoint.hub import PACKAGED_NAMES

    is_packaged = str(path) in PACKAGED_NAMES and not path.exists()
    return is_packaged or any((path / name).is_file() for name in ("mvindex.json", "config.json"))


@contextmanager
def _open_subject(subject: str | None, passages: str | None, device: str | None) -> Iterator[Index]:
    """Open the index; for an encoder, a temporary index of the corpus."""
    if passages is None:
        if subject and _is_encoder(Path(subject)):
            raise ConfigError(
                f"{subject}: expected an index, got an encoder. Add --passages FILE, a corpus to analyse it on"
            )
        with open_chosen_local(subject or None, device) as index:
            yield index
        return
    from mvindex.cli.progress import DocumentProgress
    from mvindex.corpus import read_documents
    from mvindex.encoder import load_encoder
    from mvindex.index.factory import create
    from mvindex.ingest import IngestHooks

    if subject is None:
        raise typer.BadParameter("--passages: expected an encoder to analyse on this corpus")
    encoder = load_encoder(subject, device=device)
    with tempfile.TemporaryDirectory(prefix="mvindex-") as folder:
        with create(Path(folder) / "analysis.mvx", encoder=encoder) as index:
            with DocumentProgress(None) as progress:
                index.add(
                    read_documents(passages), hooks=IngestHooks(on_progress=lambda count: progress.advance(count, 0))
                )
            yield index
