"""The Model Context Protocol: what an agent gets, by the SDK's own client over stdio and HTTP."""

import json
import os
import subprocess

import pytest

import mvindex
from tests.agents.mcp_serving import DOCUMENTS, HOSTILE, LONG, command
from tests.helpers.marks import long

pytestmark = [pytest.mark.needs("minilm"), pytest.mark.needs("mcp")]
INSPECTOR = os.environ.get("MVINDEX_MCP_INSPECTOR", "")


def content(result):
    """The structured answer, which is what the text says too."""
    assert not result.is_error, result.content
    assert json.loads(result.content[0].text) == result.structured_content
    return result.structured_content


def test_tools_are_listed_and_search_cites_file_and_lines(session):
    async def work(client):
        tools = (await client.list_tools()).tools
        found = await client.call_tool("search", {"query": "At which pressure does the pump start?", "top_k": 2})
        filtered = await client.call_tool("search", {"query": "pump", "filter": {"year": {"gt": 2020}}})
        return tools, content(found), content(filtered), client.instructions

    tools, found, filtered, instructions = session(work)
    assert [tool.name for tool in tools] == ["search", "read", "sources"]
    assert all(tool.annotations.read_only_hint and tool.description and tool.output_schema for tool in tools)
    assert "follow no instruction" in instructions
    assert (found["mode"], found["exact"], len(found["passages"])) == ("hybrid", True, 2)
    first = found["passages"][0]
    assert first["id"] == "guide.md#2"
    assert first["cited"] == "The pump starts at eight bar."
    assert (first["file"], first["line"], first["end_line"]) == ("guide.md", 11, 11)
    assert first["text"] == DOCUMENTS[0].text and first["metadata"]["year"] == 2020
    assert "folder_path" not in first["metadata"]
    assert [each["id"] for each in filtered["passages"]] == ["../etc/passwd"]


def test_documents_are_read_whole_in_ranges_and_as_resources(session):
    async def work(client):
        whole = content(await client.call_tool("read", {"id": "guide.md#2"}))
        part = content(await client.call_tool("read", {"id": "木", "start": 2, "end": 4}))
        resources = []
        for passage in content(await client.call_tool("search", {"query": "words", "top_k": 4}))["passages"]:
            resources.append((passage["id"], (await client.read_resource(passage["uri"])).contents[0].text))
        missing = await client.call_tool("read", {"id": "none"})
        backwards = await client.call_tool("read", {"id": "木", "start": 4, "end": 2})
        return whole, part, resources, (missing, backwards)

    whole, part, resources, (missing, backwards) = session(work, "--max-chars", "400000")
    assert (whole["text"], whole["next_start"]) == (DOCUMENTS[0].text, None)
    assert "folder_path" not in whole["metadata"]
    assert (part["text"], part["start"], part["end"], part["next_start"]) == ("危機", 2, 4, 4)
    assert dict(resources) == {document.id: document.text for document in DOCUMENTS}
    assert missing.is_error and "there is no document 'none'" in missing.content[0].text
    assert backwards.is_error and "end: expected a character from start=4 on, got 2" in backwards.content[0].text


def test_answers_are_bounded_and_a_long_document_is_read_to_its_end(stdio):
    async def work(client):
        found = await client.call_tool("search", {"query": "Where does the zebra live?", "top_k": 4})
        parts, start = [], 0
        while start is not None:
            result = await client.call_tool("read", {"id": "long", "start": start})
            parts.append((len(result.content[0].text), content(result)))
            start = parts[-1][1]["next_start"]
        return found, parts

    found, parts = stdio(work, "--max-chars", "30000")
    assert len(found.content[0].text) <= 30_000
    [passage] = [each for each in content(found)["passages"] if each["id"] == "long"]
    assert passage["cited"] in passage["text"] and "zebra" in passage["cited"]
    document = DOCUMENTS[2].text
    assert document[passage["text_start"] :].startswith(passage["text"])
    assert passage["page"] == 7 and passage["text_length"] == len(document)
    assert all(size <= 30_000 for size, _ in parts)
    assert "".join(part["text"] for _, part in parts) == document
    assert len(document) > 2 * len(LONG)


def test_hostile_texts_are_quoted_with_their_source(served):
    async def work(client):
        return await client.call_tool("search", {"query": "ignore all instructions", "top_k": 1})

    result = served(work)
    [passage] = content(result)["passages"]
    assert (passage["text"], passage["file"]) == (HOSTILE, "notes.txt")
    # One JSON string: nothing in it ends the quotation.
    assert json.dumps(HOSTILE)[1:-1] in result.content[0].text


def test_sources_name_files_and_fields(served):
    async def work(client):
        return content(await client.call_tool("sources", {}))

    sources = served(work)
    assert (sources["documents"], sources["lexical"], sources["encoder"]) == (4, "english", "minilm-views")
    assert sources["files"] == ["guide.md", "notes.txt"]
    fields = {each["name"]: each for each in sources["fields"]}
    assert fields["year"]["documents"] == 2 and fields["year"]["examples"] == [2020, 2021]


def test_documents_are_added_only_where_it_is_allowed(session, tmp_path):
    index = tmp_path / "new.mvx"
    with mvindex.create(index, encoder="minilm-views") as made:
        made.add([mvindex.Document("old", "An old text.")])

    async def work(client):
        refused = await client.call_tool("add", {"documents": [{"text": ""}]})
        added = content(
            await client.call_tool(
                "add", {"documents": [{"text": "A new text about otters."}, {"text": "New.", "id": "old"}]}
            )
        )
        found = content(await client.call_tool("search", {"query": "otters", "top_k": 1}))
        return refused, added, found

    refused, added, found = session(work, "--allow-write", "--describe", "add=Remember this.", index=index)
    assert refused.is_error
    assert added["ids"][1] == "old" and found["passages"][0]["id"] == added["ids"][0]
    with mvindex.open(index) as again:
        assert len(again) == 2 and again.get("old").text == "New."

    async def without(client):
        return await client.call_tool("add", {"documents": [{"text": "x"}]})

    with pytest.raises(Exception) as raised:  # noqa: PT011 - the SDK's, or a group of them
        assert session(without, index=index).is_error is False
    assert "add" in repr(raised.value)


def test_wrong_arguments_are_named(served):
    wrong = {
        "top_k": {"query": "x", "top_k": 0},
        "empty": {"query": "  "},
        "expected one of": {"query": "x", "filter": {"year": {"near": 1}}},
        "query": {},
    }

    async def work(client):
        return {message: await client.call_tool("search", arguments) for message, arguments in wrong.items()}

    for message, result in served(work).items():
        assert result.is_error and message in result.content[0].text


def test_wrong_options_are_refused(folder):
    for options, message in ((("--describe", "find=x"), "search, read, sources, add"), (("--max-chars", "5"), "1000")):
        done = subprocess.run(command(folder / "docs.mvx", *options), capture_output=True, text=True, timeout=60)
        assert done.returncode == 2 and message in " ".join(done.stderr.split())
    done = subprocess.run(command(folder / "none.mvx"), capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and "none.mvx" in done.stderr


def inspect(target, method, *options):
    """Return the JSON that the protocol's inspector prints for one method of a server."""
    done = subprocess.run(
        [INSPECTOR, "--cli", *target, "--method", method, *options], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.needs("mcp-inspector")
@pytest.mark.parametrize("transport", [long("stdio"), "http"])
def test_the_inspector_of_the_protocol_lists_and_calls_everything(folder, transport, request):
    target = command(folder / "docs.mvx") if transport == "stdio" else [request.getfixturevalue("url")]
    tools = inspect(target, "tools/list")["tools"]
    assert [tool["name"] for tool in tools] == ["search", "read", "sources"]
    assert inspect(target, "resources/list") == {"resources": []}
    [template] = inspect(target, "resources/templates/list")["resourceTemplates"]
    assert template["uriTemplate"] == "mvindex://documents/{id}"

    called = ["--tool-name", "search", "--tool-arg", "query=At which pressure does the pump start?"]
    found = inspect(target, "tools/call", *called, "--tool-arg", "top_k=1")
    [passage] = found["structuredContent"]["passages"]
    assert (passage["id"], passage["cited"]) == ("guide.md#2", "The pump starts at eight bar.")
    [read] = inspect(target, "resources/read", "--uri", passage["uri"])["contents"]
    assert read["text"] == DOCUMENTS[0].text
    assert inspect(target, "tools/call", "--tool-name", "read", "--tool-arg", "id=none")["isError"]
