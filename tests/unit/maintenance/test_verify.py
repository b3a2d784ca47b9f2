"""verify names damage, repair makes again what is derived, salvage saves what is sound."""

import json
import os
import shutil
import sqlite3
from contextlib import closing

import numpy as np
import pytest

import mvindex
from mvindex.errors import ConfigError, DamagedIndex, MvindexError, StoreError
from mvindex.index import embedded_store_of
from mvindex.io.migrate import migrate
from mvindex.store.files import Current, read_kept_settings, write_current
from mvindex.store.rows import deleted_checksum
from tests.helpers.index_examples import documents, vectors


@pytest.fixture
def sound(index):
    """A closed index of ten documents, of which one was replaced and one deleted, with a flat engine."""
    index.add_views([mvindex.Document("3", "new 3", metadata={"lang": "de"})], vectors(1, seed=5))
    index.delete(ids="7")
    index.admin.build(kind="flat")
    index.close()
    return index.path


def generation(path):
    return path / "generation-000001"


def change(file, position, mask=1):
    content = bytearray(file.read_bytes())
    content[position] ^= mask
    file.write_bytes(content)


def in_catalog(path, statement):
    connection = sqlite3.connect(generation(path) / "catalog.sqlite")
    with connection:
        connection.execute(statement)
    connection.close()


def held(path):
    with mvindex.open(path) as index:
        return {document.id: document for document in index}


def test_a_sound_index_has_no_problems_and_every_byte_of_it_is_read(sound):
    read = []
    report = mvindex.verify(sound, read.append)
    assert report.is_sound and report.problems == ()
    assert (report.documents, report.damaged_documents, report.format_version) == (9, 0, 3)
    counted = ("catalog.sqlite", "views-000001.f16", "rows-000001.bin", "index.faiss")
    sizes = [file.stat().st_size for file in sound.rglob("*") if file.name in counted]
    assert sum(read) == report.size_bytes == sum(sizes)


def test_damaged_views_are_named_by_file_and_document_and_cost_that_document_alone(sound, tmp_path):
    before = held(sound)
    change(generation(sound) / "views-000001.f16", 5 * 16)  # two views of four fp16 each are 16 bytes a document
    report = mvindex.verify(sound)
    (problem,) = report.problems
    assert problem.file.endswith("views-000001.f16") and problem.document == "5 (row 5)" and not problem.is_derived
    assert report.damaged_documents == 1
    with pytest.raises(DamagedIndex, match="verify --salvage|views-000001"):
        with mvindex.open(sound) as damaged:
            damaged.search(np.ones(4), exact=True)
    saved = mvindex.salvage(sound, tmp_path / "saved.mvx")
    assert (saved.documents, [lost.document for lost in saved.lost]) == (8, ["5 (row 5)"])
    del before["5"]
    assert held(tmp_path / "saved.mvx") == before
    assert mvindex.verify(tmp_path / "saved.mvx").is_sound


def test_filter_fields_are_kept_by_salvage_and_migration(sound, tmp_path):
    with mvindex.open(sound) as index:
        index.admin.set_filter_fields({"lang": "text"})
        ids = sorted(hit.id for hit in index.search(np.ones(4), top_k=9, filter={"lang": "en"}).hits)
    mvindex.salvage(sound, tmp_path / "saved.mvx")
    migrate(sound, tmp_path / "moved.mvx")
    for name in ("saved.mvx", "moved.mvx"):
        with mvindex.open(tmp_path / name) as index:
            assert index.info().filter_fields == {"lang": "text"}
            hits = index.search(np.ones(4), top_k=9, filter={"lang": "en"}).hits
            assert ids == sorted(hit.id for hit in hits)
        assert mvindex.verify(tmp_path / name).is_sound


@pytest.mark.parametrize(
    ("statement", "what"),
    [
        ("UPDATE texts SET text = 'text 4.' WHERE doc_row = 4", "id or text"),
        ('UPDATE metadata SET json = \'{"lang":"en"}\' WHERE doc_row = 4', "metadata"),
        ("UPDATE documents SET ordinal = 40 WHERE doc_row = 4", "row of documents"),
        ("UPDATE documents SET views_checksum = 4 WHERE doc_row = 4", "row of documents"),
        ("UPDATE documents SET id = 'vier' WHERE doc_row = 4", "row of documents"),
    ],
)
def test_a_damaged_row_of_the_catalog_is_named(sound, tmp_path, statement, what):
    in_catalog(sound, statement)
    report = mvindex.verify(sound)
    assert any(what in problem.what and "(row 4)" in problem.document for problem in report.problems)
    saved = mvindex.salvage(sound, tmp_path / "saved.mvx")
    assert saved.documents == 8 and len(saved.lost) == 1
    assert "4" not in held(tmp_path / "saved.mvx")


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE documents SET alive = 0 WHERE doc_row = 4",
        "UPDATE documents SET alive = 1 WHERE doc_row = 7",
        "DELETE FROM documents WHERE doc_row = 10",
        "UPDATE settings SET value = '0.5' WHERE key = 'temperature'",
        "UPDATE settings SET value = '8' WHERE key = 'dim'",
        "DELETE FROM settings WHERE key = 'engine'",
    ],
)
def test_what_is_alive_and_all_settings_are_covered_by_checksums(sound, statement):
    in_catalog(sound, statement)
    assert not mvindex.verify(sound).is_sound
    with pytest.raises(DamagedIndex, match="catalog.sqlite"):
        mvindex.open(sound)


def test_a_filter_is_never_answered_from_damaged_metadata(sound):
    in_catalog(sound, 'UPDATE metadata SET json = \'{"lang":"en"}\' WHERE doc_row = 10')
    with mvindex.open(sound) as damaged, pytest.raises(DamagedIndex, match="'3' \\(row 10\\)"):
        damaged.search(np.ones(4), filter={"lang": "de"})


def test_a_catalog_put_back_from_an_older_copy_is_found_out(sound, tmp_path):
    shutil.copytree(sound, tmp_path / "older.mvx")
    with mvindex.open(sound) as index:
        index.delete(ids="1")
    shutil.copy(generation(tmp_path / "older.mvx") / "catalog.sqlite", generation(sound) / "catalog.sqlite")
    for log in generation(sound).glob("catalog.sqlite-*"):
        log.unlink()
    with pytest.raises(DamagedIndex, match="version 4, but version 5 was acknowledged"):
        mvindex.open(sound)
    assert any("version 5 was acknowledged" in problem.what for problem in mvindex.verify(sound).problems)
    with pytest.raises(DamagedIndex):
        mvindex.repair(sound)
    report = mvindex.salvage(sound, tmp_path / "saved.mvx")
    assert report.documents == 9
    assert [(lost.document, "later commits are lost" in lost.what) for lost in report.lost] == [(None, True)]


def test_deletions_that_do_not_match_their_checksum_are_reported_by_salvage(sound, tmp_path):
    in_catalog(sound, "UPDATE documents SET alive = 0 WHERE doc_row = 4")
    report = mvindex.salvage(sound, tmp_path / "saved.mvx")
    assert report.documents == 8 and "the set of deleted documents" in report.lost[0].what


@pytest.mark.parametrize(
    "name", ["current.json", "generation-000001/acknowledged", "generation-000001/rows-000001.bin"]
)
@pytest.mark.parametrize("harm", ["gone", "empty", "changed", "linked"])
def test_derived_files_are_made_again_from_the_catalog(sound, tmp_path, name, harm):
    before, file = held(sound), sound / name
    content = file.read_bytes()
    if harm == "changed":
        change(file, 3, 0x10)
    elif harm == "empty":
        file.write_bytes(b"")
    else:
        file.rename(tmp_path / "elsewhere")
        if harm == "linked":
            file.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StoreError, match=file.name):
        mvindex.open(sound)
    report = mvindex.verify(sound)
    assert {problem.file for problem in report.problems} == {str(file)}
    assert all(problem.is_derived for problem in report.problems)
    assert mvindex.repair(sound).made_again == (str(file),)
    assert file.read_bytes() == content and not file.is_symlink()
    assert held(sound) == before and mvindex.verify(sound).is_sound
    assert mvindex.repair(sound).made_again == ()


def test_repair_never_invents_rows_from_a_damaged_catalog(sound):
    in_catalog(sound, "UPDATE documents SET ordinal = 40 WHERE doc_row = 4")
    rows = generation(sound) / "rows-000001.bin"
    rows.unlink()
    with pytest.raises(DamagedIndex, match="row 4 is damaged"):
        mvindex.repair(sound)
    assert not rows.exists()


def test_a_catalog_that_sqlite_cannot_read_is_refused_with_the_way_out(sound, tmp_path):
    file = generation(sound) / "catalog.sqlite"
    file.write_bytes(bytes(4096) + file.read_bytes()[4096:])
    assert not mvindex.verify(sound).is_sound
    with pytest.raises(DamagedIndex, match="catalog.sqlite: .*Nothing can be salvaged: Restore a snapshot"):
        mvindex.salvage(sound, tmp_path / "saved.mvx")
    assert not (tmp_path / "saved.mvx").exists()


def test_pages_that_sqlite_refuses_cost_their_documents_alone(tmp_path):
    """Each leaf page of the texts is overwritten in turn: what stands on it is named as lost, the rest is saved."""
    with mvindex.create(tmp_path / "x.mvx", dim=4) as index:
        index.add_views([mvindex.Document(f"{n}", f"text {n} " * 40) for n in range(60)], vectors(60))
    before = held(tmp_path / "x.mvx")
    file = generation(tmp_path / "x.mvx") / "catalog.sqlite"
    content = file.read_bytes()
    with closing(sqlite3.connect(file)) as connection:
        page_bytes = connection.execute("PRAGMA page_size").fetchone()[0]
    pages = [at for at in range(0, len(content), page_bytes) if content[at : at + page_bytes].count(b"text ") > 40]
    assert len(pages) > 3
    for number, at in enumerate(pages):
        file.write_bytes(content[:at] + b"\xff" * page_bytes + content[at + page_bytes :])
        report = mvindex.salvage(tmp_path / "x.mvx", tmp_path / f"saved-{number}.mvx")
        saved = held(tmp_path / f"saved-{number}.mvx")
        lost = {lost.document for lost in report.lost}
        assert saved == {key: before[key] for key in saved} and 40 <= len(saved) == report.documents
        assert lost == {f"row {key}" for key in before.keys() - saved.keys()} and lost


@pytest.mark.parametrize("change", ["DELETE FROM settings", "UPDATE settings SET value = '1' WHERE key = 'encoder'"])
def test_settings_that_are_gone_from_the_catalog_are_taken_from_beside_it(sound, tmp_path, change):
    with mvindex.open(sound) as index:
        before = [hit.id for hit in index.search(np.ones(4), top_k=50).hits]
    with closing(sqlite3.connect(generation(sound) / "catalog.sqlite")) as connection:
        connection.execute("PRAGMA secure_delete = ON")
        connection.execute(change)
        connection.commit()
        connection.execute("VACUUM")
    report = mvindex.salvage(sound, tmp_path / "saved.mvx")
    with mvindex.open(tmp_path / "saved.mvx") as saved:
        assert [hit.id for hit in saved.search(np.ones(4), top_k=50).hits] == before
    (lost,) = report.lost
    assert lost.document is None and "settings in current.json were used" in lost.what


def test_settings_beside_the_catalog_that_are_others_are_named_and_made_again(sound):
    record = json.loads((sound / "current.json").read_text())
    write_current(sound, Current(**{name: record[name] for name in Current.__slots__}), {"dtype": "fp32", "dim": 5})
    (problem,) = mvindex.verify(sound).problems
    assert problem.file.endswith("current.json") and problem.is_derived
    assert mvindex.repair(sound).made_again == (str(sound / "current.json"),)
    assert mvindex.verify(sound).is_sound
    assert read_kept_settings(sound)["dim"] == 4


def test_nothing_is_salvaged_over_something_or_from_nothing(sound, tmp_path):
    (tmp_path / "there.mvx").mkdir()
    with pytest.raises(ConfigError, match="exists already"):
        mvindex.salvage(sound, tmp_path / "there.mvx")
    (generation(sound) / "catalog.sqlite").unlink()
    with pytest.raises(MvindexError):
        mvindex.salvage(sound, tmp_path / "new.mvx")
    assert not (tmp_path / "new.mvx").exists()
    with pytest.raises(StoreError, match="no mvindex index here"):
        mvindex.verify(tmp_path / "nowhere.mvx")


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("generation", "../../etc"),
        ("dim", 1 << 62),
        ("dim", -4),
        ("dim", "4"),
        ("dtype", "../fp16"),
        ("next_ordinal", -1),
        ("engine", {"kind": "flat", "directory": "../../etc", "checksums": {}, "settings": {}, "built_rows": 1}),
        ("engine", {"kind": "flat", "directory": "engine-flat-000004", "checksums": {"../../x": ""}, "settings": {}}),
    ],
)
def test_crafted_settings_are_refused_by_name(sound, setting, value):
    """As an attacker would make them: with the right checksum."""
    from mvindex.store.schema import write_settings

    connection = sqlite3.connect(generation(sound) / "catalog.sqlite")
    with connection:
        write_settings(connection, {setting: value})
    connection.close()
    with pytest.raises(DamagedIndex, match=setting):
        mvindex.open(sound)


@pytest.mark.parametrize("generation_number", [-1, 0, 10**6, "1", True, None])
def test_a_crafted_current_json_is_refused(sound, generation_number):
    index_id = json.loads((sound / "current.json").read_text())["index_id"]
    write_current(sound, Current(format_version=3, generation=generation_number, index_id=index_id), {})
    with pytest.raises(StoreError, match="current.json"):
        mvindex.open(sound)


@pytest.mark.parametrize(
    "name",
    ["current.json", "writer.lock", "generation-000001", "generation-000001/catalog.sqlite"]
    + [f"generation-000001/{name}" for name in ("views-000001.f16", "rows-000001.bin", "acknowledged")]
    + ["generation-000001/engine-flat-000004", "generation-000001/engine-flat-000004/index.faiss"],
)
def test_links_in_an_index_are_refused(sound, tmp_path, name):
    shutil.move(sound / name, tmp_path / "elsewhere")
    (sound / name).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StoreError, match=os.path.basename(name)):
        with mvindex.open(sound) as index:
            index.search(np.ones(4))
            index.delete(ids="1")


def test_the_checksum_of_a_set_of_rows_depends_on_nothing_but_the_set():
    rows = np.array([5, 0, 1 << 40, 17])
    assert deleted_checksum(rows) == deleted_checksum(rows[::-1])
    parts = deleted_checksum(rows[:2]) + deleted_checksum(rows[2:])
    assert deleted_checksum(rows) == parts % (1 << 64)
    assert deleted_checksum(rows[:3]) != deleted_checksum(rows) != 0
    assert deleted_checksum(rows[:0]) == 0


def test_documents_are_checked_that_the_log_alone_holds(tmp_path):
    """Committed, but not yet moved into the database: a killed writer leaves that behind."""
    with mvindex.create(tmp_path / "x.mvx", dim=4) as index:
        index.add_views(documents(3), vectors(3))
        with embedded_store_of(
            index
        ).snapshot.source.catalog.reading() as connection:  # keeps the log from being folded in
            connection.execute("SELECT count(*) FROM documents").fetchone()
            index.add_views([mvindex.Document("late", "t")], vectors(1, seed=3))
            shutil.copytree(index.path, tmp_path / "y.mvx")
    log = generation(tmp_path / "y.mvx") / "catalog.sqlite-wal"
    assert log.stat().st_size > 0 and mvindex.verify(tmp_path / "y.mvx").documents == 4
    shutil.copytree(tmp_path / "y.mvx", tmp_path / "z.mvx")
    (generation(tmp_path / "z.mvx") / "catalog.sqlite-wal").unlink()
    with pytest.raises(DamagedIndex, match="was acknowledged"):
        mvindex.open(tmp_path / "z.mvx")


@pytest.mark.parametrize("occurrence", [0, 1])
def test_an_id_in_the_wrong_place_of_its_index_is_not_taken_for_absent(tmp_path, occurrence):
    """The id stands in the table of documents and in the index of living ids: changed in either, it is found out."""
    with mvindex.create(tmp_path / "x.mvx", dim=4) as index:
        index.add_views([mvindex.Document(f"passage-{n:04d}", "t") for n in range(900)], vectors(900))
    file = generation(tmp_path / "x.mvx") / "catalog.sqlite"
    content = file.read_bytes()
    places = [at for at in range(len(content)) if content.startswith(b"passage-0444", at)]
    assert len(places) == 2
    change(file, places[occurrence])  # p becomes q
    with mvindex.open(tmp_path / "x.mvx") as damaged:
        for use in (
            lambda: damaged.get("passage-0444"),
            lambda: damaged.add_views([mvindex.Document("passage-0444", "new")], vectors(1)),
            lambda: damaged.delete(ids="passage-0444"),
        ):
            with pytest.raises(DamagedIndex, match="catalog.sqlite"):
                use()
    assert not mvindex.verify(tmp_path / "x.mvx").is_sound


def test_a_catalog_of_another_index_is_never_answered_from(tmp_path):
    with mvindex.create(tmp_path / "x.mvx", dim=4) as index, mvindex.create(tmp_path / "y.mvx", dim=4) as other:
        index.add_views(documents(3), vectors(3))
        for _ in range(3):
            other.admin.build("exact")
    shutil.copytree(tmp_path / "x.mvx", tmp_path / "z.mvx")
    foreign = generation(tmp_path / "y.mvx") / "catalog.sqlite"
    shutil.copy(foreign, generation(tmp_path / "x.mvx") / "catalog.sqlite")
    for call in (mvindex.open, mvindex.repair):
        with pytest.raises(DamagedIndex, match="catalog.sqlite"):
            call(tmp_path / "x.mvx")
    assert not mvindex.verify(tmp_path / "x.mvx").is_sound
    # The other way round, views and rows tell which of the two is in its place.
    shutil.copy(tmp_path / "y.mvx" / "current.json", tmp_path / "z.mvx" / "current.json")
    with pytest.raises(DamagedIndex, match="index_id"):
        mvindex.open(tmp_path / "z.mvx")
    assert mvindex.repair(tmp_path / "z.mvx").made_again == (str(tmp_path / "z.mvx" / "current.json"),)
    assert len(held(tmp_path / "z.mvx")) == 3


def test_a_journal_beside_the_catalog_is_refused(sound):
    (generation(sound) / "catalog.sqlite-journal").write_bytes(b"")
    with pytest.raises(StoreError, match="catalog.sqlite-journal"):
        mvindex.open(sound)


def test_ids_are_checked_again_after_every_kind_of_change(index):
    """Check that the checksum after adding, replacing and deleting is that of all ids."""
    index.add_views([mvindex.Document("3", "new"), mvindex.Document("ü", "t")], vectors(2, seed=5))
    index.delete(ids=["5", "3"])
    for look in (lambda reader: reader.get("nowhere"), lambda reader: reader.admin.compact()):
        with mvindex.open(index.path) as reader:
            look(reader)
            assert reader.get("nowhere") is None and reader.get("ü").text == "t"


def test_files_that_the_catalog_calls_by_other_names_are_no_sound_index(sound):
    with closing(sqlite3.connect(generation(sound) / "catalog.sqlite")) as connection, connection:
        for table in ("files", "blocks"):
            connection.execute(f"UPDATE {table} SET name = '../../outside/' || name")
    with pytest.raises(DamagedIndex):
        mvindex.open(sound)
    assert not mvindex.verify(sound).is_sound
