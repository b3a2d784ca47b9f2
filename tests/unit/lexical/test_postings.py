"""Postings as they are stored: read back as they were written."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from mvindex.lexical.postings import MAX_ROWS, Block, Postings, _encoded

ROWS = st.dictionaries(
    st.integers(0, MAX_ROWS - 1), st.integers(1, 3) | st.integers(1, 1 << 40), min_size=1, max_size=30
)


@given(terms=st.dictionaries(st.integers(0, 2**64 - 1), ROWS, max_size=12), first_row=st.integers(0, 1 << 33))
def test_a_block_holds_what_was_written(terms, first_row):
    entries = [(term, first_row + row, own[row]) for term, own in sorted(terms.items()) for row in sorted(own)]
    columns = list(zip(*entries, strict=True)) or [(), (), ()]
    written = Postings(
        np.array(columns[0], dtype=np.uint64),
        np.array(columns[1], dtype=np.int64),
        np.array(columns[2], dtype=np.int64),
    )
    block = Block(_encoded(written, first_row))
    for one, other in zip(block.all(first_row), written, strict=True):
        assert one.tolist() == other.tolist()
    for term, own in terms.items():
        rows, counts = block.find(term)
        assert rows.tolist() == sorted(own)
        assert counts.tolist() == [own[row] for row in sorted(own)]
    missing = next(number for number in range(13) if number not in terms)
    assert [len(column) for column in block.find(missing)] == [0, 0]


def test_a_common_term_takes_a_byte_for_a_document():
    rows = np.arange(0, MAX_ROWS, 50)
    written = Postings(np.full(len(rows), 7, dtype=np.uint64), rows, np.ones(len(rows), dtype=np.int64))
    assert len(_encoded(written, 0)) < len(rows) + 40
