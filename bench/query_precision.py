"""Compare queries encoded in int8 with the same in fp32: results, distance, and time.

    python bench/query_precision.py --data DIR [--sets squad,med] [--encoder minilm-views] [--sample 2500] [--json]

DIR is as for bench/quality.py, and so are questions and figures. Each row is a collection and a mode of search: the
first figure (R@1 or nDCG@10) of both, their difference with the standard error of the paired differences, in points,
and the share of the first ten documents that both find. `cosine` is the least and the mean one of a question's two
vectors. Milliseconds are medians of the wall's, one question alone and a question in a batch of 32, in turns.
"""

import json
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from quality import Measured, batches, loaded, options_of, standard_error

import mvindex
from mvindex.encoder import load_encoder

MODES = ("dense", "hybrid")
PRECISIONS = ("fp32", "int8")
TURNS, TOGETHER = 100, 32


def rows(data, name, encoders, sample):
    documents, questions, qrels = loaded(data, name, sample)
    texts = [question.text for question in questions]
    vectors = {each: encoder.encode_queries(texts) for each, encoder in encoders.items()}
    lengths = [np.linalg.norm(vectors[each], axis=1) for each in PRECISIONS]
    cosines = (vectors["fp32"] * vectors["int8"]).sum(axis=1) / lengths[0] / lengths[1]
    shared = {"set": name, "documents": len(documents), "questions": len(questions)}
    shared |= {"least_cosine": float(cosines.min()), "mean_cosine": float(cosines.mean())} | times(encoders, texts)
    with (
        tempfile.TemporaryDirectory() as folder,
        mvindex.create(Path(folder) / "bench.mvx", encoder=encoders["fp32"], lexical="english") as index,
    ):
        index.add(documents)
        for mode in MODES:
            found, same = {each: Measured(qrels) for each in PRECISIONS}, []
            for places in batches(range(len(questions))):
                asked = [questions[place] for place in places]
                results = {
                    each: index.search(vectors[each][places], text=[one.text for one in asked], mode=mode,
                                       top_k=found[each].depth) for each in PRECISIONS
                }  # fmt: skip
                for number, question in enumerate(asked):
                    pair = [results[each][number] for each in PRECISIONS]
                    tens = [{hit.id for hit in result.hits[:10]} for result in pair]
                    same.append(len(tens[0] & tens[1]) / max(1, len(tens[0])))
                    for each, result in zip(PRECISIONS, pair, strict=True):
                        found[each].add(question, result)
            firsts = {each: np.array(found[each].firsts) for each in PRECISIONS}
            differences = firsts["int8"] - firsts["fp32"]
            figure = next(iter(found["fp32"].means()))
            yield shared | {
                "mode": mode, "figure": figure, **{each: float(firsts[each].mean()) for each in PRECISIONS},
                "difference": float(differences.mean()), "error": standard_error(differences),
                "same_10": float(np.mean(same)),
            }  # fmt: skip


def times(encoders, texts):
    """Return the median milliseconds of a question by itself, and of one in a batch."""
    taken = {}
    for turn in range(TURNS + 1):
        for each, encoder in encoders.items():
            for name, asked in (("alone", 1), ("together", TOGETHER)):
                some = [texts[(turn * asked + number) % len(texts)] for number in range(asked)]
                begun = time.perf_counter()
                encoder.encode_queries(some)
                if turn:  # the first one prepares
                    taken.setdefault(f"{each}_{name}_ms", []).append(1e3 * (time.perf_counter() - begun) / asked)
    return {name: float(np.median(each)) for name, each in taken.items()}


def shown(row):
    figures = f"{row['figure']} {100 * row['fp32']:.2f} -> {100 * row['int8']:.2f}"
    difference = f"({100 * row['difference']:+.2f}, error {100 * row['error']:.2f})"
    cosine = f"cosine {row['least_cosine']:.4f} / {row['mean_cosine']:.4f}"
    ms = ", ".join(f"{name} {row[f'fp32_{name}_ms']:.2f} -> {row[f'int8_{name}_ms']:.2f} ms"
                   for name in ("alone", "together"))  # fmt: skip
    asked = f"{row['set']:20s} {row['questions']:5,} questions {row['mode']:6s}"
    return f"{asked}  {figures} {difference}  same {row['same_10']:.3f}  {cosine}  {ms}"


def main():
    options = options_of(__doc__)
    # int8 first: it leaves the form in which fp32 is compared.
    encoders = {each: load_encoder(options.encoder, query_precision=each) for each in reversed(PRECISIONS)}
    for name in options.sets.split(","):
        for row in rows(options.data, name, encoders, options.sample):
            print(json.dumps(row) if options.json else shown(row))
            sys.stdout.flush()


if __name__ == "__main__":
    main()
