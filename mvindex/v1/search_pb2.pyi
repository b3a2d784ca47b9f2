from mvindex.v1 import documents_pb2 as _documents_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Scoring(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    SCORING_UNSPECIFIED: _ClassVar[Scoring]
    SCORING_MAX: _ClassVar[Scoring]
    SCORING_DRPQ: _ClassVar[Scoring]

class Mode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    MODE_UNSPECIFIED: _ClassVar[Mode]
    MODE_DENSE: _ClassVar[Mode]
    MODE_LEXICAL: _ClassVar[Mode]
    MODE_HYBRID: _ClassVar[Mode]

class Fusion(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    FUSION_UNSPECIFIED: _ClassVar[Fusion]
    FUSION_ZSCORE: _ClassVar[Fusion]
    FUSION_MINMAX: _ClassVar[Fusion]
    FUSION_RRF: _ClassVar[Fusion]

class Combine(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    COMBINE_UNSPECIFIED: _ClassVar[Combine]
    COMBINE_MAX: _ClassVar[Combine]
    COMBINE_SUM: _ClassVar[Combine]
    COMBINE_MEAN: _ClassVar[Combine]
SCORING_UNSPECIFIED: Scoring
SCORING_MAX: Scoring
SCORING_DRPQ: Scoring
MODE_UNSPECIFIED: Mode
MODE_DENSE: Mode
MODE_LEXICAL: Mode
MODE_HYBRID: Mode
FUSION_UNSPECIFIED: Fusion
FUSION_ZSCORE: Fusion
FUSION_MINMAX: Fusion
FUSION_RRF: Fusion
COMBINE_UNSPECIFIED: Combine
COMBINE_MAX: Combine
COMBINE_SUM: Combine
COMBINE_MEAN: Combine

class Weights(_message.Message):
    __slots__ = ("dense", "lexical")
    DENSE_FIELD_NUMBER: _ClassVar[int]
    LEXICAL_FIELD_NUMBER: _ClassVar[int]
    dense: float
    lexical: float
    def __init__(self, dense: _Optional[float] = ..., lexical: _Optional[float] = ...) -> None: ...

class Texts(_message.Message):
    __slots__ = ("values",)
    VALUES_FIELD_NUMBER: _ClassVar[int]
    values: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, values: _Optional[_Iterable[str]] = ...) -> None: ...

class Fields(_message.Message):
    __slots__ = ("names",)
    NAMES_FIELD_NUMBER: _ClassVar[int]
    names: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, names: _Optional[_Iterable[str]] = ...) -> None: ...

class SearchRequest(_message.Message):
    __slots__ = ("index", "texts", "vectors", "top_k", "filter_json", "scoring", "temperature", "exact", "candidates", "mode", "fusion", "weights", "terms", "fields", "operators", "combine", "shard", "offset", "cursor", "positives", "negatives", "citations", "context", "max_chars", "diversity", "min_confidence", "max_tokens")
    INDEX_FIELD_NUMBER: _ClassVar[int]
    TEXTS_FIELD_NUMBER: _ClassVar[int]
    VECTORS_FIELD_NUMBER: _ClassVar[int]
    TOP_K_FIELD_NUMBER: _ClassVar[int]
    FILTER_JSON_FIELD_NUMBER: _ClassVar[int]
    SCORING_FIELD_NUMBER: _ClassVar[int]
    TEMPERATURE_FIELD_NUMBER: _ClassVar[int]
    EXACT_FIELD_NUMBER: _ClassVar[int]
    CANDIDATES_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    FUSION_FIELD_NUMBER: _ClassVar[int]
    WEIGHTS_FIELD_NUMBER: _ClassVar[int]
    TERMS_FIELD_NUMBER: _ClassVar[int]
    FIELDS_FIELD_NUMBER: _ClassVar[int]
    OPERATORS_FIELD_NUMBER: _ClassVar[int]
    COMBINE_FIELD_NUMBER: _ClassVar[int]
    SHARD_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    CURSOR_FIELD_NUMBER: _ClassVar[int]
    POSITIVES_FIELD_NUMBER: _ClassVar[int]
    NEGATIVES_FIELD_NUMBER: _ClassVar[int]
    CITATIONS_FIELD_NUMBER: _ClassVar[int]
    CONTEXT_FIELD_NUMBER: _ClassVar[int]
    MAX_CHARS_FIELD_NUMBER: _ClassVar[int]
    DIVERSITY_FIELD_NUMBER: _ClassVar[int]
    MIN_CONFIDENCE_FIELD_NUMBER: _ClassVar[int]
    MAX_TOKENS_FIELD_NUMBER: _ClassVar[int]
    index: str
    texts: Texts
    vectors: _documents_pb2.Vectors
    top_k: int
    filter_json: str
    scoring: Scoring
    temperature: float
    exact: bool
    candidates: int
    mode: Mode
    fusion: Fusion
    weights: Weights
    terms: Texts
    fields: Fields
    operators: bool
    combine: Combine
    shard: ShardSearch
    offset: int
    cursor: str
    positives: _containers.RepeatedScalarFieldContainer[str]
    negatives: _containers.RepeatedScalarFieldContainer[str]
    citations: int
    context: int
    max_chars: int
    diversity: float
    min_confidence: float
    max_tokens: int
    def __init__(self, index: _Optional[str] = ..., texts: _Optional[_Union[Texts, _Mapping]] = ..., vectors: _Optional[_Union[_documents_pb2.Vectors, _Mapping]] = ..., top_k: _Optional[int] = ..., filter_json: _Optional[str] = ..., scoring: _Optional[_Union[Scoring, str]] = ..., temperature: _Optional[float] = ..., exact: _Optional[bool] = ..., candidates: _Optional[int] = ..., mode: _Optional[_Union[Mode, str]] = ..., fusion: _Optional[_Union[Fusion, str]] = ..., weights: _Optional[_Union[Weights, _Mapping]] = ..., terms: _Optional[_Union[Texts, _Mapping]] = ..., fields: _Optional[_Union[Fields, _Mapping]] = ..., operators: _Optional[bool] = ..., combine: _Optional[_Union[Combine, str]] = ..., shard: _Optional[_Union[ShardSearch, _Mapping]] = ..., offset: _Optional[int] = ..., cursor: _Optional[str] = ..., positives: _Optional[_Iterable[str]] = ..., negatives: _Optional[_Iterable[str]] = ..., citations: _Optional[int] = ..., context: _Optional[int] = ..., max_chars: _Optional[int] = ..., diversity: _Optional[float] = ..., min_confidence: _Optional[float] = ..., max_tokens: _Optional[int] = ...) -> None: ...

class ShardSearch(_message.Message):
    __slots__ = ("counts", "all_candidates", "num_shards")
    COUNTS_FIELD_NUMBER: _ClassVar[int]
    ALL_CANDIDATES_FIELD_NUMBER: _ClassVar[int]
    NUM_SHARDS_FIELD_NUMBER: _ClassVar[int]
    counts: TermCounts
    all_candidates: bool
    num_shards: int
    def __init__(self, counts: _Optional[_Union[TermCounts, _Mapping]] = ..., all_candidates: _Optional[bool] = ..., num_shards: _Optional[int] = ...) -> None: ...

class TermCounts(_message.Message):
    __slots__ = ("documents", "terms", "hashes", "documents_with")
    DOCUMENTS_FIELD_NUMBER: _ClassVar[int]
    TERMS_FIELD_NUMBER: _ClassVar[int]
    HASHES_FIELD_NUMBER: _ClassVar[int]
    DOCUMENTS_WITH_FIELD_NUMBER: _ClassVar[int]
    documents: int
    terms: int
    hashes: _containers.RepeatedScalarFieldContainer[int]
    documents_with: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, documents: _Optional[int] = ..., terms: _Optional[int] = ..., hashes: _Optional[_Iterable[int]] = ..., documents_with: _Optional[_Iterable[int]] = ...) -> None: ...

class TermsRequest(_message.Message):
    __slots__ = ("index", "texts")
    INDEX_FIELD_NUMBER: _ClassVar[int]
    TEXTS_FIELD_NUMBER: _ClassVar[int]
    index: str
    texts: Texts
    def __init__(self, index: _Optional[str] = ..., texts: _Optional[_Union[Texts, _Mapping]] = ...) -> None: ...

class TermsResponse(_message.Message):
    __slots__ = ("counts", "lexical", "fusion_json")
    COUNTS_FIELD_NUMBER: _ClassVar[int]
    LEXICAL_FIELD_NUMBER: _ClassVar[int]
    FUSION_JSON_FIELD_NUMBER: _ClassVar[int]
    counts: TermCounts
    lexical: str
    fusion_json: str
    def __init__(self, counts: _Optional[_Union[TermCounts, _Mapping]] = ..., lexical: _Optional[str] = ..., fusion_json: _Optional[str] = ...) -> None: ...

class SearchResponse(_message.Message):
    __slots__ = ("results",)
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[SearchResult]
    def __init__(self, results: _Optional[_Iterable[_Union[SearchResult, _Mapping]]] = ...) -> None: ...

class SearchResult(_message.Message):
    __slots__ = ("hits", "exact", "short_by", "rounds", "missing_shards", "mode", "ordinals", "allowed", "view_hits", "next", "duplicates_of", "below_confidence")
    class DuplicatesOfEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    HITS_FIELD_NUMBER: _ClassVar[int]
    EXACT_FIELD_NUMBER: _ClassVar[int]
    SHORT_BY_FIELD_NUMBER: _ClassVar[int]
    ROUNDS_FIELD_NUMBER: _ClassVar[int]
    MISSING_SHARDS_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    ORDINALS_FIELD_NUMBER: _ClassVar[int]
    ALLOWED_FIELD_NUMBER: _ClassVar[int]
    VIEW_HITS_FIELD_NUMBER: _ClassVar[int]
    NEXT_FIELD_NUMBER: _ClassVar[int]
    DUPLICATES_OF_FIELD_NUMBER: _ClassVar[int]
    BELOW_CONFIDENCE_FIELD_NUMBER: _ClassVar[int]
    hits: _containers.RepeatedCompositeFieldContainer[Hit]
    exact: bool
    short_by: int
    rounds: int
    missing_shards: _containers.RepeatedScalarFieldContainer[int]
    mode: Mode
    ordinals: _containers.RepeatedScalarFieldContainer[int]
    allowed: int
    view_hits: ViewHits
    next: str
    duplicates_of: _containers.ScalarMap[str, str]
    below_confidence: int
    def __init__(self, hits: _Optional[_Iterable[_Union[Hit, _Mapping]]] = ..., exact: _Optional[bool] = ..., short_by: _Optional[int] = ..., rounds: _Optional[int] = ..., missing_shards: _Optional[_Iterable[int]] = ..., mode: _Optional[_Union[Mode, str]] = ..., ordinals: _Optional[_Iterable[int]] = ..., allowed: _Optional[int] = ..., view_hits: _Optional[_Union[ViewHits, _Mapping]] = ..., next: _Optional[str] = ..., duplicates_of: _Optional[_Mapping[str, str]] = ..., below_confidence: _Optional[int] = ...) -> None: ...

class ViewHits(_message.Message):
    __slots__ = ("scores", "lowest", "limit")
    SCORES_FIELD_NUMBER: _ClassVar[int]
    LOWEST_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    scores: _containers.RepeatedScalarFieldContainer[float]
    lowest: float
    limit: int
    def __init__(self, scores: _Optional[_Iterable[float]] = ..., lowest: _Optional[float] = ..., limit: _Optional[int] = ...) -> None: ...

class Span(_message.Message):
    __slots__ = ("begin", "end")
    BEGIN_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    begin: int
    end: int
    def __init__(self, begin: _Optional[int] = ..., end: _Optional[int] = ...) -> None: ...

class Hit(_message.Message):
    __slots__ = ("document", "score", "slot", "span", "snippet", "components", "citation", "citations", "confidence")
    DOCUMENT_FIELD_NUMBER: _ClassVar[int]
    SCORE_FIELD_NUMBER: _ClassVar[int]
    SLOT_FIELD_NUMBER: _ClassVar[int]
    SPAN_FIELD_NUMBER: _ClassVar[int]
    SNIPPET_FIELD_NUMBER: _ClassVar[int]
    COMPONENTS_FIELD_NUMBER: _ClassVar[int]
    CITATION_FIELD_NUMBER: _ClassVar[int]
    CITATIONS_FIELD_NUMBER: _ClassVar[int]
    CONFIDENCE_FIELD_NUMBER: _ClassVar[int]
    document: _documents_pb2.Document
    score: float
    slot: int
    span: Span
    snippet: str
    components: _containers.RepeatedCompositeFieldContainer[Component]
    citation: Citation
    citations: _containers.RepeatedCompositeFieldContainer[Citation]
    confidence: float
    def __init__(self, document: _Optional[_Union[_documents_pb2.Document, _Mapping]] = ..., score: _Optional[float] = ..., slot: _Optional[int] = ..., span: _Optional[_Union[Span, _Mapping]] = ..., snippet: _Optional[str] = ..., components: _Optional[_Iterable[_Union[Component, _Mapping]]] = ..., citation: _Optional[_Union[Citation, _Mapping]] = ..., citations: _Optional[_Iterable[_Union[Citation, _Mapping]]] = ..., confidence: _Optional[float] = ...) -> None: ...

class Citation(_message.Message):
    __slots__ = ("text", "start", "end", "why", "file", "page", "line", "end_line", "before", "after")
    class WhyEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    TEXT_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    WHY_FIELD_NUMBER: _ClassVar[int]
    FILE_FIELD_NUMBER: _ClassVar[int]
    PAGE_FIELD_NUMBER: _ClassVar[int]
    LINE_FIELD_NUMBER: _ClassVar[int]
    END_LINE_FIELD_NUMBER: _ClassVar[int]
    BEFORE_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    text: str
    start: int
    end: int
    why: _containers.ScalarMap[str, float]
    file: str
    page: int
    line: int
    end_line: int
    before: str
    after: str
    def __init__(self, text: _Optional[str] = ..., start: _Optional[int] = ..., end: _Optional[int] = ..., why: _Optional[_Mapping[str, float]] = ..., file: _Optional[str] = ..., page: _Optional[int] = ..., line: _Optional[int] = ..., end_line: _Optional[int] = ..., before: _Optional[str] = ..., after: _Optional[str] = ...) -> None: ...

class Component(_message.Message):
    __slots__ = ("name", "rank", "score", "contribution")
    NAME_FIELD_NUMBER: _ClassVar[int]
    RANK_FIELD_NUMBER: _ClassVar[int]
    SCORE_FIELD_NUMBER: _ClassVar[int]
    CONTRIBUTION_FIELD_NUMBER: _ClassVar[int]
    name: str
    rank: int
    score: float
    contribution: float
    def __init__(self, name: _Optional[str] = ..., rank: _Optional[int] = ..., score: _Optional[float] = ..., contribution: _Optional[float] = ...) -> None: ...

class ExplainRequest(_message.Message):
    __slots__ = ("index", "text", "vector", "id", "scoring", "temperature", "ids")
    INDEX_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    VECTOR_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    SCORING_FIELD_NUMBER: _ClassVar[int]
    TEMPERATURE_FIELD_NUMBER: _ClassVar[int]
    IDS_FIELD_NUMBER: _ClassVar[int]
    index: str
    text: str
    vector: _documents_pb2.Vectors
    id: str
    scoring: Scoring
    temperature: float
    ids: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, index: _Optional[str] = ..., text: _Optional[str] = ..., vector: _Optional[_Union[_documents_pb2.Vectors, _Mapping]] = ..., id: _Optional[str] = ..., scoring: _Optional[_Union[Scoring, str]] = ..., temperature: _Optional[float] = ..., ids: _Optional[_Iterable[str]] = ...) -> None: ...

class ExplainResponse(_message.Message):
    __slots__ = ("views", "documents")
    VIEWS_FIELD_NUMBER: _ClassVar[int]
    DOCUMENTS_FIELD_NUMBER: _ClassVar[int]
    views: _containers.RepeatedCompositeFieldContainer[ViewScore]
    documents: _containers.RepeatedCompositeFieldContainer[Explanation]
    def __init__(self, views: _Optional[_Iterable[_Union[ViewScore, _Mapping]]] = ..., documents: _Optional[_Iterable[_Union[Explanation, _Mapping]]] = ...) -> None: ...

class Explanation(_message.Message):
    __slots__ = ("id", "views")
    ID_FIELD_NUMBER: _ClassVar[int]
    VIEWS_FIELD_NUMBER: _ClassVar[int]
    id: str
    views: _containers.RepeatedCompositeFieldContainer[ViewScore]
    def __init__(self, id: _Optional[str] = ..., views: _Optional[_Iterable[_Union[ViewScore, _Mapping]]] = ...) -> None: ...

class ViewScore(_message.Message):
    __slots__ = ("slot", "score", "span", "snippet", "weight")
    SLOT_FIELD_NUMBER: _ClassVar[int]
    SCORE_FIELD_NUMBER: _ClassVar[int]
    SPAN_FIELD_NUMBER: _ClassVar[int]
    SNIPPET_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_FIELD_NUMBER: _ClassVar[int]
    slot: int
    score: float
    span: Span
    snippet: str
    weight: float
    def __init__(self, slot: _Optional[int] = ..., score: _Optional[float] = ..., span: _Optional[_Union[Span, _Mapping]] = ..., snippet: _Optional[str] = ..., weight: _Optional[float] = ...) -> None: ...

class EncodeRequest(_message.Message):
    __slots__ = ("index", "texts", "ids")
    INDEX_FIELD_NUMBER: _ClassVar[int]
    TEXTS_FIELD_NUMBER: _ClassVar[int]
    IDS_FIELD_NUMBER: _ClassVar[int]
    index: str
    texts: Texts
    ids: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, index: _Optional[str] = ..., texts: _Optional[_Union[Texts, _Mapping]] = ..., ids: _Optional[_Iterable[str]] = ...) -> None: ...

class EncodeResponse(_message.Message):
    __slots__ = ("vectors", "counts")
    VECTORS_FIELD_NUMBER: _ClassVar[int]
    COUNTS_FIELD_NUMBER: _ClassVar[int]
    vectors: _documents_pb2.Vectors
    counts: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, vectors: _Optional[_Union[_documents_pb2.Vectors, _Mapping]] = ..., counts: _Optional[_Iterable[int]] = ...) -> None: ...
