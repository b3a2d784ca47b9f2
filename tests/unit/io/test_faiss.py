"""An index of Faiss as an index here: its vectors and numbers, what has to be accepted, files that are none."""

import json

import numpy as np
import pytest

import mvindex
from mvindex.errors import ConfigError, CorpusError
from mvindex.index import store_of
from mvindex.index.factory import find_importer
from mvindex.io.import_ import Target
from mvindex.io.staging import Texts
from tests.helpers.marks import full

faiss = pytest.importorskip("faiss")
VECTORS = np.random.default_rng(1).standard_normal((300, 8)).astype("f4")
INNER, L2 = faiss.METRIC_INNER_PRODUCT, faiss.METRIC_L2


def made(kind, metric=INNER, vectors=VECTORS, numbers=None):
    index = faiss.index_factory(8, kind, metric)
    index.train(vectors)
    index.add(vectors) if numbers is None else index.add_with_ids(vectors, np.asarray(numbers))
    return index


def imported(folder, index, ids=None, **options):
    """The index made of it."""
    faiss.write_index(index, str(folder / "in.faiss"))
    if isinstance(ids, list):
        (folder / "ids.txt").write_text("".join(f"{doc_id}\n" for doc_id in ids), encoding="utf-8")
        ids = folder / "ids.txt"
    options["ids"] = None if ids is None else str(ids)
    report = find_importer("faiss")(folder / "in.faiss", Target(path=str(folder / "out.mvx")), **options)
    with mvindex.open(folder / "out.mvx") as opened:
        batches = list(store_of(opened).batches(1024))
    rows = np.concatenate([batch.views.rows for batch in batches])
    return report, [document.id for batch in batches for document in batch.documents], rows


IDS = [f"d{number}" for number in range(300)]


@pytest.mark.parametrize("kind", ["Flat", "HNSW8", "IVF4,Flat", "IDMap,Flat", "IDMap2,Flat"])
def test_vectors_that_faiss_keeps_whole_come_over_bit_for_bit(tmp_path, kind):
    numbers = np.arange(300) if kind.startswith("IDMap") else None
    report, ids, rows = imported(tmp_path, made(kind, numbers=numbers), IDS)
    assert (report.documents, report.views, report.dtype) == (300, 300, "fp32")
    assert ids == IDS
    assert rows.tobytes() == VECTORS.tobytes()


def test_several_vectors_of_one_id_are_its_views_in_order_and_answers_are_those_of_faiss(tmp_path):
    index = made("Flat")
    ids = [f"d{number % 100}" for number in range(300)]
    report, found, rows = imported(tmp_path, index, ids)
    assert (report.documents, report.views) == (100, 300)
    assert found == IDS[:100]
    assert rows.reshape(100, 3, 8).tobytes() == VECTORS.reshape(3, 100, 8).transpose(1, 0, 2).tobytes()
    query = VECTORS[:1] + np.float32(0.25)
    scores, numbers = index.search(query, 300)
    best = dict(reversed([(ids[number], score) for number, score in zip(numbers[0], scores[0], strict=True)]))
    with mvindex.open(tmp_path / "out.mvx") as opened:
        hits = opened.search(query[0], 10).hits
    assert {hit.id for hit in hits} == set(sorted(best, key=best.get, reverse=True)[:10])
    assert [hit.score for hit in hits] == pytest.approx([best[hit.id] for hit in hits], rel=1e-5)


def test_an_id_map_needs_no_ids_and_its_numbers_choose_among_those_that_are_given(tmp_path):
    numbers = np.arange(300) * 3 + 5
    (tmp_path / "a").mkdir()
    _, ids, _ = imported(tmp_path / "a", made("IDMap,Flat", numbers=numbers))
    assert ids == [str(number) for number in numbers]
    (tmp_path / "b").mkdir()
    _, ids, _ = imported(tmp_path / "b", made("IDMap,Flat", numbers=numbers), [f"n{n}" for n in range(1000)])
    assert ids == [f"n{number}" for number in numbers]
    (tmp_path / "c").mkdir()
    with pytest.raises(CorpusError, match=r"ids.txt: 900 ids, and none for vector 902 of .*in.faiss"):
        imported(tmp_path / "c", made("IDMap,Flat", numbers=numbers), [f"n{n}" for n in range(900)])


@pytest.mark.parametrize("form", ["list", "object", "npy"])
def test_ids_may_be_json_or_numpy(tmp_path, form):
    path = tmp_path / ("ids.npy" if form == "npy" else "ids.json")
    if form == "npy":
        np.save(path, np.array(IDS))
    else:
        path.write_text(json.dumps(IDS if form == "list" else {str(n): doc_id for n, doc_id in enumerate(IDS)}))
    _, ids, _ = imported(tmp_path, made("Flat"), path)
    assert ids == IDS


def test_texts_come_from_a_corpus(tmp_path):
    rows = [json.dumps({"id": doc_id, "text": f"text {doc_id}", "year": 1970}) for doc_id in reversed(IDS)]
    (tmp_path / "corpus.jsonl").write_text("\n".join(rows))
    _, ids, rows = imported(tmp_path, made("Flat"), IDS, texts=Texts(files=[str(tmp_path / "corpus.jsonl")]))
    assert ids == IDS[::-1]
    assert rows.tobytes() == VECTORS[::-1].tobytes()
    with mvindex.open(tmp_path / "out.mvx") as opened:
        assert opened.get("d7") == mvindex.Document("d7", "text d7", metadata={"year": 1970})


@pytest.mark.parametrize("kind", ["IVF4,PQ4x4", *map(full, ("PQ4x4", "SQ8", "OPQ4,PQ4x4"))])
def test_codes_are_reconstructed_only_where_that_is_accepted(tmp_path, kind):
    index = made(kind)
    with pytest.raises(CorpusError, match="keeps codes: what can be imported are reconstructions"):
        imported(tmp_path, index, IDS)
    _, _, rows = imported(tmp_path, index, IDS, accept_reconstructions=True)
    if kind.startswith("IVF"):
        index.make_direct_map()
    # A rotation is a matrix product, whose last digits depend on how many rows it has.
    np.testing.assert_allclose(rows, index.reconstruct_n(0, 300), rtol=0, atol=1e-6 if "OPQ" in kind else 0)
    assert rows.tobytes() != VECTORS.tobytes()


def test_l2_is_taken_for_vectors_of_length_1_and_else_only_where_that_is_accepted(tmp_path):
    with pytest.raises(CorpusError, match=r"searches by L2 distance, and vector \d+ has length \d"):
        imported(tmp_path, made("Flat", L2), IDS)
    with pytest.raises(CorpusError, match="its distance is none of the two"):
        imported(tmp_path, made("Flat", faiss.METRIC_L1), IDS)
    _, _, rows = imported(tmp_path, made("Flat", L2), IDS, accept_inner_product=True)
    assert rows.tobytes() == VECTORS.tobytes()
    units = VECTORS / np.linalg.norm(VECTORS, axis=1, keepdims=True)
    (tmp_path / "units").mkdir()
    _, _, rows = imported(tmp_path / "units", made("Flat", L2, units), IDS)
    assert rows.tobytes() == units.tobytes()


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        (None, "holds vectors and no ids; give --ids FILE"),
        (IDS[:299], "299 ids, and none for vector 299"),
        ([*IDS, "one more"], r"ids.txt: expected 300 ids, one for each vector of .*in.faiss, got 301"),
        ([*IDS[:-1], ""], r"ids.txt:300: expected an id, a string or an integer, got ''"),
    ],
)
def test_ids_that_do_not_fit_are_refused(tmp_path, ids, message):
    with pytest.raises(CorpusError, match=message):
        imported(tmp_path, made("Flat"), ids)
    assert not (tmp_path / "out.mvx").exists()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            json.dumps({str((1 << 63) + number): "x" for number in range(2)}),
            "expected names that are 64-bit integers, such as 17, got '9223372036854775808'",
        ),
        ('{"5": "a", "05": "b"}', "expected names that are 64-bit integers, such as 17, got '05'"),
        ('{"5": "a", "5": "b"}', "is not JSON: a name occurs twice in one object"),
        ('{"x": "a"}', "expected names that are 64-bit integers, such as 17, got 'x'"),
    ],
)
def test_a_map_of_ids_whose_names_are_no_numbers_of_faiss_is_refused(tmp_path, text, message):
    (tmp_path / "ids.json").write_text(text)
    with pytest.raises(CorpusError, match=f"ids.json: {message}"):
        imported(tmp_path, made("Flat"), tmp_path / "ids.json")


def test_lists_with_numbers_of_their_own_are_refused(tmp_path):
    with pytest.raises(CorpusError, match="its lists have numbers that are not 0, 1, 2"):
        imported(tmp_path, made("IVF4,Flat", numbers=np.arange(300) * 2), [f"n{n}" for n in range(600)])


def test_files_that_are_no_whole_index_are_refused(tmp_path):
    faiss.write_index(made("Flat"), str(tmp_path / "good"))
    good = (tmp_path / "good").read_bytes()
    (tmp_path / "ids.txt").write_text("".join(f"{doc_id}\n" for doc_id in IDS))
    cases = {
        "cut": (good[:500], "Faiss cannot read it"),
        "longer": (good + b"x", "has bytes after the end"),
        "none": (b"hello, world" * 9, "Faiss cannot read it"),
        "empty": (b"", "Faiss cannot read it"),
        # The number of bytes of the vectors stands before them: here it says 2^60.
        "huge": (good[:37] + (1 << 60).to_bytes(8, "little") + good[45:], "."),
    }
    for name, (data, message) in cases.items():
        (tmp_path / name).write_bytes(data)
        with pytest.raises(CorpusError, match=f"{name}: .*{message}"):
            find_importer("faiss")(tmp_path / name, Target(path=str(tmp_path / "x.mvx")), ids=str(tmp_path / "ids.txt"))
    assert not (tmp_path / "x.mvx").exists()


def test_an_importer_that_is_not_installed_is_named():
    with pytest.raises(ConfigError, match="nothing installed imports 'annoy'; expected one of faiss"):
        find_importer("annoy")
