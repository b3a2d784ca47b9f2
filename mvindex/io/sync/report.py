"""The report of a sync: what was done, and whether the index equals the folder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from mvindex.corpus import LeftOut
from mvindex.io.sync.digest import Digest, digest_of_files

_SHOWN_FILES = 20


@dataclass(slots=True, kw_only=True)
class SyncReport:
    """The result of a sync.

    Attributes:
        folder: The folder, absolute.
        name: What ids begin with.
        added, changed, unchanged, deleted: Numbers of files.
        renamed: Of the files added, those that had another path before, by their new one.
        encoded: Number of documents that were encoded, or took vectors of others. In a dry run or check all numbers are
            of what would be done.
        views_encoded, views_reused: Of their views, those that were encoded, and those whose vectors were taken from
            the passages that they replace; 0 in a dry run.
        updated: Number of documents of which only metadata changed.
        removed: Number of documents deleted.
        rejected: The files that cannot be read, with the reason. Their old passages stay.
        stale: Those of them that have old passages in the index.
        rejected_rows: Number of rows of otherwise good files that are no documents, or whose id another row has.
        warnings: Number of things that are wrong in files that were read all the same.
        left_out: The files that are not read, counted by reason.
        in_folder, in_index: The passages of each file, computed from the folder's files and from the index's documents.
        is_dry: Whether nothing was to be changed.
        stopped: Whether the run was stopped before the end.
        seconds: Duration.

    """

    folder: str
    name: str
    added: int = 0
    changed: int = 0
    unchanged: int = 0
    deleted: int = 0
    renamed: dict[str, str] = field(default_factory=dict)
    encoded: int = 0
    views_encoded: int = 0
    views_reused: int = 0
    updated: int = 0
    removed: int = 0
    rejected: dict[str, str] = field(default_factory=dict)
    stale: list[str] = field(default_factory=list)
    rejected_rows: int = 0
    warnings: int = 0
    left_out: LeftOut = field(default_factory=LeftOut)
    in_folder: Mapping[str, Digest] = field(default_factory=dict)
    in_index: Mapping[str, Digest] = field(default_factory=dict)
    is_dry: bool = False
    stopped: bool = False
    seconds: float = 0.0

    @property
    def equal(self) -> bool:
        """Return whether the index holds the passages of the folder's readable files, all of them and no others.

        False after a run that was stopped: it has not read every file.
        """
        return not self.stopped and self.in_folder == self.in_index

    @property
    def is_complete(self) -> bool:
        """Return whether the index equals the folder, and nothing of the folder was rejected."""
        return self.equal and not (self.rejected or self.rejected_rows)

    @property
    def differing(self) -> list[str]:
        """Return the files whose passages in the index are not those of the folder; when stopped, of those read."""
        files = self.in_folder.keys() | (set() if self.stopped else self.in_index.keys())
        return sorted(file for file in files if self.in_folder.get(file) != self.in_index.get(file))

    def as_json(self) -> dict[str, Any]:
        """Return the report as a JSON object."""
        differing = self.differing
        return {
            "folder": self.folder,
            "name": self.name,
            "files_added": self.added,
            "files_changed": self.changed,
            "files_unchanged": self.unchanged,
            "files_deleted": self.deleted,
            "files_renamed": self.renamed,
            "documents_encoded": self.encoded,
            "views_encoded": self.views_encoded,
            "views_reused": self.views_reused,
            "documents_updated": self.updated,
            "documents_deleted": self.removed,
            "left_out": dict(self.left_out.counts),
            "rejected": self.rejected,
            "rejected_rows": self.rejected_rows,
            "warnings": self.warnings,
            "stale": self.stale,
            "dry_run": self.is_dry,
            "stopped": self.stopped,
            "in_folder": _side(self.in_folder),
            "in_index": _side(self.in_index),
            "equal": self.equal,
            "differing": len(differing),
            "differing_files": differing[:_SHOWN_FILES],
            "seconds": round(self.seconds, 2),
        }


def _side(digests: Mapping[str, Digest]) -> dict[str, Any]:
    return {
        "files": len(digests),
        "passages": sum(digest.passages for digest in digests.values()),
        "hash": digest_of_files(digests),
    }
