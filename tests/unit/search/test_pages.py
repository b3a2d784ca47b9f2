"""Pages of lexical, hybrid and reranked searches are slices of one ranking; a cursor says when it cannot go on."""

import numpy as np
import pytest

import mvindex
from mvindex import Document
from mvindex.errors import CursorExpired, QueryError
from mvindex.search.pages import MAX_SHOWN, Cursor
from mvindex.testing.asking import pages_of, unit_rows

DIM, COUNT, QUERIES = 8, 400, 67
WORDS = [f"w{number}" for number in range(120)]
INDEXES = [{}, {"shards": 3}, {"dtype": "fp32"}]


def filled(path, rng, **settings):
    index = mvindex.create(path, dim=DIM, lexical="unicode", **settings)
    texts = [" ".join(rng.choice(WORDS, 10)) for _ in range(COUNT)]
    documents = [Document(f"d{number}", text, metadata={"n": number}) for number, text in enumerate(texts)]
    # Some views twice: equal scores, too, have one order.
    views = unit_rows(rng.standard_normal((COUNT // 2, 2, DIM)))
    index.add_views(documents, np.concatenate([views, views]))
    return index


@pytest.mark.parametrize("settings", INDEXES, ids=str)
def test_pages_equal_slices_of_one_list_over_200_queries_with_deletions_in_between(tmp_path, settings):
    """67 queries of each of three indexes, in every mode; a document is deleted after each."""
    rng = np.random.default_rng(5)
    ways = [
        {"mode": "dense"},
        {"mode": "dense", "scoring": "drpq", "temperature": 0.2},
        {"mode": "lexical"},
        {"fusion": "zscore"},
        {"fusion": "minmax", "weights": (1, 0)},
        {"fusion": "rrf"},
        {"fusion": "zscore", "filter": {"n": {"lt": 250}}},
    ]
    with filled(tmp_path / "a.mvx", rng, **settings) as index:
        for number in range(QUERIES):
            query, text = rng.standard_normal(DIM).astype(np.float32), " ".join(rng.choice(WORDS, 4))
            options = {**ways[number % len(ways)], "text": text}
            # Beyond the 100 documents by which hybrid search scales scores, too.
            whole = index.search(query, COUNT, **options)
            size = int(rng.integers(1, 70))
            at = [0, size, 2 * size, 90, 100, int(rng.integers(0, COUNT)), len(whole)]
            for offset in at:
                page = index.search(query, size, offset=offset, **options)
                assert [(hit.id, hit.score) for hit in page] == [
                    (hit.id, hit.score) for hit in whole[offset : offset + size]
                ]
                assert (page.exact, page.short_by) == (True, 0)
            assert len({hit.id for hit in whole}) == len(whole)
            shown = [hit.id for page in pages_of(index, query, 150, **options) for hit in page]
            assert shown == [hit.id for hit in whole]
            index.delete(ids=whole[int(rng.integers(0, len(whole)))].id if len(whole) else "d0")


def test_pages_of_a_text_are_those_of_its_vector(tmp_path):
    with mvindex.create(tmp_path / "a.mvx", encoder=lambda texts: np.ones((len(texts), 3)), lexical="unicode") as index:
        index.add([Document(f"d{number}", f"oil {number}") for number in range(12)])
        first = index.search("oil 3", 5, cursor="")
        assert first[0].id == "d3" and len(index.search("oil 3", 5, cursor=first.next)) == 5
        pages = index.search(["oil 3", "oil 4"], 5, cursor="")
        assert pages[0] == first and pages[1].next != first.next


def test_reranked_pages_are_slices_of_what_was_reranked(tmp_path):
    def rerank(query, hits):
        return [int(hit.id[1:]) * 7 % 40 for hit in hits]

    with filled(tmp_path / "a.mvx", np.random.default_rng(3)) as index:
        query = np.ones(DIM, dtype=np.float32)
        whole = index.search(query, 40, text="w1", rerank=rerank, rerank_depth=40)
        pages = [
            index.search(query, 15, offset=at, text="w1", rerank=rerank, rerank_depth=40 + 5) for at in (0, 15, 30)
        ]
        deeper = index.search(query, 45, text="w1", rerank=rerank, rerank_depth=45)
        assert [hit for page in pages for hit in page] == list(deeper) and len(whole) == 40
        assert pages[1][0].components[-1].rank == 16
        with pytest.raises(QueryError, match="rerank_depth=55"):
            index.search(query, 10, offset=45, text="w1", rerank=rerank)
        with pytest.raises(QueryError, match="cursor= does not go with rerank="):
            index.search(query, 10, cursor="", text="w1", rerank=rerank)


def test_a_cursor_of_another_index_has_expired(tmp_path):
    rng = np.random.default_rng(2)
    query = np.ones(DIM, dtype=np.float32)
    with filled(tmp_path / "a.mvx", rng) as first, filled(tmp_path / "b.mvx", rng) as second:
        cursor = first.search(query, 10, cursor="").next
        with pytest.raises(CursorExpired, match="another index"):
            second.search(query, 10, cursor=cursor)


def test_a_cursor_holds_in_a_restored_snapshot(tmp_path):
    query = np.ones(DIM, dtype=np.float32)
    with filled(tmp_path / "a.mvx", np.random.default_rng(2)) as index:
        index.admin.snapshot(tmp_path / "copy.mvx")
        index.delete(ids=["d1", "d2"])
        first = index.search(query, 10, cursor="")
    with mvindex.open(tmp_path / "copy.mvx") as copy:
        rest = copy.search(query, 10, cursor=first.next)
        assert len(rest) == 10 and not {hit.id for hit in first} & {hit.id for hit in rest}


def test_a_cursor_that_has_shown_too_many_names_the_way_on(tmp_path):
    with mvindex.create(tmp_path / "a.mvx", dim=2) as index:
        count = MAX_SHOWN + 30
        index.add_views([Document(f"d{n}", "x") for n in range(count)], np.ones((count, 1, 2)))
        query = np.array([1.0, 0.0])
        almost = index.search(query, MAX_SHOWN, cursor="").next
        assert len(almost) < 12_000
        last = index.search(query, 20, cursor=almost)
        assert len(last) == 20
        with pytest.raises(CursorExpired, match=r"1,020 documents were shown.*offset=1020"):
            index.search(query, 20, cursor=last.next)
        assert len(index.search(query, 20, offset=1020)) == 10


@pytest.mark.parametrize("cut", [1, 5, 20, 30])
def test_a_damaged_cursor_is_refused(cut):
    whole = Cursor(b"12345678", b"abcdefgh", 2, b"0123456789abcdef").text
    assert Cursor.parse(whole).num_shown == 2
    with pytest.raises(QueryError, match="cursor"):
        Cursor.parse(whole[:-cut])
