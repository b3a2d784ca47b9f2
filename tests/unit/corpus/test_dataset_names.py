"""Datasets of Hugging Face from local folders; those of the hub cannot be reached here."""

import gc
import json
import re

import pytest

from mvindex.corpus import CorpusOptions, Reject, open_corpus, read_documents
from mvindex.errors import CorpusError, ExtraMissing
from mvindex.plugins import install_command
from mvindex.records import Document

datasets = pytest.importorskip("datasets")

ROWS = [{"docid": "a", "passage": "x y", "year": 1963}, {"docid": "b", "passage": "z", "year": 1970}]
FOUND = [Document("a", "x y", "", {"year": 1963}), Document("b", "z", "", {"year": 1970})]


@pytest.fixture(autouse=True)
def offline(monkeypatch, tmp_path):
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "hf-cache")


def test_a_saved_dataset_is_read(tmp_path):
    datasets.Dataset.from_list(ROWS).save_to_disk(tmp_path / "saved")
    name = f"datasets:{tmp_path / 'saved'}"
    with open_corpus(name) as corpus:
        rows = list(corpus)
        assert (corpus.bytes_total, str(corpus.source)) == (
            None,
            f"{name}: datasets (detected): id = docid, text = passage, title = (none), metadata = year",
        )
    assert [row.document for row in rows] == FOUND
    assert [str(row.location) for row in rows] == [f"{name}:1", f"{name}:2"]


def test_rows_that_were_selected_and_shuffled_stay_so(tmp_path):
    whole = datasets.Dataset.from_list([{"id": str(number), "text": f"text {number}"} for number in range(10)])
    whole.select([7, 3]).save_to_disk(tmp_path / "saved")
    assert [one.id for one in read_documents(f"datasets:{tmp_path / 'saved'}")] == ["7", "3"]


def test_a_split_is_named_or_is_train(tmp_path):
    splits = datasets.DatasetDict(
        {name: datasets.Dataset.from_list([{"id": name, "text": "a b"}]) for name in ("test", "train")}
    )
    splits.save_to_disk(tmp_path / "saved")
    name = f"datasets:{tmp_path / 'saved'}"
    assert [one.id for one in read_documents(name)] == ["train"]
    assert [one.id for one in read_documents(f"{name}:test")] == ["test"]
    with pytest.raises(CorpusError, match="expected a split of test, train, got dev"):
        list(read_documents(f"{name}:dev"))


# datasets leaves the CSV files that it streams to the garbage collector.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("kind", ["jsonl", "csv", "parquet"])
def test_a_folder_of_files_is_streamed(tmp_path, kind):
    folder = tmp_path / "folder"
    folder.mkdir()
    if kind == "jsonl":
        (folder / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    elif kind == "csv":
        (folder / "train.csv").write_text("docid,passage,year\na,x y,1963\nb,z,1970\n")
    else:
        datasets.Dataset.from_list(ROWS).to_parquet(folder / "train.parquet")
    assert list(read_documents(f"datasets:{folder}")) == FOUND
    assert list(read_documents(f"datasets:{folder}:train", CorpusOptions(id_field="docid"))) == FOUND
    gc.collect()


def test_bad_rows_are_rejected_as_json(tmp_path):
    datasets.Dataset.from_list([*ROWS, {"docid": "", "passage": "no id", "year": 1}]).save_to_disk(tmp_path / "saved")
    with open_corpus(f"datasets:{tmp_path / 'saved'}", CorpusOptions(id_field="docid")) as corpus:
        *_, bad = corpus
        assert isinstance(bad, Reject) and corpus.source.options_again().format == "jsonl"
    assert json.loads(b"".join(bad.raw)) == {"docid": "", "passage": "no id", "year": 1}


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("datasets:", "expected datasets:NAME"),
        ("datasets:a:", "expected datasets:NAME"),
        ("datasets:no/such-dataset", "datasets:no/such-dataset: cannot be read: "),
    ],
)
def test_a_name_that_is_none_is_told(name, told):
    with pytest.raises(CorpusError, match=told):
        list(read_documents(name))


def test_an_empty_dataset_is_an_error(tmp_path):
    datasets.Dataset.from_dict({"id": [], "text": []}).save_to_disk(tmp_path / "saved")
    with pytest.raises(CorpusError, match="has no documents"):
        list(read_documents(f"datasets:{tmp_path / 'saved'}"))


def test_the_extra_is_named_where_it_is_missing(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "datasets", None)
    with pytest.raises(ExtraMissing, match=re.escape(install_command("datasets"))):
        list(read_documents("datasets:x"))
