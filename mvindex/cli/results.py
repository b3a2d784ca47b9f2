"""The results of `mvindex query` on stdout, as JSON or for people."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any, TypeAlias

from mvindex.cli.terminal import (
    BOLD,
    BOLD_CYAN,
    CITED,
    DIM,
    PLAIN,
    Piece,
    escape_controls,
    has_colours,
    shortened,
    stdout_width,
    wrapped,
)
from mvindex.records import Citation, Component, Hit, SearchResult, ViewScore

_MAX_TEXT_CHARS = 600
_INDENT = 5
# Around the citation, where no style marks it.
_MARKS = ("\u00bb", "\u00ab")
TSV_HEADER = ("query_id", "rank", "id", "score", "title", "citation", "place")

# By document id, the views with their scores, best first.
Explained: TypeAlias = Mapping[str, Sequence[ViewScore]]


def result_as_json(
    query: str, result: SearchResult, options: Mapping[str, Any], explained: Explained | None = None
) -> dict[str, Any]:
    """Return a result as the JSON object of `query --json` (schemas/records/query_result.schema.json).

    Args:
        query: The text of the query; empty where documents stand for it.
        result: Its result.
        options: The search options to name, see Searcher.described.
        explained: Adds to each hit its views, best first, and the margin of the best over the second.

    """
    hits = [asdict(hit) for hit in result.hits]
    for hit, found in zip(hits, result.hits, strict=True):
        hit["citation"] = None if found.citation is None else found.citation.as_json()
        hit["citations"] = [cited.as_json() for cited in found.citations]
        if not hit["citations"]:
            del hit["citations"]
        hit["components"] = list(hit["components"])
        if not hit["components"]:
            del hit["components"]
    for hit in hits if explained is not None else []:
        # A document that was deleted since the search has none.
        views = (explained or {}).get(hit["id"], ())
        hit["margin"] = views[0].score - views[1].score if len(views) > 1 else None
        hit["views"] = [
            {"slot": view.slot, "score": view.score, "weight": view.weight, "snippet": view.snippet} for view in views
        ]
    state: dict[str, Any] = {"exact": result.exact, "short_by": result.short_by, "rounds": result.rounds}
    if result.next is not None:
        state["next"] = result.next
    if result.below_confidence:
        state["below_confidence"] = result.below_confidence
    if result.duplicates_of:
        state["duplicates_of"] = dict(result.duplicates_of)
    if result.missing_shards:
        state["missing_shards"] = list(result.missing_shards)
    # Documents that stand for a query have no text; they are among the options.
    named = {"query": query} if query else {}
    return {**named, **options, **state, "hits": hits}


def print_result(  # noqa: PLR0913 - a result, and what is shown beside it
    query: str,
    result: SearchResult,
    options: Mapping[str, Any],
    explained: Explained | None = None,
    *,
    num_before: int = 0,
) -> None:
    """Print the hits of a query to stdout, each text with its citation highlighted; see result_as_json().

    num_before: Number of documents before the first, on earlier pages.
    """
    width, is_coloured = stdout_width(), has_colours()
    state = "exact" if result.exact else "approximate"
    shown_options = ", ".join(f"{name} {_shown_option(value)}" for name, value in options.items())
    if result.missing_shards:
        state = f"WITHOUT shards {', '.join(map(str, result.missing_shards))}"
    count = f"{len(result.hits)} document" + ("" if len(result.hits) == 1 else "s")
    if result.below_confidence:
        count += f", {result.below_confidence} below the confidence"
    summary = f"{count}, {state}; {shown_options}"
    # Documents that stand for a query have no text; they are among the options.
    lines = [wrapped([(escape_controls(query), BOLD)], width, is_coloured=is_coloured)] if query else []
    lines.append(wrapped([(summary, PLAIN)], width, is_coloured=is_coloured))
    for rank, hit in enumerate(result.hits, start=1 + num_before):
        title = f"  {escape_controls(hit.title)}" if hit.title else ""
        if hit.id in result.duplicates_of:
            title += f"  (near-duplicate of {escape_controls(result.duplicates_of[hit.id])})"
        head = [(f"{hit.score:.4f}  ", PLAIN), (escape_controls(hit.id), BOLD_CYAN), (title, PLAIN)]
        if place := _place_of(hit):
            head.append((f"  ({escape_controls(place)})", PLAIN))
        lines.append(wrapped(head, width, is_coloured=is_coloured, lead=f"{rank:3d}. "))
        text = _text_with_citation(hit, has_style=is_coloured)
        lines.append(wrapped(text, width, is_coloured=is_coloured, lead=" " * _INDENT))
        for cited in hit.citations:
            quoted = (
                f"{cited.before}{_MARKS[0]}{cited.text}{_MARKS[1]}{cited.after}"
                if len(cited.before + cited.after)
                else cited.text
            )
            where = _place_of_citation(cited)
            shown = [(escape_controls(" ".join(quoted.split())), PLAIN)]
            if where:
                shown.append((f"  ({escape_controls(where)})", PLAIN))
            lines.append(
                wrapped(
                    shown,
                    width,
                    is_coloured=is_coloured,
                    lead=" " * _INDENT + f"{cited.score:6.2f}  ",
                )
            )
        details = []
        if explained is not None and hit.confidence is not None:
            details.append(f"       confidence {hit.confidence:.4f}")
        details += [_component_line(component) for component in hit.components if explained is not None]
        details += _view_lines((explained or {}).get(hit.id, ()), has_weights="temperature" in options)
        lines += [shortened(line, width, DIM, is_coloured=is_coloured) for line in details]
    if result.next is not None:
        lines.append(f"next page: --cursor {result.next}")
    sys.stdout.write("\n".join(lines) + "\n\n")


def result_as_rows(query_id: str, result: SearchResult, num_before: int = 0) -> list[list[Any]]:
    """Return a result as rows of TSV_HEADER, one for each hit; num_before: as print_result()."""
    return [
        [
            query_id,
            rank,
            hit.id,
            f"{hit.score:.6g}",
            hit.title,
            hit.snippet,
            _place_of(hit),
        ]
        for rank, hit in enumerate(result.hits, start=1 + num_before)
    ]


def _shown_option(value: Any) -> str:
    if isinstance(value, list | tuple):
        return ",".join(map(_shown_option, value))
    return f"{value:g}" if isinstance(value, float) else str(value)


def _place_of(hit: Hit) -> str:
    """Return where the citation stands, as far as it is known: file, page and line."""
    return "" if hit.citation is None else _place_of_citation(hit.citation)


def _place_of_citation(cited: Citation) -> str:
    known = {"": cited.file, "page ": cited.page, "line ": cited.line}
    return ", ".join(f"{name}{value}" for name, value in known.items() if value is not None)


def _text_with_citation(hit: Hit, *, has_style: bool) -> list[Piece]:
    """Return the text, cut to a readable length around the citation or the best snippet, which is marked."""
    span = hit.span if hit.citation is None else (hit.citation.start, hit.citation.end)
    if span is None:
        return [(escape_controls(hit.snippet or hit.text[:_MAX_TEXT_CHARS]), PLAIN)]
    begin, end = span
    first, last = _shown_part(hit.text, begin, end)
    lead, tail = "... " if first else "", " ..." if last < len(hit.text) else ""
    before, cited, after = (
        escape_controls(hit.text[start:stop]) for start, stop in ((first, begin), (begin, end), (end, last))
    )
    opening, closing = ("", "") if has_style else _MARKS
    return [(lead + before, PLAIN), (f"{opening}{cited}{closing}", CITED), (after + tail, PLAIN)]


def _shown_part(text: str, begin: int, end: int) -> tuple[int, int]:
    """Return the range of a long text that is shown: the citation with some text around it, cut between words."""
    first = max(0, begin - _MAX_TEXT_CHARS // 3)
    last = min(len(text), max(end, first + _MAX_TEXT_CHARS))
    if first and (space := text.find(" ", first, begin)) >= 0:
        first = space + 1
    if last < len(text) and (space := text.rfind(" ", end, last)) >= 0:
        last = space
    return first, last


def _component_line(component: Component) -> str:
    """Return the line of one ranking: rank and score of the hit, and the contribution to its final score."""
    rank = "not ranked" if component.rank is None else f"rank {component.rank}"
    return f"       {component.name}  {rank}  score {component.score:.4f}  contribution {component.contribution:.4f}"


def _view_lines(views: Sequence[ViewScore], has_weights: bool) -> Iterator[str]:
    """Yield one line per view, best first, with its distance from the best and its weight, if any."""
    for view in views:
        margin = views[0].score - view.score
        mark = "best" if view is views[0] else f"-{margin:.4f}"
        weight = f"  weight {view.weight:.4f}" if has_weights else ""
        snippet = escape_controls(" ".join((view.snippet or "").split())[:90])
        yield f"       slot {view.slot}  {view.score:.4f}  {mark:>8}{weight}  {snippet}"
