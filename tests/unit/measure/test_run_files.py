"""Writing TREC runs."""

import errno
import io
import os
import stat

import ir_measures
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mvindex.errors import ConfigError, QueryError
from mvindex.measure.compare import open_run, write_run
from mvindex.records import Hit, SearchResult


def hits(*pairs):
    return tuple(Hit(doc_id, score, 0, None, None, "", "", {}) for doc_id, score in pairs)


def result(*pairs):
    return SearchResult(hits(*pairs), exact=True, short_by=0, rounds=1)


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "run.trec")


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def test_each_hit_is_a_line_with_ranks_from_1(path):
    write_run(path, [("q1", result(("d9", 2.5), ("d1", -1.0))), ("q2", result()), ("q3", result(("é", 0.5)))], tag="t")
    assert read(path) == "q1 Q0 d9 1 2.5 t\nq1 Q0 d1 2 -1.0 t\nq3 Q0 é 1 0.5 t\n"


def test_equal_scores_stay_in_the_order_of_the_hits(path):
    write_run(path, [("q", result(("b", 1.0), ("a", 1.0), ("c", 1.0)))])
    assert [line.split()[2] for line in read(path).splitlines()] == ["b", "a", "c"]


@given(st.floats(width=32, allow_nan=False, allow_infinity=False))
def test_float32_reads_back_the_same_score(tmp_path_factory, score):
    path = str(tmp_path_factory.mktemp("run") / "run.trec")
    write_run(path, [("q", result(("d", score)))])
    assert np.float32(read(path).split()[4]) == np.float32(score)


def test_other_readers_of_runs_find_the_same_hits(path):
    write_run(path, [("q1", result(("b", 0.1), ("a", 1e-8)))])
    assert [(hit.query_id, hit.doc_id, np.float32(hit.score)) for hit in ir_measures.read_trec_run(path)] == [
        ("q1", "b", np.float32(0.1)),
        ("q1", "a", np.float32(1e-8)),
    ]


@pytest.mark.parametrize("word", ["", "a b", "a\tb", "a\n", " a", "a\u00a0b", "a\u2028b"])
def test_an_id_or_tag_that_is_not_one_word_is_refused(path, word):
    with pytest.raises(QueryError, match="question id: expected one word"):
        write_run(path, [(word, result(("d", 1.0)))])
    with pytest.raises(QueryError, match="document id: expected one word"):
        write_run(path, [("q", result((word, 1.0)))])
    with pytest.raises(QueryError, match="tag: expected one word"):
        write_run(path, [], tag=word)
    assert os.listdir(os.path.dirname(path)) == []


@pytest.mark.parametrize(
    "scores", [(1.0, 1.5), (float("nan"),), (1.0, float("nan")), (float("inf"),), (1e39,), (-float("inf"),)]
)
def test_scores_that_rise_or_are_no_float32_are_refused_by_rank(path, scores):
    with pytest.raises(QueryError, match=f"question 'q', rank {len(scores)}: expected float32 scores"):
        write_run(path, [("q", result(*((f"d{row}", score) for row, score in enumerate(scores))))])


def test_a_document_twice_in_a_result_and_a_question_twice_in_a_run_are_refused(path):
    with pytest.raises(
        QueryError, match="question 'q', rank 2: expected each document once per question, got 'd' twice"
    ):
        write_run(path, [("q", result(("d", 2.0), ("d", 1.0)))])
    with pytest.raises(QueryError, match="question 'q': expected each question once in a run"):
        write_run(path, [("q", result()), ("q", result())])


def test_a_refused_question_leaves_no_line(path):
    with open_run(path) as run:
        run.add("q1", hits(("d", 1.0)))
        with pytest.raises(QueryError):
            run.add("q2", hits(("d", 1.0), ("e e", 0.5)))
    assert read(path) == "q1 Q0 d 1 1.0 mvindex\n"


def test_an_existing_file_is_kept_unless_forced(path):
    write_run(path, [("old", result(("d", 1.0)))])
    with pytest.raises(ConfigError, match=r"run\.trec: exists; .*--force"):
        write_run(path, [("new", result(("d", 1.0)))])
    assert read(path).startswith("old ")
    write_run(path, [("new", result(("d", 1.0)))], force=True)
    assert read(path).startswith("new ")


def test_a_file_that_appears_meanwhile_is_kept(path):
    with pytest.raises(ConfigError, match="exists"), open_run(path) as run:
        run.add("q", hits(("d", 1.0)))
        with open(path, "w") as other:
            other.write("other")
    assert read(path) == "other"
    assert os.listdir(os.path.dirname(path)) == ["run.trec"]


def test_the_file_appears_only_when_it_is_complete(path):
    with open_run(path) as run:
        run.add("q", hits(("d", 1.0)))
        assert not os.path.exists(path)
    assert os.path.exists(path)


@pytest.mark.parametrize("error", [OSError("a search failed"), KeyboardInterrupt()])
def test_an_error_of_the_caller_passes_unchanged_and_leaves_nothing(path, error):
    with pytest.raises(type(error)) as caught, open_run(path, force=True) as run:
        run.add("q", hits(("d", 1.0)))
        raise error
    assert caught.value is error
    assert os.listdir(os.path.dirname(path)) == []


def test_an_error_while_overwriting_keeps_the_old_file(path):
    write_run(path, [("old", result(("d", 1.0)))])
    with pytest.raises(QueryError):
        write_run(path, [("new", result(("d", 1.0))), ("n w", result())], force=True)
    assert read(path).startswith("old ")


@pytest.mark.parametrize("force", [False, True])
def test_devices_and_folders_are_never_replaced(tmp_path, force):
    for target in [str(tmp_path), os.devnull]:
        with pytest.raises(ConfigError, match="is not a plain file"):
            write_run(target, [], force=force)
    assert stat.S_ISCHR(os.stat(os.devnull).st_mode)


def test_a_link_is_followed_not_replaced(tmp_path):
    (tmp_path / "target").write_text("old")
    (tmp_path / "link").symlink_to(tmp_path / "target")
    write_run(str(tmp_path / "link"), [("q", result(("d", 1.0)))], force=True)
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "target").read_text() == "q Q0 d 1 1.0 mvindex\n"


def test_a_folder_that_is_not_there_is_named(tmp_path):
    path = str(tmp_path / "no" / "run")
    with pytest.raises(ConfigError, match=f"^{path}: cannot be written: No such file"):
        write_run(path, [])


def test_a_full_disk_is_named(monkeypatch):
    class FullDisk(io.StringIO):
        def writelines(self, lines):
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("sys.stdout", FullDisk())
    with pytest.raises(ConfigError, match="^stdout: cannot be written: No space left"), open_run("-") as run:
        run.add("q", hits(("d", 1.0)))


def test_a_dash_writes_to_stdout(capsys):
    write_run("-", [("q", result(("d", 1.0)))])
    assert capsys.readouterr().out == "q Q0 d 1 1.0 mvindex\n"
