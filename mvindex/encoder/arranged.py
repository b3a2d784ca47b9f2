"""The windows of many documents or queries as a few flat arrays, and how texts are arranged in them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt
import xxhash

from mvindex.encoder.checkpoint import Pooling, Settings, viewer_ids
from mvindex.encoder.checkpoint.settings import parse_settings, settings_json
from mvindex.encoder.families import load_arrange
from mvindex.encoder.families.parts import arrange_single
from mvindex.encoder.families.windows import CONTEXT, Arrangement, Frame, Slots, Window
from mvindex.encoder.text import Ids, TextTokenizer
from mvindex.encoder.unigram import Unigram
from mvindex.errors import CheckpointError, ConfigError
from mvindex.records import Bools, Document, Floats, Ints

if TYPE_CHECKING:
    import tokenizers

# What windows need not set.
_OPTIONAL = ("weights", "positions", "scopes", "is_viewer")


@dataclass(frozen=True, slots=True, eq=False)
class Arranged:
    """The windows of n documents or queries, one after the other: w windows of t tokens in all.

    ids, slots: (t,) int32, slots numbered within a document; weights: (t,) float32; positions: (t,) int32; scopes:
    (t,) int32; is_viewer: (t,) bool; see Window, None where no window sets them. lengths: (w,) int64, the tokens of
    each window. num_windows, num_rows, num_views: (n,) int64, of each document. spans: (r, 2) int64, of the views.
    """

    ids: Ids
    slots: Slots
    lengths: Ints
    num_windows: Ints
    num_rows: Ints
    num_views: Ints
    spans: Ints
    weights: Floats | None = None
    positions: Ids | None = None
    scopes: Slots | None = None
    is_viewer: Bools | None = None

    _TYPES: ClassVar[dict[str, str]] = {
        **dict.fromkeys(("lengths", "num_windows", "num_rows", "num_views", "spans"), "<i8"),
        **dict.fromkeys(("ids", "slots", "positions", "scopes"), "<i4"),
        "weights": "<f4",
        "is_viewer": "?",
    }

    def __len__(self) -> int:
        return len(self.num_rows)

    def __getitem__(self, documents: slice) -> Arranged:
        return self.take(np.arange(len(self))[documents])

    @property
    def view_starts(self) -> Ints:
        """Return where each document's views start, and the end: (n + 1,) int64."""
        return _starts(self.num_views)

    @property
    def owners(self) -> Ints:
        """Return the document of each window, (w,)."""
        return np.repeat(np.arange(len(self)), self.num_windows)

    @property
    def first_rows(self) -> Ints:
        """Return the row of each window's slot 0 where the rows of all documents are numbered through, (w,)."""
        return _starts(self.num_rows)[self.owners]

    def take(self, documents: Ints) -> Arranged:
        """Return the windows of these documents, in this order."""
        windows = ranges(_starts(self.num_windows)[documents], self.num_windows[documents])
        views = ranges(_starts(self.num_views)[documents], self.num_views[documents])
        tokens = ranges(_starts(self.lengths)[windows], self.lengths[windows])
        found: dict[str, Any] = {"lengths": self.lengths[windows], "spans": self.spans[views]}
        found |= {name: getattr(self, name)[documents] for name in ("num_windows", "num_rows", "num_views")}
        return Arranged(**found, **self._of_tokens(tokens))

    def windows_of(self, is_needed: Bools) -> Arranged:
        """Return the same documents without windows that no needed row is averaged from.

        is_needed: (num_rows.sum(),), of the rows of all documents, numbered through.
        """
        windows, is_read = np.repeat(np.arange(len(self.lengths)), self.lengths), self.slots != CONTEXT
        rows = self.slots[is_read] + self.first_rows[windows[is_read]]
        is_kept = np.bincount(windows[is_read][is_needed[rows]], minlength=len(self.lengths)) > 0
        num_windows = np.bincount(self.owners[is_kept], minlength=len(self))
        tokens = self._of_tokens(np.repeat(is_kept, self.lengths))
        return replace(self, lengths=self.lengths[is_kept], num_windows=num_windows, **tokens)

    def row_keys(self) -> list[bytes]:
        """Return for each row a hash of all windows that it is averaged from, and of its tokens' places and weights."""
        hashes = [xxhash.xxh3_128() for _ in range(int(self.num_rows.sum()))]
        weights, *read = (self._set(name) for name in _OPTIONAL)
        read.append(self.ids)
        bounds = pairwise(_starts(self.lengths).tolist())
        for (begin, end), first_row in zip(bounds, self.first_rows.tolist(), strict=True):
            content = xxhash.xxh3_128_digest(b"".join(each[begin:end].tobytes() for each in read))
            slots = self.slots[begin:end]
            for slot in np.unique(slots[slots != CONTEXT]).tolist():
                places = np.flatnonzero(slots == slot)
                own = places.tobytes() + weights[begin:end][places].tobytes()
                hashes[first_row + slot].update(content + len(places).to_bytes(8, "little") + own)
        return [each.digest() for each in hashes]

    def _of_tokens(self, tokens: Ints | Bools) -> dict[str, Any]:
        """Return the arrays that have a value for each token, of these tokens only."""
        arrays = {name: getattr(self, name) for name in ("ids", "slots", *_OPTIONAL)}
        return {name: None if values is None else values[tokens] for name, values in arrays.items()}

    def _set(self, name: str) -> npt.NDArray[Any]:
        """Return the values of all tokens, also where no window sets them."""
        return _filled(name, getattr(self, name), self.lengths)

    def as_bytes(self) -> dict[str, bytes | None]:
        """Return the arrays' bytes by name, for another process."""
        arrays = {name: getattr(self, name) for name in self._TYPES}
        return {
            name: None if array is None else array.astype(self._TYPES[name], copy=False).tobytes()
            for name, array in arrays.items()
        }

    @classmethod
    def from_bytes(cls, found: dict[str, bytes | None]) -> Arranged:
        """Return what as_bytes() was made of."""
        arrays: dict[str, Any] = {
            name: None if data is None else np.frombuffer(bytearray(data), dtype=cls._TYPES[name])
            for name, data in found.items()
        }
        return cls(**arrays | {"spans": arrays["spans"].reshape(-1, 2)})


def arranged_of(found: Sequence[Arrangement]) -> Arranged:
    """Return the windows of these documents or queries as flat arrays."""
    windows = [window for one in found for window in one.windows]
    return Arranged(
        ids=_joined([window.ids for window in windows]),
        slots=_joined([window.slots for window in windows]),
        lengths=_counts(len(window.ids) for window in windows),
        num_windows=_counts(len(one.windows) for one in found),
        num_rows=_counts(one.num_rows for one in found),
        num_views=_counts(len(one.spans) for one in found),
        spans=np.array([span for one in found for span in one.spans], dtype=np.int64).reshape(-1, 2),
        **{name: _optional(windows, name) for name in _OPTIONAL},
    )


def joined(parts: Sequence[Arranged]) -> Arranged:
    """Return the windows of all parts, one after the other."""
    if len(parts) == 1:
        return parts[0]
    found: dict[str, Any] = {}
    for name in (field.name for field in fields(Arranged)):
        values = [getattr(part, name) for part in parts]
        if any(value is not None for value in values):
            found[name] = np.concatenate(
                [_filled(name, value, part.lengths) for value, part in zip(values, parts, strict=True)]
            )
    return Arranged(**found)


def ranges(starts: Ints, lengths: Ints) -> Ints:
    """Return the concatenated ranges that begin at starts and have these lengths, (lengths.sum(),) int64."""
    begins = np.cumsum(lengths) - lengths
    return np.asarray(np.repeat(starts - begins, lengths) + np.arange(int(lengths.sum())), dtype=np.int64)


def _optional(windows: Sequence[Window], name: str) -> npt.NDArray[Any] | None:
    """Return the values of all tokens; None where no window sets them."""
    values = [getattr(window, name) for window in windows]
    if all(value is None for value in values):
        return None
    sizes = [np.array([len(window.ids)]) for window in windows]
    return np.concatenate([_filled(name, *each) for each in zip(values, sizes, strict=True)])


def _filled(name: str, values: npt.NDArray[Any] | None, lengths: Ints) -> npt.NDArray[Any]:
    """Return the values, or those that windows of these lengths have which set none."""
    if values is not None:
        return values
    if name == "positions":
        return ranges(np.zeros_like(lengths), lengths).astype(np.int32)
    value, dtype = {"weights": (1, np.float32), "scopes": (CONTEXT, np.int32), "is_viewer": (False, np.bool_)}[name]
    return np.full(int(lengths.sum()), value, dtype=dtype)


def _counts(counts: Iterable[int]) -> Ints:
    return np.fromiter(counts, dtype=np.int64)


def _joined(arrays: Sequence[Ids]) -> Ids:
    return np.concatenate(arrays) if arrays else np.zeros(0, dtype=np.int32)


def _starts(counts: Ints) -> Ints:
    return np.append(0, np.cumsum(counts))


class Inputs:
    """Arranges documents, in the settings' family, and queries; place: the checkpoint, for messages."""

    def __init__(self, settings: Settings, tokenizer: tokenizers.Tokenizer | Unigram, place: str) -> None:
        self._place, self._settings, self._tokenizer = place, settings, tokenizer
        ids = _viewers(settings, tokenizer, place)
        self._documents = TextTokenizer(tokenizer, settings.document_prompt, settings.text_splitter)
        self._queries = TextTokenizer(tokenizer, settings.query_prompt)
        self._document_frame = self._frame(self._documents, settings.document_length, ids[1:])
        # [VIE] stands in [CLS]'s place before a question, and CLS pooling takes its state (MVR section 3.2). A question
        # that is the mean of its states is read as the base reads it.
        has_viewer = len(ids) and settings.pooling is Pooling.CLS
        query_head = np.concatenate([ids[:1], self._queries.head[1:]]) if has_viewer else self._queries.head
        self._query_frame = self._frame(self._queries, settings.query_length, ids[:0], query_head)

    def setup(self) -> dict[str, Any]:
        """Return values for JSON of which of_setup() makes the same in another process."""
        if isinstance(self._tokenizer, Unigram):
            raise ConfigError(f"{self._place}: texts are arranged in this process alone")
        return {"settings": settings_json(self._settings), "tokenizer": self._tokenizer.to_str(), "place": self._place}

    @classmethod
    def of_setup(cls, setup: Mapping[str, Any]) -> Inputs:
        """Return what setup() was called of."""
        import tokenizers

        tokenizer = tokenizers.Tokenizer.from_str(setup["tokenizer"])
        settings = Settings(**parse_settings(setup["settings"], setup["place"]))
        return cls(settings, tokenizer, setup["place"])

    def arrange_documents(self, documents: Sequence[Document]) -> Arranged:
        """Return the windows of the documents, in their order."""
        arrange = load_arrange(self._settings.family)
        texts = self._documents.tokenize_documents(documents)
        return arranged_of([arrange(text, self._document_frame) for text in texts])

    def arrange_queries(self, texts: Sequence[str]) -> Arranged:
        """Return the windows of the queries, in order; each has one row."""
        return arranged_of([arrange_single(text, self._query_frame) for text in self._queries.tokenize_queries(texts)])

    def _frame(self, tokenizer: TextTokenizer, length: int, viewers: Ids, head: Ids | None = None) -> Frame:
        # In the papers the first viewer stands in [CLS]'s place, where there is one; the others take room.
        in_place = 0 if self._settings.own_snippet else min(len(viewers), len(tokenizer.head), 1)
        room = length - len(tokenizer.head) - len(tokenizer.tail) - len(viewers) + in_place
        if room < 1 or tokenizer.prompt_tokens > room // 2:
            raise CheckpointError(
                f"{self._place}: a window of {length} tokens is too short for its special tokens, {len(viewers)} "
                f"viewers and a prompt of {tokenizer.prompt_tokens}; at most half of it may be prompt"
            )
        settings = self._settings
        return Frame(
            tokenizer.head if head is None else head,
            tokenizer.tail,
            room,
            tokenizer.prompt_tokens,
            settings.pooling,
            settings.max_views,
            viewers,
            settings.residual,
            settings.own_snippet,
        )


def _viewers(settings: Settings, tokenizer: tokenizers.Tokenizer | Unigram, place: str) -> Ids:
    """Return the ids of [VIE] and of the viewers of max_views views; empty in families without."""
    if not settings.family.has_viewers or isinstance(tokenizer, Unigram):
        return np.zeros(0, dtype=np.int32)
    ids = viewer_ids(tokenizer)
    if len(ids) <= settings.max_views:
        raise CheckpointError(
            f"{place}: the tokenizer has {max(len(ids) - 1, 0)} viewer tokens ([VIE_1], ...); "
            f"expected {settings.max_views} for the family {settings.family.name!r}"
        )
    return np.array(ids[: settings.max_views + 1], dtype=np.int32)
