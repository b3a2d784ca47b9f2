"""Re-embedding: the same documents with the views of another encoder, in one commit."""

import subprocess
import sys
from contextlib import closing

import numpy as np
import pytest

import mvindex
from mvindex.errors import ConfigError, DamagedIndex, DocumentError, EncoderError, IndexLocked, StaleReader
from mvindex.index import search_engine_of
from mvindex.ingest import pipeline
from mvindex.kernels import expecting_work
from mvindex.records import Views, ViewText
from mvindex.search.plan import Plan
from mvindex.search.request import Queries
from mvindex.store.shard_layout import ShardPlace, open_shard
from tests.durability.checks import stored_in
from tests.durability.documents import DIM, SentenceViews, doc_id, document

QUESTIONS = ["sentence 2, version 1", "größe", "long"]
MADE_ANEW = {"temperature": 0.5, "prune_views": 0.75, "lexical": "english", "filter_fields": {"group": "int"}}


class ShortViews(SentenceViews):
    """Another encoder, of fewer dimensions and a temperature of its own; it counts what it encodes."""

    dim = DIM - 2
    fingerprint = "callable:short"
    spec = {"kind": "callable", "name": "short", "fingerprint": fingerprint, "temperature": 0.25}

    def __init__(self, fail_at=None):
        self.encoded, self.fail_at = [], fail_at

    def encode_documents(self, documents, on_progress=None):
        if self.fail_at is not None and len(self.encoded) >= self.fail_at:
            raise EncoderError("the encoder went away")
        self.encoded += [each.id for each in documents]
        views = super().encode_documents(documents, on_progress)
        return Views(views.rows[:, 2:].copy(), views.starts, views.spans)

    def encode_queries(self, texts):
        return super().encode_queries(texts)[:, 2:].copy()


class LongerViews(ShortViews):
    """A third encoder."""

    fingerprint = "callable:longer"
    spec = {"kind": "callable", "name": "longer", "fingerprint": fingerprint}


def fill(index):
    index.add([document(number) for number in range(30)])
    index.add([document(number, version=2) for number in range(4, 9)])
    index.delete(ids=[doc_id(number) for number in (2, 11, 29)])
    index.update(doc_id(20), metadata={"group": 7})
    return index


@pytest.fixture
def small_chunks(monkeypatch):
    monkeypatch.setattr(pipeline, "CHUNK_DOCUMENTS", 8)


@pytest.fixture(params=[None, 3], ids=["one", "shards"])
def shards(request):
    return request.param


@pytest.fixture
def old(tmp_path, small_chunks, shards):
    with mvindex.create(tmp_path / "old.mvx", encoder=SentenceViews(), shards=shards, **MADE_ANEW) as index:
        yield fill(index)


def left(index):
    """Return the names of the entries of the index, and of those in its shards."""
    paths = [index.path, *index.path.glob("shard-*")]
    return {entry.name for path in paths for entry in path.iterdir()} - {path.name for path in paths}


def answers(index):
    """Return the hits of questions in every mode and scoring, and of a filter."""
    found = []
    for mode, scoring in (("dense", "max"), ("dense", "drpq"), ("lexical", "max"), ("hybrid", "max")):
        results = index.search(QUESTIONS, 7, mode=mode, scoring=scoring)
        found.append([(result.hits, result.exact) for result in results])
    return [*found, index.search(QUESTIONS[0], 7, filter={"group": 1}).hits]


def settings_of(index):
    """Return the settings, without what counts commits and names files."""
    counted = {"version", "generation", "index_id", "whole_id", "ids", "engine", "choose_lexical", "deleted", "marks"}
    return {name: value for name, value in index.settings.items() if name not in counted}


@pytest.mark.parametrize("kind", ["exact", "hnsw", "ivf-flat"])
def test_a_reembedded_index_equals_one_made_anew(old, tmp_path, kind, shards):
    old.admin.build(kind=kind)
    report = old.admin.reembed(ShortViews())
    assert (report.documents, report.encoded, report.dim, report.engine) == (27, 27, ShortViews.dim, kind)
    with mvindex.create(tmp_path / "new.mvx", encoder=ShortViews(), shards=shards, **MADE_ANEW) as new:
        fill(new)
        assert (report.views_after, report.views_before > 0) == (new.info().views, True)
        assert stored_in(old) == stored_in(new)
        if kind == "exact":
            assert answers(old) == answers(new)
        assert old.search(QUESTIONS, 5, exact=True) == new.search(QUESTIONS, 5, exact=True)
        assert settings_of(old) == settings_of(new)
        assert old.info().kind == kind
        for index in (old, new):
            index.add([document(40)])
        assert stored_in(old) == stored_in(new)
        unchanged = old.add([document(20), document(40)])
        assert (unchanged.unchanged, unchanged.updated) == (1, 1)
    assert mvindex.verify(old.path).is_sound
    expected = {"current.json", "generation-000002", "writer.lock"} | ({"shards.json"} if shards else set())
    assert {name for name in left(old) if not name.startswith("trained-")} == expected
    assert sum(name.startswith("trained-") for name in left(old)) == (shards is not None and kind == "ivf-flat")
    assert not list(old.path.rglob("building-*"))


def test_a_temperature_that_was_the_encoders_becomes_that_of_the_new_one(tmp_path):
    with mvindex.create(tmp_path / "x.mvx", encoder=SentenceViews()) as index:
        index.add([document(1)])
        assert index.temperature == 1.0
        index.admin.reembed(ShortViews())
        assert index.temperature == 0.25


def test_what_was_encoded_before_an_interruption_is_not_encoded_again(old):
    before = stored_in(old)
    broken = ShortViews(fail_at=16)
    with pytest.raises(EncoderError, match="went away"):
        old.admin.reembed(broken)
    assert stored_in(old) == before and old.info().dim == DIM
    # Writes between the runs: a new, a replaced, a deleted, and a deleted and newly added document.
    old.add([document(50), document(12, version=2)])
    old.delete(ids=[doc_id(0), doc_id(1)])
    old.add([document(1)])
    ordinals = {key: each.ordinal for key, each in stored_in(old).items()}
    ids = set(ordinals)
    resumed = ShortViews()
    report = old.admin.reembed(resumed)
    assert 16 <= len(broken.encoded) < 27 and doc_id(12) in broken.encoded
    expected = ids - set(broken.encoded) | {doc_id(12), doc_id(1)}
    assert set(resumed.encoded) == expected and report.encoded == len(resumed.encoded) == len(expected)
    assert set(stored_in(old)) == ids and mvindex.verify(old.path).is_sound
    assert {key: each.ordinal for key, each in stored_in(old).items()} == ordinals
    assert max(ordinals, key=ordinals.__getitem__) == doc_id(1)


def test_another_encoder_begins_anew(old):
    with pytest.raises(EncoderError):
        old.admin.reembed(ShortViews(fail_at=16))
    other = LongerViews()
    old.admin.reembed(other)
    assert len(other.encoded) == 27 and old.settings["encoder"]["name"] == "longer"
    assert not [name for name in left(old) if name == "reembedding" or name.startswith("gone-")]


def test_a_run_that_is_asked_to_stop_changes_nothing_and_is_resumed(old):
    first, before, asked = ShortViews(), stored_in(old), iter([False, False, True, True])
    report = old.admin.reembed(first, should_stop=lambda: next(asked))
    assert report.stopped and report.encoded == len(first.encoded) >= 8 and stored_in(old) == before
    assert old.encoder.fingerprint == SentenceViews.fingerprint
    second = ShortViews()
    assert not old.admin.reembed(second).stopped
    assert not set(first.encoded) & set(second.encoded) and len(first.encoded + second.encoded) == 27


def test_the_same_encoder_changes_nothing(old):
    old.admin.reembed(ShortViews())
    again = ShortViews()
    report = old.admin.reembed(again)
    assert (report.encoded, report.views_before, again.encoded) == (0, report.views_after, [])


def test_the_new_views_are_searched_before_the_switch(old):
    seen = {}

    def measure(made):
        seen["new"], seen["old"] = answers(made)[:-1], old.info().dim

    old.admin.reembed(ShortViews(), before_switch=measure)
    assert seen == {"new": answers(old)[:-1], "old": DIM}


def test_another_process_sees_the_old_views_and_after_a_refresh_the_new(old):
    program = """if True:
        import sys, mvindex
        from tests.unit.ingest.test_reembed import ShortViews, SentenceViews
        with mvindex.open(sys.argv[1], encoder=SentenceViews()) as index:
            print(index.dim, len(index.search("long", 3).hits), flush=True)
            sys.stdin.readline()
            print(index.dim, len(index.search("long", 3).hits), flush=True)
            index.refresh()
            try:
                index.search("long", 3)
            except mvindex.errors.ConfigError as err:
                print(err, flush=True)
            index.use_encoder(ShortViews())
            print(index.dim, index.search("long", 3).hits[0].id, flush=True)
    """
    command = [sys.executable, "-c", program, str(old.path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as reader:
        assert reader.stdout.readline() == f"{DIM} 3\n"
        old.admin.reembed(ShortViews())
        seen, _ = reader.communicate("\n", timeout=60)
    before, refusal, after = seen.splitlines()
    assert before == f"{DIM} 3" and "'short'" in refusal
    assert after == f"{ShortViews.dim} {old.search('long', 3).hits[0].id}"


@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize("request_of", [{}, {"exact": True}, {"mode": "dense", "top_k": 20}], ids=str)
def test_an_index_that_is_reembedded_while_a_question_is_encoded_answers_with_the_new_views(
    tmp_path, shards, request_of
):
    """Compiled loops would read the vectors of a question as if they were as long as the views."""
    writer = fill(mvindex.create(tmp_path / "x.mvx", encoder=SentenceViews(), shards=shards))

    class MovesOn(SentenceViews):
        def encode_queries(self, texts):
            vectors = super().encode_queries(texts)
            writer.admin.reembed(ShortViews())
            index.refresh()  # as another thread may do
            index.use_encoder(ShortViews())
            return vectors

    with writer, mvindex.open(tmp_path / "x.mvx", encoder=MovesOn()) as index, expecting_work():
        found = index.search(QUESTIONS[0], **request_of)
        assert index.dim == ShortViews.dim
        assert found.hits == writer.search(QUESTIONS[0], **request_of).hits


@pytest.mark.parametrize("shards", [1, 3])
def test_vectors_of_other_dimensions_than_the_views_are_not_searched_with(tmp_path, shards):
    with fill(mvindex.create(tmp_path / "x.mvx", encoder=SentenceViews(), shards=shards)) as index, expecting_work():
        # Private: the window between encoding and searching, in which an index moves on.
        for dim in (DIM - 2, DIM + 2):
            with pytest.raises(StaleReader, match=f"{DIM} dimensions now, and the query has {dim}"):
                search_engine_of(index).search(Queries(np.ones((1, dim), np.float32)), Plan())


@pytest.mark.parametrize("asks", ["state", "like", "explain"])
def test_whatever_an_index_is_asked_while_it_moves_on_is_answered_with_the_new_views(tmp_path, asks, monkeypatch):
    writer = fill(mvindex.create(tmp_path / "x.mvx", encoder=SentenceViews()))
    with writer, mvindex.open(tmp_path / "x.mvx", encoder=SentenceViews()) as index:
        first, moved = doc_id(0), []

        def then_moves_on(call):
            def wrapped(*arguments):
                found = call(*arguments)
                if not moved:
                    moved.append(writer.admin.reembed(ShortViews()))
                    index.refresh()  # as another thread may do
                    index.use_encoder(ShortViews())
                return found

            return wrapped

        # Private: where another thread may come in between.
        owner, name = {"state": (index, "_state"), "like": (index._store, "vectors"), "explain": (index, "_encoded")}[
            asks
        ]
        monkeypatch.setattr(owner, name, then_moves_on(getattr(owner, name)))

        def asked(of):
            if asks == "explain":
                return of.explain(QUESTIONS[0], first)
            return of.search(**({"like": first} if asks == "like" else {"query": QUESTIONS[0]})).hits

        found = asked(index)
        assert moved and found == asked(writer)


def test_an_index_that_was_open_meanwhile_adds_no_views_of_the_old_encoder(old):
    with mvindex.open(old.path, encoder=SentenceViews()) as other:
        old.admin.reembed(ShortViews())
        with pytest.raises(StaleReader, match="'callable:sentence-views'.*'callable:short'.*re-embedded"):
            other.add([document(60)])
        other.use_encoder(ShortViews())
        other.add([document(60)])
    assert old.refresh() and mvindex.verify(old.path).is_sound and doc_id(60) in old


def test_a_refreshed_index_loads_the_encoder_that_it_was_reembedded_with(tmp_path):
    with mvindex.create(tmp_path / "x.mvx", encoder="minilm-views") as index:
        index.add(["oil embargo", "a river"])
        with mvindex.open(index.path) as other:
            other.search("oil")
            index.admin.reembed("minilm-views", family="single")
            assert other.encoder.spec["family"] == "snippets"
            other.refresh()
            assert other.encoder.spec["family"] == "single"
            assert other.search("oil").hits == index.search("oil").hits


def test_writers_are_refused_meanwhile(old):
    refused = []

    def write(made):
        with mvindex.open(old.path, encoder=SentenceViews()) as other, pytest.raises(IndexLocked) as error:
            other.add([document(70)])
        refused.append(error)

    old.admin.reembed(ShortViews(), before_switch=write)
    assert len(refused) == 1


def given(path, *documents):
    index = mvindex.create(path, dim=4, lexical="unicode")
    index.add_views(documents, np.eye(4)[: len(documents)])
    return index


def test_an_index_of_given_vectors_with_texts_gets_an_encoder(tmp_path):
    with given(tmp_path / "x.mvx", mvindex.Document("a", "one|two"), mvindex.Document("b", "", "title")) as index:
        index.admin.reembed(ShortViews())
        assert index.search("two", 1, mode="dense").hits[0].id == "a" and index.info().views == 3


def test_a_document_of_given_vectors_without_a_text_is_named(tmp_path):
    with given(tmp_path / "x.mvx", mvindex.Document("a", "text"), mvindex.Document("bare", "")) as index:
        encoder = ShortViews()
        with pytest.raises(DocumentError, match="x.mvx: document 'bare': expected a text or a title.*given vectors"):
            index.admin.reembed(encoder)
        assert encoder.encoded == [] and not (index.path / "reembedding").exists()


def test_view_texts_which_are_not_kept_are_not_dropped_silently(tmp_path):
    with mvindex.create(tmp_path / "x.mvx", encoder=SentenceViews()) as index:
        index.add([document(1), mvindex.Document("v", "text", view_texts=[ViewText("summary", (0, 4))])])
        with pytest.raises(DocumentError, match="document 'v': expected views of its title and text.*view_texts"):
            index.admin.reembed(ShortViews())
        assert index.admin.reembed(ShortViews(), texts_only=True).encoded == 2
        assert len(index.views("v").vectors) == 1


def test_an_encoder_that_is_none_is_refused(old):
    with pytest.raises(ConfigError, match="encoder: expected"):
        old.admin.reembed(3)
    assert "generation-000001" in left(old) and "reembedding" not in left(old)


def killed_at(path, step):
    """Re-embed the index in a process that is killed before the first audit step that contains this text."""
    program = """if True:
        import os, signal, sys
        import mvindex
        from tests.unit.ingest.test_reembed import ShortViews
        def hook(event, values):
            if event == "mvindex.durable" and values[0] == "before" and sys.argv[2] in " ".join(map(str, values[1:])):
                os.kill(os.getpid(), signal.SIGKILL)
        with mvindex.open(sys.argv[1]) as index:
            sys.addaudithook(hook)
            index.admin.reembed(ShortViews())
    """
    return subprocess.run([sys.executable, "-c", program, str(path), step], timeout=60, check=False).returncode


@pytest.mark.parametrize(
    ("step", "is_switched"),
    [
        ("rename {}/switch.json", False),
        ("write {}/shard-00000-of-00003/current.json", True),
        ("write {}/shard-00002-of-00003/current.json", True),
        ("remove {}/switch.json", True),
    ],
)
def test_all_shards_switch_at_once_whenever_the_writer_is_killed(tmp_path, step, is_switched):
    path = tmp_path / "s.mvx"
    with mvindex.create(path, encoder=SentenceViews(), shards=3) as index:
        fill(index)
        before = stored_in(index)
    assert killed_at(path, step.format(path)) == -9
    encoder = ShortViews() if is_switched else SentenceViews()
    with mvindex.open(path, encoder=encoder) as index:
        assert index.dim == encoder.dim and (stored_in(index) == before) != is_switched
        assert index.search("long", 3).hits
        # The settings in a current.json are those before the switch until the next write.
        assert all(problem.is_derived for problem in mvindex.verify(path).problems)
        index.add([document(60)])
        assert "switch.json" not in left(index)
        again = ShortViews()
        assert index.admin.reembed(again).encoded == len(again.encoded) == (0 if is_switched else 1)
        assert set(stored_in(index)) == {*before, doc_id(60)} and mvindex.verify(path).is_sound


def test_a_store_that_was_opened_before_a_switch_names_the_settings_after_it(tmp_path):
    path = tmp_path / "s.mvx"
    with mvindex.create(path, encoder=SentenceViews(), shards=2) as index:
        fill(index)
    with closing(open_shard(path, ShardPlace(0, 2))) as before:
        assert killed_at(path, f"write {path}/shard-00000-of-00002/current.json") == -9
        before.adopt_switch()
    first, second = ("shard-00000-of-00002", "shard-00001-of-00002")
    problems = [problem.file for problem in mvindex.verify(path).problems]
    assert not any(first in file for file in problems) and any(second in file for file in problems)


def test_a_damaged_switch_is_named(tmp_path):
    path = tmp_path / "s.mvx"
    with mvindex.create(path, encoder=SentenceViews(), shards=2) as index:
        fill(index)
    (path / "switch.json").write_text('{"mvindex": "switch", "generations": {"shard-00000-of-00002": 9}}')
    with pytest.raises(DamagedIndex, match="switch.json"):
        mvindex.open(path)


def test_an_empty_index_takes_another_encoder(tmp_path):
    with mvindex.create(tmp_path / "x.mvx", encoder=SentenceViews()) as index:
        index.admin.reembed(ShortViews())
        index.add([document(1)])
        assert index.dim == ShortViews.dim and index.search("long", 1).hits
