"""Check and measure everything that runs on a GPU, beside the CPU and beside bare torch, in under eight minutes.

    python bench/gpu_check.py [--device cuda] [--only scan,faiss] [--json]
    python bench/gpu_check.py --device cpu --tiny          # rehearses all of it on a CPU, in seconds

It reads nothing from a network: this repository, its packages and the weights of MiniLM are enough. Each section is a
process of its own, so that a crash or too little memory ends that section only. A line is a figure with its floor,
which is measured in the same section, and the goal. What could not run is NOT RUN with the reason; a wrong list or a
crash is FAILED, and the exit status 1. Seconds are the wall's, medians of several calls.

- devices: the GPU, its memory, the driver, and the packages.
- lists: documents and scores of certified searches equal the CPU's: ragged documents, ties, deletions, filters, DRPQ,
  query groups, shards, fp32.
- scan: 250,000 documents x 8 views x 128 dimensions in fp16. The floor is torch's matmul, amax and topk in fp16.
- faiss: 100,000 such documents (10,000 for hnsw); lists trained on the GPU, and what this Faiss has there searched,
  beside the same engine on the CPU.
- encoding: passages by minilm-views; the floor is the model's forward pass alone.
- training: 60 steps of 128 questions with a positive and a negative of 256 tokens each; the floor is the forward and
  backward pass of the model in bf16 over as many tokens.
"""

import argparse
import json
import logging
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from contextlib import contextmanager
from pathlib import Path

import harness
import numpy as np
from vectors import cached_index

import mvindex
from mvindex.corpus import read_documents
from mvindex.errors import MvindexError

ROOT = Path(__file__).resolve().parent.parent
SECONDS = {"devices": 20, "lists": 50, "scan": 140, "faiss": 90, "encoding": 70, "training": 100}
TOP_K = 10
# Goals of what is right or wrong, not of time.
RIGHT = {"equal", "the CPU's", ".99 or more", ".03 or less"}


class Lacks(Exception):
    """The reason why a figure could not be measured here."""


def figure(what, value, unit="", *, floor=None, goal=None, is_met=None):
    """Return a line of the table; is_met: whether the goal is met, None where there is none."""
    return {"what": what, "value": value, "unit": unit, "floor": floor, "goal": goal, "is_met": is_met}


def times_floor(what, seconds, floor, most, unit="ms"):
    scale = 1e3 if unit.startswith("ms") else 1
    goal = None if most is None else f"{most:g} times the floor"
    is_met = None if most is None else seconds <= most * floor
    return figure(what, seconds * scale, unit, floor=floor * scale, goal=goal, is_met=is_met)


def equal(what, is_equal, detail):
    return figure(what, detail, goal="equal", is_met=bool(is_equal))


def clocked(call, options, repeat):
    """Return the median seconds of a call, after one that is not counted; a GPU is waited for."""
    found = []
    for _ in range(repeat + 1):
        begin = time.perf_counter()
        call()
        wait(options)
        found.append(time.perf_counter() - begin)
    return statistics.median(found[1:])


@contextmanager
def logged(*names):
    """Yield a list of what these loggers say meanwhile: why something is not done on the GPU."""
    said = []
    handler = logging.Handler()
    handler.emit = lambda record: said.append(record.getMessage())
    loggers = [logging.getLogger(name) for name in names]
    for logger in loggers:
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)
    yield said
    for logger in loggers:
        logger.removeHandler(handler)


def wait(options):
    if options.device != "cpu":
        import torch

        torch.cuda.synchronize()


@contextmanager
def watched_gpu(options):
    """Yield a list of seconds and the GPU's use in per cent then; none where it cannot be read."""
    import torch

    used, done = [], threading.Event()

    def watch():
        # By its id: numbers leave out what CUDA_VISIBLE_DEVICES hides.
        number = f"GPU-{torch.cuda.get_device_properties(options.device).uuid}"
        command = ["nvidia-smi", "--query-gpu=utilization.gpu", "--format=csv,noheader,nounits", "-i", number]
        while not done.wait(0.1):
            try:
                share = float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
            except (OSError, ValueError, subprocess.CalledProcessError):
                return
            used.append((time.perf_counter(), share))

    watcher = threading.Thread(target=watch, daemon=True)
    if options.device != "cpu":
        watcher.start()
    try:
        yield used
    finally:
        done.set()
    if watcher.is_alive():
        watcher.join()


def gpu_use(what, used, span, goal):
    """Return the mean use from one second to another; before these it may be what is loaded."""
    inside = [share for at, share in used if span[0] <= at <= span[1]]
    if not inside:
        raise Lacks("nvidia-smi gives no use of a GPU here, or the work was over before it did")
    share = statistics.mean(inside)
    return figure(what, share, "%", goal=f"{goal} % or more", is_met=share >= goal)


# --- devices


def devices(options):
    from mvindex.encoder.device import describe_devices

    found = describe_devices()
    for name, version in found["packages"].items():
        yield figure(name, version)
    for gpu in found["gpus"]:
        yield figure(f"{gpu['device']}, free of its memory", gpu["free_bytes"] / 2**30, f"GiB, {gpu['name']}")
    if options.device != "cpu" and found["why_no_gpu"]:
        raise Lacks(found["why_no_gpu"])


# --- lists


def device_index(path, options):
    """Return the index with its exact scan on the device; a CPU goes the way of a GPU."""
    if options.device != "cpu":
        return mvindex.open(path, device=options.device)
    from mvindex.engines.device_views import DeviceConfig
    from mvindex.engines.scan_torch import TorchScan
    from mvindex.index import search_engine_of

    index = mvindex.open(path, device="cpu")
    search_engine_of(index).use_scan(lambda: TorchScan(DeviceConfig(as_gpu=True)))
    return index


def ragged_index(path, options, **settings):
    """Write documents of one to nine views, of which some are equal to others, and delete some."""
    rng = np.random.default_rng(1)
    count, dim = options.lists, 64
    starts = np.cumsum(np.append(0, rng.integers(1, 10, count)))
    rows = rng.standard_normal((starts[-1], dim)).astype(np.float32)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    rows[1::5] = rows[0]
    documents = [mvindex.Document(f"d{n}", "t", metadata={"n": n % 10}) for n in range(count)]
    with mvindex.create(path, dim=dim, lexical="none", **settings) as index:
        index.add_views(documents, np.split(rows, starts[1:-1]))
        index.delete(ids=[f"d{n}" for n in range(0, count, 7)])


def lists(options):
    rng = np.random.default_rng(2)
    queries = rng.standard_normal((32, 64)).astype(np.float32)
    cases = {
        "plain": {"query": queries},
        "top 100": {"query": queries, "top_k": 100},
        "filter": {"query": queries, "filter": {"n": {"lt": 3}}},
        "drpq": {"query": queries, "scoring": "drpq", "temperature": 0.1},
        "groups": {"query": [mvindex.QueryGroup(queries[n : n + 4]) for n in range(0, 32, 4)]},
    }
    with tempfile.TemporaryDirectory() as folder:
        for name, settings in {"fp16": {}, "three shards": {"shards": 3}, "fp32": {"dtype": "fp32"}}.items():
            path = Path(folder) / f"{name}.mvx"
            ragged_index(path, options, **settings)
            with device_index(path, options) as there, mvindex.open(path, device="cpu") as here:
                for case, request in cases.items():
                    found, expected = (pairs(each.search(exact=True, **request)) for each in (there, here))
                    same = sum(one == other for one, other in zip(found, expected, strict=True))
                    yield equal(f"{name}, {case}", found == expected, f"{same} of {len(expected)} lists and scores")
                for case in ("plain", "drpq"):
                    # The third one of a kind, and those after it, are a CUDA graph.
                    alone = [cases[case] | {"query": queries[n : n + 1]} for n in range(8)]
                    found, expected = (
                        [pairs(each.search(exact=True, **request)) for request in alone] for each in (there, here)
                    )
                    same = sum(one == other for one, other in zip(found, expected, strict=True))
                    yield equal(f"{name}, {case}, one at a time", found == expected, f"{same} of 8 lists and scores")


def pairs(results):
    return [[(hit.id, hit.score) for hit in result.hits] for result in results]


# --- scan


def scan(options):
    import torch

    from mvindex.engines.device_views import DeviceConfig
    from mvindex.engines.scan_torch import TorchScan
    from mvindex.index import embedded_store_of
    from mvindex.kernels.score import Scoring

    path, queries = cached_index(options.documents, 8, 128)
    queries = np.concatenate([queries] * 4) + np.float32(1e-3) * np.random.default_rng(3).standard_normal((1024, 128))
    queries = queries.astype(np.float32)
    with device_index(path, options) as there, mvindex.open(path, device="cpu") as here:
        snapshot = embedded_store_of(here).snapshot
        begin = time.perf_counter()
        there.search(queries[:1], exact=True)
        yield figure("first query, with the copy to the device", time.perf_counter() - begin, "s")
        views = torch.from_numpy(np.array(snapshot.views.matrix)).to(options.device)
        views = views if options.device != "cpu" else views.float()
        for size, most in zip(options.batches, (1.5, 2, 2), strict=False):
            batch = queries[:size]
            columns = torch.from_numpy(batch).to(views).T.contiguous()
            floor = min(
                clocked(lambda best=best, columns=columns: best(views, columns), options, options.repeat)
                for best in (torch_best, torch_best_by_query)
            )
            found = clocked(lambda batch=batch: there.search(batch, exact=True), options, options.repeat)
            yield times_floor(f"batch of {size}, search", found / size, floor / size, most, "ms a query")
            only = TorchScan(DeviceConfig(device=options.device, as_gpu=True))
            request = (snapshot, batch, TOP_K, snapshot.alive, Scoring())
            with logged("mvindex.engines.recorded") as said:
                only.candidates(*request)
                found = clocked(lambda only=only, request=request: only.candidates(*request), options, options.repeat)
            yield times_floor(f"batch of {size}, candidates only", found / size, floor / size, None, "ms a query")
            for why in said:
                yield {"what": "single queries as a CUDA graph", "not_run": why}
            only.give_back()
            yield waits(lambda batch=batch: there.search(batch, exact=True), size, options)
            beside = clocked(lambda batch=batch: here.search(batch, exact=True), options, min(3, options.repeat))
            yield figure(f"batch of {size}, search on this CPU", 1e3 * beside / size, "ms a query")
        found, expected = (pairs(each.search(queries, exact=True)) for each in (there, here))
        same = sum(one == other for one, other in zip(found, expected, strict=True))
        yield equal("lists and scores of 1,024 queries", found == expected, f"{same} of 1024")
        yield streamed(snapshot, queries[:64], options)


def torch_best(views, columns):
    scores = (views @ columns).view(-1, 8, columns.shape[1])
    return scores.amax(1).topk(TOP_K, dim=0)


def torch_best_by_query(views, columns):
    """Do the same with the scores of a query side by side, which is the faster one for some sizes."""
    scores = (columns.T @ views.T).view(columns.shape[1], -1, 8)
    return scores.amax(2).topk(TOP_K, dim=1)


def waits(search, size, options):
    """Return how often a search waits for the device, by torch's own count; on a CPU by that of copies to the host."""
    import torch

    from mvindex.engines import recorded, scan_torch

    if options.device == "cpu":
        copies, to_host = [], scan_torch.to_host
        scan_torch.to_host = recorded.to_host = lambda tensor: copies.append(1) or to_host(tensor)
        search()
        scan_torch.to_host = recorded.to_host = to_host
        count = len(copies)
    else:
        torch.cuda.set_sync_debug_mode("warn")
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            search()
        torch.cuda.set_sync_debug_mode("default")
        count = sum("synchroniz" in str(each.message) for each in warned)
    return figure(f"batch of {size}, waits for the device", count, goal="3 or fewer", is_met=count <= 3)


def streamed(snapshot, queries, options):
    """Return the time of a batch where no view stays on the device; the floor copies the same bytes from one buffer."""
    import torch

    from mvindex.engines.device_views import DeviceConfig
    from mvindex.engines.scan_torch import TorchScan
    from mvindex.kernels.score import Scoring

    none_kept = TorchScan(DeviceConfig(device=options.device, as_gpu=True, cache_bytes=0))
    request = (snapshot, queries, TOP_K, snapshot.alive, Scoring())
    found = clocked(lambda: none_kept.candidates(*request), options, 3)
    size = snapshot.views.num_views * snapshot.views.row_bytes
    piece = torch.empty(min(size, 1 << 26), dtype=torch.uint8, pin_memory=options.device != "cpu")

    def copied():
        for _ in range(0, size, len(piece)):
            piece.to(options.device, non_blocking=True, copy=True)

    return times_floor(f"batch of {len(queries)}, streamed from the host", found, clocked(copied, options, 3), None)


# --- faiss


def faiss(options):
    faiss = mvindex.plugins.require_faiss()
    if options.device != "cpu" and not (hasattr(faiss, "StandardGpuResources") and faiss.get_num_gpus()):
        raise Lacks("this Faiss has no GPU (the extra gpu has one)")
    for kind in ("ivf-flat", "ivf-sq8", "ivf-pq", "hnsw"):
        count = options.faiss_documents if kind != "hnsw" else options.hnsw_documents
        path, queries = cached_index(count, 8, 128, seed=1)
        begin = time.perf_counter()
        with mvindex.open(path, device=options.device) as index:
            exact = pairs(index.search(queries, exact=True))
            index.admin.build(kind)
        trained = "" if kind == "hnsw" or options.device == "cpu" else ", lists trained on the device"
        yield figure(f"{kind}, built{trained}", time.perf_counter() - begin, "s")
        with mvindex.open(path, device=options.device) as there, mvindex.open(path, device="cpu") as here:
            with logged("mvindex_connectors.engines.faiss_gpu") as said:
                there.search(queries[:1])
            if said:
                yield {"what": f"{kind} on the device", "not_run": said[0]}
                continue
            recalls = [recall(pairs(each.search(queries)), exact) for each in (there, here)]
            close = recalls[0] >= recalls[1] - 0.002
            yield figure(f"{kind}, recall@10 (CPU {recalls[1]:.3f})", recalls[0], goal="the CPU's", is_met=close)
            for size in (1, 64, 256):
                batch = queries[:size]
                found, beside = (
                    clocked(lambda each=each, batch=batch: each.search(batch), options, options.repeat)
                    for each in (there, here)
                )
                name = f"{kind}, batch of {size} (floor: the same on this CPU)"
                yield times_floor(name, found / size, beside / size, None, "ms a query")
            many = pairs(there.search(queries[:4], top_k=min(3000, count // 2)))
            yield equal(f"{kind}, more than 2,048 view hits", all(map(len, many)), f"{len(many[0])} documents")


def recall(found, exact):
    shares = [len({i for i, _ in one} & {i for i, _ in other}) / TOP_K for one, other in zip(found, exact, strict=True)]
    return statistics.mean(shares)


# --- encoding


def passages(count):
    documents = list(read_documents(str(ROOT / "examples/squad/passages.tsv")))
    return [mvindex.Document(str(n), each.text, each.title) for n, each in enumerate((documents * 99)[:count])]


def checkpoint(options, folder):
    """Return the checkpoint of minilm-views; in tiny runs one of a small BERT with random weights."""
    from mvindex.encoder.checkpoint import read_checkpoint

    if not options.tiny:
        return read_checkpoint("minilm-views")
    sys.path.insert(0, str(ROOT))
    from tests.helpers.tiny_training import make_base

    return read_checkpoint(str(make_base(folder)))


def encoding(options):
    import torch

    from mvindex.encoder.batches import batches
    from mvindex.encoder.checkpoint import load_parts, load_tokenizer
    from mvindex.encoder.device import batch_shape, document_dtype
    from mvindex.encoder.forward import last_states
    from mvindex.encoder.transformer import TransformerEncoder

    documents, device = passages(options.passages), torch.device(options.device)
    with tempfile.TemporaryDirectory() as folder:
        found = checkpoint(options, Path(folder))
        encoder, beside = TransformerEncoder(found, options.device), TransformerEncoder(found, "cpu")
        few = documents[:32]
        cosines = cosines_of(encoder.encode_documents(few).rows, beside.encode_documents(few).rows)
        least = cosines.min()
        yield figure("least cosine of a view to the CPU's", least, goal=".99 or more", is_met=least >= 0.99)
        # Starts the processes that arrange documents for a GPU.
        encoder.encode_documents(documents[:2048])
        with watched_gpu(options) as used:
            begin = time.perf_counter()
            encoder.encode_documents(documents)
            end = time.perf_counter()
            rate = len(documents) / (end - begin)
        model = load_parts(found, load_tokenizer(found)).documents.to(device, document_dtype(device)).eval()
        shape = batch_shape(device, found.settings.document_length)
        ready = list(batches(encoder.inputs.arrange_documents(documents[: options.forward]), shape, 0))

        @torch.inference_mode()
        def forward():
            for batch in ready:
                last_states(model, batch)

        floor = min(options.forward, len(documents)) / clocked(forward, options, 3)
        is_met = None if options.tiny else rate >= 15_000
        yield figure("passages a second", rate, floor=floor, goal="15,000 or more", is_met=is_met)
        yield gpu_use("use of the GPU", used, (begin, end), 70)


def cosines_of(one, other):
    norms = np.linalg.norm(one, axis=1) * np.linalg.norm(other, axis=1)
    return (one * other).sum(1) / norms


# --- training


class Batches:
    """Batches of questions, each with a positive and a negative, the same in every epoch."""

    def __init__(self, count, questions, length, base):
        """Take as much text for each document as fills one window of so many tokens of the base."""
        from mvindex.encoder.checkpoint import load_tokenizer, read_checkpoint

        texts = [each.text for each in passages(4 * questions)]
        long = [" ".join(texts[n:] + texts[:n])[: 8 * length] for n in range(len(texts))]
        found = load_tokenizer(read_checkpoint(base)).encode_batch(long)
        # Without what begins and ends a window.
        self._texts = [text[: each.offsets[length - 3][1]] for text, each in zip(long, found, strict=True)]
        self._count, self._questions = count, questions

    def num_steps(self, epoch):
        return self._count

    def batches(self, epoch, first):
        return (self._batch(step) for step in range(first, self._count))

    def _batch(self, step):
        from mvindex_train.batches import TrainBatch

        places = np.random.default_rng([5, step]).permutation(len(self._texts))[: 2 * self._questions]
        documents = [mvindex.Document(str(n), self._texts[n]) for n in places]
        return TrainBatch(
            questions=[document.text[:80] for document in documents[: self._questions]],
            documents=documents,
            positives=np.arange(self._questions),
            excluded=np.zeros((self._questions, len(documents)), dtype=bool),
            answer_spans=[None] * self._questions,
            teacher=None,
        )


def trained(options, device, source, overrides, folder):
    """Return the log of a run over the source's batches on a device."""
    from mvindex_train.loop import Run, Stage, run_stages
    from mvindex_train.model import build_encoder
    from mvindex_train.presets import preset
    from mvindex_train.processes import Processes
    from mvindex_train.resume import History, Position, RunFolder
    from mvindex_train.seeding import preserve_random_state

    config = preset("snippets").with_overrides(["optimiser.epochs=1", *overrides])
    folder = RunFolder(folder, {})
    history = History(folder.history, 0)
    with preserve_random_state():
        encoder = build_encoder(config.encoder, 0).to(device)
        stage = Stage(name="train", source=source, loss=config.loss, optimiser=config.optimiser, epochs=1)
        run_stages(Run(encoder, Processes(device), folder, history), [stage], Position())
    history.close()
    return [json.loads(line) for line in folder.history.read_text().splitlines()]


def training(options):
    import torch

    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        base = "minilm" if not options.tiny else str(checkpoint(options, folder / "base").folder)
        length = 256 if not options.tiny else 40
        common = [f"encoder.base={base}", f"encoder.document_length={length}"]
        small, same = Batches(5, 8, length, base), [*common, "encoder.dropout=0"]
        there = trained(options, options.device, small, same, folder / "there")
        here = trained(options, "cpu", small, [*same, "optimiser.precision=fp32"], folder / "here")
        apart = max(abs(one["loss"] / other["loss"] - 1) for one, other in zip(there, here, strict=True))
        what = "losses of 5 steps beside the CPU's fp32"
        yield figure(what, apart, "apart", goal=".03 or less", is_met=apart <= 0.03)
        source = Batches(options.steps, options.questions, length, base)
        with watched_gpu(options) as used:
            log = trained(options, options.device, source, common, folder / "run")
            end = time.perf_counter()
        # The first steps load what the others use.
        seconds = statistics.mean(step["seconds"] for step in log[len(log) // 3 :])
        floor = clocked(bare_step(base, options, length), options, 3)
        is_met = None if options.tiny else seconds <= 0.1
        what = f"a step of {options.questions} questions and {2 * options.questions} documents of {length} tokens"
        yield figure(what, 1e3 * seconds, "ms", floor=1e3 * floor, goal="100 ms or less", is_met=is_met)
        yield figure("loss, first and last of the steps", f"{log[0]['loss']:.3f}, {log[-1]['loss']:.3f}")
        yield gpu_use("use of the GPU", used, (end - seconds * len(log) * 2 / 3, end), 60)
        if torch.cuda.device_count() < 2:
            raise Lacks("training, encoding and shards on two GPUs: there are not two")


def bare_step(base, options, length):
    """Return the forward and backward pass of the model over as many tokens as a step has, in native bf16 if any."""
    import torch

    from mvindex.encoder.checkpoint import load_parts, load_tokenizer, read_checkpoint
    from mvindex.encoder.device import document_dtype

    found = read_checkpoint(base)
    model = load_parts(found, load_tokenizer(found)).documents.to(options.device).train()
    device = torch.device(options.device)
    dtype = document_dtype(device)
    texts = [(2 * options.questions, length), (options.questions, 24)]
    inputs = [torch.full(shape, 5, device=device) for shape in texts]

    def step():
        model.zero_grad(set_to_none=True)
        with torch.autocast(device.type, torch.bfloat16, enabled=dtype == torch.bfloat16):
            sum(model(input_ids=ids).last_hidden_state.float().sum() for ids in inputs).backward()

    return step


# --- all of it

SECTIONS = {
    "devices": devices,
    "lists": lists,
    "scan": scan,
    "faiss": faiss,
    "encoding": encoding,
    "training": training,
}


def rows_of(name, options):
    """Yield the figures of a section; what it lacks, and what it failed with, are lines as well."""
    try:
        yield from SECTIONS[name](options)
    except Lacks as err:
        yield {"what": "the rest", "not_run": str(err)}
    except MvindexError as err:
        yield {"what": "the rest", "failed": str(err)}


def rows_of_process(name, options, left):
    """Yield the figures of a section that is run by a process of its own, on a GPU within so many seconds."""
    limit = None if options.device == "cpu" else min(SECONDS[name], left)
    command = [sys.executable, __file__, *sys.argv[1:], "--section", name]
    with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as errors:
        try:
            code = subprocess.run(command, stdout=output, stderr=errors, timeout=limit, check=False).returncode
            ended = None if not code else f"ended by {signal.Signals(-code).name}" if code < 0 else f"exit {code}"
        except subprocess.TimeoutExpired:
            ended = f"took more than {limit:.0f} s"
        for stream in (output, errors):
            stream.seek(0)
        yield from map(json.loads, output)
        if ended is not None:
            last = errors.read().strip().splitlines()[-1:] or ["no message"]
            yield {"what": "the rest", "failed": f"{ended}: {last[0]:.300}"}


def as_line(row):
    if "not_run" in row or "failed" in row:
        kind = "NOT RUN" if "not_run" in row else "FAILED"
        return f"{row['section']:9} {row['what']:60} {kind}: {row.get('not_run') or row.get('failed')}"
    value = row["value"] if isinstance(row["value"], str) else f"{row['value']:.4g}"
    floor = "" if row["floor"] is None else f"floor {row['floor']:.4g}, {row['value'] / row['floor']:.2f} times"
    verdict = "" if row["is_met"] is None else "met" if row["is_met"] else "NOT MET"
    goal = "" if row["goal"] is None else f"goal {row['goal']}: {verdict or 'not judged'}"
    return f"{row['section']:9} {row['what']:60} {value} {row['unit']:12} {floor:32} {goal}".rstrip()


def parse():
    parser = harness.parser(
        __doc__,
        device="cuda",
        json=False,
        documents=250_000,
        faiss_documents=100_000,
        hnsw_documents=10_000,
        passages=65_536,
        forward=4096,
        lists=20_000,
        steps=60,
        questions=128,
        repeat=20,
    )
    parser.add_argument("--only", help="sections, comma-separated; by default all")
    parser.add_argument("--section", choices=list(SECTIONS), help=argparse.SUPPRESS)
    small = {
        "documents": 300,
        "faiss_documents": 300,
        "hnsw_documents": 300,
        "passages": 40,
        "forward": 16,
        "lists": 300,
        "steps": 4,
    }
    options = harness.parse(parser, **small, questions=4, repeat=1, device="cpu")
    options.batches = (1, 64, 1024) if not options.tiny else (1, 8)
    return options


def main():
    options, began = parse(), time.monotonic()
    if options.section:
        for row in rows_of(options.section, options):
            print(json.dumps(row, default=float), flush=True)
        return
    failed = False
    for name in options.only.split(",") if options.only else SECTIONS:
        left = sum(SECONDS.values()) - (time.monotonic() - began)
        rows = rows_of(name, options) if options.tiny else rows_of_process(name, options, left)
        for row in rows:
            line = {"section": name, **row}
            print(json.dumps(line, default=float) if options.json else as_line(line), flush=True)
            failed |= "failed" in row or row.get("goal") in RIGHT and not row["is_met"]
    sys.exit(int(failed))


if __name__ == "__main__":
    main()
