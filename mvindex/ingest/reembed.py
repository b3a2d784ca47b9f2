"""Re-embedding: a new generation of an index, whose views another encoder made of the same texts.

The encoded documents are first committed, chunk by chunk, to a store inside the index, or inside each shard, which is
resumed after an interruption; then they are copied into a new generation, and one commit makes that the active one, of
all shards at once.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from mvindex.encoder import Encoder
from mvindex.engines import find_kind
from mvindex.engines.build import EngineChoice, build_files, has_copies, make_copies, remove_others
from mvindex.engines.build_shards import remove_trained, train_snapshots
from mvindex.engines.protocol import EXACT
from mvindex.errors import DocumentError
from mvindex.ingest.pipeline import CHUNK_DOCUMENTS, Entry, IngestHooks, ingest_store
from mvindex.ingest.views import reusing
from mvindex.records import CountCallback, Document, ProgressCallback, batched, no_progress
from mvindex.store import catalog, schema
from mvindex.store.catalog import ExistingDocument
from mvindex.store.create import create_store, remove_leftovers
from mvindex.store.embedded import EmbeddedStore, LocalStore, LocalWriter
from mvindex.store.generation import Generation, retire
from mvindex.store.protocol import Store
from mvindex.store.reader import StoredDocument
from mvindex.store.rows import content_hash
from mvindex.store.sharded import ShardedStore
from mvindex.store.snapshot import read_snapshot
from mvindex.store.writer import Transaction

# The store of encoded documents, inside the index or shard.
FOLDER = "reembedding"
# The settings that views depend on.
_OF_VIEWS = ("dtype", "prune_views")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReembedReport:
    """The outcome of a re-embedding.

    Attributes:
        documents: How many documents the index has.
        encoded: How many of them this run encoded; the others were encoded by a run that was interrupted.
        views_before: Number of views before.
        views_after: Number of views after.
        dim: Their dimensions now.
        encoder: The fingerprint of the encoder that the index has now.
        engine: The kind of engine that was active and was built again; "exact" where there was none.
        stopped: Whether the run was stopped before the switch: the index is as it was.
    """

    documents: int
    encoded: int = 0
    views_before: int
    views_after: int
    dim: int | None
    encoder: str
    engine: str = EXACT
    stopped: bool = False


def _ignore(store: Any) -> None:
    """Measure nothing."""


class ScannedStore(Store, Protocol):
    """A store whose documents can be read with their ordinals."""

    def each_ordinal(self) -> Iterator[tuple[int, StoredDocument]]:
        """Yield all documents with their ordinals."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReembedHooks:
    """Callbacks of a re-embedding.

    on_progress: called with a step, how much of it is done, and how much there is. should_stop: asked before each
    chunk. before_switch: called with the store of the encoded documents, or an index of them, to be searched.
    """

    on_progress: ProgressCallback = no_progress
    should_stop: Callable[[], bool] = field(default=lambda: False)
    before_switch: Callable[[Any], object] = _ignore


def reembed_store(
    store: LocalStore, encoder: Encoder, hooks: ReembedHooks, *, texts_only: bool = False
) -> ReembedReport:
    """Encode all texts with the encoder, and make the views the index's in one commit.

    Ids, ordinals, texts, metadata and the other settings stay; the active engine is built again, untuned. Takes the
    writer lock for the whole run; readers go on with the old views until they refresh. After an interruption, a run
    with the same encoder encodes only what the one before had not committed; another encoder begins anew.

    Args:
        store: The store, in shards or not.
        encoder: The new encoder.
        hooks: Callbacks.
        texts_only: Take title and text of documents whose views were given or made of view_texts, too.

    Raises:
        DocumentError: For a document that has no text, or, without texts_only, had view_texts or given vectors, which
            an index with an encoder does not keep as texts. Raised before anything is written.

    """
    with store.writing() as writer, ExitStack() as stack:
        parts = [part.store for part in store.all_parts()]
        views_before = _num_views(parts)
        encoded, stopped = 0, False
        if (store.settings["encoder"] or {}).get("fingerprint") != encoder.fingerprint:
            for part in parts:  # what cannot be encoded is found before hours of encoding
                deque(entries_of(part, texts_only), maxlen=0)
            made = []
            on_documents = counting(hooks.on_progress, "encoding documents", store.count())
            ingest_hooks = IngestHooks(
                on_progress=on_documents, should_stop=hooks.should_stop, max_document_chars=sys.maxsize
            )
            for part in parts:
                unfinished = _open_unfinished(part.directory / FOLDER, settings_of(part, encoder))
                made.append(stack.enter_context(closing(unfinished)))
                drop_outdated(unfinished, part)
                report = ingest_store(
                    unfinished, entries_of(part, texts_only), reusing(unfinished, encoder), ingest_hooks
                )
                encoded += report.added + report.replaced
                stopped = report.stopped
                if stopped:
                    break
            if not stopped:
                hooks.before_switch(_together(store, made))
                _switch(parts, writer, made, hooks.on_progress)
        for part in [] if stopped else parts:
            if (part.directory / FOLDER).exists():
                retire(part.directory / FOLDER)
        engine = store.settings["engine"]
        return ReembedReport(
            documents=store.count(),
            encoded=encoded,
            views_before=views_before,
            views_after=_num_views(parts),
            dim=store.dim,
            encoder=(store.settings["encoder"] or {}).get("fingerprint", ""),
            engine=engine["kind"] if engine else EXACT,
            stopped=stopped,
        )


def _num_views(parts: Sequence[EmbeddedStore]) -> int:
    return sum(part.snapshot.num_live_views for part in parts)


def _together(store: LocalStore, made: Sequence[EmbeddedStore]) -> LocalStore:
    """Return the stores of encoded documents as one, in shards where the index is."""
    if not isinstance(store, ShardedStore):
        return made[0]
    return ShardedStore(store.directory, dict(enumerate(made)), len(made))


def settings_of(store: Store, encoder: Encoder) -> dict[str, Any]:
    """Return the settings of the encoded documents; a temperature that was the old encoder's becomes the new one's."""
    before, spec = store.settings, dict(encoder.spec)
    temperature = before.get("temperature")
    if temperature == (before["encoder"] or {}).get("temperature", 1.0):
        temperature = float(spec.get("temperature", 1.0))
    kept = {name: before.get(name) for name in (*_OF_VIEWS, schema.LEXICAL_KEY, catalog.FUSION_KEY)}
    return {**kept, "encoder": spec, "dim": encoder.dim, "temperature": temperature}


def _open_unfinished(place: Path, settings: Mapping[str, Any]) -> EmbeddedStore:
    """Return the store of what was encoded before an interruption, or an empty one for another encoder."""
    remove_leftovers(place.parent, FOLDER)
    if place.exists():
        store = EmbeddedStore(place)
        is_same = store.settings["encoder"]["fingerprint"] == settings["encoder"]["fingerprint"]
        if is_same and all(store.settings.get(name) == settings[name] for name in _OF_VIEWS):
            return store
        store.close()
        retire(place)
    create_store(place, settings)
    return EmbeddedStore(place)


def drop_outdated(made: ScannedStore, store: ScannedStore) -> None:
    """Delete the encoded documents that were deleted from the store since, or have another ordinal there."""
    gone = []
    for chunk, encoded in _chunks(made):
        known = store.known(list(encoded))
        gone += [
            encoded[document.id].doc_row
            for ordinal, document in chunk
            if document.id not in known or known[document.id].ordinal != ordinal
        ]
    if gone:
        with made.writing() as writer:
            writer.delete(sorted(gone))


def entries_of(store: ScannedStore, texts_only: bool) -> Iterator[Entry]:
    """Yield the store's documents without their views, by rising ordinals."""
    has_encoder = store.settings["encoder"] is not None
    for chunk, known in _chunks(store):
        for ordinal, stored in chunk:
            document = Document(stored.id, stored.text, stored.title, stored.metadata)
            place = f"{store.where}: document {stored.id!r}"
            if not stored.text and not stored.title:
                raise DocumentError(f"{place}: expected a text or a title to encode, got given vectors without a text")
            if has_encoder and not texts_only and known[stored.id].content_hash != content_hash(document):
                raise DocumentError(
                    f"{place}: expected views of its title and text, got views that were given or made of view_texts, "
                    "which an index does not keep. Ingest the corpus into a new index, or encode title and text alone: "
                    "texts_only"
                )
            yield Entry(place, document, ordinal=ordinal)


def _chunks(
    store: ScannedStore,
) -> Iterator[tuple[list[tuple[int, StoredDocument]], Mapping[str, ExistingDocument]]]:
    """Yield the documents with their ordinals, some at a time, and their records in the catalog."""
    for chunk in batched(store.each_ordinal(), CHUNK_DOCUMENTS):
        yield chunk, store.known([document.id for _, document in chunk])


def _switch(
    parts: Sequence[EmbeddedStore], writer: LocalWriter, made: Sequence[EmbeddedStore], on_progress: ProgressCallback
) -> None:
    """Copy the encoded documents into new generations, with their engines, and make all active in one commit."""
    changes = [{name: each.settings[name] for name in ("encoder", "temperature")} | {"dim": each.dim} for each in made]
    advance = counting(on_progress, "writing documents", sum(each.count() for each in made))
    with writer.new_generations(changes) as fresh:
        for own, (_, filling) in zip(made, fresh, strict=True):
            with own.reading(own.snapshot) as reader:
                filling.copy(reader.rows, own.snapshot.rows_by_ordinal, advance)
        generations = [generation for generation, _ in fresh]
        for part, generation in zip(parts, generations, strict=True):
            if has_copies(part.snapshot):
                make_copies(read_snapshot(generation), on_progress)
        choice = _engine_again(parts, generations, on_progress)
        for generation, filling in fresh if choice is not None else ():
            if choice is not None and filling.num_rows:
                record = build_files(read_snapshot(generation), choice, on_progress)
                filling.commit(Transaction(settings={"engine": record}))
                remove_others(generation.directory, record["directory"])
    if len(parts) > 1:
        remove_trained(parts[0].directory.parent, None if choice is None else choice.trained)


def _engine_again(
    parts: Sequence[EmbeddedStore], generations: Sequence[Generation], on_progress: ProgressCallback
) -> EngineChoice | None:
    """Return the choice of the active engine, for the new generations; None where there is none."""
    active = next((engine for part in parts if (engine := part.settings["engine"]) is not None), None)
    snapshots = [read_snapshot(each) for each in generations]
    if active is None or not any(each.num_documents for each in snapshots):
        return None
    index = parts[0].directory.parent
    # What was tuned or trained holds for the old views.
    asked = {"kind": active["kind"], "settings": {"requested": active["settings"].get("requested")}}
    choice = EngineChoice.of(asked, index)
    if len(parts) > 1 and find_kind(choice.kind).train is not None:
        return replace(choice, trained=train_snapshots(index, snapshots, choice, on_progress))
    return choice


def counting(on_progress: ProgressCallback, step: str, total: int) -> CountCallback:
    """Return a callback that takes numbers of further documents of a step."""
    done = 0

    def advance(count: int) -> None:
        nonlocal done
        done += count
        on_progress(step, done, total)

    return advance
