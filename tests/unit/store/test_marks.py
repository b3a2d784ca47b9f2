"""A write with a mark is carried out once, in an index of one directory and of shards, also after a half of it."""

import numpy as np
import pytest

import mvindex
from mvindex import Document
from mvindex.ingest import IngestHooks
from mvindex.store.embedded_writer import EmbeddedWriter

IDS = [f"d{number}" for number in range(12)]
ROWS = np.eye(12, dtype=np.float32)
SENT = IngestHooks(mark="sent")


@pytest.fixture(params=[None, 3], ids=["one directory", "shards"])
def index(request, tmp_path):
    with mvindex.create(tmp_path / "index.mvx", dim=12, shards=request.param) as made:
        yield made


def write(index, text, hooks=None, **metadata):
    documents = [Document(doc_id, text, metadata=metadata) for doc_id in IDS]
    return index.add_views(documents, list(ROWS[:, None]), hooks=hooks)


def test_a_write_that_is_sent_again_changes_nothing(index):
    write(index, "first", SENT)
    write(index, "other")
    assert write(index, "first", SENT).unchanged == len(IDS)
    assert {document.text for document in index} == {"other"}


def test_a_write_that_was_killed_between_shards_is_finished_when_it_is_sent_again(tmp_path, monkeypatch):
    commit, calls = EmbeddedWriter.commit, []

    def killed(self, batch, known):
        calls.append(batch)
        if len(calls) == 2:
            raise KeyboardInterrupt
        commit(self, batch, known)

    with mvindex.create(tmp_path / "index.mvx", dim=12, shards=3) as index:
        write(index, "before", number=1)
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(EmbeddedWriter, "commit", killed)
            write(index, "sent", SENT, number=1)
    with mvindex.open(tmp_path / "index.mvx") as index:
        written = {document.id for document in index if document.text == "sent"}
        assert written == {document.id for document in calls[0].documents} and 0 < len(written) < len(IDS)
        changed = min(written)
        index.update(changed, metadata={"number": 2})
        write(index, "sent", SENT, number=1)
        assert {document.text for document in index} == {"sent"}
        # What came after its half is kept.
        assert {document.id for document in index if document.metadata == {"number": 2}} == {changed}
        write(index, "other")
        write(index, "sent", SENT)
        assert {document.text for document in index} == {"other"}
