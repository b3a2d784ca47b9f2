"""Measure how fast documents are encoded: every family beside `single`, and the bare transformer in other runtimes.

    python bench/encoding.py [--what forms|encoders|families|views|runtimes|threads] [--documents 48] [--json]

All take passages of the sample corpus, spread evenly over it. `forms` encodes them by the default encoder in its light
form (int8, ONNX Runtime), in torch bf16 and in torch fp32, with the cosines of the views to those of the last. It ends
with an ingest of the whole sample by the light form in a process of its own: the most memory, the time, and how much of
it the model takes. `encoders` is e5-views beside the default one.
`families` goes through load_encoder(), as `mvindex ingest` does: the packaged MiniLM, or, for families that need
weights of their own, a checkpoint of it with untrained ones, saved first. `views` does so for the default encoder with
up to 1, 2, 4, 8 views, and as many as there are parts.
`runtimes` gives each runtime the batches of `snippets` and pools what it returns: the cosines are those of the views
with torch's in fp32. What a runtime needs (`pip install onnx onnxscript onnxruntime openvino`) and what the processor
lacks is said. `threads` encodes the documents and 20 queries by a thread for each core, and by as many as the machine
leaves (docs/how-to/threads.md), with the wall's seconds too. Compared
things alternate in one process; times are the process's
CPU seconds, which other work disturbs less than the wall's: medians over the rounds, of ratios too, with their range.
"""

import importlib.util
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import harness
import numpy as np
import torch
from harness import alternate, ratio_text, ratios

import mvindex
from mvindex.corpus import read_documents
from mvindex.encoder import load_encoder
from mvindex.encoder.arranged import Inputs
from mvindex.encoder.batches import batches
from mvindex.encoder.checkpoint import load_parts, load_tokenizer, read_checkpoint
from mvindex.encoder.checkpoint.hub import DEFAULT, E5
from mvindex.encoder.device import batch_shape, document_dtype
from mvindex.encoder.forward import RowMeans, last_states
from mvindex.encoder.transformer import TransformerEncoder
from mvindex.kernels.threads import choose_threads
from mvindex_train.checkpoints import save_checkpoint
from mvindex_train.config import EncoderConfig
from mvindex_train.model import build_encoder

CORPUS = Path(__file__).resolve().parent.parent / "examples/squad/passages.tsv"
CPU = torch.device("cpu")
INGEST = """
import json, re, sys, tempfile, time
import mvindex
from mvindex.corpus import read_documents
from mvindex.encoder.onnx_encoder import OnnxEncoder
model_s, means = 0.0, OnnxEncoder._means
def timed_means(*given):
    global model_s
    began = time.perf_counter()
    found = means(*given)
    model_s += time.perf_counter() - began
    return found
OnnxEncoder._means = timed_means
began = time.perf_counter()
with tempfile.TemporaryDirectory() as folder, mvindex.create(folder + "/a.mvx", encoder="minilm-views") as index:
    index.add(read_documents(sys.argv[1]))
# Of this process: the largest one of resource is that of the process that started it, where that is larger.
memory = int(re.search("VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1]) / 1e3
times = {"wall_s": time.perf_counter() - began, "model_s": model_s, "cpu_s": time.process_time()}
print(json.dumps({"memory_mb": memory, **times}))
"""
# Views at most; None: the family's own number.
ZERO_SHOT = {"single": 1, "snippets": None, "first-k": None, "kmeans": None, "sentences": None, "splits": None}
TRAINED = {
    "poly": {"family": "poly"},
    "viewers": {"family": "viewers"},
    "context-viewers": {"family": "context-viewers"},
    "context-viewers, own_snippet": {"family": "context-viewers", "own_snippet": True},
}


def sample(count):
    documents = list(read_documents(str(CORPUS)))
    return [documents[place] for place in np.linspace(0, len(documents) - 1, count).astype(int)]


def speeds(found, reference, count):
    """Return documents per CPU second of each, and the ratio to the reference."""
    for name, seconds in found.items():
        speed = count / statistics.median(seconds)
        yield {"name": name, "documents_s": speed, **ratios(found[reference], seconds)}


def measure_families(documents, rounds):
    encoders = {name: load_encoder(family=name, max_views=views) for name, views in ZERO_SHOT.items()}
    with tempfile.TemporaryDirectory() as folder:
        for name, settings in TRAINED.items():
            path = Path(folder) / name
            save_checkpoint(build_encoder(EncoderConfig(**settings), seed=0), path, "untrained, to time it")
            encoders[name] = load_encoder(path)
        calls = {
            name: lambda encoder=encoder: encoder.encode_documents(documents) for name, encoder in encoders.items()
        }
        found = alternate(calls, rounds)
    return list(speeds(found, "single", len(documents)))


def measure_forms(documents, rounds):
    """Return the speed of the default encoder by form, and last the memory of an ingest with the light one."""
    encoders = {
        "light int8": load_encoder(device="cpu"),
        "torch fp32": TransformerEncoder(read_checkpoint(DEFAULT), "cpu"),
    }
    encoders["torch fp32"].__dict__["_document_model"] = encoders["torch fp32"]._source_model
    if document_dtype(CPU) == torch.bfloat16:
        encoders["torch bf16"] = TransformerEncoder(read_checkpoint(DEFAULT), "cpu")
    calls = {name: lambda encoder=encoder: encoder.encode_documents(documents) for name, encoder in encoders.items()}
    rows = list(speeds(alternate(calls, rounds), "torch fp32", len(documents)))
    views = {name: encoder.encode_documents(documents).rows for name, encoder in encoders.items()}
    for row in rows:
        row["least_cosine"] = float((views[row["name"]] * views["torch fp32"]).sum(axis=1).min())
    done = subprocess.run([sys.executable, "-c", INGEST, str(CORPUS)], check=True, capture_output=True, text=True)
    return [*rows, {"name": "ingest, light int8", **json.loads(done.stdout)}]


def measure_encoders(documents, rounds):
    """Return the speed of the packaged encoders that ONNX Runtime runs."""
    encoders = {name: load_encoder(name, device="cpu") for name in (DEFAULT, E5)}
    calls = {name: lambda encoder=encoder: encoder.encode_documents(documents) for name, encoder in encoders.items()}
    return list(speeds(alternate(calls, rounds), DEFAULT, len(documents)))


def measure_views(documents, rounds):
    """Return the cost of the default encoder by the most views that a document may have."""
    single = {"single": load_encoder(family="single", max_views=1)}
    encoders = single | {f"{views} views": load_encoder(max_views=views) for views in (1, 2, 4, 8, "auto")}
    calls = {name: lambda encoder=encoder: encoder.encode_documents(documents) for name, encoder in encoders.items()}
    return list(speeds(alternate(calls, rounds), "single", len(documents)))


class Work:
    """The batches of documents as `snippets` cuts them, and the views that states of theirs make."""

    def __init__(self, documents):
        checkpoint = read_checkpoint("minilm")
        tokenizer = load_tokenizer(checkpoint)
        self.model = load_parts(checkpoint, tokenizer).documents.eval()
        arranged = Inputs(checkpoint.settings, tokenizer, "minilm").arrange_documents(documents)
        shape = batch_shape(CPU, checkpoint.settings.document_length)
        self.batches = list(batches(arranged, shape, self.model.config.pad_token_id))
        self._num_rows = int(arranged.num_rows.sum())

    def views(self, states_of):
        """Return unit rows (r, d) of states_of(batch), (b, t, d)."""
        means = RowMeans(self._num_rows, self.model.config.hidden_size)
        for batch in self.batches:
            means.add(batch, np.asarray(states_of(batch), dtype=np.float32))
        rows = means.means()
        return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def measure_runtimes(documents, options):
    work = Work(documents)
    with tempfile.TemporaryDirectory() as folder:
        runtimes, missing = open_runtimes(work.model, Path(folder) / "model.onnx", options.threads)
        calls = {name: lambda run=run: [run(batch) for batch in work.batches] for name, run in runtimes.items()}
        found = alternate(calls, options.rounds)
        reference = work.views(runtimes["torch fp32"])
        cosines = {name: (reference * work.views(run)).sum(axis=1) for name, run in runtimes.items()}
    rows = list(speeds(found, "torch fp32", len(documents)))
    for row in rows:
        row["least_cosine"] = float(cosines[row["name"]].min())
    return rows + [{"name": name, "missing": reason} for name, reason in missing.items()]


def open_runtimes(model, path, threads):
    """Return functions for the last states of a batch by name, and why the other runtimes are missing."""
    runtimes = {"torch fp32": torch_runtime(model)}
    missing = {}
    if document_dtype(CPU) == torch.bfloat16:
        runtimes["torch bf16"] = torch_runtime(load_again(torch.bfloat16))
    else:
        missing["torch bf16"] = "the processor has none"
    if not all(map(importlib.util.find_spec, ("onnx", "onnxscript"))):
        return runtimes, missing | dict.fromkeys(("onnxruntime", "openvino"), "needs onnx and onnxscript")
    export(model, path)
    for name, opener in {"onnxruntime": onnxruntime_runtimes, "openvino": openvino_runtimes}.items():
        if importlib.util.find_spec(name) is None:
            missing[name] = "not installed"
            continue
        opened, lacking = opener(path, threads)
        runtimes, missing = runtimes | opened, missing | lacking
    return runtimes, missing


def load_again(dtype):
    checkpoint = read_checkpoint("minilm")
    return load_parts(checkpoint, load_tokenizer(checkpoint)).documents.eval().to(dtype)


def torch_runtime(model):
    def run(batch):
        with torch.inference_mode():
            return last_states(model, batch)

    return run


def onnxruntime_runtimes(path, threads):
    import onnxruntime

    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(str(path), settings, providers=["CPUExecutionProvider"])

    def run(batch):
        return torch.from_numpy(session.run(None, {"input_ids": batch.ids, "attention_mask": batch.mask})[0])

    return {"onnxruntime fp32": run}, {}


def openvino_runtimes(path, threads):
    import openvino

    core = openvino.Core()
    native = core.get_property("CPU", "OPTIMIZATION_CAPABILITIES")
    runtimes, missing = {}, {}
    for name, hint, needed in (("openvino fp32", "f32", "FP32"), ("openvino bf16", "bf16", "BF16")):
        if needed not in native:
            missing[name] = f"the processor has {', '.join(native)}"
            continue
        settings = {"INFERENCE_PRECISION_HINT": hint, "INFERENCE_NUM_THREADS": threads, "NUM_STREAMS": 1}
        compiled = core.compile_model(str(path), "CPU", settings)
        runtimes[name] = lambda batch, compiled=compiled: torch.from_numpy(compiled([batch.ids, batch.mask])[0].copy())
    return runtimes, missing


class LastStates(torch.nn.Module):
    """The transformer with only its last hidden states as output."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, input_ids, attention_mask):
        return self.model(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state


def export(model, path):
    """Export the model to ONNX at the path, for batches of any shape."""
    # With padding in it: a mask of only ones would be exported as no mask.
    mask = torch.ones((2, 16), dtype=torch.int64)
    mask[1, 12:] = 0
    names = ("input_ids", "attention_mask")
    shapes = {name: {0: "lines", 1: "tokens"} for name in names}
    torch.onnx.export(
        LastStates(model),
        (torch.full_like(mask, 1000), mask),
        str(path),
        input_names=list(names),
        output_names=["states"],
        dynamic_shapes=shapes,
        dynamo=True,
        verbose=False,
    )


def measure_threads(documents, rounds):
    """Yield the seconds of each round by a thread for each core, and by as many as the machine leaves then."""
    torch.set_num_threads(os.cpu_count())
    encoder = load_encoder()
    encoder.encode_documents(documents[:4])
    for _ in range(rounds):
        for count in (os.cpu_count(), None):
            mvindex.set_threads(count)
            taken, begun, cpu = choose_threads(), time.monotonic(), time.process_time()
            encoder.encode_documents(documents)
            for document in documents[:20]:
                encoder.encode_queries([document.title])
            wall_s, cpu_s = time.monotonic() - begun, time.process_time() - cpu
            yield {"name": "given" if count else "default", **taken._asdict(), "wall_s": wall_s, "cpu_s": cpu_s}


def as_line(row):
    if "why" in row:
        wall_s, cpu_s = f"{row['wall_s']:6.2f} s wall", f"{row['cpu_s']:6.2f} s CPU"
        return f"{row['name']:8s} {row['threads']} threads {wall_s} {cpu_s}  ({row['why']})"
    if "memory_mb" in row:
        model_s = f"{row['model_s']:.1f} of them in the model"
        return f"{row['name']:30s} {row['memory_mb']:.0f} MB at most, {row['wall_s']:.1f} s wall, {model_s}"
    if "missing" in row:
        return f"{row['name']:30s} not measured: {row['missing']}"
    cosine = f"  least cosine {row['least_cosine']:.6f}" if "least_cosine" in row else ""
    return f"{row['name']:30s} {row['documents_s']:6.2f} documents/s  {ratio_text(row)}{cosine}"


def main():
    parser = harness.parser(__doc__, documents=48, rounds=5, threads=1, json=False)
    parser.add_argument(
        "--what", choices=["forms", "encoders", "families", "views", "runtimes", "threads"], default="families"
    )
    options = harness.parse(parser, what="threads", documents=4, rounds=1)
    torch.set_num_threads(options.threads)
    mvindex.set_threads(options.threads)
    documents = sample(options.documents)
    if options.what == "forms":
        rows = measure_forms(documents, options.rounds)
    elif options.what == "encoders":
        rows = measure_encoders(documents, options.rounds)
    elif options.what == "families":
        rows = measure_families(documents, options.rounds)
    elif options.what == "views":
        rows = measure_views(documents, options.rounds)
    elif options.what == "runtimes":
        rows = measure_runtimes(documents, options)
    else:
        rows = measure_threads(documents, options.rounds)
    for row in rows:
        harness.show(row, options.json, as_line)


if __name__ == "__main__":
    main()
