"""Write training questions of several collections, with the scores by which an ensemble of three rankings teaches.

    python bench/mixture.py --data DIR --out OUT [--sets squad,sentences,debian,fever,wordnet] [--times 1]

A question's teacher is the sum of three z-scores over its collection's passages: by e5-views, by minilm-views and by
BM25, each computed once. The sum is multiplied by that of some factors which makes the gold passages likeliest. A
question has the scores of the passages near its own, which may be in its batch (data.article_runs). "Near" is the order
of the article; elsewhere texts are ordered so that those that are alike by minilm-views are in one group of 32.

squad: the training articles but the last four, which are dev.jsonl, as in bench/squad_splits.py. debian: a package's
summary asks for its description. fever: a claim asks for its one sentence. wordnet: the words of a synset ask for
their gloss. Of these three 960 passages are drawn by chance (seed 0), --times as many, and some of their groups are
written; the other groups of debian are debian-dev.jsonl. sentences: questions of other articles of SQuAD's training
part ask for their one sentence, all in the order of the file.
"""

import csv
import gzip
import io
import json
import random
import re
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import bm25s
import harness
import numpy as np
import squad_splits
import Stemmer
import zstandard

from mvindex.encoder import load_encoder
from mvindex.records import Document
from mvindex_train.data import Example, Split, write_example

TEACHERS = ("e5-views", "minilm-views")
FACTORS = (0.25, 0.35, 0.5, 0.7, 1.0, 1.4)
NEAR = 32
PASSAGES = 960
# How many of the groups are trained on: questions of SQuAD are to be most.
GROUPS = {"debian": 12, "fever": 8, "wordnet": 5}
_JOINS = ((r" ([.,;:!?%)\]]|'s|n't)", r"\1"), (r"([(\[$]) ", r"\1"), (r"``\s*|\s*''", '"'))


@dataclass
class Collection:
    """Passages in an order in which neighbours are alike, and examples without a teacher; gold: (q,) rows."""

    passages: list[Document]
    examples: list[Example]

    def gold(self):
        row_of = {passage.id: row for row, passage in enumerate(self.passages)}
        return np.array([row_of[example.positives[0].id] for example in self.examples])


def squad(options):
    examples = squad_splits.read_split(options.data / "squad", Split.TRAIN)
    passages = {example.positives[0].id: example.positives[0] for example in examples}
    return Collection(list(passages.values()), examples)


def sentences(options):
    with gzip.open(options.data / "squad_sentences/pairs.jsonl.gz", "rt", encoding="utf-8") as file:
        pairs = [(joined(row["question"]), joined(row["passage"])) for row in map(json.loads, file)]
    row_of = {text: row for row, text in enumerate(dict.fromkeys(text for _, text in pairs))}
    passages = [document(f"s{row}", text, f"s{row // NEAR}") for text, row in row_of.items()]
    return Collection(
        passages, [asks(question, passages[row_of[text]], at) for at, (question, text) in enumerate(pairs)]
    )


def debian(options):
    rows = sampled(table(options.data / "scale_debian/passages.tsv.zst"), lambda row: row["text"], options.times)
    pairs = [(row["title"].partition(" - ")[2], row["text"]) for row in rows]
    return of_pairs("d", pairs)


def wordnet(options):
    rows = sampled(table(options.data / "scale_wordnet/passages.tsv.zst"), lambda row: row["text"], options.times)
    return of_pairs("w", [(row["title"], row["text"]) for row in rows])


def fever(options):
    folder = options.data / "fever_sentences"
    with gzip.open(folder / "corpus.jsonl.gz", "rt", encoding="utf-8") as file:
        texts = {row["_id"]: row["text"] for row in map(json.loads, file)}
    claims = {row["_id"]: row["text"] for row in map(json.loads, (folder / "queries.jsonl").read_text().splitlines())}
    judged = csv.DictReader((folder / "qrels/train.tsv").read_text().splitlines(), delimiter="\t")
    # One sentence a claim: where several are needed, none may be enough.
    found = {}
    for row in judged:
        found.setdefault(row["query-id"], []).append(row["corpus-id"])
    pairs = [(claims[one], joined(texts[own[0]])) for one, own in found.items() if len(own) == 1]
    return of_pairs("f", sampled(pairs, lambda pair: pair[1], options.times))


SETS = {each.__name__: each for each in (squad, sentences, debian, fever, wordnet)}


def of_pairs(name, pairs):
    """Return the collection of pairs of question and text, ordered so that texts that are alike are neighbours."""
    pairs = [(question, text) for question, text in pairs if question.strip() and text.strip()]
    texts = [document(f"{name}{row}", text, None) for row, (_, text) in enumerate(pairs)]
    views = load_encoder("minilm-views").encode_documents(texts)
    order = alike(np.add.reduceat(views.rows, views.starts[:-1]), np.arange(len(texts)))
    passages = [document(texts[row].id, texts[row].text, f"{name}{at // NEAR}") for at, row in enumerate(order)]
    examples = [asks(pairs[row][0], passage, at) for at, (row, passage) in enumerate(zip(order, passages, strict=True))]
    return Collection(passages, examples)


def alike(vectors, rows):
    """Return the rows ordered by halving them along their widest direction, until a part has NEAR or fewer."""
    if len(rows) <= NEAR:
        return rows
    own = vectors[rows] - vectors[rows].mean(axis=0)
    order = rows[np.argsort(own @ np.linalg.svd(own, full_matrices=False)[2][0])]
    half = -(-len(rows) // (2 * NEAR)) * NEAR
    return np.concatenate([alike(vectors, order[:half]), alike(vectors, order[half:])])


def teach(collection):
    """Return the examples with the teacher's scores of the passages near their own, and a line about the teacher."""
    gold, questions = collection.gold(), [example.question for example in collection.examples]
    parts = [encoded_scores(name, collection.passages, questions) for name in TEACHERS]
    parts.append(lexical_scores(collection.passages, questions))
    total = sum(map(z_scores, parts))
    near = neighbours(collection.passages, gold)
    losses = {factor: likelihood(factor * total, gold, near) for factor in FACTORS}
    factor = min(losses, key=losses.get)
    firsts = [float((part.argmax(axis=1) == gold).mean()) for part in (*parts, total)]
    line = f"R@1 of its parts and the sum {firsts}, factor {factor}, losses {losses}"
    return [
        taught(example, collection.passages, row, range(*span), factor * scores)
        for example, row, span, scores in zip(collection.examples, gold.tolist(), near.tolist(), total, strict=True)
    ], line


def taught(example, passages, gold, near, scores):
    others = [row for row in near if row != gold]
    teacher = tuple(round(float(scores[row]), 3) for row in (gold, *others))
    return replace(example, negatives=tuple(passages[row] for row in others), teacher=teacher)


def neighbours(passages, gold):
    """Return begin and end of the rows near each gold row that are of the same article, (q, 2)."""
    articles = np.unique([article(passage) for passage in passages], return_inverse=True)[1]
    begins = np.flatnonzero(np.append(True, articles[1:] != articles[:-1]))
    ends = np.append(begins[1:], len(articles))
    run = np.searchsorted(begins, gold, side="right") - 1
    return np.stack([np.maximum(begins[run], gold - NEAR + 1), np.minimum(ends[run], gold + NEAR)], axis=1)


def encoded_scores(name, passages, questions):
    encoder = load_encoder(name)
    # Without titles: sentences are scored by themselves.
    views = encoder.encode_documents([replace(passage, title="") for passage in passages])
    scores = encoder.encode_queries(questions) @ views.rows.T
    return np.maximum.reduceat(scores, views.starts[:-1], axis=1)


def lexical_scores(passages, questions):
    stemmer, ranker = Stemmer.Stemmer("english"), bm25s.BM25(k1=0.9, b=0.4)
    terms, asked = (
        bm25s.tokenize(texts, stopwords="en", stemmer=stemmer, return_ids=False, show_progress=False)
        for texts in ([f"{passage.title} {passage.text}" for passage in passages], questions)
    )
    ranker.index(terms, show_progress=False)
    nothing = np.zeros(len(passages), np.float32)
    return np.stack([ranker.get_scores(own) if own else nothing for own in asked])


def z_scores(scores):
    return (scores - scores.mean(axis=1, keepdims=True)) / (scores.std(axis=1, keepdims=True) + 1e-6)


def likelihood(scores, gold, near):
    """Return the mean negative log likelihood of the gold rows among the rows near them."""
    columns = np.arange(scores.shape[1])
    kept = np.where((columns >= near[:, :1]) & (columns < near[:, 1:]), scores, -np.inf)
    sums = np.log(np.exp(kept - kept.max(axis=1, keepdims=True)).sum(axis=1)) + kept.max(axis=1)
    return float((sums - scores[np.arange(len(gold)), gold]).mean())


def article(passage):
    return passage.metadata.get("article", passage.title)


def asks(question, passage, number):
    return Example(f"{passage.id}-{number}", question, (passage,))


def document(name, text, article):
    return Document(name, text, metadata={} if article is None else {"article": article})


def joined(text):
    """Return a tokenised text as it is written, with a capital."""
    text = text.replace("-lrb-", "(").replace("-rrb-", ")").replace("-LRB-", "(").replace("-RRB-", ")")
    for pattern, written in _JOINS:
        text = re.sub(pattern, written, text)
    return text[:1].upper() + text[1:]


def table(path):
    with path.open("rb") as file:
        text = io.TextIOWrapper(zstandard.ZstdDecompressor().stream_reader(file), "utf-8", newline="")
        yield from csv.DictReader(text, delimiter="\t")


def sampled(rows, key, times):
    """Return `times` as many rows as PASSAGES by chance; of rows of one key the first."""
    distinct = {}
    for row in rows:
        distinct.setdefault(key(row), row)
    rows = list(distinct.values())
    return random.Random(0).sample(rows, min(PASSAGES * times, len(rows)))


def write(examples, path):
    with path.open("wb") as file:
        for example in examples:
            write_example(example, file)


def main():
    parser = harness.parser(__doc__, data=Path, out=Path, sets=",".join(SETS), times=1)
    options = harness.parse(parser, data=harness.DATA, out=harness.OUT, sets="squad")
    options.out.mkdir(parents=True, exist_ok=True)
    for name in options.sets.split(","):
        collection = SETS[name](options)
        examples, line = teach(collection)
        print(f"{name}: {len(examples)} questions, {len(collection.passages)} passages. {line}")
        sys.stdout.flush()
        if name == "squad":
            squad_splits.write_split(options.data / "squad", Split.DEV, options.out / "dev.jsonl")
        elif name in GROUPS:
            groups = sorted({article(passage) for passage in collection.passages})
            trained = set(random.Random(0).sample(groups, min(GROUPS[name] * options.times, len(groups))))
            others = [example for example in examples if article(example.positives[0]) not in trained]
            examples = [example for example in examples if article(example.positives[0]) in trained]
            if name == "debian":
                write(others, options.out / "debian-dev.jsonl")
        write(examples, options.out / f"{name}.jsonl")


if __name__ == "__main__":
    main()
