"""Like: the documents that a search stands for in place of a query; similar.py searches for them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from mvindex.errors import QueryError
from mvindex.records import check_ids

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
    if like is not None and positives:
        raise QueryError("like= is short for positives= of one id; give one of them")
    near = _ids("positives", positives) if like is None else _ids("like", [like])
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
