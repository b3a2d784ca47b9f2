"""The order that a durable write keeps, as rules over the calls that strace saw or over the steps that are announced.

Data first, then names, then the commit that speaks of them, then the acknowledgement; and nothing old goes before what
takes its place is there for good.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import NamedTuple

from disk_model import Disk, File, Folder, Node
from power_cuts import Recording
from strace_log import Call, Kind

# SQLite's own: the shared memory and the rollback journal outlive nothing, the log is under rules of its own.
_LOG = "-wal"
_OF_NO_ACCOUNT = ("-shm", "-journal", "writer.lock")
# It may name an older version than the catalog: only its first bytes, and its name, must last.
_MAY_BE_OLD = "acknowledged"
# What a removal is renamed to first.
_GONE = "gone-"


class Step(NamedTuple):
    """An announced step, or an acknowledgement. there: what stood at the path: file, empty, folder or gone."""

    moment: str
    step: str
    there: str
    path: str


def order_faults(recording: Recording) -> Iterator[str]:
    """Where a call comes too early, in the order of calls."""
    disk = Disk(recording.before)
    for number, call in enumerate(recording.calls):
        for rule in _RULES:
            yield from (f"call {number}, {call.kind.value} {call.path}: {what}" for what in rule(disk, call))
        disk.apply(call)


def _before_a_commit(disk: Disk, call: Call) -> Iterator[str]:
    """What a transaction may speak of is durable before the first byte of it goes to the log."""
    if call.kind is Kind.WRITE and call.path.endswith(_LOG) and not _has_news(call.path, disk.find(call.path)):
        folder, database = PurePosixPath(call.path).parent, _name(call.path).removesuffix(_LOG)
        inside = (path for path in _unsynced(disk, {database}) if PurePosixPath(path).is_relative_to(folder))
        yield from (f"a commit begins, and {path} is not durable" for path in inside if not path.endswith(_LOG))


def _before_a_rename(disk: Disk, call: Call) -> Iterator[str]:
    """What gets its final name is durable already."""
    if call.kind is Kind.RENAME and not _name(call.target).startswith(_GONE):
        inside = (path for path in _unsynced(disk) if PurePosixPath(path).is_relative_to(call.path))
        yield from (f"renamed, and {path} is not durable" for path in inside)


def _before_an_acknowledgement(disk: Disk, call: Call) -> Iterator[str]:
    """All is durable, the log and the names of new files and folders too."""
    if call.kind is Kind.MARK and call.path.startswith("ack "):
        yield from (f"acknowledged, and {path} is not durable" for path in _unsynced(disk))


def _before_the_log_is_cut(disk: Disk, call: Call) -> Iterator[str]:
    """The database holds for good what its log held."""
    is_cut = call.kind in (Kind.TRUNCATE, Kind.UNLINK) or (call.kind is Kind.WRITE and call.offset == 0)
    if call.path.endswith(_LOG) and is_cut:
        path = call.path.removesuffix(_LOG)
        database = dict(disk.nodes()).get(path)  # gone, where both are being removed
        if isinstance(database, File) and database.changes:
            yield f"the log is cut, and {path} is not durable"


def _before_the_database_changes(disk: Disk, call: Call) -> Iterator[str]:
    """The log holds for good what is copied from it."""
    if call.kind is Kind.WRITE:
        log = f"{call.path}{_LOG}"
        yield from (f"the database is written, and {path} is not durable" for path in _unsynced(disk) if path == log)


def _before_a_removal(disk: Disk, call: Call) -> Iterator[str]:
    """What takes the place of something that goes is durable."""
    is_old = call.kind is Kind.UNLINK or (call.kind is Kind.RENAME and _name(call.target).startswith(_GONE))
    if is_old and not call.path.endswith((*_OF_NO_ACCOUNT, _LOG)):
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
    """Files with bytes, and folders with names other than the ignored, that a power cut could take away."""
    nodes = dict(disk.nodes())
    for path, node in nodes.items():
        log = nodes.get(f"{path}{_LOG}")
        # What its log still holds a database may lose: a log that a reader needs is copied, and not cut.
        is_held = isinstance(log, File) and bool(log.current)
        if isinstance(node, File) and not is_held and _has_news(path, node):
            yield path
        if isinstance(node, Folder) and any(name not in ignored for change in node.changes for name in _added(change)):
            yield path


def _has_news(path: str, file: File) -> bool:
    """True when the file's changes must last; that its log was cut is nothing to SQLite."""
    if path.endswith(_OF_NO_ACCOUNT) or (_name(path) == _MAY_BE_OLD and file.durable):
        return False
    return any(call.kind is Kind.WRITE for call in file.changes) if path.endswith(_LOG) else bool(file.changes)


def _added(change: Mapping[str, Node | None]) -> Iterator[str]:
    """The names that the change gives to something that must last."""
    for name, node in change.items():
        is_empty_log = name.endswith(_LOG) and isinstance(node, File) and not node.current
        if node is not None and not name.endswith(_OF_NO_ACCOUNT) and not name.startswith(_GONE) and not is_empty_log:
            yield name


def steps_in(marks: Sequence[str]) -> list[Step]:
    """The steps and acknowledgements that a job told."""
    lines = (line.split(" ", 4) for line in marks)
    return [Step(*words[1:]) if words[0] == "step" else Step("after", "ack", "there", words[1]) for words in lines]


def step_faults(steps: Sequence[Step]) -> Iterator[str]:
    """Where an announced step comes too early."""
    unsynced = dict[str, None]()
    for number, step in enumerate(steps):
        if step.step == "ack" or (step.moment == "before" and step.step in ("commit", "rename", "remove")):
            # A file's first name may be lost with its folder's other news: the fsync after the rename brings both.
            mattering = (path for path in unsynced if step.step != "rename" or path != _parent(step.path))
            yield from (f"step {number}, {step.step} {step.path}: {path} is not durable" for path in mattering)
        unsynced |= dict.fromkeys(_made_unsynced(step))
        if (step.moment, step.step) == ("after", "fsync"):
            for path in (step.path, f"{_parent(step.path)}/*"):
                unsynced.pop(path, None)


def _made_unsynced(step: Step) -> Iterator[str]:
    """What must be fsynced after the step: bytes, and names of what is new."""
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
