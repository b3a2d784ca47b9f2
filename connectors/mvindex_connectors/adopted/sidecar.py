"""The sidecar of a collection of others: an index in a directory with its documents and their terms, without vectors.

Views are there in number, so that each has its span, but each is one zero: vectors stay in Milvus.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from mvindex.encoder import EncoderLike
from mvindex.encoder.registry import as_encoder
from mvindex.errors import ConfigError, DamagedIndex, StoreError
from mvindex.index import Index, store_of
from mvindex.index.factory import check_temperature, create_index, local_index, new_settings
from mvindex.ingest import IngestHooks
from mvindex.ingest.pipeline import Entry, IngestReport
from mvindex.paths import user_path
from mvindex.records import ProgressCallback, no_progress
from mvindex.store.embedded import EmbeddedStore
from mvindex.store.lexical.tokenizer import NONE
from mvindex_connectors.adopted.collection import Collection, choose_fields, connect, open_collection
from mvindex_connectors.adopted.rows import RowParser, RowSpool, read_rows
from mvindex_connectors.milvus.address import parse_address
from mvindex_connectors.milvus.foreign import RowFields

_KEY = "adopted"
_DELETED_AT_ONCE = 1_024


@dataclass(frozen=True, slots=True, kw_only=True)
class Adopted:
    """The collection of a sidecar: its address, its fields and its state.

    Attributes:
        address: The address, without secrets.
        fields: The fields of its rows.
        encoder: The encoder of its vectors, for queries that are texts.
        temperature: T of DRPQ scoring.
        num_rows: The number of its rows as of the last sync; None while a sync has not come to its end.

    """

    address: str
    fields: RowFields
    encoder: Mapping[str, Any] | None
    temperature: float
    num_rows: int | None

    @property
    def setting(self) -> dict[str, Any]:
        """The setting of the sidecar."""
        return asdict(self)


class Sidecar:
    """A sidecar, opened."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        """Open the folder; StoreError where it is no sidecar."""
        self.store = EmbeddedStore(user_path(folder))
        try:
            self.adopted  # noqa: B018 - it checks the setting
        except BaseException:
            self.store.close()
            raise

    @property
    def adopted(self) -> Adopted:
        """The collection, as of the state that the store shows."""
        kept = self.store.settings.get(_KEY)
        if kept is None:
            raise StoreError(f"{self.store.where}: expected a folder that `mvindex adopt` made, got another index")
        try:
            return Adopted(**{**kept, "fields": RowFields(**kept["fields"])})
        except (TypeError, KeyError) as err:
            raise DamagedIndex(f"{self.store.where}: setting {_KEY!r}: {err}") from err


@dataclass(frozen=True, slots=True, kw_only=True)
class AdoptReport:
    """The counts of a sync: rows and documents of the collection, and the documents that changed."""

    sidecar: str
    address: str
    rows: int
    documents: int
    added: int
    replaced: int
    updated: int
    unchanged: int
    deleted: int
    lexical: str | None
    fields: Mapping[str, str]


def sync_milvus(  # noqa: PLR0913 - what a collection of others may name in its own way
    folder: str | os.PathLike[str],
    address: str | None = None,
    *,
    vector_field: str | None = None,
    id_field: str | None = None,
    text_field: str | None = None,
    order_field: str | None = None,
    title_field: str | None = None,
    lexical: str | None = None,
    encoder: EncoderLike | None = None,
    temperature: float | None = None,
    on_progress: ProgressCallback = no_progress,
) -> AdoptReport:
    """Make the sidecar of a collection of others in Milvus, or bring it up to date; the collection is only read.

    The folder holds the documents, without vectors: ids, texts, metadata, terms. All rows are read, but for their
    vectors; documents that did not change stay as they are. mvindex.open("adopted:FOLDER") then searches the collection
    in place, with filters and by terms.

    Args:
        folder: The sidecar, new or made by this function.
        address: milvus://HOST:PORT/COLLECTION, or milvus-lite:PATH?collection=NAME; of a new sidecar.
        vector_field: These five fields: see adopt_milvus(). Of a new sidecar; else they must be the same.
        id_field: As above.
        text_field: As above.
        order_field: As above.
        title_field: As above.
        lexical: The terms of a new sidecar: "auto" (the default with a text field), "unicode", "english", "none", ...
        encoder: The encoder of the vectors, for queries that are texts; see load_encoder().
        temperature: T of DRPQ scoring; the encoder's by default, else 1.0.
        on_progress: Called with the step, the count done and the total.

    Raises:
        ConfigError: A field is missing, of another type, not to be guessed, or another than that of the sidecar.
        CorpusError: A row has what no index stores.
        StoreError: Or EngineUnavailable, when the collection cannot be read, or changes meanwhile.

    """
    given = RowFields(vector=vector_field, id=id_field, text=text_field, order=order_field, title=title_field)
    path = user_path(folder)
    kept = _read(path) if os.path.lexists(path) else None
    if kept is None and address is None:
        raise ConfigError(f"{folder}: expected the address of a collection for a new sidecar, got none")
    if kept is not None and lexical is not None:
        raise ConfigError(f"{folder}: lexical= belongs to a new sidecar; `mvindex build --lexical` changes it")
    own = parse_address(kept.address if kept is not None and address is None else str(address)).reopens
    if kept is not None:
        given = _checked(kept, own, given, str(folder))
    connection = connect(own)
    try:
        fields = choose_fields(connection, given)
        collection = open_collection(connection, fields)
        spec = _spec(encoder, collection, None if kept is None else kept.encoder)
        if temperature is None:
            temperature = float((spec or {}).get("temperature", 1.0)) if kept is None else kept.temperature
        check_temperature(temperature)
        adopted = Adopted(address=own, fields=fields, encoder=spec, temperature=temperature, num_rows=None)
        with RowSpool(None) as spool:
            parser = RowParser(collection, fields)
            read_rows(collection, parser, spool, None, on_progress)
            with _opened(path, adopted, lexical, is_new=kept is None) as index:
                return _sync(index, adopted, parser, spool, on_progress)
    finally:
        connection.close()


def _read(path: Path) -> Adopted:
    sidecar = Sidecar(path)
    try:
        return sidecar.adopted
    finally:
        sidecar.store.close()


def _checked(kept: Adopted, address: str, given: RowFields, folder: str) -> RowFields:
    """Return the fields of a sidecar; ConfigError where others are given, or another collection."""
    if address != kept.address:
        raise ConfigError(f"{folder}: expected the collection {kept.address}, of which it was made, got {address}")
    for name, value in asdict(given).items():
        before = getattr(kept.fields, name)
        if value is not None and value != before:
            raise ConfigError(f"{folder}: {name}_field: expected {before!r}, of which it was made, got {value!r}")
    return kept.fields


def _spec(
    encoder: EncoderLike | None, collection: Collection, before: Mapping[str, Any] | None
) -> Mapping[str, Any] | None:
    """Return the specification of an encoder; ConfigError for one of other dimensions."""
    if encoder is None:
        return before
    loaded = as_encoder(encoder)
    if loaded.dim != collection.dim:
        raise ConfigError(f"{collection.where}: expected an encoder of {collection.dim} dimensions, got {loaded.dim}")
    return dict(loaded.spec)


@contextmanager
def _opened(path: Path, adopted: Adopted, lexical: str | None, *, is_new: bool) -> Iterator[Index]:
    if is_new:
        default = "auto" if adopted.fields.text is not None else NONE
        settings, _ = new_settings(dim=1, dtype="fp16", lexical=lexical or default)
        index = create_index(path, {**settings, _KEY: adopted.setting}, None, None)
    else:
        index = local_index(EmbeddedStore(path))
    with index:
        yield index


def _sync(
    index: Index, adopted: Adopted, parser: RowParser, spool: RowSpool, on_progress: ProgressCallback
) -> AdoptReport:
    total = spool.close_rows()

    def entries() -> Iterator[Entry]:
        for number, (doc_id, rows, zeros) in enumerate(spool.documents(), start=1):
            document, spans = parser.document(doc_id, rows)
            yield Entry(f"{adopted.address}: document {doc_id!r:.80}", document, zeros, spans=spans)
            on_progress("storing documents", number, total)

    # With the first documents that change, the sidecar is of no moment of the collection until the last one has.
    hooks = IngestHooks(note=lambda: {_KEY: adopted.setting})
    report = index.add_encoded(entries(), None, hooks)
    deleted = _delete_missing(index, adopted, spool)
    done = replace(adopted, num_rows=spool.num_rows)
    with store_of(index).writing() as writer:
        if writer.settings.get(_KEY) != done.setting:
            writer.change_settings(**{_KEY: done.setting})
    index.refresh()
    return _report(index, done, report, deleted)


def _delete_missing(index: Index, adopted: Adopted, spool: RowSpool) -> int:
    """Delete the documents that the collection has no more; return how many."""
    index.refresh()
    gone, some = [], []
    for document in store_of(index).scan(None, None):
        some.append(document.id)
        if len(some) == _DELETED_AT_ONCE:
            gone += spool.missing(some)
            some = []
    gone += spool.missing(some)
    if gone:
        with store_of(index).writing() as writer:
            writer.change_settings(**{_KEY: adopted.setting})
        for begin in range(0, len(gone), _DELETED_AT_ONCE):
            index.delete(ids=gone[begin : begin + _DELETED_AT_ONCE])
    return len(gone)


def _report(index: Index, adopted: Adopted, report: IngestReport, deleted: int) -> AdoptReport:
    return AdoptReport(
        sidecar=index.where,
        address=adopted.address,
        rows=adopted.num_rows or 0,
        documents=len(index),
        added=report.added,
        replaced=report.replaced,
        updated=report.updated,
        unchanged=report.unchanged,
        deleted=deleted,
        lexical=index.info().lexical,
        fields={name: value for name, value in asdict(adopted.fields).items() if value is not None},
    )
