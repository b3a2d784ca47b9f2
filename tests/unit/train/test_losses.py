"""Each loss against a slow plain reference, numbers worked by hand, gradients, invariances and extremes."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mvindex.kernels.score import Aggregate
from mvindex_train.answer_views import find_answer_rows
from mvindex_train.config import LossConfig
from mvindex_train.losses import (
    PARTS,
    LossInputs,
    anneal_tau,
    answer_view_contrastive,
    distillation,
    document_scores,
    epoch_tau,
    first_views,
    global_contrastive,
    in_sequence,
    local_uniformity,
    nested_sizes,
    total_loss,
)


def floats(parts):
    return dict(zip(PARTS, parts.as_row().tolist(), strict=True))


TOLERANCE = {torch.float64: 1e-6, torch.float32: 1e-5}
DTYPES = [torch.float64, torch.float32]


class Case:
    """A random ragged batch, as lists for the reference and as tensors."""

    def __init__(self, seed, dtype=torch.float64):
        rng = np.random.default_rng(seed)
        self.q, self.n = int(rng.integers(1, 6)), int(rng.integers(1, 6))
        counts = rng.integers(1, 5, self.n)
        self.starts = np.concatenate([[0], np.cumsum(counts)])
        self.scores = rng.normal(0, 3, (self.q, self.starts[-1])).astype(np.float32).astype(np.float64)
        self.positives = rng.integers(0, self.n, self.q)
        self.excluded = rng.random((self.q, self.n)) < 0.3
        known = rng.random(self.q) < 0.7
        inside = rng.integers(0, 1 << 30, self.q) % counts[self.positives]
        self.answer_rows = np.where(known, self.starts[self.positives] + inside, -1)
        teacher = rng.normal(0, 3, (self.q, self.n)).astype(np.float32)
        self.teacher = np.where(rng.random((self.q, self.n)) < 0.4, np.nan, teacher)
        self.tau, self.temperature = float(rng.uniform(0.2, 2)), float(rng.uniform(0.1, 2))
        self.tensors = {
            name: torch.from_numpy(getattr(self, name))
            for name in ("starts", "scores", "positives", "excluded", "answer_rows", "teacher")
        }
        self.dtype = dtype
        self.tensors["scores"] = self.tensors["scores"].to(dtype)
        self.tensors["teacher"] = self.tensors["teacher"].to(dtype)

    def __getitem__(self, names):
        return [self.tensors[name] for name in names.split()]

    def views(self, question, document):
        return [float(s) for s in self.scores[question][self.starts[document] : self.starts[document + 1]]]

    def best(self):
        return [[max(self.views(i, j)) for j in range(self.n)] for i in range(self.q)]

    def close(self, found, wanted):
        found = torch.as_tensor(found)
        assert found.dtype is self.dtype
        assert found.tolist() == pytest.approx(wanted, rel=TOLERANCE[self.dtype], abs=TOLERANCE[self.dtype])


def plain_drpq(views, temperature):
    weights = [math.exp(s / temperature) for s in views]
    return sum(w * s for w, s in zip(weights, views, strict=True)) / sum(weights)


def plain_contrastive(doc_scores, own_scores, case):
    losses = []
    for i in range(case.q):
        own = math.exp(own_scores[i] / case.tau)
        others = [
            math.exp(doc_scores[i][j] / case.tau)
            for j in range(case.n)
            if j != case.positives[i] and not case.excluded[i][j]
        ]
        losses.append(-math.log(own / (own + sum(others))))
    return sum(losses) / case.q


def plain_local(case):
    losses = []
    for i in range(case.q):
        powers = [math.exp(s / case.tau) for s in case.views(i, case.positives[i])]
        losses.append(-math.log(max(powers) / sum(powers)))
    return sum(losses) / case.q


def plain_distillation(doc_scores, case):
    divergences = []
    for i in range(case.q):
        known = [j for j in range(case.n) if not math.isnan(case.teacher[i][j])]
        if len(known) < 2:
            continue
        goal = [math.exp(case.teacher[i][j] / case.tau) for j in known]
        mine = [math.exp(doc_scores[i][j] / case.tau) for j in known]
        divergences.append(
            sum(g / sum(goal) * math.log((g / sum(goal)) / (m / sum(mine))) for g, m in zip(goal, mine, strict=True))
        )
    return sum(divergences) / len(divergences) if divergences else 0.0


cases = settings(max_examples=25)
seeds = st.integers(0, 2**31)


@pytest.mark.parametrize("dtype", DTYPES)
@given(seed=seeds)
@cases
def test_document_scores_are_those_of_the_plain_reference(dtype, seed):
    case = Case(seed, dtype)
    scores, starts = case["scores starts"]
    case.close(document_scores(scores, starts, Aggregate.MAX).flatten(), np.ravel(case.best()).tolist())
    drpq = [plain_drpq(case.views(i, j), case.temperature) for i in range(case.q) for j in range(case.n)]
    case.close(document_scores(scores, starts, Aggregate.DRPQ, case.temperature).flatten(), drpq)


@pytest.mark.parametrize("dtype", DTYPES)
@given(seed=seeds)
@cases
def test_the_contrastive_losses_are_those_of_the_plain_reference(dtype, seed):
    case, best = Case(seed, dtype), Case(seed).best()
    scores, starts, positives, excluded, rows = case["scores starts positives excluded answer_rows"]
    documents = document_scores(scores, starts, Aggregate.MAX)
    own = [best[i][case.positives[i]] for i in range(case.q)]
    case.close(global_contrastive(documents, positives, excluded, case.tau), plain_contrastive(best, own, case))
    own = [float(case.scores[i][row]) if row >= 0 else own[i] for i, row in enumerate(case.answer_rows)]
    found = answer_view_contrastive(scores, documents, positives, excluded, rows, case.tau)
    case.close(found, plain_contrastive(best, own, case))


@pytest.mark.parametrize("dtype", DTYPES)
@given(seed=seeds)
@cases
def test_local_uniformity_and_distillation_are_those_of_the_plain_reference(dtype, seed):
    case = Case(seed, dtype)
    scores, starts, positives, teacher = case["scores starts positives teacher"]
    case.close(local_uniformity(scores, starts, positives, case.tau), plain_local(case))
    documents = document_scores(scores, starts, Aggregate.MAX)
    case.close(distillation(documents, teacher, case.tau), plain_distillation(case.best(), case))


@given(seed=seeds)
@cases
def test_the_total_is_the_weighted_sum_of_the_parts_over_scaled_scores(seed):
    case = Case(seed)
    # Unit rows give view scores of the queries' own numbers: s = queries @ identity.
    identity = torch.eye(case.scores.shape[1], dtype=torch.float64)
    scores, starts, positives, excluded, rows, teacher = case["scores starts positives excluded answer_rows teacher"]
    config = LossConfig(scale=2.0, tau=case.tau, local_weight=0.25, answer_view=True, distillation_weight=0.5)
    found = total_loss(LossInputs(scores, identity, starts, positives, excluded, rows, teacher), config, 3)
    case.scores = 2 * case.scores
    best = case.best()
    own = [case.scores[i][row] if row >= 0 else best[i][case.positives[i]] for i, row in enumerate(case.answer_rows)]
    wanted = [plain_contrastive(best, own, case), plain_local(case), plain_distillation(best, case)]
    share = float(np.mean(case.answer_rows >= 0))
    parts = {
        "contrastive": wanted[0],
        "local": wanted[1],
        "in_sequence": 0.0,
        "distillation": wanted[2],
        "answer_share": share,
    }
    parts["total"] = wanted[0] + 0.25 * wanted[1] + 0.5 * wanted[2]
    assert floats(found) == pytest.approx(parts, rel=1e-6, abs=1e-6)


# Two documents of two views, two questions; document 0 is the positive of question 0, document 1 of question 1.
LOG = math.log
SCORES = torch.tensor([[LOG(2), LOG(1), LOG(4), LOG(3)], [LOG(5), LOG(1), LOG(2), LOG(8)]], dtype=torch.float64)
STARTS = torch.tensor([0, 2, 4])
POSITIVES = torch.tensor([0, 1])
NONE_EXCLUDED = torch.zeros(2, 2, dtype=torch.bool)


def test_by_hand_the_document_scores_of_two_documents_with_two_views():
    best = document_scores(SCORES, STARTS, Aggregate.MAX)
    assert best.exp().tolist() == [pytest.approx([2, 4]), pytest.approx([5, 8])]
    # softmax(log 2, log 1) = (2/3, 1/3); at T = 1/2 it is (4/5, 1/5).
    drpq = document_scores(SCORES, STARTS, Aggregate.DRPQ, 1.0)
    assert drpq[0].tolist() == pytest.approx([2 / 3 * LOG(2), 4 / 7 * LOG(4) + 3 / 7 * LOG(3)])
    assert document_scores(SCORES, STARTS, Aggregate.DRPQ, 0.5)[0, 0].item() == pytest.approx(4 / 5 * LOG(2))


def test_by_hand_the_global_loss_counts_the_best_views():
    # Question 0: 2 of 2 + 4; question 1: 8 of 5 + 8.
    best = document_scores(SCORES, STARTS, Aggregate.MAX)
    wanted = (-LOG(2 / 6) - LOG(8 / 13)) / 2
    assert global_contrastive(best, POSITIVES, NONE_EXCLUDED, 1.0).item() == pytest.approx(wanted)
    # At tau = 1/2 every power is squared: 4 of 4 + 16, 64 of 25 + 64.
    wanted = (-LOG(4 / 20) - LOG(64 / 89)) / 2
    assert global_contrastive(best, POSITIVES, NONE_EXCLUDED, 0.5).item() == pytest.approx(wanted)


def test_by_hand_the_answer_view_stands_in_both_places_of_the_positive_and_negatives_keep_their_best():
    # Question 0 with its answer in view 1: 1 of 1 + 4. Question 1 knows none: 8 of 5 + 8.
    best = document_scores(SCORES, STARTS, Aggregate.MAX)
    rows = torch.tensor([1, -1])
    wanted = (-LOG(1 / 5) - LOG(8 / 13)) / 2
    found = answer_view_contrastive(SCORES, best, POSITIVES, NONE_EXCLUDED, rows, 1.0)
    assert found.item() == pytest.approx(wanted)


def test_by_hand_the_local_loss_is_over_the_positives_own_views():
    # Question 0: 2 of 2 + 1; question 1: 8 of 2 + 8.
    found = local_uniformity(SCORES, STARTS, POSITIVES, 1.0)
    assert found.item() == pytest.approx((-LOG(2 / 3) - LOG(8 / 10)) / 2)


def test_by_hand_the_divergence_from_a_teacher():
    # Teacher 1:1 against 2:4, that is 1/3:2/3; question 1 knows one column only and says nothing.
    teacher = torch.tensor([[0.0, 0.0], [math.nan, 1.0]], dtype=torch.float64)
    best = document_scores(SCORES, STARTS, Aggregate.MAX)
    wanted = 0.5 * LOG(0.5 / (1 / 3)) + 0.5 * LOG(0.5 / (2 / 3))
    assert distillation(best, teacher, 1.0).item() == pytest.approx(wanted)


def test_by_hand_an_excluded_document_leaves_the_sum_but_a_questions_own_positive_never_does():
    best = document_scores(SCORES, STARTS, Aggregate.MAX)
    excluded = torch.tensor([[True, True], [False, True]])
    # Question 0 has no negative left: loss 0. Question 1's own column is kept: 8 of 5 + 8.
    assert global_contrastive(best, POSITIVES, excluded, 1.0).item() == pytest.approx(-LOG(8 / 13) / 2)


def test_tau_is_annealed_from_the_start_at_epoch_0_down_to_the_floor():
    assert anneal_tau(0, 0.1, 0.3) == 1.0
    assert anneal_tau(5, 0.1, 0.3) == pytest.approx(0.6065306597)  # exp(-.5)
    # exp(-1.2) = .30119 and exp(-1.3) = .27253: the floor holds from epoch 13 on.
    assert anneal_tau(12, 0.1, 0.3) == pytest.approx(0.3011942119)
    assert anneal_tau(13, 0.1, 0.3) == anneal_tau(39, 0.1, 0.3) == 0.3
    assert anneal_tau(5, 0.1, 0.3, 2.0) == pytest.approx(2 * 0.6065306597)


def test_tau_stays_as_it_is_without_annealing():
    assert epoch_tau(LossConfig(tau=0.7), 39) == 0.7
    assert epoch_tau(LossConfig(tau=1.0, tau_floor=0.3, tau_alpha=0.1), 39) == 0.3


def apart(case):
    """Scores of the case with every two of them at least .01 apart, so that a small step changes no maximum."""
    order = torch.argsort(torch.argsort(case.tensors["scores"].flatten())).double()
    return (order * 0.1 - 1).reshape(case.tensors["scores"].shape).requires_grad_()


@pytest.mark.parametrize("seed", [1, 2, 6, 8])
def test_gradients_are_those_of_finite_differences(seed):
    case = Case(seed)
    starts, positives, excluded, rows, teacher = case["starts positives excluded answer_rows teacher"]

    def losses(scores):
        best = document_scores(scores, starts, Aggregate.MAX)
        drpq = document_scores(scores, starts, Aggregate.DRPQ, case.temperature)
        weights = torch.arange(1.0, best.numel() + 1, dtype=torch.float64).reshape(best.shape)
        return (
            (weights * best).sum(),
            (weights * drpq).sum(),
            global_contrastive(best, positives, excluded, case.tau),
            global_contrastive(drpq, positives, excluded, case.tau),
            answer_view_contrastive(scores, best, positives, excluded, rows, case.tau),
            local_uniformity(scores, starts, positives, case.tau),
            distillation(best, teacher, case.tau),
        )

    assert torch.autograd.gradcheck(losses, (apart(case),))


def test_the_gradient_of_a_maximum_goes_in_equal_parts_to_the_views_that_tie():
    scores = torch.tensor([[3.0, 3.0, 1.0, 5.0]], dtype=torch.float64, requires_grad=True)
    document_scores(scores, torch.tensor([0, 3, 4]), Aggregate.MAX).sum().backward()
    assert scores.grad.tolist() == [[0.5, 0.5, 0.0, 1.0]]


def test_the_gradient_of_drpq_is_equation_11_and_may_be_negative():
    scores = torch.tensor([[4.0, 1.0, 0.0]], dtype=torch.float64, requires_grad=True)
    document_scores(scores, torch.tensor([0, 3]), Aggregate.DRPQ).sum().backward()
    values = [4.0, 1.0, 0.0]
    a = [math.exp(s) / sum(map(math.exp, values)) for s in values]
    wanted = [(1 + sum(a[o] * (values[j] - values[o]) for o in range(3) if o != j)) * a[j] for j in range(3)]
    assert scores.grad[0].tolist() == pytest.approx(wanted)
    assert min(wanted) < 0 and sum(wanted) == pytest.approx(1)


def test_the_answer_view_takes_the_whole_gradient_of_its_positive():
    scores = SCORES.clone().requires_grad_()
    best = document_scores(scores, STARTS, Aggregate.MAX)
    answer_view_contrastive(scores, best, POSITIVES, NONE_EXCLUDED, torch.tensor([1, 3]), 1.0).backward()
    # Question 0: the best view 0 of its positive has no part; softmax of (1, 4) gives -4/5 and 4/5, halved by the mean.
    assert scores.grad[0].tolist() == pytest.approx([0.0, -0.4, 0.4, 0.0])


@given(seed=seeds)
@cases
def test_the_losses_do_not_depend_on_the_order_of_the_documents(seed):
    case = Case(seed)
    order = np.random.default_rng(seed + 1).permutation(case.n)
    old_rows = np.concatenate([np.arange(case.starts[j], case.starts[j + 1]) for j in order])
    starts = torch.from_numpy(np.concatenate([[0], np.cumsum(np.diff(case.starts)[order])]))
    place, row_place = torch.from_numpy(np.argsort(order)), torch.from_numpy(np.argsort(old_rows))
    scores, positives, excluded, rows, teacher = case["scores positives excluded answer_rows teacher"]
    identity = torch.eye(scores.shape[1], dtype=torch.float64)
    config = LossConfig(tau=case.tau, local_weight=1.0, answer_view=True, distillation_weight=1.0)
    before = LossInputs(scores, identity, case.tensors["starts"], positives, excluded, rows, teacher)
    moved = torch.where(rows >= 0, row_place[rows.clamp(min=0)], -1)
    after = LossInputs(
        scores, identity[old_rows], starts, place[positives], excluded[:, order], moved, teacher[:, order]
    )
    assert floats(total_loss(after, config, 0)) == pytest.approx(floats(total_loss(before, config, 0)))


@given(seed=seeds, shift=st.floats(-50, 50))
@cases
def test_a_constant_added_to_all_scores_changes_no_loss_and_shifts_every_document_score(seed, shift):
    case = Case(seed)
    scores, starts, positives, excluded = case["scores starts positives excluded"]
    for aggregate in Aggregate:
        before, after = (document_scores(s, starts, aggregate, case.temperature) for s in (scores, scores + shift))
        assert (after - shift).numpy() == pytest.approx(before.numpy(), abs=1e-9)
        losses = [global_contrastive(s, positives, excluded, case.tau).item() for s in (before, after)]
        assert losses[0] == pytest.approx(losses[1], abs=1e-9)
    local = [local_uniformity(s, starts, positives, case.tau).item() for s in (scores, scores + shift)]
    assert local[0] == pytest.approx(local[1], abs=1e-9)


@given(seed=seeds)
@cases
def test_an_excluded_column_has_no_gradient_and_every_other_one_has(seed):
    case = Case(seed)
    positives, excluded = case["positives excluded"]
    documents = torch.from_numpy(np.array(case.best())).requires_grad_()
    global_contrastive(documents, positives, excluded, case.tau).backward()
    is_positive = torch.zeros_like(excluded)
    is_positive[torch.arange(case.q), positives] = True
    assert (documents.grad[excluded & ~is_positive] == 0).all()
    assert (documents.grad[~excluded & ~is_positive] > 0).all()
    # That of a positive is the negative sum of the others; where they are tiny it is rounded to 0.
    assert documents.grad.sum(1).numpy() == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("tau", [0.01, 1.0])
def test_extreme_scores_give_finite_losses_and_gradients(dtype, tau):
    scores = torch.tensor([[1e4, -1e4, -1e4, 1e4, 0.0]] * 2, dtype=dtype, requires_grad=True)
    starts, positives = torch.tensor([0, 2, 4, 5]), torch.tensor([0, 2])
    excluded = torch.tensor([[False, True, False], [True, False, False]])
    teacher = torch.tensor([[1e4, -1e4, math.nan], [math.nan] * 3], dtype=dtype)
    for aggregate in Aggregate:
        documents = document_scores(scores, starts, aggregate, 0.05)
        assert documents[0].tolist() == [1e4, 1e4, 0.0]
        loss = answer_view_contrastive(scores, documents, positives, excluded, torch.tensor([1, -1]), tau)
        loss = loss + local_uniformity(scores, starts, positives, tau) + distillation(documents, teacher, tau)
        scores.grad = None
        loss.backward()
        assert torch.isfinite(loss) and torch.isfinite(scores.grad).all()


def test_one_question_and_one_document_of_one_view_lose_nothing():
    score = torch.tensor([[-3.7]], requires_grad=True)
    starts, positive = torch.tensor([0, 1]), torch.tensor([0])
    documents = document_scores(score, starts, Aggregate.DRPQ, 1.0)
    loss = global_contrastive(documents, positive, torch.tensor([[False]]), 1.0)
    local = local_uniformity(score, starts, positive, 1.0)
    (loss + local).backward()
    assert loss.item() == 0 and local.item() == 0 and score.grad.item() == 0


def test_a_small_local_loss_keeps_its_digits_beside_large_scores():
    # log(1 + e^-9) = 1.2340e-4 of scores of 90,000, whose own float32 spacing is .0078.
    scores = torch.tensor([[9000.0, 8999.1]])
    found = local_uniformity(scores, torch.tensor([0, 2]), torch.tensor([0]), 0.1)
    assert found.item() == pytest.approx(math.log1p(math.exp(-(9000.0 - float(scores[0, 1])) / 0.1)), rel=1e-2)


def test_a_teacher_who_knows_nothing_teaches_nothing():
    nothing = torch.full((2, 2), math.nan, dtype=torch.float64)
    assert distillation(SCORES[:, :2], nothing, 1.0).item() == 0.0


def test_half_precision_is_widened_even_under_autocast():
    inputs = LossInputs(
        torch.randn(3, 8).bfloat16(),
        torch.randn(4, 8).bfloat16(),
        STARTS,
        torch.tensor([0, 1, 0]),
        torch.zeros(3, 2) > 0,
    )
    wide = LossInputs(inputs.queries.float(), inputs.rows.float(), STARTS, inputs.positives, inputs.excluded)
    config = LossConfig(local_weight=0.5)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = total_loss(inputs, config, 0)
    assert found.total.dtype is torch.float32
    assert floats(found) == floats(total_loss(wide, config, 0))


def test_the_total_alone_has_a_graph_and_its_gradient_reaches_queries_and_rows():
    queries, rows = torch.randn(2, 4, requires_grad=True), torch.randn(4, 4, requires_grad=True)
    config = LossConfig(aggregate="drpq", local_weight=0.5)
    found = total_loss(LossInputs(queries, rows, STARTS, POSITIVES, NONE_EXCLUDED), config, 0)
    assert [part.requires_grad for part in (found.contrastive, found.local, found.distillation)] == [False] * 3
    found.total.backward()
    assert (queries.grad != 0).any(1).all() and (rows.grad != 0).any(1).all()


def test_the_drpq_temperature_acts_on_the_scores_before_they_are_scaled():
    queries, rows = torch.randn(2, 4).double(), torch.randn(4, 4).double()
    config = LossConfig(aggregate="drpq", drpq_temperature=0.3, scale=20.0)
    found = total_loss(LossInputs(queries, rows, STARTS, POSITIVES, NONE_EXCLUDED), config, 0)
    documents = 20 * document_scores(queries @ rows.T, STARTS, Aggregate.DRPQ, 0.3)
    assert found.total.item() == pytest.approx(global_contrastive(documents, POSITIVES, NONE_EXCLUDED, 1.0).item())


# Document 0 has views of characters 0-10 and 10-20, document 1 a title's view and 0-30.
SPANS = np.array([[0, 10], [10, 20], [-1, -1], [0, 30]])


@pytest.mark.parametrize(
    ("document", "answer", "row"),
    [
        (0, (2, 5), 0),
        (0, (10, 12), 1),
        (0, (7, 12), 0),  # 3 characters against 2
        (0, (8, 13), 1),  # 2 against 3
        (0, (8, 12), 0),  # 2 each: the first
        (0, (25, 28), -1),
        (0, None, -1),
        (1, (2, 5), 3),
    ],
)
def test_the_answers_view_is_the_one_with_most_of_its_characters(document, answer, row):
    found = find_answer_rows(SPANS, np.array([0, 2, 4]), np.array([1, document]), [(29, 30), answer])
    assert found.tolist() == [3, row]


@given(seed=seeds)
@cases
def test_in_sequence_is_that_of_the_plain_reference(seed):
    case = Case(seed)
    scores, starts, positives, rows = case["scores starts positives answer_rows"]
    wanted = []
    for question, row in enumerate(case.answer_rows):
        if row >= 0:
            own = [math.exp(score / case.tau) for score in case.views(question, case.positives[question])]
            wanted.append(-math.log(math.exp(case.scores[question][row] / case.tau) / sum(own)))
    found = in_sequence(scores, starts, positives, rows, case.tau)
    assert float(found) == pytest.approx(np.mean(wanted) if wanted else 0.0, rel=1e-6, abs=1e-6)


@pytest.mark.parametrize(
    ("most", "sizes"), [(1, [1]), (2, [1, 2]), (3, [1, 2, 3]), (8, [1, 2, 4, 8]), (9, [1, 2, 4, 8, 9])]
)
def test_nested_sizes(most, sizes):
    assert nested_sizes(most) == sizes


@given(seed=seeds)
@cases
def test_a_nested_loss_is_the_mean_of_the_losses_of_documents_cut_by_hand(seed):
    case = Case(seed)
    rows = torch.from_numpy(np.random.default_rng(seed).normal(size=(case.scores.shape[1], 5)))
    queries = torch.from_numpy(np.random.default_rng(seed + 1).normal(size=(case.q, 5)))
    starts, positives, excluded, answers = case["starts positives excluded answer_rows"]
    inputs = LossInputs(queries, rows, starts, positives, excluded, answers)
    config = LossConfig(tau=case.tau, local_weight=0.5, answer_view=True, in_sequence_weight=0.3)
    wanted = []
    for size in nested_sizes(int(np.diff(case.starts).max())):
        kept, cut, numbers = [], [0], {}
        for begin, end in zip(case.starts[:-1], case.starts[1:], strict=True):
            for row in range(begin, min(end, begin + size)):
                numbers[row] = len(kept)
                kept.append(row)
            cut.append(len(kept))
        own = [numbers.get(int(row), -1) for row in case.answer_rows]
        by_hand = LossInputs(queries, rows[kept], torch.tensor(cut), positives, excluded, torch.tensor(own))
        part = first_views(inputs, size)
        for name in ("rows", "starts", "answer_rows"):
            assert torch.equal(getattr(part, name), getattr(by_hand, name))
        wanted.append(floats(total_loss(by_hand, config, 0)))
    nested = LossConfig(tau=case.tau, local_weight=0.5, answer_view=True, in_sequence_weight=0.3, nested=True)
    found = floats(total_loss(inputs, nested, 0))
    assert found == pytest.approx(
        {name: np.mean([each[name] for each in wanted]) for name in found}, rel=1e-6, abs=1e-9
    )


def test_the_gradient_of_a_nested_loss_reaches_every_view_and_the_first_most():
    rows = torch.randn(8, 4, dtype=torch.float64, requires_grad=True)
    inputs = LossInputs(torch.randn(2, 4, dtype=torch.float64), rows, torch.tensor([0, 4, 8]), POSITIVES, NONE_EXCLUDED)
    total_loss(inputs, LossConfig(aggregate="drpq", nested=True), 0).total.backward()
    assert bool((rows.grad.abs().sum(1) > 0).all())
