"""Fit the growth of one kind to rows of bench/scale.py, and extrapolate to 168,122,592 views, beside the plan.

    python bench/scale_fit.py docs/figures/scale.jsonl [--kind ivf-pq] [--least 100000] [--json]

Times and build times are fitted as powers of the number of views (least squares of logarithms, both corpora together),
recall as linear in its logarithm, each corpus by itself; from --least views on: below, fixed costs rule. Brackets are
95 % prediction intervals of the fit: they hold if the law holds beyond what was measured. Bytes are not fitted: they
are the arithmetic of `mvindex plan`, which is compared with each row. At 768 dimensions times are taken twice, as all
that is counted is linear in them.
"""

import argparse
import json
from pathlib import Path

import numpy as np
import tiny

from mvindex.engines.params import IVF_KINDS, default_nlist
from mvindex.planning.sizes import Collection, engine_bytes
from mvindex.store.views import ViewType

ROOT = Path(__file__).resolve().parent.parent

DOCUMENTS, VIEWS = 21_015_324, 8
# Two-sided 95 % quantiles of Student's t by degrees of freedom.
STUDENT = {1: 12.71, 2: 4.30, 3: 3.18, 4: 2.78, 5: 2.57, 6: 2.45, 7: 2.36, 8: 2.31, 9: 2.26, 10: 2.23}
TARGET = np.log10(DOCUMENTS * VIEWS)


def fitted(views, values):
    """Fit values in log10 n; return slope, its standard error, and the prediction at the target with its half-width."""
    x, y = np.log10(views), np.asarray(values, dtype=float)
    design = np.stack([np.ones_like(x), x], axis=1)
    (intercept, slope), *_ = np.linalg.lstsq(design, y, rcond=None)
    free = len(x) - 2
    if free < 1:
        return slope, np.nan, intercept + slope * TARGET, np.nan
    variance = float(((y - design @ [intercept, slope]) ** 2).sum() / free)
    spread = float(((x - x.mean()) ** 2).sum())
    ahead = np.sqrt(variance * (1 + 1 / len(x) + (TARGET - x.mean()) ** 2 / spread))
    return slope, np.sqrt(variance / spread), intercept + slope * TARGET, STUDENT[min(free, 10)] * ahead


def growth(rows, name):
    """Return the power law of a time: exponent, its error, and the time at the target, low to high."""
    slope, error, at, half = fitted([row["views"] for row in rows], [np.log10(row[name]) for row in rows])
    return {"exponent": slope, "error": error, "at": 10**at, "low": 10 ** (at - half), "high": 10 ** (at + half)}


def recall_growth(rows, name):
    """Return the recall at the target, and its change with each tenfold size."""
    slope, error, at, half = fitted([row["views"] for row in rows], [row[name] for row in rows])
    return {
        "a tenfold": slope,
        "error": error,
        "at": min(at, 1.0),
        "low": max(at - half, 0.0),
        "high": min(at + half, 1.0),
    }


def planned_bytes(row):
    """Return the plan's bytes of an engine over the measured ones: on disk, and in memory."""
    kind = row["kind"]
    nlist = default_nlist(row["views"]) if kind in IVF_KINDS else 0
    documents = row["documents"]
    held = Collection(
        documents=documents, views=row["views"] / documents, dim=384, view_type=ViewType.FP16, text_bytes=0
    )
    planned = engine_bytes(kind, held, nlist)
    return planned.disk / (row["engine_B_doc"] * documents), planned.resident / (row["memory_B_doc"] * documents)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", type=Path)
    parser.add_argument("--kind", default="ivf-pq")
    parser.add_argument("--setting", default="default")
    parser.add_argument("--least", type=int, default=100_000)
    parser.add_argument("--json", action="store_true")
    options = tiny.parse(parser, rows=ROOT / "docs/figures/scale.jsonl")
    rows = [json.loads(line) for line in options.rows.read_text().splitlines()]
    chosen = [row for row in rows if row["kind"] == options.kind and row.get("setting") == options.setting]
    made = [row for row in chosen if row["corpus"] != "real" and row["views"] >= options.least]
    laws = {name: growth(made, name) for name in ("ms", "ms_batch", "build_s", "scan_ms", "scan_ms_batch")}
    for corpus in sorted({row["corpus"] for row in made}):
        own = [row for row in made if row["corpus"] == corpus]
        laws |= {f"{name}, {corpus}": recall_growth(own, name) for name in ("recall@10", "recall@100")}
    planned = {row["views"]: planned_bytes(row) for row in chosen}
    if options.json:
        print(json.dumps({"rows": len(made), "laws": laws, "planned over measured bytes": planned}))
        return
    print(f"{options.kind}, {options.setting}: fitted to {len(made)} rows of {options.least:,} views and more\n")
    print("| | grows as | at 168,122,592 views |\n| --- | --- | --- |")
    for name, law in laws.items():
        grows = law.get("exponent", law.get("a tenfold"))
        how = "n^{:.2f} (+- {:.2f})" if "exponent" in law else "{:+.4f} (+- {:.4f}) a tenfold"
        print(f"| {name} | {how.format(grows, law['error'])} | {law['at']:.4g} ({law['low']:.4g}-{law['high']:.4g}) |")
    for views, (disk, memory) in sorted(planned.items()):
        print(f"{views:,} views: the plan tells {disk:.3f} of the bytes on disk, {memory:.3f} of those in memory")


if __name__ == "__main__":
    main()
