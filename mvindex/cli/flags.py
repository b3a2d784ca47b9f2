"""Options that go together, each group a class whose fields become options of the commands that take it."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields, is_dataclass
from enum import Enum
from functools import wraps
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from mvindex.cli.options import (
    CORPUS,
    FOLDERS,
    HYBRID,
    option,
    parse_choice,
    parse_filter,
    parsing_flags,
    search_option,
    switch,
)
from mvindex.records import MAX_DOCUMENT_CHARS

if TYPE_CHECKING:
    from mvindex.search.fusion import Mode
    from mvindex.search.like import Like
    from mvindex.search.request import SearchRequest


def expand_flags(command: Callable[..., Any]) -> Callable[..., Any]:
    """Return the command with the fields of each parameter that is a class of flags as parameters of their own."""
    parameters, groups = list[inspect.Parameter](), dict[str, Any]()
    for parameter in inspect.signature(command, eval_str=True).parameters.values():
        kind = parameter.annotation
        if not is_dataclass(kind):
            parameters.append(parameter)
            continue
        groups[parameter.name] = kind
        hints = get_type_hints(kind, include_extras=True)
        parameters += [
            inspect.Parameter(each.name, parameter.kind, default=each.default, annotation=hints[each.name])
            for each in fields(kind)
        ]

    @wraps(command)
    def run(**given: Any) -> Any:
        for name, kind in groups.items():
            given[name] = kind(**{each.name: given.pop(each.name) for each in fields(kind)})
        return command(**given)

    run.__annotations__ = {each.name: each.annotation for each in parameters}
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return run


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchFlags:
    """Which documents are searched, and how they are scored."""

    filter_json: Annotated[str | None, search_option("filter", "--filter", metavar="CONDITIONS")] = None
    scoring: Annotated[str, search_option("scoring", metavar="max|drpq")] = "max"
    temperature: Annotated[float | None, search_option("temperature")] = None
    candidates: Annotated[int | None, search_option("candidates")] = None
    mode: Annotated[str, search_option("mode", metavar="MODE")] = "auto"
    hybrid: Annotated[bool, switch("--hybrid", "Short for --mode hybrid.", HYBRID)] = False
    fusion: Annotated[str | None, search_option("fusion", metavar="METHOD")] = None
    weights: Annotated[str | None, search_option("weights", metavar="DENSE,LEXICAL")] = None
    operators: Annotated[bool, search_option("operators", "--operators")] = False
    exact: Annotated[bool, search_option("exact", "--exact")] = False

    def request(self, top_k: int = 10, **options: Any) -> SearchRequest:
        """Return the request without queries, checked before an index is opened; options: others of a search.

        Raises:
            typer.BadParameter: For unknown names, numbers out of range, and options that do not go together.

        """
        from mvindex.kernels.score import Aggregate
        from mvindex.search.fusion import Method, Mode
        from mvindex.search.request import parse_options

        aggregate, mode = parse_choice("--scoring", self.scoring, Aggregate), self._mode()
        if self.fusion is not None:
            parse_choice("--fusion", self.fusion, Method)
        for name, value in (("--temperature", self.temperature), ("--candidates", self.candidates)):
            if value is not None and aggregate is Aggregate.MAX:
                raise typer.BadParameter(f"{name} {value}: belongs to --scoring drpq, got --scoring {self.scoring}")
        if self.candidates is not None and self.exact:
            raise typer.BadParameter(
                f"--candidates {self.candidates} limits the search, --exact demands a certified one; give one of them"
            )
        if aggregate is Aggregate.DRPQ and mode is Mode.LEXICAL:
            raise typer.BadParameter("--scoring drpq: combines view scores, but --mode lexical reads no views")
        if self.operators and mode is Mode.DENSE:
            raise typer.BadParameter("--operators: looks at terms, but --mode dense reads none")
        for name, text in (("--fusion", self.fusion), ("--weights", self.weights)):
            if text is not None and mode not in (Mode.AUTO, Mode.HYBRID):
                raise typer.BadParameter(f"{name} {text}: belongs to --hybrid, got --mode {mode.value}")
        with parsing_flags():
            return parse_options(
                top_k,
                parse_filter(self.filter_json),
                scoring=self.scoring,
                exact=self.exact,
                temperature=self.temperature,
                candidates=self.candidates,
                mode=mode.value,
                fusion=self.fusion,
                weights=None if self.weights is None else _parse_weights(self.weights),
                operators=self.operators,
                **options,
            )

    def _mode(self) -> Mode:
        from mvindex.search.fusion import Mode

        chosen = parse_choice("--mode", self.mode, Mode)
        if self.hybrid and chosen not in (Mode.AUTO, Mode.HYBRID):
            raise typer.BadParameter(f"--hybrid is short for --mode hybrid; give it without --mode {self.mode}")
        return Mode.HYBRID if self.hybrid else chosen


def _parse_weights(text: str) -> list[float]:
    parts = text.split(",")
    try:
        weights = [float(part) for part in parts]
    except ValueError:
        weights = []
    if len(weights) != 2:
        raise typer.BadParameter(f"--weights: expected two numbers DENSE,LEXICAL, got {text!r}")
    return weights


@dataclass(frozen=True, slots=True, kw_only=True)
class PageFlags:
    """Which hits are returned, and what of them; the fields have the names of parse_options()."""

    top_k: Annotated[int, search_option("top_k", "--top-k", "-k")] = 10
    offset: Annotated[int, search_option("offset")] = 0
    cursor: Annotated[str | None, search_option("cursor", metavar="TEXT")] = None
    citations: Annotated[int | None, search_option("citations")] = None
    context: Annotated[int, search_option("context")] = 0
    max_chars: Annotated[int | None, search_option("max_chars")] = None
    max_tokens: Annotated[int | None, search_option("max_tokens")] = None
    diversity: Annotated[float | None, search_option("diversity")] = None
    min_confidence: Annotated[float | None, search_option("min_confidence")] = None

    def as_options(self) -> dict[str, Any]:
        """Return the flags as keywords of SearchFlags.request()."""
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class LikeFlags:
    """Documents that stand for the query."""

    like: Annotated[str | None, search_option("like", metavar="ID")] = None
    positives: Annotated[list[str] | None, search_option("positives", "--positives", metavar="ID")] = None
    negatives: Annotated[list[str] | None, search_option("negatives", "--negatives", metavar="ID")] = None

    def documents(self) -> Like | None:
        """Return the documents; None where there are none. Wrong usage for ids that do not go together."""
        from mvindex.search.like import parse_like

        with parsing_flags():
            return parse_like(self.like, self.positives or (), self.negatives or ())


class RerankText(Enum):
    """The text of a hit that a cross-encoder reads."""

    SNIPPET = "snippet"
    TEXT = "text"


@dataclass(frozen=True, slots=True, kw_only=True)
class RerankFlags:
    """Whether a cross-encoder orders the hits again, and on what; a depth of None is the default depth."""

    rerank: Annotated[str | None, search_option("rerank", metavar="CHECKPOINT")] = None
    rerank_on: Annotated[str | None, search_option("rerank_on", metavar="snippet|text")] = None
    rerank_depth: Annotated[int | None, search_option("rerank_depth")] = None

    def check(self) -> None:
        """Raise wrong usage for options without --rerank, and for a text that there is not."""
        if self.rerank_on is not None and self.rerank is not None:
            parse_choice("--rerank-on", self.rerank_on, RerankText)
        for name, value in (("--rerank-on", self.rerank_on), ("--rerank-depth", self.rerank_depth)):
            if value is not None and self.rerank is None:
                raise typer.BadParameter(f"{name} {value}: belongs to --rerank CHECKPOINT")

    def as_json(self) -> dict[str, Any]:
        """Return the options as results name them; empty without --rerank."""
        if self.rerank is None:
            return {}
        named = {"rerank": self.rerank, "rerank_on": self.rerank_on or RerankText.SNIPPET.value}
        return named if self.rerank_depth is None else named | {"rerank_depth": self.rerank_depth}


@dataclass(frozen=True, slots=True, kw_only=True)
class FileFlags:
    """Which files of folders are read, and how they are cut. The defaults are those of mvindex.corpus.rows."""

    passage_words: Annotated[
        int, option("Split files of prose into passages of at most so many words.", CORPUS, min=1)
    ] = 200
    include: Annotated[
        list[str] | None,
        option("Read only files that match, such as '*.md' or 'docs/**'; may be repeated.", FOLDERS, "PATTERN"),
    ] = None
    exclude: Annotated[
        list[str] | None, option("Leave out what matches, such as 'drafts/'; may be repeated.", FOLDERS, "PATTERN")
    ] = None
    gitignore: Annotated[
        bool, switch("--gitignore/--no-gitignore", "Leave out what .gitignore files name.", FOLDERS)
    ] = True
    follow_links: Annotated[bool, switch("--follow-links", "Read links to files outside the folder.", FOLDERS)] = False
    max_file_mb: Annotated[
        int, option("Reject files of more than so many MiB, where they are read whole.", CORPUS, min=1)
    ] = 100
    max_document_chars: Annotated[
        int, option("Reject rows whose title and text have more characters than this.", CORPUS, min=1)
    ] = MAX_DOCUMENT_CHARS

    def check(self, *, has_folder: bool) -> None:
        """Raise wrong usage for options of folders where there is none."""
        given = {
            "--include": self.include,
            "--exclude": self.exclude,
            "--no-gitignore": not self.gitignore,
            "--follow-links": self.follow_links,
        }
        for name, value in given.items():
            if value and not has_folder:
                raise typer.BadParameter(f"{name}: belongs to a folder, got none")

    def choice(self) -> dict[str, Any]:
        """Return which files of a folder are read, as keywords of FolderOptions and SyncOptions."""
        return {
            "include": self.include or (),
            "exclude": self.exclude or (),
            "gitignore": self.gitignore,
            "follow_links": self.follow_links,
        }

    def limits(self) -> dict[str, Any]:
        """Return how files are cut and which are too large, as keywords of CorpusOptions and SyncOptions."""
        return {
            "passage_words": self.passage_words,
            "max_file_bytes": self.max_file_mb * 2**20,
            "max_document_chars": self.max_document_chars,
        }


def _field(what: str) -> Any:
    return option(f"Take {what} from this field (default: by its name).", "Fields", "NAME")


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldFlags:
    """The fields of a collection of others, by what they hold."""

    vector_field: Annotated[str | None, _field("vectors")] = None
    id_field: Annotated[str | None, _field("the document's id")] = None
    text_field: Annotated[str | None, _field("the text of a row")] = None
    order_field: Annotated[str | None, _field("the order of a document's rows")] = None
    title_field: Annotated[str | None, _field("the document's title")] = None
