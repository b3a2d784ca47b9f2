"""A Faiss file opened as it is: distinct documents, scores of the stored vectors, and what is certain of them."""

import json

import numpy as np
import pytest

import mvindex
from mvindex.errors import ConfigError, CorpusError, QueryError, Unsupported
from mvindex.testing import brute_force, unit
from tests.helpers.cli import mvindex as command

faiss = pytest.importorskip("faiss")
adopted = pytest.importorskip("mvindex_connectors.adopted")

COUNT, DIM, DOCUMENTS = 600, 16, 80
RNG = np.random.default_rng(3)
VECTORS = RNG.standard_normal((COUNT, DIM)).astype(np.float32)
# Each third row is of a few documents, so that they crowd every ranking.
OWNERS = [f"d{n % 7 if n % 3 == 0 else RNG.integers(0, DOCUMENTS)}" for n in range(COUNT)]
QUERIES = RNG.standard_normal((4, DIM)).astype(np.float32)
VIEWS = {name: VECTORS[[owner == name for owner in OWNERS]] for name in dict.fromkeys(OWNERS)}


def write(path, spec="Flat", metric=faiss.METRIC_INNER_PRODUCT, vectors=VECTORS):
    index = faiss.index_factory(DIM, spec, metric)
    index.train(vectors)
    if spec.startswith("IDMap"):
        index.add_with_ids(vectors, 5 * np.arange(len(vectors)))
    else:
        index.add(vectors)
    faiss.write_index(index, str(path))
    return path


def best_first(scores):
    """Return document names by falling scores, then by first rows."""
    order = {name: place for place, name in enumerate(VIEWS)}
    return sorted(scores, key=lambda name: (-scores[name], order[name]))


@pytest.mark.parametrize("scoring", [{}, {"scoring": "drpq", "temperature": 0.3}], ids=["max", "drpq"])
@pytest.mark.parametrize("top_k", [1, 7, 40, 500])
def test_a_flat_index_gives_the_brute_force_ranking(tmp_path, scoring, top_k):
    with adopted.adopt_faiss(write(tmp_path / "x.faiss"), OWNERS) as index:
        for query in QUERIES:
            result = index.search(query, top_k, **scoring)
            truth = brute_force(VIEWS, query, top_k, dtype="fp32", **scoring)
            assert [(hit.id, np.float32(hit.score), hit.slot) for hit in result.hits] == truth
            assert result.exact and result.short_by == 0
            assert index.search(query, top_k, exact=True, **scoring) == result
        assert index.search(QUERIES, top_k, **scoring) == [index.search(query, top_k, **scoring) for query in QUERIES]


def test_crowded_documents_take_more_rounds_and_leave_no_query_short(tmp_path):
    """The first 200 rows of the ranking belong to one document."""
    query = unit(QUERIES[0])
    vectors = np.concatenate([unit(query + 0.01 * RNG.standard_normal((200, DIM))), unit(VECTORS[:50])])
    owners = ["crowd"] * 200 + [f"d{n}" for n in range(50)]
    for spec in ("Flat", "HNSW8", "IVF4,Flat"):
        path = write(tmp_path / f"{spec}.faiss", spec, vectors=vectors.astype(np.float32))
        with adopted.adopt_faiss(path, owners) as index:
            result = index.search(query, 5)
            assert result.hits[0].id == "crowd" and len({hit.id for hit in result.hits}) == 5
            assert result.rounds > 1 and result.short_by == 0
            assert result.exact is (spec == "Flat")


@pytest.mark.parametrize("spec", ["Flat", "HNSW8", "IVF8,Flat", "IDMap,Flat"])
def test_distances_are_scored_as_their_negative_squares(tmp_path, spec):
    ids = {str(5 * row): owner for row, owner in enumerate(OWNERS)} if spec.startswith("IDMap") else OWNERS
    if isinstance(ids, dict):
        (tmp_path / "ids.json").write_text(json.dumps(ids))
        ids = tmp_path / "ids.json"
    path = write(tmp_path / "x.faiss", spec, faiss.METRIC_L2)
    with adopted.adopt_faiss(path, ids, nprobe=8 if "IVF" in spec else None) as index:
        query = QUERIES[1]
        wide = {name: -np.square(rows.astype(np.float64) - query).sum(axis=1) for name, rows in VIEWS.items()}
        scores = {name: np.float32(own.max()) for name, own in wide.items()}
        result = index.search(query, DOCUMENTS)
        assert [hit.id for hit in result.hits] == best_first(scores)
        assert [np.float32(hit.score) for hit in result.hits] == [scores[hit.id] for hit in result.hits]
        assert result.exact is (spec in ("Flat", "IDMap,Flat"))
        with pytest.raises(Unsupported):
            index.explain(query, "d1")


@pytest.mark.parametrize("spec", ["HNSW8", "IVF8,Flat", "IVF8,SQ8", "SQ8", "PCA8,Flat"])
def test_approximate_indexes_call_a_result_exact_after_a_full_scan_only(tmp_path, spec):
    with adopted.adopt_faiss(write(tmp_path / "x.faiss", spec), OWNERS) as index:
        for top_k in (5, 500):
            result = index.search(QUERIES[0], top_k)
            assert len({hit.id for hit in result.hits}) == len(result.hits) == min(top_k, len(VIEWS))
            assert [hit.score for hit in result.hits] == sorted((hit.score for hit in result.hits), reverse=True)
            # A graph that does not reach all rows is completed by a scan.
            assert not result.exact or (top_k == 500 and spec == "HNSW8")
            assert not index.search(QUERIES[0], 5, scoring="drpq").exact
        stored = {name: index.views(name).vectors for name in VIEWS}
        for scoring in ({}, {"scoring": "drpq", "temperature": 0.3}):
            result = index.search(QUERIES[0], 20, exact=True, **scoring)
            found = [(hit.id, np.float32(hit.score), hit.slot) for hit in result.hits]
            assert found == brute_force(stored, QUERIES[0], 20, dtype="fp32", **scoring)
            # Of a matrix product, a block and a single row may differ in their last bits.
            assert result.exact or spec.startswith("PCA")


def test_the_ids_come_from_a_file_of_any_of_the_formats(tmp_path):
    path = write(tmp_path / "x.faiss")
    np.save(tmp_path / "ids.npy", np.array(OWNERS))
    (tmp_path / "ids.txt").write_text("".join(f"{owner}\n" for owner in OWNERS))
    (tmp_path / "ids.json").write_text(json.dumps(OWNERS))
    (tmp_path / "lines.jsonl").write_text("".join(json.dumps(owner) + "\n" for owner in OWNERS))
    rows = list(enumerate(OWNERS))[::-1]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps({"row": row, "id": own}) + "\n" for row, own in rows))
    # A mark at the beginning, as programs for Windows write it.
    (tmp_path / "rows.tsv").write_text("\ufeff" + "".join(f"{row}\t{owner}\n" for row, owner in rows))
    with adopted.adopt_faiss(path, OWNERS) as index:
        expected = index.search(QUERIES, 9)
    for name in ("ids.npy", "ids.txt", "ids.json", "lines.jsonl", "rows.jsonl", "rows.tsv"):
        with adopted.adopt_faiss(path, tmp_path / name) as index:
            assert index.search(QUERIES, 9) == expected, name
    with adopted.adopt_faiss(path) as index:
        assert len(index) == COUNT and index.search(VECTORS[7], 1, scoring="drpq").hits[0].slot == 0


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("ids.txt", "a\nb\n", "600 ids, one for each vector"),
        ("rows.tsv", "0\ta\nb\n", "rows.tsv:2: expected a row and the id"),
        ("rows.tsv", "0\ta\n0\tb\n", "rows.tsv:2: .*each row once"),
        ("rows.tsv", "0\ta\n", "none for vector 1"),
        ("rows.jsonl", '"a"\n{"row": 1}\n', "rows.jsonl:2: expected a row and the id"),
        ("rows.jsonl", "[]]\n", "rows.jsonl:1"),
    ],
)
def test_ids_that_do_not_fit_are_refused(tmp_path, name, text, message):
    (tmp_path / name).write_text(text)
    with pytest.raises(CorpusError, match=message):
        adopted.adopt_faiss(write(tmp_path / "x.faiss"), tmp_path / name)


def test_files_and_options_that_are_none_are_refused(tmp_path):
    path = write(tmp_path / "x.faiss")
    (tmp_path / "text.faiss").write_text("no index, this is")
    for wrong in ("missing.faiss", "text.faiss"):
        with pytest.raises(CorpusError, match=wrong):
            adopted.adopt_faiss(tmp_path / wrong)
    for options in ({"nprobe": 3}, {"ef_search": 3}):
        with pytest.raises(ConfigError, match="belongs to"):
            adopted.adopt_faiss(path, OWNERS, **options)
    with pytest.raises(ConfigError, match="nprobe: expected 1 to 8"):
        adopted.adopt_faiss(write(tmp_path / "ivf.faiss", "IVF8,Flat"), OWNERS, nprobe=9)
    with pytest.raises(Unsupported, match="metric"):
        adopted.adopt_faiss(write(tmp_path / "l1.faiss", "Flat", faiss.METRIC_L1), OWNERS)
    with pytest.raises(ConfigError, match="16 dimensions"):
        adopted.adopt_faiss(path, OWNERS, encoder=lambda texts: np.ones((len(texts), 3)))


def test_an_adopted_index_is_read_only_and_says_what_it_has(tmp_path):
    path = write(tmp_path / "x.faiss")
    before = path.read_bytes()
    encoder = lambda texts: np.stack([VECTORS[len(text)] for text in texts])  # noqa: E731 - one vector a length
    with adopted.adopt_faiss(path, OWNERS, encoder=encoder) as index:
        assert index.search("twelve chars", 3) == index.search(VECTORS[12], 3)
        assert (len(index), index.info().views, index.info().kind, index.dim) == (len(VIEWS), COUNT, "IndexFlatIP", DIM)
        assert index.get("d3").id == "d3" and index.get("none") is None and "d3" in index
        assert [document.id for document in index] == list(VIEWS)
        assert [document.id for document in index.scan(limit=3, after=list(VIEWS)[4])] == list(VIEWS)[5:8]
        assert np.array_equal(index.views("d3").vectors, VIEWS["d3"])
        assert max(view.score for view in index.explain(VECTORS[0], OWNERS[0])) == index.search(VECTORS[0], 1)[0].score
        for refused in (
            lambda: index.add_views([mvindex.Document("new", "text")], VECTORS[:1]),
            lambda: index.delete(ids="d1"),
            lambda: index.update("d1", metadata={}),
            lambda: index.admin.build("flat"),
            lambda: index.search(VECTORS[0], filter={"n": 1}),
            lambda: index.search("text", mode="lexical"),
            lambda: index.search(mvindex.QueryGroup(QUERIES)),
        ):
            with pytest.raises(Unsupported):
                refused()
        with pytest.raises(QueryError, match="none"):
            list(index.scan(after="none"))
    assert path.read_bytes() == before


def test_the_address_of_a_file_opens_it(tmp_path):
    path = write(tmp_path / "x.faiss", "IVF8,Flat")
    (tmp_path / "ids.json").write_text(json.dumps(OWNERS))
    address = f"faiss:{path}?ids={tmp_path / 'ids.json'}&nprobe=8&temperature=0.3"
    with mvindex.open(address) as index, adopted.adopt_faiss(path, OWNERS, nprobe=8, temperature=0.3) as same:
        assert index.search(QUERIES, 9, scoring="drpq") == same.search(QUERIES, 9, scoring="drpq")
    done = command("info", "--index", address, "--json", cwd=tmp_path)
    assert done.returncode == 0 and json.loads(done.stdout)["kind"] == "IndexIVFFlat"
    with pytest.raises(Unsupported, match="read as it is"):
        mvindex.create("faiss:new.faiss", dim=3)
    for wrong in (f"faiss:{path}?id=x", f"faiss:{path}?nprobe=many", "faiss:?ids=x"):
        with pytest.raises(ConfigError, match="expected"):
            mvindex.open(wrong)
