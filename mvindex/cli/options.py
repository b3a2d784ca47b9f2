"""Options that several commands share, their parsers, and the choice of the index."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator
from enum import Enum
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TypeVar

import typer

from mvindex.errors import ConfigError, QueryError, Unsupported

if TYPE_CHECKING:
    from mvindex.eval.questions import QuestionFormat
    from mvindex.index import Index, IndexProtocol
    from mvindex.scoring.fusion import Mode

T = TypeVar("T")
Choice = TypeVar("Choice", bound=Enum)

IndexOption = Annotated[
    str | None,
    typer.Option(
        "--index",
        "-i",
        help="Index directory, or an address such as milvus://HOST:PORT/NAME; may be left out with one *.mvx here.",
        envvar="MVINDEX_INDEX",
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="JSON on stdout, one line a result.")]
DeviceOption = Annotated[str | None, typer.Option(help="cpu or cuda; the best there is by default.")]
FilterOption = Annotated[
    str | None, typer.Option("--filter", help='JSON over metadata, such as \'{"year": {"gte": 1990}}\'.')
]
PartialOption = Annotated[
    bool, typer.Option("--allow-partial", help="Answer without shards that are missing or damaged, and say so.")
]
ScoringOption = Annotated[str, typer.Option(help="max, the best view, or drpq, the softmax mean of the views.")]
TemperatureOption = Annotated[
    float | None, typer.Option(help="Of drpq: divides view scores in the softmax; the index's own by default.")
]
CandidatesOption = Annotated[
    int | None, typer.Option(help="Of drpq: look at so many view hits only, and certify only what they prove.")
]
ModeOption = Annotated[
    str, typer.Option(help="dense, by views; lexical, by terms (BM25); hybrid, both (docs/hybrid.md).")
]
HybridOption = Annotated[bool, typer.Option("--hybrid", help="Short for --mode hybrid.")]
FusionOption = Annotated[
    str | None, typer.Option(help="Of hybrid: zscore, minmax or rrf; as the index was tuned, or zscore.")
]
WeightsOption = Annotated[
    str | None,
    typer.Option(metavar="DENSE,LEXICAL", help="Of hybrid: weights of both scores; as tuned, or 1,1."),
]
RerankOption = Annotated[
    str | None, typer.Option(metavar="CHECKPOINT", help="A cross-encoder, folder or hub id, orders what was found.")
]
RerankOnOption = Annotated[str | None, typer.Option(help="Of --rerank: it reads the snippet (default) or the text.")]
RerankDepthOption = Annotated[
    int | None, typer.Option(help="Of --rerank: so many documents are ordered; 50, or --top-k if that is more.")
]
QuestionFormatOption = Annotated[
    str | None, typer.Option(help="Of the questions: jsonl, dpr, tsv or text (one a line); all but text found.")
]

QUESTION_BATCH = 256


def note(text: str) -> None:
    """Write a line to stderr."""
    sys.stderr.write(text + "\n")


def open_chosen(place: str | None, device: str | None, *, allow_partial: bool = False) -> IndexProtocol:
    """Open the index at this place, or the only one in this folder."""
    from mvindex.index.factory import open_index

    return open_index(place or _only_index(), device=device, allow_partial=allow_partial)


def open_chosen_local(place: str | None, device: str | None = None) -> Index:
    """Open an index that this process works on itself; Unsupported for one behind a server."""
    from mvindex.index.factory import open_local

    return open_local(place or _only_index(), device=device)


def unsupported(index: IndexProtocol) -> dict[str, str]:
    """Return the operations that the index does not have, each with the reason and the way out."""
    return {operation.value: reason for operation, reason in index.capabilities.unsupported.items()}


def chosen_path(place: str | None) -> Path:
    """Return the directory, or that of the only index in this folder; raise Unsupported for an address."""
    from mvindex.index.backends import find_backend

    backend = None if place is None else find_backend(place)
    if place is not None and backend is not None:
        raise Unsupported(f"{backend.shown(place)}: this command works on an index in a directory only")
    return Path(place or _only_index())


def is_address(place: str | None) -> bool:
    """Return whether an index is behind an address, not in a directory."""
    from mvindex.index.backends import find_backend

    return place is not None and find_backend(place) is not None


def _only_index() -> Path:
    """Return the only index in the current directory; raise ConfigError where there is none, or several."""
    found = sorted(entry for entry in Path.cwd().glob("*.mvx") if entry.is_dir())
    if len(found) == 1:
        return Path(found[0].name)
    names = ", ".join(entry.name for entry in found) or "none"
    raise ConfigError(f"say which index: --index DIR (*.mvx in this folder: {names})")


def question_format(name: str | None) -> QuestionFormat | None:
    """Return the format of that name; None to detect it from the file."""
    from mvindex.eval.questions import QuestionFormat

    return None if name is None else parse_choice("--format", name, QuestionFormat)


def parse_choice(option: str, value: str, choices: type[Choice]) -> Choice:
    """Return the member of that value; raise BadParameter, with all values, where there is none."""
    names = [item.value for item in choices]
    if value not in names:
        raise typer.BadParameter(f"{option} {value}: expected {', '.join(names[:-1])} or {names[-1]}")
    return choices(value)


def parse_value(option: str, value: str | None, parse: Callable[[str], Any]) -> None:
    """Check the value of an option by a parser of the library; raise BadParameter with its message."""
    if value is None:
        return
    try:
        parse(value)
    except (ConfigError, QueryError) as err:
        raise typer.BadParameter(f"{option} {value}: {err}") from err


def check_scoring(scoring: str, temperature: float | None, candidates: int | None, exact: bool) -> None:
    """Check that the options go together; refuse a wrong temperature before an encoder is loaded."""
    from mvindex.scoring.aggregate import Aggregate, Scoring

    aggregate = parse_choice("--scoring", scoring, Aggregate)
    for option, value in (("--temperature", temperature), ("--candidates", candidates)):
        if value is not None and aggregate is Aggregate.MAX:
            raise typer.BadParameter(f"{option} {value}: belongs to --scoring drpq; the scoring here is {scoring}")
    if candidates is not None and exact:
        raise typer.BadParameter(
            f"--candidates {candidates} limits the search, --exact demands a certified one; give one of them"
        )
    if temperature is not None:
        Scoring(aggregate, temperature)


def scoring_of(
    index: IndexProtocol, scoring: str, temperature: float | None, candidates: int | None = None
) -> dict[str, Any]:
    """Return the arguments of search() for the scoring, also fields of results."""
    if scoring == "max":
        return {"scoring": scoring}
    used = {"scoring": scoring, "temperature": index.temperature if temperature is None else temperature}
    return used if candidates is None else used | {"candidates": candidates}


class ModeOptions(NamedTuple):
    """The mode of a search; for hybrid also fusion and weights, None for the defaults of the index."""

    mode: Mode
    fusion: str | None
    weights: list[str] | None

    def for_index(self, index: IndexProtocol) -> dict[str, Any]:
        """Return the arguments of search() on that index, also fields of results; none for dense."""
        from mvindex.scoring.fusion import Mode, parse_fusion

        if self.mode is Mode.DENSE:
            return {}
        if self.mode is Mode.LEXICAL:
            return {"mode": self.mode.value}
        how = parse_fusion(self.fusion, self.weights, index.fusion)
        return {"mode": self.mode.value, "fusion": how.method.value, "weights": list(how.weights)}


def parse_mode_options(mode: str, hybrid: bool, fusion: str | None, weights: str | None) -> ModeOptions:
    """Return the options of the mode, checked before an index is opened."""
    from mvindex.scoring.fusion import Mode, parse_fusion

    if hybrid and mode not in ("dense", "hybrid"):
        raise typer.BadParameter(f"--hybrid is short for --mode hybrid; --mode {mode} says otherwise")
    chosen = Mode.HYBRID if hybrid else parse_choice("--mode", mode, Mode)
    for option, value in (("--fusion", fusion), ("--weights", weights)):
        if value is not None and chosen is not Mode.HYBRID:
            raise typer.BadParameter(f"{option} {value}: belongs to --hybrid; the mode here is {chosen.value}")
    parts = None if weights is None else weights.split(",")
    parse_value("--fusion", fusion, lambda method: parse_fusion(method, None))
    parse_value("--weights", weights, lambda text: parse_fusion(fusion, text.split(",")))
    return ModeOptions(chosen, fusion, parts)


def rerank_of(rerank: str | None, on: str | None, depth: int | None) -> dict[str, Any]:
    """Return the arguments of search() for reranking, also fields of results; none without --rerank."""
    if rerank is None:
        for option, value in (("--rerank-on", on), ("--rerank-depth", depth)):
            if value is not None:
                raise typer.BadParameter(f"{option} {value}: belongs to --rerank CHECKPOINT")
        return {}
    arguments = {"rerank": rerank, "rerank_on": on or "snippet"}
    return arguments if depth is None else arguments | {"rerank_depth": depth}


def parse_filter(text: str | None) -> Any:
    """Return the filter of --filter; raise QueryError when it is not JSON."""
    if text is None:
        return None
    try:
        return json.loads(text)
    except ValueError as err:
        raise QueryError(f'--filter is not JSON: {err}; expected such as {{"year": {{"gte": 1990}}}}') from err


def parse_cutoffs(text: str) -> tuple[int, ...]:
    """Return the numbers of --at."""
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError as err:
        raise typer.BadParameter(f"--at {text}: expected whole numbers such as 1,5,20,100") from err


def batches(items: Iterable[T], size: int) -> Iterator[list[T]]:
    """Yield the items in lists of up to size."""
    iterator = iter(items)
    while batch := list(islice(iterator, size)):
        yield batch
