"""Compare all families with equal training, and three kinds of negatives, on SQuAD's test articles over all passages.

    python bench/training.py --data DIR --out DIR [--rows families|negatives] [--only ROW,...] [--steps N] [--small]

DIR of --data contains squad/ (bench/squad_splits.py). Training calls `mvindex_train.Trainer`, as `mvindex train` does,
on the train split, with the settings of the preset `snippets` except for those of the row. A row with a checkpoint in
--out is only measured again. Per row: R@1/5/20/100 of the 3,420 test
questions over all 2,067 passages, LV (MVR eq. 9, scores times 20) and the mean cosine of two views of a passage, views
a passage, and steps. With --small, batches have 16 passages x 4 questions, and the 662 dev questions are asked over the
148 passages of the dev articles: a row then takes two CPU minutes.
"""

import json
import re
import subprocess
import sys
from pathlib import Path

import harness
from squad_splits import read_split, write_split

from mvindex.corpus import read_documents
from mvindex.encoder import load_encoder
from mvindex_train import ProgressBar, Trainer
from mvindex_train.config import LossConfig
from mvindex_train.data import Split
from mvindex_train.evaluation import evaluate, make_dev_set
from mvindex_train.presets import preset
from mvindex_train.processes import Processes

# Raw tau belongs to raw products: all rows are of unit vectors, with the scale of the preset. DRPQ's T as in search.
DRPQ = ["loss.aggregate=drpq", "loss.drpq_temperature=0.05"]
PAPER = ["encoder.pooling=cls", "optimiser.viewer_learning_rate=0.005"]
FAMILIES = {
    "single": ["encoder.family=single", "encoder.max_views=1"],
    "snippets": [],
    "snippets, answer view": ["loss.answer_view=true"],
    "first-k": ["encoder.family=first-k"],
    "poly": ["encoder.family=poly", *DRPQ],
    "kmeans": ["encoder.family=kmeans", "encoder.max_views=4", *DRPQ],
    "viewers (MVR)": ["encoder.family=viewers", "loss.local_weight=0.01", *PAPER],
    "viewers, own stretch + residual": [
        "encoder.family=viewers", "encoder.own_snippet=true", "encoder.residual=10", "encoder.viewer_init=cls",
        "optimiser.viewer_learning_rate=0.01",
    ],
    "context-viewers (CAMVR)": ["encoder.family=context-viewers", "loss.answer_view=true", *PAPER],
    "context-viewers, plain sum": ["encoder.family=context-viewers", "encoder.residual=1"],
    "context-viewers, own snippet + residual": [
        "encoder.family=context-viewers", "encoder.own_snippet=true", "encoder.residual=10",
        "encoder.viewer_init=cls", "optimiser.viewer_learning_rate=0.01",
    ],
    **{
        f"{family}, {kind}": [f"encoder.family={family}", f"encoder.max_views={views}", *settings]
        for family in ("first-k", "poly")
        for kind, views, settings in (
            ("nested", 8, ["loss.nested=true"]),
            *((f"{views} alone", views, []) for views in (1, 2, 4, 8)),
        )
    },
    **{f"snippets, {views} alone": [f"encoder.max_views={views}"] for views in (1, 2, 4)},
    "snippets, in sequence": ["loss.in_sequence_weight=0.1"],
    "sentences": ["encoder.family=sentences", "encoder.max_views=32"],
    "splits": ["encoder.family=splits", "encoder.max_views=4"],
}  # fmt: skip


def main():
    parser = harness.parser(__doc__, data=Path, out=Path, small=False, json=False)
    parser.add_argument("--rows", choices=["families", "negatives"], default="families")
    parser.add_argument("--only")
    parser.add_argument("--steps", type=int)
    options = harness.parse(parser, data=harness.DATA, out=harness.OUT, steps=2, small=True, only="single")
    options.out.mkdir(parents=True, exist_ok=True)
    rows = FAMILIES.items() if options.rows == "families" else negatives(options)
    asked = dev_set(options.data) if options.small else test_set(options.data)
    for name, overrides in rows:
        if options.only and place(name) not in options.only.split(","):
            continue
        folder = options.out / place(name)
        if not folder.exists():
            run(options, folder, overrides)
        show(options, name, folder, asked)


def run(options, folder, overrides):
    """Train the encoder of the settings in the folder."""
    small = ["data.batch_passages=16", "data.questions_per_passage=4"] if options.small else []
    config = preset("snippets").with_overrides([f"data.train={squad(options)}", *small, *overrides])
    if options.steps:
        config = config.with_overrides([f"optimiser.max_steps={options.steps}"])
    Trainer(config, folder, callbacks=[ProgressBar()]).train()


def squad(options):
    """Write SQuAD's train split and return its file."""
    path = options.out / "squad.train.jsonl"
    if not path.exists():
        write_split(options.data / "squad", Split.TRAIN, path)
    return path


def dev_set(data):
    return make_dev_set(read_split(data / "squad", Split.DEV), None)


def test_set(data):
    passages = read_documents(str(data / "squad/passages.tsv"))
    return make_dev_set(read_split(data / "squad", Split.TEST), passages)


def show(options, name, folder, asked):
    record = json.loads((folder / "training.json").read_text())
    loss = LossConfig(**record["config"]["loss"])
    # One checkpoint is asked for 1, 2, 4 and 8 views: the first of nested ones, as many snippets.
    for views in (1, 2, 4, 8) if loss.nested or name == "snippets" else (None,):
        figures = evaluate(load_encoder(folder, max_views=views), asked, loss, Processes()).as_json()
        show_row(options, name if views is None else f"{name}, {views} asked for", figures, record)


def show_row(options, name, figures, record):
    row = {"row": name, **figures, "steps": record["steps"], "seconds": record.get("seconds")}
    if options.json:
        print(json.dumps(row), flush=True)
        return
    recall = " / ".join(f"{100 * figures[f'R@{k}']:.1f}" for k in (1, 5, 20, 100))
    spread = [f"{figures[key]:.3f}" if figures[key] is not None else "-" for key in ("local_variation", "view_cosine")]
    print(f"| {name} | {recall} | {spread[0]} | {spread[1]} | {figures['views']:.1f} | {record['steps']} |", flush=True)


def negatives(options):
    """Yield the rows of the negatives; each file is mined once: BM25's, then those of the encoder trained on them."""
    bm25, both = options.out / "bm25.jsonl", options.out / "bm25+mined.jsonl"
    passages = options.data / "squad/passages.tsv"
    given = [squad(options), "--passages", passages]
    if not bm25.exists():
        mvindex("mine", *given, "--bm25", "--out", bm25)
    first = {"in-batch": [], "+ BM25": [f"data.negatives={bm25}", "data.hard_negatives=1"]}
    yield from first.items()
    trained = options.out / place("+ BM25")
    if not both.exists():
        index = options.out / "first-round.mvx"
        mvindex("ingest", passages, "--index", index, "--encoder", trained)
        mvindex("mine", *given, "--index", index, "--merge", bm25, "--out", both)
    yield "+ BM25 + mined (two rounds)", [f"data.negatives={both}", "data.hard_negatives=1"]


def mvindex(*arguments):
    subprocess.run([sys.executable, "-m", "mvindex", *map(str, arguments)], check=True, stdout=sys.stderr)


def place(name):
    """Return the folder name of a row."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


if __name__ == "__main__":
    main()
