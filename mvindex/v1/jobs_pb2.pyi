from mvindex.v1 import documents_pb2 as _documents_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class JobState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    JOB_STATE_UNSPECIFIED: _ClassVar[JobState]
    JOB_STATE_RUNNING: _ClassVar[JobState]
    JOB_STATE_DONE: _ClassVar[JobState]
    JOB_STATE_FAILED: _ClassVar[JobState]
    JOB_STATE_CANCELLED: _ClassVar[JobState]
    JOB_STATE_ENDED: _ClassVar[JobState]
JOB_STATE_UNSPECIFIED: JobState
JOB_STATE_RUNNING: JobState
JOB_STATE_DONE: JobState
JOB_STATE_FAILED: JobState
JOB_STATE_CANCELLED: JobState
JOB_STATE_ENDED: JobState

class StartJobRequest(_message.Message):
    __slots__ = ("index", "create", "drop", "build", "tune", "compact", "snapshot", "idempotency_key")
    INDEX_FIELD_NUMBER: _ClassVar[int]
    CREATE_FIELD_NUMBER: _ClassVar[int]
    DROP_FIELD_NUMBER: _ClassVar[int]
    BUILD_FIELD_NUMBER: _ClassVar[int]
    TUNE_FIELD_NUMBER: _ClassVar[int]
    COMPACT_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_FIELD_NUMBER: _ClassVar[int]
    IDEMPOTENCY_KEY_FIELD_NUMBER: _ClassVar[int]
    index: str
    create: CreateIndex
    drop: DropIndex
    build: BuildEngine
    tune: TuneEngine
    compact: CompactIndex
    snapshot: SnapshotIndex
    idempotency_key: str
    def __init__(self, index: _Optional[str] = ..., create: _Optional[_Union[CreateIndex, _Mapping]] = ..., drop: _Optional[_Union[DropIndex, _Mapping]] = ..., build: _Optional[_Union[BuildEngine, _Mapping]] = ..., tune: _Optional[_Union[TuneEngine, _Mapping]] = ..., compact: _Optional[_Union[CompactIndex, _Mapping]] = ..., snapshot: _Optional[_Union[SnapshotIndex, _Mapping]] = ..., idempotency_key: _Optional[str] = ...) -> None: ...

class CreateIndex(_message.Message):
    __slots__ = ("dim", "encoder", "dtype", "temperature", "prune_views", "shards", "lexical", "filter_fields")
    class FilterFieldsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    DIM_FIELD_NUMBER: _ClassVar[int]
    ENCODER_FIELD_NUMBER: _ClassVar[int]
    DTYPE_FIELD_NUMBER: _ClassVar[int]
    TEMPERATURE_FIELD_NUMBER: _ClassVar[int]
    PRUNE_VIEWS_FIELD_NUMBER: _ClassVar[int]
    SHARDS_FIELD_NUMBER: _ClassVar[int]
    LEXICAL_FIELD_NUMBER: _ClassVar[int]
    FILTER_FIELDS_FIELD_NUMBER: _ClassVar[int]
    dim: int
    encoder: str
    dtype: str
    temperature: float
    prune_views: float
    shards: int
    lexical: str
    filter_fields: _containers.ScalarMap[str, str]
    def __init__(self, dim: _Optional[int] = ..., encoder: _Optional[str] = ..., dtype: _Optional[str] = ..., temperature: _Optional[float] = ..., prune_views: _Optional[float] = ..., shards: _Optional[int] = ..., lexical: _Optional[str] = ..., filter_fields: _Optional[_Mapping[str, str]] = ...) -> None: ...

class DropIndex(_message.Message):
    __slots__ = ("confirm",)
    CONFIRM_FIELD_NUMBER: _ClassVar[int]
    confirm: str
    def __init__(self, confirm: _Optional[str] = ...) -> None: ...

class BuildEngine(_message.Message):
    __slots__ = ("engine", "parameters", "target_recall")
    class ParametersEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    ENGINE_FIELD_NUMBER: _ClassVar[int]
    PARAMETERS_FIELD_NUMBER: _ClassVar[int]
    TARGET_RECALL_FIELD_NUMBER: _ClassVar[int]
    engine: str
    parameters: _containers.ScalarMap[str, int]
    target_recall: float
    def __init__(self, engine: _Optional[str] = ..., parameters: _Optional[_Mapping[str, int]] = ..., target_recall: _Optional[float] = ...) -> None: ...

class TuneEngine(_message.Message):
    __slots__ = ("queries", "top_k", "target_recall", "time_limit_s")
    QUERIES_FIELD_NUMBER: _ClassVar[int]
    TOP_K_FIELD_NUMBER: _ClassVar[int]
    TARGET_RECALL_FIELD_NUMBER: _ClassVar[int]
    TIME_LIMIT_S_FIELD_NUMBER: _ClassVar[int]
    queries: _documents_pb2.Vectors
    top_k: int
    target_recall: float
    time_limit_s: float
    def __init__(self, queries: _Optional[_Union[_documents_pb2.Vectors, _Mapping]] = ..., top_k: _Optional[int] = ..., target_recall: _Optional[float] = ..., time_limit_s: _Optional[float] = ...) -> None: ...

class CompactIndex(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class SnapshotIndex(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class Job(_message.Message):
    __slots__ = ("id", "index", "kind", "state", "step", "done", "total", "message", "error", "result_json", "started_at", "ended_at")
    ID_FIELD_NUMBER: _ClassVar[int]
    INDEX_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    DONE_FIELD_NUMBER: _ClassVar[int]
    TOTAL_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    RESULT_JSON_FIELD_NUMBER: _ClassVar[int]
    STARTED_AT_FIELD_NUMBER: _ClassVar[int]
    ENDED_AT_FIELD_NUMBER: _ClassVar[int]
    id: str
    index: str
    kind: str
    state: JobState
    step: str
    done: int
    total: int
    message: str
    error: str
    result_json: str
    started_at: float
    ended_at: float
    def __init__(self, id: _Optional[str] = ..., index: _Optional[str] = ..., kind: _Optional[str] = ..., state: _Optional[_Union[JobState, str]] = ..., step: _Optional[str] = ..., done: _Optional[int] = ..., total: _Optional[int] = ..., message: _Optional[str] = ..., error: _Optional[str] = ..., result_json: _Optional[str] = ..., started_at: _Optional[float] = ..., ended_at: _Optional[float] = ...) -> None: ...

class JobRequest(_message.Message):
    __slots__ = ("id",)
    ID_FIELD_NUMBER: _ClassVar[int]
    id: str
    def __init__(self, id: _Optional[str] = ...) -> None: ...

class JobsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class JobsResponse(_message.Message):
    __slots__ = ("jobs",)
    JOBS_FIELD_NUMBER: _ClassVar[int]
    jobs: _containers.RepeatedCompositeFieldContainer[Job]
    def __init__(self, jobs: _Optional[_Iterable[_Union[Job, _Mapping]]] = ...) -> None: ...
