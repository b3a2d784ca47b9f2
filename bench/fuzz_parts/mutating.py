"""Inputs made of other inputs: bits, bytes, tokens, numbers, lines and whole blocks changed, a few at a time.

Every choice is a call of draw(n), a number from 0 to n - 1, so that a seeded generator, Hypothesis and libFuzzer can
all decide.
"""

import re
from collections.abc import Callable, Sequence

Draw = Callable[[int], int]

MAX_BYTES = 1 << 14
NUMBER = re.compile(rb"-?[0-9]+(?:\.[0-9]+)?")
VALUE = re.compile(rb'-?[0-9][0-9.]*|"[^"\n]*"|true|false|null|\[[^\[\]\n]*\]|\{[^{}\n]*\}')
KINDS = (
    b"null",
    b"true",
    b"false",
    b"0",
    b"-1",
    b"1.5",
    b'"x"',
    b'""',
    b'"1"',
    b"[]",
    b"[1]",
    b'["x"]',
    b"{}",
    b'{"a": 1}',
)
ABSURD = (
    b"0", b"-1", b"1", b"255", b"65536", b"2147483648", b"4294967296", b"4611686018427387904", b"9223372036854775807",
    b"-9223372036854775808", b"9223372036854775808", b"18446744073709551616", b"1e308", b"1e999", b"-1e999", b"NaN",
    b"Infinity", b"0.1", b"1e-400", b"-0", b"99999999999999999999999999999999999999", b"9" * 400, b"9" * 5000,
)  # fmt: skip
# How often a block is repeated: mostly little, since long inputs are slow ones.
REPEATS = (2, 2, 2, 2, 3, 3, 3, 4, 4, 5, 5, 6, 8, 8, 10, 10, 15, 20, 2, 2, 2, 3, 3, 4, 5, 30, 50, 100, 300, 10_000)
BINARY = (
    b"\0" * 4, b"\xff" * 4, b"\xff\xff\xff\x7f", b"\0\0\0\x80", b"\xff" * 8, b"\xff" * 7 + b"\x7f", b"\0" * 7 + b"\x80",
    b"\0\0\0\0\1\0\0\0", b"\0\0\0\x40\0\0\0\0",
)  # fmt: skip


def mutate(data: bytes, pool: Sequence[bytes], tokens: Sequence[bytes], draw: Draw) -> bytes:
    """Return the data after one to four edits; pool: other inputs, whose parts may be spliced in."""
    for _ in range(1 + draw(4)):
        edit = EDITS[draw(len(EDITS))]
        data = edit(data, pool, tokens, draw)[:MAX_BYTES]
    return data


def _span(data: bytes, draw: Draw, longest: int = 64) -> tuple[int, int]:
    begin = draw(len(data) + 1)
    return begin, min(len(data), begin + draw(longest + 1))


def _flip_bit(data, pool, tokens, draw):
    if not data:
        return b"\0"
    at = draw(len(data))
    return data[:at] + bytes([data[at] ^ (1 << draw(8))]) + data[at + 1 :]


def _set_byte(data, pool, tokens, draw):
    at = draw(len(data) + 1)
    return data[:at] + bytes([draw(256)]) + data[at + 1 :]


def _insert_bytes(data, pool, tokens, draw):
    at = draw(len(data) + 1)
    return data[:at] + bytes(draw(256) for _ in range(1 + draw(8))) + data[at:]


def _insert_token(data, pool, tokens, draw):
    if not tokens:
        return data
    at = draw(len(data) + 1)
    return data[:at] + tokens[draw(len(tokens))] + data[at:]


def _replace_by_token(data, pool, tokens, draw):
    if not tokens:
        return data
    begin, end = _span(data, draw, 16)
    return data[:begin] + tokens[draw(len(tokens))] + data[end:]


def _delete(data, pool, tokens, draw):
    begin, end = _span(data, draw)
    return data[:begin] + data[end:]


def _truncate(data, pool, tokens, draw):
    return data[: draw(len(data) + 1)]


def _repeat(data, pool, tokens, draw):
    begin, end = _span(data, draw)
    times = REPEATS[draw(len(REPEATS))]
    return data[:begin] + data[begin:end] * times + data[end:]


def _splice(data, pool, tokens, draw):
    if not pool:
        return data
    other = pool[draw(len(pool))]
    return data[: draw(len(data) + 1)] + other[draw(len(other) + 1) :]


def _copy_block(data, pool, tokens, draw):
    begin, end = _span(data, draw)
    at = draw(len(data) + 1)
    return data[:at] + data[begin:end] + data[at:]


def _absurd_number(data, pool, tokens, draw):
    found = list(NUMBER.finditer(data))
    absurd = ABSURD[draw(len(ABSURD))]
    if not found:
        return data + absurd
    begin, end = found[draw(len(found))].span()
    return data[:begin] + absurd + data[end:]


def _other_kind(data, pool, tokens, draw):
    """Replace a JSON value, or what looks like one, by one of another type."""
    found = list(VALUE.finditer(data))
    if not found:
        return data
    begin, end = found[draw(len(found))].span()
    return data[:begin] + KINDS[draw(len(KINDS))] + data[end:]


def _absurd_bytes(data, pool, tokens, draw):
    at = draw(len(data) + 1)
    put = BINARY[draw(len(BINARY))]
    return data[:at] + put + data[at + len(put) :]


def _swap_lines(data, pool, tokens, draw):
    lines = data.splitlines(keepends=True)
    if not lines:
        return data
    one, other = draw(len(lines)), draw(len(lines))
    lines[one], lines[other] = lines[other], lines[one]
    return b"".join(lines)


EDITS = (
    _flip_bit, _set_byte, _insert_bytes, _insert_token, _replace_by_token, _delete, _truncate, _repeat, _splice,
    _copy_block, _other_kind, _absurd_number, _absurd_bytes, _swap_lines, _insert_token, _replace_by_token,
)  # fmt: skip
