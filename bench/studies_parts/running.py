"""Train and measure rows, once for equal settings, and append each result to the results file."""

import datetime
import importlib.metadata
import json
import platform
import sys
import time
from pathlib import Path

import numpy as np

from mvindex.encoder import load_encoder
from mvindex_train import Trainer
from studies_parts import data
from studies_parts.agreement import collapse_label, values
from studies_parts.attention import attention_kl
from studies_parts.measures import measure
from studies_parts.results import is_done, read_results
from studies_parts.rows import Ask, Form, Kind
from studies_parts.settings import Size, config_of, describe, settings_hash
from studies_parts.weights import train_and_watch

PACKAGES = ("mvindex", "torch", "transformers")


class Runner:
    """Trains and measures rows in a folder; data: contains squad/ (bench/squad_splits.py)."""

    def __init__(self, data_folder, out, plan):
        self._data, self._out, self._plan = data_folder, out, plan
        self._asked = data.read_questions(data_folder, plan.size)

    def config(self, row):
        train = data.write_train(self._data, self._out, self._plan, row.one_question)
        negatives = data.write_bm25(self._data, self._out, train) if self._plan.size is Size.FULL else None
        return config_of(row, self._plan, str(train), negatives and str(negatives))

    def run(self, row):
        """Return the row's result."""
        config = self.config(row)
        key = settings_hash(config)
        head = {
            "study": row.study, "row": row.name, "form": row.form.value, "seed": self._plan.seed,
            "size": self._plan.size.value, "settings": describe(config), "settings_hash": key,
        }  # fmt: skip
        found = self._weights(config, key) if row.kind is Kind.WEIGHTS else self._figures(row, config, key)
        return head | found | _surroundings()

    def _figures(self, row, config, key):
        trained, measured = self._trained(config, key), self._measured(config, key)
        lists = {name: measured[name] for name in ("ranks", "lv", "ppl")}
        summary = {name: _mean(measured, name) for name in ("R@1", "R@5", "R@20", "R@100", "MRR", "LV", "PPL")}
        found = {
            "steps": trained["steps"], "questions": len(measured["ranks"]), "documents": measured["documents"],
            **summary, "view_cosine": measured["view_cosine"], "views": measured["views"],
            "label": collapse_label(measured["view_cosine"], summary["LV"]), "seconds": trained["seconds"],
        }  # fmt: skip
        if Ask.SINGLE_VIEWS in row.asks:
            found["single_views"] = measured["single_views"]
        if Ask.ATTENTION in row.asks:
            found["attention_kl"] = measured["attention_kl"]
        if Ask.ANSWER_VIEW in row.asks:
            found["answer_view_ranks"] = measured["answer_view_ranks"]
        return found | lists

    def _trained(self, config, key):
        """Steps and seconds of the training run of these settings."""
        folder, record = self._out / "checkpoints" / key, self._out / "trained" / f"{key}.json"
        if not record.exists():
            folder.parent.mkdir(exist_ok=True)
            started = time.monotonic()
            report = Trainer(config, folder, force=folder.exists()).train()
            _write(record, {"steps": report["steps"], "seconds": round(time.monotonic() - started, 1)})
        return json.loads(record.read_text())

    def _measured(self, config, key):
        path, folder = self._out / "measured" / f"{key}.json", self._out / "checkpoints" / key
        if not path.exists():
            found = measure(load_encoder(folder), self._asked, config.loss)
            has_viewers = config.encoder.family in ("viewers", "context-viewers")
            documents = self._asked.dev.documents
            found["attention_kl"] = attention_kl(folder, documents) if has_viewers else None
            _write(path, found | {"documents": len(documents)})
        return json.loads(path.read_text())

    def _weights(self, config, key):
        started = time.monotonic()
        curves = train_and_watch(config, self._out / "watched" / key, self._asked)
        steps = max(point["step"] for points in curves.values() for point in points)
        return {"steps": steps, "questions": len(self._asked.dev.questions), "curves": curves, "label": "",
                "seconds": round(time.monotonic() - started, 1)}  # fmt: skip


def run_rows(rows, runner, plan, path):
    """Run the missing rows, and append a line to the file for each."""
    for row in rows:
        if plan.size is Size.FULL and row.form is Form.SMALL:
            continue
        if is_done(read_results(path), row, plan, settings_hash(runner.config(row))):
            continue
        started = time.monotonic()
        result = runner.run(row)
        with path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(result, separators=(",", ":")) + "\n")
        shown = {name: result.get(name) for name in ("R@1", "R@5", "LV", "PPL", "view_cosine", "label", "curves")}
        print(row.key, {k: v for k, v in shown.items() if v is not None}, f"{time.monotonic() - started:.0f} s",
              file=sys.stderr, flush=True)  # fmt: skip


def _mean(measured, metric):
    found = values([measured], metric)
    if np.isnan(found).all():
        return None
    scale = 100 if metric.startswith(("R@", "MRR")) else 1
    return round(float(np.nanmean(found)) / scale, 4)


def _surroundings():
    """Return what a result may depend on besides its settings."""
    return {
        "versions": {name: importlib.metadata.version(name) for name in PACKAGES}
        | {"python": platform.python_version()},
        "cpu": _cpu(),
        "date": datetime.date.today().isoformat(),
    }


def _cpu():
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return f"{len(names)} x {names[0]}" if names else platform.processor() or platform.machine()


def _write(path, value):
    """Write the value into the file, whole or not at all."""
    path.parent.mkdir(exist_ok=True)
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps(value))
    partial.replace(path)
