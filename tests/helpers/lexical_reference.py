"""Slow, plain BM25 and fusion over the documents of an index, and corpora of few words for them."""

import math
import statistics
from collections import Counter

import numpy as np

import mvindex

WORDS = "oil crisis price embargo war peace river delta mountain".split()
K1, B = 1.2, 0.75


def corpus(count, seed, prefix="d"):
    """Documents of up to 12 of nine words, some of none, and two views of few values each: scores tie."""
    rng = np.random.default_rng(seed)
    documents = [
        mvindex.Document(
            f"{prefix}{number}",
            " ".join(rng.choice(WORDS, size=int(rng.integers(0, 13)))) + " .",
            title=str(rng.choice(["", "oil", "the war"])),
            metadata={"third": number % 3 == 0},
        )
        for number in range(count)
    ]
    return documents, rng.integers(-2, 3, (count, 2, 4)).astype(np.float32) + np.float32(0.5)


def words(document):
    """The words of a document that has ASCII letters, spaces and full stops only."""
    return f"{document.title} {document.text}".replace(".", " ").lower().split()


def bm25(documents, question):
    """Document id -> score as float32, for documents of any score; counts are of these documents."""
    counts = {document.id: Counter(words(document)) for document in documents}
    lengths = {doc_id: sum(found.values()) for doc_id, found in counts.items()}
    mean = sum(lengths.values()) / len(lengths)
    scores = dict.fromkeys(counts, 0.0)
    for word in question.split():
        n = sum(word in found for found in counts.values())
        idf = math.log(1 + (len(counts) - n + 0.5) / (n + 0.5))
        for doc_id, found in counts.items():
            if found[word]:
                scores[doc_id] += (
                    idf * found[word] * (K1 + 1) / (found[word] + K1 * (1 - B + B * lengths[doc_id] / mean))
                )
    return scores


def fused(dense, lexical, how, weights=(1, 1), depth=100):
    """Document id -> fused score, of the candidates: the best so many of each. Both: id -> score, in rising ordinals.

    depth: at least 100; scores and ranks count by the best 100, whatever it is.
    """
    lists = [sorted(dense.items(), key=lambda item: -item[1])]
    lists.append(sorted(lexical.items(), key=lambda item: -item[1]))
    found = [dict(lists[0][:depth]), {doc_id: score for doc_id, score in lists[1][:depth] if score > 0}]
    total = {}
    for doc_id in {**found[0], **found[1]}:
        total[doc_id] = 0.0
        for scores, ranked, proposed, weight in zip((dense, lexical), lists, found, weights, strict=True):
            top = [score for _, score in ranked[:100]]
            if scores is lexical:
                top += [0.0] * min(100 - len(top), len(ranked))
            if how == "rrf":
                ids = [other for other, _ in ranked]
                rank = ids.index(doc_id) + 1
                part = 1 / (60 + rank) if doc_id in proposed and rank <= 100 else 0.0
            elif max(top) == min(top):
                part = 0.0
            elif how == "minmax":
                part = (max(scores[doc_id], min(top)) - min(top)) / (max(top) - min(top))
            else:
                part = (max(scores[doc_id], min(top)) - statistics.fmean(top)) / statistics.pstdev(top)
            total[doc_id] += weight * part
    return total
