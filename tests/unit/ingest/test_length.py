"""A document has so many characters at most, wherever it comes from; a longer one is named and not stored."""

import json

import pytest

import mvindex
from mvindex import Document, ViewText
from mvindex.corpus import CorpusOptions, Reject, open_corpus
from mvindex.errors import ConfigError, CorpusError, DocumentError
from mvindex.ingest import IngestHooks
from mvindex.ingest.files import CorpusIngest, OnError
from mvindex.io.sync import SyncHooks, SyncOptions, sync_folder
from mvindex.records import MAX_DOCUMENT_CHARS, no_progress
from tests.helpers.index_examples import by_length

LONG = "word " * 200
MESSAGE = r"document 'b': expected at most 900 characters, got 1,001; split it, or raise --max-document-chars"
HOOKS = IngestHooks(max_document_chars=900)


@pytest.fixture(params=[None, 3], ids=["whole", "shards"])
def index(request, tmp_path):
    with mvindex.create(
        tmp_path / "a.mvx", encoder=mvindex.CallableEncoder(by_length, name="length", dim=2), shards=request.param
    ) as index:
        yield index


def test_a_long_document_is_named_with_its_place_and_not_stored(index):
    with pytest.raises(DocumentError, match=f"document 2: {MESSAGE}"):
        index.add([Document("a", "short"), Document("b", LONG, "t")], hooks=HOOKS)
    assert "b" not in index
    assert index.add([Document("b", LONG, "t")], hooks=IngestHooks(max_document_chars=1001)).added == 1


def test_view_texts_count_as_well(index):
    document = Document("b", "x" * 500, "", {}, ["y" * 300, ViewText("z" * 201)])
    with pytest.raises(DocumentError, match=MESSAGE):
        index.add([document], hooks=HOOKS)


def test_a_megabyte_is_the_most_by_default(index):
    with pytest.raises(DocumentError, match="at most 1,048,576 characters, got 1,048,577"):
        index.add([Document("b", "x" * (MAX_DOCUMENT_CHARS + 1))])


@pytest.mark.parametrize("name", ["rows.jsonl", "rows.csv"])
def test_a_long_row_of_a_file_stops_the_run_or_is_skipped_into_the_rejects(index, tmp_path, name):
    path = tmp_path / name
    rows = [("a", "short"), ("b", f"{LONG}t"), ("c", "short too")]
    if path.suffix == ".csv":
        path.write_text("id,text\n" + "".join(f"{doc_id},{text}\n" for doc_id, text in rows))
    else:
        path.write_text("".join(json.dumps({"id": doc_id, "text": text}) + "\n" for doc_id, text in rows))

    def run(on_error):
        corpus = open_corpus(str(path), CorpusOptions(max_document_chars=900))
        run = CorpusIngest(index.add_entries, corpus, on_error, tmp_path / "out", lambda text: None)
        return run.run(no_progress, lambda: False)

    with pytest.raises(CorpusError, match=rf"{name}:\d: {MESSAGE}"):
        run(OnError.STOP)
    report = run(OnError.SKIP)
    assert (report.rejected, sorted(document.id for document in index)) == (1, ["a", "c"])
    assert (tmp_path / f"out.rejects{path.suffix}").read_text().count("word") == 200


def test_a_long_row_of_a_folder_is_rejected_and_the_rest_synced(index, tmp_path):
    folder = tmp_path / "notes"
    folder.mkdir()
    (folder / "a.md").write_text("It rose.")
    rows = [{"id": "x", "text": "short"}, {"id": "b", "text": LONG}]
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    warnings = []
    report = sync_folder(index, folder, SyncOptions(max_document_chars=900), SyncHooks(on_warning=warnings.append))
    assert any("at most 900 characters" in warning for warning in warnings), warnings
    assert len(index) == 2 and not report.is_complete
    assert sync_folder(index, folder, SyncOptions(max_document_chars=2000)).is_complete and len(index) == 3


def test_prose_is_split_before_it_is_too_long(tmp_path):
    (tmp_path / "a.txt").write_text("x" * 3_000_000)
    with open_corpus(str(tmp_path / "a.txt")) as corpus:
        rows = list(corpus)
    assert not any(isinstance(row, Reject) for row in rows)
    assert sum(len(row.document.text) for row in rows) == 3_000_000


def test_a_limit_is_a_whole_number_from_1_on():
    with pytest.raises(ConfigError, match="max_document_chars is 0; expected 1 or more"):
        CorpusOptions(max_document_chars=0)
