"""Documents are stored in whole batches, or refused by name."""

import numpy as np
import pytest

import mvindex
from mvindex.errors import (
    DocumentError,
    EncoderError,
    StoreError,
)
from mvindex.ingest import IngestHooks
from tests.helpers.index_examples import by_length, documents, one_vector, vectors


def test_an_error_in_the_middle_of_an_add_keeps_whole_batches_only(tmp_path, monkeypatch):
    monkeypatch.setattr("mvindex.ingest.pipeline.CHUNK_DOCUMENTS", 8)

    def failing():
        yield from documents(20)
        raise RuntimeError("the source broke")

    encoder = mvindex.CallableEncoder(by_length, query_function=one_vector, name="by_length")
    with mvindex.create(tmp_path / "y.mvx", encoder=encoder) as index:
        with pytest.raises(RuntimeError):
            index.add(failing())
        assert len(index) == 16
        report = index.add(documents(20))
        assert (report.added, report.unchanged, report.replaced) == (4, 16, 0)


def test_an_encoder_on_a_gpu_gets_several_chunks_at_once(tmp_path, monkeypatch):
    monkeypatch.setattr("mvindex.ingest.pipeline.CHUNK_DOCUMENTS", 4)
    encoder, sizes = mvindex.CallableEncoder(by_length, query_function=one_vector, name="by_length"), []
    encode = encoder.encode_documents
    encoder.encode_documents = lambda given, on_progress: sizes.append(len(given)) or encode(given, on_progress)
    encoder.chunks_at_once = 3
    with mvindex.create(tmp_path / "y.mvx", encoder=encoder) as index:
        index.add(documents(20))
    assert sizes == [12, 8]


def test_a_failing_encoder_stores_nothing_of_its_batch(tmp_path):
    def broken(texts):
        return np.full((len(texts), 2), np.nan)

    encoder = mvindex.CallableEncoder(broken, name="broken", dim=2)
    with mvindex.create(tmp_path / "y.mvx", encoder=encoder) as index:
        with pytest.raises(EncoderError):
            index.add(documents(5))
        assert len(index) == 0


def test_a_stopped_run_ends_at_a_batch_and_can_go_on(tmp_path, monkeypatch):
    monkeypatch.setattr("mvindex.ingest.pipeline.CHUNK_DOCUMENTS", 8)
    seen = []
    hooks = IngestHooks(on_progress=seen.append, should_stop=lambda: sum(seen) >= 16)
    encoder = mvindex.CallableEncoder(by_length, query_function=one_vector, name="by_length")
    with mvindex.create(tmp_path / "y.mvx", encoder=encoder) as index:
        report = index.add(documents(40), hooks=hooks)
        assert report.stopped and report.added == len(index) == 16
        assert index.add(documents(40)).added == 24


def test_documents_that_did_not_change_are_encoded_again_where_a_run_says_so(tmp_path):
    factor = 1.0
    encoder = mvindex.CallableEncoder(
        lambda texts: [[factor * len(text), 1.0] for text in texts], query_function=one_vector, name="scaled"
    )
    with mvindex.create(tmp_path / "y.mvx", encoder=encoder) as index:
        index.add(documents(3))
        factor = 2.0
        ids = [one.id for one in documents(3)]
        before = {doc_id: found.vectors[0][0] for doc_id, found in index.views(ids).items()}
        assert index.add(documents(3)).unchanged == 3
        report = index.add(documents(3), hooks=IngestHooks(encode_again=True))
        assert (report.replaced, report.unchanged, len(index)) == (3, 0, 3)
        after = {doc_id: found.vectors[0][0] for doc_id, found in index.views(ids).items()}
        assert after == {doc_id: 2 * value for doc_id, value in before.items()}
        # The next run finds nothing new.
        assert index.add(documents(3)).unchanged == 3


def test_an_interrupted_run_resumed_equals_an_uninterrupted_one(tmp_path, monkeypatch):
    monkeypatch.setattr("mvindex.ingest.pipeline.CHUNK_DOCUMENTS", 8)
    calls = []

    def whole_chunks(texts):
        calls.append(len(texts))
        return by_length(texts)

    encoder = mvindex.CallableEncoder(whole_chunks, query_function=one_vector, name="whole")
    with mvindex.create(tmp_path / "a.mvx", encoder=encoder) as straight:
        straight.add(documents(30))
    first_run = list(calls)
    calls.clear()
    with mvindex.create(tmp_path / "b.mvx", encoder=encoder) as broken:
        broken.add(documents(30)[:16])
        broken.add(documents(30))
        assert calls == first_run
    for name in ("views-000001.f16", "rows-000001.bin"):
        assert (tmp_path / "a.mvx" / "generation-000001" / name).read_bytes() == (
            tmp_path / "b.mvx" / "generation-000001" / name
        ).read_bytes()


def test_an_id_given_twice_in_one_call_names_both_places(index):
    twice = [mvindex.Document("a", "x"), mvindex.Document("b", "y"), mvindex.Document("a", "z")]
    with pytest.raises(DocumentError, match="document 3: id 'a' occurs at document 1"):
        index.add_views(twice, vectors(3))
    assert len(index) == 10


def test_ids_given_twice_are_found_across_batches(index, monkeypatch):
    monkeypatch.setattr("mvindex.ingest.pipeline.CHUNK_DOCUMENTS", 4)
    with pytest.raises(DocumentError, match="document 10: id 'n0' occurs at document 1"):
        index.add_views([mvindex.Document(f"n{n % 9}", "x") for n in range(12)], vectors(12))


def test_new_metadata_alone_is_not_encoded_again(tmp_path):
    calls = []

    def counting(texts):
        calls.append(len(texts))
        return one_vector(texts)

    with mvindex.create(tmp_path / "y.mvx", encoder=mvindex.CallableEncoder(counting, name="c", dim=2)) as index:
        index.add(documents(5))
        calls.clear()
        report = index.add([mvindex.Document("1", "text 1", metadata={"lang": "en"}), mvindex.Document("2", "text 2")])
        assert (report.updated, report.unchanged, calls) == (1, 1, [])
        assert index.get("1").metadata == {"lang": "en"}


def test_views_that_cannot_be_held_are_refused_by_name(index):
    good = vectors(3)
    for spoil, message in (
        (lambda v: v * np.nan, "NaN"),
        (lambda v: v * 1e6, "overflows fp16"),
        (lambda v: v * 1e-7, "loses more than 1e-3"),
        (lambda v: v * 1e19, "norm above 1e18"),
    ):
        spoilt = good.copy()
        spoilt[1] = spoil(good[1])
        with pytest.raises(StoreError, match=f"document 'b': view 0 .*{message}"):
            index.add_views([mvindex.Document(name, "x") for name in "abc"], spoilt)
    assert len(index) == 10


@pytest.mark.parametrize(
    "views",
    [np.ones((2, 1, 5)), np.ones((2, 0, 4)), [np.ones((1, 4)), np.ones((1, 4)), np.ones((1, 4))], [np.ones((1, 4))],
     [["a"], ["b"]], np.ones((2, 1, 1, 4)), [np.ones((1, 4)), None]],
)  # fmt: skip
def test_views_of_another_shape_are_refused(index, views):
    with pytest.raises(EncoderError):
        index.add_views(documents(2), views)
    assert len(index) == 10


def test_any_float_type_and_norm_is_taken(tmp_path):
    with mvindex.create(tmp_path / "y.mvx", dim=3, dtype="fp32") as index:
        index.add_views([mvindex.Document("a", "x")], [np.array([[1e17, 0, 0]])])
        index.add_views([mvindex.Document("b", "x")], [np.array([[1, 2, 3]], dtype=np.int64)])
        index.add_views([mvindex.Document("c", "x")], [np.array([[1e-20, 0, 0]], dtype=np.float64)])
        assert [hit.id for hit in index.search([1.0, 0, 0], top_k=3).hits] == ["a", "b", "c"]
        assert index.search([1.0, 0, 0], top_k=3).hits[2].score == np.float32(1e-20)


def test_an_empty_text_is_encoded_by_its_title_and_with_neither_refused(tmp_path):
    with mvindex.create(tmp_path / "y.mvx", encoder=one_vector) as index:
        index.add([mvindex.Document("1", "", "only a title")])
        assert index.search("x", top_k=1).hits[0].title == "only a title"
        with pytest.raises(DocumentError, match="both empty"):
            index.add([mvindex.Document("2", " \u200b\n", "")])


def test_new_metadata_of_many_documents_is_each_its_own(tmp_path):
    encoder = mvindex.CallableEncoder(one_vector, name="c", dim=2)
    with mvindex.create(tmp_path / "y.mvx", encoder=encoder) as index:
        index.add(documents(9))
        changed = [mvindex.Document(str(n), f"text {n}", metadata={"year": 1990 + n}) for n in (7, 2, 8, 3)]
        assert index.add(changed).updated == 4
    with mvindex.open(tmp_path / "y.mvx", encoder=encoder) as again:
        found = {document.id: document.metadata for document in again}
        assert found == {str(n): {"year": 1990 + n} if n in (2, 3, 7, 8) else {} for n in range(9)}
        assert {hit.id for hit in again.search("text", top_k=9, filter={"year": {"gte": 1993}}).hits} == {"3", "7", "8"}
