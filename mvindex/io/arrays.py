"""Exports as NumPy files: vectors.npy, the id of each of its rows, and the documents as JSON Lines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

import numpy as np

from mvindex.io.texts import document_rows, open_text, write_line
from mvindex.store.embedded import Batch
from mvindex.store.views import ViewType


def write_arrays(paths: Sequence[Path], view_type: ViewType, batches: Iterator[Batch]) -> None:
    """Nothing; the three files hold all views (r, d), the id of the document of each on a line, and the documents."""
    vectors, ids, documents = paths
    shape = (0, 0)
    with open(vectors, "wb") as rows, open_text(ids) as names, open_text(documents) as lines:
        for batch in batches:
            dim = batch.views.rows.shape[1]
            if not shape[1]:
                _write_header(rows, view_type, (0, dim))
            rows.write(batch.views.rows.astype(view_type.dtype).data)
            shape = (shape[0] + len(batch.views.rows), dim)
            counts = np.diff(batch.views.starts).tolist()
            names.writelines(f"{doc.id}\n" * count for doc, count in zip(batch.documents, counts, strict=True))
            for row, count in zip(document_rows(batch), counts, strict=True):
                write_line(lines, {**row, "views": count})
        # NumPy leaves room in the header for a first axis that grows: the two have one length.
        rows.seek(0)
        _write_header(rows, view_type, shape)


def _write_header(file: BinaryIO, view_type: ViewType, shape: tuple[int, int]) -> None:
    header = {"descr": np.lib.format.dtype_to_descr(view_type.dtype), "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(file, header)
