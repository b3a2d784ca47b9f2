"""Timing of calls in turns, their ratios, and the options that such benches share."""

import json
import statistics
import time


def alternate(calls, rounds):
    """Return CPU seconds (rounds,) of each call by name, after one untimed round; the order alternates."""
    found = {name: [] for name in calls}
    for number in range(rounds + 1):
        for name in list(calls) if number % 2 else reversed(calls):
            begin = time.process_time()
            calls[name]()
            if number:
                found[name].append(time.process_time() - begin)
    return found


def ratios(above, below):
    """Return the median of the rounds' ratios, and the smallest and the largest of them."""
    each = sorted(one / other for one, other in zip(above, below, strict=True))
    return {"ratio": statistics.median(each), "range": [each[0], each[-1]]}


def ratio_text(row):
    low, high = row["range"]
    return f"ratio {row['ratio']:.3f} ({low:.3f}-{high:.3f})"


def add_options(parser):
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", action="store_true")


def show(row, as_line, as_json):
    print(json.dumps(row) if as_json else as_line(row), flush=True)
