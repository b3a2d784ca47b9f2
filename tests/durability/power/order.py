"""The order of a durable write, as rules over the calls that strace recorded or over the announced steps.

First data, then names, then the commit that refers to them, then the acknowledgement; and nothing old is removed before
what replaces it is durable.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import NamedTuple

from tests.durability.power.cuts import Recording
from tests.durability.power.disk import Disk, File, Folder, Node
from tests.durability.power.strace import Call, Kind

# SQLite's own: the shared memory and the rollback journal need not last, the log has rules of its own.
_LOG = "-wal"
_TEMPORARY = ("-shm", "-journal", "writer.lock")
# It may name an older version than the catalog: only its first bytes, and its name, must last.
_MAY_BE_OLD = "acknowledged"
# What a removal is renamed to first.
_GONE = "gone-"


class Step(NamedTuple):
    """An announced step, or an acknowledgement. there: what was at the path: file, empty, folder or gone."""

    moment: str
    step: str
    there: str
    path: str


def order_faults(recording: Recording) -> Iterator[str]:
    """Yield where a call comes too early."""
    disk = Disk(recording.before)
    for number, call in enumerate(recording.calls):
        for rule in _RULES:
            yield from (f"call {number}, {call.kind.value} {call.path}: {what}" for what in rule(disk, call))
        disk.apply(call)


def _before_a_commit(disk: Disk, call: Call) -> Iterator[str]:
    """Check that all a transaction may refer to is durable before its first byte is written to the log."""
    if call.kind is Kind.WRITE and call.path.endswith(_LOG) and not _has_news(call.path, disk.find(call.path)):
        folder, database = PurePosixPath(call.path).parent, _name(call.path).removesuffix(_LOG)
        inside = (path for path in _unsynced(disk, {database}) if PurePosixPath(path).is_relative_to(folder))
        yield from (f"a commit begins, and {path} is not durable" for path in inside if not path.endswith(_LOG))


def _before_a_rename(disk: Disk, call: Call) -> Iterator[str]:
    """A file or folder is durable before it gets its final name."""
    if call.kind is Kind.RENAME and not _name(call.target).startswith(_GONE):
        inside = (path for path in _unsynced(disk) if PurePosixPath(path).is_relative_to(call.path))
        yield from (f"renamed, and {path} is not durable" for path in inside)


def _before_an_acknowledgement(disk: Disk, call: Call) -> Iterator[str]:
    """Everything is durable, including the log and the names of new files and folders."""
    if call.kind is Kind.MARK and call.path.startswith("ack "):
        yield from (f"acknowledged, and {path} is not durable" for path in _unsynced(disk))


def _before_the_log_is_cut(disk: Disk, call: Call) -> Iterator[str]:
    """The database is durable before its log is cut."""
    is_cut = call.kind in (Kind.TRUNCATE, Kind.UNLINK) or (call.kind is Kind.WRITE and call.offset == 0)
    if call.path.endswith(_LOG) and is_cut:
        path = call.path.removesuffix(_LOG)
        database = dict(disk.nodes()).get(path)  # gone, where both are being removed
        if isinstance(database, File) and database.changes:
            yield f"the log is cut, and {path} is not durable"


def _before_the_database_changes(disk: Disk, call: Call) -> Iterator[str]:
    """The log is durable before it is copied to the database."""
    if call.kind is Kind.WRITE:
        log = f"{call.path}{_LOG}"
        yield from (f"the database is written, and {path} is not durable" for path in _unsynced(disk) if path == log)


def _before_a_removal(disk: Disk, call: Call) -> Iterator[str]:
    """A replacement is durable before what it replaces is removed."""
    is_old = call.kind is Kind.UNLINK or (call.kind is Kind.RENAME and _name(call.target).startswith(_GONE))
    if is_old and not call.path.endswith((*_TEMPORARY, _LOG)):
        yield from (f"removed, and {path} is not durable" for path in _unsynced(disk) if not path.endswith(_LOG))


_RULES: Sequence[Callable[[Disk, Call], Iterator[str]]] = (
    _before_a_commit,
    _before_a_rename,
    _before_an_acknowledgement,
    _before_the_log_is_cut,
    _before_the_database_changes,
    _before_a_removal,
)


def _unsynced(disk: Disk, ignored: Collection[str] = ()) -> Iterator[str]:
    """Yield files with bytes, and folders with names that are not ignored, that a power cut could lose."""
    nodes = dict(disk.nodes())
    for path, node in nodes.items():
        log = nodes.get(f"{path}{_LOG}")
        # A database may lose what its log still contains: a log that a reader needs is copied and not cut.
        is_logged = isinstance(log, File) and bool(log.current)
        if isinstance(node, File) and not is_logged and _has_news(path, node):
            yield path
        if isinstance(node, Folder) and any(name not in ignored for change in node.changes for name in _added(change)):
            yield path


def _has_news(path: str, file: File) -> bool:
    """Return whether the changes of the file must last; that a log was cut need not."""
    if path.endswith(_TEMPORARY) or (_name(path) == _MAY_BE_OLD and file.durable):
        return False
    return any(call.kind is Kind.WRITE for call in file.changes) if path.endswith(_LOG) else bool(file.changes)


def _added(change: Mapping[str, Node | None]) -> Iterator[str]:
    """Yield the names that the change gives to what must last."""
    for name, node in change.items():
        is_empty_log = name.endswith(_LOG) and isinstance(node, File) and not node.current
        if node is not None and not name.endswith(_TEMPORARY) and not name.startswith(_GONE) and not is_empty_log:
            yield name


def steps_in(marks: Sequence[str]) -> list[Step]:
    """Return the steps and acknowledgements in the marks of a case."""
    lines = (line.split(" ", 4) for line in marks)
    return [Step(*words[1:]) if words[0] == "step" else Step("after", "ack", "there", words[1]) for words in lines]


def step_faults(steps: Sequence[Step]) -> Iterator[str]:
    """Yield where an announced step comes too early."""
    unsynced = dict[str, None]()
    for number, step in enumerate(steps):
        if step.step == "ack" or (step.moment == "before" and step.step in ("commit", "rename", "remove")):
            # The first name of a file may be lost with other changes of its folder: the next fsync keeps both.
            relevant = (path for path in unsynced if step.step != "rename" or path != _parent(step.path))
            yield from (f"step {number}, {step.step} {step.path}: {path} is not durable" for path in relevant)
        unsynced |= dict.fromkeys(_made_unsynced(step))
        if (step.moment, step.step) == ("after", "fsync"):
            for path in (step.path, f"{_parent(step.path)}/*"):
                unsynced.pop(path, None)


def _made_unsynced(step: Step) -> Iterator[str]:
    """Yield what must be fsynced after the step: bytes, and names of what is new."""
    is_new = step.there in ("gone", "empty", "folder")
    if (step.moment, step.step) == ("before", "write") and (is_new or _name(step.path) != _MAY_BE_OLD):
        yield step.path
        if is_new:
            yield _parent(step.path)
        if step.there == "folder":
            yield f"{step.path}/*"
    if (step.moment, step.step) == ("after", "rename") and step.there != "gone":
        yield _parent(step.path)


def _parent(path: str) -> str:
    return str(PurePosixPath(path).parent)


def _name(path: str) -> str:
    return PurePosixPath(path).name
