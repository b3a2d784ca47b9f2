"""The command `mvindex eval`, and its gate: thresholds of measures, a baseline run, a summary in Markdown."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mvindex.cli.compare import MeasureOption, print_comparison
from mvindex.cli.flags import RerankFlags, SearchFlags
from mvindex.cli.options import (
    QUESTION_BATCH,
    QUESTIONS,
    DeviceOption,
    ForceRunOption,
    IndexOption,
    JsonOption,
    Output,
    OutputOption,
    PartialOption,
    QuestionFormatOption,
    SplitOption,
    ThreadsOption,
    TrecOption,
    find_judged_files,
    note,
    open_chosen,
    option,
    parse_cutoffs,
    parse_question_format,
    print_report,
    switch,
)
from mvindex.errors import ConfigError
from mvindex.paths import user_path
from mvindex.records import batched

if TYPE_CHECKING:
    from mvindex.measure.compare import Comparison, Run, RunReport

# The exit code of an evaluation that a gate refuses: 1 is an error, 2 wrong usage.
REFUSED = 3
SECTIONS = ("gold", "answer", "citations", "gold_citations", "qrels")
_CITED = ("text", "snippet", "citation")
_RECALL = re.compile(r"R@([1-9][0-9]{0,6})")
# A difference of a corrected p below this is hardly chance.
_LEVEL = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Threshold:
    """The least value that a measure may have; section: None for every section that has the measure."""

    measure: str
    least: float
    section: str | None = None

    @property
    def name(self) -> str:
        """The measure as the caller named it."""
        return self.measure if self.section is None else f"{self.section}.{self.measure}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """A measure of the report beside its threshold."""

    measure: str
    value: float
    least: float
    passed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """The values that an evaluation has to meet.

    Attributes:
        thresholds: Of --fail-below.
        baseline: The path of a run, of --baseline; None without.
        run: The hits of that run.

    """

    thresholds: Sequence[Threshold] = ()
    baseline: str | None = None
    run: Run | None = None

    @property
    def cutoffs(self) -> tuple[int, ...]:
        """The k of each R@k that it looks at."""
        return tuple(int(found[1]) for each in self.thresholds if (found := _RECALL.fullmatch(each.measure)))

    @property
    def judged_measures(self) -> list[str]:
        """The measures over judgements that it looks at, R@k among them."""
        return list(dict.fromkeys(each.measure for each in self.thresholds if each.measure not in _CITED))

    def _checks(self, report: Mapping[str, Any]) -> list[Check]:
        """Return each threshold with its value in a report; ConfigError for a measure that it does not have."""
        found = []
        for each in self.thresholds:
            sections = SECTIONS if each.section is None else (each.section,)
            values = {
                section: report[section][each.measure] for section in sections if each.measure in _of(report, section)
            }
            if not values:
                known = ", ".join(f"{section}.{name}" for section in SECTIONS for name in _of(report, section))
                raise ConfigError(
                    f"--fail-below {each.name}: expected a measure of this evaluation, {known or 'which has none'}; "
                    f"got one that no question has"
                )
            found += [
                Check(measure=f"{section}.{each.measure}", value=value, least=each.least, passed=value >= each.least)
                for section, value in values.items()
            ]
        return found

    @property
    def is_set(self) -> bool:
        """Whether there is anything to meet."""
        return bool(self.thresholds) or self.baseline is not None

    def verdict(
        self,
        report: Mapping[str, Any],
        own: Run,
        judged: Mapping[str, Mapping[str, int]],
        measures: Sequence[str] | None,
    ) -> Verdict:
        """Return the verdict on an evaluation; ConfigError for an unknown measure, or a baseline of other questions.

        Args:
            report: Of the evaluation.
            own: Its run.
            judged: Question id to document id to grade.
            measures: Of --measure: compares by these, by default by those of the thresholds, else by nDCG@10.

        """
        checks = self._checks(report)
        if self.baseline is None or self.run is None:
            return Verdict(checks)
        from mvindex.measure.compare import DEFAULT_MEASURES, compare_runs

        where = f"--baseline {self.baseline}"
        if not judged:
            raise ConfigError(f"{where}: expected judgements, --qrels FILE or questions with passage_id, got none")
        if not self.run.keys() & judged.keys():
            raise ConfigError(f"{where}: expected a run of these questions, got one of others")
        runs, chosen = {self.baseline: self.run, "this": own}, measures or self.judged_measures or DEFAULT_MEASURES
        _note_unequal_depths(where, self.run, own, chosen)
        return Verdict(checks, compare_runs(runs, judged, chosen))


@dataclass(frozen=True, slots=True)
class Verdict:
    """The thresholds of an evaluation with its values, and its comparison with the baseline; None without one."""

    checks: Sequence[Check]
    compared: RunReport | None = None

    @property
    def pairs(self) -> Sequence[Comparison]:
        """The comparisons with the baseline."""
        return () if self.compared is None else self.compared.comparisons

    @property
    def passed(self) -> bool:
        """Whether no measure is below its value, or worse than the baseline."""
        return all(each.passed for each in self.checks) and not any(map(is_worse, self.pairs))

    def show(self) -> None:
        """Write a line for each measure to stderr."""
        for each in self.checks:
            sign = ">=" if each.passed else "<"
            note(f"{_shown(each.passed)} {each.measure}: {each.value:.4f} {sign} {each.least:g}")
        for pair in self.pairs:
            note(
                f"{_shown(not is_worse(pair))} {pair.measure} against {pair.first}: {pair.difference:+.4f}, corrected "
                f"p {pair.p_corrected:.4f}"
            )

    def as_json(self) -> dict[str, Any]:
        """Return the verdict as a member of the report."""
        shown: dict[str, Any] = {"passed": self.passed, "checks": [asdict(each) for each in self.checks]}
        return shown if self.compared is None else shown | {"baseline": asdict(self.compared)}


def _note_unequal_depths(where: str, baseline: Run, own: Run, measures: Sequence[str]) -> None:
    """Note the measures that see more hits of one run than the other has of any question."""
    from mvindex.measure.metrics import parse_measure

    before, now = (max(map(len, run.values()), default=0) for run in (baseline, own))
    for name in measures if before != now else ():
        cutoff = parse_measure(name).cutoff
        if cutoff is None or cutoff > min(before, now):
            note(f"{where}: has up to {before:,} hits a question, this run {now:,}; {name} is compared as they are")


def parse_thresholds(texts: Sequence[str]) -> list[Threshold]:
    """Return the thresholds of --fail-below; wrong usage for a name or value that is none."""
    return [_parsed(text) for text in texts]


def is_worse(pair: Comparison) -> bool:
    """Return whether the second run is worse than the first, which is hardly chance."""
    return pair.difference < 0 and pair.p_corrected < _LEVEL


def append_text(path: str, text: str) -> None:
    """Append a text to a file, which need not exist; "" checks that it can be written."""
    with Path(user_path(path)).open("a", encoding="utf-8") as file:
        file.write(text)


def _summary(report: Mapping[str, Any], verdict: Verdict) -> Iterator[str]:
    """Yield the lines of the measures, thresholds and comparisons as Markdown."""
    least: dict[str, list[Check]] = {}
    for each in verdict.checks:
        least.setdefault(each.measure, []).append(each)
    yield f"## mvindex eval: {_shown(verdict.passed)}\n"
    yield f"{report['questions']:,} questions, {report['exact']:,} with certified results.\n"
    yield "| measure | questions | value | at least | |\n| --- | ---: | ---: | ---: | --- |"
    for section in SECTIONS:
        for name, value in _of(report, section).items():
            own = least.get(f"{section}.{name}", [])
            bounds, state = ", ".join(f"{each.least:g}" for each in own), _shown(all(each.passed for each in own))
            count = report["counts"][section]
            yield f"| {section} {name} | {count:,} | {value:.4f} | {bounds} | {state if own else ''} |"
    if verdict.compared is not None:
        means = {(each.run, each.measure): each.mean for each in verdict.compared.runs}
        yield "\n| measure | baseline | this | difference | corrected p | |\n| --- | ---: | ---: | ---: | ---: | --- |"
        for pair in verdict.pairs:
            yield (
                f"| {pair.measure} | {means[pair.first, pair.measure]:.4f} | {means[pair.second, pair.measure]:.4f} | "
                f"{pair.shown_difference} | {pair.p_corrected:.4f} | {_shown(not is_worse(pair))} |"
            )
    yield ""


def _of(report: Mapping[str, Any], section: str) -> Mapping[str, float]:
    found: Mapping[str, float] = report.get(section, {})
    return found


def _shown(passed: bool) -> str:
    return "passed" if passed else "FAILED"


def _parsed(text: str) -> Threshold:
    from mvindex.measure.metrics import parse_measure

    # A measure may have options: P(rel=2)@5=.3
    name, _, value = text.rpartition("=")
    section, _, measure = name.rpartition(".")
    try:
        least = float(value)
    except ValueError:
        least = math.nan
    if not name or not 0 <= least <= 1:
        raise typer.BadParameter(f"--fail-below: expected MEASURE=VALUE with a value from 0 to 1, got {text!r:.60}")
    if section and section not in SECTIONS:
        raise typer.BadParameter(f"--fail-below: expected a section {', '.join(SECTIONS)}, got {section!r:.60}")
    if measure not in _CITED:
        try:
            parse_measure(measure)
        except ConfigError as err:
            raise typer.BadParameter(f"--fail-below: {err}, or {', '.join(_CITED)} of --citations") from err
    return Threshold(measure=measure, least=least, section=section or None)


GATE = "Gate"


def evaluate(  # noqa: PLR0913 - each option is a flag of the command
    questions: Annotated[
        list[str],
        option(
            "Take the questions from JSONL, DPR, BEIR queries or id<TAB>text; or a BEIR folder, or "
            "ir_datasets:NAME. May be repeated.",
            QUESTIONS,
            "FILE",
        ),
    ],
    index: IndexOption = None,
    *,
    format: QuestionFormatOption = None,
    at: Annotated[str, option("Measure R@k at these k.", QUESTIONS, "K,...")] = "1,5,20,100",
    qrels: Annotated[
        str | None,
        option("Read relevance judgements, BEIR or TREC: adds nDCG@10, MRR@10 and recall.", QUESTIONS, "FILE"),
    ] = None,
    split: SplitOption = None,
    compare: Annotated[
        list[str] | None,
        option(
            "Compare with this TREC run file by nDCG@10 or --measure; needs judgements. May be repeated.",
            QUESTIONS,
            "RUN",
        ),
    ] = None,
    measure: MeasureOption = None,
    regex: Annotated[bool, switch("--regex", "Read answers as regular expressions (CuratedTREC).", QUESTIONS)] = False,
    citations: Annotated[
        bool, switch("--citations", "Also measure how often what a hit cites holds an answer.", QUESTIONS)
    ] = False,
    fail_below: Annotated[
        list[str] | None,
        option(
            "Exit with 3 where a measure is below a value: R@1=.85, gold.R@1=.85, nDCG@10=.4; may be repeated.",
            GATE,
            "MEASURE=VALUE",
        ),
    ] = None,
    baseline: Annotated[
        str | None,
        option(
            "Exit with 3 where the index is worse than this TREC run, --trec of an earlier eval, and that is "
            "hardly chance.",
            GATE,
            "RUN",
        ),
    ] = None,
    summary: Annotated[
        str | None, option("Append the measures as Markdown to this file, such as $GITHUB_STEP_SUMMARY.", GATE, "FILE")
    ] = None,
    search: SearchFlags,
    rerank: RerankFlags,
    trec: TrecOption = None,
    force: ForceRunOption = False,
    allow_partial: PartialOption = False,
    device: DeviceOption = None,
    threads: ThreadsOption = None,
    output: OutputOption = Output.TABLE,
    as_json: JsonOption = False,
) -> None:
    """Measure retrieval quality: recall of gold passages, DPR's answer accuracy, and metrics by judgements.

    What is measured depends on what the files know: passages, answers or judgements.

    Example: mvindex eval --questions questions.jsonl

    Example: mvindex eval --index corpus.mvx --questions queries.jsonl --qrels qrels.tsv --json

    Example: mvindex eval --questions questions.jsonl --fail-below R@1=.85 --baseline main.run
    """
    from mvindex.cli.progress import show_count_progress
    from mvindex.measure.compare import open_run, read_run
    from mvindex.measure.metrics import Evaluation
    from mvindex.measure.questions import read_qrels, read_questions

    request = search.request()
    rerank.check()
    thresholds = parse_thresholds(fail_below or [])
    cutoffs, question_format = parse_cutoffs(at), parse_question_format(format)
    questions, qrels = find_judged_files(questions, qrels, split)
    judged = read_qrels(qrels) if qrels else None
    _check_judged({"--compare": compare, "--measure": measure}, judged is not None)
    others = {path: read_run(path) for path in compare or ()}
    gate = Gate(thresholds=thresholds, baseline=baseline, run=None if baseline is None else read_run(baseline))
    _check_places(trec, summary)
    from mvindex.cli.search import Searcher

    with (
        open_chosen(index, device, allow_partial=allow_partial) as target,
        open_run(trec, force=force) if trec else nullcontext() as run,
    ):
        # Without a shard, its documents would look like gold documents that the index does not have.
        documents = None if target.missing_shards else target
        cutoffs = (*cutoffs, *gate.cutoffs)
        measures = [f"R@{cutoff}" for cutoff in cutoffs] + (measure or []) + gate.judged_measures
        evaluation = Evaluation(cutoffs, judged, regex, documents, citations=citations, measures=measures)
        own: dict[str, list[str]] = {}
        gold: dict[str, dict[str, int]] = {}
        searcher = Searcher(target, replace(request, top_k=evaluation.needed_depth), rerank, device)
        with show_count_progress("questions", None) as advance:
            for batch in batched(read_questions(questions, question_format), QUESTION_BATCH):
                results = searcher.search([question.text for question in batch])
                for question, result in zip(batch, results, strict=True):
                    evaluation.add(question, result)
                    if question.passage_id is not None:
                        gold[question.id] = {question.passage_id: 1}
                    if others or baseline is not None:
                        own[question.id] = [hit.id for hit in result.hits]
                    if run is not None:
                        run.add(question.id, result.hits)
                advance(len(batch))
        missing = list(target.missing_shards)
        report = evaluation.report() | searcher.described | ({"missing_shards": missing} if missing else {})
    _check_measured(report, qrels)
    from mvindex.measure.compare import DEFAULT_MEASURES, compare_runs

    # Runs are compared by the questions that were asked.
    asked = gold if judged is None else {each: judged[each] for each in own if each in judged}
    compared = compare_runs({**others, "this": own}, asked, measure or DEFAULT_MEASURES) if others else None
    try:
        verdict = gate.verdict(report, own, asked, measure)
    except ConfigError:
        _print_all(report, compared, None, output)  # what was measured is right
        raise
    _print_all(report, compared, verdict.as_json() if gate.is_set else None, output)
    verdict.show()
    if summary is not None:
        append_text(summary, "\n".join(_summary(report, verdict)) + "\n")
    if not verdict.passed:
        raise typer.Exit(REFUSED)


def _check_measured(report: Mapping[str, Any], qrels: str | None) -> None:
    """Check that judgements are of the questions, and say what was left out of the measures."""
    if qrels is not None and report["questions"] and not report["counts"]["qrels"]:
        raise ConfigError(
            f"{qrels}: expected judgements of these {report['questions']:,} questions, got {report['unasked']:,} of "
            "other ids"
        )
    if report.get("unasked"):
        note(f"{report['unasked']:,} judged questions were not asked; no measure counts them")
    if report.get("relevant_missing"):
        note(
            f"relevant judgements of documents that the index lacks: {report['relevant_missing']:,}; each counts as "
            "not found. Compare the ids of the judgements with those of the index"
        )
    if not any(report["counts"].values()):
        note("nothing was measured: no question has a passage, answers or judgements; give --qrels FILE")


def _check_places(trec: str | None, summary: str | None) -> None:
    """Check before the search that the run has a file of its own, and that the summary can be written."""
    if trec == "-":
        raise typer.BadParameter("--trec -: expected a file, since stdout has the report")
    if summary is not None:
        append_text(summary, "")


def _check_judged(options: Mapping[str, object], is_judged: bool) -> None:
    """Check that there are judgements where options need them."""
    for name, value in options.items():
        if value and not is_judged:
            raise typer.BadParameter(f"{name}: needs judgements, --qrels FILE")


def _print_all(
    report: Mapping[str, Any], compared: RunReport | None, gate: Mapping[str, Any] | None, output: Output
) -> None:
    """Print the report, the comparison with other runs, and, for programs, the gate."""
    if output is Output.TABLE:
        _print_report(report, output)
        if compared is not None:
            print_comparison(compared, output)
        return
    added = {"compared": None if compared is None else asdict(compared), "gate": gate}
    print_report("", {**report, **{name: value for name, value in added.items() if value is not None}}, output)


def _print_report(report: Mapping[str, Any], output: Output) -> None:
    """Print the report; for people, shares of questions in percent and other measures as numbers."""
    if output is not Output.TABLE:
        print_report("", report, output)
        return
    for section in SECTIONS:
        if section in report:
            shown = {name: _shown_measure(section, name, value) for name, value in report[section].items()}
            print_report(f"{section.replace('_', ' ')} ({report['counts'][section]:,} questions)", shown, output)
            typer.echo()
    print_report("evaluation", {name: value for name, value in report.items() if not isinstance(value, dict)}, output)


def _shown_measure(section: str, name: str, value: float) -> str:
    return f"{value:.4f}" if section == "qrels" and not name.startswith("R@") else f"{100 * value:.2f} %"
