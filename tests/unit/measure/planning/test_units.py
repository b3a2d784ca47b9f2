"""Numbers as people write them, there and back."""

import pytest

from mvindex.errors import ConfigError
from mvindex.measure.planning.units import format_bytes, format_seconds, parse_bytes, parse_count


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("21M", 21_000_000),
        ("21m", 21_000_000),
        ("1.5e6", 1_500_000),
        ("21_015_324", 21_015_324),
        ("21,015,324", 21_015_324),
        (" 3k ", 3000),
        ("2.1B", 2_100_000_000),
        ("1", 1),
        ("0.5k", 500),
    ],
)
def test_counts_are_read_as_people_write_them(text, count):
    assert parse_count("--documents", text) == count


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("64G", 64 * 2**30),
        ("64GiB", 64 * 2**30),
        ("64GB", 64 * 10**9),
        ("2T", 2 * 2**40),
        ("1.5g", 3 * 2**29),
        ("512 MiB", 2**29),
        ("4194304", 2**22),
        ("2000000B", 2_000_000),
    ],
)
def test_a_letter_alone_is_a_power_of_1024_and_one_with_b_of_1000(text, size):
    assert parse_bytes("--ram", text) == size


@pytest.mark.parametrize(
    "text", ["", "lots", "-3", "21Q", "2.5", "0", "1e400", "1e-9", "nan", "inf", "1 2", "0x10", "٣"]
)
def test_what_is_no_count_is_refused_by_name(text):
    with pytest.raises(ConfigError, match="--documents"):
        parse_count("--documents", text)


@pytest.mark.parametrize("text", ["", "64X", "G", "-1G", "0", "1e99T", "64 GiB of memory", "1K5", "8", "8K"])
def test_what_are_no_bytes_is_refused_by_name(text):
    with pytest.raises(ConfigError, match="--ram"):
        parse_bytes("--ram", text)


@pytest.mark.parametrize(
    ("size", "shown"),
    [
        (0, "0 B"),
        (1023, "1.0 KiB"),
        (999, "999 B"),
        (1 << 20, "1.0 MiB"),
        (34_973_000_000, "32.6 GiB"),
        (240 << 30, "240 GiB"),
        (1 << 41, "2.0 TiB"),
    ],
)
def test_bytes_are_shown_in_units_of_1024(size, shown):
    assert format_bytes(size) == shown


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (0.00734, "7.3 ms"),
        (0.134, "134 ms"),
        (1.0, "1.0 s"),
        (90, "90 s"),
        (300, "5.0 min"),
        (36_000, "10 h"),
        (10**6, "12 d"),
    ],
)
def test_times_are_shown_with_two_or_three_figures(seconds, shown):
    assert format_seconds(seconds) == shown
