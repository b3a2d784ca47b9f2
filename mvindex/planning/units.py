"""Numbers as people write them: 21M documents, 64G of memory, 2TiB of disk."""

from __future__ import annotations

import math
import re
from decimal import Decimal

from mvindex.errors import ConfigError

_FORM = re.compile(r"([0-9][0-9_,]*\.?[0-9]*(?:[eE][+-]?[0-9]{1,3})?)\s*([A-Za-z]*)")
_COUNTS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "b": 10**9, "bn": 10**9}
# As `free` and cloud vendors mean it: a G of memory is a GiB; GB, written out, is 10^9.
_POWERS = {"k": 1, "m": 2, "g": 3, "t": 4, "p": 5}
_MOST = Decimal(10) ** 15


def parse_count(option: str, text: str) -> int:
    """The whole number that 21M, 1.5e6 or 21_015_324 stands for; ConfigError for anything else, or less than 1."""
    value = _parsed(option, text, _COUNTS, "a number of at least 1, such as 21M, 1.5e6 or 21015324")
    if value < 1 or value != int(value):
        raise ConfigError(f"{option} {text}: that is {value:f}; wanted a whole number of at least 1")
    return int(value)


def parse_bytes(option: str, text: str) -> int:
    """The bytes that 64G, 64GiB (both 2^30), 64GB (10^9) or 1.5T stands for; ConfigError for anything else."""
    units = {"": 1, "b": 1}
    for letter, power in _POWERS.items():
        units |= {letter: 1024**power, f"{letter}ib": 1024**power, f"{letter}b": 1000**power}
    value = _parsed(option, text, units, "bytes such as 64G, 64GiB, 64GB or 2T")
    if value < 1:
        raise ConfigError(f"{option} {text}: wanted bytes such as 64G, 64GiB, 64GB or 2T")
    return int(value)


def shown_bytes(size_bytes: float) -> str:
    """Bytes for people, in units of 1,024, such as 32.6 GiB."""
    power = 0 if size_bytes < 1 else min(5, int(math.log(size_bytes, 1024)))
    if size_bytes / 1024**power >= 999.5 and power < 5:
        power += 1
    unit = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")[power]
    value = size_bytes / 1024**power
    return f"{value:,.0f} {unit}" if power == 0 or value >= 99.95 else f"{value:.1f} {unit}"


def shown_seconds(seconds: float, spread: tuple[float, float] | None = None) -> str:
    """A time for people, two or three figures, such as 7.3 ms or 3.4 min; with its spread 7.3 ms (6.8-8.1)."""
    scale, unit = _unit(seconds)
    if spread is None:
        return f"{_figures(seconds * scale)} {unit}"
    low, high = (_figures(value * scale) for value in spread)
    return f"{_figures(seconds * scale)} {unit} ({low}-{high})"


def _unit(seconds: float) -> tuple[float, str]:
    for limit, scale, unit in (
        (0.9995, 1e3, "ms"),
        (99.5, 1.0, "s"),
        (5970.0, 1 / 60, "min"),
        (172_800.0, 1 / 3600, "h"),
    ):
        if seconds < limit:
            return scale, unit
    return 1 / 86_400, "days"


def _figures(value: float) -> str:
    if value >= 99.5:
        return f"{value:,.0f}"
    return f"{value:.0f}" if value >= 9.95 else f"{value:.1f}" if value >= 0.995 else f"{value:.2f}"


def _parsed(option: str, text: str, units: dict[str, int], wanted: str) -> Decimal:
    found = _FORM.fullmatch(text.strip())
    if found is None or found[2].lower() not in units:
        raise ConfigError(f"{option} {text!r:.60}: wanted {wanted}")
    value = Decimal(found[1].replace(",", "").replace("_", "")) * units[found[2].lower()]
    if value > _MOST * units.get("p", 1):
        raise ConfigError(f"{option} {text!r:.60}: more than any machine holds; wanted {wanted}")
    return value
