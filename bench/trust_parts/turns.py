"""Two variants of a call in turns, and what their ratio is."""

import contextlib
import gc
import time

import numpy as np

CLOCKS = ("wall", "cpu")


def now():
    """Return wall and CPU seconds of the process, (2,)."""
    return np.array([time.perf_counter(), time.process_time()])


def timed(call):
    """Return seconds by both clocks, (2,); Python's collector runs before, not inside."""
    gc.collect()
    gc.disable()
    begin = now()
    call()
    seconds = now() - begin
    gc.enable()
    return seconds


def paired(prepare, variant, num_rounds):
    """Return seconds (rounds, 2, clocks) of a call without and inside the variant, in turns; two rounds only warm up.

    prepare(number): the call of that round, asked for before each of its two runs, and not timed.
    """
    rounds = []
    for number in range(num_rounds + 2):
        pair = {}
        for is_without in (False, True) if number % 2 else (True, False):
            call = prepare(number)
            with variant() if is_without else contextlib.nullcontext():
                pair[is_without] = timed(call)
        rounds.append([pair[False], pair[True]])
    return np.array(rounds[2:])


def ratios(times):
    """Return by clock the medians of both sides in ms, and the median, quartiles and interval of the rounds' ratios.

    times: seconds (rounds, 2, clocks). The interval holds 95 % of the medians of resampled rounds.
    """
    found = {"rounds": len(times)}
    for clock, sides in zip(CLOCKS, np.moveaxis(times, 2, 0), strict=True):
        each = sides[:, 0] / sides[:, 1]
        resampled = each[np.random.default_rng(0).integers(0, len(each), (2000, len(each)))]
        found[clock] = {
            "with_ms": float(np.median(sides[:, 0]) * 1e3),
            "without_ms": float(np.median(sides[:, 1]) * 1e3),
            "ratio": float(np.median(each)),
            "quartiles": np.quantile(each, [0.25, 0.75]).tolist(),
            "interval": np.quantile(np.median(resampled, axis=1), [0.025, 0.975]).tolist(),
        }
    return found


def ratio_text(found):
    """Return one line for a result of ratios()."""
    parts = [f"{found['rounds']:3d} rounds"]
    for clock in CLOCKS:
        row = found[clock]
        spread = "{:.3f}-{:.3f}".format(*row["interval"])
        parts.append(f"{clock} {row['with_ms']:9.2f} / {row['without_ms']:9.2f} ms = {row['ratio']:.3f} ({spread})")
    return "  ".join(parts)
