"""Random sequences of everything a caller may do with an index, each answer compared with the plain model's."""

from dataclasses import replace

import numpy as np
from hypothesis import strategies as st

import mvindex
from mvindex.errors import DocumentError, EncoderError, StoreError
from tests.contract.model import given
from tests.contract.model.base import DIM, WHICH, step
from tests.contract.model.checks import check_result
from tests.contract.model.maintaining import KeepingRules
from tests.contract.model.reading import ReadingRules
from tests.contract.model.state import Given
from tests.contract.model.writing import WritingRules


class IndexMachine(WritingRules, ReadingRules, KeepingRules):
    """An index of given vectors."""

    def encoded(self, items):
        """The documents as this index takes them."""
        return list(items)

    def hand_over(self, handle, batch, form):
        """Return the report of add_views(); form: lists, arrays where of one shape, streams, or wide floats."""
        documents, views = [each.document for each in batch], [each.views for each in batch]
        if form == 1 and len({np.shape(rows) for rows in views}) == 1:
            views = np.array(views)
        if form == 2:
            documents = iter(documents)
        if form == 3:
            views = [rows.astype(np.float64) for rows in views]
        return handle.index.add_views(documents, views)

    def faults(self):
        """Return faults of the last document: the error, and a function that makes it of those before and one more."""
        return [
            (DocumentError, lambda good, bad: good[0] if good else Given("no document", bad.views)),
            (EncoderError, lambda good, bad: Given("no document", bad.views)),
            (EncoderError, lambda good, bad: bad._replace(views=np.ones((1, DIM + 1), np.float32))),
            (EncoderError, lambda good, bad: bad._replace(views=np.ones((0, DIM), np.float32))),
            (StoreError, lambda good, bad: bad._replace(views=np.array([[1, 2, np.nan]], np.float32))),
            (StoreError, lambda good, bad: bad._replace(views=np.array([[1, 2, 2e18]], np.float32))),
        ]


class EncodingMachine(WritingRules, ReadingRules, KeepingRules):
    """An index with an encoder: texts are given, and a document is known again by its text."""

    def __init__(self):
        super().__init__()
        self.vectors = given.TextVectors(DIM)
        self.encoder = mvindex.CallableEncoder(
            self.vectors.documents, query_function=self.vectors.queries, name="model", dim=DIM
        )

    def encoded(self, items):
        shown = (item.document for item in items if item.document.text or item.document.title)
        return [Given(document, self.views_of(document), has_encoder=True) for document in shown]

    def views_of(self, document):
        return self.vectors.views("\n".join(filter(None, (document.title, document.text)))).astype(np.float32)

    def hand_over(self, handle, batch, form):
        documents = [each.document for each in batch]
        return handle.index.add(iter(documents) if form == 2 else documents)

    def faults(self):
        def other(**words):
            return lambda good, bad: bad._replace(document=replace(bad.document, **words))

        return [
            (DocumentError, lambda good, bad: good[0] if good else other(text=" \u200b", title="")(good, bad)),
            (DocumentError, other(text=" \u200b", title="")),
            (DocumentError, lambda good, bad: bad._replace(document=7)),
            (ConnectionError, other(text="boom")),
            (EncoderError, other(text="not a number")),
        ]

    @step(which=WHICH, texts=st.lists(st.sampled_from(given.TEXTS), min_size=1, max_size=3), top_k=st.integers(1, 15))
    def search_by_texts(self, which, texts, top_k):
        handle, vectors = self.handle(which), self.vectors.queries(texts).astype(np.float32)
        found = [handle.index.search(texts[0], top_k=top_k), *handle.index.search(texts, top_k=top_k)]
        for result, vector in zip(found, [vectors[0], *vectors], strict=True):
            check_result(result, handle.seen, self.settings, vector, top_k=top_k)
