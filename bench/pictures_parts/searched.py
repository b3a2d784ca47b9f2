"""Pictures of searches in a real index: a query beside the views of its first hit, and how a certified search ends."""

import numpy as np

from pictures_parts.canvas import Canvas, wrap


def draw_query(index, query):
    """Draw the first hit of the query: the part of the text that each view stands for, its score, and the citation."""
    result = index.search(query, top_k=1)
    hit = result.hits[0]
    views = sorted(index.explain(query, hit.id), key=lambda view: view.span)
    best = max(views, key=lambda view: view.score)
    canvas = Canvas(
        760,
        f"A query, and the {len(views)} views of the document that answers it",
        f"{query} The view of “{best.snippet}” wins with {best.score:.2f}. Cited: {hit.citation.text}",
    )
    canvas.text(20, 32, f"“{query}”", size=15, weight=600)
    found = "exact" if result.exact else "approximate"
    canvas.text(20, 54, f"{hit.title}: first of {len(index):,} documents, {found}", size=12, kind="soft")
    canvas.text(740, 54, "score of each view", size=12, kind="soft", anchor="end")
    y = 68
    for view in views:
        is_cited = view.span[0] <= hit.citation.start < view.span[1]
        height = 12 + 17.55 * len(wrap(view.snippet, 440, 13))
        if is_cited:
            canvas.rect(12, y, 736, height, "mark")
        canvas.wrapped(22, y + 19, view.snippet, 440, weight=600 if is_cited else 400)
        canvas.rect(540, y + 7, max(1, 130 * view.score), 13, "two" if view is best else "one", 2)
        canvas.text(738, y + 18, f"{view.score:.2f}", anchor="end", weight=600 if view is best else 400)
        y += height + 2
    canvas.text(22, y + 18, "Each sentence has a vector of its own. The best one ranks the document;"
                " the cited sentence is marked.", size=12, kind="soft")  # fmt: skip
    return canvas.render(y + 32)


def draw_certified(index, query, top_k=5, shown=44):
    """Draw the bounds of an 8-bit scan for the documents nearest to the query, and which of them are scored."""
    (vector,) = index.encode_queries([query])
    table = index.to_arrow(views=True).read_all()
    lower, upper, exact = (np.array(values) for values in zip(*bounds_of(table["vectors"], vector), strict=True))
    threshold = np.sort(lower)[-top_k]
    order = np.argsort(-upper)[:shown]
    left = int((upper < threshold).sum())
    canvas = Canvas(
        760,
        "How a certified search ends",
        f"Bounds of the score of each document. {left:,} of {len(upper):,} are below the {top_k}th best lower bound.",
    )
    low, high = float(lower[order].min()) - 0.005, float(upper[order].max()) + 0.005

    def height_of(score):
        return 250 - 200 * (score - low) / (high - low)

    level = height_of(threshold)
    canvas.text(20, 28, f"{len(upper):,} documents, the {top_k} best wanted", size=14, weight=600)
    for place, row in enumerate(order):
        x, kind = 30 + 16 * place, "two" if upper[row] >= threshold else "one"
        canvas.rect(x, height_of(upper[row]), 8, max(1.5, height_of(lower[row]) - height_of(upper[row])), kind, 1)
        if kind == "two":
            canvas.dot(x + 4, height_of(exact[row]), "three", 2.5)
    canvas.line([(24, level), (736, level)], dashed=True)
    canvas.text(738, level - 6, f"{top_k}th best lower bound", size=11, kind="soft", anchor="end")
    lines = (
        "bar: the least and the most that the document can score, from the 8-bit scan and its stored rounding errors",
        f"dot: exact score from the stored views, for the {len(upper) - left:,} documents whose bar reaches the line",
        f"The other {left:,} cannot be among the first {top_k}: proven, and not read.",
    )
    for number, (kind, line) in enumerate(zip(("two", "three", "one"), lines, strict=True)):
        canvas.dot(26, 276 + 19 * number, kind)
        canvas.text(38, 280 + 19 * number, line, size=12)
    return canvas.render(330)


def bounds_of(documents, query):
    """Yield the least, the most and the exact score of each document, as decision 004 bounds an 8-bit scan."""
    rows = [np.array(vectors.as_py(), dtype=np.float64) for vectors in documents]
    scale = np.maximum(np.abs(np.concatenate(rows)).max(axis=0), 1e-12) / 127
    query = np.asarray(query, dtype=np.float64)
    scaled = query * scale
    step = np.abs(scaled).max() / 127
    rounded = np.round(scaled / step) * step / scale
    for vectors in rows:
        stored = np.round(vectors / scale) * scale
        errors = np.linalg.norm(query) * np.linalg.norm(vectors - stored, axis=1)
        errors += np.linalg.norm(query - rounded) * np.linalg.norm(stored, axis=1)
        scores = stored @ rounded
        yield (scores - errors).max(), (scores + errors).max(), (vectors @ query).max()
