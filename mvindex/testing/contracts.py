"""Contract suites: the promises of every index and every ranking engine, to subclass."""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mvindex.corpus.text.citation import Citer
from mvindex.engines.protocol import OneOfShards, RankingEngine
from mvindex.errors import EncoderError, QueryError, Unsupported
from mvindex.index import IndexProtocol
from mvindex.records import Bools, Document, Floats, QueryGroup, Span, ViewSpans
from mvindex.search.request import FieldName
from mvindex.store.protocol import Operation
from mvindex.testing.asking import AskingContract, assert_same, brute_force, brute_force_group


class IndexContract(AskingContract):
    """The promises of every index, whatever stores and searches it.

    dim: of the views. is_exact: whether its results are those of brute force, and say so.
    """

    dim = 16
    is_exact = True

    def open_index(self, tmp_path: Path) -> IndexProtocol:
        """Create an empty index of given vectors with self.dim dims."""
        raise NotImplementedError

    def settle(self, index: IndexProtocol) -> None:
        """Prepare for searches; called after writes and before searches: build an engine here."""

    @pytest.fixture
    def index(self, tmp_path: Path) -> Iterator[IndexProtocol]:
        """Yield the index under test."""
        with self.open_index(tmp_path) as index:
            yield index

    @pytest.fixture
    def rng(self) -> np.random.Generator:
        """Return a seeded generator."""
        return np.random.default_rng(7)

    def fill(
        self, index: IndexProtocol, views: Mapping[str, Floats], metadata: Mapping[str, Any] | None = None
    ) -> None:
        """Add one document per entry, whose text is its id."""
        documents = [
            Document(doc_id, f"text of {doc_id}", metadata=(metadata or {}).get(doc_id, {})) for doc_id in views
        ]
        index.add_views(documents, list(views.values()))
        self.settle(index)

    def check(
        self, index: IndexProtocol, views: Mapping[str, Floats], query: Floats, *top_ks: int, **options: Any
    ) -> None:
        """Check that each search returns what brute force does (approximate: as many, distinct, rightly scored).

        What says that it is exact is brute force's, whatever was asked.
        """
        asked = {name: options[name] for name in ("scoring", "temperature") if name in options}
        truth = brute_force(views, query, len(views), **asked)
        scores = {doc_id: score for doc_id, score, _ in truth}
        for top_k in top_ks:
            result = index.search(query, top_k=top_k, **options)
            assert result.exact or not (self.is_exact or options.get("exact")) or "candidates" in options
            if result.exact:
                assert_same(result, truth[:top_k])
                continue
            assert result.short_by == 0
            assert len({hit.id for hit in result.hits}) == len(result.hits) == min(top_k, len(views))
            assert [np.float32(hit.score) for hit in result.hits] == [scores[hit.id] for hit in result.hits]
            assert [hit.score for hit in result.hits] == sorted((hit.score for hit in result.hits), reverse=True)

    def test_ragged_views_give_the_brute_force_ranking(self, index: IndexProtocol, rng: np.random.Generator) -> None:
        views = random_views(rng, 300, self.dim)
        self.fill(index, views)
        for query in rng.standard_normal((5, self.dim)).astype(np.float32):
            self.check(index, views, query, 1, 10, 299, 300, 500)

    @pytest.mark.parametrize("crowd_views", [8, 16, 32])
    def test_crowded_documents_leave_no_query_short(
        self, index: IndexProtocol, rng: np.random.Generator, crowd_views: int
    ) -> None:
        """The views of ten documents all lie next to the query, as a naive over-fetch never expects."""
        query = unit(rng.standard_normal(self.dim))
        crowd = {f"c{n}": unit(query + 0.02 * rng.standard_normal((crowd_views, self.dim))) for n in range(10)}
        views = crowd | {f"r{n}": unit(rng.standard_normal((4, self.dim))) for n in range(200)}
        self.fill(index, views)
        self.check(index, views, query, 5, 10, 20, 50, 210)

    def test_exact_duplicates_are_ordered_by_ordinal(self, index: IndexProtocol, rng: np.random.Generator) -> None:
        same = unit(rng.standard_normal((3, self.dim)))
        other = unit(rng.standard_normal(self.dim))
        views = {f"d{n}": other[None] if n == 250 else same for n in range(700)}
        self.fill(index, views)
        self.check(index, views, same[1], 1, 7, 100, 500)

    def test_a_batch_gives_what_each_query_gives_alone(self, index: IndexProtocol, rng: np.random.Generator) -> None:
        views = random_views(rng, 200, self.dim)
        self.fill(index, views)
        queries = rng.standard_normal((70, self.dim)).astype(np.float32)
        if not self.is_exact:
            pytest.skip("an approximate engine may answer a batch by another path through its graph")
        together = index.search(queries, top_k=10)
        assert together == [index.search(query, top_k=10) for query in queries]

    @pytest.mark.parametrize("combine", ["max", "sum", "mean"])
    @pytest.mark.parametrize("scoring", [{}, {"scoring": "drpq", "temperature": 0.3}], ids=["max", "drpq"])
    def test_a_query_group_gives_the_brute_force_ranking(
        self, index: IndexProtocol, rng: np.random.Generator, combine: str, scoring: dict[str, Any]
    ) -> None:
        views = random_views(rng, 300, self.dim)
        self.fill(index, views, {doc_id: {"number": number} for number, doc_id in enumerate(views)})
        group = QueryGroup(rng.standard_normal((3, self.dim)).astype(np.float32), combine)
        for condition, allowed in ((None, 300), ({"number": {"lt": 100}}, 100)):
            left = dict(islice(views.items(), allowed))
            truth = brute_force_group(left, group, **scoring)
            for top_k in (1, 10, allowed):
                result = index.search(group, top_k, condition, **scoring)
                assert result.exact or not self.is_exact
                if result.exact:
                    assert_same(result, truth[:top_k])
                assert len({hit.id for hit in result.hits}) == min(top_k, allowed)
                scores = {doc_id: score for doc_id, score, _ in truth}
                assert [np.float32(hit.score) for hit in result.hits] == [scores[hit.id] for hit in result.hits]

    def test_deleted_documents_never_come_back(self, index: IndexProtocol, rng: np.random.Generator) -> None:
        views = random_views(rng, 200, self.dim)
        self.fill(index, views)
        gone = [f"d{n}" for n in range(0, 200, 3)]
        assert index.delete(ids=[*gone, "not there"]) == len(gone)
        left = {doc_id: rows for doc_id, rows in views.items() if doc_id not in gone}
        assert len(index) == len(left)
        for query in rng.standard_normal((3, self.dim)).astype(np.float32):
            self.check(index, left, query, 20, 200)

    def test_only_all_deletes_everything(self, index: IndexProtocol, rng: np.random.Generator) -> None:
        self.fill(index, random_views(rng, 20, self.dim))
        always: list[dict[str, Any]] = [{}, {"and": []}, {"or": [{}, {"n": 1}]}, {"not": {"or": []}}]
        for condition in always:
            with pytest.raises(QueryError, match="all=True"):
                index.delete(filter=condition)
        for arguments in ({}, {"all": False}, {"ids": "d1", "all": True}, {"filter": {"n": 1}, "all": True}):
            with pytest.raises(QueryError):
                index.delete(**arguments)
        assert len(index) == 20
        assert index.delete(filter={"or": []}) == 0
        assert index.delete(all=True) == 20
        assert len(index) == 0

    def test_a_filter_is_never_short_of_what_it_allows(self, index: IndexProtocol, rng: np.random.Generator) -> None:
        views = random_views(rng, 300, self.dim)
        metadata = {doc_id: {"group": number % 50, "even": number % 2 == 0} for number, doc_id in enumerate(views)}
        self.fill(index, views, metadata)
        query = rng.standard_normal(self.dim).astype(np.float32)
        for condition, keep in (
            ({"group": 7}, lambda m: m["group"] == 7),
            ({"even": True}, lambda m: m["even"]),
            ({"group": {"gte": 48}}, lambda m: m["group"] >= 48),
            ({"group": -1}, lambda m: False),
        ):
            left = {doc_id: rows for doc_id, rows in views.items() if keep(metadata[doc_id])}
            self.check(index, left, query, 30, filter=condition)

    def test_a_filter_on_a_date_compares_texts_in_iso_8601_as_dates(self, index: IndexProtocol) -> None:
        dates = ["2024-04-30T23:30:00Z", "2024-05-01", "2024-05-01T00:30:00+02:00", "2024-05-01T23:59:59.9", "May 1", 5]
        metadata = {f"d{number}": {"date": date} for number, date in enumerate(dates)}
        metadata["d6"] = {"date": datetime.datetime(2024, 5, 2, tzinfo=datetime.timezone.utc)}
        self.fill(index, {doc_id: np.ones((1, self.dim), np.float32) for doc_id in metadata}, metadata)
        day = {"$date": "2024-05-01"}
        for condition, expected in (
            ({"date": {"eq": day}}, "d1 d3"),
            ({"date": datetime.date(2024, 5, 1)}, "d1 d3"),
            ({"date": {"lt": day}}, "d0 d2"),
            ({"date": {"lte": day}}, "d0 d1 d2 d3"),
            ({"date": {"gt": day}}, "d6"),
            ({"date": {"gte": datetime.datetime(2024, 5, 1, 2)}}, "d3 d6"),
            ({"date": {"in": [{"$date": "2024-04-30T23:30Z"}, "May 1"]}}, "d0 d4"),
            ({"not": {"date": {"gte": day}}}, "d0 d2 d4 d5"),
            # A text of a day is a date where values are ordered, else a text.
            ({"date": {"gte": "2024-05-01"}}, "d1 d3 d6"),
            ({"date": "2024-05-01"}, "d1"),
            ({"date": {"gte": "2024"}}, "d0 d1 d2 d3 d4 d6"),
        ):
            assert sorted(document.id for document in index.scan(condition)) == expected.split(), condition
            hits = index.search(np.ones(self.dim, np.float32), 10, condition).hits
            assert sorted(hit.id for hit in hits) == expected.split(), condition

    def test_a_filter_finds_lists_by_their_members(self, index: IndexProtocol) -> None:
        """Members compare as values do with eq; what is no list contains nothing."""
        lists = [["red", "blue"], ["red", 1, True], [1.0, "1"], [], "red", None, [["red"], {"red": 1}, None, False]]
        metadata: dict[str, dict[str, Any]] = {f"d{number}": {"m": {"n": each}} for number, each in enumerate(lists)}
        metadata["d7"] = {}
        self.fill(index, {doc_id: np.ones((1, self.dim), np.float32) for doc_id in metadata}, metadata)
        for operator, operand, expected in (
            ("contains", "red", "d0 d1"),
            ("contains", 1, "d1 d2"),
            ("contains", True, "d1"),
            ("contains", False, "d6"),
            ("contains", "1", "d2"),
            ("contains", "re", ""),
            ("contains_any", ["blue", 1], "d0 d1 d2"),
            ("contains_any", [], ""),
            ("contains_all", ["red", 1], "d1"),
            ("contains_all", ["blue", "green"], ""),
            ("contains_all", [], "d0 d1 d2 d3 d6"),
            ("$contains", "blue", "d0"),
        ):
            condition = {"m.n": {operator: operand}}
            assert sorted(document.id for document in index.scan(condition)) == expected.split(), condition
            hits = index.search(np.ones(self.dim, np.float32), 10, {"not": condition}).hits
            assert {hit.id for hit in hits} == metadata.keys() - set(expected.split()), condition
        assert index.delete(filter={"m.n": {"contains": "blue"}}) == 1

    def test_a_key_with_dots_wins_over_the_path(self, index: IndexProtocol) -> None:
        metadata: dict[str, dict[str, Any]] = {
            "d0": {"k.d": "v"},
            "d1": {"k": {"d": "v"}},
            "d2": {"k.d": "w", "k": {"d": "v"}},
            "d3": {"k.d": None, "k": {"d": "v"}},
            "d4": {"a": {"k.d": "v"}, "a.k": {"d": "w"}},
        }
        self.fill(index, {doc_id: np.ones((1, self.dim), np.float32) for doc_id in metadata}, metadata)
        for condition, expected in (
            ({"k.d": "v"}, "d0 d1"),
            ({"k.d": {"exists": False}}, "d3 d4"),
            ({"a.k.d": "w"}, "d4"),
            ({"a.k.d": "v"}, ""),
        ):
            assert sorted(document.id for document in index.scan(condition)) == expected.split(), condition

    def test_operators_of_other_databases_are_taken_by_their_plain_names(self, index: IndexProtocol) -> None:
        metadata = {f"d{number}": {"n": number} for number in range(4)}
        self.fill(index, {doc_id: np.ones((1, self.dim), np.float32) for doc_id in metadata}, metadata)
        for condition, expected in (
            ({"$and": [{"n": {"$gte": 1}}, {"n": {"$lt": 3}}]}, "d1 d2"),
            ({"$or": [{"n": {"$eq": 0}}, {"$not": {"n": {"$lte": 2}}}]}, "d0 d3"),
            ({"n": {"$in": [0, 9], "$ne": 1}}, "d0"),
            ({"n": {"$nin": [0], "$gt": 1, "$exists": True}}, "d2 d3"),
        ):
            assert sorted(document.id for document in index.scan(condition)) == expected.split(), condition
        always: list[dict[str, Any]] = [{"$and": []}, {"$not": {"$or": []}}, {"n": {"$nin": []}}]
        for condition in always:
            with pytest.raises(QueryError, match="all=True"):
                index.delete(filter=condition)
        for wrong, nearest in (
            ({"$nor": []}, "'or'"),
            ({"n": {"$gtr": 1}}, "'gt'"),
            ({"n": {"exist": True}}, "'exists'"),
        ):
            with pytest.raises(QueryError, match=f"the nearest is {nearest}"):
                list(index.scan(wrong))

    def test_an_id_is_compared_with_strings_only(self, index: IndexProtocol) -> None:
        self.fill(index, {"0": np.ones((1, self.dim), np.float32)})
        for operator in ("eq", "ne", "in", "nin", "lt", "lte", "gt", "gte"):
            for wrong in (0, 1.5, True, None, np.int64(0)):
                condition = {"id": {operator: ["0", wrong] if operator in ("in", "nin") else wrong}}
                with pytest.raises(QueryError, match="'id': expected a string"):
                    list(index.scan(condition))
        with pytest.raises(QueryError, match="Ids are strings: write '0'"):
            index.search(np.ones(self.dim, np.float32), 10, {"id": 0})
        with pytest.raises(QueryError, match="'id': contains: expected a field of lists"):
            index.delete(filter={"id": {"contains": "0"}})
        assert len(index) == 1

    def test_scalars_of_numpy_are_numbers_and_strings(self, index: IndexProtocol) -> None:
        metadata: dict[str, dict[str, Any]] = {
            "d0": {"n": np.int64(1), "x": np.float32(0.5), "is": np.bool_(True), "tags": np.array([1, 2])},
            "d1": {"n": 2, "s": np.str_("a"), "day": np.datetime64("2024-05-01T12:30:00.000000001")},
        }
        self.fill(index, {doc_id: np.ones((1, self.dim), np.float32) for doc_id in metadata}, metadata)
        documents = index.get(["d0", "d1"])
        assert [document.metadata for document in documents] == [
            {"n": 1, "x": 0.5, "is": True, "tags": [1, 2]},
            {"n": 2, "s": "a", "day": "2024-05-01T12:30:00"},
        ]
        for condition, expected in (
            ({"n": np.uint8(1)}, "d0"),
            ({"n": {"in": np.array([2, 3])}}, "d1"),
            ({"x": {"lt": np.float64(1)}, "is": np.bool_(True)}, "d0"),
            ({"tags": {"contains": np.int32(2)}}, "d0"),
            ({"day": {"gte": np.datetime64("2024-05-01", "ns")}, "id": np.str_("d1")}, "d1"),
        ):
            top_k: Any = np.int64(5)
            hits = index.search(np.ones(self.dim, np.float32), top_k=top_k, filter=condition).hits
            assert [hit.id for hit in hits] == expected.split(), condition
            assert [document.id for document in index.scan(condition, limit=top_k)] == expected.split()

    def test_documents_added_since_the_build_are_found(self, index: IndexProtocol, rng: np.random.Generator) -> None:
        views = random_views(rng, 150, self.dim)
        self.fill(index, views)
        fresh = {f"new{n}": unit(rng.standard_normal((2, self.dim))) for n in range(40)}
        index.add_views([Document(doc_id, doc_id) for doc_id in fresh], list(fresh.values()))
        query = fresh["new3"][1]
        self.check(index, views | fresh, query, 1, 60)

    def test_a_replaced_document_keeps_its_place_and_shows_its_new_views(
        self, index: IndexProtocol, rng: np.random.Generator
    ) -> None:
        views = random_views(rng, 50, self.dim)
        self.fill(index, views)
        same = views["d0"]
        report = index.add_views([Document("d0", "new text"), Document("d9", "also new")], [same, same])
        assert (report.added, report.replaced) == (0, 2)
        assert len(index) == 50
        self.check(index, views | {"d9": same}, same[0], 50)
        found = index.get("d9")
        assert found is not None and found.text == "also new"

    @pytest.mark.parametrize("temperature", [0.01, 0.3, 10.0])
    def test_drpq_gives_the_brute_force_ranking(
        self, index: IndexProtocol, rng: np.random.Generator, temperature: float
    ) -> None:
        views = random_views(rng, 200, self.dim)
        self.fill(index, views)
        for query in rng.standard_normal((2, self.dim)).astype(np.float32):
            self.check(index, views, query, 1, 10, 199, 200, 500, scoring="drpq", temperature=temperature)
            self.check(index, views, query, 10, scoring="drpq", temperature=temperature, exact=True)

    def test_drpq_takes_the_temperature_of_the_index_unless_told(
        self, index: IndexProtocol, rng: np.random.Generator
    ) -> None:
        views = random_views(rng, 100, self.dim)
        self.fill(index, views)
        query = rng.standard_normal(self.dim).astype(np.float32)
        told = index.search(query, scoring="drpq", temperature=index.temperature)
        assert index.search(query, scoring="drpq") == told
        assert index.search(query, scoring="drpq", temperature=3) == index.search(
            query, scoring="drpq", temperature=3.0
        )

    @pytest.mark.parametrize("temperature", [0.01, 1.0])
    def test_drpq_sees_past_a_crowd_whose_mean_is_low(
        self, index: IndexProtocol, rng: np.random.Generator, temperature: float
    ) -> None:
        """Each document of the crowd has many views next to the query, and one far from it that pulls its mean down."""
        query = unit(rng.standard_normal(self.dim))
        near = unit(query + 0.02 * rng.standard_normal((10, 16, self.dim)))
        crowd = {f"c{n}": np.concatenate([rows, -3 * rows[:8]]) for n, rows in enumerate(near)}
        views = crowd | {f"r{n}": unit(rng.standard_normal((4, self.dim))) for n in range(150)}
        self.fill(index, views)
        self.check(index, views, query, 1, 5, 20, 160, scoring="drpq", temperature=temperature)

    def test_drpq_orders_exact_duplicates_by_ordinal(self, index: IndexProtocol, rng: np.random.Generator) -> None:
        """The mean of the same views is the same in any order of the views."""
        same = unit(rng.standard_normal((4, self.dim)))
        views = {f"d{n}": same[rng.permutation(4)] for n in range(150)}
        self.fill(index, views)
        self.check(index, views, same[1], 1, 7, 100, scoring="drpq", temperature=0.3)

    def test_drpq_obeys_filters_deletions_and_sees_fresh_documents(
        self, index: IndexProtocol, rng: np.random.Generator
    ) -> None:
        views = random_views(rng, 200, self.dim)
        metadata = {doc_id: {"even": number % 2 == 0} for number, doc_id in enumerate(views)}
        self.fill(index, views, metadata)
        fresh = {f"new{n}": unit(rng.standard_normal((3, self.dim))) for n in range(30)}
        index.add_views([Document(doc_id, doc_id, metadata={"even": True}) for doc_id in fresh], list(fresh.values()))
        gone = [f"d{n}" for n in range(0, 200, 3)]
        index.delete(ids=gone)
        left = {doc_id: rows for doc_id, rows in (views | fresh).items() if doc_id not in gone}
        even = {doc_id: rows for doc_id, rows in left.items() if doc_id in fresh or metadata[doc_id]["even"]}
        for query in (fresh["new3"][1], views["d1"][0]):
            self.check(index, left, query, 1, 20, 300, scoring="drpq", temperature=0.2)
            self.check(index, even, query, 1, 20, 300, scoring="drpq", temperature=0.2, filter={"even": True})

    def test_a_batch_by_drpq_gives_what_each_query_gives_alone(
        self, index: IndexProtocol, rng: np.random.Generator
    ) -> None:
        if not self.is_exact:
            pytest.skip("an approximate engine may answer a batch by another path through its graph")
        views = random_views(rng, 150, self.dim)
        self.fill(index, views)
        queries = rng.standard_normal((24, self.dim)).astype(np.float32)
        for candidates in (None, 30):
            together = index.search(queries, 10, scoring="drpq", candidates=candidates)
            alone = [index.search(query, 10, scoring="drpq", candidates=candidates) for query in queries]
            assert together == alone

    def test_a_fixed_depth_gives_as_many_documents_and_claims_only_what_is_proven(
        self, index: IndexProtocol, rng: np.random.Generator
    ) -> None:
        views = random_views(rng, 120, self.dim)
        self.fill(index, views)
        for query in rng.standard_normal((2, self.dim)).astype(np.float32):
            for candidates in (1, 10, 100, 10**20):
                self.check(index, views, query, 1, 15, 120, 200, scoring="drpq", candidates=candidates)
            if self.is_exact:
                assert index.search(query, scoring="drpq", candidates=10**20).exact

    def test_an_explanation_adds_up_to_the_score(self, index: IndexProtocol, rng: np.random.Generator) -> None:
        views = random_views(rng, 30, self.dim)
        self.fill(index, views)
        query = rng.standard_normal(self.dim).astype(np.float32)
        hits = index.search(query, top_k=30, scoring="drpq", temperature=0.5).hits
        ids = [hit.id for hit in hits]
        together = index.explain_all(query, [*ids, "not there", ids[0]], "drpq", temperature=0.5)
        assert list(together) == ids
        for hit in hits:
            parts = index.explain(query, hit.id, "drpq", temperature=0.5)
            assert parts == together[hit.id]
            assert sum(part.weight for part in parts) == pytest.approx(1)
            assert parts[0].slot == hit.slot
            mean = sum(part.weight * part.score for part in parts)
            assert mean == pytest.approx(hit.score, abs=1e-5 * max(abs(part.score) for part in parts))

    def test_wrong_words_about_drpq_are_refused(self, index: IndexProtocol, rng: np.random.Generator) -> None:
        self.fill(index, random_views(rng, 5, self.dim))
        good = np.ones(self.dim, dtype=np.float32)
        for temperature in (0, -1.0, np.nan, np.inf, "1", True, 10**400):
            with pytest.raises(QueryError, match="temperature"):
                index.search(good, scoring="drpq", temperature=temperature)  # type: ignore[call-overload]  # wrong on purpose
            with pytest.raises(QueryError, match="temperature"):
                index.explain(good, "d0", "drpq", temperature=temperature)  # type: ignore[arg-type]  # wrong on purpose
        for candidates in (0, -1, 1.5, True, "5"):
            with pytest.raises(QueryError, match="candidates"):
                index.search(good, scoring="drpq", candidates=candidates)  # type: ignore[call-overload]  # wrong on purpose
        wrong: list[dict[str, Any]] = [{"temperature": 1.0}, {"candidates": 5}]
        for options in wrong:
            with pytest.raises(QueryError, match="drpq"):
                index.search(good, **options)
        with pytest.raises(QueryError, match="exact"):
            index.search(good, scoring="drpq", exact=True, candidates=5)

    def test_exact_search_is_certified_whatever_the_kind(self, index: IndexProtocol, rng: np.random.Generator) -> None:
        views = random_views(rng, 200, self.dim)
        self.fill(index, views)
        self.check(index, views, rng.standard_normal(self.dim).astype(np.float32), 25, exact=True)

    def test_an_empty_index_answers_with_nothing(self, index: IndexProtocol) -> None:
        result = index.search(np.ones(self.dim, dtype=np.float32), top_k=5)
        assert (result.hits, result.short_by, result.exact) == ((), 0, True)

    def test_adding_the_same_again_changes_nothing(self, index: IndexProtocol, rng: np.random.Generator) -> None:
        views = random_views(rng, 20, self.dim)
        self.fill(index, views)
        documents = [Document(doc_id, f"text of {doc_id}") for doc_id in views]
        report = index.add_views(documents, list(views.values()))
        assert (report.added, report.replaced, report.unchanged) == (0, 0, 20)

    @pytest.mark.parametrize("form", ["lists", "flat", "array"])
    def test_given_spans_are_stored_and_cited(self, index: IndexProtocol, rng: np.random.Generator, form: str) -> None:
        """Each hit shows the characters of the view that won; the same spans again change nothing, others do."""
        chunks = [[f"chunk {slot} of {number}." for slot in range(3)] for number in range(8)]
        documents = [Document(f"d{number}", "\n\n".join(own)) for number, own in enumerate(chunks)]
        # Every chunk of a document is as long.
        pairs: list[list[Span]] = [[(slot * 15, slot * 15 + 13) for slot in range(3)]] * 8
        views = unit(rng.standard_normal((8, 3, self.dim)))
        forms: dict[str, ViewSpans] = {"lists": pairs, "flat": np.array(pairs).reshape(-1, 2), "array": np.array(pairs)}
        assert index.add_views(documents, views, spans=forms[form]).added == 8
        self.settle(index)
        for query in unit(rng.standard_normal((5, self.dim))):
            hits = index.search(query, top_k=8).hits
            cited = [(hit.span, hit.snippet) for hit in hits]
            assert cited == [(pairs[n][hit.slot], chunks[n][hit.slot]) for hit in hits for n in [int(hit.id[1:])]]
        assert index.add_views(documents, views, spans=forms[form]).unchanged == 8
        others = [None, [None, (0, 5), None], *pairs[2:]]
        assert index.add_views(documents, views, spans=others).replaced == 2
        self.settle(index)
        for query in views[1]:
            found = {hit.id: (hit.slot, hit.snippet) for hit in index.search(query, top_k=8).hits}
            assert found["d0"][1] is None and found["d1"][1] == ("chunk" if found["d1"][0] == 1 else None)

    @pytest.mark.parametrize(
        ("spans", "message"),
        [
            ([[(0, 5), (0, 6)]] * 2, "'d0'.*view 1: expected 0 <= begin < end <= 5"),
            ([[(0, 5), (3, 3)]] * 2, "'d0'.*view 1: .* got 3 and 3"),
            ([[(0, 5), (-1, 3)]] * 2, "'d0'.*view 1: .* got -1 and 3"),
            ([[(0, 5), (0, 5)], [(0, 5)]], "'d1'.*expected 2 spans.* got 1"),
            ([[(0, 5), (0, 5)]], "expected a list for each of 2 documents, got 1"),
            (np.zeros((3, 2), dtype=np.int64), "expected 4, one for each view, got 3"),
            (np.zeros((4, 2)), "expected integers of shape"),
            ([[(0.5, 5), (0, 5)]] * 2, "'d0': spans: expected pairs of whole numbers"),
            ([[0, 5], [0, 5]], "'d0': spans: expected pairs"),
            ("spans", "spans: expected an array or pairs"),
        ],
    )
    def test_spans_that_do_not_fit_are_refused_and_nothing_is_stored(
        self, index: IndexProtocol, rng: np.random.Generator, spans: Any, message: str
    ) -> None:
        documents = [Document(f"d{n}", "hello") for n in range(2)]
        with pytest.raises(EncoderError, match=message):
            index.add_views(documents, unit(rng.standard_normal((2, 2, self.dim))), spans=spans)
        assert len(index) == 0

    def test_metadata_is_replaced_without_touching_the_rest(
        self, index: IndexProtocol, rng: np.random.Generator
    ) -> None:
        views = random_views(rng, 20, self.dim)
        self.fill(index, views)
        index.update("d3", metadata={"lang": "de"})
        self.check(index, {"d3": views["d3"]}, views["d3"][0], 5, filter={"lang": "de"})
        found = index.get("d3")
        assert found is not None and found.metadata == {"lang": "de"} and found.text == "text of d3"

    @pytest.mark.parametrize("fields", [(), ("text",), ("title",), ("metadata",), ("text", "title", "metadata")])
    def test_hits_carry_the_fields_that_are_asked_for(
        self, index: IndexProtocol, rng: np.random.Generator, fields: tuple[FieldName, ...]
    ) -> None:
        """The same hits; what is left out is empty."""
        documents = [Document(f"d{n}", f"text {n}", f"title {n}", {"n": n}) for n in range(4)]
        index.add_views(documents, list(unit(rng.standard_normal((4, 2, self.dim)))))
        self.settle(index)
        query = unit(rng.standard_normal(self.dim))
        whole, found = index.search(query, top_k=3), index.search(query, top_k=3, fields=fields)
        assert [(hit.id, hit.score, hit.slot) for hit in found.hits] == [
            (hit.id, hit.score, hit.slot) for hit in whole.hits
        ]
        for hit, full in zip(found.hits, whole.hits, strict=True):
            assert hit.text == (full.text if "text" in fields else "")
            assert hit.title == (full.title if "title" in fields else "")
            assert hit.metadata == (full.metadata if "metadata" in fields else {})
            assert (hit.span, hit.snippet) == ((full.span, full.snippet) if "text" in fields else (None, None))

    def test_hits_cite_for_the_text_of_a_query(self, index: IndexProtocol, rng: np.random.Generator) -> None:
        texts = ["Cats sleep all day. Dogs bark at night.", "Rain fell in May. Dogs sleep.", "Nothing else."]
        documents = [Document(f"d{n}", text, "animals") for n, text in enumerate(texts)]
        index.add_views(documents, list(unit(rng.standard_normal((3, 2, self.dim)))))
        self.settle(index)
        query, question = unit(rng.standard_normal(self.dim)), "when do dogs bark"
        assert all(hit.citation is None for hit in index.search(query).hits)
        for result in (index.search(query, text=question), *index.search(query[None], text=[question])):
            # Given views stand for no part of a text, so that terms decide.
            cited = {hit.id: hit.citation for hit in result.hits}
            assert cited == {one.id: Citer(question).cite(one.text, one.title) for one in documents}
            assert all(hit.snippet == hit.citation.text for hit in result.hits)
        assert all(hit.citation is None for hit in index.search(query, text=question, fields=["title"]).hits)

    def test_several_documents_come_in_the_order_of_their_ids(
        self, index: IndexProtocol, rng: np.random.Generator
    ) -> None:
        self.fill(index, random_views(rng, 30, self.dim))
        found = index.get(iter(["d7", "not there", "d2", "d7", "d29"]))
        assert [(document.id, document.text) for document in found] == [
            (doc_id, f"text of {doc_id}") for doc_id in ("d7", "d2", "d29")
        ]
        assert found[1] == index.get("d2") and index.get("not there") is None
        assert index.get(["not there"]) == index.get([]) == []

    def test_a_scan_yields_documents_as_they_were_first_added(
        self, index: IndexProtocol, rng: np.random.Generator
    ) -> None:
        views = random_views(rng, 30, self.dim)
        self.fill(index, views, {doc_id: {"n": number} for number, doc_id in enumerate(views)})
        again = [Document("d3", "new text", metadata={"n": 3}), Document("late", "text", metadata={"n": 30})]
        index.add_views(again, [views["d0"], views["d1"]])
        index.update("d4", metadata={"n": 4, "changed": True})
        index.delete(ids="d5")
        ids = [*(doc_id for doc_id in views if doc_id != "d5"), "late"]
        documents = list(index.scan())
        assert [document.id for document in documents] == ids
        assert documents == list(index) == index.get(ids)
        assert documents[3].text == "new text" and documents[4].metadata == {"n": 4, "changed": True}

    def test_the_views_of_a_document_are_those_that_were_added(
        self, index: IndexProtocol, rng: np.random.Generator
    ) -> None:
        views = random_views(rng, 20, self.dim)
        self.fill(index, views)
        if not index.capabilities.supports(Operation.TRANSFER):
            with pytest.raises(Unsupported):
                index.views("d3")
            return
        stored = index.views("d3")
        assert (stored.id, len(stored), stored.vectors.dtype.name) == ("d3", len(views["d3"]), "float32")
        np.testing.assert_allclose(stored.vectors, views["d3"], rtol=1e-3, atol=1e-3)
        none = [None] * len(stored)
        assert list(stored.spans) == none
        assert list(stored.snippets) == none
        assert list(index.views(["d9", "not there", "d3", "d9"])) == ["d9", "d3"]
        assert index.views([]) == {}
        with pytest.raises(QueryError, match="not there"):
            index.views("not there")

    def test_an_arrow_stream_has_every_document_in_its_order(
        self, index: IndexProtocol, rng: np.random.Generator
    ) -> None:
        pytest.importorskip("pyarrow")
        views = random_views(rng, 1100, self.dim)
        self.fill(index, views, {"d7": {"lang": "en", "größe": 1}})
        index.delete(ids=["d0", "d8"])
        with index.to_arrow() as reader:
            batches = list(reader)
        assert len(batches) > 1
        rows = [row for batch in batches for row in batch.to_pylist()]
        assert [row["id"] for row in rows] == [doc_id for doc_id in views if doc_id not in ("d0", "d8")]
        assert rows[6] == {"id": "d7", "title": "", "text": "text of d7", "metadata": '{"größe":1,"lang":"en"}'}
        assert index.to_arrow({"lang": "en"}).read_all().column("id").to_pylist() == ["d7"]
        assert index.to_arrow({"lang": "de"}).read_all().num_rows == 0
        if not index.capabilities.supports(Operation.TRANSFER):
            with pytest.raises(Unsupported):
                index.to_arrow(views=True)
            return
        table = index.to_arrow({"id": {"in": ["d7", "d1000"]}}, views=True).read_all()
        assert [len(vectors) for vectors in table.column("vectors").to_pylist()] == [
            len(views["d7"]),
            len(views["d1000"]),
        ]
        np.testing.assert_allclose(table.column("vectors")[1].as_py(), views["d1000"], rtol=1e-3, atol=1e-3)
        assert table.column("spans")[0].as_py() == [None] * len(views["d7"])

    def test_pages_of_a_scan_neither_skip_nor_repeat_documents(
        self, index: IndexProtocol, rng: np.random.Generator
    ) -> None:
        views = random_views(rng, 30, self.dim)
        self.fill(index, views, {doc_id: {"odd": number % 2 == 1} for number, doc_id in enumerate(views)})
        for condition, expected in ((None, list(views)), ({"odd": True}, list(views)[1::2])):
            seen: list[str] = []
            while page := list(index.scan(condition, limit=7, after=seen[-1] if seen else None)):
                assert len(page) <= 7
                seen += [document.id for document in page]
                # A document that is replaced between two pages keeps its place.
                index.add_views([Document("d2", f"text {len(seen)}")], [views["d0"]])
            assert seen == expected
        # The place to go on after need not match the filter.
        assert [document.id for document in index.scan({"odd": True}, 2, "d10")] == ["d11", "d13"]
        assert [document.id for document in index.scan(limit=100, after="d28")] == ["d29"]
        assert list(index.scan(after="d29")) == []

    def test_a_wrong_scan_is_refused(self, index: IndexProtocol, rng: np.random.Generator) -> None:
        self.fill(index, random_views(rng, 5, self.dim))
        with pytest.raises(QueryError, match="not there"):
            list(index.scan(after="not there"))
        for limit in (0, -1, 1.5, True):
            with pytest.raises(QueryError, match="limit"):
                list(index.scan(limit=limit))  # type: ignore[arg-type]  # wrong on purpose
        with pytest.raises(QueryError, match="nearly"):
            list(index.scan({"n": {"nearly": 1}}))

    def test_a_wrong_query_is_refused(self, index: IndexProtocol, rng: np.random.Generator) -> None:
        self.fill(index, random_views(rng, 5, self.dim))
        good = np.ones(self.dim, dtype=np.float32)
        for bad in (good[:-1], good * np.nan, good * np.inf, "a text", good.reshape(1, 1, -1)):
            with pytest.raises(QueryError):
                index.search(bad)
        for top_k in (0, -1, 1.5, True, None):
            with pytest.raises(QueryError, match="top_k"):
                index.search(good, top_k=top_k)  # type: ignore[arg-type]  # wrong on purpose
        with pytest.raises(QueryError, match="scoring"):
            index.search(good, scoring="mean")  # type: ignore[call-overload]  # wrong on purpose
        with pytest.raises(QueryError, match="mode"):
            index.search(good, mode="fuzzy")  # type: ignore[call-overload]  # wrong on purpose
        with pytest.raises(TypeError):
            index.search(good, k=3)  # type: ignore[call-overload]  # wrong on purpose

    def test_an_index_without_terms_refuses_to_search_them(
        self, index: IndexProtocol, rng: np.random.Generator
    ) -> None:
        self.fill(index, random_views(rng, 5, self.dim))
        with pytest.raises(Unsupported, match="lexical"):
            index.search("text", mode="lexical")
        with pytest.raises(Unsupported, match="lexical"):
            index.search(np.ones(self.dim, dtype=np.float32), mode="hybrid", text="text")

    def test_without_terms_auto_is_dense_and_says_so(self, index: IndexProtocol, rng: np.random.Generator) -> None:
        self.fill(index, random_views(rng, 5, self.dim))
        query = np.ones(self.dim, dtype=np.float32)
        assert index.search(query).mode == "dense"
        found, dense = index.search(query, text="text"), index.search(query, text="text", mode="dense")
        assert found == dense
        assert found.mode == "dense"
        assert not any(hit.components for hit in found.hits)


class EngineContract:
    """The promises of every ranking engine: falling scores, rows that exist, -inf and -1 as padding, masks obeyed."""

    dim = 24
    is_exact = True

    def build(self, views: Floats, tmp_path: Path) -> RankingEngine:
        """Build the engine over these view rows, (r, dim), each a document of its own."""
        raise NotImplementedError

    @pytest.fixture
    def views(self) -> Floats:
        """View rows as fp16 holds them."""
        return unit(np.random.default_rng(3).standard_normal((400, self.dim))).astype(np.float16).astype(np.float32)

    def test_scores_fall_and_belong_to_their_rows(self, views: Floats, tmp_path: Path) -> None:
        engine = self.build(views, tmp_path)
        queries = unit(np.random.default_rng(4).standard_normal((6, self.dim)))
        scores, rows = engine.search(queries, 50, None)
        assert scores.shape == rows.shape == (6, 50)
        assert (np.diff(scores, axis=1) <= 0).all()
        true = np.take_along_axis(queries @ views.T, rows, axis=1)
        assert np.abs(scores - true).max() <= max(engine.error(queries).max(), 1e-6)

    def test_one_of_several_shards_returns_its_share(self, views: Floats, tmp_path: Path) -> None:
        engine = self.build(views, tmp_path)
        if engine.capabilities.is_exact:
            pytest.skip("the engine is exact: it is not searched for a share")
        queries = unit(np.random.default_rng(4).standard_normal((6, self.dim)))
        scores, rows = engine.search(queries, 50, None, 0, OneOfShards(10, {}))
        assert scores.shape == rows.shape == (6, 10)
        whole, _ = engine.search(queries, 50, None)
        assert scores.sum() >= 0.9 * whole[:, :10].sum()

    def test_an_exact_ranking_is_that_of_all_rows(self, views: Floats, tmp_path: Path) -> None:
        engine = self.build(views, tmp_path)
        if not engine.capabilities.is_exact:
            pytest.skip("the engine is approximate: EngineCapabilities(is_exact=False)")
        queries = unit(np.random.default_rng(5).standard_normal((6, self.dim)))
        _, rows = engine.search(queries, 400, None)
        assert (np.sort(rows, axis=1) == np.arange(400)).all()

    def test_a_mask_is_obeyed_and_padding_is_marked(self, views: Floats, tmp_path: Path) -> None:
        engine = self.build(views, tmp_path)
        if not engine.capabilities.can_filter:
            pytest.skip("the engine takes no mask: EngineCapabilities(can_filter=False)")
        allowed: Bools = np.zeros(400, dtype=bool)
        allowed[[3, 50, 399]] = True
        scores, rows = engine.search(views[:2], 10, allowed)
        assert set(rows[rows >= 0].tolist()) <= {3, 50, 399}
        assert (scores[rows < 0] == -np.inf).all()


def random_views(rng: np.random.Generator, count: int, dim: int) -> dict[str, Floats]:
    """Return random views of documents d0 to dN, 1 to 8 each, of norms from .1 to 10."""
    sizes = rng.integers(1, 9, count)
    norms = 10.0 ** rng.uniform(-1, 1, count)
    return {f"d{n}": (unit(rng.standard_normal((sizes[n], dim))) * norms[n]).astype(np.float32) for n in range(count)}


def unit(vectors: Any) -> Floats:
    """Return the vectors with length 1, float32."""
    wide = np.asarray(vectors, dtype=np.float64)
    units: Floats = (wide / np.linalg.norm(wide, axis=-1, keepdims=True)).astype(np.float32)
    return units
