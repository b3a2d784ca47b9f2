"""An index splits what is added to it as it split what it has, whatever new indexes do."""

import numpy as np
import pytest

pytest.importorskip("torch")

import mvindex
from mvindex.encoder import load_encoder
from mvindex.errors import ConfigError
from mvindex.index.factory import open_local
from tests.helpers.tiny_models import make_kind

TEXT = "the cat likes " + ", ".join("red blue mat dog ran sat it was".split())


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return make_kind(tmp_path_factory.mktemp("model"), "bert")


@pytest.fixture
def old(tmp_path, model):
    """An index as it was made before splitters were recorded, with a document."""
    with mvindex.create(tmp_path / "old.mvx", encoder=load_encoder(model, splitter="sentences-1")) as index:
        index.add([mvindex.Document("old", TEXT)])
        spec = {name: value for name, value in index.info().encoder.items() if name != "splitter"}
        with index._store.writing() as writer:
            writer.change_settings(encoder=spec)
    return tmp_path / "old.mvx"


@pytest.mark.parametrize("is_named", [True, False])
def test_an_index_without_a_recorded_splitter_goes_on_with_sentences(old, model, is_named):
    with open_local(old, encoder=model if is_named else None) as index:
        before = index.search("red", top_k=1).hits[0]
        index.add([mvindex.Document("new", TEXT)])
        assert index.info().views == 2
        hits = {hit.id: hit for hit in index.search("red", top_k=2).hits}
    assert hits["old"].score == before.score == hits["new"].score
    assert hits["new"].span == (0, len(TEXT))


def test_a_new_index_records_its_splitter_and_has_a_view_a_fact(tmp_path, model):
    with mvindex.create(tmp_path / "new.mvx", encoder=load_encoder(model, max_views="auto")) as index:
        index.add([mvindex.Document("new", TEXT)])
        assert (index.info().encoder["splitter"], index.info().views) == ("parts-1", 8)
    with open_local(tmp_path / "new.mvx") as index:
        index.add([mvindex.Document("more", TEXT)])
        assert index.info().views == 16


def test_an_encoder_of_another_splitter_is_refused_with_the_way_out(old, model):
    with pytest.raises(ConfigError, match="splitter='sentences-1'"):
        open_local(old, encoder=load_encoder(model))


def test_families_that_read_whole_texts_have_no_splitter_of_their_own(model):
    single = load_encoder(model, family="single")
    assert single.fingerprint == load_encoder(model, family="single", splitter="sentences-1").fingerprint
    with pytest.raises(ConfigError, match="expected a number for the family 'kmeans', got 'auto'"):
        load_encoder(model, family="kmeans", max_views="auto")


def test_parts_change_no_view_of_plain_sentences(model):
    document = mvindex.Document("1", "The cat sat on the mat. It ran. Was he red or blue?")
    views = [load_encoder(model, splitter=name).encode_documents([document]) for name in ("parts-1", "sentences-1")]
    assert views[0].spans.tolist() == views[1].spans.tolist()
    np.testing.assert_array_equal(views[0].rows, views[1].rows)
