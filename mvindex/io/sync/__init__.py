"""Keeps the documents of a folder's files in an index in step with the folder."""

from mvindex.io.sync.report import SyncHooks, SyncOptions, SyncReport
from mvindex.io.sync.run import sync_folder

__all__ = ["SyncHooks", "SyncOptions", "SyncReport", "sync_folder"]
