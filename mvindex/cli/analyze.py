"""The command `mvindex analyze`."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mvindex.cli.options import (
    DeviceOption,
    JsonOption,
    QuestionFormatOption,
    ScoringOption,
    TemperatureOption,
    ThreadsOption,
    note,
    open_chosen_local,
    parse_cutoffs,
    parse_question_format,
    parse_search_options,
)
from mvindex.errors import ConfigError

if TYPE_CHECKING:
    from mvindex.index import Index


def analyze(  # noqa: PLR0913 - each option is a flag of the command
    subject: Annotated[
        str | None,
        typer.Argument(
            help="Index directory, or an encoder (with --passages). Default: the one *.mvx in this directory."
        ),
    ] = None,
    questions: Annotated[
        list[str] | None,
        typer.Option(help="Question files: JSONL, DPR, or id<TAB>text. Without questions, the report is shorter."),
    ] = None,
    qrels: Annotated[str | None, typer.Option(help="Relevance judgements, BEIR or TREC.")] = None,
    passages: Annotated[str | None, typer.Option(help="Corpus to encode, to analyse an encoder.")] = None,
    format: QuestionFormatOption = None,
    at: Annotated[str, typer.Option(help="Cut-offs of R@k.")] = "1,5,20,100",
    scoring: ScoringOption = "max",
    temperature: TemperatureOption = None,
    regex: Annotated[bool, typer.Option("--regex", help="Answers are regular expressions (CuratedTREC).")] = False,
    html: Annotated[
        Path | None, typer.Option(help="Also write the report as one HTML file (needs the extra report).")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite the HTML file.")] = False,
    max_questions: Annotated[
        int, typer.Option(help="Most questions used; the questions of a document stay together.")
    ] = 2000,
    max_documents: Annotated[
        int, typer.Option(help="Most documents searched; the relevant ones are among them.")
    ] = 20000,
    attention_documents: Annotated[
        int, typer.Option(help="Documents encoded again to read their attention (CAMVR takes 1000); 0 for none.")
    ] = 100,
    seed: Annotated[int, typer.Option(help="Seed of the samples.")] = 0,
    device: DeviceOption = None,
    threads: ThreadsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Measure whether several views per document pay on your questions, and give a verdict.

    Example: mvindex analyze corpus.mvx --questions questions.jsonl --html report.html
    """
    from mvindex.analysis import AnalysisOptions, page
    from mvindex.analysis import analyze as analyze_index
    from mvindex.cli import render
    from mvindex.eval.questions import read_qrels, read_questions

    parse_search_options(scoring=scoring, temperature=temperature)
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
    question_stream = read_questions(questions, parse_question_format(format)) if questions else ()
    judgements = read_qrels(qrels) if qrels else None
    with _open_subject(subject, passages, device) as index, render.show_step_progress() as on_step:
        report = analyze_index(index, question_stream, options, qrels=judgements, on_progress=on_step)
    report["subject"] |= {"path": subject or report["subject"]["path"], "kind": "checkpoint" if passages else "index"}
    if report["questions"]:
        report["questions"]["files"] = list(questions or ())
    if html is not None:
        page.write_page(report, html, force=force)
        note(f"wrote {html}")
    if as_json:
        render.print_json(report)
        return
    _print(report)


def _print(report: Mapping[str, Any]) -> None:
    from mvindex.analysis.summary import facts, grids
    from mvindex.cli import render

    for title, rows in facts(report).items():
        render.print_table(title, rows)
    for grid in grids(report):
        render.print_grid(grid.title, grid.header, grid.rows)
    for name, reason in report["left_out"].items():
        note(f"{name}: left out, {reason}")


def _is_encoder(path: Path) -> bool:
    """Return whether this names an encoder rather than an index."""
    from mvindex.checkpoint.hub import PACKAGED_NAMES

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
    from mvindex.cli import render
    from mvindex.corpus import read_documents
    from mvindex.encoder import load_encoder
    from mvindex.index.factory import create
    from mvindex.ingest import IngestHooks

    if subject is None:
        raise typer.BadParameter("--passages: expected an encoder to analyse on this corpus")
    encoder = load_encoder(subject, device=device)
    with tempfile.TemporaryDirectory(prefix="mvindex-") as folder:
        with create(Path(folder) / "analysis.mvx", encoder=encoder) as index:
            with render.DocumentProgress(None) as progress:
                index.add(
                    read_documents(passages), hooks=IngestHooks(on_progress=lambda count: progress.advance(count, 0))
                )
            yield index
