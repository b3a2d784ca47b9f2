"""The harness finds faults: a product that is broken on purpose is found out, each time as what it is."""

import random
import time
from importlib import import_module
from pathlib import Path

import pytest
from fuzz_parts import targets
from fuzz_parts.mutating import mutate
from fuzz_parts.watching import Journal, Watch

from mvindex.store import catalog, connections, filter_reader, reader, views
from mvindex.store.views import MappedViews
from tests.helpers.marks import full

_INPUTS = 400


def crash_on_sqlite_errors(patched):
    """SQLite's own errors come out."""
    patched.setattr(catalog.sqlite3, "Error", ZeroDivisionError)


def wrong_texts(patched):
    """Rows of the catalog are answered from as they are."""
    for module in (catalog, filter_reader, reader):
        patched.setattr(module, "check_document", lambda *_: None)
    patched.setattr(reader, "text_checksum", _anything)
    patched.setattr(reader, "metadata_checksum", _anything)


def wrong_views(patched):
    """Views are answered from as they are."""
    patched.setattr(MappedViews, "check_documents", lambda *_: None)
    patched.setattr(views.MappedSegment, "check", lambda *_: None)


def blind_verify(patched):
    """Verify finds nothing."""
    patched.setattr(import_module("mvindex.maintenance.verify")._Check, "add", lambda *_, **__: None)


def links_followed(patched):
    """Whatever stands in the place of a file is opened."""
    for module in (connections, views):
        patched.setattr(module, "check_regular", lambda _: None)
    patched.setattr(connections, "check_single_name", lambda _: None)


def judgements_lost(patched):
    """A judgement of a document with an odd name is lost."""
    import fuzz_parts.qrels as target

    read = target.read_qrels
    patched.setattr(target, "read_qrels", lambda path: {key: row for key, row in read(path).items() if key != "2"})


def judgements_for_ever(patched):
    """A file with a tab never ends."""
    import fuzz_parts.qrels as target

    def read(path):
        content = Path(path).read_bytes()
        while b"\t" in content:
            time.sleep(0)
        return {}

    patched.setattr(target, "read_qrels", read)
    patched.setattr(target.Qrels, "seconds", 0.05)


def judgements_in_memory(patched):
    """Each line takes 16 MiB."""
    import fuzz_parts.qrels as target

    read = target.read_qrels

    def take(path):
        taken = [b"x" * (16 << 20) for _ in Path(path).read_bytes().split(b"\n")]
        return read(path) if taken else {}

    patched.setattr(target, "read_qrels", take)
    patched.setattr(target.Qrels, "bytes_per_byte", 0)


def pickles_trusted(patched):
    """Whatever a pickle names is looked up."""
    import fuzz_parts.exchange_pickle as target

    patched.setattr(target.Pickles, "prelude", ("trusting_pickles", str(Path(__file__).parent)))


def _anything(*_):
    return _Equal()


class _Equal:
    """Equal to every checksum."""

    def __eq__(self, other):
        return True

    def __ne__(self, other):
        return False

    __hash__ = None


@pytest.mark.parametrize(
    ("name", "break_it", "kind"),
    [
        ("index-catalog", crash_on_sqlite_errors, "crash"),
        full("index-catalog", wrong_texts, "wrong"),
        ("index-catalog", blind_verify, "wrong"),
        full("index-files", wrong_views, "wrong"),
        full("index-hostile", links_followed, "wrong"),
        ("qrels", judgements_lost, "wrong"),
        ("qrels", judgements_for_ever, "hang"),
        ("qrels", judgements_in_memory, "memory"),
        ("exchange-pickle", pickles_trusted, "wrong"),
    ],
)
def test_a_fault_is_found_as_what_it_is(name, break_it, kind, fuzz_folder, monkeypatch):
    target = targets.open_target(name, fuzz_folder)
    break_it(monkeypatch)
    watch = Watch(target, fuzz_folder / "kept", Journal(fuzz_folder / "journal"))
    draw, seeds = random.Random(1).randrange, target.seeds()
    while watch.counts["inputs"] < _INPUTS and not watch.counts[kind]:
        data = seeds[draw(len(seeds))]
        watch.run(mutate(data, seeds, target.tokens, draw) if draw(2) else data)
    assert watch.counts[kind] > 0
    assert any(fault["kind"] == kind and fault["files"] for fault in watch.faults.values())
