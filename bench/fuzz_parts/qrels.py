"""Relevance judgements in both shapes, against a plain reading line by line."""

import io
import re
from pathlib import Path

from fuzz_parts.target import Limits, require
from mvindex.errors import CorpusError
from mvindex.measure.questions import read_qrels

_HEADER = ["query-id", "corpus-id", "score"]


def open_target(name: str, folder: Path):
    return Qrels(folder)


class Qrels(Limits):
    """A file of judgements."""

    name = "qrels"
    refusals = (CorpusError,)
    extra_mib = 32
    tokens = (b"\t", b"\n", b"\r\n", b" ", b"query-id\tcorpus-id\tscore\n", b"1\td1\t2\n", b"1 0 d1 0\n", b"-1", b"+1",
              b"1.0", b"\0", b"\xff", b"\xef\xbb\xbf", b"\xd9\xa1", b"\xc2\x85", b"\x1c", b"0x1", b"1_0")  # fmt: skip

    def __init__(self, folder: Path) -> None:
        self._path = folder / "qrels"

    def seeds(self) -> list[bytes]:
        return [
            b"query-id\tcorpus-id\tscore\nq1\td1\t1\nq1\td2\t0\nq2\td1\t-2\n", b"1\td1\t2\r\n2\td2\t1",
            b"301 0 FBIS3-1 1\n301 0 FBIS3-2 0\n\n302\t0\tFT-1\t+2\n", b"\xef\xbb\xbf1 Q0 d 1\n",
        ]  # fmt: skip

    def check(self, data: bytes) -> None:
        self._path.write_bytes(data)
        wanted = _plain(data)
        try:
            found = read_qrels(str(self._path))
        except CorpusError as err:
            require(wanted is None, "refused:", f"{err}", "wanted", wanted)
            raise
        require(found == wanted, "read", found, "wanted", wanted)


def _plain(data: bytes) -> dict[str, dict[str, int]] | None:
    """Return the judgements; None where a line is none."""
    found: dict[str, dict[str, int]] = {}
    is_beir = False
    for line in io.BytesIO(data.removeprefix(b"\xef\xbb\xbf")).readlines():
        try:
            text = line.removesuffix(b"\n").removesuffix(b"\r").decode()
        except UnicodeDecodeError:
            return None
        if "\0" in text:
            return None
        cells = [cell.strip() for cell in text.split("\t")]
        if not text.strip() or (not found and cells == _HEADER):
            continue
        is_beir = is_beir if found else len(cells) == 3
        cells = cells if is_beir else text.split()
        if len(cells) != (3 if is_beir else 4) or not all(cells) or not re.fullmatch("[+-]?[0-9]{1,9}", cells[-1]):
            return None
        judged = found.setdefault(cells[0], {})
        if cells[-2] in judged:
            return None
        judged[cells[-2]] = int(cells[-1])
    return found or None
