"""Documents of given views, and what is compared of answers."""

import numpy as np

import mvindex
from mvindex import Document
from mvindex.testing import unit


def topical(count, num_views, dim=16, seed=5, spread=0.2):
    """Documents whose views lie around a centre of their own, {id: (k, d)}."""
    rng = np.random.default_rng(seed)
    centres = unit(rng.standard_normal((count, 1, dim)))
    rows = unit(centres + spread * rng.standard_normal((count, num_views, dim)) / np.sqrt(dim))
    return {f"d{number}": rows[number] for number in range(count)}


def fill(index, views, metadata=None):
    documents = [Document(doc_id, f"text of {doc_id}", "title", (metadata or {}).get(doc_id, {})) for doc_id in views]
    return index.add_views(documents, list(views.values()))


def embedded(tmp_path, views, metadata=None, **settings):
    """An index in a directory of the same documents."""
    dim = next(iter(views.values())).shape[1]
    index = mvindex.create(tmp_path / "same.mvx", dim=dim, **settings)
    fill(index, views, metadata)
    return index


def assert_equal(found, wanted):
    """Assert that hits, scores, order and all shown fields are equal."""
    assert found.hits == wanted.hits
    assert (found.exact, found.short_by) == (wanted.exact, wanted.short_by)
