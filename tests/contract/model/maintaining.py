"""Rules that keep an index: compact, snapshot, verify, repair, salvage; a copy may be gone on with."""

import pytest
from hypothesis import strategies as st

import mvindex
from mvindex.errors import ConfigError
from tests.contract.model.base import BATCH, WHICH, Base, Handle, step
from tests.contract.model.state import Given, compacted, copied, salvaged


class KeepingRules(Base):
    """Rules that must not change what an index shows."""

    @step(which=WHICH, new=BATCH)
    def compact(self, which, new):
        handle, before = self.handle(which), self.truth
        report = handle.index.compact()
        handle.seen = self.truth = compacted(before)
        assert (report.documents, report.dropped) == (len(before.rows), before.retired)
        assert report.generation == self.truth.generation
        assert report.is_old_in_use == any(other.seen.generation != report.generation for other in self.handles)
        self.give_all_again(handle, new)

    @step(which=WHICH, new=BATCH, goes_on=st.booleans())
    def snapshot(self, which, new, goes_on):
        """The copy is the latest state, whatever the handle had seen."""
        handle, target = self.handle(which), self.new_path()
        report = handle.index.snapshot(target)
        assert report.documents == len(self.truth.rows)
        for taken in (target, self.path, self.path / "inside.mvx"):
            with pytest.raises(ConfigError):
                handle.index.snapshot(taken)
        self.moved_on(handle)
        self.check_copy(target, copied(self.truth), new, goes_on)

    @step(new=BATCH, goes_on=st.booleans())
    def salvage(self, new, goes_on):
        target = self.new_path()
        report = mvindex.salvage(self.path, target)
        assert (report.documents, report.lost) == (len(self.truth.rows), ())
        with pytest.raises(ConfigError):
            mvindex.salvage(self.path, target)
        self.check_copy(target, salvaged(self.truth), new, goes_on)

    @step()
    def verify(self):
        """No problem; and what mends an index finds nothing to do."""
        report = mvindex.verify(self.path)
        assert (report.problems, report.is_sound) == ((), True)
        assert (report.documents, report.damaged_documents) == (len(self.truth.rows), 0)
        assert mvindex.repair(self.path).made_again == ()

    def new_path(self):
        self.copies += 1
        return self.folder / f"copy-{self.copies}.mvx"

    def give_all_again(self, handle, new):
        """Add all documents again, which are known, and new ones, whose ordinals follow."""
        known = [Given(row.document, row.given.views) for row in self.truth.rows.values()]
        self.give(handle, [*new[:2], *known], form=0)
        self.check(handle)

    def check_copy(self, path, state, new, goes_on):
        """Check that the copy shows the state and can be written to; then go on with it or with the original."""
        assert mvindex.verify(path).problems == ()
        before = self.path, self.truth, self.handles
        copy = Handle(mvindex.open(path, encoder=self.encoder), state)
        self.path, self.truth, self.handles = path, state, [copy]
        self.check(copy)
        self.give_all_again(copy, new)
        left = before[2] if goes_on else [copy]
        for handle in left:
            handle.index.close()
        if not goes_on:
            self.path, self.truth, self.handles = before
