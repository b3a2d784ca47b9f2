"""The training losses: pure functions of view scores, batched, without loops over views, documents or questions.

Shapes: q questions, n documents, r views, ragged: document i has the views starts[i] to starts[i + 1], at least one.
Scores are higher-is-better; half precision is widened to fp32. Each loss is a mean over the questions. Tied best views
of a document share the gradient of the maximum equally. Nothing here waits for the device: starts are known on the CPU,
and what does not count is masked, not left out.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch.nn.functional import cross_entropy, log_softmax

from mvindex.encoder.device import on_device
from mvindex.kernels.score import Aggregate, parse_aggregate
from mvindex_train.config import LossConfig

PARTS = ("total", "contrastive", "local", "in_sequence", "distillation", "answer_share")


@dataclass(frozen=True, slots=True, eq=False)
class LossInputs:
    """The vectors of a batch and their labels, all on one device but starts, which are on the CPU.

    queries: (q, d); rows: (r, d); starts: (n + 1,) int64; positives: (q,) int64, each question's document; excluded:
    (q, n) bool, True for another positive of the question, which is no negative; answer_rows: (q,) int64, the view of
    the positive that contains the answer, -1 where unknown; teacher: (q, n), NaN where unknown.
    """

    queries: torch.Tensor
    rows: torch.Tensor
    starts: torch.Tensor
    positives: torch.Tensor
    excluded: torch.Tensor
    answer_rows: torch.Tensor | None = None
    teacher: torch.Tensor | None = None


@dataclass(frozen=True, slots=True, eq=False)
class LossParts:
    """The loss, a scalar with its graph, and its unweighted, detached terms; 0 for an unused term.

    answer_share: share of the questions with a known answer view; the others are scored by their best view. With nested
    views each is the mean over the numbers of views.
    """

    total: torch.Tensor
    contrastive: torch.Tensor
    local: torch.Tensor
    in_sequence: torch.Tensor
    distillation: torch.Tensor
    answer_share: torch.Tensor

    def as_row(self) -> torch.Tensor:
        """Return the values in the order of PARTS, (6,) float64, on the device."""
        return torch.stack([getattr(self, name).detach().double() for name in PARTS])


def total_loss(inputs: LossInputs, config: LossConfig, epoch: int) -> LossParts:
    """Return the batch loss with the epoch's tau.

    It is contrastive + lambda * local (MVR eq. 5) + weight * in-sequence + weight * distillation. With nested views it
    is the mean of these losses over the first 1, 2, 4, ... views of each document and over all of them, as Matryoshka
    embeddings do with dimensions (Kusupati et al. 2022) and MetaEmbed with vectors (arXiv 2509.18095).

    Scores are float32 products even under autocast, whose half precision would lose differences of views. The DRPQ
    temperature acts on unscaled products, as in search; then all scores are scaled.
    """
    tau = epoch_tau(config, epoch)
    if not config.nested:
        return _loss(inputs, config, tau)
    found = [_loss(first_views(inputs, size), config, tau) for size in nested_sizes(int(inputs.starts.diff().max()))]
    means = {name: torch.stack([getattr(each, name) for each in found]).mean() for name in PARTS}
    return LossParts(**means)


def nested_sizes(most: int) -> list[int]:
    """Return the numbers of views that a nested loss trains, of documents with at most so many: 1, 2, 4, ..., most."""
    return [*(1 << power for power in range(most.bit_length()) if 1 << power < most), most]


def first_views(inputs: LossInputs, size: int) -> LossInputs:
    """Return the inputs with the first views of each document only; an answer view beyond them is unknown."""
    device = inputs.rows.device
    owners = torch.repeat_interleave(inputs.starts.diff())
    kept = torch.arange(len(owners)) - inputs.starts[owners] < size
    counts = inputs.starts.diff().clamp(max=size)
    answers = inputs.answer_rows
    if answers is not None:
        numbers = on_device(torch.where(kept, kept.cumsum(0) - 1, -1).numpy(), device)
        answers = torch.where(answers >= 0, numbers[answers.clamp(min=0)], -1)
    return replace(
        inputs,
        rows=inputs.rows.index_select(0, on_device(kept.nonzero()[:, 0].numpy(), device)),
        starts=torch.cat([counts.new_zeros(1), counts.cumsum(0)]),
        answer_rows=answers,
    )


def _loss(inputs: LossInputs, config: LossConfig, tau: float) -> LossParts:
    """Return the batch loss over all views of the inputs; see total_loss()."""
    with torch.autocast(inputs.rows.device.type, enabled=False):
        raw = _widen(inputs.queries) @ _widen(inputs.rows).T
        documents = document_scores(raw, inputs.starts, parse_aggregate(config.aggregate), config.drpq_temperature)
        raw, documents = config.scale * raw, config.scale * documents
        contrastive = _contrastive(raw, documents, inputs, config.answer_view, tau)
        nothing = contrastive.new_zeros(())
        local = local_uniformity(raw, inputs.starts, inputs.positives, tau) if config.local_weight else nothing
        is_in_sequence = config.in_sequence_weight and inputs.answer_rows is not None
        within = (
            in_sequence(raw, inputs.starts, inputs.positives, inputs.answer_rows, tau)  # type: ignore[arg-type]  # is_in_sequence implies them
            if is_in_sequence
            else nothing
        )
        is_taught = config.distillation_weight and inputs.teacher is not None
        distilled = distillation(documents, inputs.teacher, tau) if is_taught else nothing  # type: ignore[arg-type]  # is_taught implies a teacher
        total = contrastive + config.local_weight * local + config.in_sequence_weight * within
        total = total + config.distillation_weight * distilled
    return LossParts(
        total=total,
        contrastive=contrastive.detach(),
        local=local.detach(),
        in_sequence=within.detach(),
        distillation=distilled.detach(),
        answer_share=_answer_share(inputs),
    )


def epoch_tau(config: LossConfig, epoch: int) -> float:
    """Return the temperature of an epoch, counted from 0: annealed if configured, else tau."""
    if config.tau_alpha is None or config.tau_floor is None:
        return config.tau
    return anneal_tau(epoch, config.tau_alpha, config.tau_floor, config.tau)


def anneal_tau(epoch: int, alpha: float, floor: float, start: float = 1.0) -> float:
    """Return max(floor, start * exp(-alpha * epoch)), with epochs counted from 0 (MVR eq. 8, where start is 1)."""
    return max(floor, start * math.exp(-alpha * epoch))


def document_scores(
    scores: torch.Tensor, starts: torch.Tensor, aggregate: Aggregate, temperature: float = 1.0
) -> torch.Tensor:
    """Return the documents' scores (q, n) from view scores (q, r).

    MAX: f = max_j s_j (MVR eq. 4). DRPQ: y = sum_j softmax_j(s_j / T) s_j (DRPQ eq. 4-6, where the temperature T is 1);
    its gradient for s_j is DRPQ eq. 11, which may be negative.
    """
    scores, owners = _widen(scores), _owners(starts, scores.device)
    num_documents = len(starts) - 1
    best = _segment_max(scores, owners, num_documents)
    if aggregate is Aggregate.MAX:
        return best
    # Subtracting the best score does not change y, and bounds every exponential by 1.
    weights = torch.exp((scores - best.detach().index_select(-1, owners)) / temperature)
    return _segment_sum(weights * scores, owners, num_documents) / _segment_sum(weights, owners, num_documents)


def global_contrastive(
    doc_scores: torch.Tensor, positives: torch.Tensor, excluded: torch.Tensor, tau: float
) -> torch.Tensor:
    """Return -log(e^{f(q,d+)/tau} / (e^{f(q,d+)/tau} + sum_l e^{f(q,d-_l)/tau})) (MVR eq. 6; DRPQ eq. 8).

    Every document except the positive is a negative, unless it is excluded from the sum. A question's own positive
    counts whatever `excluded` contains.
    """
    left_out = excluded.scatter(1, positives[:, None], False)
    return cross_entropy((_widen(doc_scores) / tau).masked_fill(left_out, -math.inf), positives)


def answer_view_contrastive(  # noqa: PLR0913 - the terms of the formula
    scores: torch.Tensor,
    doc_scores: torch.Tensor,
    positives: torch.Tensor,
    excluded: torch.Tensor,
    answer_rows: torch.Tensor,
    tau: float,
) -> torch.Tensor:
    """Return -log(e^{f_i(q,d+)/tau} / (e^{f_i(q,d+)/tau} + sum_l e^{f(q,d-_l)/tau})), i the answer view (CAMVR eq. 13).

    The positive is scored by its answer view, negatives by their document score. The positive of a question without a
    known answer view (-1) is scored by its document score too.
    """
    scores, doc_scores = _widen(scores), _widen(doc_scores)
    of_answer = scores.gather(1, answer_rows.clamp(min=0)[:, None])
    of_document = doc_scores.gather(1, positives[:, None])
    own = torch.where(answer_rows[:, None] >= 0, of_answer, of_document)
    return global_contrastive(doc_scores.scatter(1, positives[:, None], own), positives, excluded, tau)


def local_uniformity(scores: torch.Tensor, starts: torch.Tensor, positives: torch.Tensor, tau: float) -> torch.Tensor:
    """Return -log(e^{f(q,d+)/tau} / sum_k e^{f_k(q,d+)/tau}) over the positive's views (MVR eq. 7); 0 for one view.

    f(q,d+) is the best view's score for every aggregate.
    """
    logits = _of_positives(scores, starts, positives, tau)
    best = logits.amax(1)
    sums = torch.exp(logits - best.detach()[:, None]).sum(1)
    # log-sum-exp minus the best score: its value cancels, which avoids a loss of precision, but not its gradient.
    return (torch.log(sums) - (best - best.detach())).mean()


def in_sequence(
    scores: torch.Tensor, starts: torch.Tensor, positives: torch.Tensor, answer_rows: torch.Tensor, tau: float
) -> torch.Tensor:
    """Return -log(e^{f_i(q,d+)/tau} / sum_k e^{f_k(q,d+)/tau}), i the answer view: in-sequence negatives (InSeNT).

    The other views of the same document are the negatives (ConTEB, arXiv 2505.24782, for the chunks of a document). The
    mean is over the questions with a known answer view; 0 when there is none.
    """
    known = answer_rows >= 0
    firsts = on_device(starts.numpy(), scores.device)[positives]
    logits = _of_positives(scores, starts, positives, tau)
    return _mean_of(known, cross_entropy(logits, torch.where(known, answer_rows, firsts), reduction="none"))


def distillation(doc_scores: torch.Tensor, teacher: torch.Tensor, tau: float) -> torch.Tensor:
    """Return KL(softmax(teacher / tau) || softmax(f / tau)) over each question's known columns (Hinton et al. 2015).

    teacher: (q, n), NaN where unknown. The mean is over questions with two known columns or more; 0 when there is none.
    With the same tau on both sides the minimum has the teacher's score differences at any tau.
    """
    taught = (~teacher.isnan()).sum(1) >= 2
    # A question that does not count has all columns: without any, its softmax would have no value.
    student, goal, known = _widen(doc_scores), teacher.nan_to_num(), ~teacher.isnan() | ~taught[:, None]
    log_student = log_softmax((student / tau).masked_fill(~known, -math.inf), 1)
    log_goal = log_softmax((goal.to(student.dtype) / tau).masked_fill(~known, -math.inf), 1)
    # -inf minus -inf is NaN, as is 0 times NaN: unknown columns are zeroed before the difference.
    difference = log_goal.masked_fill(~known, 0.0) - log_student.masked_fill(~known, 0.0)
    return _mean_of(taught, (log_goal.exp() * difference).sum(1))


def _contrastive(
    scores: torch.Tensor, doc_scores: torch.Tensor, inputs: LossInputs, by_answer: bool, tau: float
) -> torch.Tensor:
    if by_answer and inputs.answer_rows is not None:
        return answer_view_contrastive(scores, doc_scores, inputs.positives, inputs.excluded, inputs.answer_rows, tau)
    return global_contrastive(doc_scores, inputs.positives, inputs.excluded, tau)


def _answer_share(inputs: LossInputs) -> torch.Tensor:
    if inputs.answer_rows is None:
        return inputs.rows.new_zeros((), dtype=torch.float32)
    return (inputs.answer_rows >= 0).float().mean()


def _owners(starts: torch.Tensor, device: torch.device) -> torch.Tensor:
    """Return the segment of each element, (r,), on the device."""
    return on_device(torch.repeat_interleave(starts.diff()).numpy(), device)


def _of_positives(scores: torch.Tensor, starts: torch.Tensor, positives: torch.Tensor, tau: float) -> torch.Tensor:
    """Return the scores over tau, (q, r), -inf for the views of other documents than each question's positive."""
    is_own = _owners(starts, scores.device)[None] == positives[:, None]
    return (_widen(scores) / tau).masked_fill(~is_own, -math.inf)


def _mean_of(counted: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """Return the mean of the values, (q,), that are counted; 0 when there is none."""
    return torch.where(counted, values, 0.0).sum() / counted.sum().clamp(min=1)


def _segment_max(values: torch.Tensor, owners: torch.Tensor, num_segments: int) -> torch.Tensor:
    shape = (*values.shape[:-1], num_segments)
    return values.new_full(shape, -math.inf).scatter_reduce(-1, owners.expand_as(values), values, "amax")


def _segment_sum(values: torch.Tensor, owners: torch.Tensor, num_segments: int) -> torch.Tensor:
    return values.new_zeros((*values.shape[:-1], num_segments)).index_add(-1, owners, values)


def _widen(values: torch.Tensor) -> torch.Tensor:
    return values.float() if values.dtype in (torch.float16, torch.bfloat16) else values
