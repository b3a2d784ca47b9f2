"""Compare the light form of the packaged encoder (int8, ONNX Runtime) with torch in fp32: quality on real collections.

    python bench/light.py --data DIR [--sets squad,med] [--sample 2500] [--json]

DIR and sets are those of quality.py. Documents and questions are encoded by both forms; each of the four pairs searches
exactly, so that `light/torch` is an index made by the light form whose questions torch encodes. `lost`: points below
torch/torch, with the standard error of the paired differences; `same`: the share of questions whose first hit is that
of torch/torch. The cosines are those of the two forms' views. `noise` is what chance does: torch's vectors, each moved
at random to these cosines, in eight draws; lost is then the mean of the draws, and error their standard deviation.
"""

import tempfile
from pathlib import Path

import harness
import numpy as np
from quality import Measured, batches, loaded, options_of, standard_error

import mvindex
from mvindex.encoder.checkpoint import read_checkpoint
from mvindex.encoder.registry import load_encoder
from mvindex.encoder.transformer import TransformerEncoder

# Of vectors moved at random.
DRAWS = 8


def torch_encoder(source):
    """Return the encoder in torch, with documents in fp32 too."""
    encoder = TransformerEncoder(read_checkpoint(source), "cpu")
    encoder.__dict__["_document_model"] = encoder._source_model
    return encoder


def moved(rows, cosine, random):
    """Return unit vectors moved at random, so that their mean cosine with what they were is about this one."""
    found = rows + random.standard_normal(rows.shape, dtype=np.float32) * np.sqrt(2 * (1 - cosine) / rows.shape[1])
    return found / np.linalg.norm(found, axis=1, keepdims=True)


def searched(index, questions, queries, qrels):
    """Return the figures of a search for each question, and the first hit's id."""
    found, firsts = Measured(qrels), []
    for some, vectors in zip(batches(questions), batches(queries), strict=True):
        results = index.search(np.stack(vectors), top_k=found.depth)
        for question, result in zip(some, results, strict=True):
            found.add(question, result)
            firsts.append(result.hits[0].id if result.hits else None)
    return found, firsts


def compared(data, name, encoders, sample):
    """Yield a row for each pair of forms, and one for noise of the same size."""
    documents, questions, qrels = loaded(data, name, sample)
    queries = {form: encoder.encode_queries([one.text for one in questions]) for form, encoder in encoders.items()}
    views = {form: encoder.encode_documents(documents) for form, encoder in encoders.items()}
    cosines = (views["light"].rows * views["torch"].rows).sum(axis=1)
    query_cosine = float((queries["light"] * queries["torch"]).sum(axis=1).mean())
    random, rows, starts = (
        np.random.default_rng(0),
        {form: one.rows for form, one in views.items()},
        views["torch"].starts,
    )
    for draw in range(DRAWS):
        rows[draw] = moved(rows["torch"], cosines.mean(), random)
        queries[draw] = moved(queries["torch"], query_cosine, random)
    found, firsts = {}, {}
    for made, own in rows.items():
        with (
            tempfile.TemporaryDirectory() as folder,
            mvindex.create(Path(folder) / "bench.mvx", dim=own.shape[1]) as index,
        ):
            index.add_views(documents, np.split(own, starts[1:-1]))
            for queried in encoders if made in encoders else [made]:
                found[made, queried], firsts[made, queried] = searched(index, questions, queries[queried], qrels)
    base, first = (one["torch", "torch"] for one in (found, firsts))
    lost = {pair: 100 * (np.array(base.firsts) - np.array(each.firsts)) for pair, each in found.items()}
    shared = {"set": name, "questions": len(base.firsts), "cosine": float(cosines.mean()),
              "least_cosine": float(cosines.min())}  # fmt: skip
    for pair, each in found.items():
        if pair[0] in encoders:
            same = float(np.mean([one == other for one, other in zip(firsts[pair], first, strict=True)]))
            yield shared | {"pair": "/".join(pair), **each.means(), "lost": float(lost[pair].mean()),
                            "error": standard_error(lost[pair]), "same": same}  # fmt: skip
    drawn = [lost[draw, draw].mean() for draw in range(DRAWS)]
    yield shared | {"pair": "noise", "lost": float(np.mean(drawn)), "error": float(np.std(drawn, ddof=1))}


def shown(row):
    measures = "  ".join(f"{name} {100 * row[name]:5.1f}" for name in row if "@" in name)
    return (
        f"{row['set']:20s} {row['pair']:12s} {measures}  lost {row['lost']:+.2f} (error {row['error']:.2f})  "
        f"same first hit {row.get('same', np.nan):.3f}  cosine {row['cosine']:.4f} (least {row['least_cosine']:.3f})"
    )


def main():
    options = options_of(__doc__)
    encoders = {"light": load_encoder(options.encoder, device="cpu"), "torch": torch_encoder(options.encoder)}
    for name in options.sets.split(","):
        for row in compared(options.data, name, encoders, options.sample):
            harness.show(row, options.json, shown)


if __name__ == "__main__":
    main()
