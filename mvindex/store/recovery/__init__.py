"""The records of a damaged SQLite database, found page by page without SQLite, its schema or its interior pages.

Whether a record is right is for the caller to say: each row of a catalog carries its own checksum. File format:
https://www.sqlite.org/fileformat2.html; text is UTF-8 and no bytes are reserved at the end of pages.
"""

from mvindex.store.recovery.records import Kind, Record, Source, Value
from mvindex.store.recovery.scan import RecordScan, scan_records

__all__ = ["Kind", "Record", "RecordScan", "Source", "Value", "scan_records"]
