"""The analysis itself: from an index and questions to the sections of the report."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from mvindex.analysis import measures, passages, variants
from mvindex.analysis.divergence import mean_divergences
from mvindex.analysis.options import AnalysisOptions
from mvindex.analysis.pool import Pool, choose_pool
from mvindex.analysis.questions import Asking, Qrels, Sample, ask, take_sample, vectors_of
from mvindex.analysis.ranks import NOT_FOUND, Asked, RankTable, Wanted, count_ranks
from mvindex.analysis.recall import gain, intervals, ranks_of, recalls
from mvindex.analysis.similarity import MOST_SLOTS, measure_likeness
from mvindex.analysis.variants import MeanView, Variant
from mvindex.analysis.verdict import Gain, judge
from mvindex.errors import Unsupported
from mvindex.eval.questions import Question
from mvindex.records import Document, Doubles, Floats, Ints
from mvindex.scoring.aggregate import Scoring, parse_aggregate
from mvindex.store.views import decode

if TYPE_CHECKING:
    from mvindex.index import Index

# Told what is being done, how much of it is done, and of how much.
OnProgress: TypeAlias = Callable[[str, int, int], None]
_MOST_KEPT = 16
_PAIR_VIEWS = 8192
_ENCODED_AT_ONCE = 16
_UNIT = 1e-2


def _ignore(_: str, __: int, ___: int) -> None:
    """Nothing: nobody watches."""


def analyze(
    index: Index,
    questions: Iterable[Question] = (),
    options: AnalysisOptions | None = None,
    *,
    qrels: Qrels | None = None,
    on_progress: OnProgress = _ignore,
) -> dict[str, Any]:
    """What the views of the index do on these questions, as JSON values (schemas/records/analysis.schema.json).

    qrels: judgements, question id to document id to grade (mvindex.eval.questions.read_qrels), beside gold passages.
    Without questions, without answers or gold passages, or with documents of one view, the sections that need them are
    None, and `left_out` says why. ConfigError for an empty index.
    """
    options = options or AnalysisOptions()
    run = _Analysis(index, options, on_progress)
    return run.report(take_sample(questions, options.max_questions, options.seed), qrels)


class _Analysis:
    """One analysis, section by section."""

    def __init__(self, index: Index, options: AnalysisOptions, on_progress: OnProgress) -> None:
        self._index, self._options, self._on_progress = index, options, on_progress
        self._snapshot = index.store.snapshot
        if self._snapshot.num_documents == 0:
            raise Unsupported(f"{index.path}: the index is empty; ingest documents before analysing it")
        temperature = index.temperature if options.temperature is None else options.temperature
        self._scoring = Scoring(parse_aggregate(options.scoring), temperature)
        self._left_out: dict[str, str] = {}

    def report(self, sample: Sample, qrels: Qrels | None) -> dict[str, Any]:
        """All sections."""
        from mvindex import __version__

        asking = self._ask(sample, qrels)
        wanted = np.array(sorted({row for one in asking.answered for row in one.wanted}), dtype=np.int64)
        pool = choose_pool(self._snapshot, wanted, self._options.max_documents, self._options.seed)
        most_views = int(pool.counts.max())
        is_unit = self._is_unit(pool)
        self._scale = self._options.scale or (20.0 if is_unit else 1.0)
        report: dict[str, Any] = {
            "version": __version__,
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
            "similarity": measure_likeness(pool),
            "attention": self._attention(pool),
            "settings": asdict(self._options),
        }
        if report["similarity"] is None:
            self._left_out["similarity"] = "no document has two views"
        gains = self._asked_sections(report, pool, asking, (most_views, is_unit))
        report["questions"] = self._questions(sample, asking)
        report["verdict"] = judge(report, gains)
        return report | {"left_out": self._left_out}

    def _ask(self, sample: Sample, qrels: Qrels | None) -> Asking:
        number = len(sample.questions)
        done = _Counter(self._on_progress, "asking questions", number)
        return ask(self._index, sample.questions, self._options, qrels, done) if number else Asking("best")

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

    def _questions(self, sample: Sample, asking: Asking) -> dict[str, Any] | None:
        if not asking.answered:
            return None
        documents = len({one.wanted[0] for one in asking.answered if one.wanted})
        found = sum(bool(one.wanted) for one in asking.answered)
        return {
            "read": sample.read,
            "used": len(asking.answered),
            "with_gold": len(asking.answered) if asking.target == "gold" else 0,
            "with_answers": sum(bool(one.question.answers) for one in asking.answered),
            "gold_missing": asking.gold_missing,
            "target": asking.target,
            "documents": documents,
            "per_document": found / documents if documents else 0.0,
        }

    def _is_unit(self, pool: Pool) -> bool:
        """Whether the views are of unit length, told by the first documents."""
        rows = pool.block(0, min(len(pool), 64)).rows
        return bool(np.abs(np.linalg.norm(rows, axis=1) - 1).max() < _UNIT)

    def _attention(self, pool: Pool) -> dict[str, Any] | None:
        """The views' attention, of documents drawn evenly and encoded again."""
        number = min(self._options.attention_documents, len(pool))
        encoder = self._index.encoder if number and self._snapshot.settings["encoder"] else None
        attend = getattr(encoder, "view_attentions", None)
        if attend is None:
            self._left_out["attention"] = "not asked for" if not number else "the encoder's attention cannot be read"
            return None
        rows = np.random.default_rng(self._options.seed).choice(pool.doc_rows, size=number, replace=False)
        try:
            found = mean_divergences(self._attentions(attend, np.sort(rows)))
        except Unsupported as err:
            self._left_out["attention"] = str(err)
            return None
        if found is None:
            self._left_out["attention"] = "no document has two views in one window of the encoder"
        return found

    def _attentions(
        self, attend: Callable[[Sequence[Document]], list[Floats | None]], rows: Ints
    ) -> Iterable[Floats | None]:
        done = _Counter(self._on_progress, "reading attention", len(rows))
        for begin in range(0, len(rows), _ENCODED_AT_ONCE):
            with self._index.store.reading(self._snapshot) as reader:
                stored = reader.documents(rows[begin : begin + _ENCODED_AT_ONCE].tolist()).values()
            yield from attend([Document(one.id, one.text, one.title) for one in stored])
            done(len(stored))

    def _asked_sections(
        self, report: dict[str, Any], pool: Pool, asking: Asking, views: tuple[int, bool]
    ) -> list[Gain]:
        """Nothing but the gains over one vector; the report has the sections that need questions."""
        sections = ("recall", "alone", "one_vector", "kept", "pruned", "local", "usage", "gradient", "hardest", "maps")
        report |= dict.fromkeys(sections)
        if not any(one.wanted for one in asking.answered):
            reason = (
                "no wanted document of the questions is in the index" if asking.answered else "there are no questions"
            )
            self._left_out |= dict.fromkeys(sections, reason)
            return []
        chosen = _variants(views, self._options.eps)
        table = self._count(pool, asking, chosen)
        report["recall"] = self._recall(asking, table.ranks[:, 0])
        rows = self._rows(pool, chosen, table)
        gains = self._compare(report, rows, table, chosen) if views[0] > 1 else []
        self._measure(report, pool, asking, table)
        return gains

    def _count(self, pool: Pool, asking: Asking, chosen: Sequence[Variant]) -> RankTable:
        which = np.repeat(np.arange(len(asking.answered)), [len(one.wanted) for one in asking.answered])
        places = pool.places(np.array([row for one in asking.answered for row in one.wanted], dtype=np.int64))
        asked = Asked(vectors_of(asking.answered), Wanted(which, places), self._scoring)
        done = _Counter(self._on_progress, "comparing views", 2 * len(pool))
        return count_ranks(pool, asked, chosen, done)

    def _recall(self, asking: Asking, ranks: Ints) -> dict[str, Any]:
        cutoffs = self._options.cutoffs
        with_answers = [one for one in asking.answered if one.question.answers]
        answer = {
            name: recalls(ranks_of([getattr(one, name) for one in with_answers]), cutoffs) if with_answers else None
            for name in ("answer", "answer_view")
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
        """Each variant's recall, vectors a document, bytes of the whole index, and share of the whole's bytes."""
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
        """The gains of all views over the best single vector; the report has the sections that compare variants."""
        cutoffs, found = self._options.cutoffs, {variant.name: row for row, variant in enumerate(chosen)}
        slots = [name for name in found if name.startswith("view ")]
        report["alone"] = [
            {"slot": int(name.removeprefix("view ")), "documents": rows[name]["views_per_document"]}
            | {f"R@{k}": rows[name][f"R@{k}"] for k in cutoffs}
            for name in slots
        ]
        single = max(["the mean of the views", *slots], key=lambda name: sum(rows[name][f"R@{k}"] for k in cutoffs))
        report["one_vector"] = {"name": single} | {f"R@{k}": rows[single][f"R@{k}"] for k in cutoffs}
        report["kept"] = [{"views": int(name.split()[0]), **rows[name]} for name in found if name.endswith(" kept")]
        report["pruned"] = [
            {"eps": eps, "cosine": 1 - eps**2 / 2, "views": rows[f"pruned {eps}"]["vectors"], **rows[f"pruned {eps}"]}
            for eps in self._options.eps
        ]
        report["similarity"]["near_duplicates"] = [
            {"eps": row["eps"], "share": 1 - row["share"]} for row in report["pruned"]
        ]
        whole, other = table.ranks[:, 0], table.ranks[:, found[single]]
        gains = [Gain(k, *gain(whole, other, k, self._options.seed)) for k in cutoffs]
        report["one_vector"]["gain"] = {
            f"R@{one.k}": {"value": one.value, "low": one.low, "high": one.high} for one in gains
        }
        return gains

    def _measure(self, report: dict[str, Any], pool: Pool, asking: Asking, table: RankTable) -> None:
        """Nothing; the report has the sections about each question's wanted document."""
        is_found = table.places[:, 0] != NOT_FOUND
        places = table.places[is_found, 0]
        vectors = vectors_of(asking.answered)[is_found]
        pairs = _pair_scores(pool, vectors, places)
        winners = pairs.winners
        several = pairs.counts > 1
        rows, slots = np.full((2, len(asking.answered)), -1, dtype=np.int64)
        rows[is_found], slots[is_found] = pool.doc_rows[places], winners
        report["hardest"] = passages.hardest(self._index, asking.answered, table.ranks[:, 0])
        if not several.any():
            names = ("alone", "one_vector", "kept", "pruned", "local", "usage", "gradient", "maps")
            self._left_out |= dict.fromkeys(names, "no document that was asked for has two views")
            return
        report["local"] = _local(pairs.where(several), (places, winners), several, self._scale)
        report["usage"] = _usage(winners, pairs.counts)
        report["gradient"] = _gradient(pairs.where(several), self._scoring.temperature)
        report["maps"] = passages.maps(self._index, asking.answered, rows, slots)


class _Counter:
    """Counts what is done of one step and tells it on."""

    def __init__(self, on_progress: OnProgress, step: str, total: int) -> None:
        self._on_progress, self._step, self._total, self._done = on_progress, step, total, 0

    def __call__(self, done: int) -> None:
        self._done += done
        self._on_progress(self._step, self._done, self._total)


def _variants(views: tuple[int, bool], eps: Sequence[float]) -> list[Variant]:
    """The whole first, then what it is compared with; nothing where no document has two views."""
    most, is_unit = views
    if most == 1:
        return [variants.whole()]
    slots = [variants.alone(slot) for slot in range(min(most, MOST_SLOTS))]
    kept = [variants.most_different(number) for number in range(1, min(most, _MOST_KEPT) + 1)]
    mean = MeanView("the mean of the views", is_unit)
    return [variants.whole(), mean, *slots, *kept, *(variants.pruned(one) for one in eps)]


def _pair_scores(pool: Pool, vectors: Floats, places: Ints) -> measures.PairScores:
    """The view scores of each question's document. vectors: (m, d); places: (m,) in the pool."""
    counts = pool.counts[places]
    starts = np.append(0, np.cumsum(counts))
    scores: Doubles = np.empty(int(starts[-1]))
    begin = 0
    while begin < len(places):
        end = max(begin + 1, int(np.searchsorted(starts, starts[begin] + _PAIR_VIEWS, side="right")) - 1)
        packed, _ = pool.views.fetch(pool.doc_rows[places[begin:end]])
        asked = np.repeat(vectors[begin:end], counts[begin:end], axis=0).astype(np.float64)
        scores[starts[begin] : starts[end]] = np.einsum("rd,rd->r", decode(packed).astype(np.float64), asked)
        begin = end
    return measures.PairScores(scores, starts)


def _local(
    pairs: measures.PairScores, won: tuple[Ints, Ints], several: np.ndarray[Any, np.dtype[np.bool_]], scale: float
) -> dict[str, Any]:
    places, winners = won
    gaps = measures.margins(pairs)
    spread = {f"p{share}": float(np.quantile(gaps, share / 100)) for share in (10, 50, 90)}
    return {
        "pairs": len(pairs),
        "lv": float(np.mean(measures.local_variations(pairs, scale))),
        "ppl": float(np.mean(measures.perplexities(places[several], winners[several]))),
        "margin": {"mean": float(np.mean(gaps)), **spread},
    }


def _usage(winners: Ints, counts: Ints) -> list[dict[str, Any]]:
    """By slot: the share of questions whose document's best view it was, and of those whose document has it."""
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
