"""Search an index by a tool of a smolagents agent, whose answer names its source.

No network: a small Model stands in for a language model. It searches, and quotes what the tool returned.

pip install 'mvindex[all]' smolagents
"""

import json
import tempfile
from pathlib import Path

from smolagents import Model, Tool, ToolCallingAgent
from smolagents.models import ChatMessage, ChatMessageToolCall, ChatMessageToolCallFunction, MessageRole

import mvindex

DOCUMENTS = [
    mvindex.Document(
        "pump",
        "Pumps are checked daily.\nThe pump starts at eight bar.\nIt stops at ten.",
        metadata={"file": "guide.md", "line": 10},
    ),
    mvindex.Document("valve", "Valves are checked once a year.", metadata={"file": "guide.md", "line": 20}),
]


class SearchTool(Tool):
    """Search an index; the answer is JSON, so that no text of a document can pass for something else."""

    name = "search"
    description = (
        "Searches the manuals. Returns JSON: passages, each with the sentence that answers, its file and line."
    )
    inputs = {"query": {"type": "string", "description": "A question."}}  # noqa: RUF012 - as smolagents wants it
    output_type = "string"

    def __init__(self, index: mvindex.Index) -> None:
        super().__init__()
        self.index = index

    def forward(self, query: str) -> str:
        passages = [
            {"id": hit.id, "quote": cite.text, "file": cite.file, "line": cite.line, "text": hit.text}
            for hit in self.index.search(query, top_k=1)
            for cite in [hit.citation]
        ]
        return json.dumps(passages, ensure_ascii=False)


class QuotingModel(Model):
    """Stand in for a language model: search once, then answer with the quotation and its source."""

    def generate(self, messages: list[ChatMessage], **options: object) -> ChatMessage:
        texts = [part["text"] for message in messages for part in message.content if "text" in part]
        found = [text for text in texts if text.startswith("Observation:")]
        if not found:
            return self._call("search", {"query": "When does the pump start?"})
        best = json.loads(found[-1].removeprefix("Observation:"))[0]
        return self._call("final_answer", {"answer": f"{best['quote']} [{best['file']}, line {best['line']}]"})

    def _call(self, name: str, arguments: dict[str, str]) -> ChatMessage:
        call = ChatMessageToolCall(ChatMessageToolCallFunction(arguments, name), id=name, type="function")
        return ChatMessage(MessageRole.ASSISTANT, content="", tool_calls=[call])


def main() -> None:
    """Print an answer with its source."""
    with tempfile.TemporaryDirectory() as folder:
        with mvindex.create(Path(folder) / "docs.mvx", encoder="minilm-views") as index:
            index.add(DOCUMENTS)
            agent = ToolCallingAgent([SearchTool(index)], QuotingModel(), max_steps=3, verbosity_level=0)
            print(agent.run("When does the pump start?"))


if __name__ == "__main__":
    main()
