"""What callers of an Index give: checked, and as the arrays and entries that the rest works with."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

import numpy as np
import numpy.typing as npt

from mvindex.encoder import CallableEncoder, Encoder, load_encoder
from mvindex.errors import ConfigError, EncoderError, QueryError
from mvindex.ingest import Entry
from mvindex.ingest.prune import checked_eps
from mvindex.lexical.tokenizer import parse_lexical
from mvindex.records import Document, Floats
from mvindex.scoring.aggregate import Aggregate, Scoring
from mvindex.scoring.fusion import Mode
from mvindex.store.filters import Filter
from mvindex.store.settings import MAX_DIM
from mvindex.store.views import MAX_NORM, ViewType

Vector: TypeAlias = npt.NDArray[np.floating[Any]]
# Far enough below MAX_NORM that float32 sums cannot pass for less than they are.
_PLAIN_SQUARE = np.float32(MAX_NORM**2 / 4)
EncoderLike: TypeAlias = "Encoder | Callable[..., Any] | str | os.PathLike[str]"


@dataclass(frozen=True)
class Asked:
    """What a search asks for, beside its queries; checked."""

    top_k: int
    filter: Filter | None
    scoring: Scoring
    exact: bool
    # View hits for aggregation at a fixed depth; None: as far as it takes.
    depth: int | None


def checked_document(item: object, number: int) -> Document:
    """The item, which is a Document; EncoderError with its number when it is something else."""
    if isinstance(item, Document):
        return item
    raise EncoderError(f"document {number}: {type(item).__name__} {item!r:.60}; wanted mvindex.Document")


def checked_id(doc_id: object) -> str:
    """The id; QueryError when it is no string that a document may have for an id."""
    if not isinstance(doc_id, str):
        raise QueryError(f"id is {type(doc_id).__name__} {doc_id!r:.60}; ids are strings")
    if "\0" in doc_id:
        raise QueryError(f"id {doc_id!r:.60} holds a NUL character; no document has such an id")
    try:
        doc_id.encode("utf-8")
    except UnicodeEncodeError as err:
        raise QueryError(f"id {doc_id!r:.60} is not valid Unicode") from err
    return doc_id


def checked_ids(ids: str | Iterable[str]) -> list[str]:
    """The ids, each once; QueryError for one that no document may have. One string is one id."""
    return list(dict.fromkeys(checked_id(each) for each in ([ids] if isinstance(ids, str) else ids)))


def each_view_array(views: Vector | Sequence[Vector]) -> Iterable[Any]:
    """The views of one document after the other; EncoderError for an array of another shape."""
    if isinstance(views, np.ndarray) and views.ndim not in (2, 3) and views.dtype != object:
        raise EncoderError(f"views of shape {views.shape}; wanted (n, k, d), (n, d) or a list of (k_i, d)")
    return views


def entry_with_views(number: int, document: Document | None, rows: Any, dim: int | None) -> Entry:
    """The document with its views as (k, d) float32."""
    if document is None or rows is None:
        missing, extra = ("documents", "views") if document is None else ("views", "documents")
        raise EncoderError(f"there are fewer {missing} than {extra}: item {number} has none; wanted one for one")
    checked_document(document, number)
    array = np.asarray(rows)
    array = array[None] if array.ndim == 1 else array
    if array.ndim != 2 or not len(array) or array.dtype.kind not in "fiu":
        raise EncoderError(
            f"document {document.id!r}: views of shape {array.shape}, {array.dtype}; wanted (k, d) numbers"
        )
    if dim is not None and array.shape[1] != dim:
        raise EncoderError(f"document {document.id!r}: views of {array.shape[1]} dims; this index holds {dim}")
    with np.errstate(over="ignore"):
        return Entry(f"document {number}", document, np.ascontiguousarray(array, dtype=np.float32))


def asked(top_k: Any, filter: Filter | None, scoring: Scoring, exact: bool, candidates: Any) -> Asked:
    """What a caller of search() asks for; QueryError when its arguments do not go together."""
    check_count("top_k", top_k)
    if candidates is not None:
        check_count("candidates", candidates)
        if scoring.aggregate is not Aggregate.DRPQ:
            raise QueryError("candidates= belongs to scoring='drpq': by the best view no document is aggregated")
        if exact:
            raise QueryError("candidates= limits the search, exact=True demands a certified one; give one of them")
    return Asked(int(top_k), filter, scoring, exact, candidates)


def check_count(name: str, value: object) -> None:
    """Nothing; QueryError when the value is no whole number from 1 on."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
        raise QueryError(f"{name} is {value!r}; wanted a whole number from 1 on")


def check_temperature(value: object) -> None:
    """Nothing; ConfigError when DRPQ cannot divide by this."""
    try:
        Scoring(Aggregate.DRPQ, value)  # type: ignore[arg-type]  # whatever the caller gave
    except QueryError as err:
        raise ConfigError(str(err)) from err


def check_query_text(text: str, number: int, count: int) -> None:
    """Nothing; QueryError, with the number among count queries, for an empty text or broken Unicode."""
    which = "the query" if count == 1 else f"query {number}"
    if not text.strip():
        raise QueryError(f"{which} is empty; wanted a text")
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as err:
        raise QueryError(f"{which} is not valid Unicode at position {err.start}") from err


def check_mode(mode: Mode, wanted: Asked, **options: object) -> None:
    """Nothing; QueryError when an option of the search does not go with its mode. options: None where not given."""
    meant = {Mode.DENSE: (), Mode.LEXICAL: ("text",), Mode.HYBRID: ("fusion", "weights", "text")}[mode]
    for name, value in options.items():
        if value is not None and name not in meant:
            raise QueryError(f"{name}= does not belong to mode={mode.value!r}")
    if mode is Mode.LEXICAL and wanted.scoring.aggregate is not Aggregate.MAX:
        raise QueryError("scoring= says how views make a score; mode='lexical' looks at none")


def question_texts(query: Any, text: object, mode: Mode) -> tuple[list[str], bool]:
    """The texts whose words are searched, and whether one was given alone; QueryError for what are no texts."""
    found = query if text is None else text
    is_single = isinstance(found, str)
    texts = [found] if is_single else found
    if not isinstance(texts, Sequence) or not all(isinstance(one, str) for one in texts):
        way_out = "give the text, or both: search(vector, text=..., ...)" if text is None else "wanted a text or texts"
        raise QueryError(f"mode={mode.value!r} searches words, and found {type(found).__name__}; {way_out}")
    for number, one in enumerate(texts, start=1):
        check_query_text(one, number, len(texts))
    return list(texts), is_single


def as_vectors(query: Any, dim: int | None) -> Floats:
    """A (d,) or (q, d) array as float32, checked; one that is so already is not copied."""
    if _is_plainly_good(query, dim):
        return cast(Floats, query)
    try:
        wide = np.asarray(query, dtype=np.float64)
    except (TypeError, ValueError) as err:
        raise QueryError(f"query is {type(query).__name__}; wanted a text, texts, or a (d,) or (q, d) array") from err
    if wide.ndim not in (1, 2) or (dim is not None and wide.shape[-1] != dim):
        raise QueryError(f"query vectors of shape {wide.shape}; wanted (d,) or (q, d) with d = {dim}")
    norms = np.linalg.norm(np.atleast_2d(wide), axis=1)
    if not (norms <= MAX_NORM).all():
        raise QueryError(
            f"query vector {int(np.argmax(~(norms <= MAX_NORM)))} holds NaN, infinity or a norm above 1e18"
        )
    narrow: Floats = wide.astype(np.float32)
    return narrow


def _is_plainly_good(query: Any, dim: int | None) -> bool:
    """True for float32 vectors well below the largest norm: what nearly all are, told in a third of the time."""
    if not isinstance(query, np.ndarray) or query.dtype != np.float32 or query.ndim not in (1, 2):
        return False
    if (dim is not None and query.shape[-1] != dim) or not query.flags.c_contiguous:
        return False
    values = query.reshape(-1)
    with np.errstate(over="ignore", invalid="ignore"):
        # Of all together: no vector's norm is above that. NaN compares as False.
        return bool(values.dot(values) <= _PLAIN_SQUARE)


def new_settings(  # noqa: PLR0913 - each argument is a setting of the index
    *,
    encoder: EncoderLike | None = None,
    dim: int | None = None,
    dtype: str = "fp16",
    temperature: float | None = None,
    prune_views: float | None = None,
    lexical: str | None = None,
) -> tuple[dict[str, Any], Encoder | None]:
    """The settings of a new index, checked, and its encoder; see create()."""
    if (encoder is None) == (dim is None):
        raise ConfigError("give create() either encoder= (texts are encoded) or dim= (vectors are given)")
    if dim is not None and (isinstance(dim, bool) or not isinstance(dim, int) or not 1 <= dim <= MAX_DIM):
        raise ConfigError(f"dim is {dim!r}; wanted a whole number from 1 to {MAX_DIM}")
    if dtype not in [view_type.value for view_type in ViewType]:
        raise ConfigError(f"dtype is {dtype!r}; wanted fp16 or fp32")
    eps = None if prune_views is None else checked_eps(prune_views)
    loaded = None if encoder is None else as_encoder(encoder)
    spec = None if loaded is None else dict(loaded.spec)
    dim = dim if loaded is None else loaded.dim
    if temperature is None:
        temperature = float((spec or {}).get("temperature", 1.0))
    check_temperature(temperature)
    settings = {"dim": dim, "dtype": dtype, "encoder": spec, "temperature": temperature, "prune_views": eps}
    if parse_lexical(lexical) is not None:
        settings["lexical"] = lexical
    return settings, loaded


def as_encoder(encoder: EncoderLike) -> Encoder:
    """The encoder that was given or named; ConfigError for what is none."""
    if isinstance(encoder, str | os.PathLike):
        return load_encoder(encoder)
    if hasattr(encoder, "encode_documents"):
        return cast(Encoder, encoder)
    if callable(encoder):
        return CallableEncoder(encoder)
    raise ConfigError(f"encoder is {type(encoder).__name__}; wanted a name, a path, a callable or an Encoder")
