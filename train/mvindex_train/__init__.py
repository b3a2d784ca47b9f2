"""Training of multi-view encoders. The core never imports this package.

from mvindex_train import ProgressBar, Trainer, preset

config = preset("snippets").with_settings({"data.train": ["questions.jsonl"], "data.passages": "corpus.tsv"})
Trainer(config, "my-encoder", callbacks=[ProgressBar()]).train()
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mvindex.plugins import lazy_names

if TYPE_CHECKING:
    from mvindex_train.callbacks import Callback, CallbackError, RunStart
    from mvindex_train.config import TrainConfig
    from mvindex_train.loggers import MLflow, TensorBoard, WandB
    from mvindex_train.loop import Interrupted
    from mvindex_train.presets import preset
    from mvindex_train.progress import ProgressBar
    from mvindex_train.trainer import Trainer

__all__ = [
    "Callback",
    "CallbackError",
    "Interrupted",
    "MLflow",
    "ProgressBar",
    "RunStart",
    "TensorBoard",
    "TrainConfig",
    "Trainer",
    "WandB",
    "preset",
]

# Loaded on first use: `mvindex train --help` imports this package.
__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "Callback": "callbacks",
        "CallbackError": "callbacks",
        "Interrupted": "loop",
        "MLflow": "loggers",
        "ProgressBar": "progress",
        "RunStart": "callbacks",
        "TensorBoard": "loggers",
        "TrainConfig": "config",
        "Trainer": "trainer",
        "WandB": "loggers",
        "preset": "presets",
    },
)
