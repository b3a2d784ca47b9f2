"""DPR's embeddings: `mvindex import dpr`. Pickled lists of pairs (id, vector), read in a process with limits."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Sequence
from pathlib import Path

from mvindex.corpus.paths import expand_paths
from mvindex.errors import CorpusError
from mvindex.io.import_ import ImportReport, Target, check_target, fill, mark_of, spool_folder
from mvindex.io.join import Texts, joined
from mvindex.io.limited import Reading, read_limited
from mvindex.io.staging_table import Spool, VectorTable
from mvindex.io.validation import Told, checked_id

ID_PREFIX = "wiki:"
_NUMBERED = re.compile(r"(.*_)([0-9]+)(\.\w+)?")


def import_dpr(  # noqa: PLR0913 - each argument is a choice of the caller
    files: Sequence[str | os.PathLike[str]],
    target: Target,
    texts: Texts | None = None,
    *,
    id_prefix: str = ID_PREFIX,
    memory_bytes: int | None = None,
    on_progress: Told = lambda what, done, total: None,
) -> ImportReport:
    """What was done: the index holds a document of one view for each pair of the files.

    files: what DPR's generate_dense_embeddings.py writes, name_0, name_1, ...; texts: the corpus that the vectors were
    made of. id_prefix: taken away from ids that begin with it. memory_bytes: what the process that reads one file may
    take, by default 2 GiB and four times the file. CorpusError names a file that is anything but pairs of ids and
    vectors, and nothing in it is run; then, or where ids and texts do not match, no index is made.
    """
    texts = texts or Texts()
    check_target(target)
    paths = in_numbers(expand_paths([os.fspath(file) for file in files]))
    reading = Reading(module="mvindex.io.safe_pickle", memory_bytes=memory_bytes)
    folder = spool_folder(target) or Path(tempfile.gettempdir())
    with Spool(folder) as spool, VectorTable() as table:
        for number, path in enumerate(paths, start=1):
            begin = table.num_rows
            for frame in read_limited(path, reading):
                spool.add(path, frame.vectors)
                ids = enumerate((str(one).removeprefix(id_prefix) for one in frame.ids), start=table.num_rows - begin)
                table.add_ids([checked_id(f"{path}: item {item}", doc_id) for item, doc_id in ids])
            on_progress("reading files", number, len(paths))
        twice = table.repeated()
        if twice is not None:
            rows = " and ".join(f"{row:,}" for row in twice[1][:2])
            raise CorpusError(f"id {twice[0]!r} has {len(twice[1])} vectors (numbers {rows} of all); DPR gives one")
        table.matrix = spool.matrix()
        source = joined(table, texts, on_progress)
        mark = mark_of(
            [*paths, *_corpus_paths(texts)], "dpr", id_prefix, target.dtype, texts.missing.value, texts.options
        )
        return fill(target, source, mark, on_progress)


def in_numbers(paths: Sequence[str]) -> list[str]:
    """The files by their numbers where all are called NAME_NUMBER, as DPR calls them; else as they were given.

    Those that DPR gives to download end in .pkl.
    """
    found = [one for one in map(_NUMBERED.fullmatch, paths) if one]
    if len(found) == len(paths) and len({(one[1], one[3]) for one in found}) == 1:
        return [one[0] for one in sorted(found, key=lambda one: int(one[2]))]
    return list(paths)


def _corpus_paths(texts: Texts) -> list[str]:
    return [] if texts.files is None else expand_paths(list(texts.files))
