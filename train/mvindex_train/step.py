"""One training step: encode a batch in all processes, compute the loss over all vectors, update the weights.

The learning rate is a function of the step, so that a resumed run needs no scheduler state.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from mvindex.encoder.arranged import Arranged
from mvindex.encoder.device import document_dtype, on_device
from mvindex.encoder.forward import attention
from mvindex.errors import EncoderError
from mvindex.records import Document
from mvindex_train.answer_views import find_answer_rows
from mvindex_train.config import LossConfig, OptimiserConfig
from mvindex_train.grad_cache import Chunks, Encoded
from mvindex_train.seeding import Purpose, seed_everything

if TYPE_CHECKING:
    import torch

    from mvindex_train.batches import TrainBatch
    from mvindex_train.losses import LossInputs, LossParts
    from mvindex_train.module import TrainableEncoder
    from mvindex_train.processes import Processes


def learning_rate_share(step: int, num_steps: int, config: OptimiserConfig) -> float:
    """Return the factor of the learning rates at a step (from 0), in (0, 1].

    It rises linearly over the first warmup_share of the steps, rounded up, and reaches 1 in the last of them. Then it
    is constant, or falls linearly or as (1 + cos(pi x)) / 2, to reach 0 one step after the last.
    """
    warm_up = math.ceil(config.warmup_share * num_steps)
    if step < warm_up:
        return (step + 1) / warm_up
    if config.schedule == "constant":
        return 1.0
    done = (step - warm_up) / max(num_steps - warm_up, 1)
    return 1.0 - done if config.schedule == "linear" else (1.0 + math.cos(math.pi * done)) / 2


@dataclass(frozen=True, slots=True, kw_only=True)
class StepContext:
    """The position and rate of a step. number: in the run, from 0; epoch: of the stage, from 0, which sets tau.

    rate: the factor of the learning rates.
    """

    number: int
    epoch: int
    rate: float


@dataclass(frozen=True, slots=True, eq=False)
class StepFigures:
    """The figures of a step. values: (7,) float64 on the device, those of LossParts and the gradient's norm.

    rates: those that are known here. number: of the step; first_question: of its batch.
    """

    values: torch.Tensor
    rates: dict[str, float]
    number: int
    first_question: str


def read_figures(steps: Sequence[StepFigures]) -> list[dict[str, float]]:
    """Return the figures of the steps for the log; waits for the device once, until all of them are done.

    Raises EncoderError for the first loss or gradient that is not finite.
    """
    import torch

    from mvindex_train.losses import PARTS

    found = []
    for step, values in zip(steps, torch.stack([each.values for each in steps]).tolist(), strict=True):
        figures = dict(zip((*PARTS, "gradient_norm"), values, strict=True))
        norm = figures["gradient_norm"]
        if not (math.isfinite(figures["total"]) and math.isfinite(norm)):
            raise EncoderError(
                f"step {step.number + 1}: expected a finite loss and gradient, got loss {figures['total']} and "
                f"gradient norm {norm} in the batch that begins with {step.first_question!r:.200}. A lower learning "
                'rate, a higher tau or precision "fp32" may help; the last saved state is from before this step'
            )
        figures["loss"] = figures.pop("total")
        found.append(figures | step.rates)
    return found


class Stepper:
    """An encoder in training with its optimiser (AdamW). Every process gets the same batch and encodes its share."""

    def __init__(self, encoder: TrainableEncoder, config: OptimiserConfig, processes: Processes) -> None:
        import torch

        self.encoder = encoder
        self._config = config
        self._processes = processes
        groups = encoder.parameter_groups(config)
        self.optimiser = torch.optim.AdamW(groups, lr=config.learning_rate, weight_decay=config.weight_decay)
        self._rates = [group["lr"] for group in self.optimiser.param_groups]
        self._trained = [parameter for group in self.optimiser.param_groups for parameter in group["params"]]
        if config.gradient_checkpointing:
            enable_gradient_checkpointing(encoder, processes.device)

    def step(self, batch: TrainBatch, loss: LossConfig, at: StepContext) -> StepFigures:
        """Update the weights and return the figures, to be read later: a GPU is not waited for.

        Raises EncoderError where the memory of a GPU is too small for the batch.
        """
        import torch

        from mvindex_train.losses import epoch_tau

        for group, rate in zip(self.optimiser.param_groups, self._rates, strict=True):
            group["lr"] = rate * at.rate
        self.encoder.train()
        self.optimiser.zero_grad(set_to_none=True)
        try:
            parts = self.add_gradients(batch, loss, at)
            clipped = torch.nn.utils.clip_grad_norm_(self._trained, self._config.max_gradient_norm)
            self.optimiser.step()
        except torch.OutOfMemoryError as err:
            raise EncoderError(
                f"step {at.number + 1}: {self._processes.device} has too little memory for {len(batch.questions)} "
                f"questions and {len(batch.documents)} documents at once. Give -s optimiser.chunk_documents=N with a "
                "smaller N, which has the same gradients, train by LoRA, or end other programs that use this GPU"
            ) from err
        rates = {"tau": epoch_tau(loss, at.epoch), "learning_rate": self._rates[0] * at.rate}
        values = torch.cat([parts.as_row(), clipped.double()[None]])
        return StepFigures(values, rates, at.number, batch.questions[0])

    def add_gradients(self, batch: TrainBatch, loss: LossConfig, at: StepContext) -> LossParts:
        """Add the gradient of the batch's loss to the weights' gradients, equally in every process; return the loss."""
        from mvindex_train.losses import total_loss

        chunks = self._chunks(batch, at)
        is_cached = self._config.chunk_documents is not None
        own = chunks.encode_cached() if is_cached else chunks.encode()
        parts = total_loss(self._inputs(batch, own), loss, at.epoch)
        if parts.total.requires_grad:
            parts.total.backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
        if is_cached:
            chunks.backward(own)
        self._processes.sum_gradients(self._trained)
        return replace(parts, total=parts.total.detach())

    def _chunks(self, batch: TrainBatch, at: StepContext) -> Chunks:
        questions = batch.questions[self._processes.share(len(batch.questions))]
        documents: Sequence[Document] | Arranged = batch.documents[self._processes.share(len(batch.documents))]
        if batch.arranged is not None:
            documents = batch.arranged
        return Chunks(
            self.encoder,
            questions,
            documents,
            self._config.chunk_documents,
            lambda number: self._chunk_context(at, number),
        )

    @contextmanager
    def _chunk_context(self, at: StepContext, chunk: int) -> Iterator[None]:
        """Set the random numbers of a chunk, and bf16 autocast if configured."""
        import torch

        seed_everything(self._config.seed, Purpose.STEP, at.number, self._processes.rank, chunk)
        is_bf16 = computes_in_bf16(self._config.precision, self._processes.device)
        with torch.autocast(self._processes.device.type, torch.bfloat16, enabled=is_bf16):
            yield

    def _inputs(self, batch: TrainBatch, own: Encoded) -> LossInputs:
        """Gather the vectors of all processes and the labels of the batch."""
        import torch

        from mvindex_train.losses import LossInputs

        device, join, join_known = self._processes.device, self._processes.join, self._processes.join_known
        starts = np.append(0, np.cumsum(join_known(own.starts.diff().numpy())))
        answers = find_answer_rows(join_known(own.spans), starts, batch.positives, batch.answer_spans)
        return LossInputs(
            queries=join(own.queries.to(device)),
            rows=join(own.rows.to(device)),
            starts=torch.from_numpy(starts),
            positives=on_device(batch.positives, device),
            excluded=on_device(batch.excluded, device),
            answer_rows=on_device(answers, device),
            teacher=None if batch.teacher is None else on_device(batch.teacher, device),
        )


def enable_gradient_checkpointing(encoder: TrainableEncoder, device: torch.device) -> None:
    """Make the transformers recompute activations in the backward pass instead of storing them.

    By the kernels of the forward pass: those that are fused store other tensors.
    """
    options = {"use_reentrant": False, "context_fn": lambda: (nullcontext(), attention(device))}
    for module in encoder.modules():
        # The name since transformers 5, where the older one warns.
        enable = getattr(module, "activation_checkpointing_enable", None)
        older = getattr(module, "gradient_checkpointing_enable", None)
        if enable is not None:
            enable(activation_checkpointing_kwargs=options)
        elif older is not None:
            older(gradient_checkpointing_kwargs=options)


def computes_in_bf16(precision: str, device: torch.device) -> bool:
    """Return whether to compute in bf16; "auto" only on a device with native bf16: elsewhere it is ten times slower."""
    import torch

    return precision == "bf16" or (precision == "auto" and document_dtype(device) == torch.bfloat16)
