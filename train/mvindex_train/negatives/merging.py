"""The negatives of an earlier file, by question: for a second round on both kinds (CAMVR's two-round negatives)."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence

from mvindex.errors import CorpusError
from mvindex_train.data.records import Example, load_example, numbered_examples, write_example
from mvindex_train.negatives.candidates import Candidate, candidate_of


class EarlierFile:
    """A file of `mvindex mine`, read by question id; memory holds one offset for each question. Close it after use.

    Its rows are copied to a temporary file, since a compressed one cannot be read from the middle. CorpusError, with
    file and line: a row that is no example, or has the id of another question.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        # question id -> line number, and offset in the copy, of each of its rows
        self._places: dict[str, list[tuple[int, int]]] = {}
        self._copy = tempfile.TemporaryFile(prefix="mvindex-earlier-")
        try:
            self._write()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Nothing; the copy is deleted."""
        self._copy.close()

    def negatives_of(self, example: Example) -> Sequence[Candidate]:
        """The question's earlier negatives, in their order; none where the file has not this question."""
        found: list[Candidate] = []
        for number, begin in self._places.get(example.question_id, []):
            place = f"{self._path}:{number}"
            self._copy.seek(begin)
            earlier = load_example(self._copy.readline().decode(), place)
            if earlier.question != example.question:
                raise CorpusError(
                    f"{place}: question {example.question_id!r} is {earlier.question[:60]!r} here, but "
                    f"{example.question[:60]!r} in the questions; wanted negatives of the same questions"
                )
            found += map(candidate_of, earlier.negatives)
        return found

    def _write(self) -> None:
        end = 0
        try:
            for number, example in numbered_examples(self._path):
                self._places.setdefault(example.question_id, []).append((number, end))
                end += write_example(example, self._copy)
            self._copy.flush()
        except OSError as err:
            raise CorpusError(f"{self._path}: cannot be copied to {tempfile.gettempdir()}: {err.strerror}") from err
