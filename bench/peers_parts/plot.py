"""Recall of each peer against the time of a single query, a panel for each collection and depth."""

import numpy as np

from peers_parts.measuring import DEPTHS


def front(points):
    """Return the points that no faster one equals, in rising time; points: (milliseconds, recall)s."""
    kept = []
    for point in sorted(points, key=lambda point: (point[0], -point[1])):
        if not kept or point[1] > kept[-1][1]:
            kept.append(point)
    return kept


def plot(rows, file):
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    tables = list(dict.fromkeys((row["corpus"], row["documents"]) for row in rows))
    lines = list(dict.fromkeys((row["peer"], row["variant"]) for row in rows))
    figure, panels = plt.subplots(len(tables), len(DEPTHS), figsize=(12, 5 * len(tables)), squeeze=False)
    for axes_of_table, table in zip(panels, tables, strict=True):
        for axes, depth in zip(axes_of_table, DEPTHS, strict=True):
            for number, (peer, variant) in enumerate(lines):
                chosen = (peer, variant, *table)
                found = [
                    row for row in rows if (row["peer"], row["variant"], row["corpus"], row["documents"]) == chosen
                ]
                points = front((row[f"cpu_ms@{depth}"], row[f"recall@{depth}"]) for row in found)
                style = "o-" if peer == "mvindex" else "s:"
                label = f"{peer} {variant}".removesuffix(" default")
                axes.plot(*np.array(points).reshape(-1, 2).T, style, label=label, color=f"C{number % 10}")
            axes.set(xscale="log", xlabel="milliseconds of processor time, single query", ylabel=f"recall@{depth}")
            axes.set_ylim(0.5, 1.005)
            axes.set_title(f"{table[0]}, {table[1]:,} documents, first {depth}")
            axes.grid(alpha=0.3)
    panels[0][-1].legend(frameon=False, fontsize="small")
    figure.tight_layout()
    figure.savefig(file)
