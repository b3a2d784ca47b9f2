"""Import an index into a real Milvus server by bulk import, count what arrives, and extrapolate to 168 million rows.

    python bench/milvus_bulk.py --folder DIR --data DATA [--documents 12500 125000 1250000] [--json]

Documents of 8 views of 96 dimensions, as in full_count.py. For each size: `mvindex export --to milvus-bulk`, then
`mvindex import milvus-bulk`, each a process of its own. The last import is killed once half of its files are there, and
runs again. Afterwards the server's rows are counted, and 16 questions are asked of both: their hits have to be equal.
Seconds are wall-clock. Memory is the most that the last import's client, and the server, ever had, mapped files
included. The server is the wheel of tests/milvus/milvus_server.py. Needs 1.5 KB of disk a row.
"""

import json
import shutil
import subprocess
import sys
import time
from pathlib import Path

import harness
import numpy as np
from scale_parts.passages import Passages

import mvindex

sys.path.insert(0, str(Path(__file__).parents[1]))
from tests.milvus.milvus_server import VENV_VARIABLE, MilvusServer, is_here  # noqa: E402 - after the path

TARGET_ROWS = 168_122_592
QUESTIONS, TOP_K = 16, 10


def run(*command, until=None):
    """Run a command of mvindex; return its JSON with seconds and most memory. until: says when it is killed."""
    started, memory = time.monotonic(), 0
    process = subprocess.Popen(
        [sys.executable, "-m", "mvindex", *map(str, command), "--json"], stdout=subprocess.PIPE, text=True
    )
    while process.poll() is None:
        memory = most_memory(process.pid) or memory
        if until is not None and until():
            process.kill()
        time.sleep(0.2)
    printed, _ = process.communicate()
    if until is None and process.returncode:
        sys.exit(f"{command[0]}: ended with {process.returncode}")
    found = json.loads(printed) if printed else {}
    return found | {"seconds": round(time.monotonic() - started, 1), "bytes": memory}


def most_memory(pid):
    """Return the most memory that a process ever had, in bytes; 0 for one that has ended."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    found = [line.split()[1] for line in lines if line.startswith("VmHWM:")]
    return int(found[0]) << 10 if found else 0


def made(path, documents, options):
    """Make the index of so many documents."""
    passages = Passages(documents, options)
    with mvindex.create(path, dim=options.dim, lexical="none") as index:
        for block in range(passages.blocks):
            index.add_views(passages.block(block), passages.views(block))
    return passages


def num_done(server, place, num_files):
    """Return how many imports into the collections of an index the server has completed."""
    client = server._client(30)
    name = place.rpartition("/")[2].partition("?")[0]
    try:
        states = [
            state
            for each in (name, f"{name}_views")
            if client.has_collection(each)
            for state in client._get_connection().list_bulk_insert_tasks(0, each)
        ]
    finally:
        client.close()
    return sum(state.state_name == "Completed" for state in states) / num_files


def measured(documents, is_last, server, options):
    """Return the row of a size."""
    path, bulk = options.folder / "index.mvx", options.folder / "bulk"
    passages = made(path, documents, options)
    exported = run("export", "--to", "milvus-bulk", bulk, "--index", path)
    files = [file.stat().st_size for file in bulk.rglob("*") if file.is_file()]
    place, num_files = server.url(f"rows{documents}", "?timeout=600"), 2 * exported["shards"]
    row = {"documents": documents, "views": exported["views"], "export_s": exported["seconds"]}
    row |= {"files": len(files), "largest_file": max(files), "export_bytes": sum(files)}
    if is_last:
        killed = run(
            "import", "milvus-bulk", bulk, "--index", place, until=lambda: num_done(server, place, num_files) >= 0.5
        )
        row |= {"killed_after_s": killed["seconds"], "done_then": round(num_done(server, place, num_files), 3)}
    imported = run("import", "milvus-bulk", bulk, "--index", place)
    row |= {"import_s": round(imported["seconds"] + row.get("killed_after_s", 0), 1)}
    row |= {"imported_last": imported["imported"], "client_bytes": imported["bytes"]}
    with mvindex.open(place) as there, mvindex.open(path) as here:
        row |= {"counted": [len(there), there.info().views]}
        questions, _ = passages.questions(QUESTIONS)
        row["equal"] = sum(
            [hit.id for hit in there.search(one, top_k=TOP_K).hits] == [hit.id for hit in here.search(one).hits]
            for one in questions
        )
    row["server_bytes"] = most_memory(server.pid)
    server.drop(f"rows{documents}")
    for folder in (path, bulk):
        shutil.rmtree(folder)
    return row


def main():
    parser = harness.parser(
        __doc__, documents=[12_500, 125_000, 1_250_000], views=8, dim=96, seed=0, data=harness.COLLECTIONS, json=False
    )
    parser.add_argument("--folder", type=Path, required=True, help="of the index, its export and the server's data")
    options = harness.parse(parser, documents=[600, 1200], views=2, dim=16, data=harness.DATA, folder=harness.OUT)
    if not is_here():
        parser.error(
            f"expected a virtual environment with milvus==2.3.5, named in {VENV_VARIABLE}, and unshare; got none"
        )
    (options.folder / "server").mkdir(parents=True)
    rows = []
    with MilvusServer(options.folder / "server") as server:
        for documents in options.documents:
            rows.append(measured(documents, documents == options.documents[-1], server, options))
            print(json.dumps(rows[-1]), flush=True)
    shutil.rmtree(options.folder / "server")
    if not options.json and len(rows) > 1:
        slope, constant = np.polyfit([row["views"] for row in rows], [row["import_s"] for row in rows], 1)
        print(f"{constant:.0f} s + {1e6 * slope:.1f} s a million rows: {(constant + slope * TARGET_ROWS) / 3600:.1f} h")


if __name__ == "__main__":
    main()
