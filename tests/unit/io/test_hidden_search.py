"""Passages without views keep their place among those with views."""

import pytest

import mvindex
from mvindex.io.hidden import search_hidden
from mvindex.search.fusion import Mode


def vectors(texts):
    """Return zeros for a text with "bare"; for others a score of .7 to 1 with the query's vector."""
    return [[0.0, 0.0] if "bare" in text else [1 - sum(map(ord, text)) % 30 / 100, 0.0] for text in texts]


@pytest.fixture(scope="module")
def index(tmp_path_factory):
    encoder = mvindex.CallableEncoder(vectors, query_function=lambda texts: [[1.0, 0.0]] * len(texts), name="half")
    folder = tmp_path_factory.mktemp("half")
    others = [mvindex.Document(f"o{n}", f"Other {n} of October{' embargo' * (n % 2)}.") for n in range(150)]
    with mvindex.create(folder / "i.mvx", encoder=encoder, lexical="unicode") as index:
        index.add([*others, mvindex.Document("bare", "The bare embargo, embargo of October.", "", {"file": "bare.md"})])
        yield index


def ids(found):
    return [one.hit.id for one in found]


def test_a_passage_without_views_is_first_where_its_words_are_the_best(index):
    [first, *others] = search_hidden(index, "embargo October", 10, Mode.HYBRID, None, has_bare=True)
    assert first.hit.id == "bare" and first.dense == 0 and first.lexical > others[0].lexical
    assert len(others) == 9 and all(one.dense > 0.6 for one in others)
    # As if all had views, the same passage is behind those that are near in meaning.
    assert "bare" not in ids(search_hidden(index, "embargo October", 10, Mode.HYBRID, None, has_bare=False))


def test_a_passage_needs_a_word_or_nearness(index):
    assert ids(search_hidden(index, "bare", 10, Mode.LEXICAL, None, has_bare=True)) == ["bare"]
    found = search_hidden(index, "nothing", 10, Mode.HYBRID, None, has_bare=True)
    assert len(found) == 10 and "bare" not in ids(found)


def test_auto_is_both_rankings(index):
    best = [ids(search_hidden(index, "embargo October", 10, mode, None, has_bare=True)) for mode in Mode]
    auto, _, _, hybrid = best
    assert auto == hybrid and auto[0] == "bare"


def test_fewer_hits_are_the_first_of_more_where_far_ones_are_left_out(tmp_path):
    def near(texts):
        return [[0.39, 0.92] if "far" in text else [0.0, 1.0] for text in texts]

    encoder = mvindex.CallableEncoder(near, query_function=lambda texts: [[1.0, 0.0]] * len(texts), name="far")
    others = [mvindex.Document(f"o{n}", f"Other {n} of an embargo.") for n in range(40)]
    with mvindex.create(tmp_path / "i.mvx", encoder=encoder, lexical="unicode") as index:
        index.add([*others, mvindex.Document("far", "A far one.")])
        assert [hit.id for hit in index.search("embargo", 1, mode="hybrid").hits] == ["far"]
        all_hits = ids(search_hidden(index, "embargo", 50, Mode.HYBRID, None, has_bare=False))
        assert len(all_hits) == 40
        assert ids(search_hidden(index, "embargo", 1, Mode.HYBRID, None, has_bare=False)) == all_hits[:1]


def test_only_the_files_that_are_named_are_searched(index):
    assert ids(search_hidden(index, "October", 10, Mode.HYBRID, ["bare.md"], has_bare=True)) == ["bare"]
    assert search_hidden(index, "October", 10, Mode.HYBRID, [], has_bare=True) == []
