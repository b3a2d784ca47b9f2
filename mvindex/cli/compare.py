"""The command `mvindex compare`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from mvindex.cli.options import (
    QUESTIONS,
    JsonOption,
    Output,
    OutputOption,
    QuestionFormatOption,
    SplitOption,
    explain_wait,
    find_judged_files,
    note,
    option,
    parse_question_format,
    parsing_flags,
    print_rows,
    switch,
)
from mvindex.cli.terminal import print_json, print_tsv

if TYPE_CHECKING:
    from mvindex.measure.compare import RunReport


def _check_measures(names: list[str] | None) -> list[str] | None:
    """Return the measures; wrong usage for an unknown one."""
    from mvindex.measure.metrics import parse_measure

    with parsing_flags():
        for name in names or ():
            parse_measure(name)
    return names


MeasureOption = Annotated[
    list[str] | None,
    option(
        "Compare by this measure, such as nDCG@10 (default), MRR@10, R@100, AP, P(rel=2)@5; may be repeated.",
        names=("--measure",),
        callback=_check_measures,
    ),
]


def compare(  # noqa: PLR0913 - each option is a flag of the command
    runs: Annotated[
        list[str], typer.Argument(metavar="RUN", help="TREC run files; the first is compared with each other one.")
    ],
    qrels: Annotated[str | None, option("Read relevance judgements, BEIR or TREC.", QUESTIONS, "FILE")] = None,
    questions: Annotated[
        list[str] | None,
        option(
            "Or take the passage_id of these questions as the relevant document, or the judgements of a BEIR folder.",
            QUESTIONS,
            "FILE",
        ),
    ] = None,
    split: SplitOption = None,
    format: QuestionFormatOption = None,
    measure: MeasureOption = None,
    all_pairs: Annotated[bool, switch("--all-pairs", "Compare each run with each other one.")] = False,
    output: OutputOption = Output.TABLE,
    as_json: JsonOption = False,
) -> None:
    """Compare runs: means, differences, and whether these may be chance (paired randomisation test, Holm's correction).

    Example: mvindex compare dense.run hybrid.run --qrels qrels/test.tsv --measure nDCG@10 --measure R@100
    """
    from mvindex.measure.compare import DEFAULT_MEASURES, compare_runs, read_run
    from mvindex.measure.questions import read_qrels

    if (qrels is None) == (not questions):
        raise typer.BadParameter("expected judgements: either --qrels FILE or --questions FILE")
    if len(set(runs)) < max(len(runs), 2):
        raise typer.BadParameter("expected two runs or more, and each run once")
    questions, qrels = find_judged_files(questions or [], qrels, split)
    judged = read_qrels(qrels) if qrels else _gold(questions, format)
    read = {path: read_run(path) for path in runs}
    with explain_wait("comparing runs by a randomisation test"):
        report = compare_runs(read, judged, measure or DEFAULT_MEASURES, all_pairs=all_pairs)
    if output is Output.JSON:
        print_json(asdict(report))
    else:
        print_comparison(report, output)


def print_comparison(report: RunReport, output: Output) -> None:
    """Print means and comparisons as tables; tab-separated, as one with a row for each comparison."""
    if output is Output.TSV:
        mean = {(each.run, each.measure): each.mean for each in report.runs}
        pairs = [
            asdict(each) | {f"{side}_mean": mean[getattr(each, side), each.measure] for side in ("first", "second")}
            for each in report.comparisons
        ]
        print_tsv([list(pairs[0]), *(list(pair.values()) for pair in pairs)])
    else:
        _print_tables(report)
    for run, missing in {each.run: each.missing for each in report.runs if each.missing}.items():
        note(f"{run}: lacks {missing:,} of the judged questions, which count as 0")


def _print_tables(report: RunReport) -> None:
    for measure in dict.fromkeys(each.measure for each in report.runs):
        means = {each.run: each.mean for each in report.runs if each.measure == measure}
        print_rows(
            f"{measure}, {report.questions:,} judged questions",
            ("run", measure),
            [(run, f"{mean:.4f}") for run, mean in means.items()],
            Output.TABLE,
        )
        print_rows(
            "differences, and their chance",
            ("run", "against", "difference", "p", "corrected", "+ = -"),
            [
                (
                    each.second,
                    each.first,
                    each.shown_difference,
                    f"{each.p:.4f}",
                    f"{each.p_corrected:.4f}",
                    f"{each.better} {each.equal} {each.worse}",
                )
                for each in report.comparisons
                if each.measure == measure
            ],
            Output.TABLE,
        )


def _gold(files: list[str], format: str | None) -> Mapping[str, Mapping[str, int]]:
    """Return judgements of which the gold document of each question is the only one."""
    from mvindex.errors import ConfigError
    from mvindex.measure.questions import read_questions

    found = read_questions(files, parse_question_format(format))
    judged = {question.id: {question.passage_id: 1} for question in found if question.passage_id is not None}
    if not judged:
        raise ConfigError(f"{', '.join(files)}: no question has a passage_id; give --qrels FILE")
    return judged
