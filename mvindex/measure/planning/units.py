"""Parse and format numbers as people write them: 21M documents, 64G of memory, 2TiB of disk."""

from __future__ import annotations

import math
import re
from decimal import Decimal

from mvindex.errors import ConfigError

_FORM = re.compile(r"([0-9][0-9_,]*(?:\.[0-9]*)?(?:[eE][+-]?[0-9]{1,3})?)\s*([A-Za-z]*)")
_COUNTS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "b": 10**9, "bn": 10**9}
# As `free` and cloud vendors use it, a G of memory is a GiB; GB, written out, is 10^9.
_POWERS = {"k": 1, "m": 2, "g": 3, "t": 4, "p": 5}
_MAX = Decimal(10) ** 15
_SECONDS = {"s": 1, "m": 60, "min": 60, "h": 3600, "d": 86_400}
_EXPECTED_SECONDS = "a time of at least a second, such as 90s, 15m, 6h or 1d"
# Less was meant in another unit.
_LEAST_BYTES = 2**20
_EXPECTED_BYTES = "bytes such as 64G, 64GiB, 64GB or 2T"


def parse_count(option: str, text: str) -> int:
    """Return the whole number that 21M, 1.5e6 or 21_015_324 stands for; raise ConfigError for others, or below 1."""
    value = _parse(option, text, _COUNTS, "a number of at least 1, such as 21M, 1.5e6 or 21015324")
    if value < 1 or value != int(value):
        raise ConfigError(f"{option} {text}: expected a whole number of at least 1, got {value:f}")
    return int(value)


def parse_bytes(option: str, text: str) -> int:
    """Return the bytes that 64G, 64GiB (both 2^30), 64GB (10^9) or 1.5T stands for.

    Raises:
        ConfigError: For others, and below 1 MiB.

    """
    units = {"": 1, "b": 1}
    for letter, power in _POWERS.items():
        units |= {letter: 1024**power, f"{letter}ib": 1024**power, f"{letter}b": 1000**power}
    value = _parse(option, text, units, _EXPECTED_BYTES)
    if value < _LEAST_BYTES:
        raise ConfigError(f"{option} {text!r:.60}: expected {_EXPECTED_BYTES}, at least 1M")
    return int(value)


def parse_seconds(option: str, text: str) -> float:
    """Return the seconds that 90s, 15m, 6h or 1d stands for; raise ConfigError for others, or below 1."""
    value = _parse(option, text, _SECONDS, _EXPECTED_SECONDS)
    if value < 1:
        raise ConfigError(f"{option} {text!r:.60}: expected {_EXPECTED_SECONDS}")
    return float(value)


def format_bytes(size_bytes: float) -> str:
    """Return bytes in units of 1,024, such as 32.6 GiB."""
    power = 0 if size_bytes < 1 else min(5, int(math.log(size_bytes, 1024)))
    if size_bytes / 1024**power >= 999.5 and power < 5:
        power += 1
    unit = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")[power]
    value = size_bytes / 1024**power
    return f"{value:,.0f} {unit}" if power == 0 or value >= 99.95 else f"{value:.1f} {unit}"


def format_seconds(seconds: float) -> str:
    """Return a duration with two or three figures, such as 7.3 ms, 3.4 min or 12 d."""
    for limit, scale, unit in (
        (0.9995, 1e3, "ms"),
        (99.5, 1.0, "s"),
        (5970.0, 1 / 60, "min"),
        (172_800.0, 1 / 3600, "h"),
    ):
        if seconds < limit:
            return f"{_figures(seconds * scale)} {unit}"
    return f"{_figures(seconds / 86_400)} d"


def _figures(value: float) -> str:
    if value >= 99.5:
        return f"{value:,.0f}"
    return f"{value:.0f}" if value >= 9.95 else f"{value:.1f}" if value >= 0.995 else f"{value:.2f}"


def _parse(option: str, text: str, units: dict[str, int], expected: str) -> Decimal:
    match = _FORM.fullmatch(text.strip())
    if match is None or match[2].lower() not in units:
        raise ConfigError(f"{option} {text!r:.60}: expected {expected}")
    value = Decimal(match[1].replace(",", "").replace("_", "")) * units[match[2].lower()]
    if value > _MAX * units.get("p", 1):
        raise ConfigError(f"{option} {text!r:.60}: expected {expected}, got more than any machine has")
    return value
