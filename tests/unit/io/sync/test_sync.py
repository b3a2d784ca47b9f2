"""A sync makes the documents of a folder in an index equal to its files, and says whether they are."""

import os
from itertools import count

import pytest

import mvindex
from mvindex.errors import ConfigError
from mvindex.io.sync import SyncHooks, SyncOptions, sync_folder
from mvindex.io.sync import run as run_module
from tests.helpers.folders import Counting, documents_of, held, note, write


@pytest.fixture
def notes(tmp_path, monkeypatch):
    monkeypatch.setenv("MVINDEX_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "notes"
    write(folder, **{f"{number}.md": note(number) for number in range(5)}, **{"sub/a.txt": "a text"})
    return folder


@pytest.fixture
def function():
    return Counting()


@pytest.fixture
def index(tmp_path, function):
    with mvindex.create(tmp_path / "i.mvx", encoder=function.encoder(), lexical=None) as index:
        yield index


def sync(index, folder, **options):
    warnings = []
    report = sync_folder(index, str(folder), SyncOptions(**options), SyncHooks(on_warning=warnings.append))
    return report, warnings


def test_a_first_sync_adds_every_file(index, notes):
    report, warnings = sync(index, notes)
    assert (report.added, report.changed, report.unchanged, report.deleted) == (6, 0, 0, 0)
    assert (report.encoded, report.removed, warnings) == (11, 0, [])
    assert report.equal and report.is_complete and report.differing == []
    assert held(index) == documents_of(notes)
    assert report.as_json()["in_folder"] == report.as_json()["in_index"]


def test_a_second_sync_encodes_nothing_and_reads_no_settled_file(index, notes, function, monkeypatch):
    for path in notes.rglob("*.*"):
        os.utime(path, (1_000_000, 1_000_000))
    sync(index, notes)
    # The time of change is now, so that files are settled once it is 2 s old.
    monkeypatch.setattr("mvindex.io.sync.report.SETTLED_NS", -(10**12))
    sync(index, notes)
    encoded = function.texts
    monkeypatch.setattr(run_module, "Corpus", None)
    report, _ = sync(index, notes)
    assert (report.unchanged, report.encoded, function.texts) == (6, 0, encoded)
    assert report.equal


def test_a_file_that_may_still_change_within_its_time_is_read_again(index, notes, monkeypatch):
    sync(index, notes)
    times = os.stat(notes / "sub/a.txt")
    (notes / "sub/a.txt").write_text("b text")
    os.utime(notes / "sub/a.txt", ns=(times.st_atime_ns, times.st_mtime_ns))
    report, _ = sync(index, notes)
    assert report.changed == 1 and held(index) == documents_of(notes)


def test_a_restored_time_does_not_hide_a_change(index, notes, monkeypatch):
    monkeypatch.setattr("mvindex.io.sync.report.SETTLED_NS", -(10**12))
    sync(index, notes)
    times = os.stat(notes / "sub/a.txt")
    (notes / "sub/a.txt").write_text("b text")
    os.utime(notes / "sub/a.txt", ns=(times.st_atime_ns, times.st_mtime_ns))
    assert sync(index, notes)[0].changed == 1


@pytest.mark.parametrize("damage", [None, b"", b"nonsense\n", b'["sub/a.txt", [1], 2]\n'])
def test_a_lost_or_damaged_cache_changes_nothing(index, notes, tmp_path, damage, function):
    sync(index, notes)
    encoded = function.texts
    for path in (tmp_path / "cache" / "sync").iterdir():
        path.unlink() if damage is None else path.write_bytes(damage)
    report, _ = sync(index, notes)
    assert report.equal and (report.unchanged, function.texts) == (6, encoded)


@pytest.mark.parametrize("place", ["/dev/null", "/proc/nothing", ""])
def test_without_a_cache_to_write_a_run_is_complete_and_warns(index, notes, monkeypatch, place):
    monkeypatch.setenv("MVINDEX_CACHE", place)
    if not place:
        monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
        monkeypatch.setattr("pathlib.Path.home", no_home)
    for encoded in (11, 0):
        report, [warning] = sync(index, notes)
        assert report.is_complete and report.encoded == encoded
        assert "cannot be written: " in warning and "the next sync reads every file again" in warning


def no_home():
    raise RuntimeError("there is none")


def test_only_the_changed_passage_is_encoded_and_ids_of_others_stay(index, notes):
    sync(index, notes)
    before = held(index)
    write(notes, **{"1.md": note(1).replace("## More", "new line\n\n## More")})
    report, _ = sync(index, notes)
    assert (report.changed, report.encoded, report.updated, report.removed) == (1, 1, 1, 0)
    assert held(index) == documents_of(notes) and held(index).keys() == before.keys()


def test_what_is_gone_is_deleted_and_what_moved_is_named(index, notes):
    sync(index, notes)
    (notes / "0.md").rename(notes / "sub/moved.md")
    write(notes, **{"1.md": None, "2.md": "# Note 2\n\nshort\n", "3.md": " \n"})
    report, _ = sync(index, notes)
    assert (report.added, report.changed, report.deleted) == (1, 1, 3)
    assert report.renamed == {"sub/moved.md": "0.md"}
    assert report.equal and held(index) == documents_of(notes)


def counts_of(report):
    return {name: value for name, value in report.as_json().items() if name.startswith(("files_", "documents_"))}


def test_a_dry_run_counts_what_a_run_does(index, notes, function):
    first = counts_of(sync(None, notes, dry_run=True)[0])
    assert first["documents_encoded"] == 11
    assert counts_of(sync(index, notes, dry_run=True)[0]) == first == counts_of(sync(index, notes)[0])
    (notes / "0.md").rename(notes / "sub/moved.md")
    write(notes, **{"1.md": None, "2.md": "# Note 2\n\nshort\n", "3.md": note(3).replace("## More", "\n## More")})
    write(notes, **{"new.csv": "part,n\nA,1\nB,2\n", "4.md": note(4, version=1)})
    encoded, before = function.texts, held(index)
    dry, _ = sync(index, notes, dry_run=True)
    assert (function.texts, held(index), dry.is_complete) == (encoded, before, False)
    counts = counts_of(dry)
    assert counts == counts_of(sync(index, notes)[0])
    # 2 of the file that moved, 2 of the new one, both of 4.md, and the first of 2.md; one of 3.md is a line lower.
    assert [counts[f"documents_{kind}"] for kind in ("encoded", "updated", "deleted")] == [7, 1, 5]
    dry, _ = sync(index, notes, dry_run=True)
    assert dry.is_complete and dry.encoded == dry.updated == dry.removed == 0


def test_a_dry_run_names_rows_whose_id_is_taken(index, notes):
    write(notes, **{"a.jsonl": '{"id": "1", "text": "x"}\n{"id": "1", "text": "y"}\n'})
    dry, told = sync(index, notes, dry_run=True)
    assert (dry.encoded, dry.rejected_rows, told) == (12, 1, sync(index, notes)[1])


def test_front_matter_that_yaml_refuses_is_counted(index, notes):
    write(notes, **{"adr.md": "---\ntitle: ADR 1: Use Postgres\n---\nWe use it.\n"})
    report, warnings = sync(index, notes)
    assert report.as_json()["warnings"] == 1 and report.is_complete
    assert warnings[0].startswith(f"{notes / 'adr.md'}:2: front matter: expected YAML")


def test_documents_from_elsewhere_are_not_touched(index, notes, tmp_path):
    index.add([mvindex.Document("other", "text", metadata={"file": "0.md"})])
    other = tmp_path / "more"
    write(other, **{"0.md": note(100)})
    sync(index, notes)
    sync(index, other)
    write(notes, **{"0.md": None})
    report, _ = sync(index, notes)
    assert report.equal
    assert held(index).keys() == {"other", *documents_of(notes), *documents_of(other)}


def test_two_folders_of_one_name_are_told_apart(index, notes, tmp_path):
    sync(index, notes)
    other = tmp_path / "other" / "notes"
    write(other, **{"0.md": note(100)})
    with pytest.raises(ConfigError, match="documents of another folder named 'notes'.*give --name notes; else another"):
        sync(index, other)
    report, _ = sync(index, other, name="more")
    assert report.equal and len(held(index)) == 13
    assert sync(index, notes)[0].unchanged == 6


def test_a_moved_folder_is_taken_over_by_its_name_without_encoding(index, notes, tmp_path):
    sync(index, notes)
    moved = notes.rename(tmp_path / "moved")
    report, _ = sync(index, moved, name="notes")
    assert (report.encoded, report.updated, report.equal) == (0, 11, True)


def test_a_folder_without_any_known_file_is_refused(index, notes):
    sync(index, notes)
    for path in list(notes.rglob("*.*")):
        path.unlink()
    with pytest.raises(ConfigError, match="none of the 6 files that the index has of it is there; is it mounted"):
        sync(index, notes)
    assert len(index) == 11
    report, _ = sync(index, notes, force=True)
    assert (report.deleted, report.removed, len(index), report.equal) == (6, 11, 0, True)


def test_a_file_that_turns_broken_keeps_its_passages_and_is_stale(index, notes):
    sync(index, notes)
    write(notes, **{"1.md": b"a\0b", "new.md": b"\0"})
    report, warnings = sync(index, notes)
    assert report.rejected.keys() == {"1.md", "new.md"} and report.stale == ["1.md"]
    assert warnings[0] == "1.md: holds a NUL at character 2; expected text; rejected"
    assert not report.equal and not report.is_complete and report.differing == ["1.md"]
    assert "notes/1.md#note-1" in held(index)
    write(notes, **{"1.md": note(1), "new.md": None})
    assert sync(index, notes)[0].is_complete


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads every folder")
def test_a_folder_that_cannot_be_listed_keeps_its_passages(index, notes):
    sync(index, notes)
    (notes / "sub").chmod(0)
    try:
        report, _ = sync(index, notes)
    finally:
        (notes / "sub").chmod(0o755)
    assert report.stale == ["sub/a.txt"] and "notes/sub/a.txt" in held(index)


def test_a_dry_run_and_a_check_change_nothing(index, notes):
    sync(index, notes)
    before = held(index)
    write(notes, **{"0.md": note(0, 1), "1.md": None, "new.md": "x"})
    for options in ({"dry_run": True}, {"check": True}):
        report, _ = sync(index, notes, **options)
        assert (report.added, report.changed, report.deleted, report.encoded) == (1, 1, 1, 3)
        assert not report.equal and report.differing == ["0.md", "1.md", "new.md"]
    assert held(index) == before


def test_a_dry_run_needs_no_index(notes):
    report, _ = sync(None, notes, dry_run=True)
    assert report.added == 6 and not report.equal


def test_a_check_finds_a_document_that_was_changed_or_lost_in_the_index(index, notes):
    sync(index, notes)
    assert sync(index, notes, check=True)[0].is_complete
    index.update("notes/1.md#note-1", metadata=index.get("notes/1.md#note-1").metadata | {"line": 7})
    index.delete(ids="notes/2.md#note-2/more")
    report, _ = sync(index, notes, check=True)
    assert report.differing == ["1.md", "2.md"]
    assert sync(index, notes)[0].encoded == 1
    assert held(index) == documents_of(notes)


def test_another_number_of_words_is_noticed_in_spite_of_the_cache(index, notes, monkeypatch):
    monkeypatch.setattr("mvindex.io.sync.report.SETTLED_NS", -(10**12))
    sync(index, notes)
    report, _ = sync(index, notes, passage_words=5)
    assert report.changed == 5 and report.equal


def test_a_stopped_run_is_not_complete_and_goes_on(index, notes):
    report = sync_folder(index, notes, hooks=stop_after(10))
    assert report.stopped and not report.is_complete and report.added == 2
    assert report.in_folder == report.in_index and not report.equal
    report = sync_folder(index, notes, hooks=stop_after(0))
    assert report.stopped and not report.equal and report.differing == []
    assert sync(index, notes)[0].is_complete


@pytest.mark.parametrize("stop_at, stored", [(10, 0), (29, 12), (32, 24)], ids=["reading", "storing", "last part"])
def test_a_run_stops_inside_a_file_and_goes_on(index, notes, monkeypatch, stop_at, stored):
    monkeypatch.setattr(run_module, "CHUNK_DOCUMENTS", 4)
    for path in (*notes.glob("*.md"), notes / "sub/a.txt"):
        path.unlink()
    rows = "".join(f'{{"id": "{number}", "text": "row {number}"}}\n' for number in range(25))
    write(notes, **{"a.jsonl": rows})
    report = sync_folder(index, notes, hooks=stop_after(stop_at))
    assert report.stopped and len(index) == stored and not report.equal
    write(notes, **{"a.jsonl": rows.replace("row", "new")})
    report = sync_folder(index, notes, hooks=stop_after(stop_at))
    assert report.stopped and not report.equal
    report, _ = sync(index, notes)
    assert report.is_complete and len(index) == 25


def stop_after(num_calls):
    calls = count()
    return SyncHooks(should_stop=lambda: next(calls) >= num_calls)


class TestRows:
    def test_equal_ids_of_two_files_do_not_collide(self, index, notes):
        write(notes, **{"a.jsonl": '{"id": "1", "text": "x"}\n', "b.jsonl": '{"id": "1", "text": "y"}\n'})
        assert sync(index, notes)[0].is_complete
        assert [index.get(f"notes/{file}.jsonl#1").text for file in "ab"] == ["x", "y"]

    @pytest.mark.parametrize("is_long", [False, True])
    def test_an_id_twice_in_a_file_stays_with_the_first(self, index, notes, monkeypatch, is_long):
        if is_long:
            monkeypatch.setattr(run_module, "_HELD_DOCUMENTS", 2)
            monkeypatch.setattr(run_module, "CHUNK_DOCUMENTS", 1)
        write(notes, **{"a.csv": "id,text\n1,x\n2,y\n3,z\n1,y\n"})
        for number, options in enumerate(({}, {}, {"check": True})):
            report, warnings = sync(index, notes, **options)
            assert warnings == [f"{notes}/a.csv:5: id 'notes/a.csv#1' is that of an earlier row; row rejected"]
            assert report.rejected_rows == 1 and report.equal and not report.is_complete
            assert (report.changed, report.encoded) == (0, 0 if number else 14)
            assert index.get("notes/a.csv#1").text == "x"

    def test_a_table_without_ids_is_one_document_a_row_and_quiet_when_nothing_changed(self, index, notes):
        rows = [f"PX-{number},{('fragile', 'recalled in May')[number % 2]}" for number in range(60)]
        write(notes, **{"parts.csv": "\n".join(["part,note", *rows])})
        assert sync(index, notes)[0].encoded == 11 + 60
        report, warnings = sync(index, notes)
        assert (report.is_complete, report.encoded, report.updated, warnings) == (True, 0, 0, [])
        rows[7] = "PX-7,sold"
        write(notes, **{"parts.csv": "\n".join(["part,note", *rows])})
        report, _ = sync(index, notes)
        assert (report.encoded, report.updated, report.removed) == (1, 0, 0)
        assert index.get("notes/parts.csv#row-9").text == "part: PX-7; note: sold"

    def test_an_id_of_a_document_from_elsewhere_is_left_to_it(self, index, notes):
        index.add([mvindex.Document("notes/a.jsonl#1", "mine")])
        write(notes, **{"a.jsonl": '{"id": "1", "text": "x"}\n'})
        report, warnings = sync(index, notes)
        assert "is that of a document of no folder already" in warnings[0]
        assert index.get("notes/a.jsonl#1").text == "mine"
        assert report.equal and report.rejected_rows == 1 and not report.is_complete
        # A row that was counted as one of the file's documents, and is another's since, is not expected any more.
        write(notes, **{"a.jsonl": '{"id": "1", "text": "x"}\n{"id": "2", "text": "y"}\n'})
        for options in ({}, {}, {"check": True}):
            report, _ = sync(index, notes, **options)
            assert report.equal and report.rejected_rows == 1 and report.in_folder["a.jsonl"].passages == 1
        # A file of which all rows are refused is there all the same.
        write(notes, **{"a.jsonl": '{"id": "1", "text": "x"}\n'})
        for options in ({"dry_run": True}, {}):
            report, _ = sync(index, notes, **options)
            assert (report.deleted, report.removed) == (0, 1) and index.get("notes/a.jsonl#1").text == "mine"

    def test_a_row_may_move_to_another_file(self, index, notes):
        write(notes, **{"a.jsonl": '{"id": "1", "text": "x"}\n{"id": "2", "text": "y"}\n'})
        sync(index, notes)
        write(notes, **{"a.jsonl": '{"id": "2", "text": "y"}\n', "b.jsonl": '{"id": "1", "text": "x"}\n'})
        assert sync(index, notes)[0].is_complete

    def test_a_file_of_many_rows_is_read_in_parts(self, index, notes, monkeypatch):
        monkeypatch.setattr(run_module, "_HELD_DOCUMENTS", 10)
        monkeypatch.setattr(run_module, "CHUNK_DOCUMENTS", 4)
        rows = "".join(f'{{"id": "{number}", "text": "row {number}"}}\n' for number in range(25))
        write(notes, **{"a.jsonl": rows})
        assert sync(index, notes)[0].is_complete
        write(notes, **{"a.jsonl": rows.replace("row 7", "new 7").replace('{"id": "9", "text": "row 9"}\n', "")})
        report, _ = sync(index, notes)
        assert report.is_complete and (report.encoded, report.removed) == (1, 1)

    def test_bad_rows_are_reported_in_every_run(self, index, notes):
        write(notes, **{"a.jsonl": '{"id": "1", "text": "x"}\n{"id": 2\n'})
        for _ in range(2):
            report, warnings = sync(index, notes)
            assert report.equal and report.rejected_rows == 1 and not report.is_complete
            assert "a.jsonl:2: invalid JSON" in warnings[0]

    @pytest.mark.parametrize("num_good", [0, 1])
    def test_the_documents_of_a_file_with_bad_rows_stay_until_it_is_mended(self, index, notes, num_good):
        rows = [f'{{"id": "{number}", "text": "row {number}"}}\n' for number in range(3)]
        write(notes, **{"a.jsonl": "".join(rows)})
        sync(index, notes)
        before = held(index)
        write(notes, **{"a.jsonl": "".join(rows)[: num_good * len(rows[0]) + 8]})
        for options in ({"dry_run": True}, {}, {}, {"check": True}):
            report, _ = sync(index, notes, **options)
            assert (report.deleted, report.removed, report.stale, report.equal) == (0, 0, ["a.jsonl"], False)
            assert held(index) == before
        write(notes, **{"a.jsonl": rows[1]})
        report, _ = sync(index, notes)
        assert report.is_complete and (report.removed, report.stale) == (2, [])


def test_of_a_changed_file_only_the_sections_that_changed_are_encoded(index, notes, function):
    """Sections that moved down only get another line; those of equal headings another number in their ids."""
    sections = [f"## {'Price' if number % 2 else f'Year {number}'}\n\nIn {number} oil rose.\n" for number in range(60)]
    write(notes, **{"long.md": "\n".join(sections)})
    sync(index, notes)
    before = function.texts
    sections[2] = "## Year 2\n\nIn 2 oil fell.\n"
    sections.insert(1, "## Price\n\nA new one.\n")
    write(notes, **{"long.md": "\n".join(sections)})
    report, _ = sync(index, notes)
    assert (report.changed, report.views_encoded, report.views_reused) == (1, 2, 30)
    assert function.texts == before + report.views_encoded
    assert report.as_json()["views_encoded"] == 2
    assert report.is_complete and held(index) == documents_of(notes)
