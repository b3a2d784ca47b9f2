"""Negatives of an earlier file by question, for a second round with both kinds (CAMVR's two rounds)."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence

from mvindex.errors import CorpusError
from mvindex_train.data.records import Example, load_example, read_numbered_examples, write_example
from mvindex_train.negatives.candidates import Candidate, candidate_of


class EarlierFile:
    """A file of `mvindex mine`, read by question id, with one offset in memory for each row; close it after use.

    Its rows are copied to a temporary file, as a compressed file has no random access. Raises CorpusError, with file
    and line, for an invalid row or one with the id of another question.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        # By question id: line number and offset in the copy of each row.
        self._rows: dict[str, list[tuple[int, int]]] = {}
        self._copy = tempfile.TemporaryFile(prefix="mvindex-earlier-")
        try:
            self._write()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close and delete the copy."""
        self._copy.close()

    def negatives_of(self, example: Example) -> Sequence[Candidate]:
        """Return the question's earlier negatives in order; none where the file does not contain the question."""
        negatives: list[Candidate] = []
        for number, begin in self._rows.get(example.question_id, []):
            place = f"{self._path}:{number}"
            self._copy.seek(begin)
            earlier = load_example(self._copy.readline().decode(), place)
            if earlier.question != example.question:
                raise CorpusError(
                    f"{place}: question {example.question_id!r}: expected {example.question[:60]!r}, got "
                    f"{earlier.question[:60]!r}. Merge a file of the same questions"
                )
            negatives += map(candidate_of, earlier.negatives)
        return negatives

    def _write(self) -> None:
        end = 0
        try:
            for number, example in read_numbered_examples(self._path):
                self._rows.setdefault(example.question_id, []).append((number, end))
                end += write_example(example, self._copy)
            self._copy.flush()
        except OSError as err:
            raise CorpusError(f"{self._path}: cannot be copied to {tempfile.gettempdir()}: {err.strerror}") from err
