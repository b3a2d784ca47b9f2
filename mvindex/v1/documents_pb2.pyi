from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Document(_message.Message):
    __slots__ = ("id", "text", "title", "metadata_json", "view_texts")
    ID_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    TITLE_FIELD_NUMBER: _ClassVar[int]
    METADATA_JSON_FIELD_NUMBER: _ClassVar[int]
    VIEW_TEXTS_FIELD_NUMBER: _ClassVar[int]
    id: str
    text: str
    title: str
    metadata_json: str
    view_texts: _containers.RepeatedCompositeFieldContainer[ViewText]
    def __init__(self, id: _Optional[str] = ..., text: _Optional[str] = ..., title: _Optional[str] = ..., metadata_json: _Optional[str] = ..., view_texts: _Optional[_Iterable[_Union[ViewText, _Mapping]]] = ...) -> None: ...

class ViewText(_message.Message):
    __slots__ = ("text", "begin", "end")
    TEXT_FIELD_NUMBER: _ClassVar[int]
    BEGIN_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    text: str
    begin: int
    end: int
    def __init__(self, text: _Optional[str] = ..., begin: _Optional[int] = ..., end: _Optional[int] = ...) -> None: ...

class Vectors(_message.Message):
    __slots__ = ("dim", "values")
    DIM_FIELD_NUMBER: _ClassVar[int]
    VALUES_FIELD_NUMBER: _ClassVar[int]
    dim: int
    values: bytes
    def __init__(self, dim: _Optional[int] = ..., values: _Optional[bytes] = ...) -> None: ...

class Views(_message.Message):
    __slots__ = ("vectors", "counts", "spans")
    VECTORS_FIELD_NUMBER: _ClassVar[int]
    COUNTS_FIELD_NUMBER: _ClassVar[int]
    SPANS_FIELD_NUMBER: _ClassVar[int]
    vectors: Vectors
    counts: _containers.RepeatedScalarFieldContainer[int]
    spans: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, vectors: _Optional[_Union[Vectors, _Mapping]] = ..., counts: _Optional[_Iterable[int]] = ..., spans: _Optional[_Iterable[int]] = ...) -> None: ...

class AddRequest(_message.Message):
    __slots__ = ("index", "idempotency_key", "chunk", "documents", "views")
    INDEX_FIELD_NUMBER: _ClassVar[int]
    IDEMPOTENCY_KEY_FIELD_NUMBER: _ClassVar[int]
    CHUNK_FIELD_NUMBER: _ClassVar[int]
    DOCUMENTS_FIELD_NUMBER: _ClassVar[int]
    VIEWS_FIELD_NUMBER: _ClassVar[int]
    index: str
    idempotency_key: str
    chunk: int
    documents: _containers.RepeatedCompositeFieldContainer[Document]
    views: Views
    def __init__(self, index: _Optional[str] = ..., idempotency_key: _Optional[str] = ..., chunk: _Optional[int] = ..., documents: _Optional[_Iterable[_Union[Document, _Mapping]]] = ..., views: _Optional[_Union[Views, _Mapping]] = ...) -> None: ...

class AddResponse(_message.Message):
    __slots__ = ("chunk", "added", "replaced", "updated", "unchanged", "views_given", "views_stored", "views_encoded", "views_reused")
    CHUNK_FIELD_NUMBER: _ClassVar[int]
    ADDED_FIELD_NUMBER: _ClassVar[int]
    REPLACED_FIELD_NUMBER: _ClassVar[int]
    UPDATED_FIELD_NUMBER: _ClassVar[int]
    UNCHANGED_FIELD_NUMBER: _ClassVar[int]
    VIEWS_GIVEN_FIELD_NUMBER: _ClassVar[int]
    VIEWS_STORED_FIELD_NUMBER: _ClassVar[int]
    VIEWS_ENCODED_FIELD_NUMBER: _ClassVar[int]
    VIEWS_REUSED_FIELD_NUMBER: _ClassVar[int]
    chunk: int
    added: int
    replaced: int
    updated: int
    unchanged: int
    views_given: int
    views_stored: int
    views_encoded: int
    views_reused: int
    def __init__(self, chunk: _Optional[int] = ..., added: _Optional[int] = ..., replaced: _Optional[int] = ..., updated: _Optional[int] = ..., unchanged: _Optional[int] = ..., views_given: _Optional[int] = ..., views_stored: _Optional[int] = ..., views_encoded: _Optional[int] = ..., views_reused: _Optional[int] = ...) -> None: ...

class DeleteRequest(_message.Message):
    __slots__ = ("index", "ids", "filter_json", "idempotency_key", "all")
    INDEX_FIELD_NUMBER: _ClassVar[int]
    IDS_FIELD_NUMBER: _ClassVar[int]
    FILTER_JSON_FIELD_NUMBER: _ClassVar[int]
    IDEMPOTENCY_KEY_FIELD_NUMBER: _ClassVar[int]
    ALL_FIELD_NUMBER: _ClassVar[int]
    index: str
    ids: _containers.RepeatedScalarFieldContainer[str]
    filter_json: str
    idempotency_key: str
    all: bool
    def __init__(self, index: _Optional[str] = ..., ids: _Optional[_Iterable[str]] = ..., filter_json: _Optional[str] = ..., idempotency_key: _Optional[str] = ..., all: _Optional[bool] = ...) -> None: ...

class DeleteResponse(_message.Message):
    __slots__ = ("deleted",)
    DELETED_FIELD_NUMBER: _ClassVar[int]
    deleted: int
    def __init__(self, deleted: _Optional[int] = ...) -> None: ...

class UpdateRequest(_message.Message):
    __slots__ = ("index", "id", "metadata_json", "idempotency_key")
    INDEX_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    METADATA_JSON_FIELD_NUMBER: _ClassVar[int]
    IDEMPOTENCY_KEY_FIELD_NUMBER: _ClassVar[int]
    index: str
    id: str
    metadata_json: str
    idempotency_key: str
    def __init__(self, index: _Optional[str] = ..., id: _Optional[str] = ..., metadata_json: _Optional[str] = ..., idempotency_key: _Optional[str] = ...) -> None: ...

class UpdateResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetRequest(_message.Message):
    __slots__ = ("index", "ids")
    INDEX_FIELD_NUMBER: _ClassVar[int]
    IDS_FIELD_NUMBER: _ClassVar[int]
    index: str
    ids: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, index: _Optional[str] = ..., ids: _Optional[_Iterable[str]] = ...) -> None: ...

class GetResponse(_message.Message):
    __slots__ = ("documents",)
    DOCUMENTS_FIELD_NUMBER: _ClassVar[int]
    documents: _containers.RepeatedCompositeFieldContainer[Document]
    def __init__(self, documents: _Optional[_Iterable[_Union[Document, _Mapping]]] = ...) -> None: ...

class ListRequest(_message.Message):
    __slots__ = ("index", "filter_json", "limit", "after", "after_ordinal", "with_ordinals")
    INDEX_FIELD_NUMBER: _ClassVar[int]
    FILTER_JSON_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    AFTER_ORDINAL_FIELD_NUMBER: _ClassVar[int]
    WITH_ORDINALS_FIELD_NUMBER: _ClassVar[int]
    index: str
    filter_json: str
    limit: int
    after: str
    after_ordinal: int
    with_ordinals: bool
    def __init__(self, index: _Optional[str] = ..., filter_json: _Optional[str] = ..., limit: _Optional[int] = ..., after: _Optional[str] = ..., after_ordinal: _Optional[int] = ..., with_ordinals: _Optional[bool] = ...) -> None: ...

class ListResponse(_message.Message):
    __slots__ = ("documents", "ordinals")
    DOCUMENTS_FIELD_NUMBER: _ClassVar[int]
    ORDINALS_FIELD_NUMBER: _ClassVar[int]
    documents: _containers.RepeatedCompositeFieldContainer[Document]
    ordinals: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, documents: _Optional[_Iterable[_Union[Document, _Mapping]]] = ..., ordinals: _Optional[_Iterable[int]] = ...) -> None: ...
