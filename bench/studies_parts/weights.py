"""DRPQ's figure 2: the gradient weights of views while an encoder trains, for centroids, first and random tokens."""

import shutil

import numpy as np

from mvindex.encoder import load_encoder
from mvindex.measure.analysis.measures import gradient_weights, pair_scores, variances
from mvindex.records import Views
from mvindex_train.checkpoints import save_checkpoint
from mvindex_train.data import ExampleStore, read_examples
from mvindex_train.model import build_encoder
from mvindex_train.processes import Processes
from mvindex_train.sources import StoreBatches
from mvindex_train.step import StepContext, Stepper, learning_rate_share, read_figures

# More than a passage has tokens: k-means of so many clusters gives the token states themselves.
ALL_TOKENS = 512
# Shares of the steps after which the weights are measured.
MEASURED = (0.0, 0.5, 1.0)


def weight_figures(views, queries, gold, temperature):
    """The mean over questions of the greatest weight of their document's views, and of the weights' variance."""
    pairs = pair_scores(views, queries, np.asarray(gold))
    weights = gradient_weights(pairs, temperature)
    greatest = np.mean(np.maximum.reduceat(weights, pairs.starts[:-1]))
    variance = np.mean(variances(weights, pairs.starts))
    return {"greatest": round(float(greatest), 4), "variance": round(float(variance), 4)}


def train_and_watch(config, folder, asked):
    """The curves by what the views are: [{step, greatest, variance}, ...]; first and last step among them."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    store = ExampleStore.write(folder / "examples", read_examples(config.data.train[0]))
    source, processes = StoreBatches(store, config), Processes(None)
    encoder = build_encoder(config.encoder, config.optimiser.seed)
    encoder.to(processes.device)
    stepper = Stepper(encoder, config.optimiser, processes)
    total = source.num_steps(0) * config.optimiser.epochs
    total = min(total, config.optimiser.max_steps or total)
    watched = {round(share * total) for share in MEASURED}
    curves, step = {}, 0
    while step < total:
        epoch = step // source.num_steps(0)
        for batch in source.batches(epoch, 0):
            if step in watched:
                _watch(encoder, config, (folder, asked, step), curves)
            rate = learning_rate_share(step, total, config.optimiser)
            read_figures([stepper.step(batch, config.loss, StepContext(number=step, epoch=epoch, rate=rate))])
            step += 1
            if step == total:
                break
    _watch(encoder, config, (folder, asked, step), curves)
    shutil.rmtree(folder)
    return curves


def _watch(encoder, config, where, curves):
    """Append a point to the curves: the weights of one question of each document."""
    folder, asked, step = where
    save_checkpoint(encoder, folder / "now", "measured while it trains")
    family, k = config.encoder.family, config.encoder.max_views
    measured = {"centroids" if family == "kmeans" else "first tokens": load_encoder(folder / "now")}
    if family == "kmeans":
        measured["random tokens"] = load_encoder(folder / "now", max_views=ALL_TOKENS)
    gold, chosen = np.unique([rows[0] for rows in asked.dev.gold], return_index=True)
    questions = [asked.dev.questions[number] for number in chosen]
    for name, loaded in measured.items():
        views = loaded.encode_documents(asked.dev.documents)
        views = _drawn(views, k) if name == "random tokens" else views
        queries = loaded.encode_queries(questions)
        figures = weight_figures(views, queries, gold, config.loss.drpq_temperature)
        curves.setdefault(name, []).append({"step": step, **figures})
    shutil.rmtree(folder / "now")


def _drawn(views, k):
    """k of each document's views, drawn at random: a control that nobody trained for."""
    random = np.random.default_rng(0)
    counts = np.diff(views.starts)
    kept = [begin + np.sort(random.permutation(count)[:k]) for begin, count in zip(views.starts, counts, strict=False)]
    rows = np.concatenate(kept)
    return Views(views.rows[rows], np.cumsum([0, *map(len, kept)]), views.spans[rows])
