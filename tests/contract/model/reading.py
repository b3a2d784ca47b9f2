"""Rules that read: searches of all sorts, explanations; handles refreshed, opened again, opened beside one another."""

import numpy as np
import pytest
from hypothesis import strategies as st

import mvindex
from mvindex.errors import DocumentError, MvindexError, QueryError
from tests.contract.model import checks, given
from tests.contract.model.base import DIM, TEMPERATURES, VECTORS, WHICH, Base, Handle, step


class ReadingRules(Base):
    """Each read through any handle, which may be behind."""

    @step(which=WHICH, queries=VECTORS, top_k=st.integers(1, 15), condition=st.none() | given.filters,
          is_exact=st.booleans())  # fmt: skip
    def search_by_best_view(self, which, queries, top_k, condition, is_exact):
        for query in (queries[0], np.array(queries)):
            self.search(self.handle(which), query, top_k=top_k, filter=condition, exact=is_exact)

    @step(which=WHICH, queries=VECTORS, top_k=st.integers(1, 15), condition=st.none() | given.filters,
          temperature=TEMPERATURES, depth=st.sampled_from([None, None, "exact", 1, 5, 1000]))  # fmt: skip
    def search_by_drpq(self, which, queries, top_k, condition, temperature, depth):
        asked = {"exact": True} if depth == "exact" else {"candidates": depth}
        asked |= {"scoring": "drpq", "temperature": temperature, "filter": condition, "top_k": top_k}
        for query in (queries[0], np.array(queries)):
            self.search(self.handle(which), query, **asked)

    @step(which=WHICH, query=given.vectors(DIM), doc_id=st.sampled_from(given.IDS), temperature=TEMPERATURES,
          is_drpq=st.booleans())  # fmt: skip
    def explain(self, which, query, doc_id, temperature, is_drpq):
        handle = self.handle(which)
        asked = {"scoring": "drpq", "temperature": temperature} if is_drpq else {}
        if doc_id not in handle.seen.rows:
            with pytest.raises(QueryError, match="there is no document"):
                handle.index.explain(query, doc_id, **asked)
            return
        parts = handle.index.explain(query, doc_id, **asked)
        checks.check_parts(parts, handle.seen.rows[doc_id], self.settings, query, **asked)

    @step(which=WHICH)
    def use_wrong_words(self, which):
        """All are refused, and nothing is written."""
        handle = self.handle(which)
        assert handle.index.get("") is None
        for wrong in ("", 5, "a\0"):
            assert wrong not in handle.index
        for doc_id in given.NO_IDS:
            with pytest.raises(DocumentError):
                mvindex.Document(doc_id, "text")
        for wrong in checks.wrong_uses(handle.index, DIM):
            with pytest.raises(MvindexError):
                wrong()
        self.moved_on(handle)

    @step(which=WHICH)
    def refresh(self, which):
        handle = self.handle(which)
        was_behind = handle.index.refresh()
        if handle.seen.number == self.truth.number:
            assert not was_behind
        elif checks.shown(handle.seen) != checks.shown(self.truth):
            assert was_behind
        handle.seen = self.truth

    @step(which=WHICH, what=st.sampled_from(["again", "another", "one less"]))
    def open(self, which, what):
        if what == "again" or what == "one less" and len(self.handles) > 1:
            closed = self.handle(which)
            closed.index.close()
            self.handles.remove(closed)
        if what == "again" or what == "another" and len(self.handles) < 3:
            self.handles.append(Handle(self.opened(), self.truth))
