"""Re-embedding of an index in Milvus: new collections, to which one record moves it."""

import json
import subprocess
import sys

import pytest

import mvindex
from mvindex.errors import EncoderError, StaleReader
from mvindex.index import store_of
from mvindex.ingest import pipeline
from mvindex_connectors.milvus import collections
from tests.durability.documents import DIM, SentenceViews, doc_id, document
from tests.helpers.cli import lines, ok
from tests.helpers.cli import mvindex as command
from tests.unit.ingest.test_reembed import QUESTIONS, LongerViews, ShortViews


@pytest.fixture
def old(place, monkeypatch):
    monkeypatch.setattr(pipeline, "CHUNK_DOCUMENTS", 8)
    with mvindex.create(place, encoder=SentenceViews(), lexical="english", temperature=0.5) as index:
        index.add([document(number) for number in range(20)])
        index.add([document(3, version=2)])
        index.delete(ids=[doc_id(7)])
        yield index
        drop_all(index)


def drop_all(index):
    """Drop whatever collections the index has now; those of its address are dropped by the fixtures."""
    store = store_of(index)
    for name in collections.read_home(store.connection, store.root).left:
        for of in (lambda name: name, collections.views_of, collections.terms_of):
            collections.drop_collection(store.connection, of(name))


def content(index):
    return {each.id: (each.title, each.text, dict(each.metadata)) for each in index.scan()}


def answers(index):
    modes = ["dense", "lexical", "hybrid"] if index.info().lexical else ["dense"]
    return [[(hit.id, hit.score, hit.slot) for hit in index.search(QUESTIONS[0], 5, mode=mode)] for mode in modes]


def test_a_reembedded_index_answers_as_one_made_anew_and_keeps_all_else(old, tmp_path):
    before, info, seen = content(old), old.info(), {}
    with mvindex.open(old.where, encoder=SentenceViews()) as reader:
        found = answers(reader)
        report = old.admin.reembed(ShortViews(), before_switch=lambda made: seen.update(new=answers(made)))
        assert (report.documents, report.encoded, report.dim) == (19, 19, ShortViews.dim)
        # Who has it open goes on with the old views until a refresh.
        assert answers(reader) == found and reader.dim == DIM
        with pytest.raises(StaleReader, match="re-embedded"):
            reader.add([document(50)])
        reader.use_encoder(ShortViews())
        assert answers(reader) == answers(old) == seen["new"]
        reader.add([document(50)])
        reader.delete(ids=[doc_id(50)])
    assert content(old) == before and list(content(old)) == list(before)
    with mvindex.create(tmp_path / "new.mvx", encoder=ShortViews(), lexical="english", temperature=0.5) as new:
        new.add([mvindex.Document(key, text, title, metadata) for key, (title, text, metadata) in before.items()])
        modes = zip(answers(new), answers(old), strict=False)  # a server without sparse vectors is dense only
        assert all([hit[0] for hit in expected] == [hit[0] for hit in found] for expected, found in modes)
    with mvindex.open(old.where, encoder=ShortViews()) as again:
        assert answers(again) == answers(old)
        assert (again.info().index_id, again.temperature) == (info.index_id, 0.5)
    assert old.admin.verify().is_sound and old.admin.compact().documents == 19 and answers(old) == seen["new"]
    assert old.admin.reembed(LongerViews()).encoded == 19 and content(old) == before
    assert old.admin.reembed(ShortViews()).encoded == 19 and answers(old) == seen["new"]


def test_what_was_encoded_before_an_interruption_is_not_encoded_again(old):
    broken, resumed = ShortViews(fail_at=16), ShortViews()
    with pytest.raises(EncoderError, match="went away"):
        old.admin.reembed(broken)
    assert old.dim == DIM and old.search("long", 3).hits
    old.delete(ids=[doc_id(0)])
    old.add([document(1, version=2)])
    assert old.admin.reembed(resumed).encoded == len(resumed.encoded) == 19 - 16 + 1
    assert doc_id(0) not in old and old.get(doc_id(1)).text == document(1, version=2).text
    assert old.admin.verify().is_sound


@pytest.mark.needs("milvus-lite")
@pytest.mark.parametrize(("step", "is_moved"), [("encoded", False), ("moved", True)])
def test_a_kill_leaves_the_old_index_or_the_new_one(tmp_path, step, is_moved):
    place = f"milvus-lite:{tmp_path / 'index.db'}"
    with mvindex.create(place, encoder=SentenceViews()) as index:
        index.add([document(number) for number in range(12)])
    program = """if True:
        import os, signal, sys
        import mvindex
        from mvindex_connectors.milvus.writer import MilvusWriter
        from tests.unit.ingest.test_reembed import ShortViews
        move = MilvusWriter.move
        def killed(writer, root, home):
            if sys.argv[2] == "moved":
                move(writer, root, home)
            os.kill(os.getpid(), signal.SIGKILL)
        MilvusWriter.move = killed
        with mvindex.open(sys.argv[1]) as index:
            index.admin.reembed(ShortViews())
    """
    ended = subprocess.run([sys.executable, "-c", program, place, step], timeout=120, check=False)
    assert ended.returncode == -9
    encoder, again = ShortViews() if is_moved else SentenceViews(), ShortViews()
    with mvindex.open(place, encoder=encoder) as index:
        assert index.dim == encoder.dim and len(index) == 12 and index.search("long", 3).hits
        assert index.admin.reembed(again).encoded == 0 and again.encoded == []
        assert index.dim == ShortViews.dim and len(index) == 12 and index.admin.verify().is_sound


def test_the_record_that_moves_an_index_has_a_format_that_older_releases_refuse(old):
    old.admin.reembed(ShortViews())
    store = store_of(old)
    read = lambda client, **options: client.query(store.root, filter="pk == -1", output_fields=["text"], **options)  # noqa: E731 - one call
    [row] = store.connection.call("reading", read)
    settings = json.loads(row["text"])
    assert (settings["format_version"], settings["moved"]["left"]) == (2, [store.root])
    assert old.settings["format_version"] == 1


@pytest.mark.needs("milvus-lite")
def test_the_command_measures_both_encoders(tmp_path):
    texts = {"oil": "The embargo began in October 1973. Prices rose.", "river": "The Danube rises in the Black Forest."}
    with mvindex.create(f"milvus-lite:{tmp_path / 'i.db'}", encoder="minilm-views") as index:
        index.add([mvindex.Document(key, text) for key, text in texts.items()])
    (tmp_path / "q.jsonl").write_text('{"question": "When did the embargo begin?", "passage_id": "oil"}\n')
    done = command(
        "reembed", "milvus-lite:i.db", "--encoder", "minilm-views", "--family", "single", "--questions", "q.jsonl",
        "--json", cwd=tmp_path,
    )  # fmt: skip
    (report,) = lines(ok(done))
    assert (report["encoded"], report["views_before"], report["views_after"]) == (2, 3, 2)
    assert report["measured"] == {"before": {"R@1": 1.0, "R@10": 1.0}, "after": {"R@1": 1.0, "R@10": 1.0}}


def test_an_unfinished_run_is_given_up_by_the_encoder_that_the_index_has(old):
    with pytest.raises(EncoderError):
        old.admin.reembed(ShortViews(fail_at=8))
    connection, name = store_of(old).connection, old.settings["reembedding"]
    exists = lambda client, **options: client.has_collection(name, **options)  # noqa: E731 - one call
    assert connection.call("looking", exists)
    assert old.admin.reembed(SentenceViews()).encoded == 0
    assert not connection.call("looking", exists) and old.settings["reembedding"] is None
