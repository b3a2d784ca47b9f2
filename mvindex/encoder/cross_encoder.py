"""Score query and document together by a cross-encoder: to rerank, find false negatives, and teach."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mvindex.durable import file_checksum
from mvindex.encoder.checkpoint.hub import find_source
from mvindex.encoder.checkpoint.load import VOCABULARIES, check_all_used, quiet
from mvindex.encoder.checkpoint.tensors import check_normalizer, check_tokenizer_file
from mvindex.encoder.device import choose_device, torch_threads
from mvindex.encoder.function import join_text
from mvindex.errors import CheckpointError, EncoderError
from mvindex.plugins import require
from mvindex.records import Document

if TYPE_CHECKING:
    import torch

_PURPOSE = "a cross-encoder"
_MAX_TOKENS = 512
_BATCH_PAIRS = 32
# Digits after the point: the rest is rounding, which changes with the batch that a pair is in.
_SCORE_DIGITS = 5


class CrossEncoder:
    """Scores pairs of query and document with a sequence classifier of transformers.

    source: a directory, or a hub id `org/name[@revision]`; weights are safetensors only and no code of the checkpoint
    is run. A score is the model's one logit, or for a model of two labels the second logit less the first: the
    log-odds of "relevant".
    CheckpointError: nothing there, or no such classifier.
    """

    def __init__(self, source: str, device: str | None = None) -> None:
        self._torch = require("torch", "train", _PURPOSE)
        self.folder = find_source(source).folder
        self._device: torch.device = choose_device(device)
        self._tokenizer, self._model = _load(self.folder)
        self._model.to(self._device)
        self._max_tokens = min(
            _MAX_TOKENS, self._tokenizer.model_max_length, self._model.config.max_position_embeddings
        )

    def score(self, pairs: Sequence[tuple[str, Document]]) -> list[float]:
        """Return one score per pair, in order; a text too long for the model is cut at its end.

        EncoderError: a score that is no finite number.
        """
        return self.score_texts([(question, join_text(document)) for question, document in pairs])

    def score_texts(self, texts: Sequence[tuple[str, str]]) -> list[float]:
        """Return one score per pair of query and text, as score() does."""
        scores = [0.0] * len(texts)
        # Pairs of like length run together, so that little is padded.
        order = sorted(range(len(texts)), key=lambda row: (len(texts[row][0]) + len(texts[row][1]), row))
        for begin in range(0, len(order), _BATCH_PAIRS):
            rows = order[begin : begin + _BATCH_PAIRS]
            for row, score in zip(rows, self._score_batch([texts[row] for row in rows]), strict=True):
                scores[row] = score
        return scores

    def _score_batch(self, texts: Sequence[tuple[str, str]]) -> list[float]:
        questions, documents = zip(*texts, strict=True)
        tokens = self._tokenizer(
            list(questions), list(documents), truncation=True, max_length=self._max_tokens, padding=True,
            return_tensors="pt",
        )  # fmt: skip
        with self._torch.inference_mode(), torch_threads().limited():
            logits = self._model(**tokens.to(self._device)).logits.float()
        scores: list[float] = (logits[:, -1] if logits.shape[1] == 1 else logits[:, 1] - logits[:, 0]).tolist()
        for (question, _), score in zip(texts, scores, strict=True):
            if not abs(score) < float("inf"):
                raise EncoderError(
                    f"{self.folder}: scores {score} for the question {question[:60]!r}; expected a number"
                )
        return [round(score, _SCORE_DIGITS) for score in scores]


def cross_encoder_fingerprint(source: str) -> str:
    """Return a name of everything that changes the scores of a cross-encoder: its files' checksums."""
    folder = find_source(source).folder
    files = sorted(path for kind in ("*.safetensors", "*.json", "*.txt") for path in folder.glob(kind))
    return " ".join(f"{path.name}:{file_checksum(path)}" for path in files)


def _load(folder: Path) -> tuple[Any, Any]:
    """Return tokenizer and model in fp32 for inference."""
    transformers = require("transformers", "train", _PURPOSE)
    safetensors = require("safetensors", "train", _PURPOSE)
    # Without any of these transformers makes up a vocabulary, and every word becomes unknown.
    if not any((folder / name).is_file() for name in VOCABULARIES):
        raise CheckpointError(f"{folder}: no tokenizer (none of {', '.join(VOCABULARIES)}); copy it from the model")
    check_tokenizer_file(folder)
    local: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}
    try:
        with quiet():
            tokenizer = transformers.AutoTokenizer.from_pretrained(folder, **local)
            model, report = transformers.AutoModelForSequenceClassification.from_pretrained(
                folder, use_safetensors=True, output_loading_info=True, **local
            )
    except (OSError, ValueError, RuntimeError, LookupError, ImportError, safetensors.SafetensorError) as err:
        raise CheckpointError(f"{folder}: the cross-encoder cannot be loaded: {err}") from err
    if tokenizer.is_fast:
        check_normalizer(tokenizer.backend_tokenizer, str(folder))
    _check_model(folder, model, report)
    return tokenizer, model.float().eval()


def _check_model(folder: Path, model: Any, report: dict[str, Any]) -> None:
    if report["missing_keys"] or report["mismatched_keys"]:
        missing = ", ".join(sorted(map(str, report["missing_keys"]))[:3]) or "matching shapes"
        raise CheckpointError(f"{folder}: the weights lack {missing}; expected a trained sequence classifier")
    check_all_used(folder, report["unexpected_keys"])
    if model.config.num_labels not in (1, 2):
        raise CheckpointError(
            f"{folder}: classifies into {model.config.num_labels} labels; expected one score, or two labels of which "
            "the second says relevant"
        )
