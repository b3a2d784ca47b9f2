"""Keeps the documents of a folder's files in an index in step with the folder."""

from mvindex.sync.options import SyncHooks, SyncOptions
from mvindex.sync.report import SyncReport
from mvindex.sync.run import sync_folder

__all__ = ["SyncHooks", "SyncOptions", "SyncReport", "sync_folder"]
