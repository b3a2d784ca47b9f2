"""A collection of others in Milvus: its fields are checked, it is loaded, and its rows are read page by page."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from mvindex.errors import ConfigError, StoreError, Unsupported
from mvindex_connectors.adopted.source import Metric
from mvindex_connectors.milvus.address import parse_address
from mvindex_connectors.milvus.collections import describe, is_records
from mvindex_connectors.milvus.connection import Connection
from mvindex_connectors.milvus.foreign import VECTOR_TYPE, RowFields, field_types, guess_fields

_PAGE = 1024
# Of the vectors of a page, so that a page fits into one message.
_PAGE_BYTES = 8 << 20
_CONNECT_S = 4.0


def connect(address: str) -> Connection:
    """Return a connection to the server of a collection of others; an error within 5 s where none answers there."""
    place = parse_address(address)
    if place.lacks_database:
        raise StoreError(f"{place.shown}: expected a Milvus Lite database, got no such database")
    return Connection(place, connect_s=min(_CONNECT_S, place.timeout_s))


class Collection:
    """A loaded collection of rows, each with a vector and the id of its document.

    Attributes:
        where: The address, without secrets.
        level: The consistency level of the address.
        types: The type of each field of the schema, by name.
        vector: The field of the vectors.
        key: The field of the primary key.
        dim: Dimensions of the vectors.
        metric: How it scores.
        kind: The kind of its index.
        is_nullable: Whether a row may have no vector.
        plain_fields: All fields but vectors.

    """

    def __init__(self, connection: Connection, vector_field: str, id_field: str, others: Sequence[str] = ()) -> None:
        """Check the fields and load the collection.

        Raises:
            ConfigError: When a field is missing, or of another type.
            Unsupported: For another metric, and an index of mvindex.

        """
        self._connection, self.level = connection, connection.address.consistency
        self._name, self.where = connection.address.collection, connection.address.shown
        described = describe(connection)
        if is_records(described):
            raise Unsupported(f"{self.where}: this is an index of mvindex; `mvindex migrate` copies it")
        fields = {field["name"]: field for field in described["fields"]}
        is_dynamic = bool(described.get("enable_dynamic_field"))
        for name in (vector_field, id_field, *others):
            if name not in fields and (name == vector_field or not is_dynamic):
                raise ConfigError(f"{self.where}: expected one of the fields {', '.join(fields)}, got {name!r}")
        self.types = field_types(described)
        if self.types[vector_field] != VECTOR_TYPE:
            raise ConfigError(f"{self.where}: {vector_field}: expected {VECTOR_TYPE}, got {self.types[vector_field]}")
        if self.types.get(id_field, "VARCHAR") not in ("VARCHAR", "INT64"):
            raise ConfigError(f"{self.where}: {id_field}: expected VARCHAR or INT64, got {self.types[id_field]}")
        self.vector, self._id = vector_field, id_field
        plain = [name for name, kind in self.types.items() if not kind.endswith("VECTOR")]
        self.plain_fields = [*plain, *["$meta"] * is_dynamic]
        self.key = next(name for name, field in fields.items() if field.get("is_primary"))
        self.dim = int(fields[vector_field]["params"]["dim"])
        self.is_nullable = bool(fields[vector_field].get("nullable"))
        index = self._index()
        try:
            self.metric = Metric(index["metric_type"])
        except ValueError as err:
            raise Unsupported(
                f"{self.where}: expected the metric IP, L2 or COSINE, got {index['metric_type']}"
            ) from err
        self.kind = str(index["index_type"])
        connection.load(self._name)
        self.is_number = self.types[id_field] == "INT64" if id_field in fields else self._is_dynamic_number()

    def _is_dynamic_number(self) -> bool:
        """Return whether a dynamic field has numbers as ids, judged by one row."""
        rows = self.call("reading a row", "query", filter="", limit=1, output_fields=[self._id])
        value = rows[0].get(self._id, "") if rows else ""
        if not isinstance(value, str | int):
            raise ConfigError(f"{self.where}: {self._id}: expected texts or whole numbers, got {value!r:.60}")
        return isinstance(value, int)

    def _index(self) -> Mapping[str, Any]:
        names = self.call("listing its indexes", "list_indexes", field_name=self.vector)
        if not names:
            raise ConfigError(f"{self.where}: {self.vector}: expected a field with an index, got none")
        found: Mapping[str, Any] = self.call("describing its index", "describe_index", index_name=names[0])
        return found

    def call(self, step: str, method: str, **arguments: Any) -> Any:
        """Return what a method of the client returns for the collection; errors as of Connection.call()."""
        return self._connection.ask(step, method, self._name, **arguments)

    def count(self, level: str = "Strong") -> int:
        """Return the number of rows. level: the consistency level."""
        found = self.call("counting its rows", "query", filter="", output_fields=["count(*)"], consistency_level=level)
        return int(found[0]["count(*)"])

    def document_id(self, row: Mapping[str, Any]) -> str | int:
        """Return the document id of a row; StoreError where a dynamic field has none, or one of another type."""
        value = row.get(self._id)
        if isinstance(value, bool) or not isinstance(value, int if self.is_number else str):
            kind = "a whole number" if self.is_number else "a text"
            raise StoreError(f"{self.where}: {self._id}: expected {kind} in every row, got {value!r:.60}")
        return value

    def pages(
        self, condition: str, fields: Sequence[str], consistency: str | None = None
    ) -> Iterator[list[dict[str, Any]]]:
        """Yield the rows that match, in the order of their keys.

        consistency: The level of Milvus; that of the collection by default.
        """
        level = {} if consistency is None else {"consistency_level": consistency}
        size = max(1, min(_PAGE, _PAGE_BYTES // (4 * self.dim)))
        iterator = self._connection.call(
            "reading rows",
            lambda client, timeout: client.query_iterator(
                self._name,
                batch_size=size,
                filter=condition,
                output_fields=list(fields),
                timeout=timeout,
                **level,
            ),
        )
        try:
            while page := self._connection.call("reading rows", lambda _, timeout: iterator.next()):
                yield list(page)
        finally:
            iterator.close()

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


def open_collection(connection: Connection, fields: RowFields) -> Collection:
    """Return the collection of rows with these fields; errors as of Collection()."""
    named = [name for name in (fields.text, fields.order, fields.title) if name is not None]
    return Collection(connection, str(fields.vector), str(fields.id), named)


def choose_fields(connection: Connection, given: RowFields) -> RowFields:
    """Return the fields of the rows; ConfigError where vector or id cannot be guessed."""
    described, where = describe(connection), connection.address.shown
    dynamic: Sequence[str] = ()
    if described.get("enable_dynamic_field"):
        name = connection.address.collection
        connection.load(name)
        rows = connection.ask("reading a row", "query", name, limit=1, output_fields=["*"])
        dynamic = [key for row in rows for key in row]
    chosen = guess_fields(described, dynamic, given)
    names = ", ".join(dict.fromkeys([*(field["name"] for field in described["fields"]), *dynamic]))
    for option, value in (("--vector-field", chosen.vector), ("--id-field", chosen.id)):
        if value is None:
            raise ConfigError(f"{where}: expected {option}, one of the fields {names}, got none")
    return chosen
