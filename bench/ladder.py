"""Draw what an index takes from 100,000 to 168 million views, from rows of bench/full_count.py.

    python bench/ladder.py docs/figures/ladder.jsonl docs/figures/full_count_zen4.jsonl --plot docs/plots/ladder.png
    python bench/ladder.py docs/figures/peers_by_size.jsonl --peers --plot docs/plots/ladder_peers.png

Of each size the last row of a step counts, and that of tuned searches where there are any. Prints the values as JSON, a
row for each panel. --peers: of rows of bench/peers.py at several sizes; of each peer the cheapest setting counts that
finds .97 of the first ten documents and is never short of them, or else the one that finds most.
"""

import json
from pathlib import Path

import harness

ROOT = Path(__file__).resolve().parent.parent
VIEWS = 8
MB, MS = 1e-6, 1e-3
# Title, how rows are found, the name of the value (of percentiles the median counts), and its unit; None: a document.
PANELS = (
    ("ingest, CPU us a document", {"step": "ingest", "is_last": True}, "cpu_us_each", 1),
    ("disk, bytes a document, engine included", {"step": "build"}, "disk_bytes", None),
    ("private memory of the build, MB", {"step": "build"}, "peak_bytes", MB),
    ("cold open, s", {"step": "open"}, "cold_open_s", 1),
    ("first 10, CPU ms", {"of": ("dense 10", "dense 10, tuned")}, "warm_cpu_ms", 1),
    ("recall@10", {"of": ("dense 10", "dense 10, tuned")}, "recall", 1),
    ("certified batch, CPU ms a query", {"of": "certified batch"}, "cpu_us_each", MS),
    ("filter to a thousandth, CPU ms", {"of": "filter of a thousandth"}, "warm_cpu_ms", 1),
)

PEER_PANELS = (
    ("first 10, CPU ms of a single query", "cpu_ms@10"),
    ("recall@10", "recall@10"),
    ("build, CPU s", "build_cpu_s"),
    ("disk, bytes a document", "disk_B_doc"),
)
AIM = 0.97


def chosen(rows):
    """Return the row of each peer and size that counts, by peer."""
    found = {}
    for row in rows:
        if "not read" not in row["setting"]:
            found.setdefault(f"{row['peer']} {row['variant']}", {}).setdefault(row["documents"] * VIEWS, []).append(row)

    def best(settings):
        reached = [row for row in settings if row["recall@10"] >= AIM and not row["short@10"]]
        return (
            min(reached, key=lambda row: row["cpu_ms@10"])
            if reached
            else max(settings, key=lambda row: row["recall@10"])
        )

    return {peer: {size: best(settings) for size, settings in sorted(sizes.items())} for peer, sizes in found.items()}


def draw_peers(by_peer, file):
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(1, 4, figsize=(13, 3.4), layout="constrained", sharex=True)
    for axis, (title, name) in zip(axes.flat, PEER_PANELS, strict=True):
        for peer, sizes in by_peer.items():
            axis.plot(list(sizes), [row[name] for row in sizes.values()], "o-", label=peer)
        axis.set_title(title, fontsize=9)
        axis.set_xscale("log")
        axis.set_yscale("linear" if name.startswith("recall") else "log")
    axes.flat[0].legend(fontsize=7)
    figure.supxlabel("views")
    figure.savefig(file, dpi=110)
    plt.close(figure)


def values(rows, found_by, name, unit):
    """Return the number of views and the value of each size, by size; a step that was killed at its end has none."""
    found = {}
    for row in rows:
        if name in row and all(_fits(row.get(key), wanted) for key, wanted in found_by.items()):
            value = row[name][0] if isinstance(row[name], list) else row[name]
            found[row["documents"] * VIEWS] = round(value * (1 / row["documents"] if unit is None else unit), 4)
    return sorted(found.items())


def _fits(value, wanted):
    return value in wanted if isinstance(wanted, tuple) else value == wanted


def draw(lines, file):
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(2, 4, figsize=(13, 6), layout="constrained", sharex=True)
    for axis, (title, points) in zip(axes.flat, lines.items(), strict=True):
        axis.plot(*zip(*points, strict=True), "o-", color="tab:blue")
        axis.set_title(title, fontsize=9)
        axis.set_xscale("log")
        if title.startswith("recall"):
            axis.set_ylim(0.8, 1.01)
        elif max(value for _, value in points) > 10 * min(value for _, value in points):
            axis.set_yscale("log")
        else:
            axis.set_ylim(0)
    figure.supxlabel("views")
    figure.savefig(file, dpi=110)
    plt.close(figure)


def main():
    parser = harness.parser(__doc__)
    parser.add_argument("rows", type=Path, nargs="+", help="of bench/full_count.py, or of bench/peers.py")
    parser.add_argument("--peers", action="store_true", help="draw peers at several sizes")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="write the plot there (needs matplotlib)")
    options = harness.parse(parser, rows=[ROOT / "docs/figures/ladder.jsonl"], plot=None)
    rows = [json.loads(line) for file in options.rows for line in file.read_text(encoding="utf-8").splitlines()]
    if options.peers:
        by_peer = chosen(rows)
        for peer, sizes in by_peer.items():
            print(
                json.dumps(
                    {"peer": peer} | {size: [row[name] for _, name in PEER_PANELS] for size, row in sizes.items()}
                )
            )
        if options.plot is not None:
            draw_peers(by_peer, options.plot)
        return
    lines = {title: values(rows, *panel) for title, *panel in PANELS}
    for title, points in lines.items():
        print(json.dumps({"of": title, "by_views": dict(points)}))
    if options.plot is not None:
        draw(lines, options.plot)


if __name__ == "__main__":
    main()
