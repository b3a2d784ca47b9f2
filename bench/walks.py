"""Count the source files that a warm text query and a corpus row cross, and the calls from one file to another.

    python bench/walks.py [--files] [--json]

A tiny random encoder is made in a temporary folder, so that nothing is downloaded. Each walk is taken once to load and
compile everything, and then once more under sys.setprofile, in all threads. `files` are distinct source files of
mvindex and its connectors; `crossings` are calls, and resumed generators, whose nearest caller among these files is
another one.
  query     index.search("text") on an index with an encoder
  search    the same with the vector of the text, so without encoding
  row       `mvindex ingest` with a file of one row, from the file to the commit: the index and its encoder are open
  command   all of that command, with opening index and encoder, and printing
--files lists the calls between files, most frequent first.
"""

import argparse
import contextlib
import io
import json
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from unittest import mock

import tiny

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

import mvindex  # noqa: E402 - the path comes first
from mvindex.cli import main as run_command  # noqa: E402
from mvindex.ingest.files import CorpusIngest  # noqa: E402
from tests.helpers.tiny_models import make_model  # noqa: E402

PACKAGES = tuple(f"{Path(package)}/" for package in (ROOT / "mvindex", ROOT / "connectors" / "mvindex_connectors"))
TEXTS = ("the cat sat on the mat. it ran", "a dog ran under the house", "the old river was blue. he sat")


class Walk:
    """Count calls between source files inside the context, by caller and callee."""

    def __init__(self) -> None:
        self.files: set[str] = set()
        self.crossings: Counter[tuple[str, str]] = Counter()

    def __enter__(self) -> "Walk":
        threading.setprofile(self._hear)
        sys.setprofile(self._hear)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)
        threading.setprofile(None)

    def around(self, run: Callable) -> Callable:
        """Return CorpusIngest.run, counted from when the encoder of its index is loaded."""

        def counted(ingest: CorpusIngest, *args):
            ingest.add_entries.__self__.encoder  # noqa: B018 - loads it
            with self:
                return run(ingest, *args)

        return counted

    def _hear(self, frame, event, argument) -> None:
        if event != "call" or not (name := frame.f_code.co_filename).startswith(PACKAGES):
            return
        self.files.add(name)
        caller = frame.f_back
        while caller is not None and not caller.f_code.co_filename.startswith(PACKAGES):
            caller = caller.f_back
        if caller is not None and caller.f_code.co_filename != name:
            self.crossings[caller.f_code.co_filename, name] += 1


def ingest(folder: Path, number: int) -> None:
    """Run `mvindex ingest` with a corpus of one row."""
    corpus = folder / f"{number}.tsv"
    corpus.write_text(f"id\ttext\ttitle\nrow-{number}\t{TEXTS[number % len(TEXTS)]}\tthe dog\n", encoding="utf-8")
    options = {"--encoder": folder / "encoder", "--index": folder / "rows.mvx"}
    sys.argv = ["mvindex", "ingest", str(corpus), *(str(part) for option in options.items() for part in option)]
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()) as shown:
        try:
            run_command()
        except SystemExit as end:
            if end.code:
                raise RuntimeError(shown.getvalue()) from end


def walks(folder: Path):
    """Yield each walk's name and what it crossed."""
    make_model(folder / "encoder")
    with mvindex.create(folder / "query.mvx", encoder=folder / "encoder") as index:
        index.add(mvindex.Document(str(number), text) for number, text in enumerate(TEXTS * 20))
        vector = index.encode_queries([TEXTS[0]])[0]
        for name, query in (("query", TEXTS[0]), ("search", vector)):
            index.search(query)
            with Walk() as walk:
                index.search(query)
            yield name, walk
    for number in range(2):
        ingest(folder, number)
    row = Walk()
    with mock.patch.object(CorpusIngest, "run", row.around(CorpusIngest.run)):
        ingest(folder, 2)
    yield "row", row
    with Walk() as walk:
        ingest(folder, 3)
    yield "command", walk


def short(name: str) -> str:
    """Return the name of a source file inside its package."""
    return next(name.removeprefix(package) for package in PACKAGES if name.startswith(package))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", action="store_true", help="list the calls between files")
    parser.add_argument("--json", action="store_true")
    options = tiny.parse(parser)
    with tempfile.TemporaryDirectory() as folder:
        for name, walk in walks(Path(folder)):
            calls = [[short(a), short(b), count] for (a, b), count in walk.crossings.most_common()]
            row = {"walk": name, "files": len(walk.files), "crossings": sum(walk.crossings.values())}
            if options.json:
                print(json.dumps(row | ({"calls": calls} if options.files else {})), flush=True)
                continue
            print(f"{name:8s} {row['files']:3d} files {row['crossings']:4d} crossings", flush=True)
            for caller, callee, count in calls if options.files else []:
                print(f"  {count:4d}  {caller} -> {callee}")


if __name__ == "__main__":
    main()
