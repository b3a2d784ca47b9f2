"""Pictures of figures that the docs hold in tables: they are read from the page, so they say what it says."""

import re

from pictures_parts.canvas import Canvas

PARTS = [("one vector", "one"), ("views", "two"), ("BM25", "three"), ("hybrid", "four")]
PEERS = [
    ("mvindex exact", "two", "mvindex, exact"),
    ("mvindex graph", "four", "mvindex, graph"),
    ("faiss IVF-PQ", "three", "Faiss IVF-PQ"),
    ("hnswlib", "five", "hnswlib"),
    ("lancedb IVF_SQ", "six", "LanceDB IVF_SQ"),
]


def tables_of(page):
    """Return the tables of a Markdown page: each a list of rows, the first one the header."""
    tables, rows = [], []
    for line in [*page.read_text(encoding="utf-8").splitlines(), ""]:
        if line.startswith("|"):
            rows.append([cell.strip().replace("**", "") for cell in line.strip("|").split(" |")])
        elif rows:
            tables.append([row for row in rows if not set("".join(row)) <= set("-: ")])
            rows = []
    return tables


def draw_quality(page):
    """Draw the bars of the first table on this page that has a column for each way to search."""
    head, *rows = next(table for table in tables_of(page) if {name for name, _ in PARTS} <= set(table[0]))
    canvas = Canvas(
        760,
        "Quality by way of searching",
        "R@1 or nDCG@10 in percent on nine collections: one vector, views, BM25, and both fused.",
    )
    for number, (name, kind) in enumerate(PARTS):
        canvas.rect(240 + 120 * number, 16, 12, 12, kind, 2)
        canvas.text(258 + 120 * number, 27, name, size=12)
    y = 42
    for row in rows:
        canvas.text(20, y + 26, re.sub(r" \(.*", "", row[0]), size=12)
        for name, kind in PARTS:
            value = float(row[head.index(name)].split()[0])
            canvas.rect(240, y, 4.5 * value, 8, kind, 1)
            if name in ("one vector", "hybrid"):
                canvas.text(246 + 4.5 * value, y + 8, f"{value:.1f}", size=10, kind="soft")
            y += 9
        y += 9
    canvas.text(20, y + 12, "Percent: R@1 of the first three sets, nDCG@10 of the others. Higher is better.",
                size=11, kind="soft")  # fmt: skip
    return canvas.render(y + 28)


def draw_recall(page):
    """Draw recall against time of a single query from the first table of the ladder on this page."""
    head, *rows = next(table for table in tables_of(page) if {"peer", "recall@10", "single@10, ms"} <= set(table[0]))
    columns = [head.index(name) for name in ("peer", "recall@10", "single@10, ms")]
    points = {}
    for peer, recall, time_ms in ([row[column] for column in columns] for row in rows if len(row) == len(head)):
        if re.fullmatch(r"[\d.]+", recall) and re.fullmatch(r"[\d.]+", time_ms):
            points.setdefault(peer, []).append((float(time_ms), float(recall)))
    canvas = Canvas(
        760,
        "Recall against time of a single query",
        "100,000 documents of 8 views, first 10; processor time in ms on a logarithmic axis.",
    )

    def place(time_ms, recall):
        import math

        return 70 + 160 * (math.log10(time_ms) + 1), 250 - 220 * recall

    for share in (0, 0.25, 0.5, 0.75, 1):
        canvas.line([(70, 250 - 220 * share), (560, 250 - 220 * share)])
        canvas.text(62, 254 - 220 * share, f"{share:.2f}", size=11, kind="soft", anchor="end")
    for power, label in enumerate(("0.1", "1", "10", "100")):
        canvas.text(70 + 160 * power, 268, label, size=11, kind="soft", anchor="middle")
    canvas.text(315, 286, "ms of processor time per query (left is faster)", size=11, kind="soft", anchor="middle")
    canvas.text(20, 20, "recall of the first 10", size=11, kind="soft")
    for number, (peer, kind, label) in enumerate(PEERS):
        places = [place(*point) for point in sorted(points[peer])]
        for x, y in places:
            canvas.dot(x, y, kind)
        canvas.dot(590, 46 + 22 * number, kind)
        canvas.text(602, 50 + 22 * number, label, size=12)
    return canvas.render(300)
