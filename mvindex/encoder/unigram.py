"""A unigram tokenizer (Kudo 2018), which a vocabulary of 250,000 pieces fills in a tenth of a second.

`tokenizers` needs half a second and 250 MB to build its own of them; the ids are the same.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

# Words that are kept with their ids: of this length at most, and so many of them.
_LONGEST_KEPT, _MOST_KEPT = 64, 1 << 16
# Below the least score of a piece: what a character costs that is in none.
_UNKNOWN_COST = 10.0
# The mark before each word.
_BEGIN = "\u2581"


@dataclass(frozen=True, slots=True)
class Encoding:
    """The ids of a text, and which of them are special tokens, as those of `tokenizers`."""

    ids: Sequence[int]
    special_tokens_mask: Sequence[int]

    def __len__(self) -> int:
        return len(self.ids)


class Unigram:
    """Cuts texts into pieces, those of the largest sum of scores, word by word.

    Texts are brought into the normal form nmt_nfkc first. Names of special tokens in a text are text.
    """

    def __init__(self, pieces: Sequence[tuple[str, float]], special: Mapping[str, int]) -> None:
        """Take the pieces with their scores, by id, and the ids of the special tokens bos, eos and unk by name."""
        from tokenizers import normalizers

        self._normalise = normalizers.Sequence([normalizers.Nmt(), normalizers.NFKC()]).normalize_str
        self._special, self._scores = special, [score for _, score in pieces]
        # Special tokens, those without a score, are no part of a text.
        self._ids = {piece: place for place, (piece, score) in enumerate(pieces) if score}
        self._longest = max(map(len, self._ids))
        self._unknown_score = min(self._scores) - _UNKNOWN_COST
        self._kept_ids = lru_cache(_MOST_KEPT)(self._word_ids)

    def encode(self, text: str) -> Encoding:
        """Return the ids of a text between the special tokens."""
        ids = self._text_ids(text)
        return Encoding([self._special["bos"], *ids, self._special["eos"]], [1, *[0] * len(ids), 1])

    def encode_batch_fast(self, texts: Sequence[str], *, add_special_tokens: bool) -> list[Encoding]:
        """Return the ids of each text."""
        if add_special_tokens:
            return [self.encode(text) for text in texts]
        return [Encoding(ids, [0] * len(ids)) for ids in map(self._text_ids, texts)]

    def _text_ids(self, text: str) -> list[int]:
        found: list[int] = []
        for word in self._normalise(text).split():
            found += self._kept_ids(word) if len(word) <= _LONGEST_KEPT else self._word_ids(word)
        return found

    def _word_ids(self, word: str) -> tuple[int, ...]:
        """Return the ids of a word by Viterbi's algorithm; characters in no piece that follow each other are one."""
        word, unknown = _BEGIN + word, self._special["unk"]
        best = [0.0] + [-math.inf] * len(word)
        came = [(0, unknown)] * (len(word) + 1)
        for begin in range(len(word)):
            score = best[begin]
            if word[begin] not in self._ids and score + self._unknown_score > best[begin + 1]:
                best[begin + 1], came[begin + 1] = score + self._unknown_score, (begin, unknown)
            for end in range(begin + 1, min(begin + self._longest, len(word)) + 1):
                found = self._ids.get(word[begin:end])
                if found is not None and score + self._scores[found] > best[end]:
                    best[end], came[end] = score + self._scores[found], (begin, found)
        ids, place = list[int](), len(word)
        while place:
            place, found = came[place]
            if not (ids and found == ids[-1] == unknown):
                ids.append(found)
        return tuple(reversed(ids))
