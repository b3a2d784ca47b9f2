"""The command line: parses, calls, prints. Data on stdout, the rest on stderr; exit 0 done, 1 error, 2 wrong usage."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from enum import Enum
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from mvindex import __version__
from mvindex.errors import ConfigError, MvindexError, QueryError

if TYPE_CHECKING:
    from mvindex.index import Index
    from mvindex.ingest_files import FileReport
    from mvindex.questions import QuestionFormat

T = TypeVar("T")
Choice = TypeVar("Choice", bound=Enum)

app = typer.Typer(
    name="mvindex",
    help="Multi-view dense retrieval: several vectors a document, k distinct documents an answer.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

IndexOption = Annotated[
    Path | None,
    typer.Option("--index", "-i", help="Index directory; may be left out with one *.mvx here.", envvar="MVINDEX_INDEX"),
]
JsonOption = Annotated[bool, typer.Option("--json", help="JSON on stdout, one line a result.")]
DeviceOption = Annotated[str | None, typer.Option(help="cpu or cuda; the best there is by default.")]
FilterOption = Annotated[
    str | None, typer.Option("--filter", help='JSON over metadata, such as \'{"year": {"gte": 1990}}\'.')
]
ScoringOption = Annotated[str, typer.Option(help="max, the best view, or drpq, the softmax mean of the views.")]
TemperatureOption = Annotated[
    float | None, typer.Option(help="Of drpq: divides view scores in the softmax; the index's own by default.")
]
CandidatesOption = Annotated[
    int | None, typer.Option(help="Of drpq: look at so many view hits only, and certify only what they prove.")
]
QuestionFormatOption = Annotated[
    str | None, typer.Option(help="Of the questions: jsonl, dpr, tsv or text (one a line); all but text found.")
]

_QUESTION_BATCH = 256
_is_debug = False


def _show_version(is_asked: bool) -> None:
    if is_asked:
        typer.echo(f"mvindex {__version__}")
        raise typer.Exit


@app.callback()
def root(
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks.")] = False,
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", is_eager=True, callback=_show_version)
    ] = False,
) -> None:
    """Multi-view dense retrieval: several vectors a document, k distinct documents an answer.

    Example: mvindex ingest corpus.tsv && mvindex query "when did the oil crisis begin?"
    """
    global _is_debug
    _is_debug = debug


@app.command()
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
    device: DeviceOption = None,
    as_json: JsonOption = False,
) -> None:
    """Read corpus files, encode their documents, and add them to an index (made if there is none).

    Known ids are replaced, unchanged documents skipped; interrupted, give the same command again to go on.

    Example: mvindex ingest corpus.tsv --index corpus.mvx
    """
    from mvindex import display
    from mvindex.corpus import open_corpus
    from mvindex.ingest_files import FileIngest, OnError

    skip_or_stop = _parse_choice("--on-error", on_error, OnError)
    options = _corpus_options(format, id_field, text_field, title_field)
    console = display.stderr()
    corpus = open_corpus(
        files,
        options,
        lambda source: console.print(display.visible(f"reading {source}"), soft_wrap=True, markup=False),
    )
    path = index or _default_path(corpus.paths)
    new = {"encoder": encoder, "family": family, "max_views": views, "dtype": dtype, "temperature": temperature}
    with _opened_for_ingest(path, new, device) as target:
        run = FileIngest(target, corpus, skip_or_stop, path.absolute().with_suffix(""), lambda text: _note(text))
        started = time.monotonic()
        with display.DocumentProgress(corpus.bytes_total) as progress, _stop_on_interrupt() as should_stop:
            report = run.run(lambda count: progress.advance(count, corpus.bytes_read), should_stop)
        _print_ingest(report, (path, len(target)), time.monotonic() - started, as_json)
    if report.ingest.stopped:
        raise typer.Exit(1)


@app.command()
def query(  # noqa: PLR0913 - each option is a flag of the command
    text: Annotated[str | None, typer.Argument(help="The question.", show_default=False)] = None,
    index: IndexOption = None,
    queries: Annotated[str | None, typer.Option(help="A file of questions instead; - is stdin.")] = None,
    format: QuestionFormatOption = None,
    top_k: Annotated[int, typer.Option("--top-k", "-k", help="Documents wanted.")] = 10,
    filter_json: FilterOption = None,
    scoring: ScoringOption = "max",
    temperature: TemperatureOption = None,
    candidates: CandidatesOption = None,
    exact: Annotated[bool, typer.Option("--exact", help="Demand a certified answer, whatever the engine.")] = False,
    explain: Annotated[
        bool, typer.Option("--explain", help="Show every view's score, the winner's margin and drpq's weights.")
    ] = False,
    trec: Annotated[str | None, typer.Option(help="Write a TREC run file; with - to stdout.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite the run file.")] = False,
    device: DeviceOption = None,
    as_json: JsonOption = False,
) -> None:
    """Answer a question, or a file of them: top-k distinct documents, each with the snippet that won.

    Example: mvindex query "when did the oil crisis begin?" --top-k 5 --json
    """
    from contextlib import nullcontext

    from mvindex import display
    from mvindex.questions import Question, read_questions
    from mvindex.trec import open_run

    if (text is None) == (queries is None):
        raise typer.BadParameter("give either a question or --queries FILE")
    if format is not None and queries is None:
        raise typer.BadParameter(f"--format {format}: belongs to --queries FILE")
    _check_scoring(scoring, temperature, candidates, exact)
    read = [Question("1", text)] if text is not None else read_questions([queries or "-"], _question_format(format))
    condition = _parse_filter(filter_json)
    with _open(index, device) as target, open_run(trec, force=force) if trec else nullcontext() as run:
        how = _scoring_of(target, scoring, temperature)
        asked = _scoring_of(target, scoring, temperature, candidates)
        for batch in _batches(read, _QUESTION_BATCH):
            # Encoded once: the search and every explanation then speak of the same vector.
            vectors = target.encode_queries([question.text for question in batch])
            results = target.search(vectors, top_k=top_k, filter=condition, exact=exact, **asked)
            for question, vector, result in zip(batch, vectors, results, strict=True):
                if run is not None:
                    run.add(question.id, result.hits)
                views = {hit.id: target.explain(vector, hit.id, **how) for hit in result.hits} if explain else None
                if as_json:
                    identity = {"query_id": question.id} if queries is not None else {}
                    display.print_json(identity | display.result_json(question.text, result, asked, views))
                elif trec is None:
                    display.print_result(question.text, result, asked, views)
    if trec not in (None, "-"):
        _note(f"wrote {trec}")


@app.command(name="eval")
def evaluate(  # noqa: PLR0913 - each option is a flag of the command
    questions: Annotated[list[str], typer.Option(help="Question files: JSONL, DPR, BEIR queries, id<TAB>text.")],
    index: IndexOption = None,
    format: QuestionFormatOption = None,
    at: Annotated[str, typer.Option(help="Cut-offs of R@k.")] = "1,5,20,100",
    qrels: Annotated[str | None, typer.Option(help="Judgements, BEIR or TREC: adds nDCG@10, MRR@10, recall.")] = None,
    regex: Annotated[bool, typer.Option("--regex", help="Answers are patterns (CuratedTREC).")] = False,
    filter_json: FilterOption = None,
    scoring: ScoringOption = "max",
    temperature: TemperatureOption = None,
    candidates: CandidatesOption = None,
    exact: Annotated[bool, typer.Option("--exact", help="Demand certified answers, whatever the engine.")] = False,
    trec: Annotated[str | None, typer.Option(help="Write a TREC run file too.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite the run file.")] = False,
    device: DeviceOption = None,
    as_json: JsonOption = False,
) -> None:
    """Measure retrieval: recall of gold passages, DPR's answer accuracy, metrics over judgements.

    Example: mvindex eval --index corpus.mvx --questions questions.jsonl --at 1,5,20,100 --json
    """
    from contextlib import nullcontext

    from mvindex import display
    from mvindex.evaluate import Evaluation
    from mvindex.questions import read_qrels, read_questions
    from mvindex.trec import open_run

    _check_scoring(scoring, temperature, candidates, exact)
    condition, cutoffs, shape = _parse_filter(filter_json), _parse_cutoffs(at), _question_format(format)
    judged = read_qrels(qrels) if qrels else None
    with _open(index, device) as target, open_run(trec, force=force) if trec else nullcontext() as run:
        asked = _scoring_of(target, scoring, temperature, candidates)
        evaluation = Evaluation(cutoffs, judged, regex, target)
        with display.question_progress(None) as progress:
            for batch in _batches(read_questions(questions, shape), _QUESTION_BATCH):
                texts = [question.text for question in batch]
                found = target.search(texts, top_k=evaluation.needed_depth, filter=condition, exact=exact, **asked)
                for question, result in zip(batch, found, strict=True):
                    evaluation.add(question, result)
                    if run is not None:
                        run.add(question.id, result.hits)
                progress.advance(progress.task_ids[0], len(batch))
    report = evaluation.report() | asked
    if as_json:
        display.print_json(report)
        return
    for section in ("gold", "answer", "qrels"):
        if section in report:
            shares = {name: f"{100 * value:.2f} %" for name, value in report[section].items()}
            display.print_table(f"{section} ({report['counts'][section]:,} questions)", shares)
    display.print_table("evaluation", {name: value for name, value in report.items() if not isinstance(value, dict)})


@app.command()
def get(
    ids: Annotated[list[str], typer.Argument(help="Document ids.")],
    index: IndexOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show documents by id. Exit 1 when one is not there.

    Example: mvindex get 17 --json
    """
    from mvindex import display

    missing = []
    with _open(index, None) as target:
        for doc_id in ids:
            document = target.get(doc_id)
            if document is None:
                missing.append(doc_id)
                continue
            row = {"id": document.id, "title": document.title, "text": document.text, "metadata": document.metadata}
            display.print_json(row) if as_json else display.print_table(document.id, row)
    if missing:
        raise QueryError(f"there is no document {', '.join(map(repr, missing))}")


@app.command()
def delete(
    ids: Annotated[list[str] | None, typer.Argument(help="Document ids.", show_default=False)] = None,
    index: IndexOption = None,
    filter_json: FilterOption = None,
    as_json: JsonOption = False,
) -> None:
    """Delete documents by id or by a filter, all in one step.

    Example: mvindex delete 17 18, or: mvindex delete --filter '{"lang": "de"}'
    """
    from mvindex import display

    if bool(ids) == (filter_json is not None):
        raise typer.BadParameter("give either ids or --filter")
    with _open(index, None) as target:
        count = target.delete(filter=_parse_filter(filter_json)) if filter_json is not None else target.delete(ids=ids)
        row = {"deleted": count, "documents": len(target)}
    if ids and count < len(set(ids)):
        _note(f"{len(set(ids)) - count} of the ids were not in the index")
    display.print_json(row) if as_json else display.print_table("delete", row)


@app.command()
def info(index: IndexOption = None, as_json: JsonOption = False) -> None:
    """Show what an index is: encoder, dims, engine, sizes; and which exact scan this machine has for it.

    Example: mvindex info --index corpus.mvx --json
    """
    from dataclasses import asdict

    from mvindex import display, engines

    with _open(index, None) as target:
        row = asdict(target.info()) | {"scan": engines.scan_name()}
    display.print_json(row) if as_json else display.print_table(row["path"], row)


@app.command()
def build(
    kind: Annotated[str, typer.Option(help="exact (scan), flat (Faiss, exact) or hnsw (Faiss, approximate).")],
    index: IndexOption = None,
    as_json: JsonOption = False,
) -> None:
    """Build a search engine over all documents and make it the active one; exact needs none and undoes a build.

    Example: mvindex build --kind hnsw
    """
    from mvindex import display

    started = time.monotonic()
    with _open(index, None) as target:
        target.build(kind=kind)
        row = {"kind": kind, "documents": len(target), "seconds": round(time.monotonic() - started, 2)}
    display.print_json(row) if as_json else display.print_table("build", row)


app.command(name="add", hidden=True)(ingest)
app.command(name="search", hidden=True)(query)


def main() -> None:
    """The program: our errors become one line on stderr and exit 1."""
    _add_commands()
    try:
        app()
    except MvindexError as err:
        if _is_debug:
            raise
        from mvindex.display import visible

        sys.stderr.write(visible(f"mvindex: {err}\n"))
        sys.exit(1)
    except BrokenPipeError:
        # The reader of our output has gone (`| head`): nothing more to say, and nothing to flush at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)


def _add_commands() -> None:
    """Nothing; the commands of add-ons (entry points `mvindex.commands`, each a typer app) stand beside ours."""
    from importlib.metadata import entry_points

    for entry in entry_points(group="mvindex.commands"):
        try:
            addon = entry.load()
        except ImportError as err:
            _note(f"mvindex: the commands of {entry.value!r} are left out: {err}")
        else:
            app.registered_commands.extend(addon.registered_commands)


def _note(text: str) -> None:
    sys.stderr.write(text + "\n")


def _open(path: Path | None, device: str | None) -> Index:
    from mvindex.index import open_index

    return open_index(path or _only_index(), device=device)


def _only_index() -> Path:
    """The one index in the current directory."""
    found = sorted(entry for entry in Path.cwd().glob("*.mvx") if entry.is_dir())
    if len(found) == 1:
        return Path(found[0].name)
    names = ", ".join(entry.name for entry in found) or "none"
    raise ConfigError(f"say which index: --index DIR (*.mvx in this folder: {names})")


def _default_path(paths: Sequence[str]) -> Path:
    """NAME.mvx in the current directory, after the first input file."""
    if paths[0] == "-":
        raise ConfigError("say where the index goes: --index DIR (stdin has no name to take it from)")
    return Path(Path(paths[0]).name.split(".")[0] + ".mvx")


@contextmanager
def _opened_for_ingest(path: Path, new: dict[str, Any], device: str | None) -> Iterator[Index]:
    """The index at path, made when there is none; one that was made and stayed empty is removed again."""
    from mvindex.encoder import load_encoder
    from mvindex.index import create, open_index, remove_untouched

    if path.exists():
        with open_index(path, device=device) as index:
            _refuse_other_settings(index, new)
            yield index
        return
    chosen = {name: value for name, value in new.items() if value is not None}
    dtype, temperature = chosen.pop("dtype", "fp16"), chosen.pop("temperature", None)
    encoder = load_encoder(chosen.pop("encoder", "minilm"), device=device, **chosen)
    with create(path, encoder=encoder, dtype=dtype, temperature=temperature) as index:
        try:
            yield index
        finally:
            remove_untouched(index)


def _refuse_other_settings(index: Index, new: dict[str, Any]) -> None:
    """Nothing, when what was asked of a new index is what this one has: an interrupted command may be given again."""
    info = index.info()
    encoder = info.encoder or {}
    has = {**encoder, "encoder": encoder.get("source"), "dtype": info.dtype, "temperature": info.temperature}
    for name, value in new.items():
        if value is not None and value != has.get(name):
            flag = "views" if name == "max_views" else name
            raise ConfigError(f"{index.path} was made with {flag} {has.get(name)!r}, not {value!r}; see mvindex info")


@contextmanager
def _stop_on_interrupt() -> Iterator[Callable[[], bool]]:
    """Inside it, the first Ctrl-C only asks to stop; a second one interrupts at once."""
    asked = False

    def ask(number: int, frame: Any) -> None:
        nonlocal asked
        asked = True
        signal.signal(signal.SIGINT, before)
        _note("stopping after this chunk; Ctrl-C again to stop at once (nothing stored is lost)")

    before = signal.signal(signal.SIGINT, ask)
    try:
        yield lambda: asked
    finally:
        signal.signal(signal.SIGINT, before)


def _print_ingest(report: FileReport, into: tuple[Path, int], seconds: float, as_json: bool) -> None:
    from mvindex import display

    done, (path, documents) = report.ingest, into
    files = [str(path) for path in report.rejects_files]
    row = {
        "index": str(path),
        "documents": documents,
        "added": done.added,
        "replaced": done.replaced,
        "updated": done.updated,
        "unchanged": done.unchanged,
        "rejected": report.rejected,
        "rejects_files": files,
        "stopped": done.stopped,
        "seconds": round(seconds, 2),
    }
    display.print_json(row) if as_json else display.print_table("ingest", row)
    if report.rejected:
        _note(f"{report.rejected} rows rejected, reasons in {report.reasons_file}; mend them and ingest again:")
        for file, format in report.rejects_files.items():
            _note(f"  mvindex ingest {file} --format {format.value} --index {path}")
        _note("(a row rejected for a duplicate id would then replace the document that has it)")
    if done.stopped:
        _note("stopped before the end; the same command goes on from here")


def _corpus_options(format: str | None, id_field: str | None, text_field: str | None, title_field: str | None) -> Any:
    from mvindex.corpus import CorpusFormat, CorpusOptions

    chosen = None if format is None else _parse_choice("--format", format, CorpusFormat)
    return CorpusOptions(format=chosen, id_field=id_field, text_field=text_field, title_field=title_field)


def _question_format(name: str | None) -> QuestionFormat | None:
    from mvindex.questions import QuestionFormat

    return None if name is None else _parse_choice("--format", name, QuestionFormat)


def _parse_choice(option: str, value: str, choices: type[Choice]) -> Choice:
    """The member of that value."""
    names = [item.value for item in choices]
    if value not in names:
        raise typer.BadParameter(f"{option} {value}: wanted {', '.join(names[:-1])} or {names[-1]}")
    return choices(value)


def _check_scoring(scoring: str, temperature: float | None, candidates: int | None, exact: bool) -> None:
    """Nothing; the options go together, and a temperature is refused before an encoder is loaded."""
    from mvindex.aggregate import Aggregate, Scoring

    aggregate = _parse_choice("--scoring", scoring, Aggregate)
    for option, value in (("--temperature", temperature), ("--candidates", candidates)):
        if value is not None and aggregate is Aggregate.MAX:
            raise typer.BadParameter(f"{option} {value}: belongs to --scoring drpq; the scoring here is {scoring}")
    if candidates is not None and exact:
        raise typer.BadParameter(
            f"--candidates {candidates} limits the search, --exact demands a certified one; give one of them"
        )
    if temperature is not None:
        Scoring(aggregate, temperature)


def _scoring_of(index: Index, scoring: str, temperature: float | None, candidates: int | None = None) -> dict[str, Any]:
    """The scoring and, for drpq, its temperature and candidates, as search() takes them and as results name them."""
    if scoring == "max":
        return {"scoring": scoring}
    used = {"scoring": scoring, "temperature": index.temperature if temperature is None else temperature}
    return used if candidates is None else used | {"candidates": candidates}


def _parse_filter(text: str | None) -> Any:
    if text is None:
        return None
    try:
        return json.loads(text)
    except ValueError as err:
        raise QueryError(f'--filter is not JSON: {err}; wanted an object such as {{"year": {{"gte": 1990}}}}') from err


def _parse_cutoffs(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError as err:
        raise typer.BadParameter(f"--at {text}: wanted whole numbers such as 1,5,20,100") from err


def _batches(items: Iterable[T], size: int) -> Iterator[list[T]]:
    iterator = iter(items)
    while batch := list(islice(iterator, size)):
        yield batch
