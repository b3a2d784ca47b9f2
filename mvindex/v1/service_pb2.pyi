from mvindex.v1 import documents_pb2 as _documents_pb2
from mvindex.v1 import jobs_pb2 as _jobs_pb2
from mvindex.v1 import search_pb2 as _search_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional

DESCRIPTOR: _descriptor.FileDescriptor

class InfoRequest(_message.Message):
    __slots__ = ("index",)
    INDEX_FIELD_NUMBER: _ClassVar[int]
    index: str
    def __init__(self, index: _Optional[str] = ...) -> None: ...

class InfoResponse(_message.Message):
    __slots__ = ("index", "format_version", "documents", "views", "num_deleted", "dim", "dtype", "encoder_json", "kind", "temperature", "prune_views", "search_json", "fresh_documents", "size_bytes", "shards", "missing_shards", "is_read_only", "lexical", "fusion_json", "copy_bytes", "mapped_bytes", "copies_file_bytes", "text_bytes", "filter_fields", "shard", "term_bytes", "index_id", "confidence_json", "whole_id")
    class FilterFieldsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    INDEX_FIELD_NUMBER: _ClassVar[int]
    FORMAT_VERSION_FIELD_NUMBER: _ClassVar[int]
    DOCUMENTS_FIELD_NUMBER: _ClassVar[int]
    VIEWS_FIELD_NUMBER: _ClassVar[int]
    NUM_DELETED_FIELD_NUMBER: _ClassVar[int]
    DIM_FIELD_NUMBER: _ClassVar[int]
    DTYPE_FIELD_NUMBER: _ClassVar[int]
    ENCODER_JSON_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    TEMPERATURE_FIELD_NUMBER: _ClassVar[int]
    PRUNE_VIEWS_FIELD_NUMBER: _ClassVar[int]
    SEARCH_JSON_FIELD_NUMBER: _ClassVar[int]
    FRESH_DOCUMENTS_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    SHARDS_FIELD_NUMBER: _ClassVar[int]
    MISSING_SHARDS_FIELD_NUMBER: _ClassVar[int]
    IS_READ_ONLY_FIELD_NUMBER: _ClassVar[int]
    LEXICAL_FIELD_NUMBER: _ClassVar[int]
    FUSION_JSON_FIELD_NUMBER: _ClassVar[int]
    COPY_BYTES_FIELD_NUMBER: _ClassVar[int]
    MAPPED_BYTES_FIELD_NUMBER: _ClassVar[int]
    COPIES_FILE_BYTES_FIELD_NUMBER: _ClassVar[int]
    TEXT_BYTES_FIELD_NUMBER: _ClassVar[int]
    FILTER_FIELDS_FIELD_NUMBER: _ClassVar[int]
    SHARD_FIELD_NUMBER: _ClassVar[int]
    TERM_BYTES_FIELD_NUMBER: _ClassVar[int]
    INDEX_ID_FIELD_NUMBER: _ClassVar[int]
    CONFIDENCE_JSON_FIELD_NUMBER: _ClassVar[int]
    WHOLE_ID_FIELD_NUMBER: _ClassVar[int]
    index: str
    format_version: int
    documents: int
    views: int
    num_deleted: int
    dim: int
    dtype: str
    encoder_json: str
    kind: str
    temperature: float
    prune_views: float
    search_json: str
    fresh_documents: int
    size_bytes: int
    shards: int
    missing_shards: _containers.RepeatedScalarFieldContainer[int]
    is_read_only: bool
    lexical: str
    fusion_json: str
    copy_bytes: int
    mapped_bytes: int
    copies_file_bytes: int
    text_bytes: int
    filter_fields: _containers.ScalarMap[str, str]
    shard: str
    term_bytes: int
    index_id: str
    confidence_json: str
    whole_id: str
    def __init__(self, index: _Optional[str] = ..., format_version: _Optional[int] = ..., documents: _Optional[int] = ..., views: _Optional[int] = ..., num_deleted: _Optional[int] = ..., dim: _Optional[int] = ..., dtype: _Optional[str] = ..., encoder_json: _Optional[str] = ..., kind: _Optional[str] = ..., temperature: _Optional[float] = ..., prune_views: _Optional[float] = ..., search_json: _Optional[str] = ..., fresh_documents: _Optional[int] = ..., size_bytes: _Optional[int] = ..., shards: _Optional[int] = ..., missing_shards: _Optional[_Iterable[int]] = ..., is_read_only: _Optional[bool] = ..., lexical: _Optional[str] = ..., fusion_json: _Optional[str] = ..., copy_bytes: _Optional[int] = ..., mapped_bytes: _Optional[int] = ..., copies_file_bytes: _Optional[int] = ..., text_bytes: _Optional[int] = ..., filter_fields: _Optional[_Mapping[str, str]] = ..., shard: _Optional[str] = ..., term_bytes: _Optional[int] = ..., index_id: _Optional[str] = ..., confidence_json: _Optional[str] = ..., whole_id: _Optional[str] = ...) -> None: ...

class IndexesRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class IndexesResponse(_message.Message):
    __slots__ = ("names",)
    NAMES_FIELD_NUMBER: _ClassVar[int]
    names: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, names: _Optional[_Iterable[str]] = ...) -> None: ...
