"""Work grows with a text, never with its square: every public path of texts, for texts of many alphabets."""

import gc
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
# Caches alone may make a megabyte take more than its parts: below so many seconds a character nothing is slow.
LEAST_SECONDS_PER_CHAR = 3e-7
# What slowness() takes on two quiet cores, on which the limits were measured, and how far measurements are apart.
QUIET_SECONDS, TOLERANCE = 0.0125, 1.25
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


def slowness():
    """Return how many times as long as on a quiet machine Python takes now, at least 1: others share its cores."""
    text = "a bc, def. " * 20_000
    begun = time.process_time()
    places: dict[str, list[tuple[int, int]]] = {}
    for match in re.finditer(r"\w+", text):
        places.setdefault(match[0], []).append(match.span())
    return max(1.0, (time.process_time() - begun) / QUIET_SECONDS)


def is_slow(short, long, limit, length):
    """Return whether four times the text takes too many times the work of the short one, or longer than the limit."""
    return long > least_seconds(length) and (long > short * MOST_GROWTH**2 or long > limit)


def least_seconds(length):
    return max(LEAST_SECONDS, LEAST_SECONDS_PER_CHAR * length)


def check_growth(path, length, folder, *, is_timed):
    """Raise AssertionError naming the texts for which the path takes too long."""
    run_path(path, "A b. C d.", folder)  # imports and caches
    small, slow = texts(length // 4), []
    for name, text in texts(length).items():
        begun = time.process_time()
        made = run_path(path, text, folder)
        long = time.process_time() - begun
        limit = path.most_seconds(text, made) if is_timed else float("inf")
        shorter = small[name] if path.reads_alike(length // 4, length) else text
        if long <= least_seconds(length) or not is_slow(seconds(path, shorter, folder), long, limit, length):
            continue
        limit *= TOLERANCE * slowness()
        short, long = (seconds(path, each, folder, RUNS) for each in (shorter, text))
        if is_slow(short, long, limit, length):
            slow.append(f"{name}: {short:.3f} s, four times of it {long:.3f} s, limit {limit:.3f} s")
    assert not slow, "\n".join(slow)


@pytest.fixture(autouse=True)
def without_old_garbage():
    """Let collections of garbage look at what the paths make, not at what other tests left."""
    gc.freeze()
    yield
    gc.unfreeze()


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
        check_growth(squared, 12_000, tmp_path, is_timed=False)
