"""Words survive kill -9 with their documents, or go with them."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import lexical_reference as slow
import pytest

import mvindex

# Adds ten documents a commit, replaces some, compacts now and then; says what it has acknowledged.
_WRITER = """
import sys
import lexical_reference as slow
import mvindex
with mvindex.open(sys.argv[1]) as index:
    for step in range(1000):
        index.add_views(*slow.corpus(10, seed=step, prefix=f"{step % 7}-"))
        if step % 5 == 4:
            index.delete(ids=[f"{step % 7}-{step % 10}"])
            index.enable_lexical("unicode") if step % 2 else index.compact()
        print(step, flush=True)
"""


@pytest.mark.parametrize("commits", [1, 7, 9, 24])
def test_after_kill_9_words_are_those_of_the_documents_that_are_there(tmp_path, commits):
    path = tmp_path / "a.mvx"
    mvindex.create(path, dim=4, lexical="unicode").close()
    writer = subprocess.Popen(
        [sys.executable, "-c", _WRITER, str(path)],
        stdout=subprocess.PIPE,
        text=True,
        env={"PYTHONPATH": ":".join([str(Path(__file__).parent), *sys.path])},
    )
    try:
        for _ in range(commits):
            assert writer.stdout.readline()
        time.sleep(0.003 * commits)  # somewhere inside the next
    finally:
        writer.send_signal(signal.SIGKILL)
        writer.wait()
        writer.stdout.close()
    with mvindex.open(path) as index:
        assert len(index) >= 10
        for question in ("oil", "war river embargo"):
            want = {doc_id: score for doc_id, score in slow.bm25(list(index), question).items() if score > 0}
            found = {hit.id: hit.score for hit in index.search(question, 1000, mode="lexical").hits}
            assert found == pytest.approx(want, rel=2.0**-22)
        assert index.verify().is_sound
        index.add_views(*slow.corpus(3, seed=5, prefix="after"))
        assert index.verify().is_sound
