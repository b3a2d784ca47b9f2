"""Rates of a machine, each measured a few times, and spans of time with the spread that follows."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from mvindex.engines.params import IVF_KINDS
from mvindex.engines.protocol import Kind
from mvindex.errors import ConfigError

FORMAT = "mvindex calibration 1"


@dataclass(frozen=True, slots=True)
class Span:
    """Seconds, or seconds a unit: the median, and between low and high the middle half of the measurements.

    Not their extremes: a process that has to wait for a core for once makes a measurement of a millisecond tenfold.
    """

    low: float
    mid: float
    high: float

    @classmethod
    def of(cls, values: Iterable[float]) -> Span:
        """The span of some measurements."""
        low, mid, high = np.percentile(list(values), [25, 50, 75]).tolist()
        return cls(max(low, 0.0), max(mid, 0.0), max(high, 0.0))

    def __add__(self, other: Span) -> Span:
        return Span(self.low + other.low, self.mid + other.mid, self.high + other.high)

    def __mul__(self, times: float) -> Span:
        return Span(self.low * times, self.mid * times, self.high * times)

    def less(self, seconds: float) -> Span:
        """Without so many seconds; no time is below nothing."""
        return Span(*(max(0.0, value - seconds) for value in (self.low, self.mid, self.high)))

    def without(self, seconds: float) -> Span:
        """The same as less(), but the whole where noise would leave nothing of the middle."""
        return self.less(seconds) if self.mid > seconds else self

    def between(self, least: float, most: float) -> Span:
        """So many times, at least and at most: the middle of both for mid."""
        return Span(self.low * least, self.mid * (least + most) / 2, self.high * most)


NOTHING = Span(0.0, 0.0, 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """Seconds a unit, as measured on one machine with so many threads, at dim dimensions; scan: of engines.scan_name().

    scans: of a view's dimension and query, by "exact" and the kinds, each "alone" or in a "batch"; adds: of a view's
    dimension, by kind. read_memory, write_disk, read_disk: of a byte; product: of a multiplication and an addition;
    distance: of a dimension of a view met in a search of a
    graph, linking: when it is made; rescore: of a view's dimension; overhead: of a query;
    random_read: of one document's views from disk.
    """

    dim: int
    threads: int
    scan: str
    scans: Mapping[str, Span]
    adds: Mapping[str, Span]
    read_memory: Span
    product: Span
    distance: Span
    distance_batch: Span
    linking: Span
    rescore: Span
    rescore_batch: Span
    overhead: Span
    overhead_batch: Span
    write_disk: Span
    read_disk: Span
    random_read: Span


def write_rates(path: Path, rates: Rates) -> None:
    """Nothing; the rates stand in a new file, as JSON."""
    path.write_text(json.dumps({"format": FORMAT, **asdict(rates)}, indent=1) + "\n", encoding="utf-8")


def read_rates(path: Path) -> Rates:
    """The rates that write_rates() wrote; ConfigError names the file and what is wrong in it."""
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as err:
        raise ConfigError(f"{path}: no calibration can be read from it: {err}") from err
    if not isinstance(record, dict) or record.get("format") != FORMAT:
        raise ConfigError(f'{path}: is no calibration: wanted a JSON object with "format": "{FORMAT}"')
    rates = Rates(**{field.name: _value(path, record, field.name, str(field.type)) for field in fields(Rates)})
    kinds = [kind.value for kind in Kind]
    for name, held, wanted in (
        ("scans", rates.scans, [f"{kind} {mode}" for kind in kinds for mode in ("alone", "batch")]),
        ("adds", rates.adds, [Kind.FLAT.value, *(kind.value for kind in IVF_KINDS)]),
    ):
        missing = sorted(set(wanted) - set(held))
        if missing:
            raise ConfigError(f"{path}: {name} lacks {', '.join(missing)}; remove the file to measure again")
    return rates


def _value(path: Path, record: Mapping[str, Any], name: str, wanted: str) -> Any:
    found = record.get(name)
    if wanted == "Span":
        return _span(path, name, found)
    if wanted.startswith("Mapping"):
        if not isinstance(found, dict):
            raise ConfigError(f"{path}: {name} is {found!r:.40}; wanted an object of spans")
        return {key: _span(path, f"{name}.{key}", value) for key, value in found.items()}
    if wanted == "str" and isinstance(found, str):
        return found
    if wanted == "int" and isinstance(found, int) and not isinstance(found, bool) and found >= 1:
        return found
    raise ConfigError(f"{path}: {name} is {found!r:.40}; wanted {'a text' if wanted == 'str' else 'a number above 0'}")


def _span(path: Path, name: str, found: Any) -> Span:
    """The span of {low, mid, high}."""
    parts = [found.get(key) for key in ("low", "mid", "high")] if isinstance(found, dict) else []
    values = [float(part) for part in parts if isinstance(part, float | int) and not isinstance(part, bool)]
    if len(values) != 3 or not 0 <= values[0] <= values[1] <= values[2] < float("inf"):
        raise ConfigError(f"{path}: {name} is {found!r:.60}; wanted low, mid and high, rising, in seconds")
    return Span(*values)
