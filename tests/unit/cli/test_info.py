"""The sentences of mvindex info."""

from dataclasses import replace

import pytest

from mvindex import engines
from mvindex.cli.documents import _summary


@pytest.mark.parametrize(
    "kind, command", [("graph", "compact"), ("grows", "compact"), ("fixed", "build"), ("not-installed", "build")]
)
def test_new_documents_are_added_by_the_command_that_suits_the_kind(monkeypatch, kind, command):
    graph = engines.find_kind("graph")
    kinds = {"grows": replace(graph, name="grows"), "fixed": replace(graph, name="fixed", extends=False)}
    monkeypatch.setattr(engines, "_REGISTERED", kinds)
    row = {"documents": 1200, "views": 1200, "dim": 2, "server": "grpc://a", "encoder": None, "lexical": None}
    row |= {"kind": kind, "missing_shards": (), "fresh_documents": 1000, "num_deleted": 0}
    assert _summary(row)[-1] == f"1,000 documents are newer than the engine: mvindex {command} adds them to it."
