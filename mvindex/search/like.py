"""Like: documents that a search stands for in place of a query, and the search for what is like them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from mvindex.errors import QueryError
from mvindex.records import Combine, Floats, Hit, SearchResult, check_ids
from mvindex.search.request import Queries, SearchRequest

# Documents that one search may name.
MAX_LIKE = 100


@dataclass(frozen=True, slots=True)
class Like:
    """Ids of the documents that a search stands for, without repeats.

    Attributes:
        positives: A document's score is that of its nearest view to any view of these; at least one.
        negatives: Documents that are as near to a view of these, or nearer, are left out.

    """

    positives: tuple[str, ...]
    negatives: tuple[str, ...] = ()

    @property
    def ids(self) -> tuple[str, ...]:
        """All of the ids."""
        return (*self.positives, *self.negatives)


def parse_like(like: object, positives: object, negatives: object) -> Like | None:
    """Return the documents that a search stands for; None where it names none. QueryError for what is no id.

    Args:
        like: One id, short for positives of one.
        positives: Ids.
        negatives: Ids.

    """
    near = _ids("positives", positives)
    if like is not None and near:
        raise QueryError("like= is short for positives= of one id; give one of them")
    near = near if like is None else _ids("like", [like])
    far = _ids("negatives", negatives)
    if far and not near:
        raise QueryError("negatives= belongs to positives= or like=, which say what is searched for")
    if not near:
        return None
    if both := set(near) & set(far):
        raise QueryError(f"negatives: expected other documents than positives, got {min(both)!r} in both")
    if len(near) + len(far) > MAX_LIKE:
        raise QueryError(f"positives and negatives: expected up to {MAX_LIKE} ids, got {len(near) + len(far)}")
    return Like(near, far)


def _ids(name: str, given: object) -> tuple[str, ...]:
    """Return ids without repeats."""
    if given is None:
        return ()
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise QueryError(f"{name}: expected a sequence of ids, got {given!r:.60}")
    ids = check_ids(list(given))
    for each in ids:
        if not each.strip():
            raise QueryError(f"{name}: expected the id of a document, got {each!r:.60}")
    return tuple(ids)


# Documents that are compared with negatives, unless a page twice as deep needs more.
_MOST_COMPARED = 10_000


def search_like(
    like: Like,
    request: SearchRequest,
    views_of: Callable[[Sequence[str]], Mapping[str, Floats]],
    run: Callable[[SearchRequest], list[SearchResult]],
    where: str,
) -> list[SearchResult]:
    """Return the one result of a request that documents stand for.

    Args:
        like: The documents.
        request: The request.
        views_of: Returns the views, (k, d) float32, of the documents that exist.
        run: Returns the results of a request for vectors.
        where: The index, in errors.

    Raises:
        QueryError: Where there is no document of an id, or nothing to compare others with.

    """
    views = views_of(like.ids)
    for doc_id in like.ids:
        if doc_id not in views:
            raise QueryError(f"{where}: there is no document {doc_id!r}; expected the ids of documents")
    if not any(views[doc_id].any() for doc_id in like.positives):
        raise QueryError(
            f"{where}: the views of {like.positives[0]!r} are zero: no document is nearer to it than another"
        )
    others = {"not": {"id": {"in": list(like.ids)}}}
    condition = others if request.filter is None else {"and": [request.filter, others]}
    plain = replace(request, like=None, filter=condition, queries=(_group(views, like.positives),))
    if not like.negatives:
        return run(plain)
    against = replace(plain, fields=frozenset(), exact=True, candidates=None, queries=(_group(views, like.negatives),))
    return [_nearer(plain, against, run, where)]


def _group(views: Mapping[str, Floats], ids: Sequence[str]) -> Queries:
    """Return all views of the documents as one group: a document's score is the highest for any of them."""
    return Queries(np.concatenate([views[doc_id] for doc_id in ids]), None, Combine.MAX)


def _nearer(
    plain: SearchRequest, against: SearchRequest, run: Callable[[SearchRequest], list[SearchResult]], where: str
) -> SearchResult:
    """Return the page of the documents that score more for one request than for another.

    More are searched for until there are enough, or no others are left; only those of the page are read. QueryError
    where too many were searched for.
    """
    wanted = limit = plain.offset + plain.top_k
    most = max(_MOST_COMPARED, 2 * wanted)
    while True:
        [result] = run(replace(plain, top_k=limit, offset=0, fields=frozenset(), quoting=None))
        scores: dict[str, float] = {}
        if result.hits:
            by_id = {"id": {"in": [hit.id for hit in result.hits]}}
            [other] = run(replace(against, filter=by_id, top_k=len(result.hits), offset=0))
            scores = {hit.id: hit.score for hit in other.hits}
        kept = [hit for hit in result.hits if hit.score > scores.get(hit.id, np.inf)]
        if len(kept) >= wanted or len(result.hits) < limit:
            page = _read(kept[plain.offset : wanted], plain, run)
            return replace(result, hits=page, short_by=min(result.short_by, plain.top_k - len(page)))
        if limit == most:
            raise QueryError(
                f"{where}: negatives: expected {wanted} documents nearer to positives among the {limit:,} nearest, got "
                f"{len(kept)}; lower top_k, or give other negatives"
            )
        limit = min(2 * limit, most)


def _read(
    hits: Sequence[Hit], plain: SearchRequest, run: Callable[[SearchRequest], list[SearchResult]]
) -> tuple[Hit, ...]:
    """Return these hits with the fields of the request; without those of documents that are gone since."""
    if not hits or not plain.fields:
        return tuple(hits)
    condition = {"and": [plain.filter, {"id": {"in": [hit.id for hit in hits]}}]}
    [found] = run(replace(plain, filter=condition, top_k=len(hits), offset=0))
    return found.hits
