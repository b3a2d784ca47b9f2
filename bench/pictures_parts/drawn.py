"""Pictures of how mvindex works: its parts, and the life of a document."""

from pictures_parts.canvas import Canvas


def draw_architecture():
    """Draw the parts that a document and a query go through."""
    canvas = Canvas(
        760,
        "The parts of mvindex",
        "Files become documents, the encoder makes views of them, the store keeps both. A query becomes a vector; an"
        " engine proposes documents; one function scores them from the stored views.",
    )
    canvas.text(20, 30, "ingest", weight=600, kind="soft")
    top = [
        ("files", "Markdown, PDF, CSV, JSON, Parquet, addresses"),
        ("documents", "id, title, text, metadata"),
        ("encoder", "up to 8 views of each text in one pass"),
        ("store", "views, texts, terms, checksums: one directory"),
    ]
    bottom = [
        ("hits", "k distinct documents, each with its cited sentence"),
        ("scores", "one function, from the stored views; ties in order"),
        ("engine", "proposes: exact scan, graph, Faiss kinds, Milvus"),
        ("query", "one vector, and terms for BM25"),
    ]
    for number, (title, text) in enumerate(top):
        canvas.boxed(20 + 184 * number, 42, 150, 84, title, text)
    for number, (title, text) in enumerate(bottom):
        canvas.boxed(20 + 184 * number, 196, 150, 84, title, text, "mark" if number == 0 else "box")
    for number in range(3):
        canvas.line([(170 + 184 * number, 84), (202 + 184 * number, 84)], arrow=True)
        canvas.line([(204 + 184 * number, 238), (172 + 184 * number, 238)], arrow=True)
    canvas.line([(647, 126), (647, 160), (463, 160), (463, 194)], arrow=True)
    canvas.line([(463, 160), (279, 160), (279, 194)], arrow=True)
    canvas.text(555, 153, "views", size=11, kind="soft", anchor="middle")
    canvas.text(20, 186, "search", weight=600, kind="soft")
    return canvas.render(298)


def draw_life():
    """Draw what happens to a document on disk, and what a crash leaves at each moment."""
    canvas = Canvas(
        760,
        "The life of a document on disk",
        "Append and fsync views, then one transaction, which is the acknowledgement; replace and delete mark rows;"
        " compact writes a new generation. A crash before the transaction leaves nothing, one after it loses nothing.",
    )
    steps = [
        ("append", "views and rows to files, fsync", "nothing of the batch is seen"),
        ("commit", "one transaction: texts, ids, lengths, checksums", "all of the batch is there"),
        ("search", "each block is checked when it is first read", "damage is named, not returned"),
        ("replace, delete", "a new row; the old one is marked deleted", "the old document or the new one"),
        ("compact", "a new generation aside, then one rename", "the old generation or the new one"),
    ]
    for number, (title, text, crash) in enumerate(steps):
        x = 20 + 146 * number
        canvas.boxed(x, 30, 122, 84, title, text, "mark" if number == 1 else "box")
        canvas.wrapped(x + 61, 170, crash, 126, size=12, anchor="middle")
        if number:
            canvas.line([(x - 24, 72), (x - 2, 72)], arrow=True)
    canvas.text(227, 132, "add() returns here", size=11, kind="four", anchor="middle", weight=600)
    canvas.text(20, 151, "after a crash", size=11, kind="soft", weight=600)
    return canvas.render(204)
