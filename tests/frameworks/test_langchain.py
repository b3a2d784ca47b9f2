"""LangChain: what its own suites (test_langchain_suites.py) do not ask."""

import asyncio
import copy
import datetime
import json
import runpy
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from multiprocessing.reduction import ForkingPickler
from pathlib import Path

import numpy as np
import pytest

import mvindex

NOT_RUN = "NOT RUN: needs langchain-core (the extra langchain, or frameworks-dev)"
pytest.importorskip("langchain_core", reason=NOT_RUN)

from langchain_core.documents import Document  # noqa: E402 - there, now
from langchain_core.embeddings import Embeddings  # noqa: E402
from langchain_core.indexing import InMemoryRecordManager, aindex, index  # noqa: E402
from langchain_core.load import dumps, loads  # noqa: E402
from langchain_core.vectorstores import InMemoryVectorStore  # noqa: E402
from word_vectors import OIL, PLAGUE, word_counts  # noqa: E402

from mvindex.errors import ConfigError, EncoderError, MvindexError, QueryError  # noqa: E402
from mvindex.plugins import install_command  # noqa: E402
from mvindex_connectors.frameworks.citations import citations  # noqa: E402
from mvindex_connectors.frameworks.connection import IndexHandle  # noqa: E402
from mvindex_connectors.frameworks.langchain import (  # noqa: E402
    MVIndexRetriever,
    MVIndexVectorStore,
    relevance_of_cosine,
)


class WordEmbeddings(Embeddings):
    """Word counts; and what was asked."""

    def __init__(self):
        self.asked = []

    def embed_documents(self, texts):
        self.asked += texts
        return [word_counts(text) for text in texts]

    def embed_query(self, text):
        return word_counts(text)


@pytest.fixture
def store(tmp_path):
    texts, metadatas = [OIL, PLAGUE], [{"year": 1973}, {"year": 1343}]
    made = MVIndexVectorStore.from_texts(
        texts, WordEmbeddings(), metadatas, ids=["oil", "plague"], index=tmp_path / "words.mvx"
    )
    yield made
    made.close()


def test_a_hit_carries_the_sentence_that_won_where_it_stands_and_that_it_is_exact(store):
    document = store.similarity_search("Who was killed in Europe?", k=1)[0]
    cited = document.metadata["mvindex"]
    assert document.id == "plague" and document.page_content == PLAGUE and document.metadata["year"] == 1343
    assert cited["snippet"] == "It killed a third of Europe." == PLAGUE[slice(*cited["snippet_span"])]
    assert cited["view"] == 1 and cited["exact"] is True
    start, end = cited["citation"]["start"], cited["citation"]["end"]
    assert cited["citation"]["text"] == "It killed a third of Europe." == PLAGUE[start:end]
    assert list(cited["citation"]["why"]) == ["views", "terms", "context", "cues"]
    # (killed, europe, 1) both: the same direction, as far as fp16 keeps it.
    assert cited["mode"] == "hybrid" and cited["dense_score"] == pytest.approx(1.0, abs=1e-3)


def test_scores_are_the_cosines_worked_by_hand_and_relevance_is_half_of_one_plus_them(store):
    # The query is (oil, 1); the best sentence on oil (price, oil, 1), on the plague (population, 1).
    hits = store.similarity_search_with_score("oil?", k=2, mode="dense")
    assert [document.id for document, _ in hits] == ["oil", "plague"]
    assert hits[0][1] == pytest.approx(2 / (np.sqrt(2) * np.sqrt(3)), abs=1e-3)
    assert hits[1][1] == pytest.approx(1 / (np.sqrt(2) * np.sqrt(2)), abs=1e-3)
    relevant = store.similarity_search_with_relevance_scores("oil?", k=2)
    assert [score for _, score in relevant] == [pytest.approx((1 + score) / 2) for _, score in hits]


def test_every_views_score_is_told_unless_that_is_not_wanted(tmp_path):
    made = MVIndexVectorStore.from_texts([PLAGUE], WordEmbeddings(), index=tmp_path / "v.mvx")
    scores = made.similarity_search("population")[0].metadata["mvindex"]["view_scores"]
    # The query is (population, 1); the sentences (plague, crimea, 1), (killed, europe, 1) and (population, 1).
    assert [one["view"] for one in scores] == [2, 0, 1]
    assert [one["score"] for one in scores] == pytest.approx([1, 1 / np.sqrt(6), 1 / np.sqrt(6)], abs=1e-3)
    with mvindex.open(tmp_path / "v.mvx") as index:
        explained = index.explain(np.array(word_counts("population")) / np.sqrt(2), made.similarity_search("x")[0].id)
    assert [(one["view"], one["score"]) for one in scores] == [(view.slot, view.score) for view in explained]
    made.close()
    terse = MVIndexVectorStore(tmp_path / "v.mvx", WordEmbeddings(), has_view_scores=False)
    assert "view_scores" not in terse.similarity_search("population")[0].metadata["mvindex"]
    terse.close()


def test_a_document_found_is_the_document_added_whatever_found_it(store):
    found, again = store.similarity_search("oil", k=1)[0], store.similarity_search("embargo", k=1)[0]
    added = Document(OIL, id="oil", metadata={"year": 1973})
    assert found.metadata["mvindex"] != again.metadata["mvindex"]
    # As MultiQueryRetriever drops doubles.
    assert found == again == added and added == found and not found != added and again in [found]
    assert found.metadata == {"year": 1973} and {"year": 1973} == found.metadata
    assert found != Document(OIL, id="oil", metadata={"year": 1974}) and found.metadata != {"year": 1974}
    assert found.metadata != 3


@pytest.mark.filterwarnings("ignore:The function `loads` is in beta")
def test_a_citation_goes_wherever_its_document_goes(store):
    found = store.similarity_search("oil", k=1)[0]
    cited = found.metadata["mvindex"]
    assert loads(dumps(found), allowed_objects=[Document]).metadata["mvindex"] == cited
    assert found.model_dump()["metadata"]["mvindex"] == found.model_copy(deep=True).metadata["mvindex"] == cited
    assert json.loads(found.model_dump_json())["metadata"]["mvindex"] == cited
    assert Document(found.page_content, metadata=found.metadata).metadata["mvindex"] == cited


def test_cites_false_leaves_the_citation_out(store):
    plain = MVIndexVectorStore(store._handle.path, WordEmbeddings(), cites=False)
    assert dict(plain.similarity_search("oil", k=1)[0].metadata) == {"year": 1973}
    plain.close()


def test_relevance_stays_within_0_and_1_and_keeps_the_order():
    assert [relevance_of_cosine(score) for score in (-1.5, -1, 0, 0.5, 1, 1.0001)] == [0, 0, 0.5, 0.75, 1, 1]


def test_a_threshold_of_relevance_leaves_what_is_above_it(store):
    retriever = store.as_retriever(search_type="similarity_score_threshold", search_kwargs={"score_threshold": 0.8})
    assert [document.id for document in retriever.invoke("oil?")] == ["oil"]


def test_filters_are_those_of_the_index(store):
    assert [d.id for d in store.similarity_search("oil", filter={"year": {"lt": 1500}})] == ["plague"]
    assert [d.id for d in store.as_retriever(search_kwargs={"filter": {"id": "plague"}}).invoke("oil")] == ["plague"]
    assert [d.id for d in MVIndexRetriever(store=store, filter={"year": 1343}).invoke("oil")] == ["plague"]
    both = {"$and": [{"year": {"$lt": 1500}}, {"$not": {"tags": {"$contains": "oil"}}}]}
    assert [d.id for d in store.similarity_search("oil", filter=both)] == ["plague"]
    with pytest.raises(QueryError, match="unknown operator"):
        store.similarity_search("oil", filter={"year": {"above": 3}})
    with pytest.raises(QueryError, match="got a function"):
        store.similarity_search("oil", filter=lambda document: True)


def test_a_retriever_may_be_given_the_index_in_place_of_a_store(store):
    retriever = MVIndexRetriever(index=store._handle.path, embedding=WordEmbeddings(), k=1)
    assert [d.id for d in retriever.invoke("plague")] == ["plague"]
    assert [d.id for d in asyncio.run(retriever.ainvoke("oil", k=2))] == ["oil", "plague"]
    retriever.store.close()


def test_an_index_that_was_given_open_is_left_open(tmp_path):
    with mvindex.create(tmp_path / "a.mvx", dim=10) as index:
        store = MVIndexVectorStore(index, WordEmbeddings())
        store.add_texts([OIL], ids=["oil"])
        store.close()
        assert len(index) == 1 and [d.id for d in store.similarity_search("oil")] == ["oil"]


def test_what_is_no_embeddings_is_refused_at_once(tmp_path):
    with pytest.raises(ConfigError, match=r"embedding: expected langchain_core\S+, got function"):
        MVIndexVectorStore(tmp_path / "a.mvx", word_counts)
    with pytest.raises(ConfigError, match="lexical: expected unicode, english"):
        MVIndexVectorStore(tmp_path / "a.mvx", WordEmbeddings(), lexical="german")


@pytest.fixture
def wordy(tmp_path):
    made = MVIndexVectorStore.from_texts(
        [OIL, PLAGUE], WordEmbeddings(), ids=["oil", "plague"], index=tmp_path / "wordy.mvx", lexical="english"
    )
    yield made
    made.close()


def test_words_find_only_what_has_one_and_the_sentence_that_says_most_is_cited(wordy):
    (found,) = wordy.similarity_search("prices in March", mode="lexical")
    cited = found.metadata["mvindex"]
    assert (found.id, cited["snippet"], cited["view"]) == ("oil", "By March the price of oil had risen.", 1)
    # No views were asked for.
    assert "view_scores" not in cited


def test_a_threshold_is_one_of_dense_scores_in_hybrid_search(wordy):
    question = "shock in Europe"
    found = wordy.similarity_search_with_relevance_scores(question, k=2)
    assert [document.metadata["mvindex"]["mode"] for document, _ in found] == ["hybrid"] * 2
    dense = {
        document.id: relevance
        for document, relevance in wordy.similarity_search_with_relevance_scores(question, k=2, mode="dense")
    }
    assert {document.id: relevance for document, relevance in found} == dense
    for document, relevance in found:
        assert relevance == relevance_of_cosine(document.metadata["mvindex"]["dense_score"])
    best = max(dense, key=dense.__getitem__)
    above = wordy.similarity_search_with_relevance_scores(question, k=2, score_threshold=dense[best])
    assert [document.id for document, _ in above] == [best]
    (lexical, *_) = wordy.similarity_search("shock", mode="lexical")
    assert lexical.metadata["mvindex"]["dense_score"] is None


def test_hybrid_search_is_the_indexs_own_by_the_embedding_and_the_words(wordy):
    vector = np.array(word_counts("shock in Europe")) / np.linalg.norm(word_counts("shock in Europe"))
    with mvindex.open(wordy._handle.path) as index:
        for weights in ((1, 0), (0, 1), (1, 3)):
            plain = index.search(vector, 2, mode="hybrid", text="shock in Europe", weights=weights)
            found = wordy.similarity_search_with_score("shock in Europe", k=2, mode="hybrid", weights=weights)
            assert [(d.id, score) for d, score in found] == [(hit.id, hit.score) for hit in plain.hits]
    retriever = wordy.as_retriever(search_kwargs={"mode": "hybrid", "weights": (0, 1), "k": 1})
    assert retriever.invoke("shock")[0].id == "oil"


def test_a_reranker_is_given_the_question(wordy):
    def longest_first(question, hits):
        assert question == "oil"
        return [len(hit.text) for hit in hits]

    assert [d.id for d in wordy.similarity_search("oil", rerank=longest_first)] == ["oil", "plague"]
    with pytest.raises(ValueError, match="expected the query's text, got none"):
        wordy.similarity_search_by_vector(word_counts("oil"), mode="hybrid")


def test_what_has_no_cosines_has_no_relevance_and_no_mmr_by_itself(wordy):
    with pytest.raises(ValueError, match="relevance: expected cosines"):
        wordy.similarity_search_with_relevance_scores("oil", mode="lexical")
    with pytest.raises(ValueError, match="relevance: expected cosines"):
        asyncio.run(wordy.asimilarity_search_with_relevance_scores("oil", mode="lexical"))
    with pytest.raises(ValueError, match="MMR compares views"):
        wordy.max_marginal_relevance_search("oil", mode="hybrid")


def test_a_document_that_is_deleted_before_its_views_are_scored_has_no_view_scores(store):
    with mvindex.open(store._handle.path) as index:
        result = index.search(np.array(word_counts("oil")), 2)
    store.delete(["plague"])
    cited = store._handle.run_sync(lambda api: citations(api, np.float32(word_counts("oil")), result))
    assert [len(one["view_scores"]) for one in cited] == [3, 0]


def test_no_secret_of_an_address_is_shown():
    assert "hidden" not in IndexHandle("milvus://me:hidden@host:19530/name", None, 3).shown_path


def test_a_client_that_was_given_lends_its_access_to_awaited_calls(server):
    from mvindex_connectors.remote import Access, IndexClient

    async def access_of(client):
        store = MVIndexVectorStore(client, WordEmbeddings())
        assert await store.asimilarity_search("oil") == []
        return (await store._handle._adapter())._channel.access

    with IndexClient(server.url("words"), access=Access(token="read-me")) as client:
        assert asyncio.run(access_of(client)).token == "read-me"


def test_awaited_calls_refuse_an_index_of_vectors_for_texts_as_the_others_do(server):
    store = MVIndexVectorStore(server.url("words"))
    told = "expected an index that encodes texts, got one made of given vectors"
    with pytest.raises(ConfigError, match=told):
        store.similarity_search("oil")
    for awaited in store.asimilarity_search("oil"), store.aadd_texts(["oil"]):
        with pytest.raises(ConfigError, match=told):
            asyncio.run(awaited)


def test_a_store_can_be_copied_and_sent_to_another_process(store):
    retriever = MVIndexRetriever(store=store, k=1)
    copied, sent = copy.deepcopy(retriever), ForkingPickler.loads(ForkingPickler.dumps(retriever))
    assert [d.id for each in (copied, sent) for d in each.invoke("plague")] == ["plague", "plague"]
    # Writers of a copy wait at the same lock.
    assert copied.store._handle is store._handle
    sent.store.close()


def all_word_counts(texts):
    return np.array([word_counts(text) for text in texts], dtype=np.float32)


def test_a_store_of_an_open_index_takes_the_function_that_encodes_along(tmp_path):
    with mvindex.create(tmp_path / "a.mvx", encoder=all_word_counts) as made:
        made.add([mvindex.Document("oil", OIL), mvindex.Document("plague", PLAGUE)])
        sent = ForkingPickler.loads(ForkingPickler.dumps(MVIndexVectorStore(made)))
        assert [document.id for document in sent.similarity_search("plague", k=1)] == ["plague"]
        sent._handle._given.close()


@pytest.mark.needs("minilm")
def test_a_document_that_was_found_keeps_its_title_when_it_is_added_again(tmp_path):
    with mvindex.create(tmp_path / "a.mvx", encoder="minilm") as made:
        made.add([mvindex.Document("oil", OIL, "Oil Crisis"), mvindex.Document("bees", "", "Bees")])
    store = MVIndexVectorStore(tmp_path / "a.mvx")
    assert set(store.add_documents(store.similarity_search("bees", k=2))) == {"oil", "bees"}
    with mvindex.open(tmp_path / "a.mvx") as index:
        assert (index.get("oil").title, index.get("bees").title) == ("Oil Crisis", "Bees")
    store.close()


def test_readers_and_writers_in_threads_do_not_disturb_each_other(store):
    def write(number):
        for turn in range(6):
            store.add_texts([f"oil {turn}", OIL], ids=[f"{number}-{turn % 3}", "oil"])
            store.delete([f"{number}-{(turn + 1) % 3}"])

    def read(_):
        for _ in range(20):
            assert len(store.similarity_search("oil", k=2)) == 2
            assert [d.page_content for d in store.get_by_ids(["oil"])] == [OIL]

    with ThreadPoolExecutor(6) as pool:
        for done in [pool.submit(write, 1), pool.submit(write, 2), *(pool.submit(read, n) for n in range(4))]:
            done.result()


def test_what_was_found_can_be_added_again_and_stays_as_it_was(store):
    found = store.similarity_search("oil", k=2)
    assert store.add_documents(found) == ["oil", "plague"]
    again = store.get_by_ids(["oil", "plague"])
    assert [(d.page_content, d.metadata) for d in again] == [(OIL, {"year": 1973}), (PLAGUE, {"year": 1343})]


def test_a_key_of_the_users_with_our_name_is_refused(store):
    with pytest.raises(ValueError, match="metadata key 'mvindex': expected a citation, got 'mine'"):
        store.add_texts(["a text"], [{"mvindex": "mine"}])


def test_texts_from_a_generator_are_all_added_and_the_last_of_an_id_counts(store):
    assert store.add_texts((text for text in ("one", "two")), ids=["x", "x"]) == ["x", "x"]
    assert [d.page_content for d in store.get_by_ids(["x"])] == ["two"]


def test_numbers_of_ids_and_metadatas_must_be_those_of_the_texts(store):
    with pytest.raises(ValueError, match="ids: expected one for each of 2 documents, got 1"):
        store.add_texts(["a", "b"], ids=["1"])
    with pytest.raises(ValueError, match="metadatas: expected one for each of 2 texts, got 1"):
        store.add_texts(["a", "b"], [{}])


def test_every_snippet_is_embedded_once_and_one_text_is_one_view_where_asked(tmp_path):
    by_snippets, by_text = WordEmbeddings(), WordEmbeddings()
    MVIndexVectorStore.from_texts([OIL], by_snippets, index=tmp_path / "a.mvx").close()
    whole = MVIndexVectorStore.from_texts([OIL], by_text, index=tmp_path / "b.mvx", max_snippets=1)
    assert by_snippets.asked == [
        "The embargo on oil began in October.", "By March the price of oil had risen.", "It was a shock."
    ]  # fmt: skip
    assert by_text.asked == [OIL]
    by_vector = whole.similarity_search_by_vector(by_text.embed_query("oil"))[0].metadata["mvindex"]
    assert (by_vector["snippet"], by_vector["citation"]) == (OIL, None)
    by_question = whole.similarity_search("oil")[0].metadata["mvindex"]
    assert by_question["snippet"] == by_question["citation"]["text"] == "The embargo on oil began in October."
    assert by_question["snippet_span"] == [by_question["citation"][name] for name in ("start", "end")]
    whole.close()


def test_delete_takes_ids_a_filter_or_everything(store):
    assert store.delete(filter={"year": 1973}) and [d.id for d in store.similarity_search("oil")] == ["plague"]
    assert store.delete(["plague", "never there"]) and store.similarity_search("oil") == []
    store.add_texts(["one", "two"])
    for nothing in ({}, {"filter": {}}, {"filter": {"and": []}}):
        with pytest.raises(QueryError, match="all=True"):
            store.delete(**nothing)
    assert len(store.similarity_search("one")) == 2
    assert store.delete(all=True) and store.similarity_search("oil") == []


def test_a_store_is_there_again_after_it_was_closed_and_sees_what_others_write(tmp_path):
    place = tmp_path / "a.mvx"
    MVIndexVectorStore.from_texts([OIL], WordEmbeddings(), ids=["oil"], index=place).close()
    reader, writer = MVIndexVectorStore(place, WordEmbeddings()), MVIndexVectorStore(place, WordEmbeddings())
    assert [d.id for d in reader.similarity_search("oil")] == ["oil"]
    writer.add_texts([PLAGUE], ids=["plague"])
    assert [d.id for d in reader.similarity_search("plague")] == ["plague", "oil"]
    reader.close()
    writer.close()


def test_mmr_takes_the_unlike_one_where_plain_search_takes_a_twin(tmp_path):
    texts = ["oil price", "oil price", "oil plague"]
    store = MVIndexVectorStore.from_texts(texts, WordEmbeddings(), ids=["a", "twin", "other"], index=tmp_path / "m.mvx")
    assert [d.id for d in store.similarity_search("oil price", k=2)] == ["a", "twin"]
    assert [d.id for d in store.max_marginal_relevance_search("oil price", k=2, lambda_mult=0.3)] == ["a", "other"]
    by_vector = store.max_marginal_relevance_search_by_vector(word_counts("oil price"), k=2, lambda_mult=0.3)
    assert [d.id for d in by_vector] == ["a", "other"]
    asyncio.run(_same_awaited(store))
    mmr = store.as_retriever(search_type="mmr", search_kwargs={"k": 2, "lambda_mult": 0.3})
    assert [d.id for d in mmr.invoke("oil price")] == ["a", "other"]
    store.close()


async def _same_awaited(store):
    found = await store.amax_marginal_relevance_search("oil price", k=2, lambda_mult=0.3)
    assert [d.id for d in found] == ["a", "other"]
    found = await store.asimilarity_search_by_vector(word_counts("oil price"), k=1)
    assert [d.id for d in found] == ["a"]


def test_a_server_gives_the_same_documents_mmr_and_snippets_awaited_without_a_thread(server, store, monkeypatch):
    async def compare():
        remote = MVIndexVectorStore(server.url("words"), WordEmbeddings())
        monkeypatch.setattr(asyncio, "to_thread", _no_thread)
        documents = store.get_by_ids(["oil", "plague"])
        assert await remote.aadd_documents(documents) == ["oil", "plague"]
        for question in ("oil?", "Who was killed in Europe?"):
            here = store.similarity_search(question, mode="dense")
            there = await remote.asimilarity_search(question, mode="dense")
            assert there == here and [dict(d.metadata) for d in there] == [dict(d.metadata) for d in here]
            diverse = await remote.amax_marginal_relevance_search(question, k=2)
            assert diverse == store.max_marginal_relevance_search(question, k=2)
        assert (await remote.asimilarity_search("prices", mode="lexical"))[0].metadata["mvindex"]["view"] == 1
        assert await remote.adelete(all=True)
        assert await remote.asimilarity_search("oil?") == []
        await remote.aclose()

    asyncio.run(compare())


def test_the_views_of_all_hits_are_one_call_to_a_server(server):
    from serving_tools import wait_for

    store = MVIndexVectorStore(server.url("dim10"), WordEmbeddings())
    store.add_texts(["oil", "price", "plague", "killed"])
    for found in (store.similarity_search("oil", k=4), asyncio.run(store.asimilarity_search("oil", k=4))):
        assert [len(document.metadata["mvindex"]["view_scores"]) for document in found] == [1] * 4
    wait_for(lambda: sum(call["index"] == "dim10" for call in server.calls("Explain")) == 2)


def _no_thread(*args):
    raise AssertionError("a thread was started")


def test_many_writers_of_one_store_wait_for_each_other(tmp_path):
    async def fill():
        store = MVIndexVectorStore(tmp_path / "a.mvx", WordEmbeddings())
        await asyncio.gather(*(store.aadd_texts([f"oil {number}"], ids=[str(number)]) for number in range(8)))
        assert len(await store.asimilarity_search("oil", k=20)) == 8
        await store.aclose()

    asyncio.run(fill())


def test_an_index_with_its_own_encoder_takes_no_embeddings_and_one_of_vectors_needs_them(tmp_path):
    encoder = mvindex.CallableEncoder(lambda texts: [word_counts(text) for text in texts], name="words")
    mvindex.create(tmp_path / "own.mvx", encoder=encoder).close()
    mvindex.create(tmp_path / "given.mvx", dim=10).close()
    with pytest.raises(ConfigError, match="got one that encodes texts itself"):
        MVIndexVectorStore(tmp_path / "own.mvx", WordEmbeddings()).similarity_search("oil")
    with pytest.raises(ConfigError, match="got one made of given vectors"):
        MVIndexVectorStore(tmp_path / "given.mvx").similarity_search("oil")


def test_a_callable_encoder_makes_the_index_and_opens_it_again(tmp_path):
    encoder = mvindex.CallableEncoder(lambda texts: [word_counts(text) for text in texts], name="words")
    MVIndexVectorStore.from_texts([OIL, PLAGUE], index=tmp_path / "a.mvx", ids=["o", "p"], encoder=encoder).close()
    store = MVIndexVectorStore(tmp_path / "a.mvx", encoder=encoder)
    assert [d.id for d in store.similarity_search("plague")] == ["p", "o"]
    # Such an encoder says of no view what it stands for: nothing is made up where no question tells.
    by_vector = store.similarity_search_by_vector(word_counts("plague"))[0]
    assert by_vector.id == "p" and by_vector.metadata["mvindex"]["snippet"] is None
    store.close()
    with mvindex.open(tmp_path / "a.mvx", encoder=encoder) as opened:
        assert [d.id for d in MVIndexVectorStore(opened, encoder=encoder).similarity_search("oil")] == ["o", "p"]


@pytest.mark.needs("minilm")
def test_the_packaged_encoder_is_the_default_and_cites_the_sentence(tmp_path):
    store = MVIndexVectorStore.from_texts([OIL, PLAGUE], ids=["oil", "plague"], index=tmp_path / "a.mvx")
    document = MVIndexRetriever(store=store, k=1).invoke("How many Europeans died?")[0]
    cited = document.metadata["mvindex"]
    assert document.id == "plague" and cited["snippet"] == "It killed a third of Europe."
    assert cited["view_scores"][0] == {"view": 1, "score": cited["dense_score"]} and len(cited["view_scores"]) == 3
    assert len(store.max_marginal_relevance_search("oil", k=2)) == 2
    store.close()


def test_a_question_to_an_index_that_is_not_there_makes_none(tmp_path):
    store = MVIndexVectorStore(tmp_path / "a.mvx")
    assert store.similarity_search("oil") == store.max_marginal_relevance_search("oil") == []
    assert not (tmp_path / "a.mvx").exists()


def test_the_indexing_api_awaited_changes_nothing_the_second_time(tmp_path):
    async def run(store, records):
        await records.acreate_schema()
        documents = [Document(page_content=text, metadata={"source": "book"}) for text in (OIL, PLAGUE)]
        how = {"cleanup": "full", "source_id_key": "source", "key_encoder": "sha256"}
        first = await aindex(documents, records, store, **how)
        second = await aindex(documents, records, store, **how)
        third = await aindex(documents[1:], records, store, **how)
        await store.aclose()
        return first["num_added"], second["num_skipped"], third["num_deleted"]

    store = MVIndexVectorStore(tmp_path / "a.mvx", WordEmbeddings())
    assert asyncio.run(run(store, InMemoryRecordManager("a"))) == (2, 2, 1)


@pytest.mark.parametrize("cleanup", ["incremental", "full", "scoped_full"])
def test_the_indexing_api_changes_nothing_the_second_time_and_drops_what_is_gone(tmp_path, cleanup):
    store, records = MVIndexVectorStore(tmp_path / "a.mvx", WordEmbeddings()), InMemoryRecordManager("a")
    records.create_schema()

    def run(*texts):
        documents = [Document(page_content=text, metadata={"source": "book"}) for text in texts]
        done = index(documents, records, store, cleanup=cleanup, source_id_key="source", key_encoder="sha256")
        return done["num_added"], done["num_updated"], done["num_skipped"], done["num_deleted"]

    assert run(OIL, PLAGUE) == (2, 0, 0, 0)
    assert run(OIL, PLAGUE) == (0, 0, 2, 0)
    assert run(PLAGUE) == (0, 0, 1, 1)
    assert [d.page_content for d in store.similarity_search("oil")] == [PLAGUE]
    store.close()


def _chunks(num_sources, num_chunks):
    """Return the chunks of files, one file after the other."""
    return [
        Document(page_content=f"file {source} says {chunk}", metadata={"source": f"file {source}"})
        for source in range(num_sources)
        for chunk in range(num_chunks)
    ]


def _reindexed(store, records, documents, **options):
    """Return what a second run over the same documents changed: numbers of added and deleted ones."""
    records.create_schema()
    options = {"source_id_key": "source", "key_encoder": "sha256", **options}
    first = index(documents, records, store, **options)
    assert (first["num_added"], first["num_deleted"]) == (len(documents), 0)
    second = index(documents, records, store, **options)
    assert second["num_added"] + second["num_skipped"] == len(documents)
    return second["num_added"], second["num_deleted"]


@pytest.fixture(params=["in memory", "sql"])
def records(request, tmp_path):
    if request.param == "in memory":
        return InMemoryRecordManager("a")
    indexes = pytest.importorskip("langchain_classic.indexes", reason="NOT RUN: needs langchain-classic")
    return indexes.SQLRecordManager("a", db_url=f"sqlite:///{tmp_path / 'records.sqlite'}")


def test_a_second_run_over_unchanged_documents_changes_nothing(tmp_path, records):
    store = MVIndexVectorStore(tmp_path / "a.mvx", WordEmbeddings())
    documents = _chunks(num_sources=6, num_chunks=50)
    assert _reindexed(store, records, documents, cleanup="scoped_full") == (0, 0)
    with mvindex.open(tmp_path / "a.mvx") as opened:
        assert len(opened) == 300 and opened.info().num_deleted == 0
    store.close()


def test_incremental_cleanup_deletes_unchanged_chunks_of_files_that_batches_split_in_any_store(tmp_path):
    # 40 chunks a file, 100 a batch: every second batch begins within a file, of whose 40 chunks 20 come later.
    documents, taken = _chunks(num_sources=5, num_chunks=40), {}
    for name, store in (
        ("mvindex", MVIndexVectorStore(tmp_path / "a.mvx", WordEmbeddings())),
        ("LangChain", InMemoryVectorStore(WordEmbeddings())),
    ):
        taken[name] = [
            _reindexed(store, InMemoryRecordManager(name), documents, cleanup="incremental"),
            _reindexed(store, InMemoryRecordManager(name + "2"), documents, cleanup="incremental", batch_size=200),
            _reindexed(store, InMemoryRecordManager(name + "3"), documents, cleanup="scoped_full"),
            _reindexed(store, InMemoryRecordManager(name + "4"), documents, cleanup="full"),
        ]
    assert taken["mvindex"] == taken["LangChain"] == [(20, 20), (0, 0), (0, 0), (0, 0)]


def test_without_the_framework_the_command_is_named_that_installs_it():
    code = "import sys; sys.modules['langchain_core'] = None; import mvindex_connectors.frameworks.langchain"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stderr.strip().endswith(install_command("langchain"))


def test_the_example_runs_and_cites_the_sentence(capsys):
    runpy.run_path(str(Path(__file__).parents[2] / "examples/frameworks/langchain_citing.py"), run_name="__main__")
    assert "It caused a shock to the global economy. [oil, characters 93-133]" in capsys.readouterr().out


@pytest.mark.needs("minilm")
def test_parents_that_were_moved_come_back_and_as_many_as_were_asked_for(capsys):
    pytest.importorskip("langchain_classic", reason="NOT RUN: needs langchain-classic (the extra frameworks-dev)")
    example = Path(__file__).parents[2] / "examples/frameworks/from_parent_document_retriever.py"
    runpy.run_path(str(example), run_name="__main__")
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 4 and all(line.endswith("and 2 parents, same first: True") for line in lines)


def test_the_core_and_the_other_connectors_import_no_framework():
    code = (
        "import sys, mvindex, mvindex.index.factory, mvindex_connectors.frameworks.connection as r;"
        "print([name for name in sys.modules if name.split('.')[0] in ('langchain_core', 'haystack', 'llama_index')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_dates_are_stored_as_texts_and_compared_as_dates(tmp_path):
    days = {"a": datetime.date(2024, 4, 30), "b": "2024-05-01T00:30:00+02:00", "c": "2024-05-01T12:30:00Z"}
    made = MVIndexVectorStore.from_texts(
        list(days), WordEmbeddings(), [{"day": day} for day in days.values()], ids=list(days), index=tmp_path / "x.mvx"
    )
    with closing(made) as store:
        for condition, expected in (
            ({"gte": datetime.date(2024, 5, 1)}, ["c"]),
            ({"lt": {"$date": "2024-05-01"}}, ["a", "b"]),
            ({"in": [datetime.date(2024, 4, 30)]}, ["a", "b"]),
        ):
            found = store.similarity_search("oil", filter={"day": condition})
            assert sorted(document.id for document in found) == expected
        assert store.get_by_ids(["a"])[0].metadata["day"] == "2024-04-30"


@pytest.mark.parametrize("is_async", [False, True])
def test_a_store_of_documents_needs_no_embedding(tmp_path, is_async):
    encoder = mvindex.CallableEncoder(lambda texts: np.array([word_counts(text) for text in texts]), name="words")
    documents = [Document(id="oil", page_content=OIL), Document(id="plague", page_content=PLAGUE)]
    options = {"index": tmp_path / "own.mvx", "encoder": encoder}
    if is_async:
        store = asyncio.run(MVIndexVectorStore.afrom_documents(documents, **options))
    else:
        store = MVIndexVectorStore.from_documents(documents, **options)
    with closing(store):
        assert store.similarity_search("What reached Crimea?", k=1)[0].id == "plague"
        named = MVIndexVectorStore.from_documents(documents, ids=["a", "b"], **options | {"index": tmp_path / "b.mvx"})
        with closing(named):
            assert [document.id for document in named.get_by_ids(["a", "b", "oil"])] == ["a", "b"]


@pytest.mark.parametrize("text", ["", "  \n"])
def test_an_empty_text_with_a_filter_lists_what_matches_and_without_one_is_an_error(store, text):
    store.add_texts(["third", "fourth"], [{"year": 1973}, {"year": 1973}], ids=["third", "fourth"])
    condition = {"year": {"gte": 1900}}
    assert [one.id for one in store.similarity_search(text, k=2, filter=condition)] == ["oil", "third"]
    assert [one.id for one in asyncio.run(store.asimilarity_search(text, k=9, filter=condition))] == [
        "oil",
        "third",
        "fourth",
    ]
    scored = store.similarity_search_with_score(text, k=1, filter=condition)
    assert [(one.id, one.metadata, score) for one, score in scored] == [("oil", {"year": 1973}, 0.0)]
    assert [one.id for one in store.as_retriever(search_kwargs={"filter": condition}).invoke(text)][0] == "oil"
    for refused in (
        lambda: store.similarity_search(text),
        lambda: store.similarity_search(text, filter={}),
        lambda: store.similarity_search(text, k=0, filter=condition),
        lambda: store.max_marginal_relevance_search(text, filter=condition),
    ):
        with pytest.raises(QueryError, match="query is empty|top_k"):
            refused()


def test_embeddings_may_be_tensors(tmp_path):
    torch = pytest.importorskip("torch")

    class TensorEmbeddings(Embeddings):
        def embed_documents(self, texts):
            return [torch.tensor(word_counts(text), requires_grad=True) for text in texts]

        def embed_query(self, text):
            return torch.tensor(word_counts(text), dtype=torch.bfloat16)

    with closing(MVIndexVectorStore(tmp_path / "tensors.mvx", TensorEmbeddings())) as store:
        store.add_texts([OIL, PLAGUE], ids=["oil", "plague"])
        assert store.similarity_search("What reached Crimea?", k=1)[0].id == "plague"
        vector = torch.tensor(word_counts("oil"), requires_grad=True)
        assert store.similarity_search_by_vector(vector, k=1)[0].id == "oil"
        with pytest.raises(EncoderError, match="embeddings: expected numbers, got None"):
            store.similarity_search_by_vector(None)


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda store: store.add_texts("abc"), "texts: expected several str, got str"),
        (lambda store: store.add_texts(None), "texts: expected several str, got NoneType"),
        (lambda store: store.add_texts(["a", 5]), "texts: expected str, got int as number 2"),
        (lambda store: store.add_documents(["a"]), "documents: expected Document, got str as number 1"),
        (lambda store: store.add_documents(Document(page_content="a")), "documents: expected several Document"),
        (
            lambda store: store.add_texts(["a", "b"], ids="cd"),
            "ids: expected one for each of 2 documents, got a single",
        ),
        (lambda store: store.max_marginal_relevance_search("a", k=0), "k: expected a whole number"),
        (lambda store: store.max_marginal_relevance_search("a", fetch_k="9"), "fetch_k: expected a whole number"),
        (lambda store: store.max_marginal_relevance_search("a", lambda_mult=2), "lambda_mult: expected a number from"),
        (
            lambda store: store.max_marginal_relevance_search("a", lambda_mult=float("nan")),
            "lambda_mult: expected a number from 0 to 1, got nan",
        ),
        (lambda store: MVIndexVectorStore(None), "index: expected a directory, an address or an open index, got None"),
        (lambda store: MVIndexVectorStore("x.mvx", max_snippets=0), "max_snippets: expected a whole number from 1"),
    ],
)
def test_arguments_of_the_wrong_kind_are_named_and_nothing_is_stored(store, call, told):
    with pytest.raises((MvindexError, ValueError), match=told):
        call(store)
    assert len(store.similarity_search("oil", k=9)) == 2


def test_ids_may_come_from_an_iterator_and_one_id_is_one_document(store):
    assert store.add_texts(["x", "y"], ids=iter("ef")) == ["e", "f"]
    assert [document.id for document in store.get_by_ids("plague")] == ["plague"]


@pytest.mark.parametrize("wrong", [{"search_kwargs": {"k": 20}}, {"top_k": 20}])
def test_a_retriever_refuses_what_it_does_not_know(store, wrong):
    with pytest.raises(ValueError, match="Extra inputs are not permitted"):
        MVIndexRetriever(store=store, **wrong)
    with pytest.raises(TypeError, match=next(iter(wrong))):
        MVIndexRetriever(index="none.mvx", **wrong)


def test_a_retriever_takes_the_arguments_of_its_store(tmp_path):
    made = MVIndexVectorStore.from_texts([OIL, PLAGUE], WordEmbeddings(), index=tmp_path / "own.mvx")
    made.close()
    retriever = MVIndexRetriever(index=tmp_path / "own.mvx", embedding=WordEmbeddings(), cites=False, k=1)
    [found] = retriever.invoke("Who was killed in Europe?")
    assert found.page_content == PLAGUE and "mvindex" not in found.metadata
    retriever.store.close()


def test_mmr_of_a_served_index_of_relevance_alone_is_its_search_and_chooses_what_the_folder_does(tmp_path):
    from serving_tools import served

    rows = Path("examples/squad/passages.tsv").read_text(encoding="utf-8").splitlines()[1:61]
    with mvindex.create(tmp_path / "city.mvx", encoder="minilm-views") as made:
        made.add([mvindex.Document(*row.split("\t")[:2]) for row in rows])
    found = []
    with served(f"--index=city={tmp_path / 'city.mvx'}") as serving:
        for where in (tmp_path / "city.mvx", serving.url("city")):
            store = MVIndexVectorStore(where)
            searched = [one.id for one in store.similarity_search("the first president", k=5, mode="dense")]
            alone = store.max_marginal_relevance_search("the first president", k=5, lambda_mult=1.0)
            assert [one.id for one in alone] == searched
            diverse = store.max_marginal_relevance_search("the first president", k=5)
            assert diverse[0].id == searched[0]
            found.append(searched)
            store.close()
    assert found[0] == found[1]


def test_mmr_beside_a_document_and_refuses_fields_which_it_reads(store):
    store.add_texts(["Oil is a price of oil.", "Europe."], ids=["like", "other"])
    near = [one.id for one in store.similarity_search("", k=3, like="oil")]
    assert near[0] == "like"
    assert [one.id for one in store.max_marginal_relevance_search("", k=3, like="oil", lambda_mult=1.0)] == near
    with pytest.raises(QueryError, match="fields= does not go with MMR"):
        store.max_marginal_relevance_search("oil", fields=["text"])


@pytest.mark.parametrize("ours", [{"spans": [1]}, {"spans": 4}, {"spans": [["a", 2]]}, 7])
def test_what_another_program_wrote_under_our_key_does_not_end_a_search(store, tmp_path, ours):
    with mvindex.open(tmp_path / "words.mvx") as index:
        document = mvindex.Document("foreign", "embargo", metadata={"mvindex": ours, "a": 1})
        index.add_views([document], [[[0.0] * 9 + [50.0]]])
    for mode in ("dense", "lexical"):
        found = store.similarity_search("embargo", k=3, mode=mode)
        assert next(one for one in found if one.id == "foreign").metadata["a"] == 1
