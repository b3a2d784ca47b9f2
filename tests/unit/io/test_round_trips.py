"""An exported and imported index equals the first: documents, views bit for bit, order, results."""

import json

import numpy as np
import pytest

import mvindex
from mvindex.errors import ConfigError, CorpusError, StoreError
from mvindex.io.export import FORMATS, PART_BATCHES, export_index
from mvindex.io.import_ import Target, import_vectors
from tests.helpers.io_examples import SentenceEncoder, made_index, passages, stored

VECTOR_FORMATS = ["parquet", "parquet-documents", "npy", "jsonl"]


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sources")
    made = {"fp16": made_index(folder / "fp16.mvx", lexical="english")}
    made["fp32"] = made_index(folder / "fp32.mvx", dtype="fp32")
    made["shards"] = made_index(folder / "shards.mvx", shards=3)
    return made


def moved(source, to, folder):
    """The index made of an export of the source."""
    with mvindex.open(source) as index:
        export_index(index, folder / "out", to)
    import_vectors([folder / "out"], Target(path=str(folder / "back.mvx")))
    return folder / "back.mvx"


@pytest.mark.parametrize("to", VECTOR_FORMATS)
@pytest.mark.parametrize("kind", ["fp16", "fp32", "shards"])
def test_an_export_read_back_is_an_equal_index(sources, kind, to, tmp_path):
    back = moved(sources[kind], to, tmp_path)
    with mvindex.open(sources[kind]) as old, mvindex.open(back) as new:
        assert stored(new) == stored(old)
        assert len(stored(old)) == 59
        assert new.settings["next_ordinal"] == old.settings["next_ordinal"]
        for name in ("dtype", "encoder", "dim", "temperature", "lexical", "prune_views"):
            assert new.settings.get(name) == old.settings.get(name)
        for scoring in ("max", "drpq"):
            queries = np.random.default_rng(5).standard_normal((5, 12)).astype(np.float32)
            assert new.search(queries, 10, scoring=scoring) == old.search(queries, 10, scoring=scoring)


def test_the_encoder_of_an_export_takes_texts_again_and_knows_what_it_has_encoded(sources, tmp_path):
    back = moved(sources["fp16"], "parquet", tmp_path)
    with mvindex.open(back, encoder=SentenceEncoder()) as new:
        assert new.search("It was replaced.", 1).hits[0].snippet == "It was replaced."
        document = passages(60)[20]
        report = new.add([document])
        assert (report.unchanged, report.added, report.replaced) == (1, 0, 0)
        new.add([mvindex.Document("later", "A new one.")])
        assert stored(new)[-1][0] == 61  # 60 passages and a title before it, whatever was deleted


def test_the_words_of_an_export_can_be_searched_again(sources, tmp_path):
    back = moved(sources["fp16"], "jsonl", tmp_path)
    with mvindex.open(sources["fp16"]) as old, mvindex.open(back) as new:
        asked = [index.search("oil embargo", 5, mode="lexical").hits for index in (old, new)]
        assert asked[0] == asked[1]
        assert len(asked[0]) == 5


def test_an_index_of_given_vectors_stays_one(tmp_path):
    views = [np.random.default_rng(n).standard_normal((n % 3 + 1, 4)).astype("f2") for n in range(20)]
    with mvindex.create(tmp_path / "given.mvx", dim=4) as index:
        index.add_views([mvindex.Document(str(n), "") for n in range(20)], views)
    back = moved(tmp_path / "given.mvx", "npy", tmp_path)
    with mvindex.open(tmp_path / "given.mvx") as old, mvindex.open(back) as new:
        assert stored(new) == stored(old)
        assert new.settings["encoder"] is None
        assert new.add_views([mvindex.Document("0", "")], [views[0]]).unchanged == 1


def test_npy_files_hold_what_numpy_users_expect(sources, tmp_path):
    with mvindex.open(sources["fp16"]) as index:
        export_index(index, tmp_path / "out", "npy")
        wanted = stored(index)
    vectors = np.load(tmp_path / "out" / "vectors.npy", allow_pickle=False)
    ids = (tmp_path / "out" / "ids.txt").read_text(encoding="utf-8").removesuffix("\n").split("\n")
    assert vectors.dtype == np.float16
    assert vectors.shape == (len(ids), 12)
    assert ids == [row[1].id for row in wanted for _ in row[3]]
    assert vectors.astype("<f4").tobytes() == b"".join(row[2] for row in wanted)


def test_parquet_holds_a_row_a_view_or_a_row_a_document(sources, tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    with mvindex.open(sources["fp32"]) as index:
        for to in ("parquet", "parquet-documents"):
            export_index(index, tmp_path / to, to)
        wanted = stored(index)
    views = parquet.read_table(tmp_path / "parquet" / "views-00000.parquet")
    documents = parquet.read_table(tmp_path / "parquet-documents" / "documents-00000.parquet")
    assert str(views.schema.field("vector").type) == "fixed_size_list<element: float>[12]"
    assert [row["view"] for row in views.to_pylist()] == [slot for row in wanted for slot in range(len(row[3]))]
    first = [row for row in views.to_pylist() if row["view"] == 0]
    assert [row["text"] for row in first] == [row[1].text for row in wanted]
    assert [json.loads(row["metadata"]) for row in documents.to_pylist()] == [dict(row[1].metadata) for row in wanted]
    assert [len(row["vectors"]) for row in documents.to_pylist()] == [len(row[3]) for row in wanted]


def test_trec_files_hold_ids_titles_and_texts_alone(tmp_path):
    with mvindex.create(tmp_path / "x.mvx", dim=2) as index:
        index.add_views([mvindex.Document("a&b", "x < y </TEXT> 日", "T")], [[[1, 0]]])
        index.add_views([mvindex.Document("b", "no title")], [[[1, 0]]])
        export_index(index, tmp_path / "out", "trec")
        assert (tmp_path / "out" / "documents-00000.trec").read_text(encoding="utf-8") == (
            "<DOC>\n<DOCNO>a&amp;b</DOCNO>\n<TITLE>T</TITLE>\n<TEXT>\nx &lt; y &lt;/TEXT&gt; 日\n</TEXT>\n</DOC>\n"
            "<DOC>\n<DOCNO>b</DOCNO>\n<TEXT>\nno title\n</TEXT>\n</DOC>\n"
        )
        index.add_views([mvindex.Document("c d", "x")], [[[1, 0]]])
        with pytest.raises(StoreError, match="'c d': expected an id without white space"):
            export_index(index, tmp_path / "other", "trec")
    assert not list((tmp_path / "other").glob("*.trec"))
    with pytest.raises(CorpusError, match="has no vectors"):
        import_vectors([tmp_path / "out"], Target(path=str(tmp_path / "y.mvx")))


def test_a_document_whose_views_are_split_by_a_batch_of_rows_stays_whole(tmp_path):
    """2,048 rows are read at once; here 3,000 views of one document, and one after it."""
    rows = np.random.default_rng(0).standard_normal((3000, 2)).astype("f2")
    with mvindex.create(tmp_path / "x.mvx", dim=2) as index:
        index.add_views([mvindex.Document("a", "x"), mvindex.Document("b", "y")], [rows, rows[:1]])
    back = moved(tmp_path / "x.mvx", "parquet", tmp_path)
    with mvindex.open(tmp_path / "x.mvx") as old, mvindex.open(back) as new:
        assert stored(new) == stored(old)


def test_an_export_in_several_parts_is_read_back_whole(sources, tmp_path, monkeypatch):
    monkeypatch.setattr("mvindex.io.export.PART_BATCHES", 1)
    with mvindex.open(sources["shards"]) as index:
        report = export_index(index, tmp_path / "out", "parquet")
        assert (report.files, report.documents) == (3, 59)
        import_vectors([tmp_path / "out"], Target(path=str(tmp_path / "back.mvx")))
        with mvindex.open(tmp_path / "back.mvx") as new:
            assert stored(new) == stored(index)
    assert PART_BATCHES == 64


def test_a_finished_export_is_left_as_it_is(sources, tmp_path):
    with mvindex.open(sources["fp16"]) as index:
        first = export_index(index, tmp_path / "out", "jsonl")
        assert (first.written, export_index(index, tmp_path / "out", "jsonl").written) == (1, 0)
        with pytest.raises(ConfigError, match="holds an export of another index, format or state"):
            export_index(index, tmp_path / "out", "npy")
        (tmp_path / "mine").mkdir()
        (tmp_path / "mine" / "notes.txt").write_text("mine")
        with pytest.raises(ConfigError, match="expected a new directory or one of an export"):
            export_index(index, tmp_path / "mine", "npy")
        with pytest.raises(ConfigError, match="expected a format .*, got 'csv'"):
            export_index(index, tmp_path / "csv", "csv")
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["notes.txt"]


def test_an_export_of_an_index_that_was_changed_since_is_not_gone_on_with(tmp_path):
    with mvindex.create(tmp_path / "x.mvx", dim=2) as index:
        index.add_views([mvindex.Document("a", "x")], [[[1, 0]]])
        export_index(index, tmp_path / "out", "jsonl")
        index.add_views([mvindex.Document("b", "x")], [[[1, 0]]])
        with pytest.raises(ConfigError, match="another index, format or state"):
            export_index(index, tmp_path / "out", "jsonl")


@pytest.mark.parametrize("harm", [lambda path: path.unlink(), lambda path: path.write_bytes(b"{}")])
@pytest.mark.parametrize("is_complete", [True, False])
def test_an_export_that_lost_a_file_is_not_called_whole(sources, tmp_path, harm, is_complete):
    with mvindex.open(sources["fp16"]) as index:
        export_index(index, tmp_path / "out", "jsonl")
        edited(tmp_path / "out", is_complete=is_complete)
        harm(tmp_path / "out" / "documents-00000.jsonl")
        with pytest.raises(StoreError, match=r"documents-00000.jsonl: (is missing|has 2 bytes); .*export again"):
            export_index(index, tmp_path / "out", "jsonl")


def test_two_exports_do_not_write_into_one_directory(sources, tmp_path):
    refusals = []

    def second(what, done, total):
        with (
            mvindex.open(sources["fp16"]) as index,
            pytest.raises(StoreError, match="another export writes to it") as no,
        ):
            export_index(index, tmp_path / "out", "jsonl")
        refusals.append(no)

    with mvindex.open(sources["fp16"]) as index:
        export_index(index, tmp_path / "out", "jsonl", second)
        assert refusals
        assert export_index(index, tmp_path / "out", "jsonl").written == 0


def test_a_directory_with_files_of_others_is_left_alone(sources, tmp_path):
    (tmp_path / "theirs.new").write_text("x")
    with (
        mvindex.open(sources["fp16"]) as index,
        pytest.raises(ConfigError, match="expected a new directory or one of an export"),
    ):
        export_index(index, tmp_path, "jsonl")


def test_an_empty_index_is_not_exported(tmp_path):
    with (
        mvindex.create(tmp_path / "x.mvx", dim=2) as index,
        pytest.raises(StoreError, match="expected documents to export"),
    ):
        export_index(index, tmp_path / "out", "jsonl")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("harm", "message"),
    [
        (lambda folder: (folder / "documents-00000.jsonl").unlink(), r"documents-00000.jsonl: is missing"),
        (
            lambda folder: (folder / "documents-00000.jsonl").write_bytes(b"{}\n"),
            r"documents-00000.jsonl: has 3 bytes; manifest.json says",
        ),
        (lambda folder: edited(folder, is_complete=False), "the export is not finished"),
        (lambda folder: edited(folder, documents=60), "hold 59 documents .*; their manifest says 60 and"),
        (lambda folder: edited(folder, format_version=2), "expected format version 1, got 2"),
        (lambda folder: edited(folder, mvindex="backup"), "expected a manifest of `mvindex export`"),
        (lambda folder: edited(folder, files=[{"name": "../x", "size_bytes": 1}]), "named '../x'"),
        (lambda folder: edited(folder, settings={}), "setting 'dtype': expected fp16 or fp32, got None"),
        (lambda folder: edited(folder, next_ordinal=-1), "expected a count, got -1"),
        (lambda folder: (folder / "manifest.json").write_text("[" * 100_000), "is not JSON"),
        (lambda folder: (folder / "manifest.json").unlink(), "expected the manifest.json of an export"),
    ],
)
def test_an_export_with_something_missing_is_refused(sources, tmp_path, harm, message):
    with mvindex.open(sources["fp16"]) as index:
        export_index(index, tmp_path / "out", "jsonl")
    harm(tmp_path / "out")
    with pytest.raises(CorpusError, match=message):
        import_vectors([tmp_path / "out"], Target(path=str(tmp_path / "back.mvx")))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out"]


def edited(folder, **changes):
    path = folder / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def test_every_format_that_is_named_is_tested_here():
    assert set(FORMATS) == {*VECTOR_FORMATS, "trec"}
