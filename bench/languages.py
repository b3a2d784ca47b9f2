"""Ask questions in ten languages, and in English, of passages in these languages: the share whose first hit is right.

    python bench/languages.py [--encoders minilm-views,e5-views] [--mode hybrid] [--json]

bench/languages.jsonl has six facts in each language, three pairs of like ones (mountains, discoverers, rivers), each
with a question in its language and one in English. The passages of a language are an index of their own.
"""

import json
import tempfile
from collections import defaultdict
from pathlib import Path

import harness

import mvindex

FACTS = Path(__file__).with_name("languages.jsonl")


def facts_of():
    """Return the facts of each language."""
    facts = defaultdict(list)
    for line in FACTS.read_text(encoding="utf-8").splitlines():
        fact = json.loads(line)
        facts[fact["language"]].append(fact)
    return facts


def right(facts, encoder, mode, asked):
    """Return how many questions find their passage first; asked: which question of a fact."""
    with (
        tempfile.TemporaryDirectory() as folder,
        mvindex.create(Path(folder) / "x.mvx", encoder=encoder, lexical="auto") as index,
    ):
        index.add([mvindex.Document(str(number), fact["passage"]) for number, fact in enumerate(facts)])
        results = index.search([fact[asked] for fact in facts], top_k=1, mode=mode)
        return sum(result.hits[0].id == str(number) for number, result in enumerate(results))


def main():
    parser = harness.parser(__doc__, encoders="minilm-views,e5-views", mode="hybrid", json=False)
    options = harness.parse(parser, encoders="minilm-views")
    for encoder in map(mvindex.load_encoder, options.encoders.split(",")):
        totals = defaultdict(int)
        for language, facts in facts_of().items():
            found = {asked: right(facts, encoder, options.mode, asked) for asked in ("question", "english")}
            harness.show(
                {"encoder": encoder.spec["source"], "language": language, "facts": len(facts), **found}, options.json
            )
            for name, number in {"facts": len(facts), **found}.items():
                totals[name] += number
        harness.show({"encoder": encoder.spec["source"], "language": "all", **totals}, options.json)


if __name__ == "__main__":
    main()
