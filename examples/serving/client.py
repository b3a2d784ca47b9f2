"""A server and its client in one script: the same code as for an index directory, with another URL.

python examples/serving/client.py
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

import mvindex
from mvindex import Document

with tempfile.TemporaryDirectory() as folder:
    path = Path(folder) / "tiny.mvx"
    mvindex.create(path, dim=8).close()
    command = [sys.executable, "-m", "mvindex", "serve", "--index", f"tiny={path}", "--port", "0"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        url = json.loads(server.stdout.readline())["grpc"] + "/tiny"
        with mvindex.open(url) as index:
            views = np.eye(8, dtype=np.float32).reshape(4, 2, 8)
            report = index.add_views([Document(f"d{n}", f"Document {n}.") for n in range(4)], views)
            print(f"{report.added} documents are durable at {index.info().kind} index 'tiny'")
            hit = index.search(views[2][1], top_k=1).hits[0]
            print(f"{hit.id} won by its view {hit.slot}, score {hit.score:.2f}")
    finally:
        server.terminate()
        print(f"the server ended with {server.wait()}")
        server.stdout.close()
