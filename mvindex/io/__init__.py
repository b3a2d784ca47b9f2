"""Import of vectors from files of other tools, and export of indexes to such files.

export.py lays an index out in files; manifest.py says what they hold. import_.py makes an index of vectors: those of
Parquet, NumPy and JSON Lines files (parquet_rows.py, array_rows.py), and DPR's pickles (dpr.py, with safe_pickle.py,
which runs nothing in them). staging.py checks them, and joins them with texts in other files.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mvindex.plugins import lazy_names

if TYPE_CHECKING:
    from mvindex.io.dpr import import_dpr
    from mvindex.io.export import ExportReport, export_index
    from mvindex.io.import_ import ImportReport, Target, import_vectors
    from mvindex.io.staging import Columns, MissingPolicy, Texts

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
__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "Columns": "staging",
        "ExportReport": "export",
        "ImportReport": "import_",
        "MissingPolicy": "staging",
        "Target": "import_",
        "Texts": "staging",
        "export_index": "export",
        "import_dpr": "dpr",
        "import_vectors": "import_",
    },
)
