"""Indexes of the stand-ins, of any size, kept in build/bench; and the real vectors that they are made from."""

import itertools
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
from vectors import CACHE, cached_index, cached_squad

import mvindex
from mvindex.corpus import CorpusOptions, read_documents
from mvindex.index import embedded_store_of
from scale_parts.corpora import BLOCK_DOCUMENTS, CORPORA, Real, unit

NUM_QUESTIONS = 256
_BASE_QUESTIONS = 2048


def real_vectors(data, dim=None):
    """Return SQuAD's sentence vectors and questions by the packaged MiniLM, encoded once.

    dim: of their projections onto the first principal components of the sentences, scaled to unit norm; None for 384.
    """
    kept = CACHE / "squad-minilm-vectors.npz"
    if not kept.exists():
        _encode(data, kept)
    found = np.load(kept)
    real = Real(**{name: found[name] for name in ("views", "document", "article", "questions", "asked")})
    if dim is None or dim == real.views.shape[1]:
        return real
    components = np.linalg.eigh(real.views.T @ real.views)[1][:, ::-1][:, :dim]
    return replace(real, views=unit(real.views @ components), questions=unit(real.questions @ components))


def _encode(data, kept):
    path, questions = cached_squad(data)
    with mvindex.open(path) as index:
        views = embedded_store_of(index).snapshot.views
        rows = views.read_views(0, views.num_views).astype(np.float32)
        documents = list(index)
        titles = sorted({document.title for document in documents})
        number = {document.id: place for place, document in enumerate(documents)}
        drawn = np.random.default_rng(0).choice(len(questions), min(_BASE_QUESTIONS, len(questions)), replace=False)
        chosen = [questions[place] for place in np.sort(drawn)]
        vectors = index.encode_queries([question.text for question in chosen])
        np.savez(
            kept,
            views=unit(rows),
            document=np.repeat(np.arange(len(documents)), views.counts(0, len(documents))),
            article=np.array([titles.index(document.title) for document in documents]),
            questions=unit(vectors),
            asked=np.array([number[question.passage_id] for question in chosen]),
        )


def cached(corpus_name, num_documents, num_views, data, seed=0, dim=None):
    """Return the path of an index of a stand-in, and its questions, (NUM_QUESTIONS, d); dim: see real_vectors().

    Corpus `seeded` is made without real vectors, see vectors.py.
    """
    if corpus_name == "seeded":
        return cached_index(num_documents, num_views, dim or 384, seed)
    shape = f"{num_documents}x{num_views}" if dim is None else f"{num_documents}x{num_views}x{dim}"
    folder = CACHE / f"{corpus_name}-{shape}-seed{seed}"
    if not folder.exists():
        print(f"making {folder}", file=sys.stderr)
        building = folder.with_name(f"building-{folder.name}")
        shutil.rmtree(building, ignore_errors=True)
        building.mkdir(parents=True)
        if corpus_name == "real":
            _encode_corpora(data, building, num_documents)
        else:
            _make(CORPORA[corpus_name](real_vectors(data, dim), num_views, seed), building, num_documents)
        building.rename(folder)
    return folder / "index.mvx", np.load(folder / "questions.npy")


def _encode_corpora(data, folder: Path, num_documents):
    """Encode passages of the real collections, SQuAD's first, by the packaged MiniLM, and 256 of SQuAD's questions."""
    files = ("squad/passages.tsv", "squadshifts_amazon/passages.tsv.gz", "squadshifts_reddit/passages.tsv.gz")
    paths = [data / name for name in (*files, "scale_debian/passages.tsv.zst")]
    read = (read_documents(str(path), CorpusOptions()) for path in paths)
    numbered = enumerate(itertools.islice(itertools.chain.from_iterable(read), num_documents))
    with mvindex.create(folder / "index.mvx", encoder="minilm") as index:
        index.add(mvindex.Document(str(number), each.text, each.title) for number, each in numbered)
    questions = np.random.default_rng(1).permutation(real_vectors(data).questions)
    np.save(folder / "questions.npy", questions[:NUM_QUESTIONS])


def _make(corpus, folder: Path, num_documents):
    blocks = range(0, num_documents, BLOCK_DOCUMENTS)
    asked = set(np.random.default_rng(corpus.seed).choice(len(blocks), min(len(blocks), 16), replace=False).tolist())
    questions, each = [], -(-NUM_QUESTIONS // len(asked))
    index = None
    for number, begin in enumerate(blocks):
        views = corpus.block(number, min(BLOCK_DOCUMENTS, num_documents - begin))
        index = index or mvindex.create(folder / "index.mvx", dim=views.shape[2])
        index.add_views(
            [mvindex.Document(str(begin + place), f"text {begin + place}") for place in range(len(views))], views
        )
        if number in asked:
            questions.append(corpus.questions(number, each, views))
    index.close()
    drawn = np.concatenate(questions)
    np.save(folder / "questions.npy", np.random.default_rng(1).permutation(drawn)[:NUM_QUESTIONS])
