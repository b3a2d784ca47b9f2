"""mteb's own evaluation over an index: its figures are those of mvindex' evaluation."""

import json

import pytest

import mvindex
from mvindex.errors import ConfigError, Unsupported
from mvindex.measure.metrics import Evaluation
from mvindex.measure.questions import Question
from tests.helpers.cli import read_passages
from tests.helpers.marks import long

pytestmark = [pytest.mark.needs("minilm"), pytest.mark.needs("mteb")]


@pytest.fixture
def rows():
    return read_passages(60, first=190)


@pytest.fixture
def task(rows, monkeypatch, tmp_path):
    """A retrieval task of mteb, made of sample passages and words of theirs; nothing is fetched."""
    monkeypatch.setenv("MTEB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    from datasets import Dataset
    from mteb.abstasks.retrieval import AbsTaskRetrieval
    from mteb.abstasks.task_metadata import TaskMetadata

    class Local(AbsTaskRetrieval):
        metadata = TaskMetadata(
            name="MvindexLocal",
            description="Sample passages.",
            reference=None,
            dataset={"path": "local/sample", "revision": "1"},
            type="Retrieval",
            category="t2t",
            modalities=["text"],
            eval_splits=["test"],
            eval_langs=["eng-Latn"],
            main_score="ndcg_at_10",
            date=("2016-01-01", "2016-12-31"),
            domains=["Encyclopaedic"],
            task_subtypes=[],
            license="cc-by-sa-4.0",
            annotations_creators="derived",
            dialect=[],
            sample_creation="found",
            bibtex_citation="",
        )

        def load_data(self, *args, **kwargs):
            corpus = [{"id": row[0], "title": row[2], "text": row[1]} for row in rows]
            queries = [{"id": f"q{row[0]}", "text": " ".join(row[1].split()[5:8])} for row in rows[:40]]
            relevant = {f"q{row[0]}": {row[0]: 1} for row in rows[:40]}
            split = {
                "corpus": Dataset.from_list(corpus),
                "queries": Dataset.from_list(queries),
                "relevant_docs": relevant,
                "top_ranked": None,
            }
            self.dataset = {"default": {"test": split}}
            self.data_loaded = True

    return Local()


@pytest.mark.parametrize("mode", [long("dense"), "hybrid"])
def test_mteb_measures_what_eval_measures(task, rows, mode, tmp_path):
    import mteb

    from mvindex_connectors.evaluation.mteb import MTEBSearch

    with MTEBSearch("minilm-views", mode=mode) as model:
        result = mteb.evaluate(model, task, cache=None, show_progress_bar=False, co2_tracker=False)
    [scores] = result.task_results[0].scores["test"]
    assert f"mvindex/minilm-views-{mode}" in json.dumps(result.model_name)
    qrels = {f"q{row[0]}": {row[0]: 1} for row in rows[:40]}
    evaluation = Evaluation(qrels=qrels)
    with mvindex.create(tmp_path / "own.mvx", encoder="minilm-views") as index:
        index.add(mvindex.Document(row[0], row[1], title=row[2]) for row in rows)
        for row in rows[:40]:
            text = " ".join(row[1].split()[5:8])
            evaluation.add(Question(f"q{row[0]}", text), index.search(text, 100, mode=mode))
    assert scores["ndcg_at_10"] == pytest.approx(evaluation.report()["qrels"]["nDCG@10"], abs=2e-4)


def test_misuse_is_named():
    from datasets import Dataset

    from mvindex_connectors.evaluation.mteb import MTEBSearch

    with MTEBSearch() as model:
        queries = Dataset.from_list([{"id": "q", "text": "oil"}])
        with pytest.raises(ConfigError, match="index"):
            model.search(queries, top_k=1)
        with pytest.raises(ConfigError, match="column text, got id, image"):
            model.index(Dataset.from_list([{"id": "1", "image": "x"}]))
        model.index(Dataset.from_list([{"id": "1", "title": "Oil", "text": ""}, {"id": "2", "title": "", "text": " "}]))
        assert list(model.search(queries, top_k=5)) == ["q"]
        assert list(model.search(queries, top_k=5)["q"]) == ["1"]
        with pytest.raises(Unsupported, match="reranking"):
            model.search(queries, top_k=1, top_ranked={"q": ["1"]})
