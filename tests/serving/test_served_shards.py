"""Shards behind several real servers, searched as one index: the results are those of the index, bit for bit."""

import os
import signal
import threading
import time
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from itertools import cycle

import numpy as np
import pytest
from serving_tools import ServedHere, served, start, vectors, wait_for

import mvindex
from mvindex import Document, QueryGroup
from mvindex.errors import ConfigError, QueryError, ServerUnavailable, StaleReader, StoreError, TimedOut, Unsupported
from mvindex.store.embedded import EmbeddedStore
from mvindex.store.shard_layout import shard_of
from mvindex.v1.service_pb2 import InfoRequest
from mvindex_connectors.remote import CallSettings, ShardedClient, shard_calls
from mvindex_connectors.remote.requests import renamed
from mvindex_connectors.remote.shard_search import _DocumentChanged, _same
from tests.helpers.cli import lines
from tests.helpers.cli import mvindex as mvindex_command

TERMS = "oil crisis price embargo war peace river delta mountain".split()
COUNT, DIM, SHARDS = 400, 16, 4
TEXTS = ["oil price of war", "the river delta", "nothing of that", "peace peace oil"]
VECTORS = vectors(len(TEXTS), DIM, seed=5)
IMPATIENT = CallSettings(timeout_s=20, retry_s=0.2)


def fill(path, **settings):
    """Create an index of given vectors, many of them equal, whose lexical scores are mostly tied."""
    rng = np.random.default_rng(1)
    texts = [" ".join(rng.choice(TERMS, size=int(rng.integers(1, 9)))) for _ in range(COUNT)]
    views = np.tile(vectors(COUNT // 2, DIM, seed=2), (4, 1)).reshape(COUNT, 2, DIM)
    with mvindex.create(path, dim=DIM, lexical="english", **settings) as index:
        documents = [Document(f"d{n}", text, f"title {n}", {"n": n, "line": n}) for n, text in enumerate(texts)]
        index.add_views(documents, views)


def directory(path, number, count=SHARDS):
    return path / f"shard-{number:05d}-of-{count:05d}"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("shards")
    fill(folder / "one.mvx")
    fill(folder / "shards.mvx", shards=SHARDS)
    return folder


@pytest.fixture(scope="module")
def servers(folder):
    """Four servers, by the number of the shard in each, not in their order."""
    with ExitStack() as stack:
        yield {
            n: stack.enter_context(
                served(f"--index=s{n}={directory(folder / 'shards.mvx', n)}", "--max-queries", "200")
            )
            for n in (2, 0, 3, 1)
        }


@pytest.fixture(scope="module")
def urls(servers):
    return [server.url(f"s{n}") for n, server in servers.items()]


@contextmanager
def served_by_one(path, count):
    """Yield a client of the shards of an index behind one server, which has each under a name of its own."""
    indexes = [f"--index=s{n}={directory(path, n, count)}" for n in range(count)]
    with served(*indexes) as server, mvindex.open([server.url(f"s{n}") for n in range(count)]) as shards:
        yield shards


@pytest.fixture(scope="module")
def both(folder, urls):
    with mvindex.open(folder / "one.mvx") as one, mvindex.open(urls) as shards:
        yield one, shards


SEARCHES = [
    {},
    {"top_k": 1},
    {"top_k": 399},
    {"top_k": 1000},
    {"filter": {"n": {"lt": 3}}},
    {"filter": {"n": -1}},
    {"fields": ()},
    {"fields": ["title", "metadata"]},
    {"scoring": "drpq", "temperature": 0.3},
    {"scoring": "drpq", "exact": True, "filter": {"n": {"gte": 250}}},
]
LEXICAL = [
    {"mode": "lexical"},
    {"mode": "lexical", "top_k": 3, "filter": {"n": {"lt": 100}}},
    {"mode": "lexical", "top_k": 1000, "fields": ["title"]},
]
HYBRID = [
    {"mode": "hybrid"},
    {"mode": "hybrid", "top_k": 1},
    {"mode": "hybrid", "top_k": 150, "fusion": "minmax", "weights": (2, 0.1)},
    {"mode": "hybrid", "fusion": "rrf", "weights": (0.3, 1), "filter": {"n": {"gte": 250}}},
    {"mode": "hybrid", "scoring": "drpq", "temperature": 0.3, "exact": True},
    {"mode": "hybrid", "top_k": 20, "filter": {"n": {"lt": 7}}},
    {"mode": "hybrid", "fields": ()},
    {"mode": "hybrid", "filter": {"n": -1}},
]


def cited(result):
    return [hit.citation for hit in result.hits]


@pytest.mark.parametrize("options", SEARCHES, ids=str)
def test_dense_results_are_those_of_one_index(both, options):
    one, shards = both
    expected = one.search(VECTORS, **options)
    assert shards.search(VECTORS, **options) == expected
    assert shards.search(VECTORS[0], **options) == expected[0]
    with_texts = [index.search(VECTORS, mode="dense", text=TEXTS, **options) for index in both]
    assert with_texts[0] == with_texts[1]
    assert [cited(result) for result in with_texts[0]] == [cited(result) for result in with_texts[1]]


@pytest.mark.parametrize("options", LEXICAL, ids=str)
def test_lexical_results_use_the_counts_of_all_shards(both, options):
    one, shards = both
    expected = one.search(TEXTS, **options)
    found = shards.search(TEXTS, **options)
    assert found == expected
    assert [cited(result) for result in found] == [cited(result) for result in expected]
    assert shards.search(VECTORS[1], text=TEXTS[1], **options) == expected[1]
    assert shards.search([], **options) == []


@pytest.mark.parametrize("options", HYBRID, ids=str)
def test_hybrid_results_are_fused_over_all_shards(both, options):
    one, shards = both
    expected = one.search(VECTORS, text=TEXTS, **options)
    found = shards.search(VECTORS, text=TEXTS, **options)
    assert found == expected
    assert [cited(result) for result in found] == [cited(result) for result in expected]
    assert shards.search(VECTORS[2], text=TEXTS[2], **options) == expected[2]


@pytest.mark.parametrize("mode", ["auto", "hybrid", "lexical"])
def test_operators_are_obeyed(both, mode):
    one, shards = both
    asked = [f"+{TERMS[0]} -{TERMS[1]} {TERMS[2]}", f'"{TERMS[1]} {TERMS[2]}"']
    query = asked if mode == "lexical" else VECTORS[:2]
    expected = one.search(query, text=asked, mode=mode, operators=True)
    assert shards.search(query, text=asked, mode=mode, operators=True) == expected
    assert expected[0].hits and expected[1].hits


@pytest.mark.parametrize("combine", ["max", "sum", "mean"])
@pytest.mark.parametrize("mode", ["dense", "hybrid"])
def test_query_groups_are_combined_as_in_one_index(both, combine, mode):
    group = QueryGroup(VECTORS[:3], combine)
    for options in ({}, {"top_k": 3, "filter": {"n": {"lt": 100}}}, {"scoring": "drpq"}):
        expected, found = (index.search(group, mode=mode, text="oil war", **options) for index in both)
        assert (found.hits, found.exact, found.short_by) == (expected.hits, expected.exact, expected.short_by)
        assert cited(found) == cited(expected)
    lists = [index.search([group, group], mode=mode, text=["oil", "war"]) for index in both]
    assert [result.hits for result in lists[0]] == [result.hits for result in lists[1]]


def test_approximate_kinds_answer_as_the_shards_do_in_one_process(tmp_path):
    fill(tmp_path / "x.mvx", shards=2)
    with mvindex.open(tmp_path / "x.mvx") as index:
        index.admin.build("ivf-flat", nlist=8)
        expected = index.search(VECTORS, text=TEXTS)
    with served_by_one(tmp_path / "x.mvx", 2) as shards:
        assert shards.search(VECTORS, text=TEXTS) == expected
        assert shards.info().kind == "ivf-flat"


def subject_in_one_shard(count):
    """Return documents and views: 300 about one subject, all in shard 0, 1,500 about anything, and the subject."""
    rng = np.random.default_rng(8)
    subject = vectors(1, DIM, seed=9)[0]
    own = [doc_id for doc_id in (f"s{n}" for n in range(300 * count * 2)) if shard_of(doc_id, count) == 0][:300]
    near = subject + 0.1 * rng.standard_normal((300, 2, DIM)).astype(np.float32)
    others = vectors(3000, DIM, seed=10).reshape(1500, 2, DIM)
    ids = own + [f"d{n}" for n in range(1500)]
    documents = [Document(doc_id, f"oil {n}", metadata={"n": n}) for n, doc_id in enumerate(ids)]
    return documents, np.concatenate([near, others]), subject


@pytest.fixture(scope="module")
def approximate(tmp_path_factory):
    """Three shards with kind ivf-pq, in one process and behind a server, and queries near what one shard has."""
    path = tmp_path_factory.mktemp("approximate") / "x.mvx"
    documents, views, subject = subject_in_one_shard(3)
    with mvindex.create(path, dim=DIM, lexical="english", shards=3) as here:
        here.add_views(documents, views)
        here.admin.build("ivf-pq")
        rng = np.random.default_rng(11)
        near = (subject + 0.1 * rng.standard_normal((20, DIM))).astype(np.float32)
        queries = np.concatenate([near, vectors(20, DIM, seed=12)])
        with served_by_one(path, 3) as shards:
            yield here, shards, queries


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"top_k": 1},
        {"top_k": 60},
        {"top_k": 1000},
        {"filter": {"n": {"lt": 1000}}},
        {"filter": {"n": {"lt": 4}}},
        {"scoring": "drpq", "temperature": 0.3},
        {"mode": "hybrid"},
        {"mode": "hybrid", "scoring": "drpq", "temperature": 0.3},
    ],
    ids=str,
)
def test_servers_find_no_less_than_the_shards_in_one_process(approximate, options):
    here, shards, queries = approximate
    texts = {"text": ["oil"] * len(queries)} if options.get("mode") == "hybrid" else {}
    expected, found = (index.search(queries, **options, **texts) for index in (here, shards))
    for one, two in zip(expected, found, strict=True):
        assert (len(two), two.short_by) == (len(one), one.short_by)
        assert len({hit.id for hit in two}) == len(two)
        if not texts:  # Fused scores depend on those of the other candidates.
            assert all(b.score >= a.score for a, b in zip(one, two, strict=True))


def test_a_shard_that_has_all_the_best_is_searched_for_more_than_its_share(approximate):
    _, shards, queries = approximate
    found, exact = (shards.search(queries[:20], top_k=60, exact=exact) for exact in (False, True))
    assert all(result.rounds == 2 for result in found)
    shared = [len({hit.id for hit in a} & {hit.id for hit in b}) / 60 for a, b in zip(found, exact, strict=True)]
    assert np.mean(shared) > 0.95
    alone = shards.search(queries[0], top_k=60)
    assert alone == found[0]


def test_documents_are_got_scanned_and_explained(both):
    one, shards = both
    assert len(shards) == COUNT and "d7" in shards and "not there" not in shards
    assert shards.get("d7") == one.get("d7") and shards.get("not there") is None
    ids = ["d9", "not there", "d3", "d9", "d399"]
    assert shards.get(ids) == one.get(ids)
    assert list(shards) == list(one)
    for condition, limit, after in ((None, 7, "d100"), ({"n": {"gte": 390}}, None, None), ({"n": 5}, 3, "d4")):
        assert list(shards.scan(condition, limit, after)) == list(one.scan(condition, limit, after))
    with pytest.raises(QueryError, match="not there"):
        shards.scan(after="not there")
    assert shards.explain(VECTORS[0], "d5") == one.explain(VECTORS[0], "d5")
    assert shards.explain_all(VECTORS[0], ids, "drpq") == one.explain_all(VECTORS[0], ids, "drpq")
    with pytest.raises(QueryError, match="not there"):
        shards.explain(VECTORS[0], "not there")
    info, whole = shards.info(), one.info()
    assert (info.documents, info.views, info.shards) == (whole.documents, whole.views, SHARDS)
    assert (info.dim, info.lexical, info.missing_shards, info.shard) == (DIM, "english", (), None)


def test_a_client_reranks_on_its_side(both):
    def rerank(query, hits):
        return [hit.metadata["n"] % 7 + len(query) for hit in hits]

    expected, found = (index.search(VECTORS, 5, text=TEXTS, rerank=rerank) for index in both)
    assert found == expected


def test_writes_are_refused_with_the_way_out(both):
    shards = both[1]
    for write in (
        lambda: shards.add([Document("new", "text")]),
        lambda: shards.add_views([Document("new", "text")], VECTORS[:1]),
        lambda: shards.delete(ids="d1"),
        lambda: shards.update("d1", metadata={}),
        lambda: shards.views("d1"),
    ):
        with pytest.raises(Unsupported, match="where"):
            write()


def test_addresses_that_are_no_shards_of_one_index_are_refused(folder, urls, tmp_path):
    with pytest.raises(StoreError, match=r"shard 3 of 4 is missing: none of the addresses serves it"):
        mvindex.open([url for url in urls if not url.endswith("s3")])
    with pytest.raises(ConfigError, match="once"):
        mvindex.open([urls[0], urls[0]])
    with pytest.raises(ConfigError, match="addresses of servers"):
        mvindex.open([str(folder / "one.mvx"), str(folder / "shards.mvx")])
    with mvindex.create(tmp_path / "plain.mvx", dim=DIM) as index:
        index.add_views([Document("d0", "text")], VECTORS[:1])
    with served(f"--index=plain={tmp_path / 'plain.mvx'}", f"--index=one={folder / 'one.mvx'}") as serving:
        with pytest.raises(ConfigError, match="lexical"):
            mvindex.open([urls[0], serving.url("plain")])
        with pytest.raises(ConfigError, match="a whole index"):
            mvindex.open([urls[0], serving.url("one")])


def test_shards_of_two_indexes_are_no_index(tmp_path, served_here):
    for name in "ab":
        with mvindex.create(tmp_path / f"{name}.mvx", dim=DIM, shards=2) as index:
            index.add_views([Document(f"{name}{n}", "text") for n in range(9)], vectors(9, DIM))
            index.admin.snapshot(tmp_path / f"{name}-copy.mvx")
    a0, a1, copy1, b1 = (
        directory(tmp_path / f"{name}.mvx", n, 2)
        for name, n in zip(("a", "a", "a-copy", "b"), (0, 1, 1, 1), strict=True)
    )
    with pytest.raises(ConfigError, match="expected a shard of the index .*, got one of"):
        served_here(a0, b1)
    with pytest.raises(ConfigError, match="expected shard 1 with the index_id .*: replicas are"):
        served_here(a0, a1, b1)
    assert len(served_here(a0, a1, copy1)[1]) == 9
    # Made before shards knew their index.
    for path in (a0, b1):
        with closing(EmbeddedStore(path)) as store, store.writing() as writer:
            writer.change_settings(whole_id=None)
    assert served_here(a0, b1)[1].missing_shards == ()


def test_indexes_of_their_own_are_searched_together(tmp_path):
    """Ties are in the order of ordinals; an id in two of them is an error, never two hits."""
    rows = vectors(30, DIM, seed=9)
    for name, first in (("a", 0), ("b", 15)):
        with mvindex.create(tmp_path / f"{name}.mvx", dim=DIM) as index:
            index.add_views([Document(f"d{first + n}", "text") for n in range(15)], rows[first : first + 15])
    with mvindex.create(tmp_path / "one.mvx", dim=DIM) as one:
        one.add_views([Document(f"d{n}", "text") for n in range(30)], rows)
        expected = one.search(VECTORS, top_k=20)
    names = [f"--index={name}={tmp_path / f'{name}.mvx'}" for name in "ab"]
    with served(*names) as serving, mvindex.open(",".join(map(serving.url, "ab"))) as both:
        assert both.search(VECTORS, top_k=20) == expected
        assert both.get(["d20", "d3"])[0].id == "d20"
        with mvindex.open(serving.url("b")) as second:
            second.add_views([Document("d0", "text")], rows[:1])
        for read in (lambda: both.search(rows[0]), lambda: both.get("d0")):
            with pytest.raises(StoreError, match="'d0' is in two of the shards"):
                read()


def test_a_server_that_is_killed_is_named_or_left_out_and_told(folder, servers):
    killed = start(f"--index=s2={directory(folder / 'shards.mvx', 2)}", "--read-only")
    urls = [(killed if n == 2 else servers[n]).url(f"s{n}") for n in range(SHARDS)]
    try:
        with ShardedClient(urls, settings=IMPATIENT) as whole, mvindex.open(urls, allow_partial=True) as partial:
            assert len(whole.search(VECTORS[0], COUNT).hits) == len(partial.search(VECTORS[0], COUNT).hits) == COUNT
            found, stop = [], threading.Event()

            def ask():
                while not stop.is_set():
                    found.append(partial.search(VECTORS[0], COUNT, text=TEXTS[0], mode="hybrid"))

            asking = threading.Thread(target=ask)
            asking.start()
            time.sleep(0.5)
            killed.process.send_signal(signal.SIGKILL)
            killed.process.wait()
            seen = len(found)
            deadline = time.monotonic() + 60
            while len(found) < seen + 3 and time.monotonic() < deadline:
                time.sleep(0.05)
            stop.set()
            asking.join()
            left = {f"d{n}" for n in range(COUNT) if shard_of(f"d{n}", SHARDS) != 2}
            for result in found:
                # Whole, or short of exactly the shard that it names.
                ids = {hit.id for hit in result.hits}
                assert (result.missing_shards, ids == left) in [((), False), ((2,), True)]
                assert len(ids) == (COUNT if not result.missing_shards else len(left))
                assert result.exact is not bool(result.missing_shards)
            assert found[-1].missing_shards == (2,) == partial.missing_shards
            for search in (
                lambda: whole.search(VECTORS[0]),
                lambda: whole.search(TEXTS[0], mode="lexical"),
                lambda: whole.search(VECTORS, text=TEXTS),
                lambda: len(whole),
                lambda: list(whole),
            ):
                with pytest.raises(ServerUnavailable, match=rf"shard 2 of 4: {urls[2]}"):
                    search()
            gone = next(f"d{n}" for n in range(COUNT) if shard_of(f"d{n}", SHARDS) == 2)
            with pytest.raises(StoreError, match=f"{gone}.*belongs to a shard that is missing"):
                partial.get(gone)
            with pytest.raises(ServerUnavailable, match="shard 2 of 4"):
                ShardedClient(urls, settings=IMPATIENT)
            # The counts of terms are those of the shards that are there.
            expected = [one for one in found if one.missing_shards][-1]
            assert partial.search(VECTORS[0], COUNT, text=TEXTS[0], mode="hybrid") == expected
    finally:
        killed.close()


# Searches while servers are killed; none may fail or be wrong.
READS = 100_000 if os.environ.get("MVINDEX_LONG") == "1" else 30


def test_a_replica_takes_over_where_a_server_is_killed_while_it_is_read(folder, servers):
    replicas = [start(f"--index=s1={directory(folder / 'shards.mvx', 1)}", "--read-only") for _ in range(3)]
    urls = [servers[n].url(f"s{n}") for n in range(SHARDS) if n != 1] + [server.url("s1") for server in replicas]
    try:
        with (
            mvindex.open(folder / "one.mvx") as one,
            ShardedClient(urls, settings=IMPATIENT) as shards,
        ):
            expected = {mode: one.search(VECTORS, text=TEXTS, mode=mode) for mode in ("hybrid", "dense")}
            assert shards.search(VECTORS, text=TEXTS) == expected["hybrid"]
            done = deque()
            # A hybrid search takes three rounds to all shards, a dense one most often one.
            searches = [(mode, turn) for mode in ("hybrid", *["dense"] * 7) for turn in range(len(VECTORS))]

            def read():
                for mode, turn in cycle(searches):
                    if len(done) >= READS:
                        return
                    done.append(shards.search(VECTORS[turn], text=TEXTS[turn], mode=mode) == expected[mode][turn])

            with ThreadPoolExecutor(2) as pool:
                readers = [pool.submit(read) for _ in range(2)]
                # The second is killed once the first is gone: shard 1 is then served by the last server alone.
                for replica, share in zip(replicas, (3, 3 / 2), strict=False):
                    while len(done) < READS / share and not any(reader.done() for reader in readers):
                        time.sleep(0.01)
                    replica.process.kill()
                    replica.process.wait()
                for reader in readers:
                    reader.result()
            assert all(done) and len(done) >= READS
            shards.refresh()
            assert shards.missing_shards == () and shards.search(VECTORS, text=TEXTS) == expected["hybrid"]
    finally:
        for replica in replicas:
            replica.close()


def test_a_search_ends_at_its_deadline(servers, urls):
    with ShardedClient(urls, settings=CallSettings(timeout_s=2)) as shards:
        os.kill(servers[3].process.pid, signal.SIGSTOP)
        try:
            begun = time.monotonic()
            with pytest.raises(TimedOut, match="shard 3 of 4"):
                shards.search(VECTORS, text=TEXTS)
            assert time.monotonic() - begun < 10
        finally:
            os.kill(servers[3].process.pid, signal.SIGCONT)
        assert shards.search(VECTORS[0]).exact


@pytest.fixture
def two_places(tmp_path):
    """A small index in three shards, behind two servers in this process: shard 0 behind the first."""
    with mvindex.create(tmp_path / "x.mvx", dim=DIM, shards=3) as index:
        index.add_views([Document(f"d{n}", "text") for n in range(30)], vectors(30, DIM))
    places = [("s", str(directory(tmp_path / "x.mvx", n, 3))) for n in range(3)]
    with closing(ServedHere([places[0]])) as first, closing(ServedHere([places[1]], [places[2]])) as others:
        yield first, others


def test_a_shard_that_hangs_is_left_out_in_time(two_places):
    first, others = two_places
    urls = [f"{address}/s" for address in first.addresses + others.addresses]
    with ShardedClient(urls, settings=CallSettings(timeout_s=8), allow_partial=True) as shards:
        with first.hanging():
            begun = time.monotonic()
            result = shards.search(VECTORS[0], 30)
            assert time.monotonic() - begun < 8
        assert result.missing_shards == (0,) == shards.missing_shards
        assert {hit.id for hit in result} == {f"d{n}" for n in range(30) if shard_of(f"d{n}", 3)}


def test_a_shard_that_is_asked_too_late_has_not_failed(two_places):
    first, others = two_places
    urls = [f"{address}/s" for address in first.addresses + others.addresses]
    with ShardedClient(urls, allow_partial=True) as shards:
        with first.hanging(), pytest.raises(TimedOut, match="shard 0 of 3"):
            shards._calls.attempt(lambda attempt: attempt.ask_all("Info", renamed(InfoRequest())), time.monotonic())
        assert shards.missing_shards == ()


def test_a_shard_that_was_down_when_the_client_was_opened_is_found_later(two_places, tmp_path, monkeypatch):
    monkeypatch.setattr(shard_calls, "_LEFT_OUT_S", 0.1)
    first, others = two_places
    urls = [f"{address}/s" for address in first.addresses + others.addresses]
    first.close()
    with ShardedClient(urls, settings=IMPATIENT, allow_partial=True) as shards:
        assert shards.search(VECTORS[0]).missing_shards == (0,)
        with pytest.raises(StoreError, match=r"scan: expected all 3 shards, got none of \[0\]"):
            shards.scan()
        port = int(first.addresses[0].rpartition(":")[2])
        with closing(ServedHere([("s", str(directory(tmp_path / "x.mvx", 0, 3)))], port=port)):
            wait_for(lambda: not shards.search(VECTORS[0]).missing_shards, seconds=60)
            assert len(list(shards.scan())) == 30 and shards.missing_shards == ()


def test_the_command_line_takes_addresses_with_commas_between(urls, folder):
    command = partial(mvindex_command, cwd=folder)
    query = ["--filter", "n < 50", "--json", "--mode", "lexical"]
    found, expected = (
        lines(command("query", TEXTS[0], "--index", where, *query)) for where in (",".join(urls), folder / "one.mvx")
    )
    assert found == expected
    (info,) = lines(command("info", "--index", ",".join(urls), "--json"))
    assert (info["documents"], info["shards"]) == (COUNT, SHARDS)
    (one,) = lines(command("info", "--index", urls[0], "--json"))
    assert one["shard"] == "2/4"
    done = command("query", TEXTS[0], "--index", ",".join(urls[1:]), "--mode", "lexical")
    assert done.returncode == 1 and "shard 2 of 4 is missing" in done.stderr
    done = command("query", TEXTS[0], "--index", ",".join(urls[1:]), "--mode", "lexical", "--allow-partial")
    assert done.returncode == 0 and "WITHOUT shards 2" in done.stdout


def test_shards_are_served_on_under_one_address(both, urls):
    one = both[0]
    with served(f"--index=all={','.join(urls)}") as serving, mvindex.open(serving.url("all")) as client:
        assert client.search(VECTORS) == one.search(VECTORS)
        assert client.search(VECTORS, text=TEXTS) == one.search(VECTORS, text=TEXTS)
        assert client.search(TEXTS, mode="lexical") == one.search(TEXTS, mode="lexical")
        assert list(client.scan(limit=9, after="d3")) == list(one.scan(limit=9, after="d3"))
        with pytest.raises(ConfigError, match="a whole index"):
            mvindex.open([serving.url("all"), urls[0]])


@pytest.fixture
def served_here():
    """A function that serves directories in this process, and returns the servers and a client of all of them."""
    with ExitStack() as stack:

        def serve(*paths):
            servers = ServedHere(*[[("s", str(path))] for path in paths])
            stack.callback(servers.close)
            return servers, stack.enter_context(mvindex.open([f"{address}/s" for address in servers.addresses]))

        yield serve


def test_texts_are_encoded_once_by_one_of_the_servers(tmp_path, served_here):
    tiny_models = pytest.importorskip("tests.helpers.tiny_models")
    tiny_models.make_model(tmp_path / "encoder")
    with mvindex.create(tmp_path / "x.mvx", encoder=tmp_path / "encoder", shards=2) as index:
        index.add([Document(f"d{n}", f"{text}. A text {n}.") for n, text in enumerate(TEXTS * 5)])
    # Opened again, it runs the encoder as the servers do.
    with mvindex.open(tmp_path / "x.mvx") as index:
        shards = served_here(directory(tmp_path / "x.mvx", 0, 2), directory(tmp_path / "x.mvx", 1, 2))[1]
        for query, options in (
            (TEXTS[0], {}),
            (TEXTS, {}),
            (TEXTS, {"mode": "dense"}),
            (TEXTS[1], {"mode": "lexical"}),
            (TEXTS[:2], {"operators": True}),
            ([f"+{text}" for text in TEXTS[:2]], {"operators": True}),
            (QueryGroup(TEXTS, "sum"), {}),
            (QueryGroup(TEXTS, "max"), {"mode": "dense", "text": "another text"}),
            ([QueryGroup(TEXTS[:2]), QueryGroup(TEXTS[2:])], {"mode": "hybrid"}),
        ):
            expected, found = index.search(query, 5, **options), shards.search(query, 5, **options)
            expected, found = ([one] if hasattr(one, "hits") else one for one in (expected, found))
            assert [one.hits for one in found] == [one.hits for one in expected]
            assert list(map(cited, found)) == list(map(cited, expected))
        assert np.array_equal(shards.encode_queries(TEXTS), index.encode_queries(TEXTS))
        assert shards.explain(TEXTS[0], "d3") == index.explain(TEXTS[0], "d3")
        with pytest.raises(QueryError, match="empty"):
            shards.search(" ")


def test_a_document_that_is_replaced_during_searches_is_never_mixed(tmp_path, served_here):
    """Both versions of each document have views, text and title of their own; each search shows one of them."""
    versions = [vectors(20, DIM, seed=seed).reshape(20, 1, DIM) for seed in (21, 22)]

    def documents(version):
        return [Document(f"d{n}", f"oil of version {version}", str(version)) for n in range(20)]

    mvindex.create(tmp_path / "x.mvx", dim=DIM, lexical="english", shards=2).close()
    with mvindex.open(tmp_path / "x.mvx") as index:
        index.add_views(documents(0), versions[0])
        servers, shards = served_here(directory(tmp_path / "x.mvx", 0, 2), directory(tmp_path / "x.mvx", 1, 2))
        scores = []
        for version in (0, 1):
            index.add_views(documents(version), versions[version])
            scores.append({hit.id: hit.score for hit in index.search(VECTORS[0], 20).hits})
        stop = threading.Event()

        def write():
            version = 0
            while not stop.is_set():
                index.add_views(documents(version), versions[version])
                servers.refresh()
                version = 1 - version

        writing = threading.Thread(target=write)
        writing.start()
        shown = set()
        try:
            for _ in range(60):
                try:
                    result = shards.search(VECTORS[0], 20, text="oil", mode="hybrid")
                except StaleReader:
                    continue
                assert len({hit.id for hit in result.hits}) == len(result.hits) == 20
                for hit in result.hits:
                    version = int(hit.title)
                    shown.add(version)
                    assert hit.text == f"oil of version {version}"
                    assert hit.components[0].score == scores[version][hit.id]
        finally:
            stop.set()
            writing.join()
        assert shown == {0, 1}


def test_a_replica_that_lags_is_not_mixed_with_the_other(tmp_path, served_here):
    mvindex.create(tmp_path / "x.mvx", dim=DIM, lexical="english", shards=2).close()
    with mvindex.open(tmp_path / "x.mvx") as index:
        index.add_views([Document(f"d{n}", "oil", "old") for n in range(6)], vectors(6, DIM))
        index.admin.snapshot(tmp_path / "old.mvx")
        index.add_views([Document(f"d{n}", "oil", "new") for n in range(6)], vectors(6, DIM, seed=2))
    places = [directory(tmp_path / name, n, 2) for name in ("x.mvx", "old.mvx") for n in range(2)]
    _, shards = served_here(*places)
    shown = [shards.search(VECTORS[0], text="oil", mode="hybrid") for _ in range(20)]
    assert all(len(result) == 6 for result in shown)
    # Chance takes the same one for both shards in all searches once in 5e11 runs.
    assert {hit.title for result in shown for hit in result} == {"old", "new"}


def test_a_document_that_changes_during_a_search_is_never_shown_with_an_old_score(both):
    result = both[0].search(VECTORS[0], text=TEXTS[0])
    hit, other = result.hits[:2]
    assert _same(hit, hit, 2.0, hit.components).score == 2.0
    for shown in (None, other):
        with pytest.raises(_DocumentChanged):
            _same(shown, hit, 2.0, hit.components)
