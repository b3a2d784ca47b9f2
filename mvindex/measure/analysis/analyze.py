"""The analysis: from an index and questions to the sections of the report."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import numpy as np

from mvindex.errors import Unsupported
from mvindex.index import embedded_store_of
from mvindex.kernels.score import Scoring, decode, parse_aggregate
from mvindex.measure.analysis import measures, passages, ranks
from mvindex.measure.analysis.measures import MOST_SLOTS, mean_divergences, measure_similarity
from mvindex.measure.analysis.questions import (
    AnalysisOptions,
    AnsweredSet,
    Qrels,
    Sample,
    answer_questions,
    take_sample,
)
from mvindex.measure.analysis.ranks import (
    NOT_FOUND,
    MeanView,
    Pool,
    RankRequest,
    RankTable,
    RelevantDocs,
    Variant,
    choose_pool,
    count_ranks,
    gain,
    intervals,
    rank_array,
    recalls,
)
from mvindex.measure.analysis.verdict import Gain, judge
from mvindex.measure.questions import Question
from mvindex.records import Document, Doubles, Floats, Ints, ProgressCallback, no_progress

if TYPE_CHECKING:
    from mvindex.index import Index

_MOST_VIEWS = 16
_PAIR_VIEWS = 8192
_ENCODE_BATCH = 16
_UNIT_TOLERANCE = 1e-2
# Sections that compare the views of relevant documents.
_QUESTION_SECTIONS = ("single_view", "one_vector", "fewer_views", "pruned", "local", "usage", "gradient", "maps")


def analyze(
    index: Index,
    questions: Iterable[Question] = (),
    options: AnalysisOptions | None = None,
    *,
    qrels: Qrels | None = None,
    on_progress: ProgressCallback = no_progress,
) -> dict[str, Any]:
    """Measure whether the views of an index pay on these questions.

    Args:
        index: The index to analyse.
        questions: Questions, best with gold documents or answers.
        options: Samples, cutoffs and scoring.
        qrels: Judgements, question id to document id to grade (mvindex.measure.questions.read_qrels), in addition to
            gold documents.
        on_progress: Called with the name of a step, how much of it is done, and its total.

    Returns:
        The report as JSON values (schemas/records/analysis.schema.json). Without questions, without answers or gold
        documents, or with documents of one view, the sections that need them are None, and `left_out` says why.

    Raises:
        Unsupported: The index is empty.

    """
    options = options or AnalysisOptions()
    run = _Analysis(index, options, on_progress)
    return run.report(take_sample(questions, options.max_questions, options.seed), qrels)


class _Analysis:
    """One analysis; its methods make the sections of the report."""

    def __init__(self, index: Index, options: AnalysisOptions, on_progress: ProgressCallback) -> None:
        self._index, self._options, self._on_progress = index, options, on_progress
        self._snapshot = embedded_store_of(index).snapshot
        if self._snapshot.num_documents == 0:
            raise Unsupported(f"{index.where}: the index is empty; ingest documents before you analyse it")
        temperature = index.temperature if options.temperature is None else options.temperature
        self._scoring = Scoring(parse_aggregate(options.scoring), temperature)
        self._left_out: dict[str, str] = {}

    def report(self, sample: Sample, qrels: Qrels | None) -> dict[str, Any]:
        """Return all sections."""
        answered = self._answer(sample, qrels)
        relevant = np.array(sorted({row for one in answered.questions for row in one.relevant}), dtype=np.int64)
        pool = choose_pool(self._snapshot, relevant, self._options.max_documents, self._options.seed)
        self._is_unit = _is_unit(pool)
        self._scale = self._options.scale or (20.0 if self._is_unit else 1.0)
        report: dict[str, Any] = {
            "version": version("mvindex"),
            "subject": self._subject(),
            "sample": {
                "documents": len(pool),
                "of": pool.of,
                "seed": self._options.seed,
                "is_all": len(pool) == pool.of,
            },
            "scoring": {
                "scoring": self._options.scoring,
                "temperature": self._scoring.temperature,
                "scale": self._scale,
            },
            "similarity": measure_similarity(pool),
            "attention": self._attention(pool),
            "settings": asdict(self._options),
        }
        if report["similarity"] is None:
            self._left_out["similarity"] = "no document has two views"
        gains = self._add_question_sections(report, pool, answered)
        report["questions"] = self._questions(sample, answered)
        report["verdict"] = judge(report, gains)
        return report | {"left_out": self._left_out}

    def _answer(self, sample: Sample, qrels: Qrels | None) -> AnsweredSet:
        if not sample.questions:
            return AnsweredSet("best")
        progress = _StepProgress(self._on_progress, "searching", len(sample.questions))
        return answer_questions(self._index, sample.questions, self._options, qrels, progress)

    def _subject(self) -> dict[str, Any]:
        info = self._index.info()
        views = self._snapshot.views
        most = int(views.counts(0, views.num_rows)[self._snapshot.alive].max())
        return {
            "path": info.path,
            "kind": "index",
            "encoder": info.encoder,
            "documents": info.documents,
            "views": info.views,
            "views_per_document": info.views / info.documents,
            "most_views": most,
            "dim": info.dim,
            "dtype": info.dtype,
            "view_bytes": info.views * views.row_bytes,
        }

    def _questions(self, sample: Sample, answered: AnsweredSet) -> dict[str, Any] | None:
        used = len(answered.questions)
        if not used:
            return None
        documents = len({one.relevant[0] for one in answered.questions if one.relevant})
        with_document = sum(bool(one.relevant) for one in answered.questions)
        return {
            "read": sample.read,
            "used": used,
            "with_gold": used if answered.target == "gold" else 0,
            "with_answers": sum(bool(one.question.answers) for one in answered.questions),
            "gold_missing": answered.gold_missing,
            "target": answered.target,
            "documents": documents,
            "per_document": with_document / documents if documents else 0.0,
        }

    def _attention(self, pool: Pool) -> dict[str, Any] | None:
        """Return the divergence of the views' attention, over documents drawn uniformly and encoded again."""
        number = min(self._options.attention_documents, len(pool))
        encoder = self._index.encoder if number and self._snapshot.settings["encoder"] else None
        attend = getattr(encoder, "view_attentions", None)
        if attend is None:
            self._left_out["attention"] = "not requested" if not number else "the encoder's attention cannot be read"
            return None
        rows = np.random.default_rng(self._options.seed).choice(pool.doc_rows, size=number, replace=False)
        try:
            section = mean_divergences(self._attentions(attend, np.sort(rows)))
        except Unsupported as err:
            self._left_out["attention"] = str(err)
            return None
        if section is None:
            self._left_out["attention"] = "no document has two views in one window of the encoder"
        return section

    def _attentions(
        self, attend: Callable[[Sequence[Document]], list[Floats | None]], rows: Ints
    ) -> Iterable[Floats | None]:
        progress = _StepProgress(self._on_progress, "reading attention", len(rows))
        for begin in range(0, len(rows), _ENCODE_BATCH):
            with embedded_store_of(self._index).reading(self._snapshot) as reader:
                stored = reader.documents(rows[begin : begin + _ENCODE_BATCH].tolist()).values()
            yield from attend([Document(one.id, one.text, one.title) for one in stored])
            progress(len(stored))

    def _add_question_sections(self, report: dict[str, Any], pool: Pool, answered: AnsweredSet) -> list[Gain]:
        """Add the sections that need questions; return the gains over one vector."""
        report |= dict.fromkeys((*_QUESTION_SECTIONS, "recall", "hardest"))
        if not any(one.relevant for one in answered.questions):
            has_questions = bool(answered.questions)
            reason = "the index holds no relevant document" if has_questions else "there are no questions"
            self._left_out |= dict.fromkeys((*_QUESTION_SECTIONS, "recall", "hardest"), reason)
            return []
        most_views = int(pool.counts.max())
        chosen = _variants(most_views, self._is_unit, self._options.eps)
        ranks = self._count(pool, answered, chosen)
        report["recall"] = self._recall(answered, ranks.ranks[:, 0])
        rows = self._rows(pool, chosen, ranks)
        gains = self._compare(report, rows, ranks, chosen) if most_views > 1 else []
        self._measure(report, pool, answered, ranks)
        return gains

    def _count(self, pool: Pool, answered: AnsweredSet, chosen: Sequence[Variant]) -> RankTable:
        questions = answered.questions
        question_rows = np.repeat(np.arange(len(questions)), [len(one.relevant) for one in questions])
        positions = pool.positions(np.array([row for one in questions for row in one.relevant], dtype=np.int64))
        request = RankRequest(answered.vectors, RelevantDocs(question_rows, positions), self._scoring)
        progress = _StepProgress(self._on_progress, "comparing views", 2 * len(pool))
        return count_ranks(pool, request, chosen, progress)

    def _recall(self, answered: AnsweredSet, ranks: Ints) -> dict[str, Any]:
        cutoffs = self._options.cutoffs
        with_answers = [one for one in answered.questions if one.question.answers]
        answer = {
            name: recalls(rank_array([getattr(one, name) for one in with_answers]), cutoffs) if with_answers else None
            for name in ("answer", "answer_view", "answer_citation")
        }
        if not with_answers:
            self._left_out["recall.answer"] = "the questions have no answers"
        return {
            "cutoffs": list(cutoffs),
            "whole": recalls(ranks, cutoffs),
            "interval": intervals(ranks, cutoffs, self._options.seed),
            **answer,
        }

    def _rows(self, pool: Pool, chosen: Sequence[Variant], table: RankTable) -> dict[str, dict[str, Any]]:
        """Return each variant's recall, vectors per document, bytes of the whole index, and share of the bytes."""
        row_bytes, of = pool.views.row_bytes, pool.of / len(pool)
        rows = {}
        for column, variant in enumerate(chosen):
            vectors = int(table.vectors[column])
            rows[variant.name] = {
                "vectors": round(vectors * of),
                "views_per_document": vectors / len(pool),
                "bytes": round(vectors * of * row_bytes),
                "share": vectors / int(table.vectors[0]),
                **recalls(table.ranks[:, column], self._options.cutoffs),
            }
        return rows

    def _compare(
        self, report: dict[str, Any], rows: Mapping[str, Mapping[str, Any]], table: RankTable, chosen: Sequence[Variant]
    ) -> list[Gain]:
        """Add the sections that compare variants; return the gains of all views over the best single vector."""
        cutoffs, columns = self._options.cutoffs, {variant.name: column for column, variant in enumerate(chosen)}
        slots = [name for name in columns if name.startswith("view ")]
        report["single_view"] = [
            {"slot": int(name.removeprefix("view ")), "documents": rows[name]["views_per_document"]}
            | {f"R@{k}": rows[name][f"R@{k}"] for k in cutoffs}
            for name in slots
        ]
        single = max(["the mean of the views", *slots], key=lambda name: sum(rows[name][f"R@{k}"] for k in cutoffs))
        report["one_vector"] = {"name": single} | {f"R@{k}": rows[single][f"R@{k}"] for k in cutoffs}
        report["fewer_views"] = [
            {"views": number, **rows[f"{number} views"]}
            for number in range(1, len(columns))
            if f"{number} views" in rows
        ]
        report["pruned"] = [
            {"eps": eps, "cosine": 1 - eps**2 / 2, "views": rows[f"pruned {eps}"]["vectors"], **rows[f"pruned {eps}"]}
            for eps in self._options.eps
        ]
        report["similarity"]["near_duplicates"] = [
            {"eps": row["eps"], "share": 1 - row["share"]} for row in report["pruned"]
        ]
        ranks, single_ranks = table.ranks[:, 0], table.ranks[:, columns[single]]
        gains = [Gain(k, *gain(ranks, single_ranks, k, self._options.seed)) for k in cutoffs]
        report["one_vector"]["gain"] = {
            f"R@{one.k}": {"value": one.value, "low": one.low, "high": one.high} for one in gains
        }
        return gains

    def _measure(self, report: dict[str, Any], pool: Pool, answered: AnsweredSet, table: RankTable) -> None:
        """Add the sections about each question and its relevant document."""
        has_document = table.positions[:, 0] != NOT_FOUND
        positions = table.positions[has_document, 0]
        pairs = _pair_scores(pool, answered.vectors[has_document], positions)
        winners = pairs.winners
        several = pairs.counts > 1
        rows, slots = np.full((2, len(answered.questions)), -1, dtype=np.int64)
        rows[has_document], slots[has_document] = pool.doc_rows[positions], winners
        report["hardest"] = passages.hardest(self._index, answered.questions, table.ranks[:, 0])
        if not several.any():
            self._left_out |= dict.fromkeys(_QUESTION_SECTIONS, "no relevant document has two views")
            return
        ppl = float(np.mean(measures.perplexities(positions[several], winners[several])))
        report["local"] = _local(pairs.where(several), ppl, self._scale)
        report["usage"] = _usage(winners, pairs.counts)
        report["gradient"] = _gradient(pairs.where(several), self._scoring.temperature)
        report["maps"] = passages.maps(self._index, answered.questions, rows, slots)


class _StepProgress:
    """Adds up the progress of one step and reports it."""

    def __init__(self, on_progress: ProgressCallback, step: str, total: int) -> None:
        self._on_progress, self._step, self._total, self._done = on_progress, step, total, 0
        on_progress(step, 0, total)

    def __call__(self, done: int) -> None:
        self._done += done
        self._on_progress(self._step, self._done, self._total)


def _is_unit(pool: Pool) -> bool:
    """Return whether the views are of unit length, judged by the first documents."""
    rows = pool.block(0, min(len(pool), 64)).rows
    return bool(np.abs(np.linalg.norm(rows, axis=1) - 1).max() < _UNIT_TOLERANCE)


def _variants(most_views: int, is_unit: bool, eps: Sequence[float]) -> list[Variant]:
    """Return all views first, then the variants to compare with, if any document has two views."""
    if most_views == 1:
        return [ranks.all_views()]
    slots = [ranks.single_view(slot) for slot in range(min(most_views, MOST_SLOTS))]
    fewer = [ranks.most_different(number) for number in range(1, min(most_views, _MOST_VIEWS) + 1)]
    mean = MeanView("the mean of the views", is_unit)
    return [ranks.all_views(), mean, *slots, *fewer, *(ranks.pruned(one) for one in eps)]


def _pair_scores(pool: Pool, vectors: Floats, positions: Ints) -> measures.PairScores:
    """Return the view scores of each question's document. vectors: (m, d); positions: (m,) in the pool."""
    counts = pool.counts[positions]
    starts = np.append(0, np.cumsum(counts))
    scores: Doubles = np.empty(int(starts[-1]))
    begin = 0
    while begin < len(positions):
        end = max(begin + 1, int(np.searchsorted(starts, starts[begin] + _PAIR_VIEWS, side="right")) - 1)
        packed, _ = pool.views.fetch(pool.doc_rows[positions[begin:end]])
        queries = np.repeat(vectors[begin:end], counts[begin:end], axis=0).astype(np.float64)
        scores[starts[begin] : starts[end]] = np.einsum("rd,rd->r", decode(packed).astype(np.float64), queries)
        begin = end
    return measures.PairScores(scores, starts)


def _local(pairs: measures.PairScores, ppl: float, scale: float) -> dict[str, Any]:
    gaps = measures.margins(pairs)
    spread = {f"p{share}": float(np.quantile(gaps, share / 100)) for share in (10, 50, 90)}
    return {
        "pairs": len(pairs),
        "lv": float(np.mean(measures.local_variations(pairs, scale))),
        "ppl": ppl,
        "margin": {"mean": float(np.mean(gaps)), **spread},
    }


def _usage(winners: Ints, counts: Ints) -> list[dict[str, Any]]:
    """Return by slot the share of questions that it won, and the share whose document has it."""
    shown = min(int(counts.max()), MOST_SLOTS)
    return [
        {"slot": slot, "wins": float(np.mean(winners == slot)), "available": float(np.mean(counts > slot))}
        for slot in range(shown)
    ]


def _gradient(pairs: measures.PairScores, temperature: float) -> dict[str, Any]:
    weights = measures.gradient_weights(pairs, temperature)
    return {
        "temperature": temperature,
        "pairs": len(pairs),
        "max": float(np.mean(np.maximum.reduceat(weights, pairs.starts[:-1]))),
        "variance": float(np.mean(measures.variances(weights, pairs.starts))),
        "by_rank": measures.by_rank(weights, pairs, MOST_SLOTS),
    }
