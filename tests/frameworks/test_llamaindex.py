"""LlamaIndex: what the contract of its base class (test_llamaindex_suites.py) does not ask."""

import asyncio
import copy
import datetime
import runpy
import subprocess
import sys
from dataclasses import replace
from multiprocessing.reduction import ForkingPickler
from pathlib import Path

import numpy as np
import pytest

import mvindex

NOT_RUN = "NOT RUN: needs llama-index-core (the extra llamaindex, or frameworks-dev)"
pytest.importorskip("llama_index.core", reason=NOT_RUN)

from llama_index.core import Document, MockEmbedding, StorageContext, VectorStoreIndex, load_index_from_storage  # noqa: E402
from llama_index.core.base.embeddings.base import BaseEmbedding  # noqa: E402
from llama_index.core.llms import MockLLM  # noqa: E402
from llama_index.core.retrievers import QueryFusionRetriever  # noqa: E402
from llama_index.core.schema import MetadataMode, TextNode  # noqa: E402
from llama_index.core.vector_stores.types import (  # noqa: E402
    FilterCondition,
    FilterOperator,
    MetadataFilter,
    MetadataFilters,
    VectorStoreQuery,
    VectorStoreQueryMode,
)
from llamaindex_contract import asked, by, corpus, node  # noqa: E402
from word_vectors import OIL, PLAGUE, word_counts  # noqa: E402

from mvindex.errors import ConfigError, DocumentError, LimitExceeded, QueryError, Unsupported  # noqa: E402
from mvindex.plugins import install_command  # noqa: E402
from mvindex_connectors.frameworks.llamaindex import MVIndexVectorStore  # noqa: E402
from mvindex_connectors.frameworks.llamaindex.nodes import matches, pushed_filter  # noqa: E402


class WordEmbedding(BaseEmbedding):
    """Word counts."""

    def _get_text_embedding(self, text):
        return word_counts(text)

    _get_query_embedding = _get_text_embedding

    async def _aget_query_embedding(self, query):
        return word_counts(query)


def texts():
    return [
        TextNode(id_="oil", text=OIL, metadata={"year": 1973}),
        TextNode(id_="plague", text=PLAGUE, metadata={"year": 1343}),
    ]


@pytest.fixture
def words(tmp_path):
    made = MVIndexVectorStore(tmp_path / "words.mvx", embed_model=WordEmbedding(), lexical="english")
    made.add(texts())
    yield made
    made.close()


def question(text, top_k=2, mode="default", **options):
    return VectorStoreQuery(query_str=text, similarity_top_k=top_k, mode=VectorStoreQueryMode(mode), **options)


def test_a_hit_carries_the_sentence_that_won_where_it_stands_and_that_it_is_exact(words):
    index = VectorStoreIndex.from_vector_store(words, embed_model=MockEmbedding(embed_dim=1))
    best = index.as_retriever(similarity_top_k=1).retrieve("Who was killed in Europe?")[0]
    cited = best.metadata["mvindex"]
    assert best.node_id == "plague" and best.text == PLAGUE and best.metadata["year"] == 1343
    assert cited["snippet"] == "It killed a third of Europe." == PLAGUE[slice(*cited["snippet_span"])]
    assert cited["view"] == 1 and cited["exact"] is True
    start, end = cited["citation"]["start"], cited["citation"]["end"]
    assert cited["citation"]["text"] == "It killed a third of Europe." == PLAGUE[start:end]
    assert list(cited["citation"]["why"]) == ["views", "terms", "context", "cues"]
    # (killed, europe, 1) both: the same direction, as far as fp16 keeps it. The score is of terms, too.
    assert (cited["mode"], cited["dense_score"]) == ("hybrid", pytest.approx(1.0, abs=1e-3))
    assert cited["score"] == best.score


def test_every_views_score_is_told_unless_that_is_not_wanted(words):
    scores = words.query(question("population", 1)).nodes[0].metadata["mvindex"]["view_scores"]
    # The query is (population, 1); the sentences (plague, crimea, 1), (killed, europe, 1) and (population, 1).
    assert [one["view"] for one in scores] == [2, 0, 1]
    assert [one["score"] for one in scores] == pytest.approx([1, 1 / np.sqrt(6), 1 / np.sqrt(6)], abs=1e-3)
    terse = MVIndexVectorStore(words.index, embed_model=WordEmbedding(), has_view_scores=False)
    assert "view_scores" not in terse.query(question("population", 1)).nodes[0].metadata["mvindex"]
    terse.close()


def test_a_node_found_is_the_node_added_whatever_found_it(words):
    found, again = (words.query(question(text, 1)).nodes[0] for text in ("oil", "embargo"))
    assert found.metadata["mvindex"] != again.metadata["mvindex"]
    assert found.metadata == again.metadata == {"year": 1973}


def test_what_the_first_nodes_bring_says_what_an_index_is_made_of(tmp_path):
    given = MVIndexVectorStore(tmp_path / "given.mvx")
    documents = [Document(text=OIL, doc_id="oil"), Document(text=PLAGUE, doc_id="plague")]
    context = StorageContext.from_defaults(vector_store=given)
    index = VectorStoreIndex.from_documents(documents, storage_context=context, embed_model=WordEmbedding())
    # As in any store: LlamaIndex embeds, and a node's embedding is its view. The question says what is cited.
    best = index.as_retriever(similarity_top_k=1).retrieve("plague")[0]
    assert best.node.ref_doc_id == "plague" and best.metadata["mvindex"]["snippet"] == "The plague reached Crimea."
    with mvindex.open(given.index) as opened:
        assert opened.info().encoder is None and opened.dim == 10
    given.close()


@pytest.mark.needs("minilm")
def test_an_index_that_encodes_answers_texts_whatever_model_llamaindex_has(tmp_path):
    with mvindex.create(tmp_path / "own.mvx", encoder="minilm") as made:
        made.add([mvindex.Document("oil", OIL), mvindex.Document("plague", PLAGUE)])
    store = MVIndexVectorStore(tmp_path / "own.mvx")
    index = VectorStoreIndex.from_vector_store(store, embed_model=MockEmbedding(embed_dim=3))
    best = index.as_retriever(similarity_top_k=1).retrieve("How many Europeans died?")[0]
    assert best.node_id == "plague" and best.metadata["mvindex"]["snippet"] == "It killed a third of Europe."
    answer = index.as_query_engine(llm=MockLLM(), similarity_top_k=1).query("How many Europeans died?")
    assert [each.node_id for each in answer.source_nodes] == ["plague"]
    store.close()


def test_an_index_that_was_given_open_is_left_open(tmp_path):
    with mvindex.create(tmp_path / "a.mvx", dim=2) as index:
        store = MVIndexVectorStore(index)
        store.add(corpus())
        store.close()
        assert len(index) == 4 and store.query(asked(1)).ids == ["a"]


def test_neither_an_llm_nor_an_embedding_is_shown_the_citation_and_the_node_hashes_as_before(words):
    found = words.query(question("oil", 1)).nodes[0]
    assert "mvindex" in found.metadata
    for mode in (MetadataMode.LLM, MetadataMode.EMBED):
        assert found.get_content(mode) == f"year: 1973\n\n{OIL}"
    assert found.hash == texts()[0].hash


def test_what_was_found_can_be_added_again_and_stays_as_it_was(words):
    assert sorted(words.add(words.query(question("oil")).nodes)) == ["oil", "plague"]
    assert words.get_nodes(["oil", "plague"]) == texts()


def test_without_citations_found_nodes_are_just_as_they_were_added(words, tmp_path):
    plain = MVIndexVectorStore(words.index, embed_model=WordEmbedding(), cites=False)
    assert plain.query(question("plague", 1)).nodes == texts()[1:]
    plain.close()


def test_a_key_of_the_users_with_our_name_is_refused(words):
    with pytest.raises(ValueError, match="metadata key 'mvindex': expected a citation, got 'mine'"):
        words.add([TextNode(text="a text", metadata={"mvindex": "mine"})])


def test_retrievers_that_fuse_questions_take_a_node_found_twice_for_one(words):
    retriever = VectorStoreIndex.from_vector_store(words, embed_model=MockEmbedding(embed_dim=1)).as_retriever()
    fused = QueryFusionRetriever(
        [retriever, retriever],
        llm=MockLLM(),
        num_queries=1,
        mode="reciprocal_rerank",
        similarity_top_k=10,
        use_async=False,
    )
    assert sorted(found.node_id for found in fused.retrieve("oil")) == ["oil", "plague"]


def test_text_search_goes_by_words_and_finds_only_what_has_one(words):
    result = words.query(question("prices in March", mode="text_search"))
    assert result.ids == ["oil"]
    assert result.nodes[0].metadata["mvindex"]["snippet"] == "By March the price of oil had risen."
    index = VectorStoreIndex.from_vector_store(words, embed_model=MockEmbedding(embed_dim=1))
    assert [n.node_id for n in index.as_retriever(vector_store_query_mode="text_search").retrieve("prices")] == ["oil"]


def test_hybrid_is_the_indexs_own_and_alpha_weighs_views_against_words(words):
    with mvindex.open(words.index) as index:
        vector = np.array(word_counts("shock in Europe")) / np.linalg.norm(word_counts("shock in Europe"))
        for alpha, weights in ((None, None), (0.0, (0, 1)), (1.0, (1, 0)), (0.25, (0.25, 0.75))):
            plain = index.search(vector, 2, mode="hybrid", text="shock in Europe", weights=weights)
            result = words.query(question("shock in Europe", mode="hybrid", alpha=alpha))
            assert result.ids == [hit.id for hit in plain.hits]
            assert result.similarities == pytest.approx([hit.score for hit in plain.hits])
    assert words.query(question("shock in Europe", mode="hybrid", alpha=0.0)).ids == ["oil", "plague"]
    assert words.query(question("shock in Europe", mode="hybrid", alpha=1.0)).ids == ["plague", "oil"]
    assert words.query(question("shock", mode="hybrid", hybrid_top_k=1)).ids == ["oil"]


def test_hybrid_scores_are_the_same_whether_the_index_or_python_filters(words):
    words.add([TextNode(id_=f"n{n}", text=f"oil {'price ' * n}of {n}", metadata={"tag": "x" * n}) for n in range(9)])
    by_index = words.query(question("oil price", 4, "hybrid", filters=by("tag", "in", ["xxx", "xxxx", "xxxxx"])))
    by_python = words.query(
        question("oil price", 4, "hybrid", filters=both(("tag", "text_match", "xxx"), ("tag", "<", "xxxxxx")))
    )
    assert len(by_index.ids) == 3 and by_python.ids == by_index.ids
    assert by_python.similarities == by_index.similarities


def both(*triples):
    return MetadataFilters(filters=[by(*triple).filters[0] for triple in triples])


def test_words_are_refused_where_the_index_has_none(tmp_path, server):
    for place in (tmp_path / "a.mvx", server.url("dim2")):
        store = MVIndexVectorStore(place, embedding_dim=2, lexical="none" if place == tmp_path / "a.mvx" else None)
        store.add(corpus())
        with pytest.raises((QueryError, ConfigError, Unsupported), match="lexical"):
            store.query(asked(mode=VectorStoreQueryMode.HYBRID, query_str="text"))
        with pytest.raises((QueryError, ConfigError, Unsupported), match="lexical"):
            store.query(question("text", mode="text_search"))
        store.clear()
        store.close()


def test_options_of_a_search_go_to_the_index(words):
    index = VectorStoreIndex.from_vector_store(words, embed_model=MockEmbedding(embed_dim=1))
    plain = mvindex.open(words.index)
    vector = np.array(word_counts("oil price")) / np.linalg.norm(word_counts("oil price"))
    retriever = index.as_retriever(vector_store_kwargs={"scoring": "drpq", "temperature": 0.5})
    expected = plain.search(vector, 2, scoring="drpq", temperature=0.5, text="oil price").hits
    assert [found.score for found in retriever.retrieve("oil price")] == [hit.score for hit in expected]
    plain.close()


def test_an_index_with_its_own_encoder_embeds_texts_and_questions_itself(tmp_path):
    encoder = mvindex.CallableEncoder(lambda texts: [word_counts(text) for text in texts], name="words")
    store = MVIndexVectorStore(tmp_path / "own.mvx", encoder=encoder)
    index = VectorStoreIndex(
        texts(),
        storage_context=StorageContext.from_defaults(vector_store=store),
        embed_model=MockEmbedding(embed_dim=1),
    )
    assert [found.node_id for found in index.as_retriever().retrieve("plague")] == ["plague", "oil"]
    assert store.query(question("plague", mode="mmr")).ids == ["plague", "oil"]
    store.close()
    with pytest.raises(ConfigError, match="got one that encodes texts itself"):
        MVIndexVectorStore(tmp_path / "own.mvx", embedding_dim=10).query(asked())


@pytest.mark.needs("minilm")
def test_the_packaged_encoder_is_the_default_and_cites_the_sentence(tmp_path):
    store = MVIndexVectorStore(tmp_path / "a.mvx")
    store.add(texts())
    found = store.query(question("How many Europeans died?", 1)).nodes[0]
    assert found.node_id == "plague" and found.metadata["mvindex"]["snippet"] == "It killed a third of Europe."
    store.close()


def test_one_of_the_three_who_embed_is_wanted_and_a_query_brings_what_it_needs(tmp_path, words):
    with pytest.raises(ConfigError, match="expected at most one of encoder"):
        MVIndexVectorStore(tmp_path / "a.mvx", encoder="minilm", embedding_dim=2)
    with pytest.raises(ValueError, match="expected query_str"):
        words.query(VectorStoreQuery())
    store = MVIndexVectorStore(tmp_path / "b.mvx", embedding_dim=2)
    with pytest.raises(ValueError, match="expected query_embedding"):
        store.query(question("oil"))
    with pytest.raises(ValueError, match="node 'x': expected an embedding"):
        store.add([*corpus(), TextNode(id_="x", text="a")])
    with pytest.raises(ValueError, match=r"clear\(\) deletes everything"):
        store.delete_nodes()


@pytest.mark.parametrize(("operator", "value"), [("in", 3), ("any", None), ("text_match", 3), (">", None)])
def test_a_value_that_its_operator_cannot_take_is_refused_whatever_is_stored(words, operator, value):
    with pytest.raises(ValueError, match=f"filter on 'year': expected a .* for '{operator}'"):
        words.query(question("oil", filters=by("year", operator, value)))


def test_a_storage_context_that_was_persisted_is_loaded_with_the_store(words, tmp_path):
    context = StorageContext.from_defaults(vector_store=words)
    index = VectorStoreIndex(nodes=[], storage_context=context, embed_model=MockEmbedding(embed_dim=1))
    index.storage_context.persist(tmp_path / "storage")
    words.close()
    again = MVIndexVectorStore(words.index, embed_model=WordEmbedding())
    loaded = load_index_from_storage(
        StorageContext.from_defaults(vector_store=again, persist_dir=str(tmp_path / "storage")),
        embed_model=MockEmbedding(embed_dim=1),
    )
    assert [found.node_id for found in loaded.as_retriever(similarity_top_k=1).retrieve("plague")] == ["plague"]
    again.close()


def test_a_store_is_told_in_a_dict_without_secrets_and_made_again_from_it(tmp_path):
    store = MVIndexVectorStore(tmp_path / "a.mvx", embedding_dim=2)
    store.add(corpus())
    told = store.to_dict()
    assert told["class_name"] == "MVIndexVectorStore" and told["index"] == str(tmp_path / "a.mvx")
    assert MVIndexVectorStore.from_dict(told).query(asked(1)).ids == ["a"]
    secret = MVIndexVectorStore("milvus://me:hidden@host:19530/name", embedding_dim=2)
    assert "hidden" not in secret.to_json()


def test_a_store_can_be_copied_and_sent_to_another_process(words):
    sent = ForkingPickler.loads(ForkingPickler.dumps(words))
    for other in (copy.deepcopy(words), sent):
        assert other.query(question("plague", 1)).ids == ["plague"]
    sent.close()


VALUES = (None, True, False, 0, 1, 2, -3, 1.0, 2.5, 2**60, "1", "a", "A", "ä", "", [1, 2], ["a"], [], {"deep": 1})
KEYS = ("x", "y", "x.deep", "missing", "id", "not", 'quo"te', "doc_id")


def chance_node(rng, number):
    keys = ("x", "y", "x.deep", "id", "not", 'quo"te')
    metadata = {key: VALUES[rng.integers(len(VALUES))] for key in keys if rng.random() < 0.8}
    return node(f"n{number}", float(rng.random()), rng.choice(["book", "film", None]), metadata)


def chance_filters(rng, depth=0):
    parts = [
        chance_filters(rng, depth + 1) if depth < 2 and rng.random() < 0.3 else chance_filter(rng)
        for _ in range(rng.integers(0, 4))
    ]
    return MetadataFilters(filters=parts, condition=FilterCondition(str(rng.choice(["and", "or", "not"]))))


def chance_filter(rng):
    operator = FilterOperator(str(rng.choice([each.value for each in FilterOperator])))
    pools = {"numbers": [0, 1, 2, -3, 2**60], "floats": [1.0, 2.5], "texts": ["1", "a", "A", "ä", "", "book", "None"]}
    pool = pools[str(rng.choice(list(pools)))]
    if operator.value.startswith("text"):
        value = "a"
    elif operator.value in ("in", "nin", "any", "all"):
        value = [pool[rng.integers(len(pool))] for _ in range(rng.integers(0, 3))]
    else:
        value = pool[rng.integers(len(pool))]
    return MetadataFilter(key=str(rng.choice(KEYS)), operator=operator, value=value)


def test_any_filter_gives_what_pythons_check_of_every_node_gives(tmp_path):
    rng = np.random.default_rng(5)
    nodes = [chance_node(rng, number) for number in range(60)]
    store = MVIndexVectorStore(tmp_path / "a.mvx", embedding_dim=2)
    store.add(nodes)
    ranked = store.query(asked(60)).ids
    seen = {each.node_id: {**each.metadata, "doc_id": each.ref_doc_id or "None"} for each in nodes}
    told = 0
    for _ in range(150):
        filters = chance_filters(rng)
        told += pushed_filter(filters).is_exact
        expected = [name for name in ranked if matches(filters, seen[name])]
        assert store.query(asked(60, filters=filters)).ids == expected, filters
        assert store.query(asked(3, filters=filters)).ids == expected[:3], filters
        assert [each.node_id for each in store.get_nodes(filters=filters)] == [n for n in seen if n in set(expected)]
    # Both ways were taken.
    assert 30 < told < 130
    store.close()


def test_a_server_gives_the_same_nodes_mmr_and_snippets_awaited_without_a_thread(server, words, monkeypatch):
    async def compare():
        remote = MVIndexVectorStore(server.url("words"), embed_model=WordEmbedding())
        monkeypatch.setattr(asyncio, "to_thread", _no_thread)
        assert await remote.async_add(texts()) == ["oil", "plague"]
        for mode in ("default", "mmr", "hybrid", "text_search"):
            for text in ("oil?", "Who was killed in Europe?", "prices in March"):
                here, there = words.query(question(text, mode=mode)), await remote.aquery(question(text, mode=mode))
                assert there.nodes == here.nodes
                cited = [[each.metadata["mvindex"] for each in result.nodes] for result in (there, here)]
                for one, other in zip(*cited, strict=True):
                    assert one.keys() == other.keys() and one["snippet"] == other["snippet"]
                assert there.similarities == pytest.approx(here.similarities, abs=1e-3)
        assert await remote.aget_nodes(filters=by("year", "<", 1500)) == texts()[1:]
        await remote.aclear()
        assert (await remote.aquery(question("oil?"))).ids == []
        await remote.aclose()

    asyncio.run(compare())


def _no_thread(*args):
    raise AssertionError("a thread was started")


def test_a_store_sees_what_others_write_and_many_writers_wait_for_each_other(tmp_path):
    async def fill():
        reader = MVIndexVectorStore(tmp_path / "a.mvx", embedding_dim=2)
        writer = MVIndexVectorStore(tmp_path / "a.mvx", embedding_dim=2)
        await asyncio.gather(*(writer.async_add([node(str(number), 0.5)]) for number in range(8)))
        assert len((await reader.aquery(asked(20))).ids) == 8
        await reader.aclose()
        await writer.aclose()

    asyncio.run(fill())


def test_without_the_framework_the_command_is_named_that_installs_it():
    code = "import sys; sys.modules['llama_index.core'] = None; import mvindex_connectors.frameworks.llamaindex"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stderr.strip().endswith(install_command("llamaindex"))


def test_the_example_runs_and_cites_the_sentence(capsys):
    runpy.run_path(str(Path(__file__).parents[2] / "examples/frameworks/llamaindex_citing.py"), run_name="__main__")
    assert "It caused a shock to the global economy. [oil, characters 93-133]" in capsys.readouterr().out


def test_dates_are_stored_as_texts_and_compared_as_llamaindex_does(tmp_path):
    days = {"a": datetime.date(2024, 4, 30), "b": "2024-05-01T12:30:00Z", "c": "may"}
    store = MVIndexVectorStore(tmp_path / "dated.mvx", embedding_dim=2)
    store.add(
        [TextNode(id_=name, text=name, metadata={"day": day}, embedding=[1.0, 0.0]) for name, day in days.items()]
    )
    filters = MetadataFilters(filters=[MetadataFilter(key="day", value="2024-05-01", operator=FilterOperator.GTE)])
    query = VectorStoreQuery(query_embedding=[1.0, 0.0], similarity_top_k=9, filters=filters)
    # By code point: LlamaIndex's filters have no dates.
    assert store.query(query).ids == ["b", "c"]
    assert store.get_nodes(["a"])[0].metadata["day"] == "2024-04-30"
    # The index itself has them.
    with mvindex.open(tmp_path / "dated.mvx") as index:
        assert [document.id for document in index.scan({"day": {"gte": datetime.date(2024, 5, 1)}})] == ["b"]
    store.close()


def test_an_empty_text_with_a_filter_lists_what_matches_and_without_one_is_an_error(words):
    words.add([TextNode(id_="third", text="third", metadata={"year": 1973})])
    for value, wanted in ((1900, ["oil", "third"]), (2000, [])):
        year = MetadataFilters(filters=[MetadataFilter(key="year", value=value, operator=FilterOperator.GT)])
        found = words.query(question("", filters=year))
        assert (found.ids, found.similarities) == (wanted, [0.0] * len(wanted))
    part = MetadataFilters(filters=[MetadataFilter(key="year", value="97", operator=FilterOperator.TEXT_MATCH)])
    assert words.query(question("", filters=part)).ids == []
    assert words.query(question(" ", 1, node_ids=["third", "oil"])).ids == ["oil"]
    with pytest.raises(QueryError, match="query is empty"):
        words.query(question(""))


def test_an_empty_text_beside_a_vector_is_a_query_by_the_vector(words):
    year = MetadataFilters(filters=[MetadataFilter(key="year", value=1, operator=FilterOperator.GT)])
    for filters in None, year:
        found = words.query(question("", 1, query_embedding=word_counts("plague"), filters=filters))
        assert found.ids == ["plague"] and found.similarities[0] > 0


def test_where_few_documents_pass_a_check_all_are_checked_instead_of_fetching_ever_more_hits(words, monkeypatch):
    words.add([TextNode(id_=str(n), text="oil " * 9, metadata={"name": f"n{n}"}) for n in range(40)])
    named = MetadataFilters(filters=[MetadataFilter(key="name", value="n3", operator=FilterOperator.TEXT_MATCH)])
    asked, search = [], mvindex.Index.search

    def watched(index, source, top_k, *rest, **options):
        asked.append(top_k)
        return search(index, source, top_k, *rest, **options)

    monkeypatch.setattr(mvindex.Index, "search", watched)
    query = VectorStoreQuery(query_embedding=word_counts("price"), similarity_top_k=20, filters=named)
    wanted = words.query(query)
    monkeypatch.setattr("mvindex_connectors.frameworks.query._MOST_HITS", 30)
    found = words.query(query)
    assert asked == [20, 80, 20, 20]
    assert sorted(found.ids) == sorted(wanted.ids) == sorted({"3", *(str(n) for n in range(30, 40))})
    assert found.similarities == wanted.similarities


def test_the_mode_of_a_query_may_be_a_text(words):
    for mode in VectorStoreQueryMode.TEXT_SEARCH, VectorStoreQueryMode.MMR:
        text, named = VectorStoreQuery(query_str="plague", mode=mode.value), question("plague", 1, mode)
        assert words.query(text).ids == words.query(named).ids
    with pytest.raises(ValueError, match="query mode: expected default, hybrid, text_search or mmr, got 'none'"):
        words.query(VectorStoreQuery(query_str="plague", mode="none"))


@pytest.mark.parametrize(
    ("call", "error", "told"),
    [
        (lambda words: words.add(None), DocumentError, "nodes: expected several BaseNode, got NoneType"),
        (lambda words: words.add(["a"]), DocumentError, "nodes: expected BaseNode, got str as number 1"),
        (lambda words: words.add(texts()[0]), DocumentError, "nodes: expected several BaseNode, got TextNode"),
        (
            lambda words: words.query(question("oil", mode="mmr", mmr_threshold=2)),
            QueryError,
            "mmr_threshold: expected a number from 0 to 1, got 2",
        ),
        (
            lambda words: words.query(question("oil", mode="mmr"), mmr_prefetch_factor="4"),
            QueryError,
            "mmr_prefetch_factor: expected a number from 1 on, got '4'",
        ),
        (
            lambda words: words.query(question("oil", mode="mmr"), mmr_prefetch_k=-1),
            QueryError,
            "mmr_prefetch_k: expected a whole number from 1 on, got -1",
        ),
        (
            lambda words: words.query(question("oil", mode="hybrid", alpha="0.5")),
            QueryError,
            "alpha: expected a number from 0 to 1, got '0.5'",
        ),
        (lambda words: MVIndexVectorStore("x.mvx", embedding_dim=0), ConfigError, "dim: expected a whole number"),
        (lambda words: MVIndexVectorStore("x.mvx", collection="a"), TypeError, "expected no argument collection"),
        (lambda words: MVIndexVectorStore(5), ConfigError, "index: expected a directory, an address or an open index"),
    ],
)
def test_arguments_of_the_wrong_kind_are_named(words, call, error, told):
    with pytest.raises(error, match=told):
        call(words)


def test_nodes_may_come_from_a_generator_and_one_id_is_one_node(words):
    assert words.add(node for node in [TextNode(id_="a", text="a"), TextNode(id_="b", text="b")]) == ["a", "b"]
    assert [node.node_id for node in words.get_nodes("plague")] == ["plague"]


def numbered(count=20):
    """Nodes whose owners take turns, in falling order of their scores for [1, 0]."""
    return [
        TextNode(id_=str(n), text=f"t{n}", metadata={"owner": ["alice", "bob"][n % 2]}, embedding=[1.0, n / 9])
        for n in range(count)
    ]


@pytest.fixture
def owned(tmp_path):
    made = MVIndexVectorStore(tmp_path / "owned.mvx", embedding_dim=2)
    made.add(numbered())
    yield made
    made.close()


def of_owner(text, condition="and", **options):
    """A query for nodes whose owner has the text, which an index cannot evaluate."""
    parts = [MetadataFilter(key="owner", value=text, operator=FilterOperator.TEXT_MATCH)]
    filters = MetadataFilters(filters=parts, condition=condition)
    return VectorStoreQuery(query_embedding=[1.0, 0.0], similarity_top_k=20, filters=filters, **options)


@pytest.mark.parametrize("condition", ["and", "not"])
def test_a_filter_holds_where_hits_have_some_fields_only(owned, condition):
    whole = owned.query(of_owner("ali", condition))
    some = owned.query(of_owner("ali", condition), fields=["text"])
    assert len(whole.ids) == 10 and some.ids == whole.ids
    assert [node.text for node in some.nodes] == [node.text for node in whole.nodes]
    assert all("owner" not in node.metadata for node in some.nodes)


def test_diverse_nodes_are_chosen_among_those_of_a_filter_that_is_checked_in_python(owned):
    checked, pushed = of_owner("ali"), of_owner("alice")
    pushed.filters.filters[0].operator = FilterOperator.EQ
    assert owned.query(checked, diversity=0.5).ids == owned.query(pushed, diversity=0.5).ids
    with pytest.raises(QueryError, match="up to 100 together, got 101"):
        owned.query(VectorStoreQuery(query_embedding=[1.0, 0.0], similarity_top_k=101), diversity=0.5)


def test_a_filter_that_is_checked_in_python_needs_no_more_hits_than_a_server_allows(tmp_path):
    from serving_tools import served

    store = MVIndexVectorStore(tmp_path / "few.mvx", embedding_dim=2)
    store.add(numbered(100))
    only = TextNode(id_="only", text="t", metadata={"owner": "carol"}, embedding=[0.0, 1.0])
    store.add([only])
    store.close()
    with served(f"--index=few={tmp_path / 'few.mvx'}", "--max-top-k=20") as serving:
        client = MVIndexVectorStore(serving.url("few"), embedding_dim=2)
        query = of_owner("caro")
        query.similarity_top_k = 5
        assert client.query(query).ids == ["only"]
        query.similarity_top_k = 21
        with pytest.raises(LimitExceeded, match="at most 20"):
            client.query(query)
        client.close()


def test_a_text_is_one_id(owned):
    assert owned.query(VectorStoreQuery(query_embedding=[1.0, 0.0], similarity_top_k=5, node_ids="13")).ids == ["13"]
    owned.delete_nodes("12")
    left = MetadataFilters(filters=[MetadataFilter(key="owner", value="bob")])
    owned.delete_nodes("13", left)
    assert [n for n in ("1", "2", "3", "12", "13") if owned.get_nodes([n])] == ["1", "2", "3"]


def test_mmr_beside_a_document_and_refuses_fields_which_it_reads(owned):
    query = VectorStoreQuery(query_str="", similarity_top_k=3, mode=VectorStoreQueryMode.MMR)
    near = owned.query(replace(query, mode=VectorStoreQueryMode.DEFAULT), like="5").ids
    assert owned.query(query, like="5", mmr_threshold=1.0).ids == near
    with pytest.raises(QueryError, match="fields= does not go with MMR"):
        owned.query(replace(query, query_embedding=[1.0, 0.0]), fields=["text"])


@pytest.mark.parametrize("ours", [{"kind": "Foo"}, {"fields": 7}, {"spans": [1]}, {"keys": 3}, 5])
def test_what_another_program_wrote_under_our_key_is_a_text_node(owned, ours):
    owned.client.add_views([mvindex.Document("foreign", "text", metadata={"mvindex": ours, "a": 1})], [[[9.0, 0.0]]])
    [node] = owned.query(VectorStoreQuery(query_embedding=[1.0, 0.0], similarity_top_k=1)).nodes
    assert (node.node_id, node.text, node.metadata["a"]) == ("foreign", "text", 1)
    assert owned.query(VectorStoreQuery(query_str="text", similarity_top_k=1, mode="text_search")).ids == ["foreign"]
