"""Haystack: what its own suites (test_haystack_suites.py) do not ask."""

import asyncio
import contextlib
import datetime
import itertools
import runpy
import subprocess
import sys
import threading
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import mvindex

NOT_RUN = "NOT RUN: needs haystack-ai (the extra haystack, or frameworks-dev)"
pytest.importorskip("haystack", reason=NOT_RUN)

from haystack import Document, Pipeline, component  # noqa: E402 - there, now
from haystack.components.preprocessors import DocumentSplitter  # noqa: E402
from haystack.components.writers import DocumentWriter  # noqa: E402
from haystack.dataclasses import ByteStream, SparseEmbedding  # noqa: E402
from haystack.document_stores.errors import DuplicateDocumentError  # noqa: E402
from haystack.document_stores.types import DuplicatePolicy  # noqa: E402
from haystack.errors import FilterError  # noqa: E402
from haystack.utils import Secret  # noqa: E402
from haystack.utils.filters import document_matches_filter  # noqa: E402
from haystack_filter_cases import chance_documents, chance_filter  # noqa: E402
from word_vectors import OIL, PLAGUE, word_counts  # noqa: E402

from mvindex.errors import ConfigError, EncoderError, QueryError  # noqa: E402
from mvindex.plugins import install_command  # noqa: E402
from mvindex.store.embedded_writer import EmbeddedWriter  # noqa: E402
from mvindex_connectors.frameworks.connection import SyncAdapter  # noqa: E402
from mvindex_connectors.frameworks.haystack import (  # noqa: E402
    MVIndexDocumentStore,
    MVIndexEmbeddingRetriever,
    MVIndexTextRetriever,
)
from mvindex_connectors.frameworks.haystack.filters import pushed_filter  # noqa: E402
from mvindex_connectors.frameworks.views import SnippetEncoder  # noqa: E402


@pytest.fixture
def store(tmp_path):
    made = MVIndexDocumentStore(tmp_path / "words.mvx", embedding_dim=10)
    made.write_documents(
        [
            Document(id="oil", content=OIL, meta={"year": 1973}, embedding=word_counts(OIL)),
            Document(id="plague", content=PLAGUE, meta={"year": 1343}, embedding=word_counts(PLAGUE)),
            Document(id="mute", content="nobody embedded this", meta={"year": 2000}),
        ]
    )
    yield made
    made.close()


def _year(operator, value):
    return {"field": "meta.year", "operator": operator, "value": value}


def test_a_hit_carries_what_its_view_stands_for_its_score_and_that_it_is_exact(store):
    found = MVIndexEmbeddingRetriever(store, top_k=1).run(word_counts("plague crimea"))["documents"]
    cited = found[0].meta["mvindex"]
    # The query is (plague, crimea, 1); the text has those, and killed, europe, population: 3 / (sqrt 3 * sqrt 6).
    assert cited["score"] == found[0].score == pytest.approx(3 / np.sqrt(18), abs=1e-3)
    assert (found[0].id, cited["snippet"], cited["snippet_span"]) == ("plague", PLAGUE, [0, len(PLAGUE)])
    assert cited["view"] == 0 and cited["exact"] is True
    assert cited["citation"] is None  # the query's text is not known
    assert found[0].meta["year"] == 1343 and found[0].embedding is None


def test_a_document_without_an_embedding_is_kept_and_never_found(store):
    assert store.count_documents() == 3
    # All scores are negative: the view of nothing, which scores 0, would come first.
    found = MVIndexEmbeddingRetriever(store).run([-1.0] * 10)["documents"]
    assert sorted(document.id for document in found) == ["oil", "plague"]
    assert MVIndexEmbeddingRetriever(store).run([-1.0] * 10, filters=_year("==", 2000))["documents"] == []


@pytest.mark.needs("milvus-lite")
def test_milvus_leaves_out_what_has_no_embedding_and_what_only_python_can_tell(tmp_path):
    remote = MVIndexDocumentStore(f"milvus-lite:{tmp_path / 'a.db'}", embedding_dim=2, similarity="dot_product")
    days = [Document(id=f"{n}", meta={"at": f"2024-05-0{n}"}, embedding=[float(n), 1.0]) for n in range(1, 7)]
    remote.write_documents([*days, Document(id="mute", meta={"at": "2024-05-01"})])
    before = {"field": "meta.at", "operator": "<", "value": "2024-05-03"}
    found = MVIndexEmbeddingRetriever(remote, top_k=1).run([1.0, 0.0], before)["documents"]
    assert [document.id for document in found] == ["2"]
    # All scores are negative, but that of nothing.
    found = MVIndexEmbeddingRetriever(remote).run([-1.0, 0.0])["documents"]
    assert [document.id for document in found] == ["1", "2", "3", "4", "5", "6"]
    remote.close()


def test_what_is_written_again_after_it_was_found_is_as_it_was(store):
    found = MVIndexEmbeddingRetriever(store, return_embedding=True).run(word_counts("oil"))["documents"]
    before = store.filter_documents()
    unscored = [replace(document, score=None) for document in found]
    assert store.write_documents(unscored, DuplicatePolicy.OVERWRITE) == 2
    assert sorted(store.filter_documents(), key=lambda d: d.id) == sorted(before, key=lambda d: d.id)


def test_every_part_of_a_document_comes_back_to_the_last_bit(tmp_path):
    store = MVIndexDocumentStore(tmp_path / "a.mvx", embedding_dim=3)
    blob = ByteStream(bytes(range(256)), {"page": 3}, "image/png")
    documents = [
        Document(id="a", content=None, blob=blob, embedding=[0.1, 1 / 3, 1e-300]),
        Document(id="b", content="", sparse_embedding=SparseEmbedding([3, 9], [0.5, 0.1]), score=0.25),
        Document(id="c", content="x", meta={"n": 1, "f": 1.0, "b": True, "z": None, "deep": {"l": [1, "a"]}}),
    ]
    assert store.write_documents(documents) == 3
    assert store.filter_documents() == documents
    assert [type(store.filter_documents()[2].meta[key]) for key in "nfbz"] == [int, float, bool, type(None)]
    store.close()


def test_ids_that_come_twice_are_refused_skipped_or_the_last_of_them_counts(tmp_path):
    store = MVIndexDocumentStore(tmp_path / "a.mvx", embedding_dim=3)
    twice = [Document(id="a", content="first"), Document(id="a", content="second")]
    with pytest.raises(DuplicateDocumentError, match="document 'a'"):
        store.write_documents(twice)
    assert store.count_documents() == 0
    assert store.write_documents(twice, DuplicatePolicy.SKIP) == 1
    assert store.filter_documents()[0].content == "first"
    assert store.write_documents(twice, DuplicatePolicy.OVERWRITE) == 2
    assert [document.content for document in store.filter_documents()] == ["second"]
    store.close()


@pytest.mark.parametrize("seed", range(4))
def test_filters_by_chance_find_what_haystack_itself_finds_listed_and_searched(tmp_path, seed):
    rng = np.random.default_rng(seed)
    documents = chance_documents(rng)
    store = MVIndexDocumentStore(tmp_path / "a.mvx", embedding_dim=2, similarity="dot_product")
    store.write_documents(documents)
    retriever = MVIndexEmbeddingRetriever(store, top_k=5)
    checked = {True: 0, False: 0}
    for _ in range(60):
        filters = chance_filter(rng)
        try:
            wanted = [document.id for document in documents if document_matches_filter(filters, document)]
        except (FilterError, TypeError, AttributeError):
            continue  # texts against numbers: an error there, no match here; older versions know no field other.x
        pushed = pushed_filter(filters)
        checked[pushed.is_exact] += 1
        assert [document.id for document in store.filter_documents(filters)] == wanted, filters
        # The query (0, 1) orders documents by their number.
        found = retriever.run([0.0, 1.0], filters)["documents"]
        assert [document.id for document in found] == wanted[::-1][:5], filters
        with mvindex.open(tmp_path / "a.mvx") as index:
            told = {hit.id for hit in index.search(np.array([0.0, 1.0]), 60, pushed.filter).hits}
        assert told == set(wanted) if pushed.is_exact else told >= set(wanted), filters
    assert min(checked.values()) > 5
    store.close()


def test_a_value_of_another_type_is_not_in_order_with_the_filters_and_hides_no_other_document(tmp_path):
    store = MVIndexDocumentStore(tmp_path / "a.mvx", embedding_dim=1)
    years = {"late": 1995, "text": "1990s", "list": [1991], "date": "1992-01-01", "none": None}
    store.write_documents([Document(id=name, meta={"year": year}, embedding=[1.0]) for name, year in years.items()])
    late = {"field": "meta.year", "operator": ">", "value": 1990}
    both = {"operator": "OR", "conditions": [late, {"field": "content", "operator": "==", "value": "x"}]}
    assert not pushed_filter(both).is_exact
    for filters in late, both:
        assert [document.id for document in store.filter_documents(filters)] == ["late"]
        assert [hit.id for hit in MVIndexEmbeddingRetriever(store).run([1.0], filters)["documents"]] == ["late"]
    with pytest.raises(FilterError, match="ISO formatted dates"):
        store.filter_documents({**late, "value": "later"})
    store.close()


def test_dates_are_compared_as_times_in_searches_too(tmp_path):
    store = MVIndexDocumentStore(tmp_path / "a.mvx", embedding_dim=1, similarity="dot_product")
    hours = [Document(id=f"{h}", meta={"at": f"2024-05-01T{h:02}:00:00"}, embedding=[float(h)]) for h in range(24)]
    store.write_documents([*hours, Document(id="zone", meta={"at": "2024-05-01T05:00:00+02:00"}, embedding=[0.5])])
    filters = {"field": "meta.at", "operator": "<", "value": "2024-05-01T03:00:00+00:00"}
    assert not pushed_filter(filters).is_exact
    # The four best of all have later hours: the search goes on until two pass, or all were looked at.
    found = MVIndexEmbeddingRetriever(store, top_k=2).run([1.0], filters)["documents"]
    assert [document.id for document in found] == ["2", "1"] and found[0].meta["mvindex"]["exact"] is True
    # 05:00 two hours east of Greenwich is 03:00 there: not before it.
    assert "zone" not in [document.id for document in store.filter_documents(filters)]
    assert store.delete_by_filter(filters) == 3
    assert store.count_documents() == 22
    store.close()


def test_what_an_index_can_tell_of_a_conjunction_is_told_and_the_rest_checked():
    date = {"field": "meta.at", "operator": ">", "value": "2024-05-01"}
    both = {"operator": "AND", "conditions": [_year("==", 3), date]}
    assert pushed_filter(both) == ({"and": [{"or": [{"year": {"in": [3]}}]}]}, False)
    assert pushed_filter({"operator": "OR", "conditions": [_year("==", 3), date]}) == (None, False)
    assert pushed_filter({"operator": "NOT", "conditions": [_year("==", 3), date]}) == (None, False)


_TAGGED = {"a": {"tags": ["red", 1]}, "b": {"tags": "red"}, "c": {"m": {"n": ["red"]}}, "d": {"m.n": ["blue"], "m": {}}}


@pytest.mark.parametrize(
    ("field", "operator", "value", "expected"),
    [
        ("meta.tags", "contains", "red", "a"),
        ("meta.tags", "contains", True, ""),
        ("meta.tags", "contains_any", ["blue", 1], "a"),
        ("tags", "contains_all", ["red", 1.0], "a"),
        ("meta.m.n", "contains", "red", "c"),
        ("meta.m.n", "contains_any", ["red", "blue"], "cd"),
        ("meta.m.n", "!=", None, "cd"),
        ("meta.tags", "==", None, "cd"),
    ],
)
def test_lists_and_keys_with_dots_are_found_by_the_index_and_by_the_check_of_each_document(
    tmp_path, field, operator, value, expected
):
    with closing(MVIndexDocumentStore(str(tmp_path / "t.mvx"), embedding_dim=1)) as store:
        store.write_documents([Document(id=name, meta=meta, embedding=[1.0]) for name, meta in _TAGGED.items()])
        plain = {"field": field, "operator": operator, "value": value}
        # An index knows no content, so that each document is checked for the rest.
        checked = {"operator": "AND", "conditions": [{"field": "content", "operator": "==", "value": None}, plain]}
        negated = {"operator": "NOT", "conditions": [checked]}
        for filters, found in ((plain, expected), (checked, expected), (negated, sorted(set("abcd") - set(expected)))):
            assert sorted(document.id for document in store.filter_documents(filters)) == list(found)
        for wrong in ({"field": "content"}, {"operator": "contains", "value": None}, {"value": {"x": 1}}):
            with pytest.raises(FilterError):
                store.filter_documents({**plain, "operator": "contains", **wrong})


@pytest.mark.parametrize(
    "filters",
    [
        {"operator": "XOR", "conditions": []},
        {"operator": "AND", "conditions": "all"},
        {"operator": "AND", "conditions": ["x"]},
        {"field": "meta.x", "operator": "like", "value": "a"},
        {"year": 3},
    ],
)
def test_filters_that_are_none_are_refused_even_where_there_is_nothing(tmp_path, filters):
    store = MVIndexDocumentStore(tmp_path / "a.mvx", embedding_dim=3)
    with pytest.raises(FilterError):
        store.filter_documents(filters)
    with pytest.raises(FilterError):
        MVIndexEmbeddingRetriever(store).run([1.0, 0.0, 0.0], filters)


def test_a_pipeline_is_written_down_and_read_again_and_answers_the_same(store):
    retriever = MVIndexEmbeddingRetriever(store, filters=_year("<", 1980), top_k=3, filter_policy="merge", exact=True)
    pipeline = Pipeline()
    pipeline.add_component("retriever", retriever)
    again = Pipeline.loads(pipeline.dumps(), allowed_modules=["mvindex_connectors.*"])
    other = {"field": "id", "operator": "!=", "value": "oil"}
    asked = {"retriever": {"query_embedding": word_counts("oil"), "filters": other}}
    found = again.run(asked)["retriever"]["documents"]
    assert found == pipeline.run(asked)["retriever"]["documents"]
    assert [document.id for document in found] == ["plague"]
    again.get_component("retriever").document_store.close()


def test_a_store_is_told_without_its_secrets(tmp_path, monkeypatch):
    monkeypatch.setenv("WHERE", str(tmp_path / "a.mvx"))
    store = MVIndexDocumentStore(Secret.from_env_var("WHERE"), embedding_dim=3)
    store.write_documents([Document(id="a")])
    told = store.to_dict()
    assert str(tmp_path) not in str(told)
    again = MVIndexDocumentStore.from_dict(told)
    assert again.count_documents() == 1
    for each in (store, again):
        each.close()
    with pytest.raises(ConfigError, match="expected an address without a secret"):
        MVIndexDocumentStore("milvus://user:password@host/a", embedding_dim=3).to_dict()
    with pytest.raises(ConfigError, match="encoder: expected a name or a path"):
        MVIndexDocumentStore("a.mvx", encoder=lambda texts: texts).to_dict()


def test_one_who_gives_what_does_not_go_together_is_told(store):
    with pytest.raises(ConfigError, match="expected encoder"):
        MVIndexDocumentStore("a.mvx", encoder="minilm", embedding_dim=3)
    with pytest.raises(ConfigError, match="expected cosine or dot_product, got 'l2'"):
        MVIndexDocumentStore("a.mvx", embedding_dim=3, similarity="l2")
    with pytest.raises(ConfigError, match="Use MVIndexEmbeddingRetriever"):
        MVIndexTextRetriever(store).run("oil")
    with pytest.raises(TypeError, match="expected MVIndexDocumentStore, got str"):
        MVIndexTextRetriever("a.mvx")
    with pytest.raises(ValueError, match="top_k: expected a whole number from 1 on, got 0"):
        MVIndexTextRetriever(store, top_k=0)
    with pytest.raises(ValueError, match="metadata key 'mvindex'"):
        store.write_documents([Document(meta={"mvindex": "mine"})])


@pytest.mark.needs("minilm")
def test_texts_are_encoded_by_the_index_and_the_sentence_is_cited(tmp_path):
    store = MVIndexDocumentStore(tmp_path / "a.mvx")
    store.write_documents([Document(id="oil", content=OIL), Document(id="plague", content=PLAGUE)])
    retriever = MVIndexTextRetriever(store, top_k=1, has_view_scores=True)
    document = asyncio.run(retriever.run_async("How many Europeans died?"))["documents"][0]
    cited = document.meta["mvindex"]
    assert cited["snippet"] == "It killed a third of Europe." == PLAGUE[slice(*cited["snippet_span"])]
    assert [view["view"] for view in cited["view_scores"]][0] == cited["view"] == 1
    assert len(cited["view_scores"]) == 3 and cited["view_scores"][0]["score"] == cited["dense_score"]
    store.close()


def test_a_server_does_the_same_awaited_without_a_thread(server, store, monkeypatch):
    async def compare(remote):
        monkeypatch.setattr(asyncio, "to_thread", None)
        documents = store.filter_documents()
        assert await remote.write_documents_async(documents) == 3
        assert await remote.filter_documents_async(_year(">", 1500)) == store.filter_documents(_year(">", 1500))
        asked = word_counts("plague")
        found = (await MVIndexEmbeddingRetriever(remote).run_async(asked))["documents"]
        assert found == MVIndexEmbeddingRetriever(store).run(asked)["documents"]
        by_words = (await MVIndexTextRetriever(remote, mode="lexical").run_async("embedded"))["documents"]
        assert [document.id for document in by_words] == ["mute"]
        assert await remote.update_by_filter_async(_year("==", 1973), {"read": True}) == 1
        assert await remote.delete_by_filter_async({"field": "meta.read", "operator": "==", "value": True}) == 1
        assert await remote.count_documents_async() == 2
        await remote.delete_all_documents_async()
        assert await remote.count_documents_async() == 0
        await remote.close_async()

    asyncio.run(compare(MVIndexDocumentStore(server.url("words"), embedding_dim=10)))


def test_words_and_both_are_asked_by_either_retriever(tmp_path):
    store = MVIndexDocumentStore(tmp_path / "a.mvx", lexical="english")
    store.write_documents(
        [
            Document(id="oil", content=OIL, meta={"year": 1973}, embedding=word_counts(OIL)),
            Document(id="plague", content=PLAGUE, meta={"year": 1343}, embedding=word_counts(PLAGUE)),
            Document(id="mute", content="nobody embedded this", meta={"year": 2000}),
        ]
    )

    def ids(result):
        return [document.id for document in result["documents"]]

    assert ids(MVIndexTextRetriever(store, mode="lexical").run("nobody")) == ["mute"]
    assert ids(MVIndexEmbeddingRetriever(store, mode="lexical").run(word_counts("oil"), query="shock")) == ["oil"]
    vector = np.array(word_counts("plague")) / np.linalg.norm(word_counts("plague"))
    with mvindex.open(tmp_path / "a.mvx") as index:
        plain = index.search(vector, 2, {"year": {"lt": 1990}}, mode="hybrid", text="shock")
    hybrid = MVIndexEmbeddingRetriever(store, mode="hybrid")
    # What has no view is not among what fusion scales by.
    found = hybrid.run(word_counts("plague"), query="shock")["documents"]
    assert [(document.id, document.score) for document in found] == [(hit.id, hit.score) for hit in plain.hits]
    with_date = {"field": "meta.at", "operator": "!=", "value": "2024-01-01"}
    assert ids(hybrid.run(word_counts("plague"), query="shock", filters=with_date)) == [hit.id for hit in plain.hits]
    with pytest.raises(ValueError, match="expected the query's text, got none"):
        hybrid.run(word_counts("plague"))
    with pytest.raises(ValueError, match="expected auto, dense, hybrid or lexical, got 'both'"):
        MVIndexTextRetriever(store, mode="both")
    again = MVIndexEmbeddingRetriever.from_dict(hybrid.to_dict())
    assert again.options == hybrid.options and again.document_store.lexical == "english"
    store.close()


def test_what_the_first_documents_bring_says_what_an_index_is_made_of(tmp_path):
    store = MVIndexDocumentStore(tmp_path / "a.mvx")
    writer, splitter = DocumentWriter(store), DocumentSplitter(split_by="period", split_length=1)
    indexing = Pipeline()
    for name, part in (("splitter", splitter), ("embedder", WordEmbedder()), ("writer", writer)):
        indexing.add_component(name, part)
    indexing.connect("splitter", "embedder")
    indexing.connect("embedder", "writer")
    indexing.run({"splitter": {"documents": [Document(content=OIL), Document(content=PLAGUE)]}})
    found = MVIndexEmbeddingRetriever(store, top_k=1).run(word_counts("killed in Europe"))["documents"]
    assert found[0].content.strip() == "It killed a third of Europe." and found[0].meta["source_id"]
    with mvindex.open(tmp_path / "a.mvx") as index:
        assert index.info().encoder is None and index.dim == 10
    store.close()


@component
class WordEmbedder:
    """As any document embedder of Haystack's."""

    @component.output_types(documents=list[Document])
    def run(self, documents: list[Document]):
        return {"documents": [replace(each, embedding=word_counts(each.content)) for each in documents]}


def test_an_update_by_filter_is_one_step(store, monkeypatch):
    steps, kept = [], EmbeddedWriter.set_metadata
    monkeypatch.setattr(EmbeddedWriter, "set_metadata", lambda *args: steps.append(args[1]) or kept(*args))
    assert store.update_by_filter(_year(">", 1000), {"read": True}) == 3
    assert [len(updates) for updates in steps] == [3]
    assert all(document.meta["read"] for document in store.filter_documents())


def test_without_the_framework_the_command_is_named_that_installs_it():
    code = "import sys; sys.modules['haystack'] = None; import mvindex_connectors.frameworks.haystack"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stderr.strip().endswith(install_command("haystack"))


def test_the_example_runs_and_cites_the_sentence(capsys):
    runpy.run_path(str(Path(__file__).parents[2] / "examples/frameworks/haystack_citing.py"), run_name="__main__")
    assert "It caused a shock to the global economy. [oil, characters 93-133]" in capsys.readouterr().out


def test_any_embedder_makes_a_view_of_every_snippet_and_another_one_is_refused(tmp_path):
    def encoder(name="words", **options):
        return SnippetEncoder(lambda texts: [word_counts(text) for text in texts], name=name, **options)

    store = MVIndexDocumentStore(tmp_path / "a.mvx", encoder=encoder())
    store.write_documents([Document(id="oil", content=OIL), Document(id="plague", content=PLAGUE)])
    best = MVIndexTextRetriever(store, has_view_scores=True).run("population")["documents"][0]
    assert best.meta["mvindex"]["snippet"] == "The population recovered late." and best.meta["mvindex"]["view"] == 2
    # The query is (population, 1), and so is the sentence; the others share the last dimension only.
    scores = [view["score"] for view in best.meta["mvindex"]["view_scores"]]
    assert scores == pytest.approx([1, 1 / np.sqrt(6), 1 / np.sqrt(6)], abs=1e-3)
    store.close()
    for other in (encoder("other"), encoder(max_snippets=3)):
        with pytest.raises(ConfigError, match="expected the encoder"):
            MVIndexDocumentStore(tmp_path / "a.mvx", encoder=other).count_documents()


def test_dates_are_stored_as_texts_and_compared_as_haystack_does(tmp_path):
    noon = datetime.datetime(2024, 5, 1, 12, tzinfo=datetime.timezone.utc)
    days = {"a": "2024-04-30", "b": "2024-05-01T00:30:00+02:00", "c": noon}
    store = MVIndexDocumentStore(tmp_path / "dated.mvx", embedding_dim=2)
    store.write_documents(
        [Document(id=name, content=name, meta={"day": day}, embedding=[1.0, 0.0]) for name, day in days.items()]
    )
    for operator, value, expected in (
        (">=", "2024-05-01T00:00:00Z", ["c"]),
        ("<", datetime.datetime(2024, 5, 1, tzinfo=datetime.timezone.utc), ["a", "b"]),
        ("==", "2024-05-01T14:00:00+02:00", ["c"]),
        ("!=", noon, ["a", "b"]),
    ):
        condition = {"field": "meta.day", "operator": operator, "value": value}
        found = store.filter_documents(condition)
        assert sorted(document.id for document in found) == expected
        assert all(document_matches_filter(condition, document) for document in found)
    store.close()


@pytest.mark.parametrize(
    ("call", "error", "told"),
    [
        (lambda store: store.write_documents([], "none such"), ValueError, "policy: expected a DuplicatePolicy"),
        (lambda store: MVIndexEmbeddingRetriever(store, top_k="5"), ValueError, "top_k: expected a whole number"),
        (lambda store: MVIndexEmbeddingRetriever(store, top_k=True), ValueError, "top_k: expected a whole number"),
        (lambda store: store.update_by_filter({}, None), ValueError, "meta: expected an object of the keys to set"),
        (lambda store: MVIndexDocumentStore("x.mvx", embedding_dim="10"), ConfigError, "dim: expected a whole number"),
        (
            lambda store: store.write_documents([Document(content="x", embedding=[None] * 10)]),
            EncoderError,
            "embeddings: expected numbers, got None",
        ),
    ],
)
def test_arguments_of_the_wrong_kind_are_named(store, call, error, told):
    with pytest.raises(error, match=told):
        call(store)
    assert store.count_documents() == 3


def test_a_policy_may_be_a_text_and_an_embedding_an_array(store):
    again = Document(id="oil", content="changed", embedding=np.array(word_counts(OIL), dtype=np.float32))
    assert store.write_documents([again], "skip") == 0
    assert store.write_documents([again], "overwrite") == 1
    assert [document.content for document in store.filter_documents(_year("==", 1973))] == []
    found = MVIndexEmbeddingRetriever(store, top_k=1).run(query_embedding=np.array(word_counts("oil")))
    assert [document.id for document in found["documents"]] == ["oil"]


@pytest.fixture
def dated(tmp_path):
    """Documents of two dates in turns, in falling order of their scores for [1, 0]; the last two have no embedding."""
    made = MVIndexDocumentStore(tmp_path / "dated.mvx", embedding_dim=2)
    dates = ["2020-01-01", "2021-01-01"]
    made.write_documents(
        [
            Document(id=str(n), content=f"t{n}", meta={"d": dates[n % 2]}, embedding=[1.0, n / 9] if n < 18 else None)
            for n in range(20)
        ]
    )
    yield made
    made.close()


def test_filters_hold_and_no_document_without_an_embedding_is_found_where_hits_have_some_fields_only(dated):
    late = {"field": "meta.d", "operator": ">", "value": "2020-06-01"}
    retriever = MVIndexEmbeddingRetriever(dated, top_k=20)
    for filters, count in ((late, 9), ({"operator": "NOT", "conditions": [late]}, 9), (None, 18)):
        whole, some = (
            [document.id for document in retriever.run([1.0, 0.0], filters=filters, options=options)["documents"]]
            for options in ({}, {"fields": ["text"]})
        )
        assert len(whole) == count and some == whole


def test_an_update_of_another_thread_or_process_keeps_what_was_written_meanwhile(tmp_path):
    store = MVIndexDocumentStore(tmp_path / "both.mvx", embedding_dim=2)
    every = {"field": "meta.group", "operator": "==", "value": 1}

    def write(version):
        store.write_documents(
            [
                Document(
                    id=str(n), content=f"version {version}", meta={"group": 1, "version": version},
                    embedding=[1.0, float(version)],
                )
                for n in range(30)
            ],
            DuplicatePolicy.OVERWRITE,
        )  # fmt: skip

    write(0)
    is_done = threading.Event()

    def update():
        number = 0
        while not is_done.is_set():
            number += 1
            store.update_by_filter(every, {"seen": number})

    thread = threading.Thread(target=update)
    thread.start()
    for version in range(1, 16):
        write(version)
    is_done.set()
    thread.join()
    found = store.filter_documents()
    assert {(one.content, one.meta["version"], tuple(one.embedding)) for one in found} == {
        ("version 15", 15, (1.0, 15.0))
    }
    # Another process has locks of its own: what it sets between the search and the update stays.
    with mvindex.open(tmp_path / "both.mvx") as other:
        scan, is_first = SyncAdapter.scan, itertools.count()

        async def scanned(adapter, *given):
            async for stored in scan(adapter, *given):
                if next(is_first) == 0:
                    other.update("29", metadata={**other.get("29").metadata, "theirs": 1})
                yield stored

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(SyncAdapter, "scan", scanned)
            assert store.update_by_filter(every, {"ours": 2}) == 30
    assert (
        store.filter_documents({"field": "id", "operator": "==", "value": "29"})[0].meta.items()
        >= {
            "theirs": 1,
            "ours": 2,
        }.items()
    )
    store.close()


def test_of_threads_that_write_one_new_id_one_succeeds(tmp_path):
    store = MVIndexDocumentStore(tmp_path / "once.mvx", embedding_dim=2)
    for number in range(5):
        start, written = threading.Barrier(4), []

        def write(number=number, start=start, written=written):
            start.wait()
            with contextlib.suppress(DuplicateDocumentError):
                written.append(store.write_documents([Document(id=str(number), content="x", embedding=[1.0, 0.0])]))

        threads = [threading.Thread(target=write) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert written == [1]
    store.close()


def test_no_document_is_like_one_without_an_embedding(dated):
    retriever = MVIndexTextRetriever(dated, top_k=3)
    assert [one.id for one in retriever.run("", options={"like": "0"})["documents"]] == ["1", "2", "3"]
    with pytest.raises(QueryError, match="the views of '18' are zero: no document is nearer to it than another"):
        retriever.run("", options={"like": "18"})


@pytest.mark.parametrize("name", ["from_", "size"])
@pytest.mark.parametrize("value", [-1, None, 1.5, True])
def test_a_page_of_values_begins_and_ends_at_whole_numbers(store, name, value):
    with pytest.raises(ValueError, match=f"{name}: expected a whole number from 0 on, got {value}"):
        store.get_metadata_field_unique_values("year", **{name: value})


@pytest.mark.parametrize("ours", [{"embedding": "x"}, {"blob": 5}, {"spans": [1]}, {"sparse_embedding": {"a": 1}}])
def test_what_another_program_wrote_under_our_key_is_left_out(dated, ours):
    with mvindex.open(dated.to_dict()["init_parameters"]["index"]) as index:
        index.add_views([mvindex.Document("foreign", "text", metadata={"mvindex": ours, "a": 1})], [[[9.0, 0.0]]])
    [found] = MVIndexEmbeddingRetriever(dated, top_k=1).run([1.0, 0.0])["documents"]
    assert (found.id, found.content, found.meta["a"]) == ("foreign", "text", 1)
