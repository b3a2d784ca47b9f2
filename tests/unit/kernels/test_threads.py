"""Which number of threads wins, and that libraries follow it for the time of an operation."""

import threading

import pytest

import mvindex
from mvindex.errors import ConfigError
from mvindex.kernels.threads import LibraryThreads, choose_threads, default_threads, map_in_threads
from tests.helpers.cli import mvindex as run
from tests.helpers.cli import ok


@pytest.fixture
def no_number(monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    yield
    mvindex.set_threads(None)


class Library:
    """A library with a number of threads for each thread that calls it, as OpenMP has."""

    def __init__(self, count):
        self._here = threading.local()
        self._count = count

    def read(self):
        return getattr(self._here, "count", self._count)

    def write(self, count):
        self._here.count = count


def test_the_given_number_wins_then_the_variable(no_number, monkeypatch):
    assert "core" in choose_threads().why
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    assert choose_threads() == (7, "OMP_NUM_THREADS")
    mvindex.set_threads(3)
    assert choose_threads() == (3, "given by --threads or set_threads()")
    mvindex.set_threads(None)
    assert default_threads() == 7


@pytest.mark.parametrize("count", [0, -1, 1.5, True, "2"])
def test_only_whole_numbers_from_1_are_taken(count):
    with pytest.raises(ConfigError, match="threads: expected a whole number from 1 on, got"):
        mvindex.set_threads(count)


def test_a_library_follows_inside_and_goes_back(no_number, monkeypatch):
    library = Library(4)
    threads = LibraryThreads(library.read, library.write)
    for named, inside in (("1", 1), ("3", 3), ("9", 4)):
        monkeypatch.setenv("OMP_NUM_THREADS", named)
        with threads.limited():
            assert library.read() == inside
            monkeypatch.setenv("OMP_NUM_THREADS", "2")
            with threads.limited():
                assert library.read() == inside
            assert library.read() == inside
        assert library.read() == 4
    mvindex.set_threads(9)
    with threads.limited():
        assert library.read() == 9
    assert library.read() == 4


def test_a_thread_begun_meanwhile_gets_the_number_of_before(no_number, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    library = Library(4)
    threads = LibraryThreads(library.read, library.write)
    seen = []

    def work():
        library.write(1)  # inherited from the lowered one
        with threads.limited():
            seen.append(library.read())
        seen.append(library.read())

    with threads.limited():
        other = threading.Thread(target=work)
        other.start()
        other.join()
    assert seen == [1, 4]


@pytest.mark.parametrize("num_threads", [1, 3])
def test_results_are_mapped_in_order_in_so_many_threads_at_once(num_threads):
    together, taken = threading.Barrier(num_threads), []

    def items():
        for number in range(12):
            taken.append(number)
            yield number

    def call(number):
        together.wait(30)  # broken, unless so many call at once
        return number * number

    results = map_in_threads(call, items(), num_threads)
    assert [next(results) for _ in range(2)] == [0, 1]
    assert len(taken) <= 2 + 2 * num_threads + 1  # the others wait to be taken
    assert list(results) == [number * number for number in range(2, 12)]


def test_an_error_in_a_thread_is_raised_where_its_result_is_read():
    results = map_in_threads(lambda number: 1 // number, [2, 1, 0, 3], 2)
    assert [next(results), next(results)] == [0, 1]
    with pytest.raises(ZeroDivisionError):
        next(results)


@pytest.mark.parametrize(("module", "read"), [("torch", "get_num_threads"), ("faiss", "omp_get_max_threads")])
def test_torch_and_faiss_follow(no_number, module, read):
    read = getattr(pytest.importorskip(module), read)
    mvindex.set_threads(3)
    before = read()
    if module == "torch":
        from mvindex.encoder.device import torch_threads

        with torch_threads().limited():
            assert read() == 3
    else:
        from mvindex_connectors.engines.faiss_files import translated

        assert translated(read) == 3
    assert read() == before


def test_commands_that_compute_take_a_number(no_number, tmp_path):
    names = ("ingest", "query", "eval", "analyze", "build", "tune", "train", "mine", "serve")
    assert [name for name in names if "--threads" not in ok(run(name, "--help", cwd=tmp_path)).stdout] == []
    refused = run("query", "text", "--threads", "0", cwd=tmp_path)
    assert refused.returncode == 2 and "--threads" in refused.stderr
    run("query", "text", "--threads", "5", cwd=tmp_path)
    assert default_threads() == 5
    run("query", "text", cwd=tmp_path)
    assert "set_threads" not in choose_threads().why
