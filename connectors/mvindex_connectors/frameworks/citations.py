"""What a document carries of the hit that found it, so that an answer can cite the sentence and not the passage."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from mvindex.index.results import ViewScore
from mvindex.records import Floats, Hit, SearchResult, Span

if TYPE_CHECKING:
    from mvindex_connectors.frameworks.connection import Reach

# The one key of a document's metadata that is ours: a returned document's citation stands there, and in the index what
# a framework's document has that an mvindex.Document has not. Users' own keys cannot collide with the names below it.
HIT_KEY = "mvindex"
_NAMES = frozenset({"snippet", "snippet_span", "view", "score", "exact", "title", "view_scores"})


def scores_by_hit(found: Mapping[str, Sequence[ViewScore]], hits: Sequence[Hit]) -> list[list[dict[str, Any]]]:
    """Of each hit every view with its score, as found by id; nothing of one that was deleted since the search."""
    return [[{"view": view.slot, "score": view.score} for view in found.get(hit.id, ())] for hit in hits]


def citation(hit: Hit, exact: bool) -> dict[str, Any]:
    """The winning snippet, its characters [begin, end) of the text, the view's slot, score, and whether that is exact.

    snippet and snippet_span are None where nobody knows what the view stands for; a title stands without a span.
    """
    span = hit.span or _stored_span(hit)
    cited: dict[str, Any] = {
        "snippet": hit.snippet if span is None else hit.text[span[0] : span[1]],
        "snippet_span": None if span is None else list(span),
        "view": hit.slot,
        "score": hit.score,
        "exact": exact,
    }
    return cited | ({"title": hit.title} if hit.title else {})


async def citations(reach: Reach, vector: Floats | None, result: SearchResult) -> list[dict[str, Any]]:
    """The citation of each hit; with the vector that was asked for, every view's own score as well, best first."""
    cited = [citation(hit, result.exact) for hit in result.hits]
    if vector is not None:
        for one, scores in zip(cited, await reach.scores_of_views(vector, result.hits), strict=True):
            one["view_scores"] = scores
    return cited


class CitedMetadata(dict[str, Any]):
    """A found document's metadata; the citation, which says how it was found and not what it is, is never compared.

    Frameworks compare documents to tell whether they are the same: LangChain's MultiQueryRetriever drops what two
    questions found twice, their suites ask for what was added. As other metadata the citation would make them differ.
    """

    __hash__ = None  # as of any dict

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, dict):
            return NotImplemented
        return own_metadata(self) == own_metadata(other)

    def __ne__(self, other: object) -> bool:
        # dict has its own, which would look at everything.
        return not self == other


def own_metadata(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """The user's metadata, as it was given."""
    return {name: value for name, value in metadata.items() if name != HIT_KEY}


def kept(metadata: Mapping[str, Any]) -> Mapping[str, Any]:
    """What is kept of a document under our key."""
    value = metadata.get(HIT_KEY)
    return value if isinstance(value, Mapping) else {}


def cited_title(metadata: Mapping[str, Any]) -> str:
    """The title of a found document, for which frameworks have no place: when added again it keeps that."""
    title = kept(metadata).get("title")
    return title if isinstance(title, str) else ""


def stored_metadata(metadata: Mapping[str, Any], ours: Mapping[str, Any]) -> dict[str, Any]:
    """The metadata to store: the user's, and ours under our key; an old citation is dropped.

    ValueError where something else than a citation stands under our key.
    """
    found = metadata.get(HIT_KEY)
    if found is not None and not (isinstance(found, Mapping) and found.keys() <= _NAMES):
        raise ValueError(f"metadata key {HIT_KEY!r} holds {found!r:.80}; that name is the citation's: rename the key")
    return own_metadata(metadata) | ({HIT_KEY: dict(ours)} if ours else {})


def _stored_span(hit: Hit) -> Span | None:
    """What the view stands for, as kept by a framework that made the views itself."""
    spans: Sequence[Sequence[int]] = kept(hit.metadata).get("spans", ())
    if hit.slot >= len(spans):
        return None
    begin, end = spans[hit.slot]
    return begin, end
