"""The JSON Schema of a corpus row says yes and no where the reader does."""

import io
import json
from pathlib import Path

import pytest

from mvindex.corpus import CorpusOptions, Row, open_corpus

jsonschema = pytest.importorskip("jsonschema")

SCHEMA = json.loads((Path(__file__).parents[3] / "schemas/records/corpus.schema.json").read_text())
GOOD = [
    {"id": "d1", "text": "a"},
    {"id": 17, "text": "a", "title": "T"},
    {"id": "d1", "text": "", "title": "T"},
    {"id": "d1", "text": None, "title": "T"},
    {"id": "d1", "title": "T"},
    {"id": "d1", "text": "a", "title": None, "metadata": None},
    {"id": "d1", "text": "a", "metadata": {"year": 1963, "tags": ["x"]}, "url": "u"},
    {"id": "a b", "text": "a\nb"},
    {"id": "x" * 1024, "text": "a"},
]
BAD = [
    {"text": "a"},
    {"id": "", "text": "a"},
    {"id": " ", "text": "a"},
    {"id": "a\nb", "text": "a"},
    {"id": "x" * 1025, "text": "a"},
    {"id": None, "text": "a"},
    {"id": 1.5, "text": "a"},
    {"id": True, "text": "a"},
    {"id": "d1"},
    {"id": "d1", "text": " \n", "title": ""},
    {"id": "d1", "text": ["a"]},
    {"id": "d1", "text": "a", "title": 7},
    {"id": "d1", "text": "a\0"},
    {"id": "d1", "text": "a", "metadata": "m"},
    ["d1", "a"],
]


def is_read(value):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(json.dumps(value).encode())))
        with open_corpus("-", CorpusOptions(format="jsonl")) as corpus:
            return isinstance(next(iter(corpus)), Row)


@pytest.mark.parametrize("value", GOOD + BAD, ids=lambda value: json.dumps(value)[:60])
def test_schema_and_reader_agree(value):
    assert jsonschema.Draft202012Validator(SCHEMA).is_valid(value) == is_read(value) == (value in GOOD)
