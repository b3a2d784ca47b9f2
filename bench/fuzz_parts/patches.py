"""Files changed a little: an input as a list of patches, and SQLite's log with its checksums made right again."""

import struct

LOG_HEADER, FRAME_HEADER = 32, 24
_MOST_PATCHES = 16


def patched(content: bytes, patches: bytes) -> bytes:
    """Return the content after the patches: each two bytes of place, one of kind and count, then its bytes."""
    at = 0
    for _ in range(_MOST_PATCHES):
        if at + 3 > len(patches):
            return content
        place, kind, count = int.from_bytes(patches[at : at + 2], "little"), patches[at + 2] >> 5, patches[at + 2] & 31
        count += 1
        put = patches[at + 3 : at + 3 + count]
        content = _put(content, place % (len(content) + 1), kind, count, put)
        at += 3 + len(put)
    return content


def _put(content: bytes, place: int, kind: int, count: int, put: bytes) -> bytes:
    """Apply one patch. kind: 0 to 3 overwrite, 4 flip bits, 5 insert, 6 delete, 7 copy a range from another place."""
    before, after = content[:place], content[place + count :]
    if kind == 4:
        return (
            before
            + bytes(old ^ new for old, new in zip(content[place:], put, strict=False))
            + content[place + len(put) :]
        )
    if kind == 5:
        return before + put + content[place:]
    if kind == 6:
        return before + after
    if kind == 7:
        begin = int.from_bytes(put[:2], "little") % (len(content) + 1)
        size = count * 16
        return (before + content[begin : begin + size] + content[place + size :])[: len(content)]
    return before + put + content[place + len(put) :]


def patch(place: int, put: bytes, kind: int = 0) -> bytes:
    """Return one patch, as an input has it."""
    return place.to_bytes(2, "little") + bytes([kind << 5 | (len(put) - 1) & 31]) + put[:32]


def resealed(log: bytes) -> bytes:
    """Return the write-ahead log with valid salts and checksums of all frames: SQLite takes them for its own.

    https://www.sqlite.org/fileformat2.html#walformat
    """
    if len(log) < LOG_HEADER:
        return log
    order = ">" if log[3] & 1 else "<"
    page_bytes = int.from_bytes(log[8:12], "big")
    sums = _extended((0, 0), log[:24], order)
    found = bytearray(log)
    found[24:32] = struct.pack(">2I", *sums)
    if not 512 <= page_bytes <= 65536:
        return bytes(found)
    for at in range(LOG_HEADER, len(log) - FRAME_HEADER - page_bytes + 1, FRAME_HEADER + page_bytes):
        found[at + 8 : at + 16] = log[16:24]
        page = log[at + FRAME_HEADER : at + FRAME_HEADER + page_bytes]
        sums = _extended(sums, log[at : at + 8] + page, order)
        found[at + 16 : at + 24] = struct.pack(">2I", *sums)
    return bytes(found)


def _extended(sums: tuple[int, int], data: bytes, order: str) -> tuple[int, int]:
    first, second = sums
    words = struct.unpack_from(f"{order}{len(data) // 8 * 2}I", data)
    for one, two in zip(words[::2], words[1::2], strict=True):
        first = first + one + second & 0xFFFFFFFF
        second = second + two + first & 0xFFFFFFFF
    return first, second
