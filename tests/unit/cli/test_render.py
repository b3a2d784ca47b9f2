"""The output of `query`."""

import numpy as np

import mvindex
from mvindex import Document
from mvindex.cli import results as display


def test_a_hit_that_is_deleted_before_it_is_explained_is_shown_without_views(tmp_path, capsys):
    query = np.array([1.0, 0.0])
    with mvindex.create(tmp_path / "a.mvx", dim=2) as index:
        index.add_views([Document("stays", "here"), Document("goes", "gone")], np.eye(2)[:, None])
        result = index.search(query, 2)
        index.delete(ids="goes")
        explained = index.explain_all(query, [hit.id for hit in result.hits])
    told = display.result_as_json("a question", result, {"scoring": "max"}, explained)
    assert [(hit["id"], len(hit["views"]), hit["margin"]) for hit in told["hits"]] == [
        ("stays", 1, None),
        ("goes", 0, None),
    ]
    display.print_result("a question", result, {"scoring": "max"}, explained)
    shown = capsys.readouterr().out
    assert shown.count("slot 0") == 1 and "gone" in shown
    of_none = display.result_as_json("a question", result, {"scoring": "max"}, {})
    assert [hit["views"] for hit in of_none["hits"]] == [[], []]
