"""Postings as they are stored: read back as they were written, and merged, by NumPy and by compiled loops."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mvindex.errors import DamagedIndex
from mvindex.kernels import has_numba
from mvindex.store.lexical.postings import (
    MAX_ROWS,
    PackedBlock,
    Postings,
    bounds_of,
    encode_compiled,
    encode_plainly,
    merge_compiled,
    merge_plainly,
)

needs_numba = pytest.mark.skipif(not has_numba(), reason="NOT RUN: needs numba (the extra fast)")
ROWS = st.dictionaries(
    st.integers(0, MAX_ROWS - 1), st.integers(1, 3) | st.integers(1, 1 << 40), min_size=1, max_size=30
)
# Of some terms that segments have in common, and others.
TERMS = st.dictionaries(
    st.sampled_from([0, 5, 1 << 62, 1 << 63, 2**64 - 1]) | st.integers(0, 2**64 - 1), ROWS, max_size=12
)


def postings_of(terms):
    """Return the postings of terms, rows and counts by hash."""
    entries = [(term, sorted(own.items())) for term, own in sorted(terms.items())]
    pairs = np.array([pair for _, own in entries for pair in own], dtype=np.int64).reshape(-1, 2)
    return Postings(
        np.array([term for term, _ in entries], dtype=np.uint64),
        np.cumsum([0, *(len(own) for _, own in entries)]),
        pairs[:, 0],
        pairs[:, 1],
    )


def encoded(postings, num_blocks):
    """Return the blocks, after checking that both ways make the same."""
    bounds = bounds_of(postings.hashes, num_blocks)
    blobs = encode_plainly(postings, bounds)
    if has_numba():
        assert encode_compiled(postings, bounds) == blobs
    return blobs


@given(terms=TERMS)
def test_a_block_holds_what_was_written(terms):
    written = postings_of(terms)
    (blob,) = encoded(written, 1)
    block = PackedBlock(blob)
    for one, other in zip(block.all(), written, strict=True):
        assert one.tolist() == other.tolist()
    for term, own in terms.items():
        rows, counts = block.find(term)
        assert rows.tolist() == sorted(own)
        assert counts.tolist() == [own[row] for row in sorted(own)]
    missing = next(number for number in range(13) if number not in terms)
    assert [len(column) for column in block.find(missing)] == [0, 0]


def test_a_common_term_takes_a_byte_for_a_document():
    rows = np.arange(0, MAX_ROWS, 50)
    written = Postings(
        np.array([7], dtype=np.uint64), np.array([0, len(rows)]), rows, np.ones(len(rows), dtype=np.int64)
    )
    assert len(encoded(written, 1)[0]) < len(rows) + 40


@given(
    segments=st.lists(TERMS, min_size=1, max_size=4),
    blocks=st.lists(st.sampled_from([1, 2, 8]), min_size=5, max_size=5),
)
def test_merged_segments_are_as_if_written_at_once(segments, blocks):
    parts = [
        (encoded(postings_of(own), num_blocks), MAX_ROWS) for own, num_blocks in zip(segments, blocks, strict=False)
    ]
    together = {}
    for number, own in enumerate(segments):
        for term, rows in own.items():
            together.setdefault(term, {}).update({row + number * MAX_ROWS: rows[row] for row in rows})
    expected = encoded(postings_of(together), blocks[-1])
    assert merge_plainly(parts, blocks[-1]) == expected
    if has_numba():
        assert merge_compiled(parts, blocks[-1]) == expected


@needs_numba
@given(terms=TERMS.filter(bool), changes=st.lists(st.tuples(st.integers(0, 1 << 20), st.integers(0, 255)), min_size=1))
def test_blocks_that_are_not_sound_are_refused_or_read_inside_their_bytes(terms, changes):
    blob = bytearray(encoded(postings_of(terms), 1)[0])
    for place, byte in changes:
        blob[place % len(blob)] = byte
    try:
        (merged,) = merge_compiled([([bytes(blob)], MAX_ROWS)], 1)
    except DamagedIndex:
        return
    assert (PackedBlock(merged).all().rows < MAX_ROWS).all()
