"""The layout of an index in Milvus: two collections or three, their fields, keys and limits.

NAME holds one record per document: text, metadata, ordinal, and the version of its views that counts. Writing that
record is the commit. NAME_views holds one row per view. Records of the index itself and of writers have keys below 0.
NAME_terms, of an index with a lexical side, holds one row per document, more of a long one; counts of terms have keys
below 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import xxhash

from mvindex.records import Ints
from mvindex.store.lexical.tokenizer import StoredLexical
from mvindex.store.views import ViewType

FORMAT = 1
SETTINGS_KEY = -1
# What a commit is about to do, in up to so many records from this key down.
INTENT_KEY, MAX_INTENTS = -2, 900
# Claims of writers lie at and below this key.
FIRST_CLAIM_KEY = -1000
SLOT_BITS, VERSION_BITS, DOCUMENT_BITS = 12, 20, 31
MAX_VIEWS, MAX_VERSION, MAX_DOCUMENTS = 1 << SLOT_BITS, 1 << VERSION_BITS, 1 << DOCUMENT_BITS
# Bytes of UTF-8, in Milvus' longest VARCHAR.
MAX_BYTES, MAX_ID_BYTES = 65_535, 4_096
MIN_DIM, MAX_DIM = 2, 32_768
# A request takes up to 64 MB; an answer up to 100 MB.
REQUEST_BYTES, REQUEST_ROWS = 24 << 20, 8_192

RECORD_FIELDS = (
    "pk", "idhash", "id", "ordinal", "version", "num_views", "title", "text", "metadata", "spans", "content_hash",
    "views_checksum", "checksum",
)  # fmt: skip
VIEW_FIELDS = {"pk", "doc", "vec"}
# The fields of a record that scoring needs.
LIGHT_FIELDS = ("pk", "ordinal", "version", "num_views", "views_checksum")
_NO_VECTOR = np.zeros(2, dtype=np.float32)


def id_hash(doc_id: str) -> int:
    """Return the 63-bit hash that a document is found by: expressions never quote an id. Equal hashes: ids decide."""
    return int(xxhash.xxh3_64_intdigest(doc_id.encode())) >> 1


def view_keys(documents: Ints, versions: Ints, counts: Ints) -> Ints:
    """Return the keys of all views of the documents, one after the other, (counts.sum(),)."""
    bases = (documents << (SLOT_BITS + VERSION_BITS)) | (versions << SLOT_BITS)
    starts = np.cumsum(counts) - counts
    return np.repeat(bases - starts, counts) + np.arange(int(counts.sum()))


def documents_of(keys: Ints) -> Ints:
    """Return the document that each view belongs to."""
    return keys >> (SLOT_BITS + VERSION_BITS)


def one_of(field: str, numbers: Iterable[int]) -> str:
    """Return the expression for a field that is one of the numbers."""
    return f"{field} in [{','.join(map(str, numbers))}]"


def none_of(field: str, numbers: Iterable[int]) -> str:
    """Return the expression for a field that is none of the numbers."""
    return f"{field} not in [{','.join(map(str, numbers))}]"


def special_record(key: int, text: str) -> dict[str, Any]:
    """Return a record that is no document: settings, or a writer's claim."""
    empty: dict[str, Any] = dict.fromkeys(("id", "title", "metadata", "spans", "content_hash"), "")
    numbers = dict.fromkeys(("idhash", "ordinal", "version", "num_views", "views_checksum", "checksum"), 0)
    # No idhash or ordinal of a document is below 0.
    return {**empty, **numbers, "pk": key, "idhash": -1, "ordinal": -1, "text": text, "vec": _NO_VECTOR}


def description_of(content: str) -> str:
    """Return the description of a collection of ours in Milvus."""
    return f"mvindex {FORMAT} {content}"


def record_schema(client: Any, content: str = "records") -> tuple[Any, Any]:
    """Return schema and index of the collection of records, with a vector of zeros that Milvus requires."""
    from pymilvus import DataType

    schema = client.create_schema(auto_id=False, enable_dynamic_field=False, description=description_of(content))
    schema.add_field("pk", DataType.INT64, is_primary=True)
    for name in ("idhash", "ordinal", "version", "num_views", "views_checksum", "checksum"):
        schema.add_field(name, DataType.INT64)
    for name, size in (("id", MAX_ID_BYTES), ("content_hash", 64)):
        schema.add_field(name, DataType.VARCHAR, max_length=size)
    for name in ("title", "text", "metadata", "spans"):
        schema.add_field(name, DataType.VARCHAR, max_length=MAX_BYTES)
    schema.add_field("vec", DataType.FLOAT_VECTOR, dim=2)
    return schema, _flat_index(client)


def view_schema(client: Any, dim: int) -> tuple[Any, Any]:
    """Return schema and index of the collection of views."""
    from pymilvus import DataType

    schema = client.create_schema(auto_id=False, enable_dynamic_field=False, description=description_of("views"))
    schema.add_field("pk", DataType.INT64, is_primary=True)
    schema.add_field("doc", DataType.INT64)
    schema.add_field("vec", DataType.FLOAT_VECTOR, dim=dim)
    return schema, _flat_index(client)


def term_schema(client: Any) -> tuple[Any, Any]:
    """Return schema and index of the collection of terms."""
    from pymilvus import DataType

    schema = client.create_schema(auto_id=False, enable_dynamic_field=False, description=description_of("terms"))
    schema.add_field("pk", DataType.INT64, is_primary=True)
    for name in ("doc", "num_terms", "checksum"):
        schema.add_field(name, DataType.INT64)
    schema.add_field("terms", DataType.VARCHAR, max_length=MAX_BYTES)
    schema.add_field("vec", DataType.SPARSE_FLOAT_VECTOR)
    index = client.prepare_index_params()
    index.add_index(field_name="vec", index_type="SPARSE_INVERTED_INDEX", metric_type="IP")
    return schema, index


def _flat_index(client: Any) -> Any:
    index = client.prepare_index_params()
    index.add_index(field_name="vec", index_type="FLAT", metric_type="IP")
    return index


class State:
    """The settings, which a store and its writer have in common."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self.settings = settings

    @property
    def dim(self) -> int | None:
        """Dimensions of the views; None until the first batch of an index with an encoder."""
        return None if (dim := self.settings["dim"]) is None else int(dim)

    @property
    def view_type(self) -> ViewType:
        """The number type that views are rounded to."""
        return ViewType(self.settings["dtype"])

    @property
    def lexical(self) -> StoredLexical | None:
        """How texts are split into terms; None without a lexical side."""
        setting = self.settings.get("lexical")
        return None if setting is None else StoredLexical.parse(setting)

    @property
    def has_views(self) -> bool:
        """Whether there is a collection of views, which is made before their first batch."""
        return bool(self.settings["has_views"])
