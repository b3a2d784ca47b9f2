"""The capabilities of a Milvus, tried on it. No result of a search depends on them."""

import mvindex
from mvindex.index import store_of

GROUP_BY, FP16, INT8, MAX_SIM = "group_by", "fp16 vectors", "int8 vectors", "arrays of views (MAX_SIM)"
LEXICAL = "lexical search (BM25)"


def collections(index):
    return sorted(
        store_of(index).connection.call("listing", lambda client, **options: client.list_collections(**options))
    )


def test_abilities_are_tried_and_nothing_stays_behind(place):
    with mvindex.create(place, dim=4) as index:
        before = collections(index)
        found = index.probe()
        assert collections(index) == before
        server = index.info().server["server"]
    assert all(told == "yes" or told.startswith("no: ") for told in found.values())
    # Neither refuses to group, and both give fewer documents than they were asked for.
    if server == "v2.3.5-lite":
        assert found[GROUP_BY] == "no: 1 of the 10 best documents, 10 hits"
        # It takes fp16 vectors, and then finds the nearest of them on some runs and others on other runs.
        assert found[FP16] == "yes" or found[FP16].endswith("10 hits")
        assert found[INT8].startswith("no: create index on 105 field is not supported")
        assert found[MAX_SIM].startswith("no: ")
        assert found[LEXICAL].startswith("no: ")
    if place.startswith("milvus-lite"):
        assert found[GROUP_BY] == "no: 7 of the 10 best documents, 7 hits"
        assert "MilvusLite does not support" in found[FP16]
        assert "MilvusLite does not support" in found[INT8]
        assert found[MAX_SIM].startswith("no: ")
        # Its k1 is 1.5, whatever is asked for: ln(8 / 3) * 2.5 / (1 + 1.5 * (0.25 + 0.75 * 6 / 7)).
        assert found[LEXICAL] == "no: a score of 1.0482 where k1 1.2 and b 0.75 give 1.0417"
