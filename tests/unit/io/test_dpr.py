"""DPR's embeddings with their passages: joined by id, every gap named, no index where something is wrong."""

import pickle  # noqa: TID251 - what DPR writes

import numpy as np
import pytest

import mvindex
from mvindex.errors import ConfigError, CorpusError
from mvindex.index import store_of
from mvindex.io.dpr import import_dpr, sort_by_number
from mvindex.io.import_ import Target
from mvindex.io.staging import MissingPolicy, Texts

VECTORS = np.random.default_rng(3).standard_normal((6, 8)).astype("f4")


def embeddings(folder, ids, name="e", shards=1, prefix="wiki:"):
    pairs = [(prefix + doc_id, VECTORS[int(doc_id[-1]) % 6]) for doc_id in ids]
    for number in range(shards):
        (folder / f"{name}_{number}").write_bytes(pickle.dumps(pairs[number::shards], protocol=4))


def corpus(folder, ids, name="passages.tsv"):
    rows = [f'{doc_id}\t"Text ""of"" {doc_id}, ü."\tTitle {doc_id}\n' for doc_id in ids]
    (folder / name).write_text("id\ttext\ttitle\n" + "".join(rows), encoding="utf-8")
    return Texts(files=[str(folder / name)])


def imported(folder, texts=None, **options):
    target = Target(path=str(folder / "out.mvx"), dtype=options.pop("dtype", None))
    return import_dpr([str(folder / "e_*")], target, texts, **options)


def test_passages_get_the_vectors_of_their_ids_in_the_order_of_the_corpus(tmp_path):
    embeddings(tmp_path, "123456", shards=3)
    report = imported(tmp_path, corpus(tmp_path, "412365"))
    assert (report.documents, report.views, report.dtype) == (6, 6, "fp32")
    with mvindex.open(tmp_path / "out.mvx") as index:
        assert [document.id for document in index] == list("412365")
        batch = next(store_of(index).batches(1024))
        assert batch.views.rows.tobytes() == VECTORS[[4, 1, 2, 3, 0, 5]].tobytes()
        assert batch.ordinals.tolist() == [0, 1, 2, 3, 4, 5]
        hit = index.search(VECTORS[2], 1).hits[0]
        assert (hit.id, hit.text, hit.title) == ("2", 'Text "of" 2, ü.', "Title 2")
        assert hit.score == pytest.approx(float(VECTORS[2].astype("f8") @ VECTORS[2].astype("f8")), rel=1e-6)
        index.add_views([mvindex.Document("7", "x")], [VECTORS[:1]])
        assert [batch.ordinals.tolist() for batch in store_of(index).batches(1024)] == [[0, 1, 2, 3, 4, 5, 6]]


def test_half_precision_is_stored_where_it_is_asked_for(tmp_path):
    embeddings(tmp_path, "12")
    assert imported(tmp_path, corpus(tmp_path, "12"), dtype="fp16").dtype == "fp16"
    with mvindex.open(tmp_path / "out.mvx") as index:
        assert next(store_of(index).batches(1024)).views.rows.tolist() == VECTORS[1:3].astype("f2").tolist()


@pytest.mark.parametrize(
    ("vectors", "passages", "message"),
    [
        ("123", "12345", r"^2 documents of the corpus have no vector \('4', '5'\)\. Give all files"),
        ("12345", "123", r"^2 ids have vectors and no document in the corpus \('4', '5'\)\."),
        ("124", "123", r"^1 documents .* \('3'\); 1 ids have vectors and no document in the corpus \('4'\)\."),
        ("1223", "123", r"id '2' has 2 vectors \(numbers 1 and 2 of all\)"),
        ("123", "1233", "two documents with the id '3'"),
    ],
)
def test_gaps_and_duplicates_are_named_and_make_no_index(tmp_path, vectors, passages, message):
    embeddings(tmp_path, vectors)
    with pytest.raises(CorpusError, match=message):
        imported(tmp_path, corpus(tmp_path, passages))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["e_0", "passages.tsv"]


def test_what_has_no_counterpart_is_left_out_and_counted_where_that_is_asked_for(tmp_path):
    embeddings(tmp_path, "1245")
    texts = corpus(tmp_path, "1236")
    report = imported(tmp_path, Texts(files=texts.files, missing=MissingPolicy.SKIP))
    assert report.as_row()["without_vector"] == 2
    assert report.as_row()["without_text"] == 2
    with mvindex.open(tmp_path / "out.mvx") as index:
        assert [document.id for document in index] == ["1", "2"]


def test_a_corpus_of_other_ids_is_told_apart(tmp_path):
    embeddings(tmp_path, "12", prefix="doc-")
    texts = Texts(files=corpus(tmp_path, "12").files, missing=MissingPolicy.SKIP)
    with pytest.raises(CorpusError, match="no id of the corpus has a vector"):
        imported(tmp_path, texts)
    assert imported(tmp_path, texts, id_prefix="doc-").documents == 2


def test_without_a_corpus_there_are_ids_alone_in_the_order_of_the_files(tmp_path):
    pairs = [(f"wiki:{number}", VECTORS[number % 6]) for number in range(24)]
    for number in range(12):
        (tmp_path / f"e_{number}").write_bytes(pickle.dumps(pairs[2 * number : 2 * number + 2]))
    imported(tmp_path)
    with mvindex.open(tmp_path / "out.mvx") as index:
        assert [document.id for document in index] == [str(number) for number in range(24)]
        assert index.get("5").text == ""


def test_files_are_read_by_their_numbers_only_where_all_have_one():
    assert sort_by_number(["a/e_10", "a/e_9", "a/e_0"]) == ["a/e_0", "a/e_9", "a/e_10"]
    assert sort_by_number(["a/e_10.pkl", "a/e_9.pkl", "a/e_0.pkl"]) == ["a/e_0.pkl", "a/e_9.pkl", "a/e_10.pkl"]
    assert sort_by_number(["e_10.pkl", "e_9.bin"]) == ["e_10.pkl", "e_9.bin"]
    assert sort_by_number(["b_10", "a_9"]) == ["b_10", "a_9"]
    assert sort_by_number(["e_1", "extra"]) == ["e_1", "extra"]


def test_files_of_different_dims_are_refused(tmp_path):
    embeddings(tmp_path, "12")
    (tmp_path / "e_1").write_bytes(pickle.dumps([("3", np.zeros(5, "f4"))]))
    with pytest.raises(CorpusError, match=r"e_1: expected vectors of 8 dims, as before, got 5"):
        imported(tmp_path)


@pytest.mark.parametrize(
    ("doc_id", "message"),
    [
        ("wiki:", "id is ''; every document"),
        ("\ud800", "id holds a lone surrogate"),
        ("a\0", "id holds a NUL"),
        ("a\nb", "holds a control character"),
        ("a" * 2000, "has 2000 characters; at most 1024"),
        ("a" * 20_000, "has 20000 characters; at most 1024"),
    ],
)
def test_an_id_that_no_document_may_have_is_refused_with_file_and_item(tmp_path, doc_id, message):
    (tmp_path / "e_0").write_bytes(pickle.dumps([("1", VECTORS[0]), (doc_id, VECTORS[1])]))
    with pytest.raises(CorpusError, match=f"e_0: item 1: .*{message}"):
        imported(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["e_0"]


def test_a_bad_row_of_the_corpus_is_named(tmp_path):
    embeddings(tmp_path, "12")
    (tmp_path / "passages.tsv").write_text("id\ttext\ttitle\n1\tx\ty\n2\n")
    with pytest.raises(CorpusError, match=r"passages.tsv:3: expected 3 columns"):
        imported(tmp_path, Texts(files=[str(tmp_path / "passages.tsv")]))


@pytest.mark.parametrize(
    ("vector", "message"),
    [([1, np.nan], "holds NaN or infinity"), ([1, 1e5], "overflows fp16"), ([1e-9, 0], "loses more")],
)
def test_numbers_that_an_index_cannot_hold_are_named_with_their_document(tmp_path, vector, message):
    (tmp_path / "e_0").write_bytes(pickle.dumps([("1", np.array(vector, "f4"))]))
    with pytest.raises(CorpusError, match=f"document '1': view 0 {message}"):
        imported(tmp_path, dtype="fp16")
    assert [path.name for path in tmp_path.iterdir()] == ["e_0"]


def test_an_index_that_exists_is_not_touched(tmp_path):
    embeddings(tmp_path, "12")
    (tmp_path / "out.mvx").mkdir()
    with pytest.raises(ConfigError, match="out.mvx exists already"):
        imported(tmp_path)
    assert not list((tmp_path / "out.mvx").iterdir())


def test_stdin_cannot_be_the_corpus(tmp_path):
    embeddings(tmp_path, "12")
    with pytest.raises(ConfigError, match="the corpus is read twice"):
        imported(tmp_path, Texts(files=["-"]))
