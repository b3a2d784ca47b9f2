"""Detection of the format of training data from its content."""

from __future__ import annotations

import os

from mvindex.corpus.inputs import stream_name
from mvindex.errors import CorpusError
from mvindex_train.data.options import TrainingFormat
from mvindex_train.data.readers.beir import is_beir
from mvindex_train.data.readers.objects import first_object_keys, peek

# Keys that identify a format of JSON objects, the most specific first.
FORMAT_KEYS = (
    ({"data"}, TrainingFormat.SQUAD),
    ({"positive_ctxs"}, TrainingFormat.DPR),
    ({"positive_passages"}, TrainingFormat.TEVATRON),
    ({"question_id", "positives"}, TrainingFormat.EXAMPLES),
    ({"passage", "question"}, TrainingFormat.PAIRS),
    ({"passage_id", "question"}, TrainingFormat.QUESTIONS),
    ({"passage_id", "text"}, TrainingFormat.QUESTIONS),
)


def detect(path: str) -> TrainingFormat:
    """Return the format of a file or folder.

    A folder is BEIR's; a JSON array is DPR's; other JSON is recognised by the keys of its first object; three columns
    are triples, of ids where no cell of the first line contains a space.

    Raises:
        CorpusError: The content is in none of these formats; the message says what it contains.

    """
    if is_beir(path):
        return TrainingFormat.BEIR
    if os.path.isdir(path):
        raise CorpusError(f"{path}: expected a BEIR folder, got a folder without corpus.jsonl. Name a file in it")
    start = peek(path)
    if not start:
        raise CorpusError(f"{stream_name(path)}: expected training data, got an empty file")
    if start[:1] == b"[":
        return TrainingFormat.DPR
    return _detect_object(path) if start[:1] == b"{" else _detect_columns(path, start)


def _detect_object(path: str) -> TrainingFormat:
    keys = first_object_keys(path)
    for required, format in FORMAT_KEYS:
        if required <= set(keys):
            return format
    raise CorpusError(
        f'{stream_name(path)}: expected the fields of SQuAD ("data"), DPR ("positive_ctxs"), Tevatron '
        '("positive_passages"), of pairs ("passage" and "question") or of questions ("question" and "passage_id"), '
        f"got {', '.join(keys) or 'none'} in the first object"
    )


def _detect_columns(path: str, start: bytes) -> TrainingFormat:
    cells = start.split(b"\n", 1)[0].strip(b"\r").split(b"\t")
    if len(cells) != 3:
        raise CorpusError(
            f"{stream_name(path)}: expected JSON, or three columns separated by tabs, "
            f"`query<TAB>positive<TAB>negative`; got {len(cells)} columns, {start[:40].decode(errors='replace')!r}"
        )
    has_space = any(len(cell.split()) > 1 for cell in cells)
    return TrainingFormat.TRIPLES if has_space else TrainingFormat.TRIPLE_IDS
