"""Checksums of catalog rows: what is packed at once is what is packed part by part, for any values."""

from hypothesis import given, settings
from hypothesis import strategies as st

from mvindex.store.rows import document_checksum, metadata_checksum, row_checksum, text_checksum

INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
# What SQLite may give, of any column of a damaged row.
ANY = INT64 | TEXT | st.binary(max_size=20) | st.floats() | st.none()


@settings(max_examples=400)
@given(st.tuples(INT64, TEXT, INT64, INT64, INT64, INT64, st.binary(max_size=20)) | st.tuples(*[ANY] * 7))
def test_a_row_of_documents(row):
    assert document_checksum(row) == row_checksum(*row)


@settings(max_examples=400)
@given(INT64 | ANY, TEXT | ANY, st.tuples(TEXT, TEXT, st.binary(max_size=20) | st.none()) | st.tuples(ANY, ANY, ANY))
def test_a_row_of_texts(doc_row, doc_id, parts):
    title, text, spans = parts
    whole = (doc_id, title, text, spans or b"")
    assert text_checksum(doc_row, doc_id, *parts) == row_checksum(doc_row, *whole)


@settings(max_examples=200)
@given(INT64 | ANY, TEXT | ANY)
def test_a_row_of_metadata(doc_row, dumped):
    assert metadata_checksum(doc_row, dumped) == row_checksum(doc_row, dumped)
