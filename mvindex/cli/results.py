"""The results of `mvindex query` on stdout, as JSON or for people."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any, TypeAlias

from mvindex.cli.terminal import (
    BOLD,
    BOLD_CYAN,
    BOLD_GREEN,
    DIM,
    PLAIN,
    Piece,
    escape_controls,
    has_colours,
    shortened,
    stdout_width,
    wrapped,
)
from mvindex.records import Component, Hit, SearchResult, ViewScore

_MAX_TEXT_CHARS = 600

# By document id, the views with their scores, best first.
Explained: TypeAlias = Mapping[str, Sequence[ViewScore]]


def result_as_json(
    query: str, result: SearchResult, options: Mapping[str, Any], explained: Explained | None = None
) -> dict[str, Any]:
    """Return a result as the JSON object of `query --json` (schemas/records/query_result.schema.json).

    Args:
        query: The text of the query.
        result: Its result.
        options: The search options to name, see SearchOptions.as_json().
        explained: Adds to each hit its views, best first, and the margin of the best over the second.

    """
    hits = [asdict(hit) for hit in result.hits]
    for hit, found in zip(hits, result.hits, strict=True):
        hit["citation"] = None if found.citation is None else found.citation.as_json()
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
    if result.missing_shards:
        state["missing_shards"] = list(result.missing_shards)
    return {"query": query, **options, **state, "hits": hits}


def print_result(
    query: str, result: SearchResult, options: Mapping[str, Any], explained: Explained | None = None
) -> None:
    """Print the hits of a query to stdout, each text with its citation highlighted; see result_as_json()."""
    width, is_coloured = stdout_width(), has_colours()
    state = "exact" if result.exact else "approximate"
    shown_options = ", ".join(f"{name} {value}" for name, value in options.items())
    if result.missing_shards:
        state = f"WITHOUT shards {', '.join(map(str, result.missing_shards))}"
    summary = f"  ({len(result.hits)} documents, {state}; {shown_options})"
    lines = [wrapped([(escape_controls(query), BOLD), (summary, PLAIN)], width, is_coloured=is_coloured)]
    for rank, hit in enumerate(result.hits, start=1):
        title = f"  {escape_controls(hit.title)}" if hit.title else ""
        head = [(f"{rank:3d}. {hit.score:.4f}  ", PLAIN), (escape_controls(hit.id), BOLD_CYAN), (title, PLAIN)]
        if place := _place_of(hit):
            head.append((f"  ({escape_controls(place)})", PLAIN))
        lines += [wrapped(pieces, width, is_coloured=is_coloured) for pieces in (head, _text_with_citation(hit))]
        details = [_component_line(component) for component in hit.components if explained is not None]
        details += _view_lines((explained or {}).get(hit.id, ()), has_weights="temperature" in options)
        lines += [shortened(line, width, DIM, is_coloured=is_coloured) for line in details]
    sys.stdout.write("\n".join(lines) + "\n\n")


def _place_of(hit: Hit) -> str:
    """Return where the citation stands, as far as it is known: file, page and line."""
    cited = hit.citation
    if cited is None:
        return ""
    known = {"": cited.file, "page ": cited.page, "line ": cited.line}
    return ", ".join(f"{name}{value}" for name, value in known.items() if value is not None)


def _text_with_citation(hit: Hit) -> list[Piece]:
    """Return the text, cut to a readable length around the citation, or the best snippet, which is highlighted."""
    span = hit.span if hit.citation is None else (hit.citation.start, hit.citation.end)
    if span is None:
        return [("     " + escape_controls(hit.snippet or hit.text[:_MAX_TEXT_CHARS]), PLAIN)]
    begin, end = span
    first = max(0, begin - _MAX_TEXT_CHARS // 3)
    last = min(len(hit.text), max(end, first + _MAX_TEXT_CHARS))
    lead, tail = "..." if first else "", "..." if last < len(hit.text) else ""
    text = escape_controls(hit.text[first:last])
    begin, end = begin - first, end - first
    return [("     " + lead + text[:begin], PLAIN), (text[begin:end], BOLD_GREEN), (text[end:] + tail, PLAIN)]


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
