"""Wrong calls by an agent: unknown arguments and absent resources are named, and leave no traceback."""

import asyncio
import logging

import numpy as np
import pytest

import mvindex
from mvindex import Document

pytestmark = pytest.mark.needs("mcp")


def encode(texts):
    return np.array([[len(text), 1.0] for text in texts], dtype=np.float32)


@pytest.fixture
def call(tmp_path):
    """Return what a function of a client returns, which is connected to a server in this process."""
    from mcp import Client

    from mvindex_connectors.mcp.server import make_server

    with mvindex.create(tmp_path / "x.mvx", encoder=encode) as index:
        index.add([Document("a", "a text")])
        server = make_server(index, max_chars=10_000, allow_write=True)

        async def connected(work):
            async with Client(server) as client:
                return await work(client)

        yield lambda work: asyncio.run(connected(work))


@pytest.mark.parametrize(
    ("tool", "arguments", "message"),
    [
        (
            "search",
            {"query": "x", "limit": 3},
            "search: expected arguments of query, top_k, filter, .*, got 'limit'",
        ),
        ("read", {"doc_id": "a"}, "read: expected arguments of id, start, end, got 'doc_id'"),
        ("sources", {"all": True}, "sources: expected arguments of none, got 'all'"),
        ("add", {"documents": [], "overwrite": 1}, "add: expected arguments of documents, got 'overwrite'"),
        ("search", {"query": "x", "top_k": 0}, "search: top_k: Input should be greater than or equal to 1, got 0"),
        ("search", {}, "Error executing tool search: the query is empty; expected a text"),
        ("add", {"documents": [{"text": "x", "name": "y"}]}, "add: documents.0.name: .*, got 'y'"),
    ],
)
def test_a_wrong_argument_is_an_error_that_names_it(call, tool, arguments, message):
    result = call(lambda client: client.call_tool(tool, arguments))
    assert result.is_error
    [content] = result.content
    assert "http" not in content.text
    with pytest.raises(ValueError, match=f"^{message}$".replace("{}", r"\{\}")):
        raise ValueError(content.text)


def test_the_schema_of_a_tool_says_that_it_takes_no_other_arguments(call):
    tools = call(lambda client: client.list_tools()).tools
    assert len(tools) == 4 and all(tool.input_schema["additionalProperties"] is False for tool in tools)


@pytest.mark.parametrize("uri", ["mvindex://documents/none", "mvindex://elsewhere"])
def test_an_absent_resource_has_the_protocols_code_and_no_traceback(call, caplog, uri):
    from mcp.shared.exceptions import MCPError

    async def work(client):
        with pytest.raises(MCPError) as refused:
            await client.read_resource(uri)
        return refused.value.error

    with caplog.at_level(logging.INFO):
        error = call(work)
    assert error.code == -32002 and uri.rpartition("/")[2] in error.message
    assert not [record for record in caplog.records if record.exc_info or record.levelno > logging.INFO]
    assert call(lambda client: client.read_resource("mvindex://documents/a")).contents[0].text == "a text"
