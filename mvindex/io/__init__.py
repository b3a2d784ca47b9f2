"""Indexes and the files that others keep: what people have is imported, what an index holds is given back.

export.py lays an index out (parquet.py, arrays.py, texts.py write the files, manifest.py says what they hold).
import_.py makes an index of vectors: those of Parquet, NumPy and JSON Lines files (files.py, with parquet_rows.py,
array_rows.py and json_rows.py), and those that only a process with limits may read (limited.py starts it, confined.py
is inside it), such as DPR's pickles (dpr.py starts safe_pickle.py). Texts that stand apart are joined in join.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mvindex.io.dpr import import_dpr
    from mvindex.io.export import ExportReport, export_index
    from mvindex.io.files import import_vectors
    from mvindex.io.import_ import ImportReport, Target
    from mvindex.io.join import Texts
    from mvindex.io.validation import Columns, Missing

__all__ = [
    "Columns",
    "ExportReport",
    "ImportReport",
    "Missing",
    "Target",
    "Texts",
    "export_index",
    "import_dpr",
    "import_vectors",
]

# Loaded on first use: a process with limits needs none of them.
_LATE = {
    "Columns": "validation",
    "ExportReport": "export",
    "ImportReport": "import_",
    "Missing": "validation",
    "Target": "import_",
    "Texts": "join",
    "export_index": "export",
    "import_dpr": "dpr",
    "import_vectors": "files",
}


def __getattr__(name: str) -> Any:
    if name not in _LATE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_LATE[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
