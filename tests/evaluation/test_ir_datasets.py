"""Collections of ir_datasets, read by the library itself from local files."""

import pytest

from mvindex.corpus import CorpusOptions, read_documents
from mvindex.corpus.paths import beir_qrels, beir_queries, folder_of
from mvindex.errors import CorpusError
from mvindex.measure.questions import read_qrels, read_questions

pytestmark = pytest.mark.needs("ir_datasets")


@pytest.fixture
def name(tmp_path, monkeypatch):
    """A collection that ir_datasets knows, of files in a folder."""
    monkeypatch.setenv("IR_DATASETS_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("MVINDEX_CACHE", str(tmp_path / "cache"))
    import ir_datasets
    from ir_datasets.datasets.base import Dataset
    from ir_datasets.formats import TrecQrels, TsvDocs, TsvQueries
    from ir_datasets.util import LocalDownload

    (tmp_path / "docs.tsv").write_text("d1\tThe oil crisis began in 1973.\nd2\tÜber Flüsse.\n")
    (tmp_path / "queries.tsv").write_text("q1\twhen did the crisis begin?\n")
    (tmp_path / "qrels").write_text("q1 0 d1 2\nq1 0 d2 0\n")

    def local(file):
        return LocalDownload(tmp_path / file)

    name = f"mvindex-local-{tmp_path.name}"
    dataset = Dataset(
        TsvDocs(local("docs.tsv")), TsvQueries(local("queries.tsv")), TrecQrels(local("qrels"), {0: "no", 2: "yes"})
    )
    ir_datasets.registry.register(name, dataset)
    return f"ir_datasets:{name}"


def test_documents_questions_and_judgements_are_those_of_the_library(name, tmp_path):
    documents = list(read_documents(name, CorpusOptions()))
    assert [(one.id, one.text) for one in documents] == [
        ("d1", "The oil crisis began in 1973."),
        ("d2", "Über Flüsse."),
    ]
    folder = folder_of(name)
    assert [(one.id, one.text) for one in read_questions([beir_queries(folder)])] == [
        ("q1", "when did the crisis begin?")
    ]
    assert read_qrels(beir_qrels(folder, None)) == {"q1": {"d1": 2, "d2": 0}}
    # It was copied once.
    (tmp_path / "docs.tsv").unlink()
    assert len(list(read_documents(name, CorpusOptions()))) == 2


def test_unknown_names_are_named():
    with pytest.raises(CorpusError, match="ir_datasets:no-such-thing: ir_datasets knows no collection"):
        list(read_documents("ir_datasets:no-such-thing", CorpusOptions()))
    assert folder_of("plain.tsv") == "plain.tsv"
