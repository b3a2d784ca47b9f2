"""Documents of 8 views each around a centre of their own, made again from their numbers."""

import numpy as np

VIEWS, CHUNK = 8, 1_024


def rows_of(numbers, dim, spread=0.5):
    """Return the views of the documents, (n, VIEWS, dim) float32 of length 1."""
    made = []
    for number in numbers:
        rng = np.random.default_rng(number)
        centre = rng.standard_normal(dim)
        rows = centre + spread * rng.standard_normal((VIEWS, dim))
        made.append(rows / np.linalg.norm(rows, axis=1, keepdims=True))
    return np.array(made, dtype=np.float16).astype(np.float32)


def documents_of(numbers):
    """Return documents with texts of 600 characters."""
    return [(f"d{number}", f"document {number} " * 40) for number in numbers]


def queries_of(count, documents, dim):
    """Return queries near views of random documents, (count, dim) float32."""
    rng = np.random.default_rng(1)
    rows = rows_of(rng.integers(documents, size=count).tolist(), dim)[:, 0]
    return (rows + 0.5 * rng.standard_normal((count, dim)) / np.sqrt(dim)).astype(np.float32)
