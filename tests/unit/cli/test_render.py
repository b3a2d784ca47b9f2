"""The output of `query`."""

import json

import numpy as np

import mvindex
from mvindex import Document
from mvindex.cli import results as display
from mvindex.records import Citation, Hit, SearchResult


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


CITED = Citation("The price rose in 1973.", 15, 38, {})


def test_a_cited_sentence_is_marked_in_text_with_and_without_style_and_never_in_json(monkeypatch, capsys):
    text = "Oil was cheap. The price rose in 1973. Later it fell."
    hit = Hit("oil", 0.5, 0, None, CITED.text, text, "Oil", {}, citation=CITED)
    result = SearchResult((hit,), exact=True, short_by=0, rounds=1)
    monkeypatch.setenv("COLUMNS", "40")
    for variable, expected in (
        ("NO_COLOR", "     Oil was cheap. »The price rose in\n     1973.« Later it fell.\n"),
        (
            "FORCE_COLOR",
            "     Oil was cheap. \x1b[1;4;32mThe price rose in\x1b[0m\n     \x1b[1;4;32m1973.\x1b[0m Later it fell.\n",
        ),
    ):
        with monkeypatch.context() as patch:
            patch.delenv("NO_COLOR", raising=False)
            patch.setenv(variable, "1")
            display.print_result("when?", result, {"scoring": "max"})
        assert expected in capsys.readouterr().out
    told = display.result_as_json("when?", result, {})
    assert "»" not in json.dumps(told, ensure_ascii=False)
    assert display.result_as_rows("q", result) == [["q", 1, "oil", "0.5", "Oil", "The price rose in 1973.", ""]]


def test_a_later_page_goes_on_in_its_numbers_and_citations_have_a_place_where_it_is_known(capsys):
    placed = Citation("It fell.", 24, 32, {}, file="oil.md", line=7)
    hit = Hit("oil", 0.5, 0, None, "", "The price rose in 1973. It fell.", "Oil", {}, citations=(CITED, placed))
    result = SearchResult((hit,), exact=True, short_by=0, rounds=1)
    display.print_result("", result, {"positives": ["d1"]}, num_before=20)
    shown = capsys.readouterr().out.splitlines()
    assert shown[0] == "1 document, exact; positives d1" and shown[1].startswith(" 21. 0.5000  oil")
    assert "()" not in "".join(shown) and shown[-2].endswith("It fell.  (oil.md, line 7)")
    assert [row[1] for row in display.result_as_rows("q", result, num_before=20)] == [21]
