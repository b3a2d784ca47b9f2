"""Messages for malformed requests by HTTP: the member, what was expected, and what is there."""

import re
from typing import get_type_hints

import pytest

from mvindex.errors import MvindexError
from mvindex_connectors.server import jobs
from mvindex_connectors.server.http import schemas
from mvindex_connectors.server.http.requests import COUNTS, decode, list_parameters
from mvindex_connectors.server.jobs import Request

WHOLE = "expected a whole number of at least 1, got"
SURROGATE = "expected whole characters, got a lone surrogate"


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (r'{"query": "x", "top_k": 0}', f"top_k: {WHOLE} 0"),
        (r'{"query": "x", "top_k": -3}', f"top_k: {WHOLE} -3"),
        (r'{"query": "x", "top_k": 1.5}', f"top_k: {WHOLE} 1.5"),
        (r'{"query": "x", "top_k": "1"}', f'top_k: {WHOLE} "1"'),
        (r'{"query": "x", "top_k": true}', f"top_k: {WHOLE} true"),
        (r'{"query": "x", "top_k": null}', f"top_k: {WHOLE} null"),
        (r'{"query": "x", "offset": -1}', "offset: expected a whole number of at least 0, got -1"),
        (r'{"query": "x", "offset": 1.5}', "offset: expected a whole number of at least 0, got 1.5"),
        (r'{"query": "x", "candidates": 0}', f"candidates: {WHOLE} 0"),
        (r'{"query": "x", "top_k": 1e400}', "top_k: expected a finite number, got one out of range"),
        (r'{"query": "x", "temperature": 0}', "temperature: expected a number above 0, got 0"),
        (r'{"query": "x", "weights": [1, -2]}', "weights[1]: expected a number of at least 0, got -2"),
        (r'{"query": "\ud800"}', f"query: {SURROGATE}"),
        (r'{"query": "\udc00x"}', f"query: {SURROGATE}"),
        (r'{"queries": ["a", "b\ud83d"]}', f"queries[1]: {SURROGATE}"),
        (r'{"query": "x", "filter": {"a": {"in": ["\uDFFF"]}}}', f"filter.a.in[0]: {SURROGATE}"),
        (r'{"query": "x", "filter": {"\ud800": 1}}', f"filter: {SURROGATE}"),
        (r'{"\ud800": 1}', f"body: {SURROGATE}"),
        ('{"query": "x', "body: expected JSON, got something else"),
        ('{"query": "x", "filter": {"n": ' + "1" * 5000 + "}}", "filter[...]: expected a finite number"),
        ('{"query": "x", "top_k": 0, "filter": {"n": ' + "1" * 5000 + "}}", f"top_k: {WHOLE} another"),
    ],
)
def test_a_search_names_the_member_and_what_it_got(body, message):
    with pytest.raises(MvindexError, match=f"^{re.escape(message)}"):
        decode(schemas.SearchRequest, body.encode())


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (r'{"id": "a", "text": "\ud800"}', f"documents[0].text: {SURROGATE}"),
        (r'{"id": "a", "metadata": {"k": {"n": ["\ud800"]}}}', f"documents[0].metadata.k.n[0]: {SURROGATE}"),
        (r'{"id": "a", "metadata": {"k": {"n": [1, 1e400]}}}', "documents[0].metadata.k.n[1]: expected a finite"),
        (
            r'{"id": "a", "view_texts": [{"text": "b", "span": [1.5, 2]}]}',
            "documents[0].view_texts[0].span[0]: expected a whole number, got 1.5",
        ),
    ],
)
def test_a_document_names_the_member_and_what_it_got(body, message):
    with pytest.raises(MvindexError, match=f"^{re.escape(message)}"):
        decode(schemas.AddRequest, b'{"documents": [%s]}' % body.encode())


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("limit", "0", 'limit: expected a whole number of at least 1, got "0"'),
        ("limit", "2000", 'limit: expected a whole number of at most 1000, got "2000"'),
        ("limit", "x", 'limit: expected a whole number, got "x"'),
        ("filter", r'{"a": "\ud800"}', f"filter.a: {SURROGATE}"),
        ("filter", "{", "filter: expected JSON, got something else"),
    ],
)
def test_a_query_string_names_the_parameter_and_what_it_got(name, value, message):
    with pytest.raises(MvindexError, match=f"^{re.escape(message)}"):
        list_parameters([(name, value)])


def test_a_whole_number_in_a_job_is_named():
    with pytest.raises(MvindexError, match=r"^build.parameters\[\.\.\.\]: expected a whole number of at least 1"):
        decode(jobs.StartJobRequest, b'{"index": "a", "build": {"engine": "x", "parameters": {"nlist": 0}}}')


def test_every_member_that_is_a_count_is_known_as_one():
    found = set()
    for module in (schemas, jobs):
        for kind in vars(module).values():
            if isinstance(kind, type) and issubclass(kind, Request):
                hints = get_type_hints(kind, include_extras=True)
                found |= {name for name, hint in hints.items() if "multiple_of=1" in repr(hint)}
    found -= {"offset", "context"}  # from 0 on
    assert found == {"top_k", "candidates", "citations", "max_chars", "max_tokens", "dim", "shards", "parameters"}
    assert all(COUNTS.fullmatch(f"x.{name}".replace("parameters", "parameters[...]")) for name in found)
