"""Search by words: BM25 of living documents, whatever was added, replaced, deleted, compacted or split into shards."""

import math

import numpy as np
import pytest
import xxhash

import mvindex
from mvindex.errors import ConfigError, QueryError
from mvindex.search.terms import LexicalSearch
from mvindex.store.lexical.tokenizer import Lexical, tokenize
from tests.helpers import lexical_reference as slow
from tests.helpers.lexical_examples import RTOL, check_against_slow, hits, made


def test_scores_are_those_worked_out_by_hand(tmp_path):
    index = made(tmp_path / "a.mvx", ["oil price", "oil oil war peace", "war"])
    # N = 3, lengths 2, 4, 1: mean 7/3. "oil" is in two: ln(1 + 1.5/2.5) = ln 1.6; "price" in one: ln(1 + 2.5/1.5).
    norms = [0.25 + 0.75 * length / (7 / 3) for length in (2, 4)]
    oil, price = math.log(1.6), math.log(8 / 3)
    first = oil * 2.2 / (1 + 1.2 * norms[0]) + price * 2.2 / (1 + 1.2 * norms[0])
    second = oil * 2 * 2.2 / (2 + 1.2 * norms[1])
    assert hits(index, "oil price") == [("d0", pytest.approx(first, rel=RTOL)), ("d1", pytest.approx(second, rel=RTOL))]
    # A word that is asked twice counts twice.
    assert hits(index, "price PRICE")[0][1] == pytest.approx(2 * price * 2.2 / (1 + 1.2 * norms[0]), rel=RTOL)


def test_equal_scores_come_by_ordinal_and_documents_without_a_word_not_at_all(tmp_path):
    index = made(tmp_path / "a.mvx", ["war", "peace", "war", "war"])
    result = index.search("war", top_k=2, mode="lexical")
    assert [hit.id for hit in result.hits] == ["d0", "d2"]
    assert (result.exact, result.short_by) == (True, 0)
    assert [(part.name, part.rank, part.contribution) for part in result.hits[1].components] == [
        ("lexical", 2, result.hits[1].score)
    ]
    assert index.search("river", mode="lexical").hits == ()


@pytest.fixture(params=["NumPy", "compiled"])
def way(request, monkeypatch):
    """Indexes of these tests are searched with NumPy, and by compiled loops."""
    if request.param == "compiled":
        pytest.importorskip("numba", reason="NOT RUN: needs numba (the extra fast)")
    monkeypatch.setattr("mvindex.search.terms.is_compiled", lambda num_postings: request.param == "compiled")


@pytest.fixture(scope="module")
def uneven(tmp_path_factory):
    """Indexes of the same 4,000 texts, with and without shards; few words are in most texts, most words in few."""
    folder, rng = tmp_path_factory.mktemp("uneven"), np.random.default_rng(11)
    shares = 1 / np.arange(1, 401)
    texts = [
        " ".join(f"w{word}" for word in rng.choice(400, size=int(rng.integers(3, 30)), p=shares / shares.sum()))
        for _ in range(4000)
    ]
    indexes = [made(folder / "a.mvx", texts), made(folder / "s.mvx", texts, shards=3)]
    for index in indexes:
        index.delete(ids=[f"d{number}" for number in range(0, 4000, 7)])
    yield indexes
    for index in indexes:
        index.close()


@pytest.mark.parametrize(
    "question", ["w0 w1 w2 w200", "w0 w1 w399 w1 w150 w3 w2", "w0 w0 w1", "w300 w301", "w0 w2 w90"]
)
def test_the_best_few_are_the_first_of_all_that_match_to_the_last_bit(way, uneven, question):
    """Common words are looked up for some documents only, where few are wanted; not where all are."""
    for index in uneven:
        whole = hits(index, question, top_k=4000)
        want = {doc_id: score for doc_id, score in slow.bm25(list(index), question).items() if score > 0}
        assert dict(whole) == pytest.approx(want, rel=RTOL)
        for top_k in (1, 10, 100):
            assert hits(index, question, top_k=top_k) == whole[:top_k]
    assert hits(uneven[0], question, top_k=50) == hits(uneven[1], question, top_k=50)


def test_common_words_are_looked_up_for_the_documents_that_can_be_among_the_best(way, uneven, monkeypatch):
    seen = []
    scores = LexicalSearch.scores
    monkeypatch.setattr(
        LexicalSearch, "scores", lambda self, terms, rows: (seen.append(len(rows)), scores(self, terms, rows))[1]
    )
    assert len(hits(uneven[0], "w0 w1 w2 w200", top_k=10_000)) > 2000
    hits(uneven[0], "w0 w1 w2 w200", top_k=5)
    assert seen[0] > 2000
    assert seen[1] < 200


def test_titles_are_searched_too(tmp_path):
    with mvindex.create(tmp_path / "a.mvx", dim=2, lexical="unicode") as index:
        index.add_views([mvindex.Document("a", "of the seventies", title="Oil crisis")], np.ones((1, 2)))
        assert [doc_id for doc_id, _ in hits(index, "crisis")] == ["a"]


@pytest.mark.parametrize("seed", range(2))
def test_words_are_counted_in_living_documents_alone_whatever_was_written(way, tmp_path, seed):
    rng = np.random.default_rng(seed)
    stores = [
        mvindex.create(tmp_path / "one.mvx", dim=4, lexical="unicode"),
        mvindex.create(tmp_path / "five.mvx", dim=4, lexical="unicode", shards=5),
    ]
    questions = ["oil", "oil price war", "the river river mountain", "embargo crisis nothing"]
    for step in range(6):
        documents, views = slow.corpus(
            int(rng.integers(1, 60)), seed=seed * 100 + step, prefix="d" if step % 2 else "e"
        )
        gone = [f"d{number}" for number in rng.integers(0, 60, 5)] + ["e3"]
        for index in stores:
            index.add_views(documents, views)
            if step > 1:
                index.delete(ids=gone)
            if step == 4:
                index.admin.compact()
        for question in questions:
            check_against_slow(stores[0], question)
            # To the last bit, and in the same order.
            assert hits(stores[0], question, top_k=500) == hits(stores[1], question, top_k=500)
            is_third = {"third": True}
            kept = [hit for hit in hits(stores[0], question, top_k=500) if stores[0].get(hit[0]).metadata["third"]]
            assert hits(stores[0], question, top_k=500, filter=is_third) == kept
            assert hits(stores[1], question, top_k=500, filter=is_third) == kept
    before = [hits(stores[0], question, top_k=500) for question in questions]
    for index in stores:
        index.close()
        with mvindex.open(index.path) as again:
            assert [hits(again, question, top_k=500) for question in questions] == before
            assert again.admin.verify().is_sound
            # Made anew from the texts, it says the same.
            again.admin.enable_lexical("unicode")
            assert [hits(again, question, top_k=500) for question in questions] == before


def test_the_same_score_comes_from_another_implementation(tmp_path):
    bm25s = pytest.importorskip("bm25s")
    documents, views = slow.corpus(300, seed=9)
    with mvindex.create(tmp_path / "a.mvx", dim=4, lexical="unicode") as index:
        index.add_views(documents, views)
        other = bm25s.BM25(k1=1.2, b=0.75, method="lucene")
        other.index([slow.words(document) for document in documents], show_progress=False)
        for question in ("oil", "war peace river", "delta delta the"):
            # Lucene leaves out the factor k1 + 1, which changes no order.
            want = np.sort(2.2 * other.get_scores(question.split()))[::-1]
            found = [score for _, score in hits(index, question, top_k=300)]
            np.testing.assert_allclose(found, want[: len(found)], rtol=2e-6)
            assert not want[len(found) :].any()


@pytest.mark.parametrize(
    "question",
    [
        'oil"',
        "oil AND",
        "NOT oil",
        "oil NEAR(price, 2)",
        "text:oil",
        "-oil*",
        "(oil",
        "^oil OR",
        "{oil}:",
        "'; DROP TABLE lexical_blocks; -- oil",
        "oil\u0000price",
    ],
)
def test_nothing_in_a_question_is_an_operator(tmp_path, question):
    index = made(tmp_path / "a.mvx", ["oil", "river", "near and not or text"])
    plain = "".join(sign if sign.isalnum() else " " for sign in question)
    assert hits(index, question) == hits(index, plain)
    assert "d0" in dict(hits(index, question))


@pytest.mark.parametrize("question", ["?!", "--- ...", "\u2026", "\U0001f600"])
def test_a_question_without_a_word_finds_nothing_and_leaves_hybrid_to_the_views(tmp_path, question):
    index = made(tmp_path / "a.mvx", ["oil", "river"])
    assert index.search(question, mode="lexical").hits == ()
    vector = np.ones(2)
    dense, both = index.search(vector), index.search(vector, mode="hybrid", text=question)
    assert [hit.id for hit in both.hits] == [hit.id for hit in dense.hits]


def test_words_are_folded_by_unicode_and_cut_to_stems_by_choice(tmp_path):
    texts = ["Crème BRÛLÉE", "Ελλάδα", "running dogs", "naïve\u0301 straße"]
    plain = made(tmp_path / "plain.mvx", texts)
    assert dict(hits(plain, "creme")).keys() == {"d0"}
    assert dict(hits(plain, "brûlée ΕΛΛΆΔΑ")).keys() == {"d0", "d1"}
    assert dict(hits(plain, "runs dog")).keys() == set()
    with mvindex.create(tmp_path / "stems.mvx", dim=2, lexical="english") as stems:
        documents = [mvindex.Document(f"d{number}", text) for number, text in enumerate(texts)]
        stems.add_views(documents, np.ones((4, 2)))
        assert stems.info().lexical == "english"
        assert dict(hits(stems, "runs dog")).keys() == {"d2"}


def test_thousands_of_words_in_a_question_and_in_a_text_are_all_counted(tmp_path):
    many = [f"w{number}" for number in range(5000)]
    index = made(tmp_path / "a.mvx", [" ".join(many), "w7 " * 70_000, "x" * 40_000 + " w9"])
    idf = {n: math.log(1 + (3 - n + 0.5) / (n + 0.5)) for n in (1, 2)}
    lengths = (5000, 70_000, 2)
    norms = [1.2 * (0.25 + 0.75 * length / (sum(lengths) / 3)) for length in lengths]
    found = dict(hits(index, " ".join(many)))
    assert found["d0"] == pytest.approx((4998 * idf[1] + 2 * idf[2]) * 2.2 / (1 + norms[0]), rel=1e-6)
    assert found["d1"] == pytest.approx(idf[2] * 70_000 * 2.2 / (70_000 + norms[1]), rel=1e-6)
    assert dict(hits(index, "w9"))["d2"] == pytest.approx(idf[2] * 2.2 / (1 + norms[2]), rel=1e-6)


def test_vectors_have_no_words(tmp_path):
    index = made(tmp_path / "a.mvx", ["oil", "war"])
    for mode in ("lexical", "hybrid"):
        with pytest.raises(QueryError, match="text="):
            index.search(np.ones(2), mode=mode)
    with pytest.raises(QueryError, match="given vectors"):
        index.search("oil", mode="hybrid")
    with pytest.raises(QueryError, match="empty"):
        index.search("  ", mode="lexical")
    with pytest.raises(QueryError, match="a text for each"):
        index.search(np.ones((2, 2)), mode="hybrid", text=["oil"])
    assert len(index.search(["oil", "war"], mode="lexical")) == 2


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"mode": "fuzzy"}, "fuzzy"),
        ({"mode": "lexical", "fusion": "rrf"}, "fusion="),
        ({"mode": "lexical", "scoring": "drpq"}, "scoring="),
        ({"mode": "dense", "weights": (1, 1)}, "weights="),
        ({"mode": "hybrid", "text": "oil", "fusion": "max"}, "fusion is 'max'"),
        ({"mode": "hybrid", "text": "oil", "weights": (0, 0)}, "the larger from"),
        ({"mode": "hybrid", "text": "oil", "weights": (1, -1)}, "weights"),
        ({"mode": "hybrid", "text": "oil", "weights": (1,)}, "weights"),
        ({"mode": "hybrid", "text": "oil", "weights": "heavy"}, "weights"),
        ({"mode": "hybrid", "text": "oil", "weights": (1, float("nan"))}, "weights"),
    ],
)
def test_options_that_are_none_are_refused_by_name(tmp_path, options, what):
    index = made(tmp_path / "a.mvx", ["oil"])
    query = "oil" if options.get("mode") == "lexical" else np.ones(2)
    with pytest.raises(QueryError, match=what):
        index.search(query, **options)


def test_the_snippet_that_is_shown_says_most_of_the_question(tmp_path):
    with mvindex.create(tmp_path / "a.mvx", encoder=halves, lexical="english") as index:
        index.add([mvindex.Document("a", "Rivers flow. The price of oil rose.")])
        [hit] = index.search("prices of oil", mode="lexical").hits
        assert (hit.slot, hit.snippet) == (1, "The price of oil rose.")


class Halves:
    """An encoder of two views, the first sentence and the rest."""

    dim, fingerprint = 2, "halves"
    spec = {"fingerprint": "halves", "source": "halves"}

    def encode_queries(self, texts):
        return np.ones((len(texts), 2), dtype=np.float32)

    def encode_documents(self, documents, tick=lambda count: None):
        spans = []
        for document in documents:
            cut = document.text.index(".") + 1
            spans += [(0, cut), (cut + 1, len(document.text))]
        return mvindex.Views(
            np.ones((2 * len(documents), 2), dtype=np.float32), np.arange(len(documents) + 1) * 2, np.array(spans)
        )


halves = Halves()


def test_texts_too_long_to_be_split_at_once_are_split_one_after_the_other(tmp_path, monkeypatch):
    monkeypatch.setattr("mvindex.store.lexical.tokenizer._MOST_CHARS", 100)
    documents, views = slow.corpus(50, seed=7)
    with mvindex.create(tmp_path / "a.mvx", dim=4, lexical="unicode") as index:
        index.add_views(documents, views)
        check_against_slow(index, "oil river")
        index.admin.enable_lexical("unicode")
        check_against_slow(index, "oil river")
        assert index.admin.verify().is_sound


def test_an_index_behind_a_server_is_not_made_with_a_lexical_side():
    with pytest.raises(ConfigError, match="lexical= belongs to an index in a directory or in Milvus"):
        mvindex.create("grpc://127.0.0.1:1/name", dim=2, lexical="unicode")


def test_words_of_texts_are_counted_as_by_hand():
    found = tokenize(["b a b", "", "A c."], Lexical.UNICODE)
    pairs = {
        hashed: list(zip(found.texts[begin:end].tolist(), found.counts[begin:end].tolist(), strict=True))
        for hashed, begin, end in zip(found.hashes.tolist(), found.starts[:-1], found.starts[1:], strict=True)
    }
    by_hand = {"a": [(0, 1), (2, 1)], "b": [(0, 2)], "c": [(2, 1)]}
    assert pairs == {xxhash.xxh3_64_intdigest(term.encode()): texts for term, texts in by_hand.items()}
    assert found.hashes.tolist() == sorted(pairs)
    assert found.lengths.tolist() == [3, 0, 2]
    assert tokenize([], Lexical.UNICODE).hashes.tolist() == []
