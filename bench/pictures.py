"""Draw the pictures of README and docs as SVG that follows the reader's light or dark mode.

    python bench/pictures.py --index squad.mvx --out docs/pictures
    python bench/pictures.py --out docs/pictures --only quality,recall
    python bench/pictures.py --tiny

`query` and `certified` are of searches in the index: that of README is `mvindex ingest examples/squad/passages.tsv
--index squad.mvx`. `quality` and `recall` are drawn from tables of docs/, so that they say what the tables say.
`architecture` and `life` show how mvindex works. --tiny draws all of them over a few passages.
"""

from pathlib import Path

import harness
from pictures_parts import drawn, figures, searched

import mvindex

ROOT = Path(__file__).resolve().parent.parent
BENCHMARKS, PEERS = ROOT / "docs/explanation/benchmarks.md", ROOT / "docs/explanation/peers.md"
QUERY = "To how many million people did the plague reduce the world's population?"
FIXED = {
    "architecture": drawn.draw_architecture,
    "life": drawn.draw_life,
    "quality": lambda: figures.draw_quality(BENCHMARKS),
    "recall": lambda: figures.draw_recall(PEERS),
}
SEARCHED = {"query": searched.draw_query, "certified": searched.draw_certified}


def main():
    """Write the pictures that were asked for."""
    parser = harness.parser(__doc__, out=ROOT / "docs/pictures")
    parser.add_argument("--index", type=Path, help="an index of examples/squad/passages.tsv")
    parser.add_argument("--only", default=",".join([*FIXED, *SEARCHED]), help="some of %(default)s")
    args = harness.parse(parser, out=harness.OUT)
    names = args.only.split(",")
    unknown = set(names) - FIXED.keys() - SEARCHED.keys()
    if unknown:
        parser.error(f"--only: expected some of {', '.join([*FIXED, *SEARCHED])}, got {', '.join(sorted(unknown))}")
    pictures = {name: draw() for name, draw in FIXED.items() if name in names}
    if SEARCHED.keys() & set(names):
        if not (args.tiny or args.index):
            parser.error("--index: expected an index of examples/squad/passages.tsv")
        with tiny_index() if args.tiny else mvindex.open(args.index) as index:
            pictures |= {name: draw(index, QUERY) for name, draw in SEARCHED.items() if name in names}
    args.out.mkdir(parents=True, exist_ok=True)
    for name, picture in pictures.items():
        path = args.out / f"{name}.svg"
        path.write_text(picture, encoding="utf-8")
        print(f"{path}: {len(picture):,} characters")


def tiny_index():
    """Return an index of five passages, one of which has what the query asks for."""
    path = harness.FOLDER / "pictures.mvx"
    passages = (ROOT / "examples/squad/passages.tsv").read_text(encoding="utf-8").splitlines()
    rows = [line.split("\t") for line in passages if line.split("\t")[0] in {"1", "2", "201", "202", "203"}]
    index = mvindex.create(path, encoder="minilm-views")
    index.add([mvindex.Document(number, text.strip('"'), title=title) for number, text, title in rows])
    return index


if __name__ == "__main__":
    main()
