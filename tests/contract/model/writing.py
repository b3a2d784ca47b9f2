"""Rules that write: documents given, given again, deleted, updated; engines built."""

import pytest
from hypothesis import strategies as st

from mvindex.errors import ConfigError, QueryError
from tests.contract.model import checks, given
from tests.contract.model.base import BATCH, CHANGES, FORMS, ITEM, WHICH, Base, step
from tests.contract.model.state import without


class WritingRules(Base):
    """Each write through any handle."""

    @step(which=WHICH, items=BATCH, form=FORMS)
    def add(self, which, items, form):
        self.give(self.handle(which), items, form)

    @step(which=WHICH, items=st.lists(ITEM, max_size=2), again=st.lists(CHANGES, min_size=1, max_size=4), form=FORMS)
    def add_again(self, which, items, again, form):
        self.give(self.handle(which), [*items, *filter(None, map(self.changed, again))], form)

    @step(which=WHICH, places=st.permutations(range(len(given.IDS))), new=BATCH)
    def replace_some_and_give_others_new_metadata(self, which, places, new):
        """All in one call, and in one batch where batches are large."""
        pairs = zip(places, ("text", "metadata", "views", "metadata"), new, strict=False)
        self.give(self.handle(which), filter(None, map(self.changed, pairs)), form=0)

    @step(which=WHICH, items=BATCH, bad=ITEM, form=FORMS)
    def add_with_a_fault_in_the_last_document(self, which, items, bad, form):
        """The batches before are stored, nothing of the last document's, whatever the fault is."""
        handle = self.handle(which)
        good = self.encoded(item for item in items if item.document.id != bad.document.id)
        self.truth, _ = self.after(good[: len(good) // self.chunk_documents * self.chunk_documents])
        for error, make in self.faults():
            with pytest.raises(error):
                self.hand_over(handle, [*good, make(good, bad)], form)
        self.moved_on(handle)

    @step(which=WHICH, ids=st.lists(st.sampled_from(given.IDS), max_size=3), is_alone=st.booleans())
    def delete_by_ids(self, which, ids, is_alone):
        handle, gone = self.handle(which), self.truth.rows.keys() & set(ids)
        if is_alone and len(ids) == 1:
            assert handle.index.delete(ids=ids[0]) == len(gone)
        else:
            assert handle.index.delete(ids=(doc_id for doc_id in ids)) == len(gone)
        handle.seen = self.truth = without(self.truth, gone)

    @step(which=WHICH, condition=given.filters, ids=st.none() | st.lists(st.sampled_from(given.IDS), max_size=4))
    def delete_by_filter(self, which, condition, ids):
        """All that pass, or only those among a few ids: else there would seldom be many documents."""
        handle = self.handle(which)
        condition = condition if ids is None else {"and": [condition, {"id": {"in": ids}}]}
        gone = {doc_id for doc_id, document in self.truth.documents.items() if checks.matches(condition, document)}
        assert handle.index.delete(filter=condition) == len(gone)
        handle.seen = self.truth = without(self.truth, gone)

    @step(which=WHICH, doc_id=st.sampled_from(given.IDS), metadata=given.metadata)
    def update(self, which, doc_id, metadata):
        handle = self.handle(which)
        if doc_id not in self.truth.rows:
            with pytest.raises(QueryError, match="there is no document"):
                handle.index.update(doc_id, metadata=metadata)
            return self.moved_on(handle)
        handle.index.update(doc_id, metadata=metadata)
        self.truth.rows[doc_id].set_metadata(metadata)
        handle.seen = self.truth = self.truth.changed()

    @step(which=WHICH, kind=st.sampled_from(["flat", "hnsw", "exact"]))
    def build(self, which, kind):
        handle = self.handle(which)
        if kind != "exact" and not self.truth.rows:
            with pytest.raises(ConfigError):
                handle.index.build(kind)
            return self.moved_on(handle)
        report = handle.index.build(kind)
        assert (report.kind, report.documents) == (kind, len(self.truth.rows))
        built = frozenset(self.truth.rows.values())
        handle.seen = self.truth = self.truth.changed(kind=kind, built=built)
