"""The base of all rules: an index, the handles open on it, and the state that each of them must show."""

import functools
import shutil
import tempfile
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from unittest import mock

import numpy as np
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

import mvindex
from mvindex.ingest import pipeline
from tests.contract.model import checks, given
from tests.contract.model.state import Counts, Given, Settings, State, took

WHICH = st.sampled_from([2, 0, 1])
FORMS = st.integers(0, 3)
DIM = 3
MADE = st.builds(
    Settings,
    dim=st.just(DIM),
    dtype=st.sampled_from(["fp16", "fp32"]),
    temperature=st.sampled_from([None, 0.3]),
    prune_views=st.sampled_from([None, 0.0, 1.0]),
)
ITEM = st.builds(
    lambda doc_id, text, title, metadata, views: Given(mvindex.Document(doc_id, text, title, metadata), views),
    st.sampled_from(given.IDS), given.texts, given.texts, given.metadata, given.views(DIM),
)  # fmt: skip
BATCH = st.lists(ITEM, min_size=2, max_size=9, unique_by=lambda item: item.document.id)
CHANGES = st.tuples(st.integers(0, 20), st.sampled_from(["nothing", "metadata", "text", "views"]), ITEM)
VECTORS = st.lists(given.vectors(DIM), min_size=1, max_size=3)
TEMPERATURES = st.sampled_from([None, 0.01, 1.0, 10.0])


def step(**drawn):
    """A rule whose steps are counted by its name."""

    def counted_rule(function):
        @functools.wraps(function)
        def counted(self, **values):
            self.steps[function.__name__] += 1
            return function(self, **values)

        return rule(**drawn)(counted)

    return counted_rule


@dataclass(eq=False)
class Handle:
    """An open index, and the state that it must show."""

    index: mvindex.Index
    seen: State


class Base(RuleBasedStateMachine):
    """Up to three handles are open on one directory; each may write, and keeps its own state until it refreshes."""

    # What every index is made with; drawn where it is None.
    made = None
    # The one thing that an index with an encoder is opened with.
    encoder = None
    # Of all sequences of the process.
    sequences: Counter = Counter()
    steps: Counter = Counter()

    def __init__(self):
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="mvindex-model-"))
        self.path = self.folder / "model.mvx"
        self.handles = []
        self.truth = State()
        self.chunk = None
        self.copies = self.looks = 0

    @initialize(made=MADE, chunk_documents=st.sampled_from([2, 1024]), first=BATCH)
    def create(self, made, chunk_documents, first):
        self.sequences[type(self).__name__] += 1
        self.settings = made = self.made or made
        self.chunk_documents = chunk_documents
        self.chunk = mock.patch.object(pipeline, "CHUNK_DOCUMENTS", chunk_documents)
        self.chunk.start()
        wanted = {"dtype": made.dtype, "temperature": made.temperature, "prune_views": made.prune_views}
        maker = {"dim": made.dim} if self.encoder is None else {"encoder": self.encoder, "lexical": "none"}
        self.handles = [Handle(mvindex.create(self.path, **maker, **wanted), self.truth)]
        self.handles.append(Handle(self.opened(), self.truth))
        self.give(self.handles[0], first, form=0)

    def teardown(self):
        for handle in self.handles:
            handle.index.close()
        if self.chunk is not None:
            self.chunk.stop()
        shutil.rmtree(self.folder)

    @invariant()
    def every_handle_shows_its_state_wholly(self):
        for handle in self.handles:
            self.check(handle)

    def check(self, handle):
        """Check that the index shows the handle's state."""
        self.looks += 1
        is_behind = handle.seen.number < self.truth.number
        checks.check_documents(handle.index, handle.seen, given.IDS if is_behind else given.IDS[self.looks % 4 :: 4])
        checks.check_info(handle.index, handle.seen, self.settings)
        query = np.array([1, -1, 0.5], np.float32) * (1, -1, 0)[self.looks % 3]
        self.search(handle, query, top_k=len(given.IDS) + 1, scoring=("max", "drpq")[self.looks % 2])
        condition = given.USUAL_FILTERS[self.looks % len(given.USUAL_FILTERS)]
        self.search(handle, query, top_k=len(given.IDS), filter=condition)

    # What the rules share

    def give(self, handle, items, form):
        batch = self.encoded({item.document.id: item for item in items}.values())
        report = self.hand_over(handle, batch, form)
        self.truth, counts = self.after(batch)
        handle.seen = self.truth
        names = ("added", "replaced", "updated", "unchanged", "views_given", "views_stored", "stopped")
        assert tuple(getattr(report, name) for name in names) == (*counts, False)

    def handle(self, which):
        """One of those open; 2 is the one that is most behind."""
        if which == 2:
            return min(self.handles, key=lambda handle: handle.seen.number)
        return self.handles[which % len(self.handles)]

    def opened(self):
        return mvindex.open(self.path, encoder=self.encoder)

    def moved_on(self, handle):
        """Refresh a handle after a refused write: it shows what was stored before."""
        handle.index.refresh()
        handle.seen = self.truth

    def search(self, handle, query, **asked):
        results = handle.index.search(query, **asked)
        pairs = [(results, query)] if query.ndim == 1 else zip(results, query, strict=True)
        for result, vector in pairs:
            checks.check_result(result, handle.seen, self.settings, vector, **asked)

    def changed(self, change):
        """A stored document given again with something else of another one, or with nothing else; or None."""
        place, what, other = change
        rows = list(self.truth.rows.values())
        if not rows:
            return None
        row = rows[place % len(rows)]
        document, views = row.document, row.given.views
        if what == "views":
            return Given(document, other.views)
        part = {} if what == "nothing" else {what: getattr(other.document, what)}
        return Given(replace(document, **part), views)

    def after(self, batch):
        """The state when the documents are stored batch by batch, and what became of them."""
        state, counts = self.truth, Counts()
        for begin in range(0, len(batch), self.chunk_documents):
            state, more = took(state, batch[begin : begin + self.chunk_documents], self.settings)
            counts = counts.plus(more)
        return state, counts

    def encoded(self, items):
        """The documents as this index takes them."""
        raise NotImplementedError

    def hand_over(self, handle, batch, form):
        """Add documents and return the report; form: which of the ways to pass them."""
        raise NotImplementedError

    def faults(self):
        """Return faults of the last document: the error, and a function that makes it of those before and one more."""
        raise NotImplementedError
