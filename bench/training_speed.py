"""Measure a training step relative to the forward and backward passes of its transformer, by family.

    python bench/training_speed.py --data DIR [--only FAMILY,...] [--weights lora|full] [--passages 16] [--rounds 5]
        [--threads 1] [--json]

DIR contains squad/ (bench/squad_splits.py); the batch is cut from its train split as `mvindex train` cuts it, with the
settings of the preset `snippets` (three questions a passage, 128 tokens) in fp32. `step` is Stepper.step: tokens,
windows, passes, views, loss, gradients, optimiser. `bare` runs the same transformer over the very tensors that the
step gave it, sum() for a loss, each pass forward and backward. Both alternate in one process; seconds are the
process's CPU seconds, which other work on the machine disturbs less than the wall's. Per family: the medians of both,
the median of the rounds' ratios with their range, and the share of each part in the step. `chunks` is `snippets` with
GradCache in chunks of 8 passages, which by design runs each forward pass twice.
"""

import argparse
import statistics
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

import tiny
import torch
from rounds import add_options, alternate, ratio_text, ratios, show
from squad_splits import read_split

from mvindex import set_threads
from mvindex.encoder.arranged import Inputs
from mvindex_train import losses, module
from mvindex_train.batches import PlanConfig, plan
from mvindex_train.data import ExampleStore, Split
from mvindex_train.model import build_encoder
from mvindex_train.presets import preset
from mvindex_train.processes import Processes
from mvindex_train.seeding import preserve_random_state
from mvindex_train.step import StepContext, Stepper

DRPQ = ["loss.aggregate=drpq", "loss.drpq_temperature=0.05"]
FAMILIES = {
    "single": ["encoder.family=single", "encoder.max_views=1"],
    "snippets": [],
    "chunks": ["optimiser.chunk_documents=8"],
    "kmeans": ["encoder.family=kmeans", "encoder.max_views=4", *DRPQ],
    "poly": ["encoder.family=poly", *DRPQ],
    "viewers": ["encoder.family=viewers", "loss.local_weight=0.01"],
    "context-viewers": ["encoder.family=context-viewers", "loss.answer_view=true"],
    "sentences": ["encoder.family=sentences", "encoder.max_views=32"],
}
WEIGHTS = {
    "lora": [],
    "full": ["encoder.lora_rank=none", "encoder.freeze_word_embeddings=false", "optimiser.learning_rate=1e-5"],
}
PARTS = ("arrange", "forward", "pool", "views", "loss", "backward", "optimise", "rest")


class Clock:
    """CPU seconds of each part since reset(); a part inside another one counts for itself alone."""

    def __init__(self):
        self.reset()

    def reset(self):
        self.seconds = dict.fromkeys(PARTS, 0.0)
        self._open = ["rest"]
        self._since = time.process_time()

    def close(self):
        self._turn()
        return dict(self.seconds)

    @contextmanager
    def part(self, name):
        self._turn()
        self._open.append(name)
        yield
        self._turn()
        self._open.pop()

    def wrap(self, owner, name, part):
        inner = getattr(owner, name)

        def timed(*args, **kwargs):
            with self.part(part):
                return inner(*args, **kwargs)

        setattr(owner, name, timed)

    def _turn(self):
        now = time.process_time()
        self.seconds[self._open[-1]] += now - self._since
        self._since = now


def wrapped_clock():
    """Return a clock around the functions of a step."""
    clock = Clock()
    clock.wrap(Inputs, "arrange_documents", "arrange")
    clock.wrap(Inputs, "arrange_queries", "arrange")
    clock.wrap(module, "last_states", "forward")
    clock.wrap(module, "row_means", "pool")  # and the padding of batches, which it draws
    clock.wrap(module, "pad_tokens", "views")
    clock.wrap(module, "token_views", "views")
    clock.wrap(losses, "total_loss", "loss")
    clock.wrap(torch.autograd, "backward", "backward")
    clock.wrap(torch.nn.utils, "clip_grad_norm_", "optimise")
    clock.wrap(torch.optim.AdamW, "step", "optimise")
    return clock


class Subject:
    """A family's encoder with its stepper, and the tensors that a step gives to the transformer."""

    def __init__(self, config, batch):
        self._encoder = build_encoder(config.encoder, seed=0)
        self._stepper = Stepper(self._encoder, config.optimiser, Processes("cpu"))
        self._loss, self._batch = config.loss, batch
        self.inputs = []
        model = self._encoder.documents
        hook = model.register_forward_pre_hook(lambda *call: self.inputs.append(call[2]), with_kwargs=True)
        self.step()  # the first step also makes the optimiser's state
        hook.remove()
        if config.optimiser.chunk_documents:
            self.inputs = self.inputs[len(self.inputs) // 2 :]  # each pass came twice

    def step(self):
        self._stepper.step(self._batch, self._loss, StepContext(number=0, epoch=0, rate=1e-3))

    def bare(self):
        for kwargs in self.inputs:
            self._encoder.documents(**kwargs).last_hidden_state.sum().backward()

    def forget(self):
        self._stepper.optimiser.zero_grad(set_to_none=True)


def measure(subject, clock, rounds):
    """Return CPU seconds of both and of the step's parts, a round each."""
    parts = []

    def step():
        subject.forget()
        clock.reset()
        subject.step()
        parts.append(clock.close())

    def bare():
        subject.forget()
        subject.bare()

    return {**alternate({"step": step, "bare": bare}, rounds), "parts": parts[1:]}


def summary(found):
    shares = {part: statistics.median(parts[part] / sum(parts.values()) for parts in found["parts"]) for part in PARTS}
    medians = {name: statistics.median(found[name]) for name in ("step", "bare")}
    return {**medians, **ratios(found["step"], found["bare"]), "shares": shares}


def fixed_batch(data, passages, folder):
    """Return the first batch of an epoch over SQuAD's train split."""
    store = ExampleStore.write(folder, read_split(data / "squad", Split.TRAIN))
    cut = PlanConfig(batch_passages=passages, questions_per_passage=3, article_runs=True)
    planned = plan(store, cut, seed=0, epoch=0)
    return planned.collate(planned.batch(0))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, required=True, help="folder that contains squad/")
    parser.add_argument("--only", help="families, comma-separated; by default all")
    parser.add_argument("--weights", choices=list(WEIGHTS), default="lora")
    parser.add_argument("--passages", type=int, default=16)
    add_options(parser)
    options = tiny.parse(parser, data=tiny.DATA, only="single", passages=4)
    set_threads(options.threads)
    torch.set_num_threads(options.threads)
    with tempfile.TemporaryDirectory() as folder:
        batch = fixed_batch(options.data, options.passages, Path(folder) / "examples")
    print(f"{len(batch.questions)} questions, {len(batch.documents)} passages", file=sys.stderr)
    clock = wrapped_clock()
    wanted = options.only.split(",") if options.only else list(FAMILIES)
    for name in (name for name in FAMILIES if name in wanted):
        overrides = ["optimiser.precision=fp32", *FAMILIES[name], *WEIGHTS[options.weights]]
        with preserve_random_state():
            subject = Subject(preset("snippets").with_overrides(overrides), batch)
            row = {"family": name, "weights": options.weights, **summary(measure(subject, clock, options.rounds))}
        show(row, as_line, options.json)


def as_line(row):
    shares = " ".join(f"{part} {100 * share:.1f}" for part, share in row["shares"].items())
    times = f"step {row['step']:.2f} s  bare {row['bare']:.2f} s  {ratio_text(row)}"
    return f"{row['family']:22s} {row['weights']}  {times}  % of step: {shares}"


if __name__ == "__main__":
    main()
