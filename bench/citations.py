"""Measure how often the sentence that a hit cites holds the answer, and what choosing it costs.

    python bench/citations.py --data DATA [--sets squad,squadshifts_reddit] [--sample N] [--json]
    python bench/citations.py --data DATA --sets "" --fit

DATA holds one folder a collection, as for bench/quality.py; of squad the questions are those of its test part. Of each
question the gold passage is searched for by itself, through `Index.search` with a filter, so that no miss of the
retrieval counts: the share of winning views' snippets, and of citations, that hold an answer string (DPR's rule), each
with its mean length. `terms` chooses without the views, as lexical search does. Then all passages are searched, dense
and hybrid: the same of the first hit, beside the share of its whole texts. `ms` is CPU time per citation.

--fit prints the weights of mvindex/corpus/text/citation.py: a softmax regression on squad's training questions, by the
features of each sentence of the gold passage. No test question is read for it.
"""

import json
import random
import sys
import tempfile
import time
from pathlib import Path

import harness
import numpy as np
from quality import GOLD_SETS, batches, load

import mvindex
from mvindex.corpus import read_documents
from mvindex.corpus.text.citation import WEIGHTS, Citer, ScoredViews
from mvindex.corpus.text.parted import parted_text
from mvindex.encoder import load_encoder
from mvindex.measure.metrics import AnswerMatcher
from mvindex.measure.questions import read_questions
from mvindex.records import winning_text

MODES = ("dense", "hybrid")
STEPS, RATE, MOMENTUM, PENALTY = 3000, 1.0, 0.9, 1e-4
FEATURES = [name for weights in WEIGHTS.values() for name in weights]


class Shares:
    """Shares of texts that hold an answer, by name, and their mean lengths."""

    def __init__(self):
        self._counts, self._found, self._chars = {}, {}, {}

    def add(self, name, text, holds_answer):
        text = text or ""
        self._counts[name] = self._counts.get(name, 0) + 1
        self._found[name] = self._found.get(name, 0) + holds_answer(text)
        self._chars[name] = self._chars.get(name, 0) + len(text)

    def row(self):
        shares = {name: self._found[name] / count for name, count in self._counts.items()}
        chars = {f"{name}_chars": self._chars[name] / count for name, count in self._counts.items()}
        return {"questions": max(self._counts.values()), **shares, **chars}


def questions_of(data, name, part, sample):
    _, files, _, _ = load(data, name)
    if name == "squad":
        files = [file for file in files if file.endswith(f"{part}.jsonl")]
    questions = [one for one in read_questions(files) if one.answers and one.passage_id]
    return random.Random(0).sample(questions, sample) if 0 < sample < len(questions) else questions


def gold_row(index, questions):
    """Return the shares of the gold passages' snippets and citations."""
    matcher, shares, spent = AnswerMatcher(), Shares(), 0.0
    for batch in batches(questions):
        vectors = index.encode_queries([question.text for question in batch])
        for question, vector in zip(batch, vectors, strict=True):
            holds_answer = matcher.prepare(question.id, question.answers)
            only = {"top_k": 1, "filter": {"id": question.passage_id}}
            (hit,) = index.search(vector, text=question.text, mode="dense", **only).hits
            begun = time.process_time()
            cited = hit.citation
            spent += time.process_time() - begun
            shares.add("snippet", winning_text(hit), holds_answer)
            shares.add("citation", cited.text, holds_answer)
            shares.add("terms", Citer(question.text).cite(hit.text, hit.title).text, holds_answer)
    return {**shares.row(), "ms": 1e3 * spent / len(questions)}


def first_row(index, questions, mode):
    """Return the shares of the first hits' texts, snippets and citations."""
    matcher, shares = AnswerMatcher(), Shares()
    for batch in batches(questions):
        results = index.search([question.text for question in batch], top_k=1, mode=mode)
        for question, result in zip(batch, results, strict=True):
            holds_answer = matcher.prepare(question.id, question.answers)
            hit = result.hits[0]
            for name, text in (("text", hit.text), ("snippet", winning_text(hit)), ("citation", hit.citation.text)):
                shares.add(name, text, holds_answer)
    return shares.row()


def training_rows(index, questions):
    """Return the features of all sentences of the gold passages, which of them answer, and whose each is."""
    matcher, features, answers, owners = AnswerMatcher(), [], [], []
    for number, question in enumerate(questions):
        holds_answer = matcher.prepare(question.id, question.answers)
        document = index.get(question.passage_id)
        parted = parted_text(document.text, document.title)
        is_answer = [holds_answer(document.text[begin:end]) for begin, end in parted.units]
        if any(is_answer) and not all(is_answer):
            views = sorted(index.explain(question.text, document.id))
            spans = np.array([view.span or (-1, -1) for view in views])
            scored = ScoredViews(spans, np.array([view.score for view in views], dtype=np.float32))
            found, zeros = Citer(question.text).features(parted, scored), [0.0] * len(parted.units)
            features.append(np.array([found.get(name, zeros) for name in FEATURES]).T)
            answers += is_answer
            owners += [number] * len(parted.units)
    _, owners = np.unique(owners, return_inverse=True)
    return np.concatenate(features), np.array(answers, dtype=np.float64), owners


def fitted(features, answers, owners):
    """Return the weights under which the sentences that answer have the highest probability, by gradient descent."""
    starts = np.flatnonzero(np.diff(owners, prepend=-1))
    weights = speed = np.zeros(features.shape[1])
    for _ in range(STEPS):
        scores = features @ weights
        odds = np.exp(scores - np.maximum.reduceat(scores, starts)[owners])
        any_sentence = odds / np.add.reduceat(odds, starts)[owners]
        right_sentence = odds * answers / np.add.reduceat(odds * answers, starts)[owners]
        slope = features.T @ (any_sentence - right_sentence) / len(starts) + 2 * PENALTY * weights
        speed = MOMENTUM * speed - RATE * slope
        weights = weights + speed
    return dict(zip(FEATURES, weights.tolist(), strict=True))


def shown(row):
    figures = [
        f"{name} {100 * row[name]:5.1f} ({row[f'{name}_chars']:3.0f} characters)"
        for name in ("text", "snippet", "terms", "citation")
        if name in row
    ]
    cost = [f"{row['ms']:.2f} ms"] if "ms" in row else []
    return "  ".join([f"{row['set']:20s} {row['of']:14s} {row['questions']:6,} questions", *figures, *cost])


def main():
    parser = harness.parser(__doc__, data=Path, sets=",".join(GOLD_SETS), encoder="minilm-views", fit=False, json=False)
    parser.add_argument("--family", default=None, help="another family of the encoder, such as single")
    parser.add_argument("--sample", type=int, default=0, help="so many questions of a set, by chance; 0: all")
    options = harness.parse(parser, data=harness.DATA, sets="squad", fit=True)
    encoder = load_encoder(options.encoder, family=options.family)

    def filled(folder, name):
        corpus, _, _, corpus_options = load(options.data, name)
        index = mvindex.create(Path(folder) / f"{name}.mvx", encoder=encoder, lexical="english")
        index.add(read_documents(str(corpus), corpus_options))
        return index

    def show(row):
        harness.show(row, options.json, shown)
        sys.stdout.flush()

    for name in filter(None, options.sets.split(",")):
        questions = questions_of(options.data, name, "test", options.sample)
        with tempfile.TemporaryDirectory() as folder, filled(folder, name) as index:
            show({"set": name, "of": "gold passage", **gold_row(index, questions)})
            for mode in MODES:
                show({"set": name, "of": f"first, {mode}", **first_row(index, questions, mode)})
    if options.fit:
        questions = questions_of(options.data, "squad", "train", options.sample)
        with tempfile.TemporaryDirectory() as folder, filled(folder, "squad") as index:
            weights = fitted(*training_rows(index, questions))
        print(json.dumps({name: round(value, 2) for name, value in weights.items()}))


if __name__ == "__main__":
    main()
