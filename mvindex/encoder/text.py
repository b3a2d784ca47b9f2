"""Tokenize texts, part by part."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import numpy.typing as npt

from mvindex.corpus.text.parts import Splitter
from mvindex.encoder.unigram import Unigram
from mvindex.errors import CheckpointError
from mvindex.records import Document, Ints, Span, batched, has_visible

if TYPE_CHECKING:
    import tokenizers

Ids: TypeAlias = npt.NDArray[np.int32]

NO_SPAN: Span = (-1, -1)
# Texts tokenised at once. It bounds the tokenizer's own objects, which take some 100 bytes a token.
_TEXTS_AT_ONCE = 4096


@dataclass(frozen=True, slots=True, eq=False)
class TokenizedText:
    """The tokens of a document or query, without special tokens.

    prefix: prompt and title, read before the text in every window; ids: of the text, or of the title where the text
    has none. ids[starts[i]:starts[i + 1]] is part i, mostly a sentence, and parts[i] its characters (NO_SPAN for a
    title). whole: the characters that all ids stand for; title_chars: how many characters the title in the prefix has.
    """

    prefix: Ids
    ids: Ids
    starts: Ints
    parts: list[Span]
    whole: Span
    title_chars: int = 0


class TextTokenizer:
    """A checkpoint's tokenizer and one of its prompts. head, tail: the special tokens around every input.

    Parts are tokenised one by one, each with the whitespace before it: the tokens are those of the whole text, and no
    character offset has to be followed.
    """

    def __init__(
        self, tokenizer: tokenizers.Tokenizer | Unigram, prompt: str, splitter: Splitter = Splitter.SENTENCES
    ) -> None:
        self._tokenizer, self._splitter = tokenizer, splitter
        self.head, self.tail = _special_tokens(tokenizer)
        # The prompt's last whitespace goes with the word after it, as it would in one text.
        self._prompt = prompt.rstrip()
        self._gap = prompt[len(self._prompt) :]
        [prompt_ids], _ = self._ids([[self._prompt]])
        self.prompt_tokens = len(prompt_ids)

    def tokenize_documents(self, documents: Sequence[Document]) -> list[TokenizedText]:
        """Return the documents' tokens, in order."""
        spans = [self._splitter.split(document.text) for document in documents]
        prefixes, _ = self._ids([[self._prefix(document.title)] for document in documents])
        pieces = [self._pieces(document, own) for document, own in zip(documents, spans, strict=True)]
        texts, starts = self._ids(pieces)
        tokenized = zip(documents, prefixes, texts, starts, spans, strict=True)
        return [self._tokenize(*each) for each in tokenized]

    def tokenize_queries(self, texts: Sequence[str]) -> list[TokenizedText]:
        """Return the queries' tokens, in order, each as one sentence."""
        [prefix], _ = self._ids([[self._prompt]])
        ids, starts = self._ids([[self._gap + text] for text in texts])
        return [TokenizedText(prefix, *tokens, [NO_SPAN], NO_SPAN) for tokens in zip(ids, starts, strict=True)]

    def _prefix(self, title: str) -> str:
        return self._prompt + self._gap + title if title else self._prompt

    def _pieces(self, document: Document, parts: Sequence[Span]) -> Iterator[str]:
        """Yield the text cut after each part; the first piece begins with what joins it to prompt or title."""
        begin, gap = 0, "\n" if document.title else self._gap
        for _, end in parts:
            yield gap + document.text[begin:end]
            begin, gap = end, ""

    def _tokenize(self, document: Document, prefix: Ids, ids: Ids, starts: Ints, parts: list[Span]) -> TokenizedText:
        if len(ids):
            return TokenizedText(prefix, ids, starts, parts, (0, len(document.text)), len(document.title))
        # The title speaks for a text without tokens. With neither, the special tokens will have to do.
        title = prefix[self.prompt_tokens :]
        span = (0, len(document.text)) if not len(title) and has_visible(document.text) else NO_SPAN
        return TokenizedText(prefix[: self.prompt_tokens], title, np.array([0, len(title)]), [span], span)

    def _ids(self, texts: Sequence[Iterator[str] | Sequence[str]]) -> tuple[list[Ids], list[Ints]]:
        """Return the ids of each text, given in pieces, and where its pieces start in them (and end)."""
        pieces = [list(text) for text in texts]
        flat = [self._piece_ids(some) for some in batched(itertools.chain.from_iterable(pieces), _TEXTS_AT_ONCE)]
        ids = np.concatenate([part[0] for part in flat]) if flat else np.zeros(0, np.int32)
        ends = np.cumsum([0, *itertools.chain.from_iterable(part[1] for part in flat)], dtype=np.int64)
        firsts = np.cumsum([0, *map(len, pieces)])
        starts = [ends[begin : end + 1] for begin, end in itertools.pairwise(firsts.tolist())]
        return [ids[start[0] : start[-1]] for start in starts], [start - start[0] for start in starts]

    def _piece_ids(self, pieces: list[str]) -> tuple[Ids, list[int]]:
        """Return the concatenated ids of all pieces, and their number in each."""
        encodings = self._tokenizer.encode_batch_fast(pieces, add_special_tokens=False)
        counts = [len(encoding) for encoding in encodings]
        ids = itertools.chain.from_iterable(encoding.ids for encoding in encodings)
        return np.fromiter(ids, dtype=np.int32, count=sum(counts)), counts


def _special_tokens(tokenizer: tokenizers.Tokenizer | Unigram) -> tuple[Ids, Ids]:
    """Return the special tokens before and after a text."""
    encoding = tokenizer.encode("a")
    ids, is_special = np.array(encoding.ids, dtype=np.int32), np.array(encoding.special_tokens_mask, dtype=bool)
    places = np.flatnonzero(~is_special)
    if not len(places):
        raise CheckpointError("the tokenizer has no token for the letter 'a'; it does not fit an English text encoder")
    return ids[: places[0]], ids[places[-1] + 1 :]
