"""Fit and measure the confidence of hits: how well it tells questions with an answer from those without one.

    python bench/confidence.py --data DATA [--part test|dev] [--sample 1000] [--indexes DIR] [--json]
    python bench/confidence.py --data DATA --fit [--indexes DIR] > mvindex/data/encoders/minilm_views/confidence.json

DATA holds one folder a collection, as for bench/quality.py. A row compares the questions of a collection with ones that
it does not answer: of `another domain`, of `another collection` of its domain, or its own with the `gold removed` (by a
filter). AUROC is the probability that the best confidence among the first three hits of a question with an answer is
above that of one without; `refused` is the share of the unanswerable below what keeps 95 % of the answerable. `dense`
and `score` are the AUROC of the raw scores by views and of the search. `error` is the calibration error of first hits,
half of them of questions with an answer: the mean distance of confidence and share that is right, over ten bins.

Parts: dev is squad's training articles, their passages alone, and both SQuADShifts sets; --fit reads no other. test is
squad's test questions over all of its passages, and PubMedQA. Questions beside them are others than those of dev.
Indexes are kept in --indexes, to be used again.
"""

import gzip
import json
import random
import re
import tempfile
from pathlib import Path

import harness
import numpy as np
from harness import print_table

import mvindex
from mvindex.corpus import CorpusOptions, read_documents
from mvindex.encoder import load_encoder
from mvindex.index.index import search_engine_of
from mvindex.search.confidence import Calibration, Model, packaged_calibration, unfitted
from mvindex.search.fusion import Mode
from mvindex.search.plan import Plan
from mvindex.search.request import Queries
from mvindex.search.tuning.fusion import (
    DEPTH,
    auroc,
    best_of,
    calibration_error,
    fit_model,
    probabilities,
    refused_share,
    sample_of,
)

NO_TITLE = CorpusOptions(title_field="")
# Collection -> corpus, options.
CORPORA = {
    "squad_train": ("squad/passages.tsv", CorpusOptions()),
    "squad": ("squad/passages.tsv", CorpusOptions()),
    "reddit": ("squadshifts_reddit/passages.tsv.gz", NO_TITLE),
    "amazon": ("squadshifts_amazon/passages.tsv.gz", NO_TITLE),
    "pubmedqa": ("pubmedqa/corpus.jsonl.gz", CorpusOptions()),
}
# Questions -> file, and the names of the question and of its passage there; which half of them is used.
QUESTIONS = {
    "squad_train": ("squad/questions.train.jsonl", "question", "passage_id", None),
    "squad_test": ("squad/questions.test.jsonl", "question", "passage_id", None),
    "reddit": ("squadshifts_reddit/questions.jsonl.gz", "question", "passage_id", 0),
    "amazon": ("squadshifts_amazon/questions.jsonl.gz", "question", "passage_id", 0),
    "amazon_others": ("squadshifts_amazon/questions.jsonl.gz", "question", "passage_id", 1),
    "pubmedqa": ("pubmedqa/queries.jsonl", "text", "_id", None),
    "sentences": ("squad_sentences/pairs.jsonl.gz", "question", None, 0),
    "sentences_others": ("squad_sentences/pairs.jsonl.gz", "question", None, 1),
    "efficientqa": ("nq_open/efficientqa.dev.jsonl.gz", "question", None, None),
    "nq": ("nq_open/dev.jsonl.gz", "question", None, None),
}
DOMAIN, COLLECTION, REMOVED = "another domain", "another collection", "gold removed"
# Collection, its questions, and the questions that it does not answer.
PARTS = {
    "dev": [
        (
            "squad_train",
            "squad_train",
            [(DOMAIN, "reddit"), (DOMAIN, "amazon"), (COLLECTION, "sentences"), (COLLECTION, "efficientqa")],
        ),
        ("reddit", "reddit", [(DOMAIN, "squad_train"), (DOMAIN, "amazon")]),
        ("amazon", "amazon", [(DOMAIN, "squad_train"), (DOMAIN, "reddit")]),
    ],
    "test": [
        (
            "squad",
            "squad_test",
            [(DOMAIN, "amazon_others"), (DOMAIN, "pubmedqa"), (COLLECTION, "sentences_others"), (COLLECTION, "nq")],
        ),
        ("pubmedqa", "pubmedqa", [(DOMAIN, "squad_test"), (DOMAIN, "nq")]),
    ],
}
MODES = (Mode.HYBRID, Mode.DENSE, Mode.LEXICAL)
# Of others than the collection's own questions, a share of the sample.
SHARE = 0.4


def read_lines(path):
    with gzip.open(path, "rt") if path.suffix == ".gz" else path.open() as file:
        return [json.loads(line) for line in file]


def written(text):
    """Return a question that was lowercased and tokenised as people write it."""
    joined = re.sub(r" ([?,.!;:%)]|'s|n't)", r"\1", text).replace("-lrb- ", "(").replace(" -rrb-", ")")
    return joined[0].upper() + joined[1:]


def questions_of(data, name, count):
    """Return so many questions by chance, each with the id of its passage."""
    path, text, passage, half = QUESTIONS[name]
    rows = [(row[text], row[passage] if passage else None) for row in read_lines(data / path)]
    if half is not None:
        rows = rows[: len(rows) // 2] if half == 0 else rows[len(rows) // 2 :]
    if "sentences" in name:
        rows = [(written(question), None) for question, _ in rows]
    return random.Random(0).sample(rows, min(count, len(rows)))


def opened(data, name, folder):
    """Open the index of a collection, made where there is none yet."""
    place = Path(folder) / f"{name}.mvx"
    if place.exists():
        return mvindex.open(place)
    path, options = CORPORA[name]
    documents = list(read_documents(str(data / path), options))
    if name == "squad_train":
        titles = {row["title"] for row in read_lines(data / QUESTIONS["squad_train"][0])}
        documents = [document for document in documents if document.title in titles]
    index = mvindex.create(place, encoder="minilm-views", lexical="english")
    index.add(documents)
    return index


def searched(index, questions, mode, *, are_removed=False):
    """Return the result of each question, with the ids of the documents that answer it there."""
    texts = [text for text, _ in questions]
    vectors = np.concatenate([index.encode_queries(texts[at : at + 256]) for at in range(0, len(texts), 256)])
    plan, search = Plan(mode=mode, top_k=DEPTH, model=unfitted(mode)), search_engine_of(index).search
    if not are_removed:
        results = search(Queries(vectors, texts), plan)
        return [(result, [gold] if gold else []) for result, (_, gold) in zip(results, questions, strict=True)]
    found = []
    for number, (text, gold) in enumerate(questions):
        without = plan._replace(filter={"not": {"id": {"in": [gold]}}})
        found += [(result, []) for result in search(Queries(vectors[number : number + 1], [text]), without)]
    return found


def searched_part(options, part, modes):
    """Yield collection, mode and the results of its kinds of questions, those with an answer first."""
    for name, own, others in PARTS[part]:
        if not (options.data / CORPORA[name][0]).exists():
            continue
        with opened(options.data, name, options.indexes) as index:
            mine = questions_of(options.data, own, options.sample)
            beside = [
                (kind, source, questions_of(options.data, source, round(SHARE * options.sample)))
                for kind, source in others
                if (options.data / QUESTIONS[source][0]).exists()
            ]
            for mode in modes:
                found = {(REMOVED, own): searched(index, mine, mode, are_removed=True)}
                found |= {(kind, source): searched(index, asked, mode) for kind, source, asked in beside}
                yield name, mode, searched(index, mine, mode), found


def weights_of(samples):
    """Return the weight of each hit: half to the questions with an answer, the rest to each other kind alike."""
    first, *others = [len(sample.is_answerable) for sample in samples]
    shares = [0.5 / first, *(0.5 / len(others) / count for count in others)]
    return np.concatenate([np.full(len(each.owners), share) for each, share in zip(samples, shares, strict=True)])


def fitted(options):
    """Return the calibration of the default encoder, each collection of dev weighing as much."""
    rows = {mode: [] for mode in MODES}
    for _, mode, mine, others in searched_part(options, "dev", MODES):
        samples = [sample_of(each, mode) for each in (mine, *others.values())]
        features, answers = (np.concatenate([sample[place] for sample in samples]) for place in (0, 1))
        rows[mode].append((features, answers, weights_of(samples)))
    models = {}
    for mode, found in rows.items():
        model = fit_model(*map(np.concatenate, zip(*found, strict=True)))
        models[mode] = Model(tuple(round(weight, 4) for weight in model.weights), round(model.bias, 4))
    return Calibration(load_encoder("minilm-views").fingerprint, models)


def rows_of(options, part):
    """Yield the rows of the table."""
    calibration = packaged_calibration()
    for name, mode, mine, others in searched_part(options, part, MODES):
        samples = [sample_of(each, mode) for each in (mine, *others.values())]
        found = [probabilities(calibration.models[mode], sample.features) for sample in samples]
        best = [
            best_of(each, sample.owners, len(sample.is_answerable)) for each, sample in zip(found, samples, strict=True)
        ]
        firsts = [np.unique(sample.owners, return_index=True)[1] for sample in samples]
        ends = np.cumsum([0, *map(len, found[:-1])])
        rows = np.concatenate([end + first for end, first in zip(ends, firsts, strict=True)])
        answers, weights = np.concatenate([sample.answers for sample in samples]), weights_of(samples)
        error = calibration_error(np.concatenate(found)[rows], answers[rows], weights[rows])
        for (kind, source), own, results in zip(others, best[1:], others.values(), strict=True):
            row = {"collection": name, "mode": mode.value, "kind": kind, "questions": source, "n": len(results)}
            row |= {"AUROC": auroc(best[0], own), "refused": refused_share(best[0], own), "error": error}
            for column, score in (("dense", dense_of), ("score", lambda hit: hit.score)):
                row[column] = auroc(*(highest(each, score) for each in (mine, results)))
            yield {column: round(value, 3) if isinstance(value, float) else value for column, value in row.items()}


def dense_of(hit):
    """Return the score of a hit by views; after a lexical search by terms."""
    return next((part.score for part in hit.components if part.name == "dense"), hit.score)


def highest(results, score):
    return np.array([max((score(hit) for hit in result.hits), default=0.0) for result, _ in results])


def main():
    parser = harness.parser(__doc__, data=Path, json=False)
    parser.add_argument("--part", choices=sorted(PARTS), default="test")
    parser.add_argument("--sample", type=int, default=1000, help="so many questions of a collection, by chance")
    parser.add_argument("--indexes", type=Path, default=None, help="the folder of the indexes (default: one for now)")
    parser.add_argument("--fit", action="store_true", help="print the calibration that is fitted on dev instead")
    options = harness.parse(parser, data=harness.DATA, sample=30, part="dev")
    with tempfile.TemporaryDirectory() as folder:
        options.indexes = options.indexes or Path(folder)
        options.indexes.mkdir(parents=True, exist_ok=True)
        if options.fit:
            print(json.dumps(fitted(options).as_setting(), indent=2))
            return
        rows = list(rows_of(options, options.part))
    if options.json:
        print("\n".join(map(json.dumps, rows)))
    else:
        print_table(list(rows[0]), rows)


if __name__ == "__main__":
    main()
