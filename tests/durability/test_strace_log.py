"""The parser of strace's log: lines as strace prints them, and a real log of plain file calls."""

import os
import sys

import pytest

from tests.durability.power.strace import Call, Kind, LogError, read_calls, record

FOLDER, MARKS = "/x/w", "/x/marks"


def hexed(text):
    return "".join(f"\\x{byte:02x}" for byte in text.encode())


def handle(number, path):
    return f"{number}<{hexed(path)}>"


def string(text):
    return f'"{hexed(text)}"'


def parsed(tmp_path, *lines):
    log = tmp_path / "log"
    log.write_text("".join(f"{line}\n" for line in lines))
    return read_calls(log, FOLDER, MARKS)


def opened(path, number, flags="O_RDWR|O_CREAT|O_CLOEXEC"):
    return f"7 openat(AT_FDCWD<{hexed('/')}>, {string(path)}, {flags}, 0644) = {handle(number, path)}"


def test_a_write_stands_where_seek_read_and_earlier_writes_have_moved_the_file_to(tmp_path):
    file = handle(3, "/x/w/a")
    found = parsed(
        tmp_path,
        opened("/x/w/a", 3),
        f"7 write({file}, {string('abc')}, 3) = 3",
        f"7 read({file}, {string('xy')}, 8192) = 2",
        f"7 write({file}, {string('de')}, 2) = 2",
        f"7 lseek({file}, -1, SEEK_END) = 9",
        f"7 fcntl({file}, F_DUPFD_CLOEXEC, 0) = {handle(4, '/x/w/a')}",
        f"7 write({handle(4, '/x/w/a')}, {string('f')}, 1) = 1",
        f"7 write({file}, {string('g')}, 1) = 1",
        f"7 pwrite64({file}, {string('hij')}, 3, 100) = 3",
    )
    assert found[0] == Call(Kind.CREATE, "a")
    assert [(call.offset, call.data) for call in found[1:]] == [
        (0, b"abc"),
        (5, b"de"),
        (9, b"f"),
        (10, b"g"),
        (100, b"hij"),
    ]


def test_a_short_write_counts_for_what_was_written(tmp_path):
    found = parsed(tmp_path, f"7 pwrite64({handle(3, '/x/w/a')}, {string('abcdef')}, 6, 0) = 4")
    assert found == [Call(Kind.WRITE, "a", data=b"abcd")]


def test_a_file_opened_to_append_is_written_at_its_end(tmp_path):
    found = parsed(
        tmp_path, opened("/x/w/a", 3, "O_WRONLY|O_APPEND"), f"7 write({handle(3, '/x/w/a')}, {string('a')}, 1) = 1"
    )
    assert found == [Call(Kind.WRITE, "a", offset=-1, data=b"a")]


def test_names_beside_an_open_folder_are_found(tmp_path):
    found = parsed(
        tmp_path,
        f"7 mkdir({string('/x/w/d')}, 0777) = 0",
        f"7 unlinkat({handle(5, '/x/w/d')}, {string('e')}, 0) = 0",
        f"7 rmdir({string('/x/w/d')}) = 0",
        f"7 rename({string('/x/w/a')}, {string('/x/w/b')}) = 0",
        f"7 fdatasync({handle(5, '/x/w')}) = 0",
    )
    assert found == [
        Call(Kind.MAKE_DIR, "d"),
        Call(Kind.UNLINK, "d/e"),
        Call(Kind.UNLINK, "d"),
        Call(Kind.RENAME, "a", "b"),
        Call(Kind.SYNC, "."),
    ]


def test_calls_that_failed_or_concern_other_files_are_left_out(tmp_path):
    found = parsed(
        tmp_path,
        f"7 mkdir({string('/x/w/d')}, 0777) = -1 EEXIST (File exists)",
        f"7 mkdir({string('/x/wide')}, 0777) = 0",
        f"7 pwrite64({handle(3, '/x/other')}, {string('abc')}, 3, 0) = 3",
        f"7 pwrite64({handle(3, '/x/w/a')}(deleted), {string('abc')}, 3, 0) = 3",
        "7 +++ exited with 0 +++",
    )
    assert found == []


def test_a_call_that_another_thread_interrupts_is_put_together(tmp_path):
    file = handle(3, "/x/w/a")
    found = parsed(
        tmp_path,
        f"7 fsync({file} <unfinished ...>",
        f"8 pwrite64({file}, {string('b')}, 1, 0) = 1",
        "7 <... fsync resumed>) = 0",
    )
    assert [call.kind for call in found] == [Kind.WRITE, Kind.SYNC]


def test_lines_of_the_marks_are_calls_in_their_place(tmp_path):
    marks = handle(3, MARKS)
    found = parsed(
        tmp_path,
        opened(MARKS, 3, "O_WRONLY|O_APPEND"),
        f"7 write({marks}, {string('0/ack 1')}, 7) = 7",
        f"7 fsync({handle(4, '/x/w')}) = 0",
    )
    assert found == [Call(Kind.MARK, "0/ack 1"), Call(Kind.SYNC, ".")]


@pytest.mark.parametrize(
    "line",
    [
        f"7 writev({handle(3, '/x/w/a')}, [{{iov_base={string('a')}, iov_len=1}}], 1) = 1",
        f"7 mmap(NULL, 4096, PROT_READ|PROT_WRITE, MAP_SHARED, {handle(3, '/x/w/a')}, 0) = 0x7f5169",
        f"7 rename({string('/x/w/a')}, {string('/elsewhere')}) = 0",
        f"7 pwrite64({handle(3, '/x/w/a')}, {string('abc')}..., 3, 0) = 3",
        "7 vfork() = 9",
        "7 clone3({flags=CLONE_VFORK}, 88) = 9",
    ],
    ids=["writev", "a writable map", "out of the folder", "cut short", "another process", "a clone"],
)
def test_unsupported_calls_are_refused(tmp_path, line):
    with pytest.raises(LogError):
        parsed(tmp_path, line)


def test_read_only_maps_and_threads_are_ignored(tmp_path):
    found = parsed(
        tmp_path,
        f"7 mmap(NULL, 4096, PROT_READ, MAP_SHARED, {handle(3, '/x/w/a')}, 0) = 0x7f5169",
        f"7 mmap(NULL, 4096, PROT_READ|PROT_WRITE, MAP_SHARED, {handle(3, '/x/w/c-shm')}, 0) = 0x7f516a",
        "7 clone3({flags=CLONE_VM|CLONE_THREAD}, 88) = 9",
    )
    assert found == []


@pytest.mark.needs("strace")
def test_the_log_of_a_real_process_has_its_calls(tmp_path):
    folder = tmp_path / "w"
    folder.mkdir()
    program = (
        "import os\n"
        f"os.chdir({str(tmp_path)!r})\n"
        "with open('w/a b', 'w+b') as file:\n"
        "    file.write(bytes(range(256)) * 40)\n"
        "    file.seek(10); file.read(1); file.seek(20); file.write(b'xyz'); file.flush(); os.fsync(file.fileno())\n"
        "os.write(os.open('marks', os.O_WRONLY | os.O_CREAT | os.O_APPEND), b'here\\n')\n"
        f"os.rename({str(folder / 'a b')!r}, {str(folder / 'c')!r})\n"
        "os.truncate(os.open('w/c', os.O_RDWR), 5)\n"
    )
    log = tmp_path / "log"
    record([sys.executable, "-c", program], log)
    found = read_calls(log, folder, tmp_path / "marks")
    data = bytearray(bytes(range(256)) * 40)
    written = bytearray()
    for call in found:
        if call.kind is Kind.WRITE:
            written[call.offset : call.offset + len(call.data)] = call.data
    data[20:23] = b"xyz"
    assert written == data
    kinds = [call.kind for call in found if call.kind is not Kind.WRITE]
    assert kinds == [Kind.CREATE, Kind.TRUNCATE, Kind.SYNC, Kind.MARK, Kind.RENAME, Kind.TRUNCATE]
    assert found[-2] == Call(Kind.RENAME, "a b", "c")
    assert found[-1] == Call(Kind.TRUNCATE, "c", size_bytes=5)
    assert os.listdir(folder) == ["c"]


@pytest.mark.needs("strace")
def test_a_process_that_fails_is_an_error_with_its_message(tmp_path):
    with pytest.raises(LogError, match="no such luck"):
        record([sys.executable, "-c", "raise SystemExit('no such luck')"], tmp_path / "log")
