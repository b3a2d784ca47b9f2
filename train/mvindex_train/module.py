"""The encoder as a torch module: the same windows, pooling and lengths as in encoding, with gradients.

Viewer tokens are new entries of the vocabulary whose embeddings are parameters of their own.
"""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from mvindex.encoder.arranged import Arranged, Inputs, joined
from mvindex.encoder.batches import BatchShape, batches
from mvindex.encoder.checkpoint import Checkpoint, Parts, Settings, viewer_ids
from mvindex.encoder.checkpoint.load import DOCUMENT_VIEWER, QUERY_VIEWER, set_embeddings
from mvindex.encoder.clusters import pad_tokens, token_views, unpad_views
from mvindex.encoder.device import CUDA_LEAST_SPARED, on_device
from mvindex.encoder.forward import last_states, row_means
from mvindex.encoder.transformer import TransformerEncoder
from mvindex.records import Document, Ints
from mvindex_train.config import OptimiserConfig

# Viewers that start from the same embedding need noise, or they would stay equal (MVR at one position). It is a tenth
# of the standard deviation with which embeddings are initialised.
NOISE = 0.002
INITIALISER_RANGE = 0.02


class ViewerEmbedding(torch.nn.Module):
    """An embedding table with the viewers' rows as a separate parameter, which can have its own learning rate.

    The tokens `first` to first + len(viewers) - 1 are viewers.
    """

    def __init__(self, table: torch.nn.Embedding, first: int, viewers: torch.Tensor) -> None:
        super().__init__()
        self.table = table
        self.viewers = torch.nn.Parameter(viewers)
        self.first = first

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """Return the embeddings of the ids, (..., d)."""
        number = ids - self.first
        is_viewer = (number >= 0) & (number < len(self.viewers))
        words: torch.Tensor = self.table(ids.masked_fill(is_viewer, 0))
        rows = torch.nn.functional.embedding(number.masked_fill(~is_viewer, 0), self.viewers)
        return torch.where(is_viewer[..., None], rows.to(words.dtype), words)

    @property
    def weight(self) -> torch.Tensor:
        """The weight of the table, for code that reads its dtype or device."""
        weight: torch.Tensor = self.table.weight
        return weight


def add_viewer_tokens(tokenizer: Any, num_views: int) -> list[int]:
    """Add [VIE] and [VIE_1] to [VIE_k] to the transformers tokenizer; return their ids, which are consecutive."""
    names = [QUERY_VIEWER, *(DOCUMENT_VIEWER.format(slot) for slot in range(1, num_views + 1))]
    tokenizer.add_special_tokens({"additional_special_tokens": names})
    return viewer_ids(tokenizer.backend_tokenizer)


def init_viewers(model: Any, init: str, cls_id: int, count: int) -> torch.Tensor:
    """Return the initial embeddings of `count` viewers, (count, d).

    init: "random", N(0, .02) as in the papers; "cls", the [CLS] embedding; "pooled", the mean word embedding; the last
    two with noise.
    """
    weight: torch.Tensor = model.get_input_embeddings().weight.detach().float()
    if init == "random":
        return torch.randn(count, weight.shape[1]) * INITIALISER_RANGE
    start: torch.Tensor = weight[cls_id] if init == "cls" else weight.mean(dim=0)
    return start.expand(count, -1) + torch.randn(count, weight.shape[1]) * NOISE


# Windows of a step are batched into passes of similar length: less padding, the same gradients. On a CPU small passes
# stay in its caches; a GPU takes all of a step in as few as possible.
_CPU_PASSES = BatchShape(max_tokens=1024)
_CUDA_PASSES = BatchShape(max_tokens=1 << 17, least_spared=CUDA_LEAST_SPARED)


@dataclass(frozen=True, slots=True, eq=False)
class ViewRows:
    """The views of n documents. rows: (r, d) fp32 with gradients; starts: (n + 1,) on the CPU, spans: (r, 2), int64.

    Document i has the views rows[starts[i]:starts[i + 1]], at least one, of unit length if the settings normalise.
    """

    rows: torch.Tensor
    starts: torch.Tensor
    spans: Ints


class TrainableEncoder(torch.nn.Module):
    """Encodes documents to views and questions to vectors, with gradients.

    documents, queries: the transformers, the same object unless the settings are `separate`. adapters: peft's models
    around them, by name; empty when all weights are trained. codes: of the Poly-encoder. scale: see set_scale().
    inputs: arranges what is encoded in windows.
    """

    def __init__(self, base: Checkpoint, settings: Settings, tokenizer: Any, models: Parts) -> None:
        super().__init__()
        self.base, self.settings, self.tokenizer = base, settings, tokenizer
        self.documents, self.queries = models.documents, models.queries
        self.adapters: dict[str, Any] = {}
        self.codes: torch.nn.Parameter | None = None
        self.scale = 1.0
        self.inputs = Inputs(settings, tokenizer.backend_tokenizer, str(base.folder))

    @property
    def device(self) -> torch.device:
        """The device of the weights."""
        device: torch.device = self.documents.device
        return device

    @property
    def dim(self) -> int:
        """The dimension of the vectors."""
        return int(self.documents.config.hidden_size)

    def encode(self, texts: Sequence[str], documents: Sequence[Document] | Arranged) -> tuple[torch.Tensor, ViewRows]:
        """Return what encode_queries() and encode_documents() do, by one forward where both have the same weights."""
        if self.documents is not self.queries:
            return self.encode_queries(texts), self.encode_documents(documents)
        questions, arranged = self.inputs.arrange_queries(texts), self._arranged(documents)
        # A question has one row.
        rows = self._rows(joined([questions, arranged]), self.documents)
        return self._normalise(rows[: len(questions)]), self._views(rows[len(questions) :], arranged)

    def encode_documents(self, documents: Sequence[Document] | Arranged) -> ViewRows:
        """Return the views of the documents, as an index would store them except for their precision."""
        arranged = self._arranged(documents)
        return self._views(self._rows(arranged, self.documents), arranged)

    def encode_queries(self, texts: Sequence[str]) -> torch.Tensor:
        """Return one vector per text, (q, d) fp32."""
        return self._normalise(self._rows(self.inputs.arrange_queries(texts), self.queries))

    def _arranged(self, documents: Sequence[Document] | Arranged) -> Arranged:
        return documents if isinstance(documents, Arranged) else self.inputs.arrange_documents(documents)

    def _views(self, rows: torch.Tensor, arranged: Arranged) -> ViewRows:
        """Return the views of documents that are arranged so and have these rows."""
        if self.settings.family.pools_tokens:
            rows = self._views_of_tokens(rows, arranged)
        starts = arranged.view_starts
        views = self._with_share(self._normalise(rows), starts)
        return ViewRows(views, torch.from_numpy(starts), arranged.spans)

    def parameter_groups(self, config: OptimiserConfig) -> list[dict[str, Any]]:
        """Return the trained parameters for an optimiser: viewers and codes at their own rate; no decay of vectors."""
        groups: dict[tuple[float, float], list[torch.nn.Parameter]] = {}
        for name, parameter in self.named_parameters():
            if not parameter.requires_grad:
                continue
            is_new = name == "codes" or name.endswith(".viewers")
            rate = config.viewer_learning_rate if is_new and config.viewer_learning_rate else config.learning_rate
            decay = 0.0 if is_new or parameter.ndim < 2 else config.weight_decay
            groups.setdefault((rate, decay), []).append(parameter)
        return [{"params": each, "lr": rate, "weight_decay": decay} for (rate, decay), each in groups.items()]

    def set_scale(self, scale: float) -> None:
        """Apply what LoRA learnt times `scale`, here and in what is saved: 0 is the base, 1 as trained."""
        self.scale = scale
        for adapter in self.adapters.values():
            for module in adapter.modules():
                if hasattr(module, "set_scale"):
                    module.set_scale("default", scale)

    def frozen_encoder(self) -> TransformerEncoder:
        """Return a copy as an encoder for inference, equal to a saved checkpoint of these weights."""
        parts = self.merged()
        return TransformerEncoder.of_parts(
            replace(self._as_checkpoint(), fingerprint=self._fingerprint()),
            parts,
            self.tokenizer.backend_tokenizer,
            self.device,
        )

    def merged(self) -> Parts:
        """Return copies of the models with adapters and viewers merged, for inference and full checkpoints."""
        documents = self._merge("documents", self.documents)
        queries = self._merge("queries", self.queries) if self.settings.separate else documents
        return Parts(documents, queries, None if self.codes is None else self.codes.detach().clone())

    def viewers(self, model: Any) -> torch.Tensor | None:
        """Return the viewers' embeddings of a model, (k + 1, d) fp32 on the CPU: [VIE], then [VIE_1] to [VIE_k]."""
        table = model.get_input_embeddings()
        return table.viewers.detach().float().cpu() if isinstance(table, ViewerEmbedding) else None

    def _merge(self, name: str, model: Any) -> Any:
        if name in self.adapters:
            merged = copy.deepcopy(self.adapters[name]).merge_and_unload()
        else:
            merged = copy.deepcopy(model)
        table = merged.get_input_embeddings()
        if isinstance(table, ViewerEmbedding):
            merged.set_input_embeddings(table.table)
            ids = viewer_ids(self.tokenizer.backend_tokenizer)[: len(table.viewers)]
            set_embeddings(merged, ids, table.viewers.detach())
        return merged.eval().requires_grad_(False)

    def _rows(self, arranged: Arranged, model: Any) -> torch.Tensor:
        """Return the mean states of all rows, (num_rows, d) fp32."""
        shape = _CPU_PASSES if self.device.type == "cpu" else _CUDA_PASSES
        passes = batches(arranged, shape, int(model.config.pad_token_id or 0))
        parts = ((batch, last_states(model, batch)) for batch in passes)
        return row_means(parts, int(arranged.num_rows.sum()), self.dim, self.device)

    def _views_of_tokens(self, rows: torch.Tensor, arranged: Arranged) -> torch.Tensor:
        states = pad_tokens(rows, arranged.num_rows)
        return unpad_views(token_views(states, arranged, self.settings, self.codes), arranged.num_views)

    def _normalise(self, rows: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.normalize(rows, dim=-1) if self.settings.normalise else rows

    def _with_share(self, rows: torch.Tensor, starts: Ints) -> torch.Tensor:
        """Return the rows with the document's share, as mvindex.encoder.forward.add_document_share() makes them."""
        share = self.settings.document_share
        if not share:
            return rows
        owners = on_device(np.repeat(np.arange(len(starts) - 1), np.diff(starts)), rows.device)
        means = torch.zeros(len(starts) - 1, rows.shape[1], device=rows.device).index_add(0, owners, rows)
        return self._normalise(rows + share * self._normalise(means)[owners])

    def _as_checkpoint(self) -> Checkpoint:
        return Checkpoint(f"{self.base.source} in training", self.base.folder, self.settings, "", self.base.weights)

    def _fingerprint(self) -> str:
        digest = hashlib.sha256(f"{self.base.fingerprint} {self.settings} {self.scale}".encode())
        for name, parameter in self.named_parameters():
            if parameter.requires_grad:
                digest.update(name.encode() + parameter.detach().float().cpu().numpy().tobytes())
        return f"training-{digest.hexdigest()}"
