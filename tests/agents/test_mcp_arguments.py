"""Calls by an agent, on a server in this process: wrong ones are named, and pages show every document once."""

import asyncio
import contextlib
import logging
import time

import numpy as np
import pytest

import mvindex
from mvindex import Document
from mvindex.errors import DamagedIndex

pytestmark = pytest.mark.needs("mcp")


def encode(texts):
    return np.array([[len(text), 1.0] for text in texts], dtype=np.float32)


@contextlib.contextmanager
def serving(folder, documents, max_chars):
    """Give a call that returns what a function of a client returns, connected to a server in this process."""
    from mcp import Client

    from mvindex_connectors.mcp.server import make_server

    with mvindex.create(folder / "x.mvx", encoder=encode) as index:
        index.add(documents)
        server = make_server(index, max_chars=max_chars, allow_write=True)

        async def connected(work):
            async with Client(server) as client:
                return await work(client)

        yield lambda work: asyncio.run(connected(work))


@pytest.fixture
def call(tmp_path):
    with serving(tmp_path, [Document("a", "a text")], 10_000) as calling:
        yield calling


def pages(call, **arguments):
    """Return the pages of a search by cursor, to the last."""

    async def work(client):
        shown, cursor = [], ""
        while cursor is not None:
            result = await client.call_tool("search", {"query": "words", "cursor": cursor} | arguments)
            assert not result.is_error, result.content
            assert len(result.content[0].text) <= 1500
            shown.append(result.structured_content)
            cursor = shown[-1]["next"]
        return shown

    return call(work)


# With line breaks and quotes, which take two characters each; a title, a sentence and metadata longer than an answer.
LONG_DOCUMENTS = [
    *(Document(f"d{number}", f'Line {number} of "words".\n' * 200) for number in range(9)),
    Document("titled", "some words", title="A title of words. " * 200),
    Document("sentence", "some words and no end " * 300),
    Document("described", "some words", metadata={"file": "a/" * 2000, "notes": "n" * 4000}),
]


@pytest.mark.parametrize("options", [{"top_k": 1}, {"top_k": 5}, {"top_k": 50}, {"top_k": 5, "citations": 3}])
def test_pages_of_long_documents_show_each_once_and_a_part_of_each(tmp_path, options):
    with serving(tmp_path, LONG_DOCUMENTS, 1500) as call:
        shown = pages(call, **options)
    passages = [passage for page in shown for passage in page["passages"]]
    assert sorted(passage["id"] for passage in passages) == sorted(document.id for document in LONG_DOCUMENTS)
    texts = {document.id: document.text for document in LONG_DOCUMENTS}
    assert all(passage["text"] for passage in passages[:3])
    assert all(texts[passage["id"]][passage["text_start"] :].startswith(passage["text"]) for passage in passages)
    assert all(page["passages"] and page["left_out"] == 0 for page in shown[:-1])


def test_a_cursor_without_room_for_a_passage_beside_it_is_refused(tmp_path):
    name = "石" * 200  # an id whose address takes 1,800 characters
    with serving(tmp_path, [Document(name, "words")], 1500) as call:
        result = call(lambda client: client.call_tool("search", {"query": "words", "cursor": ""}))
        without = call(lambda client: client.call_tool("search", {"query": "words"})).structured_content
    assert result.is_error and "cursor: expected room for a passage" in result.content[0].text
    assert (without["passages"], without["left_out"]) == ([], 1)


def test_near_duplicates_are_named_as_far_as_there_is_room(tmp_path):
    documents = [Document(f"{number:0100d}", "words") for number in range(30)]
    with serving(tmp_path, documents, 1500) as call:
        result = call(lambda client: client.call_tool("search", {"query": "words", "top_k": 1, "diversity": 0.5}))
    found = result.structured_content
    assert len(result.content[0].text) <= 1500 and len(found["passages"]) == 1
    assert 0 < len(found["duplicates_of"]) < 29


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
        ("search", {"like": ""}, "Error executing tool search: like: expected the id of a document, got ''"),
        ("add", {"documents": [{"text": "x", "name": "y"}]}, "add: documents.0.name: .*, got 'y'"),
        (
            "add",
            {"documents": [{"text": "x", "id": "y" * 2000}]},
            "Error executing tool add: id .y+....? has 2000 characters; at most 1024 are taken",
        ),
    ],
)
def test_a_wrong_argument_is_an_error_that_names_it(call, tool, arguments, message):
    result = call(lambda client: client.call_tool(tool, arguments))
    assert result.is_error
    [content] = result.content
    assert "http" not in content.text
    with pytest.raises(ValueError, match=f"^{message}$".replace("{}", r"\{\}")):
        raise ValueError(content.text)


@pytest.mark.parametrize(("tool", "arguments"), [("search", {"query": "x"}), ("sources", {}), ("read", {"id": "a"})])
def test_an_index_that_cannot_be_read_is_an_error_that_says_why(call, monkeypatch, tool, arguments):
    def damaged(index):
        raise DamagedIndex("current.json: expected version 3")

    monkeypatch.setattr(mvindex.Index, "refresh", damaged)
    result = call(lambda client: client.call_tool(tool, arguments))
    assert result.is_error and "current.json: expected version 3" in result.content[0].text


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


def test_a_server_ends_once_its_index_is_warm(tmp_path):
    from mvindex_connectors.mcp.server import make_server, serve

    with mvindex.create(tmp_path / "x.mvx", encoder=encode) as index:
        index.add([Document("a", "a text")])
        server, ended = make_server(index, max_chars=10_000), []
        warm_up = index.warm_up

        def warm_slowly():
            time.sleep(0.2)
            ended.append(warm_up())

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(index, "warm_up", warm_slowly)
            # Its client has gone.
            patch.setattr(server, "run", lambda transport: None)
            serve(server, index, None)
        assert len(ended) == 1
