"""Import of vectors from files of other tools, and export of indexes to such files.

exporting.py lays an index out (parquet.py, arrays.py, texts.py write the files, manifest.py says what they hold).
importing.py makes an index of vectors: those of Parquet, NumPy and JSON Lines files (files.py, with parquet_rows.py,
array_rows.py and json_rows.py), and DPR's pickles (dpr.py, with pickled.py, which runs nothing in them).
Texts in other files are joined in joining.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mvindex.exchange.dpr import import_dpr
    from mvindex.exchange.exporting import ExportReport, export_index
    from mvindex.exchange.files import import_vectors
    from mvindex.exchange.given import Columns, MissingPolicy
    from mvindex.exchange.importing import ImportReport, Target
    from mvindex.exchange.joining import Texts

__all__ = [
    "Columns",
    "ExportReport",
    "ImportReport",
    "MissingPolicy",
    "Target",
    "Texts",
    "export_index",
    "import_dpr",
    "import_vectors",
]

# Loaded on first use: most commands need none of them.
_LAZY_EXPORTS = {
    "Columns": "given",
    "ExportReport": "exporting",
    "ImportReport": "importing",
    "MissingPolicy": "given",
    "Target": "importing",
    "Texts": "joining",
    "export_index": "exporting",
    "import_dpr": "dpr",
    "import_vectors": "files",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY_EXPORTS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_LAZY_EXPORTS[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
