"""Two stand-ins for a large collection, made from real sentence vectors a block of documents at a time.

`gauss` draws three nested levels (article, passage, view) from Gaussians with the covariances of the real vectors: it
has their spread, but no local structure, and is harder than real text at every depth. `transplants` moves real articles
to new centres: each article's residuals keep their inner products (a random reflection in the basis of all residuals),
its real questions move with it; easier than real text for the first ten documents, harder for the first hundred.
"""

from dataclasses import dataclass

import numpy as np

BLOCK_DOCUMENTS = 8192
PASSAGES_PER_ARTICLE = 45


@dataclass(frozen=True)
class Real:
    """Real vectors. views: (r, d), unit; document: (r,), rising; article: of each document; questions: (q, d), unit;
    asked: (q,), the document that each is about.
    """  # noqa: D205 - the first sentence takes two lines

    views: np.ndarray
    document: np.ndarray
    article: np.ndarray
    questions: np.ndarray
    asked: np.ndarray


def root(covariance):
    """Return the symmetric square root: x @ root has that covariance where x is white."""
    values, vectors = np.linalg.eigh(covariance)
    return ((vectors * np.sqrt(np.maximum(values, 0))) @ vectors.T).astype(np.float32)


def means_by(rows, groups):
    """Return the mean row of each group, (groups.max() + 1, d)."""
    counts = np.bincount(groups)
    sums = np.zeros((len(counts), rows.shape[1]))
    np.add.at(sums, groups, rows)
    return sums / counts[:, None]


def unit(rows):
    return (rows / np.linalg.norm(rows, axis=-1, keepdims=True)).astype(np.float32)


def article_root(centres, residuals):
    """Return the root of the covariance of article centres, half of it that of all residuals: centres are too few."""
    spread = centres - centres.mean(axis=0)
    between, within = spread.T @ spread / (len(centres) - 1), residuals.T @ residuals / len(residuals)
    return root(0.5 * between + 0.5 * np.trace(between) / np.trace(within) * within)


class Gauss:
    """Documents and questions only by covariances."""

    name = "gauss"

    def __init__(self, real, num_views, seed):
        self.num_views, self.seed = num_views, seed
        passages = means_by(real.views, real.document)
        centres = means_by(passages, real.article)
        inside, between = real.views - passages[real.document], passages - centres[real.article]
        view = inside.T @ inside / (len(inside) - len(passages))
        mean_share = np.mean(1 / np.bincount(real.document))
        passage = between.T @ between / (len(between) - len(centres)) - view * mean_share
        self._roots = (article_root(centres, between), root(passage), root(view))
        self._mean = centres.mean(axis=0).astype(np.float32)
        best = np.array([_best_view(real, number) for number in range(len(real.questions))])
        self._cosines = np.einsum("ij,ij->i", real.views[best], real.questions)
        shift = real.views[best] - self._mean
        centred = real.questions - real.questions.mean(axis=0)
        rest = centred - float((shift * centred).sum() / (shift * shift).sum()) * shift
        self._rest, self._question_mean = root(rest.T @ rest / len(rest)), real.questions.mean(axis=0)

    def block(self, number, count):
        """Return unit views of documents of one block, (count, num_views, d)."""
        rng = np.random.default_rng([self.seed, 1, number])
        dim = len(self._mean)
        article_of = np.arange(count) // PASSAGES_PER_ARTICLE
        of_article, of_passage, of_view = self._roots
        articles = rng.standard_normal((article_of[-1] + 1, dim), dtype=np.float32) @ of_article + self._mean
        passages = articles[article_of] + rng.standard_normal((count, dim), dtype=np.float32) @ of_passage
        noise = rng.standard_normal((count * self.num_views, dim), dtype=np.float32) @ of_view
        return unit(passages[:, None] + noise.reshape(count, self.num_views, dim))

    def questions(self, number, count, views):
        """Return questions about documents of a block, (n, d): as near to a view as real ones are."""
        rng = np.random.default_rng([self.seed, 2, number])
        flat = views.reshape(-1, views.shape[2])
        aimed = flat[rng.integers(0, len(flat), count)]
        away = rng.standard_normal(aimed.shape, dtype=np.float32) @ self._rest + self._question_mean
        away = unit(away - np.einsum("ij,ij->i", away, aimed)[:, None] * aimed)
        cosine = rng.choice(self._cosines, count)[:, None]
        return unit(cosine * aimed + np.sqrt(1 - cosine**2) * away)


class Transplants:
    """Real articles at new centres, with their real questions."""

    name = "transplants"

    def __init__(self, real, num_views, seed):
        self.num_views, self.seed, self._real = num_views, seed, real
        centres = means_by(real.views, real.article[real.document])
        residuals = real.views - centres[real.article[real.document]]
        self._basis = np.linalg.eigh(residuals.T @ residuals)[1].astype(np.float32)
        self._mean, self._root = centres.mean(axis=0).astype(np.float32), article_root(centres, residuals)
        self._residuals = (residuals @ self._basis).astype(np.float32)
        self._question_residuals = ((real.questions - centres[real.article[real.asked]]) @ self._basis).astype(
            np.float32
        )
        self._documents = [np.flatnonzero(real.article == article) for article in range(len(centres))]
        self._starts = np.searchsorted(real.document, np.arange(len(real.article) + 1))

    def block(self, number, count):
        """Return unit views of documents of one block, (count, num_views, d)."""
        parts = [views for views, _, _ in self._articles(number, count)]
        return np.concatenate(parts)[:count]

    def questions(self, number, count, views):
        """Return real questions about documents of a block, moved with their articles, (n, d)."""
        rng = np.random.default_rng([self.seed, 4, number])
        found = []
        for _, documents, moved in self._articles(number, len(views)):
            about = np.flatnonzero(np.isin(self._real.asked, documents))
            if len(about):
                found.append(moved(self._question_residuals[rng.choice(about, min(len(about), 1 + count // 50))]))
            if sum(map(len, found)) >= count:
                break
        return np.concatenate(found)[:count]

    def _articles(self, number, count):
        """Yield each article of a block: its documents' views, their numbers, and how vectors move with it."""
        rng = np.random.default_rng([self.seed, 3, number])
        made = 0
        while made < count:
            documents = self._documents[rng.integers(len(self._documents))]
            signs = rng.choice(np.array([-1, 1], dtype=np.float32), len(self._mean))
            centre = self._mean + rng.standard_normal(len(self._mean), dtype=np.float32) @ self._root

            def moved(residuals, signs=signs, centre=centre):
                return unit((residuals * signs) @ self._basis.T + centre)

            documents = documents[: count - made]
            views = np.stack([self._views_of(document, rng) for document in documents])
            made += len(documents)
            yield moved(views), documents, moved

    def _views_of(self, document, rng):
        """Return num_views residuals of a document: its own, and means of two of them where it has too few."""
        own = np.arange(self._starts[document], self._starts[document + 1])
        rows = self._residuals[rng.permutation(own)[: self.num_views]]
        pairs = rng.integers(0, len(rows), (self.num_views - len(rows), 2))
        return np.concatenate([rows, (rows[pairs[:, 0]] + rows[pairs[:, 1]]) / 2])


def _best_view(real, number):
    rows = np.flatnonzero(real.document == real.asked[number])
    return rows[np.argmax(real.views[rows] @ real.questions[number])]


CORPORA = {corpus.name: corpus for corpus in (Gauss, Transplants)}
