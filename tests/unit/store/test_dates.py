"""Dates in filters: texts in ISO 8601 as periods of time."""

import datetime
import json
from pathlib import Path

import numpy as np
import pytest

import mvindex
from mvindex.errors import DocumentError
from mvindex.store import fields
from mvindex.store.fields import Period, first_text, last_text, parse_period
from mvindex.store.filters import operand_as_json

# 2024-05-01T00:00:00Z, by `date -d 2024-05-01Z +%s`.
MAY = 1_714_521_600_000_000
HOUR, DAY = 3_600_000_000, 86_400_000_000


@pytest.mark.parametrize(
    ("text", "begin", "end"),
    [
        ("2024-05-01", MAY, MAY + DAY),
        ("2024-05", MAY, MAY + 31 * DAY),
        ("2024-02", MAY - 90 * DAY, MAY - 61 * DAY),
        ("2024", MAY - 121 * DAY, MAY + 245 * DAY),
        ("2024-05-01T12:30", MAY + 12 * HOUR + HOUR // 2, None),
        ("2024-05-01T12:30:00Z", MAY + 12 * HOUR + HOUR // 2, None),
        ("2024-05-01 12:30:00z", MAY + 12 * HOUR + HOUR // 2, None),
        ("2024-05-01T00:30:00+02:00", MAY - HOUR - HOUR // 2, None),
        ("2024-04-30T23:00:00-0530", MAY + 4 * HOUR + HOUR // 2, None),
        ("2024-05-01T00:00:00-05", MAY + 5 * HOUR, None),
        ("2024-05-01T00:00:00.5", MAY + 500_000, None),
        ("2024-05-01T00:00:00,000001999", MAY + 1, None),
        ("1970-01-01T00:00:00Z", 0, None),
        ("9999-12-31", 253_402_214_400_000_000, 253_402_300_800_000_000),
    ],
)
def test_a_text_in_iso_8601_is_a_period_in_utc(text, begin, end):
    assert parse_period(text) == Period(begin, begin + 1 if end is None else end)


@pytest.mark.parametrize(
    "text",
    [
        "", " 2024-05-01", "now", "12:30", "2460000.5", "20240501", "2024-5-1", "2024-13-01",
        "2024-02-30", "2023-02-29", "0000-01-01",
        "2024-05-01T", "2024-05-01T12", "2024-05-01T24:00", "2024-05-01T12:60", "2024-05-01T12:30:61", "2024-W18-3",
        "2024-05-01T12:30+24:00", "2024-05-01T12:30+02:60", "2024-05-01Z", "٢٠٢٤-٠٥-٠١", "2024-05-01\x00",
        None, 2024, 1.5,
    ],
)  # fmt: skip
def test_what_is_no_date_is_none(text):
    assert parse_period(text) is None


def test_dates_of_python_are_days_and_moments():
    two_hours = datetime.timezone(datetime.timedelta(hours=2))
    assert parse_period(datetime.date(2024, 5, 1)) == (MAY, MAY + DAY)
    assert parse_period(datetime.datetime(2024, 5, 1)) == (MAY, MAY + 1)
    assert parse_period(datetime.datetime(2024, 5, 1, 2, tzinfo=two_hours)) == (MAY, MAY + 1)
    assert json.dumps({"gte": datetime.date(2024, 5, 1)}, default=operand_as_json) == '{"gte": {"$date": "2024-05-01"}}'
    with pytest.raises(TypeError, match="set"):
        json.dumps({"gte": {1}}, default=operand_as_json)


def test_metadata_of_dates_are_stored_as_texts(tmp_path: Path):
    metadata = {"day": datetime.date(2024, 5, 1), "seen": [datetime.datetime(2024, 5, 1, 12, 30)]}
    with mvindex.create(tmp_path / "a.mvx", dim=2) as index:
        index.add_views([mvindex.Document("a", "t", metadata=metadata)], np.ones((1, 1, 2)))
        index.update("a", metadata=metadata)
        found = index.get("a")
    assert found is not None and found.metadata == {"day": "2024-05-01", "seen": ["2024-05-01T12:30:00"]}
    with pytest.raises(DocumentError, match=r"'at': expected .*date.*, got time"):
        mvindex.Document("b", "t", metadata={"at": datetime.time(12)})


EARLY_OR_LATE = [
    "2024-04-30T00:01:00-23:59", "2024-05-02T23:58:00+23:59", "2024-05-01", "2024-05", "2024", "0001", "0001-01-01",
    "0001-01-01T00:00:00+23:59", "9999-12-31", "9999-12-31T23:59:59-23:59",
]  # fmt: skip


@pytest.mark.parametrize("text", EARLY_OR_LATE)
def test_texts_that_are_compared_first_decide_nothing_wrong(text):
    period = parse_period(text)
    assert period is not None
    for moment in (period.begin - DAY, period.begin):
        assert text >= first_text(moment)
    for moment in (period.begin + 1, period.begin + DAY):
        assert text < last_text(moment)


def test_of_texts_longer_than_a_date_nothing_is_kept():
    fields._kept_begin_of.cache_clear()
    assert fields._begin_of("2024-05-01T12:30:00.123456789+02:00") is not None
    for number in range(20):
        assert fields._begin_of(f"2024-05-01 {number}" + "x" * 60_000) is None
    assert fields._kept_begin_of.cache_info().currsize == 1
