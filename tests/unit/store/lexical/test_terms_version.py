"""Terms of an older mvindex are never searched with new ones, nor joined by them, and are made again."""

import numpy as np
import pytest

import mvindex
from mvindex.errors import StoreError
from mvindex.io.migrate import migrate
from mvindex.store import schema
from mvindex.store.connections import FILE_NAME, Catalog

WORD, OTHER_FORM = "Straße", "STRASSE"


def make_old(path, shards=None):
    """Make an index whose setting is that of version 0.2: the kind of its terms, without a version."""
    with mvindex.create(path, dim=2, lexical="english", shards=shards) as index:
        index.add_views([mvindex.Document(f"d{n}", f"{WORD} number {n}") for n in range(8)], np.ones((8, 2)))
    stores = sorted(path.rglob(FILE_NAME))
    for place in stores:
        with Catalog(place.parent).writing() as connection:
            assert schema.read_settings(connection)["lexical"] == "english/2"
            schema.write_settings(connection, {"lexical": "english"})
    assert len(stores) == (shards or 1)
    return path


@pytest.fixture(params=[None, 2])
def old(request, tmp_path):
    return make_old(tmp_path / "old.mvx", request.param)


def finds_the_other_form(index):
    return len(index.search(OTHER_FORM, mode="lexical").hits) == len(index)


def test_a_search_of_old_terms_says_how_they_are_made_again(old):
    with mvindex.open(old) as index:
        for options in ({"mode": "lexical"}, {"mode": "lexical", "operators": True}):
            with pytest.raises(StoreError, match=r"`mvindex build --lexical english`.*`mvindex migrate`"):
                index.search(WORD, **options)
        for mode in ("auto", "hybrid"):
            with pytest.raises(StoreError, match="expected terms of version 2, got 1"):
                index.search(np.ones(2), mode=mode, text=WORD)
        assert len(index.search(np.ones(2), mode="dense").hits) == 8
        assert index.info().lexical == "english"
        assert index.admin.verify().is_sound


def test_nothing_is_added_to_old_terms(old):
    with mvindex.open(old) as index:
        with pytest.raises(StoreError, match="mvindex build --lexical english"):
            index.add_views([mvindex.Document("new", WORD)], np.ones((1, 2)))
        assert len(index) == 8
        assert index.delete(ids=["d0"]) == 1
        assert len(index) == 7


@pytest.mark.parametrize("way", ["enable_lexical", "build", "compact"])
def test_old_terms_are_made_again(old, way):
    with mvindex.open(old) as index:
        if way == "enable_lexical":
            index.admin.enable_lexical("english")
        elif way == "build":
            assert index.admin.rebuild_lexical_if_damaged()
            assert not index.admin.rebuild_lexical_if_damaged()
        else:
            index.delete(ids=[f"d{n}" for n in range(4)])
            index.admin.compact()
        assert finds_the_other_form(index)
        index.add_views([mvindex.Document("new", f"{OTHER_FORM} words")], np.ones((1, 2)))
    with mvindex.open(old) as index:
        assert finds_the_other_form(index) and index.admin.verify().is_sound


def test_a_migration_makes_the_terms_again(tmp_path):
    old = make_old(tmp_path / "old.mvx")
    assert migrate(old, tmp_path / "new.mvx").moved == 8
    with mvindex.open(tmp_path / "new.mvx") as index:
        assert index.info().lexical == "english" and finds_the_other_form(index)
    with mvindex.open(old) as index, pytest.raises(StoreError, match="of an older mvindex"):
        index.search(WORD, mode="lexical")


def test_an_open_reader_sees_terms_that_were_made_again_after_a_refresh(old):
    with mvindex.open(old) as index, mvindex.open(old) as writer:
        writer.admin.enable_lexical("english")
        index.refresh()
        assert finds_the_other_form(index)
