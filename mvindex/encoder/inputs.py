"""Arrange documents and queries in the windows that the model reads, by a checkpoint's settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from mvindex.encoder.arranged import Arranged, arranged_of
from mvindex.encoder.checkpoint import Pooling, Settings, viewer_ids
from mvindex.encoder.checkpoint.settings import parse_settings, settings_json
from mvindex.encoder.families import Frame, arrange_single, load_arrange
from mvindex.encoder.text import Ids, TextTokenizer
from mvindex.encoder.unigram import Unigram
from mvindex.errors import CheckpointError, ConfigError
from mvindex.records import Document

if TYPE_CHECKING:
    import tokenizers


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
