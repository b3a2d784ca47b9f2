"""The lexical side of an index in Milvus: made by default, added later, and counted right after failures."""

import json
import logging
import os
import threading
import time
from dataclasses import replace
from itertools import count

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from milvus_documents import fill, topical

import mvindex
from mvindex import Document
from mvindex.errors import DamagedIndex, IndexLocked, StaleReader, StoreError, Unsupported
from mvindex.index import store_of
from mvindex.records import ViewText
from mvindex.search.terms import Bm25
from mvindex.store.lexical.tokenizer import Lexical
from mvindex.testing import assert_alike, unit
from mvindex_connectors.milvus import term_counts, term_rows, term_search, writer
from mvindex_connectors.milvus.connection import Connection
from mvindex_connectors.milvus.layout import special_record
from mvindex_connectors.milvus.lease import Lease
from mvindex_connectors.milvus.term_rows import bound_ratio, split_texts
from tests.helpers.filter_strategies import conditions, rows

WORDS = "oil price crisis river city harbour winter embargo began in the of 1973 ISO 9660".split()


def text_of(number, version=0, length=12):
    rng = np.random.default_rng([number, version])
    return " ".join(WORDS[place] for place in np.minimum(rng.zipf(1.3, 1 + rng.integers(length)) - 1, len(WORDS) - 1))


def documents(numbers, version=0):
    return [Document(f"d{number}", text_of(number, version), metadata={"version": version}) for number in numbers]


def views(numbers, version=0):
    return [unit(np.random.default_rng([7, number, version]).standard_normal((2, 8))) for number in numbers]


def assert_as_embedded(index, folder, count=6):
    """Assert that searches by terms return what an index in a directory of what is stored returns."""
    stored = list(index)
    kept = index.views([document.id for document in stored])
    with mvindex.create(folder, dim=8, lexical="english") as same:
        same.add_views(stored, [kept[document.id].vectors for document in stored])
        for number in range(count):
            query, text = np.random.default_rng(number).standard_normal(8), text_of(number, 99)
            for mode in ("lexical", "hybrid"):
                options = {"text": text, "mode": mode, "top_k": 20}
                assert_alike(index.search(query, **options), same.search(query, **options), f"{mode} {text!r}")


def encode(texts):
    """Return vectors of texts: of their bytes, so that like texts have like vectors."""
    found = np.zeros((len(texts), 8), dtype=np.float32)
    for row, text in zip(found, texts, strict=True):
        np.add.at(row, np.frombuffer(text.encode(), np.uint8) % 8, 1)
    return found


class TestLite:
    pytestmark = pytest.mark.needs("milvus-lite")

    @pytest.fixture
    def place(self, tmp_path):
        return f"milvus-lite:{tmp_path / 'index.db'}"

    def test_hybrid_is_the_default_where_there_is_text(self, place, tmp_path):
        given_views = [
            Document(f"v{number}", text_of(number), view_texts=(text_of(number), "oil")) for number in range(9)
        ]
        told = [*documents(range(60)), *given_views, Document("s", "Oil rose.", view_texts=(ViewText("Oil", (0, 3)),))]
        with mvindex.create(place, encoder=encode) as index, mvindex.create(tmp_path / "s.mvx", encoder=encode) as same:
            for each in (index, same):
                each.add(told)
            assert index.info().lexical == same.info().lexical is not None
            for number in range(40):
                found, wanted = (each.search(text_of(number, 5)) for each in (index, same))
                assert found.mode == "hybrid"
                assert_alike(found, wanted, text_of(number, 5))

    def test_an_index_without_a_lexical_side_stays_dense_until_it_is_built(self, place, tmp_path):
        with mvindex.create(place, dim=8) as index:
            index.add_views(documents(range(50)), views(range(50)))
            assert (index.info().lexical, index.search(np.ones(8), text="oil").mode) == (None, "dense")
        with mvindex.open(place) as index:
            with pytest.raises(Unsupported, match="build --lexical"):
                index.search("oil", mode="lexical")
            index.admin.enable_lexical("english")
            assert index.search(np.ones(8), text="oil").mode == "hybrid"
            assert_as_embedded(index, tmp_path / "one.mvx")
            index.admin.disable_lexical()
            assert (index.info().lexical, index.search(np.ones(8), text="oil").mode) == (None, "dense")
            index.admin.enable_lexical("auto")
            assert index.search(np.ones(8), text="oil").mode == "hybrid"

    def test_an_older_writer_is_noticed(self, place, tmp_path):
        """It writes documents and settings, and knows nothing of terms."""
        with mvindex.create(place, dim=8, lexical="english") as index:
            index.add_views(documents(range(9)), views(range(9)))
            store = store_of(index)
            changed = {**store.settings, "version": store.settings["version"] + 1}
            from mvindex_connectors.milvus.collections import write_settings

            write_settings(store.connection, changed)
            index.refresh()
            with pytest.raises(StoreError, match="an older mvindex has written documents without their terms"):
                index.search("oil", mode="lexical")
            assert index.search(np.ones(8), mode="dense").hits
            with pytest.raises(StoreError, match="an older mvindex"):
                index.add_views(documents([9]), views([9]))
            # Other writes do not hide it.
            index.update("d1", metadata={"version": 0})
            with pytest.raises(StoreError, match="an older mvindex"):
                index.search("oil", mode="lexical")
            assert index.admin.rebuild_lexical_if_damaged()
            assert_as_embedded(index, tmp_path / "one.mvx")

    def test_a_reader_of_a_side_that_was_removed_says_so(self, place):
        with mvindex.create(place, dim=8, lexical="english") as index:
            index.add_views(documents(range(3)), views(range(3)))
            with mvindex.open(place) as other:
                index.admin.disable_lexical()
                with pytest.raises(StaleReader, match="removed"):
                    other.search("oil", mode="lexical")
                other.refresh()
                assert other.search(np.ones(8), text="oil").mode == "dense"

    def test_terms_come_along_to_and_from_a_directory(self, place, tmp_path):
        from mvindex.io.migrate import migrate

        with mvindex.create(tmp_path / "a.mvx", dim=8, lexical="english") as index:
            index.add_views(documents(range(40)), views(range(40)))
            index.admin.set_hybrid_weights("rrf", (1, 2), k1=0.9)
        migrate(tmp_path / "a.mvx", place)
        migrate(place, tmp_path / "b.mvx")
        with mvindex.open(tmp_path / "a.mvx") as a, mvindex.open(place) as b, mvindex.open(tmp_path / "b.mvx") as c:
            for number in range(8):
                query = np.random.default_rng(number).standard_normal(8)
                wanted = a.search(query, text=text_of(number, 3))
                assert wanted.hits[0].components
                for each in (b, c):
                    assert_alike(each.search(query, text=text_of(number, 3)), wanted, text_of(number, 3))

    def test_tuned_fusion_is_that_of_a_directory(self, place, tmp_path):
        reports = []
        for at in (place, tmp_path / "s.mvx"):
            with mvindex.create(at, dim=8, lexical="english") as index:
                index.add_views(documents(range(60)), views(range(60)))
                questions = [text_of(number, 4) for number in range(24)]
                relevant = [{f"d{number}": 1.0} for number in range(24)]
                vectors = np.random.default_rng(1).standard_normal((24, 8)).astype(np.float32)
                reports.append(index.admin.tune_fusion(questions, relevant, vectors=vectors))
        assert reports[0] == reports[1]

    def test_long_documents_take_several_rows(self, place, tmp_path):
        long = [Document(f"long{number}", " ".join(f"w{each}" for each in range(number, 9_000))) for number in (0, 5)]
        with mvindex.create(place, dim=8, lexical="english") as index:
            index.add_views([*documents(range(20)), *long], views(range(22)))
            for text in ("w0", "w8999 oil", "w4 w5 w6"):
                assert [hit.id for hit in index.search(text, mode="lexical").hits][0].startswith("long")
            assert_as_embedded(index, tmp_path / "one.mvx")
            index.delete(ids="long0")
            assert [hit.id for hit in index.search("w8999", mode="lexical").hits] == ["long5"]
            assert_as_embedded(index, tmp_path / "two.mvx")

    def test_more_matches_than_one_request_returns_are_found_by_ranges(self, place, tmp_path, monkeypatch):
        monkeypatch.setattr(term_search, "MAX_LIMIT", 16)
        monkeypatch.setattr(term_search, "_REGION", 8)
        with mvindex.create(place, dim=8, lexical="english") as index:
            index.add_views(documents(range(150)), views(range(150)))
            assert_as_embedded(index, tmp_path / "one.mvx")
            with mvindex.create(tmp_path / "s.mvx", dim=8, lexical="english") as same:
                same.add_views(documents(range(150)), views(range(150)))
                for options in ({"top_k": 100}, {"filter": {"id": {"in": [f"d{n}" for n in range(40)]}}}):
                    found, wanted = (each.search("oil price", mode="lexical", **options) for each in (index, same))
                    assert_alike(found, wanted, options)
                found, wanted = (each.search("+oil price", mode="lexical", operators=True) for each in (index, same))
                assert_alike(found, wanted, "operators")

    def test_sparse_vectors_follow_the_lengths_of_a_corpus_that_grows(self, place, tmp_path):
        with mvindex.create(place, dim=8, lexical="english") as index:
            index.add_views([Document("short", "oil")], views([0]))
            for begin in (1, 31):
                told = [Document(f"d{number}", text_of(number, length=300)) for number in range(begin, begin + 30)]
                index.add_views(told, views(range(begin, begin + 30)))
            low, high = store_of(index).settings["terms"]["means"]
            assert 50 < low <= high < 1.25 * low
            assert_as_embedded(index, tmp_path / "one.mvx")

    def test_terms_that_share_a_dimension_are_told_apart(self, place, tmp_path, monkeypatch):
        monkeypatch.setattr(term_rows, "_NUM_DIMENSIONS", 3)
        with mvindex.create(place, dim=8, lexical="english") as index:
            index.add_views(documents(range(60)), views(range(60)))
            assert_as_embedded(index, tmp_path / "one.mvx")
            found = index.search("+1973 oil", mode="lexical", operators=True, top_k=60).hits
            assert found
            assert all("1973" in hit.text.split() for hit in found)

    def test_counts_are_merged_and_stay_right(self, place, tmp_path, monkeypatch):
        monkeypatch.setattr(term_counts, "_BLOCK_TERMS", 4)
        monkeypatch.setattr(term_counts, "_BLOCKS_AT_ONCE", 2)
        with mvindex.create(place, dim=8, lexical="english") as index:
            for number in range(40):
                told = [Document(f"d{number % 25}", f"{text_of(number)} only{number}")]
                index.add_views(told, views([number % 25], number))
            segments = store_of(index).settings["terms"]["segments"]
            assert len(segments) < 12
            assert max(blocks for _, blocks, _ in segments) > 1
            assert_as_embedded(index, tmp_path / "one.mvx")

    def test_searches_beside_a_writer_return_results(self, place, tmp_path):
        with mvindex.create(place, dim=8, lexical="english") as index:
            index.add_views(documents(range(20)), views(range(20)))
            with mvindex.open(place) as other:
                stop, failures, num_written = threading.Event(), [], 0

                def write():
                    nonlocal num_written
                    try:
                        for number in range(200):
                            if stop.is_set():
                                break
                            other.add_views(documents([number % 30], number), views([number % 30], number))
                            if number % 5 == 0:
                                other.delete(ids=f"d{(number + 7) % 30}")
                            num_written += 1
                    except Exception as err:  # noqa: BLE001 - shown below
                        failures.append(err)

                writing = threading.Thread(target=write)
                writing.start()
                for number in range(25):
                    mode = "hybrid" if number % 2 else "lexical"
                    hits = index.search(np.ones(8), text=f"oil {text_of(number, 9)}", mode=mode, top_k=5).hits
                    # At any time more than five documents have the first term.
                    assert len(hits) == 5
                    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
                    assert len({hit.id for hit in hits}) == len(hits)
                stop.set()
                writing.join()
                assert not failures
                assert num_written > 1
            index.refresh()
            assert_as_embedded(index, tmp_path / "one.mvx")

    def test_verify_names_terms_and_counts_that_were_changed(self, place, tmp_path):
        with mvindex.create(place, dim=8, lexical="english") as index:
            index.add_views(documents(range(9)), views(range(9)))
            assert index.admin.verify().is_sound
            store = store_of(index)
            client, name = store.connection._client, f"{store.connection.address.collection}_terms"
            [row] = client.query(name, filter=f"pk == {4 << 32}", output_fields=["*"])
            client.upsert(name, [{**row, "terms": row["terms"][:-8] + "AAAAAAA="}])
            problems = index.admin.verify().problems
            assert [(problem.document, problem.is_derived) for problem in problems] == [("d4", True)]
            with pytest.raises(DamagedIndex, match="build --lexical"):
                index.search(text_of(4), mode="lexical")
            client.upsert(name, [row])
            [block] = client.query(name, filter="pk < 0", output_fields=["*"])
            client.upsert(name, [{**block, "num_terms": block["num_terms"] + 1}])
            [problem] = index.admin.verify().problems
            assert (problem.document, problem.is_derived) == (None, True)
            index.admin.enable_lexical("english")
            assert_as_embedded(index, tmp_path / "one.mvx")

    @pytest.mark.parametrize("write", ["add", "replace", "delete"])
    def test_a_writer_that_dies_between_any_two_steps_leaves_counts_that_are_right(
        self, place, tmp_path, monkeypatch, write
    ):
        monkeypatch.setattr(writer, "_RECORDS_AT_ONCE", 3)
        monkeypatch.setattr(writer, "_KEYS_AT_ONCE", 3)
        with mvindex.create(place, dim=8, lexical="english") as index:
            index.add_views(documents(range(12)), views(range(12)))
            last = 12
            for step in range(40):
                with Dying(monkeypatch, step) as dying:
                    if write == "delete":
                        index.delete(ids=[f"d{number}" for number in range(step % 3, 12, 2)])
                    else:
                        numbers = range(8) if write == "replace" else range(last, last + 8)
                        index.add_views(documents(numbers, step + 1), views(numbers, step + 1))
                index.refresh()
                assert_as_embedded(index, tmp_path / f"dead{step}.mvx", 2)
                last += 8
                # The next writer counts what was stored.
                index.add_views(documents(range(12), 100 + step), views(range(12), 100 + step))
                assert_as_embedded(index, tmp_path / f"next{step}.mvx", 2)
                if not dying.has_died:
                    break
            assert step > 4
            index.admin.compact()
            assert index.admin.compact().dropped == 0
            counts = store_of(index).settings["terms"]
            num_blocks = sum(blocks for _, blocks, _ in [*counts["segments"], *counts["retired"]])
            rows_left = store_of(index).reader.strongly().term_rows("pk > -1000000000", ["pk"])
            assert len(rows_left) == len(index) + num_blocks
            assert index.admin.verify().is_sound
            assert_as_embedded(index, tmp_path / "last.mvx")

    def test_terms_that_a_dead_writer_left_are_not_those_of_a_document_without(self, place, tmp_path):
        with mvindex.create(place, dim=8, lexical="english") as index:
            index.add_views([*documents(range(3)), Document("old", "oil")], views(range(4)))
            for document in (Document("new", "embargo embargo"), Document("old", "embargo")):
                with StoppedBefore("noting"):
                    index.add_views([document], views([9]))
                # It gets the number and the version of the one that was not stored, and has no terms.
                index.add_views([replace(document, text="?!")], views([9]))
            assert index.search("embargo", mode="lexical", exact=True, filter={"id": {"in": ["new", "old"]}}).hits == ()
            assert index.admin.verify().is_sound
            assert_as_embedded(index, tmp_path / "one.mvx")

    def test_documents_added_during_a_search_are_beyond_its_last_one(self, place, monkeypatch):
        with mvindex.create(place, dim=8, lexical="english") as index:
            index.add_views([Document("first", "oil price"), *documents(range(9))], views(range(10)))
            rows_with, new = term_search.MilvusTerms.rows_with, [Document("new", "price of oil")]

            def beside_a_write(terms, hashed):
                index.add_views(new, views([77]))
                return rows_with(terms, hashed)

            monkeypatch.setattr(term_search.MilvusTerms, "rows_with", beside_a_write)
            hits = index.search("+price", mode="lexical", operators=True, top_k=20).hits
            assert {"first", "new"} <= {hit.id for hit in hits}

    def test_an_index_whose_documents_are_all_gone_has_no_matches(self, place):
        with mvindex.create(place, dim=8, lexical="english") as index:
            index.add_views(documents([1]), views([1]))
            index.delete(ids="d1")
            index.admin.enable_lexical("english")
            for options in ({"mode": "lexical"}, {"mode": "hybrid"}):
                found = index.search(np.ones(8), text="oil", exact=True, **options)
                assert (found.hits, found.exact) == ((), True)

    def test_a_search_beside_other_writes_does_not_say_that_it_is_exact(self, place, monkeypatch):
        with mvindex.create(place, dim=8, lexical="english") as index:
            index.add_views(documents(range(20)), views(range(20)))
            ranking, left, versions = term_search.MilvusTerms.ranking, 0, count(1)

            def beside_a_write(terms, *args):
                nonlocal left
                if left:
                    left, version = left - 1, next(versions)
                    index.add_views(documents([3], version), views([3], version))
                return ranking(terms, *args)

            monkeypatch.setattr(term_search.MilvusTerms, "ranking", beside_a_write)
            # A search is made again after a write; after some more it returns what it has.
            for num_writes, is_exact in ((1, True), (100, False)):
                for mode in ("lexical", "hybrid"):
                    left = num_writes
                    found = index.search(np.ones(8), text="oil price", mode=mode)
                    assert found.hits and found.exact == is_exact, (mode, num_writes)
                    assert left < num_writes

    @pytest.mark.parametrize(
        ("write", "step"),
        [
            ("add", "writing terms"),
            ("delete", "writing counts of terms"),
            ("delete", "noting"),
            ("build", "writing terms"),
            ("adapt", "writing terms"),
        ],
    )
    def test_a_writer_that_lost_its_claim_commits_nothing(self, place, write, step):
        with mvindex.create(place, dim=8, lexical="english") as index:
            index.add_views([Document(f"d{number}", "oil") for number in range(2)], views(range(2)))
            grown = [Document(f"e{number}", text_of(number, length=300)) for number in range(20)]
            calls = {
                "add": lambda: index.add_views(documents(range(4)), views(range(4), 1)),
                "delete": lambda: index.delete(ids=["d0"]),
                "build": lambda: index.admin.enable_lexical("english"),
                "adapt": lambda: index.add_views(grown, views(range(20))),
            }
            with LosingItsClaim(step, times=2 if write == "adapt" else 1) as losing, pytest.raises(IndexLocked) as err:
                calls[write]()
            assert "process 77 on elsewhere" in str(err.value) and losing.commits == []
            client, name = store_of(index).connection._client, store_of(index).connection.address.collection
            client.delete(name, ids=[-5000])
            index.refresh()
            index.admin.rebuild_lexical_if_damaged()
            assert len(index) == (22 if write == "adapt" else 2)

    def test_a_filter_matches_the_same_documents(self, place, tmp_path):
        with mvindex.create(place, dim=2) as index, mvindex.create(tmp_path / "s.mvx", dim=2) as same:
            num = 40 if os.environ.get("MVINDEX_LONG") == "1" else 12

            @settings(max_examples=num, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
            @given(st.lists(rows, min_size=40, max_size=40), st.data())
            def check(metadata, data):
                told = [
                    Document(name, "t", "", each)
                    for name, each in zip([*"ab", *map(str, range(38))], metadata, strict=True)
                ]
                for each in (index, same):
                    each.delete(all=True)
                    each.add_views(told, np.ones((40, 1, 2), dtype=np.float32))
                for _ in range(13):
                    condition = data.draw(conditions())
                    found, wanted = ([each.id for each in one.scan(condition)] for one in (index, same))
                    assert found == wanted, condition
                    found, wanted = (one.search(np.ones(2), 40, condition).hits for one in (index, same))
                    assert found == wanted, condition

            check()


class Dying:
    """Inside it, a writer stops for good before its step of this number; only its claim is given up."""

    def __init__(self, monkeypatch, step):
        self._monkeypatch, self._left, self.has_died = monkeypatch, step, False

    def __enter__(self):
        call = Connection.call

        def until(connection, step, function):
            if step.startswith(("writing", "noting", "removing", "deleting")) and "claim" not in step:
                self._left -= 1
                if self._left < 0:
                    self.has_died = True
                    raise MemoryError(f"killed before {step}")
            return call(connection, step, function)

        self._patch = pytest.MonkeyPatch()
        self._patch.setattr(Connection, "call", until)
        return self

    def __exit__(self, kind, error, at):
        self._patch.undo()
        return kind is MemoryError


class StoppedBefore:
    """Inside it, a writer stops for good before its first step of this name."""

    def __init__(self, step):
        self._step, self._has_stopped = step, False

    def __enter__(self):
        call = Connection.call

        def until(connection, step, function):
            self._has_stopped = self._has_stopped or step.startswith(self._step)
            if self._has_stopped and "claim" not in step:
                raise MemoryError(f"stopped before {step}")
            return call(connection, step, function)

        self._patch = pytest.MonkeyPatch()
        self._patch.setattr(Connection, "call", until)
        return self

    def __exit__(self, kind, error, at):
        self._patch.undo()
        assert self._has_stopped
        return kind is MemoryError


class LosingItsClaim:
    """Inside it, the claim of a writer expires after steps of a name, and another writer comes.

    commits: the later steps that change records or settings.
    """

    def __init__(self, step, times):
        self._step, self._left, self.commits = step, times, []

    def __enter__(self):
        call, acquire, leases = Connection.call, Lease._acquire, []

        def acquired(lease):
            leases.append(lease)
            acquire(lease)

        def losing(connection, step, function):
            if self._left == 0 and step in ("writing records", "writing the settings", "deleting documents"):
                self.commits.append(step)
            returned = call(connection, step, function)
            if step.startswith(self._step) and self._left:
                self._left -= 1
                if self._left == 0:
                    leases[-1]._written_at -= 1000
                    claim = {"host": "elsewhere", "pid": 77, "boot": "b", "started": "1", "until": time.time() + 60}
                    row = special_record(-5000, json.dumps(claim))
                    connection._client.upsert(connection.address.collection, [row])
            return returned

        self._patch = pytest.MonkeyPatch()
        self._patch.setattr(Lease, "_acquire", acquired)
        self._patch.setattr(Connection, "call", losing)
        return self

    def __exit__(self, kind, error, at):
        self._patch.undo()
        assert self._left == 0


@pytest.mark.parametrize("seed", range(5))
def test_no_score_is_above_its_bound(seed):
    rng = np.random.default_rng(seed)
    texts = [text_of(number, seed, 200) for number in range(60)]
    terms = split_texts(texts, Lexical.ENGLISH)
    means = tuple(sorted(rng.uniform(1, 300, 2)))
    for k1, b in ((1.2, 0.75), (0.9, 0.4), (2.0, 1.0), (0.5, 0.0), (0.0, 0.5)):
        weights = Bm25(k1, b, 60, int(terms.lengths.sum()))
        ratio = bound_ratio(weights, means, int(terms.lengths.max()))
        lengths = terms.lengths[terms.owners]
        true = weights.saturated(terms.counts, lengths / weights.mean_length)
        for mean in means:
            stored = Bm25(1.2, 0.75, 1, 1).saturated(terms.counts, lengths / mean)
            assert (true <= stored * ratio * (1 + 1e-12)).all()
        assert ratio < 400


@pytest.mark.needs("milvus-server")
def test_a_server_without_sparse_vectors_is_dense_and_says_so(address, caplog):
    with caplog.at_level(logging.WARNING), mvindex.create(address, encoder=encode) as index:
        assert "no sparse vectors" in caplog.text
        index.add(documents(range(20)))
        assert (index.info().lexical, index.search("oil price").mode) == (None, "dense")
        for refused in (lambda: index.search("oil", mode="lexical"), lambda: index.admin.enable_lexical("english")):
            with pytest.raises(Unsupported, match=r"servers from 2\.4"):
                refused()


@pytest.mark.needs("milvus-lite")
def test_many_views_and_terms_are_flushed(tmp_path):
    with mvindex.create(f"milvus-lite:{tmp_path / 'x.db'}", dim=16, lexical="english") as index:
        fill(index, topical(300, 16))
        assert index.search("text", mode="lexical").hits
