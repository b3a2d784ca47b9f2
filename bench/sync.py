"""Sync a folder of Markdown files into an index: the first time, unchanged, with 1 % changed, and after a lost cache.

    python bench/sync.py --data DIR [--files 10000] [--words 15] [--callable] [--json]

Each file is one text of wiki_sample, squad or pubmedqa, or its first words, below a heading. Each run is a process of
its own, `mvindex sync FOLDER --json`; `seconds` is its whole time, `sync` that of the sync itself. `check` reads every
file again. Documents encoded are those of the report. With --callable an encoder that does nearly nothing stands for
the model, so that what is left is the time of the sync.
"""

import csv
import gzip
import io
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import harness
import zstandard


def texts(data):
    """Yield titles and texts."""
    packed = zstandard.ZstdDecompressor().stream_reader((data / "wiki_sample/passages.tsv.zst").open("rb"))
    wiki = io.TextIOWrapper(packed, "utf-8", newline="")
    for file in (wiki, (data / "squad/passages.tsv").open(newline="", encoding="utf-8")):
        for row in csv.DictReader(file, delimiter="\t"):
            yield row["title"], row["text"]
    with gzip.open(data / "pubmedqa/corpus.jsonl.gz", "rt", encoding="utf-8") as file:
        for row in map(json.loads, file):
            yield row.get("title", ""), row["text"]


def write_folder(folder, data, count, words):
    """Write `count` files of up to `words` words; texts are used again, with their number, where there are too few."""
    written = 0
    while written < count:
        for title, text in texts(data):
            if written == count:
                break
            path = folder / f"{written // 100:03}" / f"{written:06}.md"
            path.parent.mkdir(parents=True, exist_ok=True)
            begin = " ".join(text.split()[:words])
            path.write_text(f"# {title or 'Text'} ({written})\n\n{begin}\n", encoding="utf-8")
            written += 1


CALLABLE = """
import json, sys, mvindex
folder, place, check = sys.argv[1:]
encoder = mvindex.CallableEncoder(lambda texts: [[len(one), one.count("e"), 1.0] for one in texts], name="lengths")
from mvindex.index.factory import index_exists
with mvindex.open(place) if index_exists(place) else mvindex.create(place, encoder=encoder) as index:
    index.use_encoder(encoder)
    print(json.dumps(mvindex.sync_folder(index, folder, mvindex.SyncOptions(check=bool(check))).as_json()))
"""


def synced(folder, index, cache, is_callable, *options):
    command = [sys.executable, "-m", "mvindex", "sync", str(folder), "--index", str(index), "--json", *options]
    if is_callable:
        command = [sys.executable, "-c", CALLABLE, str(folder), str(index), "".join(options)]
    started = time.perf_counter()
    done = subprocess.run(
        command, env=os.environ | {"MVINDEX_CACHE": str(cache)}, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(done.stderr)
    report = json.loads(done.stdout)
    return {
        "seconds": round(time.perf_counter() - started, 1),
        "sync": report["seconds"],
        "encoded": report["documents_encoded"],
        "deleted": report["documents_deleted"],
        "files": report["in_folder"]["files"],
        "passages": report["in_index"]["passages"],
        "equal": report["equal"],
    }


def change(folder, share):
    """Change every file whose number is a multiple of 1 / share, and return their number."""
    paths = sorted(folder.rglob("*.md"))[:: round(1 / share)]
    for path in paths:
        path.write_text(path.read_text(encoding="utf-8") + "\nA line was added.\n", encoding="utf-8")
    return len(paths)


def main():
    parser = harness.parser(__doc__, data=Path, files=10_000, json=False)
    parser.add_argument("--words", type=int, help="of each file (default: all)")
    parser.add_argument("--callable", action="store_true", help="an encoder that does nearly nothing")
    options = harness.parse(parser, data=harness.DATA, files=20)
    with tempfile.TemporaryDirectory(dir=harness.FOLDER) as place:
        folder, index, cache = (Path(place) / name for name in ("files", "files.mvx", "cache"))
        write_folder(folder, options.data, options.files, options.words)
        rows = {"first": synced(folder, index, cache, options.callable)}
        rows["unchanged, read once more"] = synced(folder, index, cache, options.callable)
        time.sleep(2.1)
        synced(folder, index, cache, options.callable)
        rows["unchanged"] = synced(folder, index, cache, options.callable)
        changed = change(folder, 0.01 if options.files >= 100 else 0.1)
        rows[f"{changed} files changed"] = synced(folder, index, cache, options.callable)
        rows["check"] = synced(folder, index, cache, options.callable, "--check")
    if options.json:
        print(json.dumps(rows))
        return
    for name, row in rows.items():
        print(f"{name:28}", *(f"{key} {value}" for key, value in row.items()), sep="  ")


if __name__ == "__main__":
    main()
