"""Which format training data has, told by its content."""

from __future__ import annotations

import os

from mvindex.corpus.streams import stream_name
from mvindex.errors import CorpusError
from mvindex_train.data.options import TrainingFormat
from mvindex_train.data.readers.beir import is_beir
from mvindex_train.data.readers.objects import glimpse, top_level_names

# The fields that tell a format of JSON objects, the most telling first.
TELLING_FIELDS = (
    ({"data"}, TrainingFormat.SQUAD),
    ({"positive_ctxs"}, TrainingFormat.DPR),
    ({"positive_passages"}, TrainingFormat.TEVATRON),
    ({"question_id", "positives"}, TrainingFormat.EXAMPLES),
    ({"passage", "question"}, TrainingFormat.PAIRS),
    ({"passage_id", "question"}, TrainingFormat.QUESTIONS),
    ({"passage_id", "text"}, TrainingFormat.QUESTIONS),
)


def detect(path: str) -> TrainingFormat:
    """The format of a file or folder; CorpusError, which names what was found, when it is none that is read.

    A folder is BEIR's, or that of the shared collections; a JSON array is DPR's; other JSON is told by the names in
    its first object; three columns are triples, of ids where no cell of the first line holds a space.
    """
    if is_beir(path):
        return TrainingFormat.BEIR
    if os.path.isdir(path):
        return _detect_folder(path)
    begin = glimpse(path)
    if not begin:
        raise CorpusError(f"{stream_name(path)}: is empty; wanted training data")
    if begin[:1] == b"[":
        return TrainingFormat.DPR
    return _detect_object(path) if begin[:1] == b"{" else _detect_columns(path, begin)


def _detect_folder(path: str) -> TrainingFormat:
    if os.path.isfile(os.path.join(path, "squad", "passages.tsv")):
        return TrainingFormat.SHARED
    raise CorpusError(f"{path}: is a folder without corpus.jsonl; wanted a BEIR folder, or name a file in it")


def _detect_object(path: str) -> TrainingFormat:
    names = top_level_names(path)
    for wanted, format in TELLING_FIELDS:
        if wanted <= set(names):
            return format
    raise CorpusError(
        f"{stream_name(path)}: the first object has the fields {', '.join(names) or 'none'}; wanted those of SQuAD "
        '("data"), DPR ("positive_ctxs"), Tevatron ("positive_passages"), of pairs ("passage" and "question") or of '
        'questions ("question" and "passage_id")'
    )


def _detect_columns(path: str, begin: bytes) -> TrainingFormat:
    cells = begin.split(b"\n", 1)[0].strip(b"\r").split(b"\t")
    if len(cells) != 3:
        raise CorpusError(
            f"{stream_name(path)}: begins with {begin[:40].decode(errors='replace')!r}, {len(cells)} columns; wanted "
            "JSON, or three columns parted by tabs, `query<TAB>positive<TAB>negative`"
        )
    has_space = any(len(cell.split()) > 1 for cell in cells)
    return TrainingFormat.TRIPLES if has_space else TrainingFormat.TRIPLE_IDS
