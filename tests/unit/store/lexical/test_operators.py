"""Operators in queries: what they demand, in one store and in shards, against a search of the texts by hand."""

import re

import numpy as np
import pytest

import mvindex
from mvindex.errors import QueryError
from mvindex.records import QueryGroup
from mvindex.search.plan import parse_operators
from mvindex.store.lexical import tokenizer

TEXTS = {
    "a": "The oil shock of 1973 raised prices.",
    "b": "A shock: oil from the sea in 1973.",
    "c": "Oil shocks hurt coal and oil alike.",
    "d": "Coal was cheap in 1973.",
    "e": "Nothing of the kind.",
}
TITLES = {"d": "An oil shock"}


def test_a_query_has_no_more_operators_than_are_looked_for_at_once():
    assert len(parse_operators(" ".join(f"+w{n}" for n in range(64))).required) == 64
    with pytest.raises(QueryError, match="at most 64 operators, got 3,000"):
        parse_operators(" ".join(f'"a{n} b"' for n in range(3000)))


def fill(path, lexical="unicode", **options):
    rng = np.random.default_rng(1)
    index = mvindex.create(path, dim=4, lexical=lexical, **options)
    documents = [mvindex.Document(id, text, title=TITLES.get(id, "")) for id, text in TEXTS.items()]
    index.add_views(documents, rng.standard_normal((len(TEXTS), 1, 4)).astype(np.float32))
    return index


def found(index, query, **options):
    return {hit.id for hit in index.search(query, mode="lexical", operators=True, **options).hits}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("oil shock", ("oil shock", (), ())),
        ('"oil shock" prices', ("oil shock prices", ("oil shock",), ())),
        ("oil +1973 -coal", ("oil 1973", ("1973",), ("coal",))),
        ('oil -"the sea"', ("oil", (), ("the sea",))),
        ('+"oil shock"', ("oil shock", ("oil shock",), ())),
        ('x-ray C++ 3 - 2 "open', ('x-ray C++ 3 - 2 "open', (), ())),
    ],
)
def test_operators_are_read(text, expected):
    assert parse_operators(text) == expected


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ('"' + "oil " * 64 + '"', None),
        ('"' + "oil " * 65 + '"', "operator 'oil oil .*: expected at most 64 terms, got 65"),
        ('coal -"' + "oil " * 30_000 + '"', "operator 'oil oil .*: expected at most 64 terms, got 30,000"),
        ("+" + "石油" * 33, "operator '石油.*: expected at most 64 terms, got 65"),
        (" ".join(f'"{number} {"oil " * 63}"' for number in range(4)), None),
        (
            " ".join(f'"{number} {"oil " * 63}"' for number in range(4)) + " -coal",
            "at most 256 terms in operators, got 257",
        ),
    ],
)
def test_operators_of_more_terms_than_are_looked_for_are_refused(tmp_path, monkeypatch, query, expected):
    with fill(tmp_path / "a.mvx") as index:
        if expected is None:
            assert found(index, query) == set()
            return
        looked_for = []
        monkeypatch.setattr(tokenizer, "has_phrase", lambda *given: looked_for.append(given))
        with pytest.raises(QueryError, match=expected):
            found(index, query)
        assert looked_for == []


@pytest.mark.parametrize("text", ["-coal", '-"oil shock" -1973'])
def test_a_query_that_only_excludes_is_refused(text):
    with pytest.raises(QueryError, match="beside the excluded"):
        parse_operators(text)


@pytest.mark.parametrize("shards", [None, 3])
def test_phrases_and_words_are_demanded(tmp_path, shards):
    with fill(tmp_path / "a.mvx", **({} if shards is None else {"shards": shards})) as index:
        assert found(index, '"oil shock"') == {"a", "d"}
        assert found(index, "oil +1973") == {"a", "b", "d"}
        assert found(index, "oil -coal") == {"a", "b"}
        assert found(index, 'oil -"oil shock"') == {"b", "c"}
        assert found(index, '"shock oil" +sea') == {"b"}
        assert found(index, '"oil oil"') == set()
        assert found(index, "oil +zebra") == set()
        index.delete(ids=["a"])
        assert found(index, '"oil shock"') == {"d"}
        # These signs mean nothing where nobody asks for operators.
        plain = index.search('"oil shock" -coal', mode="lexical")
        assert plain == index.search("oil shock coal", mode="lexical")


def test_stems_make_a_phrase(tmp_path):
    with fill(tmp_path / "a.mvx", "english") as index:
        assert found(index, '"oil shock"') == {"a", "c", "d"}


def test_a_phrase_of_many_documents_is_that_of_a_search_by_hand(tmp_path):
    rng = np.random.default_rng(2)
    words = ["oil", "shock", "war", "sea"]
    texts = [" ".join(rng.choice(words, 6)) for _ in range(3000)]
    with mvindex.create(tmp_path / "a.mvx", dim=4, lexical="unicode") as index:
        documents = [mvindex.Document(f"d{number}", text) for number, text in enumerate(texts)]
        index.add_views(documents, rng.standard_normal((3000, 1, 4)).astype(np.float32))
        expected = {f"d{number}" for number, text in enumerate(texts) if re.search("oil shock war", text)}
        assert found(index, '"oil shock war"', top_k=3000) == expected
        assert 0 < len(expected) < 3000


def test_chinese_phrases(tmp_path):
    with mvindex.create(tmp_path / "a.mvx", dim=2, lexical="bigrams") as index:
        documents = [
            mvindex.Document("a", "第一次石油危機始于一九七三年。"),
            mvindex.Document("b", "石油价格与经济危機。"),
        ]
        index.add_views(documents, np.eye(2, dtype=np.float32)[:, None])
        assert found(index, '"石油危機"') == {"a"}
        assert found(index, "石油 -经济") == {"a"}


def test_hybrid_obeys_them_too_and_goes_with_filters(tmp_path):
    with fill(tmp_path / "a.mvx") as index:
        index.update_all({id: {"year": number} for number, id in enumerate(TEXTS)})
        vector = np.ones(4, dtype=np.float32)
        for top_k in (1, 10):
            result = index.search(vector, top_k, text="oil +1973 -coal", operators=True)
            assert (result.mode, result.short_by) == ("hybrid", 0)
            assert {hit.id for hit in result.hits} <= {"a", "b"}
        both = index.search(np.stack([vector, vector]), text=["oil +sea", '"oil shock"'], operators=True)
        assert [{hit.id for hit in one.hits} for one in both] == [{"b"}, {"a", "d"}]
        limited = index.search(vector, text="oil +1973", operators=True, filter={"year": {"gt": 0}})
        assert {hit.id for hit in limited.hits} == {"b", "d"}


def test_misuse_is_named(tmp_path):
    with fill(tmp_path / "a.mvx") as index, mvindex.create(tmp_path / "b.mvx", dim=4) as silent:
        for query in ("oil +!!", 'oil -"?"'):
            with pytest.raises(QueryError, match="expected a letter or a digit"):
                found(index, query)
        with pytest.raises(QueryError, match="dense"):
            index.search("oil", mode="dense", operators=True)
        with pytest.raises(QueryError, match="query group"):
            index.search(QueryGroup(["oil", "coal"]), operators=True)
        with pytest.raises(QueryError, match="has none"):
            silent.search(np.ones(4), text="+oil", operators=True)
        assert found(index, '"oil\0shock"') == {"a", "d"}
