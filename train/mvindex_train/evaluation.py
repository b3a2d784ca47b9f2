"""Recall of dev questions over the whole dev corpus, and measures of collapsed views."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from mvindex.encoder import Encoder
from mvindex.errors import CorpusError
from mvindex.kernels.score import parse_aggregate
from mvindex.measure.analysis.measures import local_variations, mean_cosines, pair_scores
from mvindex.measure.metrics import DEFAULT_CUTOFFS
from mvindex.records import Document, Floats, Ints, Views
from mvindex_train.config import LossConfig
from mvindex_train.data.records import Example

if TYPE_CHECKING:
    import torch

    from mvindex_train.processes import Processes

Number = TypeVar("Number", np.float32, np.int64)

# Documents encoded and view scores computed at once: bounds on memory that affect only the last digits of figures.
_ENCODED_AT_ONCE = 1024
_SCORES_AT_ONCE = 1 << 24
_BLOCK_VIEWS = 8192


@dataclass(frozen=True, slots=True, eq=False)
class DevSet:
    """Dev questions over a corpus; gold[i]: (g,) rows in `documents` of the positives of question i, at least one."""

    documents: Sequence[Document]
    questions: list[str]
    gold: list[Ints]


@dataclass(frozen=True, slots=True)
class DevReport:
    """Figures of an evaluation.

    recall: share of questions with a positive among the first k documents, by k. mrr: mean reciprocal rank.
    local_variation: LV of MVR eq. 9 over questions and their positive; view_cosine: mean cosine of two views of a
    document; both None where no document has two views. views: mean number a document.
    """

    questions: int
    documents: int
    recall: dict[int, float]
    mrr: float
    local_variation: float | None
    view_cosine: float | None
    views: float

    def as_json(self) -> dict[str, Any]:
        """Return the figures by their names in history.jsonl."""
        recall = {f"R@{k}": round(share, 6) for k, share in self.recall.items()}
        rest = {
            "MRR": self.mrr,
            "local_variation": self.local_variation,
            "view_cosine": self.view_cosine,
            "views": self.views,
        }
        rounded = {name: None if value is None else round(value, 6) for name, value in rest.items()}
        return {"questions": self.questions, "documents": self.documents, **recall, **rounded}


def make_dev_set(examples: Iterable[Example], passages: Iterable[Document] | None) -> DevSet:
    """Make the dev set of the examples' questions over the passages, or over the examples' documents when None.

    Raises CorpusError when there is no question, or when no positive of a question is among the passages.
    """
    questions = list(examples)
    if not questions:
        raise CorpusError("--dev: expected one question or more, got none. Leave --dev out to train without")
    named = (document for example in questions for document in example.documents)
    documents: dict[str, Document] = {}
    for document in named if passages is None else passages:
        documents.setdefault(document.id, document)
    row_of = {doc_id: row for row, doc_id in enumerate(documents)}
    gold = [_rows_of(example, row_of) for example in questions]
    return DevSet(list(documents.values()), [example.question for example in questions], gold)


def evaluate(encoder: Encoder, dev: DevSet, loss: LossConfig, processes: Processes, cutoff: int = 100) -> DevReport:
    """Evaluate the encoder by the document score that it is trained for; every process gets the figures.

    cutoff: R@cutoff is reported beside R@1, 5, 20 and 100. Equal scores rank in the order of the corpus.
    """
    views = _encode_documents(encoder, dev.documents, processes)
    queries = _encode_queries(encoder, dev.questions, processes)
    ranks = gold_ranks(views, queries, dev.gold, loss, processes.device)
    cutoffs = sorted({*DEFAULT_CUTOFFS, cutoff})
    return DevReport(
        questions=len(dev.questions),
        documents=len(dev.documents),
        recall={k: float(np.mean(ranks <= k)) for k in cutoffs},
        mrr=float(np.mean(1.0 / ranks)),
        local_variation=local_variation(views, queries, [int(rows[0]) for rows in dev.gold], loss.scale),
        view_cosine=view_cosine(views),
        views=len(views.rows) / len(views),
    )


def gold_ranks(
    views: Views, queries: Floats, gold: Sequence[Ints], loss: LossConfig, device: torch.device | str = "cpu"
) -> Ints:
    """Return the rank, from 1, of each question's best positive among all documents, (q,), by an exact fp32 scan."""
    import torch

    scan = _Scan(views, queries, loss, torch.device(device))
    best = torch.full((len(queries),), -torch.inf)
    rows = torch.zeros(len(queries), dtype=torch.int64)
    question_of = np.repeat(np.arange(len(gold)), [len(each) for each in gold])
    gold_rows = np.concatenate(gold)
    for questions, begin, scores in scan.blocks():
        is_here = (question_of >= questions.start) & (question_of < questions.stop)
        is_here &= (gold_rows >= begin) & (gold_rows < begin + scores.shape[1])
        for question, row in zip(question_of[is_here].tolist(), gold_rows[is_here].tolist(), strict=True):
            score = scores[question - questions.start, row - begin]
            if score > best[question]:
                best[question], rows[question] = score, row
    ranks = torch.ones(len(queries), dtype=torch.int64)
    for questions, begin, scores in scan.blocks():
        target, row = best[questions, None], rows[questions, None]
        is_earlier = torch.arange(begin, begin + scores.shape[1]) < row
        ranks[questions] += ((scores > target) | ((scores == target) & is_earlier)).sum(dim=1)
    return ranks.numpy()


def local_variation(views: Views, queries: Floats, gold: Sequence[int], scale: float) -> float | None:
    """Return LV (MVR eq. 9) of scores times scale, averaged over questions and their document.

    Documents of one view do not count; None when there is no other.
    """
    pairs = pair_scores(views, queries, np.asarray(gold, dtype=np.int64))
    several = pairs.where(pairs.counts > 1)
    return float(np.mean(local_variations(several, scale))) if len(several) else None


def view_cosine(views: Views) -> float | None:
    """Return the cosine of two views of a document, averaged over pairs, then over documents; 1 where views collapse.

    None when no document has two views.
    """
    means = mean_cosines(views.rows, views.starts)
    return None if np.isnan(means).all() else float(np.nanmean(means))


@dataclass(frozen=True, slots=True, eq=False)
class _Scan:
    """Scores of all documents and questions in blocks that bound memory; the same blocks at every call."""

    views: Views
    queries: Floats
    loss: LossConfig
    device: torch.device

    def blocks(self) -> Iterator[tuple[slice, int, torch.Tensor]]:
        """Yield the questions, the first document and the document scores (q, n), fp32 on the CPU, of each block."""
        import torch

        from mvindex_train.losses import document_scores

        aggregate, starts = parse_aggregate(self.loss.aggregate), self.views.starts
        queries = torch.from_numpy(self.queries).to(self.device)
        step = max(1, _SCORES_AT_ONCE // _BLOCK_VIEWS)
        for begin, end in _document_blocks(starts):
            rows = torch.from_numpy(self.views.rows[starts[begin] : starts[end]]).to(self.device)
            own_starts = torch.from_numpy(starts[begin : end + 1] - starts[begin])  # the losses read it on the CPU
            for first in range(0, len(queries), step):
                scores = queries[first : first + step] @ rows.T
                scores = document_scores(scores, own_starts, aggregate, self.loss.drpq_temperature)
                yield slice(first, first + len(scores)), begin, scores.cpu()


def _document_blocks(starts: Ints) -> Iterator[tuple[int, int]]:
    """Yield ranges of documents with at most _BLOCK_VIEWS views in total, or of one document."""
    begin, last = 0, len(starts) - 1
    while begin < last:
        end = int(np.searchsorted(starts, starts[begin] + _BLOCK_VIEWS, side="right")) - 1
        end = min(max(end, begin + 1), last)
        yield begin, end
        begin = end


def _rows_of(example: Example, row_of: dict[str, int]) -> Ints:
    rows = [row_of[document.id] for document in example.positives if document.id in row_of]
    if not rows:
        ids = ", ".join(repr(document.id) for document in example.positives[:3])
        raise CorpusError(
            f"dev question {example.question_id!r}: expected one of its passages ({ids}) in the "
            "corpus, got none. Give a corpus with a positive of every dev question"
        )
    return np.array(rows, dtype=np.int64)


def _encode_documents(encoder: Encoder, documents: Sequence[Document], processes: Processes) -> Views:
    """Return the views of all documents, without spans; each process encodes its share and gets all."""
    own = documents[processes.share(len(documents))] if len(documents) >= processes.count else documents
    places = range(0, len(own), _ENCODED_AT_ONCE)
    parts = [encoder.encode_documents(own[begin : begin + _ENCODED_AT_ONCE]) for begin in places]
    rows, counts = (
        np.concatenate([part.rows for part in parts]),
        np.concatenate([np.diff(part.starts) for part in parts]),
    )
    if own is not documents:
        rows, counts = _join(rows, processes), _join(counts, processes)
    return Views(rows, np.concatenate([[0], np.cumsum(counts)]), np.full((len(rows), 2), -1))


def _encode_queries(encoder: Encoder, questions: list[str], processes: Processes) -> Floats:
    if len(questions) < processes.count:
        return encoder.encode_queries(questions)
    return np.asarray(_join(encoder.encode_queries(questions[processes.share(len(questions))]), processes))


def _join(own: NDArray[Number], processes: Processes) -> NDArray[Number]:
    """Concatenate the arrays of all processes."""
    import torch

    joined: NDArray[Number] = processes.join(torch.from_numpy(own).to(processes.device)).cpu().numpy()
    return joined
