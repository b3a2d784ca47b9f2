"""Work grows with a text, never with its square: every public path of texts, for texts of many alphabets."""

import re
import time

import pytest

from tests.growth import alphabets
from tests.growth.alphabets import texts
from tests.growth.paths import PATHS, TextPath, run_path

# Twice the text is at most so many times the work; measured between a text and one of four times its length.
MOST_GROWTH = 2.6
# What takes less is not told from the clock's own steps and a collection of garbage.
LEAST_SECONDS = 0.03
# The machine may be busy: what seems to take too long is measured again, and the best of so many runs counts.
RUNS = 5


def seconds(path, text, folder, runs=1):
    """Return the least CPU time of a few runs."""
    times = []
    for _ in range(runs):
        begun = time.process_time()
        run_path(path, text, folder)
        times.append(time.process_time() - begun)
    return min(times)


def is_slow(short, long, limit):
    """Return whether four times the text takes too many times the work of the short one, or longer than the limit."""
    return long > LEAST_SECONDS and (long > short * MOST_GROWTH**2 or long > limit)


def check_growth(path, length, folder, *, is_timed):
    """Raise AssertionError naming the texts for which the path takes too long."""
    run_path(path, "A b. C d.", folder)  # imports and caches
    small, slow = texts(length // 4), []
    for name, text in texts(length).items():
        limit = path.seconds_per_mb * len(text) / 1e6 if is_timed else float("inf")
        long = seconds(path, text, folder)
        if long <= LEAST_SECONDS or not is_slow(seconds(path, small[name], folder), long, limit):
            continue
        short, long = (seconds(path, each, folder, RUNS) for each in (small[name], text))
        if is_slow(short, long, limit):
            slow.append(f"{name}: {short:.3f} s, four times of it {long:.3f} s, limit {limit:.3f} s")
    assert not slow, "\n".join(slow)


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.name)
def test_four_times_the_text_is_at_most_seven_times_the_work(path, tmp_path):
    check_growth(path, 6_000, tmp_path, is_timed=False)


@pytest.mark.full
@pytest.mark.long
@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.name)
def test_long_texts_take_seconds_a_megabyte(path, tmp_path):
    check_growth(path, 200_000, tmp_path, is_timed=True)


def test_a_scanner_that_takes_the_square_is_found(tmp_path, monkeypatch):
    monkeypatch.setattr(alphabets, "ALPHABETS", {"spaces": " "})
    squared = TextPath("squared", lambda text, _: re.findall(r"\s+x", text))
    with pytest.raises(AssertionError, match="spaces, bare"):
        check_growth(squared, 24_000, tmp_path, is_timed=False)
