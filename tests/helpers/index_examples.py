"""Documents and vectors for small indexes, and encoders that a test can foresee."""

import numpy as np

import mvindex
from mvindex.testing import unit


def documents(count, text="text"):
    return [mvindex.Document(str(n), f"{text} {n}") for n in range(count)]


def vectors(count, dim=4, seed=0):
    return unit(np.random.default_rng(seed).standard_normal((count, 2, dim)))


def by_length(texts):
    """An encoder that a test can foresee: two views of each text, from its length."""
    return np.array([[[len(text), 1.0], [1.0, len(text)]] for text in texts])


def one_vector(texts):
    return np.array([[float(len(text)), 1.0] for text in texts])
