"""Vectors that are stored already: only views whose text is new are encoded, and the stored views are the same."""

import numpy as np
import pytest

import mvindex
from mvindex import Document, ViewText
from mvindex.encoder import load_encoder
from mvindex.ingest import IngestHooks
from mvindex.records import Views


class Letters:
    """A model that counts letters, and remembers what it has embedded."""

    def __init__(self):
        self.texts = []

    def __call__(self, texts):
        self.texts += texts
        return [[text.count(letter) + 1 for letter in "abcdefghijklmnopqrstuvwxyz 0123456789"] for text in texts]

    def taken(self):
        texts, self.texts = self.texts, []
        return texts

    def encoder(self, **options):
        return load_encoder(self, name="letters", **{"max_views": "auto", **options})


def sentences(numbers):
    return " ".join(f"The embargo of {number} began in May." for number in numbers)


def stored(index):
    """Return texts, spans and vectors of all documents."""
    documents = {each.id: (each.title, each.text) for each in index.scan()}
    views = index.views(documents)
    return {key: (documents[key], each.spans, each.vectors.tolist()) for key, each in views.items()}


@pytest.fixture
def model():
    return Letters()


@pytest.fixture(params=[None, 3])
def index(request, tmp_path, model):
    with mvindex.create(tmp_path / "i.mvx", encoder=model.encoder(), shards=request.param) as index:
        index.add([Document("long", sentences(range(100))), Document("other", sentences([7, 8]), "Oil")])
        model.taken()
        yield index


def as_new(tmp_path, documents, **options):
    """Return what an index of the documents stores that encodes all of them."""
    with mvindex.create(tmp_path / "new.mvx", encoder=Letters().encoder(), **options) as index:
        index.add(documents)
        return stored(index)


def test_a_long_document_that_changed_in_one_place_encodes_one_view(index, model, tmp_path):
    changed = Document("long", sentences([*range(40), 4040, *range(41, 100)]))
    report = index.add([changed])
    assert (report.replaced, report.views_given, report.views_encoded, report.views_reused) == (1, 100, 1, 99)
    assert model.taken() == ["The embargo of 4040 began in May."]
    assert stored(index) == as_new(tmp_path, [changed, Document("other", sentences([7, 8]), "Oil")])


def test_a_document_that_was_deleted_meanwhile_is_encoded(index, model):
    index.delete(ids="long")
    report = index.add([Document("long", sentences(range(3)))])
    assert (report.added, report.views_encoded, report.views_reused) == (1, 3, 0)


def test_another_title_is_another_text_of_each_view(index, model):
    report = index.add([Document("other", sentences([7, 8]), "Gas")])
    assert (report.views_encoded, report.views_reused) == (2, 0)
    assert model.taken() == ["Gas\nThe embargo of 7 began in May.", "Gas\nThe embargo of 8 began in May."]


def test_view_texts_and_given_views_are_never_taken_for_those_of_a_text(tmp_path, model):
    text = sentences(range(3))
    with mvindex.create(tmp_path / "i.mvx", encoder=model.encoder()) as index:
        index.add([Document("texts", text, view_texts=[ViewText("crisis")])])
        index.add_views([Document("given", text)], [np.ones((3, 37), np.float32)])
        report = index.add([Document("texts", text), Document("given", text)])
        assert (report.replaced, report.views_encoded, report.views_reused) == (2, 6, 0)
        report = index.add([Document("given", text, view_texts=[ViewText("crisis")])])
        assert (report.views_encoded, report.views_reused) == (1, 3)
        assert stored(index)["given"][2] == as_new(tmp_path, [Document("a", text), Document("b", "crisis")])["a"][2] + (
            Letters().encoder().encode_documents([Document("b", "crisis")]).rows.tolist()
        )


def test_what_is_encoded_again_takes_nothing(index, model):
    report = index.add([Document("long", sentences(range(100)))], hooks=IngestHooks(encode_again=True))
    assert (report.views_encoded, report.views_reused, len(model.taken())) == (100, 0, 100)


def test_pruned_documents_are_taken_whole_or_not_at_all(tmp_path, model):
    """Views that were not stored are not known: near-duplicates of the sentence before."""
    text, pruned = sentences([1, 1, 2, 2, 3]), {"prune_views": 0.1}
    with mvindex.create(tmp_path / "i.mvx", encoder=model.encoder(), **pruned) as index:
        assert index.add([Document("a", text), Document("b", "one")]).views_stored == 4
        report = index.add([Document("a", "two"), Document("b", text)])
        assert (report.views_encoded, report.views_reused) == (1, 3)
        report = index.add([Document("b", text + " At last.")])
        assert (report.views_encoded, report.views_reused) == (6, 0)
        assert stored(index) == as_new(tmp_path, [Document("a", "two"), Document("b", text + " At last.")], **pruned)


class Whole:
    """An encoder that knows nothing of the parts of its documents."""

    dim, max_views, fingerprint = 37, None, "callable:whole"
    spec = {"kind": "callable", "name": "whole", "fingerprint": fingerprint}

    def __init__(self):
        self.encoded = []

    def encode_documents(self, documents, on_progress=None):
        self.encoded += [each.text for each in documents]
        rows = np.array(Letters()([f"{each.title} {each.text}" for each in documents]), dtype=np.float32)
        on_progress(len(documents))
        return Views(rows, np.arange(len(rows) + 1), np.array([(0, len(each.text)) for each in documents]))


def test_a_text_that_moved_to_another_id_of_the_same_write_keeps_its_views(tmp_path):
    """As do the passages of a file of which one was deleted."""
    encoder, done = Whole(), []
    with mvindex.create(tmp_path / "i.mvx", encoder=encoder) as index:
        index.add([Document(str(number), f"passage {number}") for number in range(6)])
        encoder.encoded.clear()
        documents = [Document(str(number), f"passage {number + 1}") for number in range(5)] + [Document("5", "new")]
        report = index.add(documents, hooks=IngestHooks(on_progress=done.append))
        vectors = {each.id: index.views(each.id).vectors.tolist() for each in documents}
    assert (report.views_encoded, report.views_reused, sum(done)) == (1, 5, 6)
    assert encoder.encoded == ["new"]
    assert vectors == {each.id: Letters()([f" {each.text}"]) for each in documents}


def test_a_damaged_document_is_replaced_without_its_vectors(tmp_path, model):
    path, text = tmp_path / "i.mvx", sentences(range(3))
    with mvindex.create(path, encoder=model.encoder()) as index:
        index.add([Document("a", text)])
        # Nothing is appended to a MiB that is damaged.
        index.add_views([Document("b", "")], [np.ones((16_000, 37), np.float32)])
    [file] = path.glob("generation-*/views-*")
    content = bytearray(file.read_bytes())
    content[0] ^= 1
    file.write_bytes(content)
    with mvindex.open(path, encoder=model.encoder()) as index:
        report = index.add([Document("a", text + " It ended.")])
        assert (report.replaced, report.views_encoded, report.views_reused) == (1, 4, 0)
        assert stored(index)["a"] == as_new(tmp_path, [Document("a", text + " It ended.")])["a"]
