"""Passages of any number with texts of Zipf-distributed words, made a block at a time from a seed."""

import numpy as np

import mvindex
from scale_parts.corpora import BLOCK_DOCUMENTS, PASSAGES_PER_ARTICLE, Gauss
from scale_parts.indexes import real_vectors

VOCABULARY, WORDS = 200_000, 12
_SYLLABLES = [first + second for first in "bdfgklmnprstvz" for second in "aeiou"]
# The word of a rank is drawn with probability proportional to 1 / (rank + 2.7).
_OFFSET = 2.7


def _word(rank):
    """Return a word of its own for a rank, a frequent one a short one."""
    word = ""
    while rank >= 0:
        rank, syllable = divmod(rank, len(_SYLLABLES))
        word, rank = word + _SYLLABLES[syllable], rank - 1
    return word


class Passages:
    """The first `documents` passages: ids from 1, titles of articles of 45 passages, views of the stand-in `gauss`."""

    def __init__(self, documents, options, words=WORDS):
        """options: views, dim, data and seed, as full_count.py has them; words: of each text."""
        self.documents, self._seed, self._num_words = documents, options.seed, words
        self._views = Gauss(real_vectors(options.data, options.dim), options.views, options.seed)
        self._words = np.array([_word(rank) for rank in range(VOCABULARY)])
        weights = 1 / (np.arange(VOCABULARY) + _OFFSET)
        self._ends = np.cumsum(weights) / weights.sum()

    @property
    def blocks(self):
        return -(-self.documents // BLOCK_DOCUMENTS)

    def count(self, block):
        """Return the number of passages of a block."""
        return min(BLOCK_DOCUMENTS, self.documents - block * BLOCK_DOCUMENTS)

    def views(self, block):
        """Return the views of a block, (n, views, dim) float32."""
        return self._views.block(block, self.count(block))

    def texts(self, block, version=0):
        """Return the texts of a block; another version has other words."""
        rng = np.random.default_rng([self._seed, 5, block, version])
        drawn = np.searchsorted(self._ends, rng.random((self.count(block), self._num_words)))
        return [" ".join(row) for row in self._words[np.minimum(drawn, VOCABULARY - 1)].tolist()]

    def block(self, block, version=0):
        """Return the documents of a block."""
        return [self._document(block, place, text) for place, text in enumerate(self.texts(block, version))]

    def _document(self, block, place, text):
        article = block * -(-BLOCK_DOCUMENTS // PASSAGES_PER_ARTICLE) + place // PASSAGES_PER_ARTICLE
        return mvindex.Document(
            str(block * BLOCK_DOCUMENTS + place + 1), text, f"Article {article}", {"article": article}
        )

    def questions(self, count, turn=0, num_words=2):
        """Return so many questions, (n, d), about passages of up to 16 blocks, and a text of the first words of each's.

        turn: another number is about other blocks.
        """
        rng = np.random.default_rng([self._seed, 6 + turn])
        chosen = np.sort(rng.choice(self.blocks, min(self.blocks, 16), replace=False))
        share = -(-count // len(chosen))
        vectors = np.concatenate([self._views.questions(block, share, self.views(block)) for block in chosen.tolist()])
        texts = [text for block in chosen.tolist() for text in self.texts(block)[:share]]
        return vectors[:count], [" ".join(text.split()[:num_words]) for text in texts[:count]]
