"""The command `mvindex analyze`, which tells whether the views do their work."""

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
    check_scoring,
    note,
    open_chosen,
    parse_cutoffs,
    question_format,
)
from mvindex.errors import ConfigError

if TYPE_CHECKING:
    from mvindex.index import Index


def analyze(  # noqa: PLR0913 - each option is a flag of the command
    subject: Annotated[
        str | None,
        typer.Argument(help="Index directory, or an encoder (with --passages); may be left out with one *.mvx here."),
    ] = None,
    questions: Annotated[
        list[str] | None, typer.Option(help="Question files: JSONL, DPR, id<TAB>text; without, less is told.")
    ] = None,
    qrels: Annotated[str | None, typer.Option(help="Judgements, BEIR or TREC: relevant documents are wanted.")] = None,
    passages: Annotated[str | None, typer.Option(help="Corpus to encode, where an encoder is analysed.")] = None,
    format: QuestionFormatOption = None,
    at: Annotated[str, typer.Option(help="Cut-offs of R@k.")] = "1,5,20,100",
    scoring: ScoringOption = "max",
    temperature: TemperatureOption = None,
    regex: Annotated[bool, typer.Option("--regex", help="Answers are patterns (CuratedTREC).")] = False,
    html: Annotated[Path | None, typer.Option(help="Write the report as one HTML file too.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite the HTML file.")] = False,
    max_questions: Annotated[int, typer.Option(help="Questions taken of more, a document's together.")] = 2000,
    max_documents: Annotated[int, typer.Option(help="Documents searched of more, the wanted ones among them.")] = 20000,
    attention_documents: Annotated[
        int, typer.Option(help="Documents encoded again for their attention (CAMVR takes 1000); 0 for none.")
    ] = 100,
    seed: Annotated[int, typer.Option(help="Of the samples.")] = 0,
    device: DeviceOption = None,
    as_json: JsonOption = False,
) -> None:
    """Measure whether several views a document pay on your questions, by the papers' measures, with a verdict.

    Example: mvindex analyze corpus.mvx --questions questions.jsonl --html report.html
    """
    from mvindex.analysis import AnalysisOptions, page
    from mvindex.analysis import analyze as analyze_index
    from mvindex.cli import render as display
    from mvindex.eval.questions import read_qrels, read_questions

    check_scoring(scoring, temperature, None, exact=False)
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
    asked = read_questions(questions, question_format(format)) if questions else ()
    judged = read_qrels(qrels) if qrels else None
    with _opened(subject, passages, device) as index, display.step_progress() as on_step:
        report = analyze_index(index, asked, options, qrels=judged, on_progress=on_step)
    report["subject"] |= {"path": subject or report["subject"]["path"], "kind": "checkpoint" if passages else "index"}
    if report["questions"]:
        report["questions"]["files"] = list(questions or ())
    if html is not None:
        page.write_page(report, html, force=force)
        note(f"wrote {html}")
    if as_json:
        display.print_json(report)
        return
    _print(report)


def _print(report: Mapping[str, Any]) -> None:
    from mvindex.analysis.summary import facts, grids
    from mvindex.cli import render as display

    for title, rows in facts(report).items():
        display.print_table(title, rows)
    for grid in grids(report):
        display.print_grid(grid.title, grid.header, grid.rows)
    for name, reason in report["left_out"].items():
        note(f"{name}: left out, {reason}")


def _is_encoder(path: Path) -> bool:
    """Whether this names an encoder and no index."""
    from mvindex.checkpoint.hub import PACKAGED, PACKAGED_ADAPTER

    is_packaged = str(path) in (PACKAGED, PACKAGED_ADAPTER) and not path.exists()
    return is_packaged or any((path / name).is_file() for name in ("mvindex.json", "config.json"))


@contextmanager
def _opened(subject: str | None, passages: str | None, device: str | None) -> Iterator[Index]:
    """The index that is meant; for an encoder, a temporary one of the passages."""
    if passages is None:
        if subject and _is_encoder(Path(subject)):
            raise ConfigError(f"{subject} is an encoder; give --passages FILE, a corpus to analyse it on")
        with open_chosen(subject or None, device) as index:
            yield index
        return
    from mvindex.cli import render as display
    from mvindex.corpus import read_documents
    from mvindex.encoder import load_encoder
    from mvindex.index.factory import create
    from mvindex.ingest import IngestHooks

    if subject is None:
        raise typer.BadParameter("--passages FILE: say which encoder to analyse on them")
    encoder = load_encoder(subject, device=device)
    with tempfile.TemporaryDirectory(prefix="mvindex-") as folder:
        with create(Path(folder) / "analysed.mvx", encoder=encoder) as index:
            with display.DocumentProgress(None) as progress:
                index.add(
                    read_documents(passages), hooks=IngestHooks(on_progress=lambda count: progress.advance(count, 0))
                )
            yield index
