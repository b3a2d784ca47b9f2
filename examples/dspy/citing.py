"""Retrieve passages with citations in DSPy: a module that answers from them, and a tool of a ReAct agent.

No network: DSPy's DummyLM stands in for a language model.

pip install 'mvindex[all]' dspy
"""

import tempfile
from pathlib import Path

import dspy
from dspy.utils import DummyLM

import mvindex

DOCUMENTS = [
    mvindex.Document(
        "pump",
        "Pumps are checked daily.\nThe pump starts at eight bar.\nIt stops at ten.",
        metadata={"file": "guide.md", "line": 10},
    ),
    mvindex.Document("valve", "Valves are checked once a year.", metadata={"file": "guide.md", "line": 20}),
]


class Retriever:
    """A retriever for dspy.Retrieve: passages that begin with what they cite."""

    def __init__(self, index: mvindex.Index) -> None:
        self.index = index

    def __call__(self, query: str, k: int = 3) -> list[dspy.Example]:
        return [
            dspy.Example(long_text=f'"{cite.text}" [{cite.file}, line {cite.line}]\n{hit.text}', id=hit.id)
            for hit in self.index.search(query, top_k=k)
            for cite in [hit.citation]
        ]


class Answer(dspy.Module):
    """Answer a question from the passages that were found."""

    def __init__(self) -> None:
        super().__init__()
        self.retrieve = dspy.Retrieve(k=1)
        self.respond = dspy.Predict("context, question -> answer")

    def forward(self, question: str) -> dspy.Prediction:
        context = self.retrieve(question).passages
        return dspy.Prediction(context=context, answer=self.respond(context=context, question=question).answer)


def make_agent(retriever: Retriever) -> dspy.ReAct:
    """Return an agent that may search."""

    def search(query: str) -> list[str]:
        """Search the manuals; each passage begins with the sentence that answers, its file and line."""
        return [passage.long_text for passage in retriever(query, k=1)]

    return dspy.ReAct("question -> answer", tools=[search], max_iters=2)


def main() -> None:
    """Print the answers of the module and of the agent."""
    question = "When does the pump start?"
    with tempfile.TemporaryDirectory() as folder:
        with mvindex.create(Path(folder) / "docs.mvx", encoder="minilm-views") as index:
            index.add(DOCUMENTS)
            retriever = Retriever(index)
            # It answers so only where the prompt has that sentence.
            reader = DummyLM({"The pump starts at eight bar.": {"answer": "At eight bar."}})
            with dspy.context(lm=reader, rm=retriever):
                found = Answer()(question=question)
            print(found.answer, found.context[0].splitlines()[0])
            steps = [
                {"next_thought": "I look it up.", "next_tool_name": "search", "next_tool_args": {"query": question}},
                {"next_thought": "I know it.", "next_tool_name": "finish", "next_tool_args": {}},
                {"reasoning": "The guide says so.", "answer": "At eight bar."},
            ]
            with dspy.context(lm=DummyLM(steps)):
                done = make_agent(retriever)(question=question)
            print(done.answer, done.trajectory["observation_0"][0].splitlines()[0])


if __name__ == "__main__":
    main()
