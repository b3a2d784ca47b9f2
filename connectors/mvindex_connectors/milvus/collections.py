"""The collections of an index in Milvus: made, looked for and dropped, with the settings that they begin with."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from mvindex.errors import ConfigError, StoreError, Unsupported
from mvindex.store.lexical.tokenizer import StoredLexical
from mvindex_connectors.milvus.connection import Connection, terms_of, views_of
from mvindex_connectors.milvus.foreign import how_to_take_over
from mvindex_connectors.milvus.layout import (
    FORMAT,
    RECORD_FIELDS,
    SETTINGS_KEY,
    VIEW_FIELDS,
    description_of,
    record_schema,
    special_record,
    term_schema,
    view_schema,
)
from mvindex_connectors.milvus.lease import Lease
from mvindex_connectors.milvus.term_counts import TERMS_KEY, TermState
from mvindex_connectors.milvus.term_rows import TERM_FIELDS

_MARK = "mvindex"
# Of the settings of a collection whose index is in another one.
MOVED_FORMAT = 2


class Home(NamedTuple):
    """The collection that an index is in, and those that it was re-embedded out of and that are still there."""

    collection: str
    left: tuple[str, ...]


def create_store(connection: Connection, settings: Mapping[str, Any]) -> None:
    """Create an empty index, or complete a creation that was killed.

    The claim of a writer is held meanwhile, so that of two creators at a time one completes and the other is refused.

    Raises:
        ConfigError: A collection of the index's names exists.
        IndexLocked: Another process creates it.

    """
    name, dim = connection.address.collection, settings.get("dim")
    _check_free(connection)
    _make(connection, "making the collection of records", name, record_schema)
    connection.load(name)
    lease = Lease(connection)
    with lease.hold():
        connection = connection.guarded(lease.check_kept)
        # Under the claim: another creator may have come first.
        _check_free(connection)
        lease.check()
        drop_collection(connection, views_of(name))
        if dim is not None:
            make_views(connection, int(dim))
        chosen = dict(settings)
        if kind := settings.get("lexical"):
            lease.check()
            make_terms(connection)
            chosen |= lexical_settings(StoredLexical(StoredLexical.parse(kind).kind), TermState())
        lease.check()
        write_settings(connection, new_settings(chosen))


def lexical_settings(stored: StoredLexical | None, state: TermState) -> dict[str, Any]:
    """Return the settings of a lexical side, or of none."""
    return {
        "lexical": None if stored is None else stored.setting,
        TERMS_KEY: None if stored is None else state.as_setting(),
    }


def has_settings(connection: Connection) -> bool:
    """Return whether the loaded collection of records has the settings of an index."""
    return bool(_settings_rows(connection, connection.address.collection, "pk"))


def write_settings(connection: Connection, settings: Mapping[str, Any]) -> None:
    """Write the record of settings, which makes the collections an index."""
    row, name = settings_record(settings), connection.address.collection
    connection.ask("writing the settings", "upsert", name, [row])


def new_settings(chosen: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of an empty index. chosen: those that its creator chose."""
    first = {"mark": _MARK, "format_version": FORMAT, "index_id": secrets.token_hex(16), "engine": None}
    counters = ("next_document", "next_ordinal", "version", "epoch", "documents", "views", "max_views")
    return {**chosen, **first, **dict.fromkeys(counters, 0), "max_norm": 0.0, "has_views": False}


def make_collections(connection: Connection, dim: int | None, *, may_exist: bool = False) -> list[str]:
    """Create the collections that a server imports files into; return their names, not loaded.

    Nothing completes them but the import: the server may still fill them when it was killed.

    ConfigError when a collection of the index's names exists, unless it may.
    """
    name = connection.address.collection
    if not may_exist and (taken := _taken(connection)):
        raise _is_there(connection, taken)
    _make(connection, "making the collection of records", name, partial(record_schema, content="imported records"))
    if dim is None:
        return [name]
    _make(connection, "making the collection of views", views_of(name), partial(view_schema, dim=dim))
    return [name, views_of(name)]


def _check_free(connection: Connection) -> None:
    """Raise ConfigError where a collection of the index's names exists, but for those of a creation that was killed."""
    if (taken := _taken(connection)) and not is_half_made(connection):
        raise _is_there(connection, taken)


def _taken(connection: Connection) -> list[str]:
    """Return the collections of the index's names that exist."""
    name = connection.address.collection
    return [each for each in (name, views_of(name), terms_of(name)) if _exists(connection, each)]


def _is_there(connection: Connection, taken: Sequence[str]) -> ConfigError:
    return ConfigError(f"{connection.address.shown}: collection {taken[0]!r} exists already; open it, or drop it")


def is_half_made(connection: Connection) -> bool:
    """Return whether the collections are those of a creation that was killed: mvindex', without settings and empty."""
    name, found = connection.address.collection, _taken(connection)
    if name not in found or not all(_is_ours(connection, each) for each in found):
        return False
    # Rows are written to collections with an index only, and there are no others without settings before them.
    loaded = [each for each in found if _has_index(connection, each)]
    if name not in loaded:
        return True
    connection.load(*loaded)
    return not has_settings(connection) and not any(_count_rows(connection, each, "pk >= 0") for each in loaded)


def _is_ours(connection: Connection, name: str) -> bool:
    """Return whether the collection has the fields, and the description, that a creation gives it."""
    here, described = connection.address.collection, _described(connection, name)
    content, fields = {
        here: ("records", {*RECORD_FIELDS, "vec"}),
        views_of(here): ("views", VIEW_FIELDS),
        terms_of(here): ("terms", {*TERM_FIELDS, "doc", "vec"}),
    }[name]
    # Lite keeps no descriptions.
    is_named = described.get("description") in ("", description_of(content))
    return is_named and {field["name"] for field in described["fields"]} == fields


def _has_index(connection: Connection, name: str) -> bool:
    return bool(connection.ask("looking for its index", "list_indexes", name))


def _count_rows(connection: Connection, name: str, expression: str) -> int:
    found = connection.ask(
        "counting its rows", "query", name, filter=expression, output_fields=["count(*)"], consistency_level="Strong"
    )
    return int(found[0]["count(*)"])


def make_views(connection: Connection, dim: int) -> None:
    """Create and load the collection of views of so many dims."""
    name = views_of(connection.address.collection)
    _make(connection, "making the collection of views", name, partial(view_schema, dim=dim))
    connection.load(name)


def make_terms(connection: Connection) -> None:
    """Create and load an empty collection of terms; one that is there is dropped."""
    name = terms_of(connection.address.collection)
    drop_collection(connection, name)
    _make(connection, "making the collection of terms", name, term_schema)
    connection.load(name)


def _make(connection: Connection, step: str, name: str, layout: Callable[[Any], tuple[Any, Any]]) -> None:
    """Create the collection with its index, or complete what a failed attempt left."""

    def make(client: Any, **options: Any) -> None:
        schema, index = layout(client)
        if not client.has_collection(name, **options):
            client.create_collection(name, schema=schema, consistency_level="Session", **options)
        if not client.list_indexes(name, **options):
            client.create_index(name, index, **options)

    connection.call(step, make)


def settings_record(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings as a record."""
    row = special_record(SETTINGS_KEY, json.dumps(settings, ensure_ascii=False))
    # Read with every search: see MilvusViews.
    return {**row, "version": settings["epoch"]}


def read_home(connection: Connection, root: str) -> Home:
    """Return where the index of this address is: in the collection `root`, or in one that it was re-embedded into."""
    moved = _stored_settings(connection, root).get("moved")
    return Home(root, ()) if moved is None else Home(str(moved["to"]), tuple(map(str, moved["left"])))


def write_home(connection: Connection, root: str, home: Home) -> None:
    """Make another collection the place of the index: one record is the commit.

    The settings stay in it, for searches that go on in the root. Releases that know of no moves refuse the format.
    """
    settings = _stored_settings(connection, root)
    moved = {"format_version": MOVED_FORMAT, "moved": {"to": home.collection, "left": home.left}}
    row = settings_record({**settings, **moved})
    connection.ask("moving the index", "upsert", root, [row])


def _stored_settings(connection: Connection, name: str) -> dict[str, Any]:
    """Return the settings in a collection of records; {} without any, StoreError where they are not mvindex'."""
    found = _settings_rows(connection, name, "text")
    return parse_settings(found[0]["text"], connection.address.shown) if found else {}


def _settings_rows(connection: Connection, name: str, field: str) -> Any:
    """Return the rows of the settings in a collection of records, one or none, with this field."""
    return connection.ask(
        "reading the settings",
        "query",
        name,
        filter=f"pk == {SETTINGS_KEY}",
        output_fields=[field],
        consistency_level="Strong",
    )


def drop_left(connection: Connection, root: str, home: Home) -> None:
    """Drop the collections that an index was re-embedded out of; of the root, which says where it is, documents."""
    for name in home.left:
        drop_collection(connection, terms_of(name))
        drop_collection(connection, views_of(name))
        if name != root:
            drop_collection(connection, name)
            continue
        connection.ask("deleting documents", "delete", root, filter="pk >= 0")


def drop_store(connection: Connection, root: str | None = None) -> None:
    """Drop all collections of the index, which check_ours() has accepted. root: the collection of its address."""
    here = connection.address.collection
    for name in dict.fromkeys((here, root or here)):
        for each in (terms_of(name), views_of(name), name):
            drop_collection(connection, each)


def drop_collection(connection: Connection, name: str) -> None:
    """Drop the collection, if it is there."""
    if _exists(connection, name):
        connection.ask("dropping a collection", "drop_collection", name)


def collection_exists(connection: Connection) -> bool:
    """Return whether there is a collection of the index's name, ours or not."""
    return _exists(connection, connection.address.collection)


def index_exists(connection: Connection) -> bool:
    """Return whether there is an index, or anything else of its name but a creation that was killed."""
    return collection_exists(connection) and not is_half_made(connection)


def _exists(connection: Connection, name: str) -> bool:
    return bool(connection.ask("looking for the collection", "has_collection", name))


def describe(connection: Connection) -> dict[str, Any]:
    """Return how Milvus describes the collection of the address; StoreError, with the others, where there is none."""
    name = connection.address.collection
    if not _exists(connection, name):
        inside = f" in database {connection.address.database!r}" if connection.address.database else ""
        raise StoreError(
            f"{connection.address.shown}: expected a collection {name!r}{inside}, got {_others(connection)}"
        )
    return _described(connection, name)


def _described(connection: Connection, name: str) -> dict[str, Any]:
    described: dict[str, Any] = connection.ask("looking at the collection", "describe_collection", name)
    return described


def is_records(described: Mapping[str, Any]) -> bool:
    """Return whether a collection has the fields of the records of an index."""
    return {field["name"] for field in described["fields"]} == {*RECORD_FIELDS, "vec"}


def check_ours(connection: Connection) -> None:
    """Raise StoreError unless there is a collection of mvindex'."""
    described = describe(connection)
    if not is_records(described):
        names = ", ".join(sorted(field["name"] for field in described["fields"]))
        raise StoreError(
            f"{connection.address.shown}: expected a collection that mvindex made, got "
            f"{connection.address.collection!r} with the fields {names}"
            f"{how_to_take_over(connection.address, described)}"
        )


def load_views(connection: Connection) -> None:
    """Load the collection of views; StoreError where someone has given it an index of another metric."""
    name = views_of(connection.address.collection)
    # None while it is being built.
    if _has_index(connection, name):
        found = connection.ask("looking at the index", "describe_index", name, index_name="vec")
        if (metric := (found or {}).get("metric_type", "IP")) != "IP":
            raise StoreError(
                f"{connection.address.shown}: expected an index of {name!r} with metric IP, got {metric}, which "
                "mvindex did not make. Drop it, and create a FLAT one by IP with the name 'vec'"
            )
    connection.load(name)


def _others(connection: Connection) -> str:
    """Return what there is instead of the collection; a server may not let everyone list collections."""
    if not connection.address.is_lite:
        return "none"
    names = connection.ask("listing the collections", "list_collections")
    return f"{', '.join(sorted(names))}. Name one: ?collection=NAME" if names else "none"


def parse_settings(text: str, where: str) -> dict[str, Any]:
    """Return the settings of a record; StoreError when they are not mvindex', Unsupported for another format."""
    try:
        settings = json.loads(text)
    except ValueError as err:
        raise StoreError(f"{where}: the settings of the index are no JSON: {err}") from err
    if not isinstance(settings, dict) or settings.get("mark") != _MARK:
        raise StoreError(f"{where}: the collection was not made by mvindex")
    # Of an index that has moved, with the settings that it had in this collection.
    has_moved = settings.get("format_version") == MOVED_FORMAT and "moved" in settings
    if settings.get("format_version") != FORMAT and not has_moved:
        raise Unsupported(
            f"{where}: expected format version {FORMAT}, got format version {settings.get('format_version')}"
        )
    return settings
