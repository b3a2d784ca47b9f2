"""Tuning of an index: what its engine, its pruning and hybrid search are measured by, and the choice that is kept."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager

from mvindex.engines.build import Told
from mvindex.engines.protocol import Search
from mvindex.errors import QueryError, Unsupported
from mvindex.index.hybrid import Questions
from mvindex.index.options import Asked, Vector, as_vectors, asked, question_texts
from mvindex.index.searchable import Searchable
from mvindex.scoring.aggregate import Scoring
from mvindex.scoring.fusion import Mode, parse_fusion
from mvindex.search import Part
from mvindex.store.embedded import EmbeddedStore
from mvindex.tuning import (
    FusionReport,
    Judged,
    PruneReport,
    TuneReport,
    checked_budget,
    checked_judgements,
    checked_target,
    tune_fusion,
    tune_pruning,
    tune_search,
)


class Tunable(Searchable):
    """What Index is tuned by; its subclasses say what is measured and where a choice is kept."""

    @abstractmethod
    def _stores(self) -> Collection[EmbeddedStore]:
        """All that documents are kept in here; none where something else keeps them."""

    @abstractmethod
    def _writing(self) -> AbstractContextManager[Collection[EmbeddedStore]]:
        """All stores, locked before the first is changed: where one is being written to, none is."""

    @abstractmethod
    def _tuned_parts(self, wanted: Asked) -> list[Part]:
        """What tune() and tune_pruning() measure."""

    @abstractmethod
    def _keep_search(self, search: Search) -> None:
        """Nothing; the active engine is searched so from now on."""

    @abstractmethod
    def _judged(self, questions: Questions, relevant: Sequence[Mapping[str, float]], wanted: Asked) -> Iterator[Judged]:
        """Of each question what fusion would order, and what that is worth."""

    def tune(
        self,
        queries: Vector | None = None,
        *,
        top_k: int = 10,
        target_recall: float = 0.97,
        on_progress: Told = lambda what, done, total: None,
    ) -> TuneReport:
        """What was measured; the active engine is searched as the fastest setting says that reaches the target.

        Every setting is measured against the exact answer: the share of its top_k documents that are found. queries:
        (q, d), best real ones, a hundred or more, of which 256 are taken by chance; None takes views of the index,
        which are easier to find than what people ask. Where none reaches the target nothing is changed (chosen is
        None). ConfigError for kinds that have nothing to tune.
        """
        target = checked_target(target_recall)
        wanted = asked(top_k, None, Scoring(), exact=False, candidates=None)
        given = None if queries is None else as_vectors(queries, self.dim)
        report = tune_search(self._tuned_parts(wanted), given, target, on_progress)
        if report.chosen is not None:
            self._keep_search(report.chosen.search)
        return report

    def tune_fusion(
        self,
        questions: Sequence[str],
        relevant: Sequence[Mapping[str, float]],
        *,
        vectors: Vector | None = None,
        top_k: int = 10,
        on_progress: Told = lambda what, done, total: None,
    ) -> FusionReport:
        """What was measured; hybrid search fuses as the best point says from now on, where that is a gain.

        relevant: of each question the documents that are worth something, id to gain (1.0, or a graded judgement).
        vectors: of the questions, (q, d), for an index without an encoder. Methods and weights are measured by nDCG at
        top_k; whether the best is a gain is judged by choices made without the question that they are measured on.
        ConfigError for fewer than 20 questions or one without a relevant document; Unsupported without a lexical side.
        """
        checked_judgements(questions, relevant)
        wanted = asked(top_k, None, Scoring(), exact=False, candidates=None)
        if not self._stores():
            raise Unsupported(f"{self.where}: only an index in a directory has a lexical side")
        texts, _ = question_texts(questions, None, Mode.HYBRID)
        found = self.encode_queries(texts) if vectors is None else as_vectors(vectors, self.dim)
        if len(found) != len(texts):
            raise QueryError(f"{len(found)} query vectors and {len(texts)} texts; wanted a text for each")
        judged = []
        for each in self._judged(Questions(texts, found, self.fusion), relevant, wanted):
            judged.append(each)
            on_progress("searching", len(judged), len(texts))
        report = tune_fusion(judged, top_k, self.fusion, on_progress)
        if report.chosen is not None:
            self.set_fusion(report.chosen.method, report.chosen.weights)
        return report

    def set_fusion(self, fusion: str | None, weights: tuple[float, float] | None = None) -> None:
        """Nothing; hybrid search fuses so unless a search says otherwise. None, None: as if it was never set."""
        is_usual = fusion is None and weights is None
        kept = None if is_usual else parse_fusion(fusion, weights).as_setting()
        with self._writing() as stores:
            for store in stores:
                store.change_settings(fusion=kept)

    def tune_pruning(
        self,
        queries: Vector | None = None,
        *,
        top_k: int = 10,
        budget: float = 0.01,
        on_progress: Told = lambda what, done, total: None,
    ) -> PruneReport:
        """How many near-duplicate views build(prune_views=) may leave out, if no more recall than the budget is lost.

        Recall is the share of the exact top_k documents by best view that the kept views alone would still find, at
        least. queries as for tune(). Nothing is changed: build with prune_views of the chosen point. ConfigError for a
        budget that is no share.
        """
        allowed_loss = checked_budget(budget)
        wanted = asked(top_k, None, Scoring(), exact=True, candidates=None)
        given = None if queries is None else as_vectors(queries, self.dim)
        return tune_pruning(self._tuned_parts(wanted), given, allowed_loss, on_progress)
