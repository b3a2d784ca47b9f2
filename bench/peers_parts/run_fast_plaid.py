"""fast-plaid, late interaction, views as a document's tokens: with one query vector MaxSim is the best view."""

import numpy as np
import torch
from fast_plaid import search
from measuring import Setting

PACKAGES = ("fast-plaid", "torch")
# Variants are bits a dimension: 4 by default.
# What is asked in rising cost: clusters looked at, documents scored in full.
REACHING = ((32, 4096), (128, 16_384), (512, 32_768))

torch.set_num_threads(1)


def build(data, work, variant):
    views, counts = np.array(data.views), np.bincount(data.document)
    documents = [torch.from_numpy(each) for each in np.split(views, np.cumsum(counts)[:-1])]
    search.FastPlaid(index=str(work), device="cpu").create(documents_embeddings=documents, nbits=int(variant))


def open(_, work, __):
    return search.FastPlaid(index=str(work), device="cpu")


def asked(index, label, **options):
    def many(questions, k):
        vectors = torch.from_numpy(np.array(questions, dtype=np.float32))[:, None]
        found = index.search(vectors, top_k=k, show_progress=False, **options)
        return [[number for number, _ in each] for each in found]

    return Setting(label=label, one=lambda question, k: many(question[None], k)[0], many=many)


def settings(index, _):
    yield [asked(index, "defaults (n_ivf_probe 8)")]
    yield [
        asked(index, f"n_ivf_probe {nprobe}, n_full_scores {full}", n_ivf_probe=nprobe, n_full_scores=full)
        for nprobe, full in REACHING
    ]
