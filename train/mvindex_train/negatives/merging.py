"""The negatives of an earlier file, by question: for a second round on both kinds (CAMVR's two-round negatives)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from mvindex.errors import CorpusError
from mvindex_train.data.records import Example, load_example
from mvindex_train.negatives.candidates import Candidate, candidate_of


class EarlierFile:
    """A file of `mvindex mine`, read by question id; memory holds one offset for each question. Close it after use.

    CorpusError, with file and line: a row that is no example, or has the id of another question.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        try:
            self._file = Path(path).open("rb")
        except OSError as err:
            raise CorpusError(f"{path}: cannot be read: {err.strerror or err}; wanted a file of mvindex mine") from err
        # question id -> line number and offset of each of its rows
        self._places: dict[str, list[tuple[int, int]]] = {}
        try:
            self._find_questions()
        except CorpusError:
            self.close()
            raise

    def close(self) -> None:
        """Nothing; the file is closed afterwards."""
        self._file.close()

    def negatives_of(self, example: Example) -> Sequence[Candidate]:
        """The question's earlier negatives, in their order; none where the file has not this question."""
        found: list[Candidate] = []
        for number, begin in self._places.get(example.question_id, []):
            self._file.seek(begin)
            earlier = self._parse(self._file.readline(), number)
            if earlier.question != example.question:
                raise CorpusError(
                    f"{self._path}:{number}: question {example.question_id!r} is {earlier.question[:60]!r} here, but "
                    f"{example.question[:60]!r} in the questions; wanted negatives of the same questions"
                )
            found += map(candidate_of, earlier.negatives)
        return found

    def _find_questions(self) -> None:
        begin = 0
        for number, line in enumerate(self._file, start=1):
            if line.strip():
                self._places.setdefault(self._parse(line, number).question_id, []).append((number, begin))
            begin += len(line)

    def _parse(self, line: bytes, number: int) -> Example:
        place = f"{self._path}:{number}"
        try:
            return load_example(line.decode("utf-8"), place)
        except UnicodeDecodeError as err:
            raise CorpusError(f"{place}: byte {err.start + 1} of the line is not valid UTF-8") from err
