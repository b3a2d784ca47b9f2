"""The settings of an encoder, and mvindex.json, the file in which a checkpoint keeps them."""

from __future__ import annotations

import json
import math
import os
import re
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, BinaryIO

from mvindex.corpus.text.parts import Splitter
from mvindex.encoder.checkpoint.families import KMEANS, SINGLE, SNIPPETS, VIEWERS, Family, family_names, parse_family
from mvindex.errors import CheckpointError, ConfigError

FORMAT_VERSION = 1
FILE_NAME = "mvindex.json"
# Far more than settings take; the files of words and weights, which are large, are read elsewhere.
_MAX_JSON_BYTES = 16 << 20
_HALF = re.compile("[\ud800-\udfff]")


class Pooling(Enum):
    """How the token states of a whole text become one vector, by sentence-transformers' names.

    mean of all, the first, the last, or the mean weighted with 1, 2, 3, ... along the window.
    """

    MEAN = "mean"
    CLS = "cls"
    LAST = "lasttoken"
    WEIGHTED = "weightedmean"


class ClusterInit(Enum):
    """Which tokens the k-means of the family `kmeans` starts at."""

    INTERVAL = "interval"
    RANDOM = "random"


class Similarity(Enum):
    """The similarity that the vectors were trained for."""

    COSINE = "cosine"
    DOT = "dot"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The settings of an encoder. Lengths are tokens of one window, special tokens included.

    pooling: of whole texts, hence of questions in every family. temperature: of DRPQ scoring; it changes scores, not
    vectors. document_share: how much of the mean of a document's views is added to each, see mvindex.encoder.forward.
    residual, own_snippet: of viewers, see mvindex.encoder.families.viewers. cluster_init: of `kmeans`.
    separate: questions have weights of their own. lower_case: texts are lower-cased, whatever the tokenizer does by
    itself. splitter: what cuts texts, None for the family's own. label: what to know of the training, such as a small
    budget. Raises ConfigError when a value is out of range.
    """

    family: Family = SNIPPETS
    max_views: int = 8
    pooling: Pooling = Pooling.MEAN
    normalise: bool = True
    similarity: Similarity = Similarity.COSINE
    temperature: float = 1.0
    document_length: int
    query_length: int
    document_prompt: str = ""
    query_prompt: str = ""
    document_share: float = 0.0
    residual: float = 0.0
    own_snippet: bool = False
    cluster_init: ClusterInit = ClusterInit.INTERVAL
    separate: bool = False
    lower_case: bool = False
    splitter: Splitter | None = None
    label: str = ""

    def __post_init__(self) -> None:
        for name in ("max_views", "document_length", "query_length"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ConfigError(f"{name} is {value!r}; expected a whole number from 1 on")
        if self.family == SINGLE and self.max_views != 1:
            raise ConfigError(f"max_views: expected 1 for the family 'single', got {self.max_views}")
        if not (math.isfinite(self.document_share) and self.document_share >= 0):
            raise ConfigError(f"document_share: expected a number from 0 on, got {self.document_share}")
        if self.document_share and not self.normalise:
            raise ConfigError(f"document_share: expected 0 without normalise, got {self.document_share}")
        self._check_viewers()
        if self.cluster_init is not ClusterInit.INTERVAL and self.family != KMEANS:
            raise ConfigError(
                f"cluster_init: expected 'interval' for the family {self.family.name!r}, which is not 'kmeans', got "
                f"{self.cluster_init.value!r}"
            )
        if self.similarity is Similarity.COSINE and not self.normalise:
            raise ConfigError("similarity 'cosine' needs normalise true; without it the similarity is 'dot'")
        if not (math.isfinite(self.temperature) and self.temperature > 0):
            raise ConfigError(f"temperature is {self.temperature}; expected a number above 0")

    @property
    def text_splitter(self) -> Splitter:
        """Return what cuts the texts of documents."""
        return self.splitter or self.family.splitter

    def _check_viewers(self) -> None:
        if not (math.isfinite(self.residual) and self.residual >= 0):
            raise ConfigError(f"residual is {self.residual}; expected a number from 0 on")
        if (self.residual or self.own_snippet) and not self.family.has_viewers:
            name = "residual" if self.residual else "own_snippet"
            raise ConfigError(
                f"{name} is {getattr(self, name)}; it belongs to viewers, and the family is {self.family.name!r}"
            )
        if self.residual and self.family == VIEWERS and not self.own_snippet:
            raise ConfigError(
                f"residual is {self.residual}; in the family 'viewers' it needs own_snippet, which says whose mean"
            )


@dataclass(frozen=True, slots=True)
class Base:
    """The base model of an adapter: the source that finds it, and the sha256 of its weight files by name."""

    source: str
    weights: Mapping[str, str]


def read_settings(folder: Path) -> dict[str, Any]:
    """Return what mvindex.json of the folder sets, as arguments of Settings; empty when there is none.

    Raises CheckpointError for an unknown key, a wrong type or a newer format.
    """
    path = folder / FILE_NAME
    if not path.exists():
        return {}
    content = read_json_object(path)
    version = content.pop("format_version", None)
    if version != FORMAT_VERSION:
        raise CheckpointError(f"{path}: format_version is {version!r}; this version of mvindex reads {FORMAT_VERSION}")
    content.pop("base", None)  # see read_base
    return parse_settings(content, str(path))


def parse_settings(content: Mapping[str, Any], place: str) -> dict[str, Any]:
    """Return the arguments of Settings that settings_json() made the content of; errors as read_settings()."""
    return _parse_group(content, _KEYS, place)


def read_base(folder: Path) -> Base | None:
    """Return the base model of the folder's adapter, from mvindex.json; None where it names none."""
    path = folder / FILE_NAME
    content = read_json_object(path).get("base") if path.exists() else None
    if content is None:
        return None
    parsed = _parse_group(content, {"source": ("source", str), "weights": ("weights", dict)}, f"{path}: 'base'")
    if len(parsed) != 2 or not all(isinstance(digest, str) for digest in parsed["weights"].values()):
        raise CheckpointError(f"{path}: 'base' is {content!r:.200}; expected source and weights (file name -> sha256)")
    return Base(**parsed)


def write_settings(folder: Path, settings: Settings, base: Base | None = None) -> None:
    """Write the settings, and the base of an adapter, to mvindex.json of the folder."""
    content = {"format_version": FORMAT_VERSION, **settings_json(settings)}
    if base is not None:
        content["base"] = {"source": base.source, "weights": dict(base.weights)}
    (folder / FILE_NAME).write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def settings_json(settings: Settings) -> dict[str, Any]:
    """Return the settings as mvindex.json has them, without its version."""
    content: dict[str, Any] = {
        "family": settings.family.name,
        "max_views": settings.max_views,
        "pooling": settings.pooling.value,
        "normalise": settings.normalise,
        "similarity": settings.similarity.value,
        "temperature": settings.temperature,
        "lengths": {"document": settings.document_length, "query": settings.query_length},
        "prompts": {"document": settings.document_prompt, "query": settings.query_prompt},
    }
    content |= {
        name: getattr(settings, name)
        for name in ("document_share", "residual", "own_snippet", "separate", "lower_case", "label")
        if getattr(settings, name)
    }
    if settings.cluster_init is not ClusterInit.INTERVAL:
        content["cluster_init"] = settings.cluster_init.value
    if settings.splitter is not None:
        content["splitter"] = settings.splitter.value
    return content


@contextmanager
def open_file(path: Path) -> Iterator[BinaryIO]:
    """Open the file, or the one that a link leads to: a hub's cache consists of links.

    CheckpointError when it cannot be read, or is a pipe or device, which may never end.
    """
    try:
        with open(path, "rb", opener=_open_at_once) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise CheckpointError(f"{path}: is no plain file")
            yield file
    except OSError as err:
        raise CheckpointError(f"{path}: cannot be read: {err.strerror or err}") from err


def _open_at_once(path: str, flags: int) -> int:
    """Return a descriptor of the file, without waiting for a writer of a pipe."""
    return os.open(path, flags | os.O_NONBLOCK)


def first_line(err: BaseException) -> str:
    """Return the first line of another library's error message."""
    return (str(err).strip().splitlines() or [type(err).__name__])[0][:300]


def read_json(path: Path) -> Any:
    """Return the JSON value of the file; CheckpointError names the file otherwise."""
    with open_file(path) as file:
        content = file.read(_MAX_JSON_BYTES + 1)
    if len(content) > _MAX_JSON_BYTES:
        raise CheckpointError(f"{path}: is over {_MAX_JSON_BYTES:,} bytes, which is no file of settings")
    try:
        return json.loads(content.decode("utf-8"))
    except (ValueError, RecursionError) as err:
        raise CheckpointError(f"{path}: is not JSON: {err}") from err


def read_json_object(path: Path) -> dict[str, Any]:
    """Return the JSON object of the file; CheckpointError names the file otherwise."""
    value = read_json(path)
    if not isinstance(value, dict):
        raise CheckpointError(f"{path}: holds a JSON {type(value).__name__}; expected an object")
    return value


# Key in the file -> (argument of Settings, type); a nested table is a group of keys.
_KEYS: Mapping[str, Any] = {
    "family": ("family", Family),
    "max_views": ("max_views", int),
    "pooling": ("pooling", Pooling),
    "normalise": ("normalise", bool),
    "similarity": ("similarity", Similarity),
    "temperature": ("temperature", float),
    "lengths": {"document": ("document_length", int), "query": ("query_length", int)},
    "prompts": {"document": ("document_prompt", str), "query": ("query_prompt", str)},
    "document_share": ("document_share", float),
    "residual": ("residual", float),
    "own_snippet": ("own_snippet", bool),
    "cluster_init": ("cluster_init", ClusterInit),
    "separate": ("separate", bool),
    "lower_case": ("lower_case", bool),
    "splitter": ("splitter", Splitter),
    "label": ("label", str),
}


def _parse_group(content: object, keys: Mapping[str, Any], place: str) -> dict[str, Any]:
    if not isinstance(content, dict):
        raise CheckpointError(f"{place} is a {type(content).__name__}; expected an object")
    parsed: dict[str, Any] = {}
    for key, value in content.items():
        if key not in keys:
            raise CheckpointError(f"{place}: unknown key {key!r}; known are {', '.join(map(repr, keys))}")
        if isinstance(keys[key], Mapping):
            parsed |= _parse_group(value, keys[key], f"{place}: {key!r}")
        else:
            name, kind = keys[key]
            parsed[name] = _parse_value(value, kind, f"{place}: {key!r}")
    return parsed


def _parse_value(value: object, kind: type, place: str) -> Any:
    if kind is Family:
        return _parse_family(value, place)
    if issubclass(kind, Enum):
        if value not in (values := [member.value for member in kind]):
            raise CheckpointError(f"{place} is {value!r}; expected one of {', '.join(map(repr, values))}")
        return kind(value)
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return _as_float(value, place)
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise CheckpointError(f"{place} is {value!r:.80}; expected {kind.__name__}")
    if kind is str and not is_text(value):
        raise CheckpointError(f"{place} is {value!r:.80}, which is not valid Unicode")
    return value


def _parse_family(value: object, place: str) -> Family:
    if not isinstance(value, str) or value not in family_names():
        raise CheckpointError(f"{place}: expected one of {', '.join(map(repr, family_names()))}, got {value!r}")
    return parse_family(value)


def _as_float(value: int, place: str) -> float:
    try:
        return float(value)
    except OverflowError as err:
        raise CheckpointError(f"{place} is {value!r:.80}, which no float can hold") from err


def is_text(value: object) -> bool:
    """Return whether a tokenizer can take the string: JSON's escapes can make half a character."""
    return isinstance(value, str) and not _HALF.search(value)
