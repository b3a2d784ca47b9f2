"""Import of DPR's embeddings, pickled lists of pairs (id, vector): `mvindex import dpr`."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Sequence
from pathlib import Path

from mvindex.corpus.paths import expand_local_paths
from mvindex.errors import CorpusError
from mvindex.io.import_ import ImportReport, Target, check_target, compute_mark, fill, spool_folder
from mvindex.io.safe_pickle import read_pickled_vectors
from mvindex.io.staging import Spool, Texts, VectorTable, check_id, join_texts
from mvindex.records import ProgressCallback, no_progress

ID_PREFIX = "wiki:"
_NUMBERED = re.compile(r"(.*_)([0-9]+)(\.\w+)?")


def import_dpr(  # noqa: PLR0913 - each argument is a choice of the caller
    files: Sequence[str | os.PathLike[str]],
    target: Target,
    texts: Texts | None = None,
    *,
    id_prefix: str = ID_PREFIX,
    on_progress: ProgressCallback = no_progress,
) -> ImportReport:
    """Make an index with a document of one view for each pair of DPR's files; run nothing that the files name.

    Args:
        files: What DPR's generate_dense_embeddings.py writes: NAME_0, NAME_1, ...
        target: The new index.
        texts: The corpus that the vectors were made from; documents without texts by default.
        id_prefix: Removed from ids that begin with it.
        on_progress: Called with the step, the count done and the total.

    Returns:
        The counts of the import.

    Raises:
        CorpusError: A file is anything but pairs of ids and vectors, or ids and texts do not match; no index is made.

    """
    texts = texts or Texts()
    check_target(target)
    paths = sort_by_number(expand_local_paths([os.fspath(file) for file in files]))
    folder = spool_folder(target) or Path(tempfile.gettempdir())
    with Spool(folder) as spool, VectorTable() as table:
        for number, path in enumerate(paths, start=1):
            begin = table.num_rows
            for block in read_pickled_vectors(path):
                spool.add(path, block.vectors)
                ids = enumerate((one.removeprefix(id_prefix) for one in block.ids), start=table.num_rows - begin)
                table.add_ids([check_id(f"{path}: item {item}", doc_id) for item, doc_id in ids])
            on_progress("reading files", number, len(paths))
        twice = table.find_repeated()
        if twice is not None:
            rows = " and ".join(f"{row:,}" for row in twice[1][:2])
            raise CorpusError(f"id {twice[0]!r} has {len(twice[1])} vectors (numbers {rows} of all); DPR gives one")
        table.matrix = spool.matrix()
        source = join_texts(table, texts, on_progress)
        mark = compute_mark(
            [*paths, *_corpus_paths(texts)], "dpr", id_prefix, target.dtype, texts.missing.value, texts.options
        )
        return fill(target, source, mark, on_progress)


def sort_by_number(paths: Sequence[str]) -> list[str]:
    """Return the files ordered by number where all are named NAME_NUMBER or NAME_NUMBER.pkl, else in their order."""
    found = [one for one in map(_NUMBERED.fullmatch, paths) if one]
    if len(found) == len(paths) and len({(one[1], one[3]) for one in found}) == 1:
        return [one[0] for one in sorted(found, key=lambda one: int(one[2]))]
    return list(paths)


def _corpus_paths(texts: Texts) -> list[str]:
    return [] if texts.files is None else expand_local_paths(list(texts.files))
