"""Figures of an encoder: ranks, LV, perplexity, single views, answer views. Arrays by question, not means."""

import numpy as np

from mvindex.measure.analysis.measures import local_variations, pair_scores, perplexities
from mvindex.measure.metrics import AnswerMatcher
from mvindex.records import Views
from mvindex_train.evaluation import gold_ranks, view_cosine

# Answers are looked for in so many documents of each question.
ANSWER_DEPTH = 20
# Scores of so many questions are held at once: a bound on memory.
QUESTIONS_AT_ONCE = 256


def measure(encoder, asked, loss):
    """Return all figures of the encoder as JSON values; lists are by question, PPL's by gold document."""
    dev = asked.dev
    views = encoder.encode_documents(dev.documents)
    queries = encoder.encode_queries(dev.questions)
    gold = np.array([rows[0] for rows in dev.gold])
    best = winning_slots(views, queries)
    ranks = gold_ranks(views, queries, dev.gold, loss)
    pairs = pair_scores(views, queries, gold)
    return {
        "ranks": ranks.tolist(),
        "lv": [_rounded(value) for value in variations(pairs, loss.scale)],
        "ppl": [_rounded(value) for value in perplexities(gold, best[np.arange(len(gold)), gold])],
        "view_cosine": _rounded(view_cosine(views)),
        "views": round(len(views.rows) / len(views), 3),
        "single_views": single_views(views, queries, dev.gold, loss),
        "answer_view_ranks": answer_view_ranks(views, queries, asked, loss),
    }


def winning_slots(views, queries):
    """Return the slot of each document's best view for each question, (q, n), the first of equals."""
    counts = np.diff(views.starts)
    document = np.repeat(np.arange(len(counts)), counts)
    slots = np.arange(len(views.rows)) - views.starts[document]
    found = []
    for begin in range(0, len(queries), QUESTIONS_AT_ONCE):
        scores = queries[begin : begin + QUESTIONS_AT_ONCE] @ views.rows.T
        padded = np.full((len(scores), len(counts), counts.max()), -np.inf, dtype=np.float32)
        padded[:, document, slots] = scores
        found.append(padded.argmax(axis=2))
    return np.concatenate(found)


def variations(pairs, scale):
    """Return LV of each pair; None for a document of one view."""
    several = pairs.counts > 1
    found = iter(local_variations(pairs.where(several), scale) if several.any() else ())
    return [next(found) if has_two else None for has_two in several]


def single_views(views, queries, gold, loss):
    """Return the recall of each slot as the document's only vector: R@1 and R@5 among the documents that have it.

    Asked are the questions whose positive has that slot; documents: how many have it.
    """
    found = []
    slots = np.arange(len(views.rows)) - np.repeat(views.starts[:-1], np.diff(views.starts))
    for slot in range(int(slots.max()) + 1):
        rows = np.flatnonzero(slots == slot)
        owners = np.searchsorted(views.starts, rows, side="right") - 1
        place = np.full(len(views), -1)
        place[owners] = np.arange(len(owners))
        own_gold = [place[rows][place[rows] >= 0] for rows in gold]
        chosen = [number for number, rows in enumerate(own_gold) if len(rows)]
        alone = Views(views.rows[rows], np.arange(len(rows) + 1), np.full((len(rows), 2), -1))
        ranks = gold_ranks(alone, queries[chosen], [own_gold[number] for number in chosen], loss)
        shares = {f"R@{k}": round(float(np.mean(ranks <= k)), 4) for k in (1, 5)}
        found.append({"slot": slot + 1, "documents": len(rows), "questions": len(chosen), **shares})
    return found


def answer_view_ranks(views, queries, asked, loss):
    """Return the rank, from 1, of the first document whose best view's text has an answer, by question; 0: none.

    CAMVR eq. 15 at K is the share of ranks from 1 to K. None in families whose views stand for no stretch of the text.
    """
    documents, spans = asked.dev.documents, views.spans
    if (spans[:, 0] < 0).all() or (np.diff(views.starts).max() > 1 and _all_whole(views)):
        return None
    best, matcher, found = winning_slots(views, queries), AnswerMatcher(), []
    order = _order(views, queries)
    for number, ranked in enumerate(order):
        holds = matcher.prepare(str(number), asked.answers[number])
        texts = (_text(documents[row], spans[views.starts[row] + best[number, row]]) for row in ranked)
        found.append(next((rank for rank, text in enumerate(texts, 1) if holds(text)), 0))
    return found


def _all_whole(views):
    """Return whether all views of each document have the same span."""
    firsts = np.repeat(views.spans[views.starts[:-1]], np.diff(views.starts), axis=0)
    return bool((views.spans == firsts).all())


def _order(views, queries):
    """Return documents by their best view, (q, ANSWER_DEPTH), best first."""
    best = np.maximum.reduceat(queries @ views.rows.T, views.starts[:-1], axis=1)
    return np.argsort(-best, axis=1, kind="stable")[:, :ANSWER_DEPTH]


def _text(document, span):
    return document.text[span[0] : span[1]] if span[0] >= 0 else ""


def _rounded(value):
    return None if value is None else round(float(value), 3)
