"""Make and measure an index of 21,015,324 documents of 8 views of 96 dimensions, or of fewer: one command, resumable.

    python bench/full_count.py --folder DIR --data DATA [--documents 1250000] [--words 100] [--lexical english]
        [--keep]

168,122,592 views, from a seeded generator (scale_parts/passages.py). Every step runs in a process of its own: `ingest`,
`build`, `tune` (for a recall@10 of .95), `open`, `search`, `finer` (tuned for .98), `stages` (of a query, in one
thread), `texts` (lexical and hybrid search), `tantivy` (the same questions there, where it is installed), `filters`,
`callers` (DRPQ, and eight callers at once), `small` (a new id, a look-up, a thousand documents and then a search),
`change` (adding, replacing and deleting --changed documents), `copies` (a snapshot, then compact, while another process
searches; not where the disk lacks the room), `verify`. A long one is killed by SIGKILL when half of it is done, once,
and runs again from what is there.
Rows go to DIR/rows.jsonl, as they come; a step that has its last row there is done, so that the same command continues
where it was stopped. Rates are of wall-clock and CPU seconds inside mvindex, without the generator; memory is the
private memory of the step's process. `rchar` is what opening reads by system calls. Recall is against the certified
scan for 256 questions. Prints the figures that `plan` gives beside those measured. Removes the index afterwards, unless
--keep.
"""

import argparse
import importlib.util
import json
import os
import random
import resource
import shutil
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path

import harness
import latency
import numpy as np

import mvindex
from mvindex.engines import scan_name
from mvindex.engines.build import save_search_params
from mvindex.index import embedded_store_of
from mvindex.kernels.threads import set_threads
from mvindex.measure.planning.layouts import Machine, PlanRequest, make_plan
from mvindex.measure.planning.sizes import Collection
from mvindex.search import hits
from mvindex.search.ann import RankedSearch
from mvindex.search.exact import Best
from mvindex.store.reader import SnapshotReader
from mvindex.store.views import ViewType
from mvindex_connectors.engines.faiss_fast_scan import FastScan

sys.path.insert(0, str(Path(__file__).parents[1]))

from scale_parts.corpora import BLOCK_DOCUMENTS  # noqa: E402 - as the line below
from scale_parts.passages import WORDS, Passages  # noqa: E402 - as the line below

from tests.helpers.memory_limits import uncached  # noqa: E402 - after the path that has it

QUESTIONS, FEW = 256, 64
# Of the articles, those that a filter of the measured searches leaves.
FILTERED = {
    "filter of a tenth": 10,
    "filter of a hundredth": 100,
    "filter of a thousandth": 1000,
    "filter of a ten-thousandth": 10_000,
}
CALLERS = 8


def io_figure(name):
    """Return a count of this process: rchar, bytes read by system calls; read_bytes, those that came from the disk."""
    with open("/proc/self/io", encoding="ascii") as file:
        return int(dict(line.split(":") for line in file)[name])


class Clock:
    """Wall-clock and CPU seconds of calls."""

    def __init__(self):
        self.wall_s = self.cpu_s = 0.0

    def __call__(self, call, *args, **options):
        wall, cpu = time.perf_counter(), time.process_time()
        try:
            return call(*args, **options)
        finally:
            self.wall_s += time.perf_counter() - wall
            self.cpu_s += time.process_time() - cpu

    def row(self, count=None):
        """Return the seconds, and those of each of so many documents, views or queries."""
        row = {"wall_s": round(self.wall_s, 3), "cpu_s": round(self.cpu_s, 3)}
        if count:
            row |= {"per_s": round(count / self.wall_s), "cpu_us_each": round(1e6 * self.cpu_s / count, 2)}
        return row


class Step:
    """A step in its own process: its options, where it writes rows, and how far it is."""

    def __init__(self, options):
        self.options, self.name = options, options.step
        self.path = options.folder / "index.mvx"
        self.passages = Passages(options.documents, options, options.words)

    def row(self, **figures):
        """Append a row to the file, durably."""
        line = json.dumps({"step": self.name, "documents": self.options.documents, **figures})
        with open(self.options.folder / "rows.jsonl", "a", encoding="utf-8") as file:
            file.write(line + "\n")
            file.flush()
            os.fsync(file.fileno())

    def done_so_far(self, share):
        """Tell the process that started this one which share is done."""
        print(json.dumps({"share": share}), flush=True)

    def run(self):
        with harness.Peak() as peak:
            figures = getattr(self, self.name)()
        self.row(is_last=True, peak_bytes=peak.bytes, disk_bytes=disk_bytes(self.path), **figures)

    def ingest(self):
        """Add what is not there yet; a row for each sixteenth."""
        if not self.path.exists():
            mvindex.create(self.path, dim=self.options.dim, lexical=self.options.lexical).close()
        passages, clock, part = self.passages, Clock(), Clock()
        with mvindex.open(self.path) as index:
            begun = len(index)
            since = begun
            for block in range(begun // BLOCK_DOCUMENTS, passages.blocks):
                documents, views = passages.block(block), passages.views(block)
                clock(part, index.add_views, documents, views)
                self.done_so_far((block + 1) / passages.blocks)
                if (block + 1) * 16 // passages.blocks > block * 16 // passages.blocks:
                    here = len(index)
                    sizes = {"private_bytes": harness.memory_bytes(), "disk_bytes": disk_bytes(self.path)}
                    self.row(there=here, **part.row(here - since), **sizes)
                    since, part = here, Clock()
            return {"resumed_at": begun, "there": len(index), **clock.row(len(index) - begun)}

    def build(self):
        stages = {}

        def on_progress(stage, done, total):
            stages.setdefault(stage.split(" ")[0], round(time.process_time(), 1))
            if stage == "adding views":
                self.done_so_far(done / total)

        with mvindex.open(self.path) as index:
            clock = Clock()
            report = clock(index.admin.build, "ivf-pq", on_progress=on_progress)
            return {
                **clock.row(report.views),
                "began_at_cpu_s": stages,
                "nlist": embedded_store_of(index).snapshot.settings["engine"]["settings"]["parameters"]["nlist"],
                "engine_bytes": report.engine_bytes,
            }

    def tune(self):
        """Choose search parameters for a recall of .95."""
        with mvindex.open(self.path) as index:
            return self._tuned(index, 0.95)

    def _tuned(self, index, target_recall):
        """Choose search parameters by other questions than those of the later steps; return what was measured."""
        vectors, _ = self.passages.questions(QUESTIONS, turn=1)
        clock = Clock()
        report = clock(index.admin.tune, vectors, top_k=10, target_recall=target_recall, time_limit_s=900)
        return {
            **clock.row(),
            "target_recall": target_recall,
            "exact_ms_batch": report.exact_ms_batch,
            "questions": report.queries,
            "load": os.getloadavg()[0],
            "unmeasured": report.unmeasured,
            "points": [{**asdict(point), "is_chosen": point == report.chosen} for point in report.points],
        }

    def finer(self):
        """Recall and times with search parameters for a recall of .98; later steps have those from before again."""
        vectors, _ = self.passages.questions(QUESTIONS)
        with mvindex.open(self.path) as index:
            store = embedded_store_of(index)
            before = store.settings["engine"]["settings"].get("search")
            tuned = self._tuned(index, 0.98)
            truth = index.search(vectors, top_k=100, exact=True)
            for depth in (10, 100):
                self._times(index, f"dense {depth}, tuned for .98", vectors, None, truth, top_k=depth)
            tuned["search"] = index.info().search
            if before is not None:
                save_search_params(store, before)
            return tuned

    def open(self):
        uncached(self.path)
        figures = {}
        vectors, _ = self.passages.questions(2)
        for name in ("cold", "warm"):
            clock, read = Clock(), io_figure("rchar")
            index = clock(mvindex.open, self.path)
            figures |= {f"{name}_open_s": round(clock.wall_s, 3), f"{name}_open_rchar": io_figure("rchar") - read}
            clock = Clock()
            clock(index.search, vectors[0])
            figures[f"{name}_first_query_s"] = round(clock.wall_s, 3)
            figures[f"{name}_private_bytes"] = harness.memory_bytes()
            index.close()
        return figures

    def search(self):
        """Recall, and times of single queries and of a batch; at first with no view in memory."""
        vectors, _ = self.passages.questions(QUESTIONS)
        with mvindex.open(self.path) as index:
            warm, clock = Clock(), Clock()
            # Else the first queries are answered while loops are loaded, or compiled, beside them.
            while not warm(index.warm_up):
                time.sleep(1)
        uncached(self.path)
        with mvindex.open(self.path) as index:
            warm(index.warm_up)
            self._cold(index, vectors)
            truth = clock(index.search, vectors, top_k=100, exact=True)
            self.row(of="certified batch", questions=len(vectors), **clock.row(len(vectors)))
            is_tuned = embedded_store_of(index).snapshot.settings["engine"]["settings"].get("search") is not None
            for depth in (10, 100):
                name = f"dense {depth}, tuned" if is_tuned else f"dense {depth}"
                self._times(index, name, vectors, None, truth, top_k=depth)
            return {
                "warm_up": warm.row(),
                "search": index.info().search,
                "mapped_bytes": index.info().mapped_bytes,
                "copy_bytes": index.info().copy_bytes,
            }

    def texts(self):
        """Times of lexical and hybrid search, and of dense search as deep as both sides of a hybrid one."""
        if self.options.lexical == "none":
            return {}
        vectors, texts = self.passages.questions(FEW)
        with mvindex.open(self.path) as index:
            while not index.warm_up():
                time.sleep(1)
            _, longer = self.passages.questions(FEW, num_words=4)
            for depth in (10, 100):
                self._times(index, f"dense {depth}, {FEW} questions", vectors, None, None, top_k=depth)
                self._times(index, f"lexical {depth}", vectors, texts, None, mode="lexical", top_k=depth)
                self._times(index, f"lexical {depth}, four terms", vectors, longer, None, mode="lexical", top_k=depth)
            self._times(index, "hybrid", vectors, texts, None, mode="hybrid")
            return {"questions": FEW, "search": index.info().search}

    def tantivy(self):
        """Times of the same lexical questions in tantivy's index of the same texts, without documents' texts."""
        if importlib.util.find_spec("tantivy") is None:
            return {"is_installed": False}
        import tantivy

        schema = tantivy.SchemaBuilder()
        schema.add_text_field("id", stored=True, tokenizer_name="raw", index_option="basic")
        schema.add_text_field("body", tokenizer_name="en_stem", index_option="freq")
        folder, passages, clock = self.options.folder / "tantivy", self.passages, Clock()
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        index = tantivy.Index(schema.build(), str(folder))
        writer = index.writer(500_000_000, 1)

        def add(documents):
            for each in documents:
                writer.add_document(tantivy.Document(id=each.id, body=f"{each.title} {each.text}"))

        for block in range(passages.blocks):
            clock(add, passages.block(block))
        clock(writer.commit)
        clock(writer.wait_merging_threads)
        index.reload()
        searcher, (_, texts) = index.searcher(), self.passages.questions(FEW)

        def asked(one, depth):
            query, _ = index.parse_query_lenient(texts[one], ["body"])
            return [searcher.doc(place)["id"] for _, place in searcher.search(query, depth, count=False).hits]

        for depth in (10, 100):
            passes = {"first": [], "warm": []}
            for clocks in passes.values():
                for one in range(len(texts)):
                    clocks.append(Clock())
                    clocks[-1](asked, one, depth)
            self.row(of=f"tantivy {depth}", **times_of(passes), load=os.getloadavg()[0])
        size = disk_bytes(folder)
        shutil.rmtree(folder)
        return {"is_installed": True, "tantivy_bytes": size, **clock.row(self.options.documents)}

    def filters(self):
        """Times of filtered searches; the first question of a filter, which finds its documents, by itself."""
        vectors, _ = self.passages.questions(FEW)
        with mvindex.open(self.path) as index:
            while not index.warm_up():
                time.sleep(1)
            articles = self.options.documents // 45 + 1
            for name, share in FILTERED.items():
                chosen = {"filter": {"article": {"lt": max(1, articles // share)}}}
                clock = Clock()
                clock(index.search, vectors[0], **chosen)
                self.row(of=f"{name}, first question", **clock.row())
                self._times(index, name, vectors, None, None, **chosen)
            return {"questions": FEW}

    def _cold(self, index, vectors):
        """Write a row of single queries whose candidates' views are read from the disk."""
        clocks = [Clock() for _ in vectors]
        begin = io_figure("read_bytes")
        faults = resource.getrusage(resource.RUSAGE_SELF).ru_majflt
        for one, clock in enumerate(clocks):
            clock(index.search, vectors[one])
        self.row(
            of="dense 10, cold",
            first_ms=percentiles([clock.wall_s for clock in clocks]),
            first_cpu_ms=percentiles([clock.cpu_s for clock in clocks]),
            disk_bytes_each=round((io_figure("read_bytes") - begin) / len(vectors)),
            major_faults_each=(resource.getrusage(resource.RUSAGE_SELF).ru_majflt - faults) / len(vectors),
        )

    def _times(self, index, name, vectors, texts, truth, **chosen):
        """Write a row of a sort of search: each question by itself, twice, and all in a batch."""

        def asked(one):
            given = {} if texts is None else {"text": texts[one]}
            return index.search(vectors[one], **given, **chosen)

        passes, recall = {"first": [], "warm": []}, []
        for clocks in passes.values():
            for one in range(len(vectors)):
                clocks.append(Clock())
                result = clocks[-1](asked, one)
                if truth is not None:
                    depth = chosen["top_k"]
                    best = {hit.id for hit in truth[one].hits[:depth]}
                    recall.append(len(best & {hit.id for hit in result.hits}) / depth)
        clock = Clock()
        clock(index.search, vectors, **({} if texts is None else {"text": texts}), **chosen)
        found = {} if truth is None else {"recall": round(float(np.mean(recall)), 4)}
        self.row(of=name, **times_of(passes), **found, batch=clock.row(len(vectors)), load=os.getloadavg()[0])

    def callers(self):
        """Times of DRPQ beside max, and of single queries from several threads at once."""
        vectors, _ = self.passages.questions(QUESTIONS)
        with mvindex.open(self.path) as index:
            while not index.warm_up():
                time.sleep(1)
            for scoring in ("max", "drpq"):
                self._times(index, f"dense 10, {scoring}", vectors, None, None, top_k=10, scoring=scoring)
            clocks = [Clock() for _ in vectors]
            whole = Clock()
            with ThreadPoolExecutor(CALLERS) as pool:
                whole(list, pool.map(lambda clock, vector: clock(index.search, vector), clocks, vectors))
            times = percentiles([clock.wall_s for clock in clocks])
            self.row(of=f"dense 10, {CALLERS} callers", warm_ms=times, **whole.row(len(vectors)))
            return {"questions": QUESTIONS}

    def small(self):
        """Return the times of a process that has just opened the index: of one document, of a thousand, of a search."""
        beyond = Passages(self.passages.documents + 2 * BLOCK_DOCUMENTS, self.options, self.options.words)
        last = beyond.blocks - 2
        documents, views = beyond.block(last), beyond.views(last)
        vectors, _ = self.passages.questions(FEW)
        figures = {}
        with mvindex.open(self.path) as index:

            def timed(name, call, *args):
                clock = Clock()
                clock(call, *args)
                figures[name] = clock.row()

            timed("first_look_up", index.get, ["1"])
            clocks = [Clock() for _ in range(QUESTIONS)]
            for number, clock in enumerate(clocks):
                clock(index.get, [str(number * (self.passages.documents // QUESTIONS) + 2)])
            figures["look_up_cpu_ms"] = percentiles([clock.cpu_s for clock in clocks])
            timed("no_such_id", index.get, ["none"])
            timed("first_new_id", index.add_views, documents[:1], views[:1])
            timed("second_new_id", index.add_views, documents[1:2], views[1:2])
            timed("search", index.search, vectors[0])
            count = min(1000, len(documents) - 2)
            timed("thousand_added", index.add_views, documents[2 : count + 2], views[2 : count + 2])
            timed("search_then", index.search, vectors[1])
            timed("search_later", index.search, vectors[2])
            timed("deleted", lambda: index.delete(ids=[each.id for each in documents[: count + 2]]))
            timed("search_after_the_delete", index.search, vectors[3])
        return {"count": count, **figures}

    def change(self):
        """Add, replace and delete; how long a reader that was open takes to see each."""
        changed, passages = self.options.changed, self.passages
        beyond = Passages(passages.documents + changed, self.options, self.options.words)
        first = passages.documents // BLOCK_DOCUMENTS
        figures = {}
        with mvindex.open(self.path) as index, mvindex.open(self.path) as reader:

            def added(block):
                fresh = [each for each in beyond.block(block) if int(each.id) > passages.documents]
                return fresh, beyond.views(block)[-len(fresh) :]

            def replaced(block):
                return passages.block(block, version=1), passages.views(block)

            for number, (name, made, blocks) in enumerate(
                [
                    ("added", added, range(first, beyond.blocks)),
                    ("replaced", replaced, range(max(1, changed // BLOCK_DOCUMENTS))),
                ]
            ):
                clock, count = Clock(), 0
                for place, block in enumerate(blocks):
                    documents, views = made(block)
                    clock(index.add_views, documents, views)
                    count += len(documents)
                    self.done_so_far((number + place / len(blocks)) / 3)
                figures[name] = {"count": count, **clock.row(count), **self._refreshed(reader)}
            clock, begin = Clock(), max(1, changed // BLOCK_DOCUMENTS) * BLOCK_DOCUMENTS
            last = min(begin + changed, passages.documents)
            ids = [str(number + 1) for number in range(begin if last > begin else 0, last)]
            clock(index.delete, ids=ids)
            figures["deleted"] = {"count": len(ids), **clock.row(len(ids)), **self._refreshed(reader)}
            figures["there"] = len(index)
        return figures

    def _refreshed(self, reader):
        """Return the seconds until a reader sees the change and of its first query, milliseconds of later ones."""
        vectors, _ = self.passages.questions(FEW)
        refresh, queries = Clock(), [Clock() for _ in vectors]
        refresh(reader.refresh)
        for one, query in zip(vectors, queries, strict=True):
            query(reader.search, one)
        return {
            "refresh_s": round(refresh.wall_s, 3),
            "first_query_s": round(queries[0].wall_s, 3),
            "later_query_ms": percentiles([query.wall_s for query in queries[1:]]),
        }

    def stages(self):
        """Return the median CPU milliseconds of each stage of a warm single query, in one thread, and of the whole."""
        set_threads(1)
        vectors, _ = self.passages.questions(QUESTIONS)
        names = ("nearest lists", "tables", "lists", "by document", "scores", "texts", "hits", "rest", "whole")
        with mvindex.open(self.path) as index:
            while not index.warm_up():
                time.sleep(1)
            for vector in vectors:
                index.search(vector)
            clock = latency.Clock(time.process_time, names)
            for owner, name, stage in (
                (FastScan, "_nearest", "nearest lists"),
                (FastScan, "_prepared", "tables"),
                (FastScan, "search", "lists"),
                (RankedSearch, "hits", "by document"),
                (Best, "add", "scores"),
                (SnapshotReader, "hit_documents", "texts"),
                (hits, "hits_of", "hits"),
                (index, "search", "rest"),
            ):
                clock.wrap(owner, name, stage)
            rows = []
            for vector in vectors:
                clock.reset()
                index.search(vector)
                rows.append([*clock.seconds.values()])
                rows[-1][-1] = sum(rows[-1])
        medians = np.median(rows, axis=0).tolist()
        return {name: round(1000 * seconds, 3) for name, seconds in zip(names, medians, strict=True)}

    def copies(self):
        """Write a row of what a snapshot takes and leaves to a reader of another process, and one of a compaction."""
        copy, size = self.options.folder / "copy.mvx", disk_bytes(self.path)
        if shutil.disk_usage(self.options.folder).free < 1.2 * size:
            return {"needs_bytes": round(1.2 * size)}
        with mvindex.open(self.path) as index:
            for name, call in (("snapshot", lambda: index.admin.snapshot(copy)), ("compact", index.admin.compact)):
                reader = subprocess.Popen(
                    command_of("reader", self.options), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
                )
                reader.stdout.readline()
                clock = Clock()
                with harness.Peak() as peak:
                    clock(call)
                seen, _ = reader.communicate()
                self.row(of=name, **clock.row(), peak_bytes=peak.bytes, reader=json.loads(seen))
                shutil.rmtree(copy, ignore_errors=True)
            return {"there": len(index)}

    def reader(self):
        """Search, refreshing now and then, until the standard input ends; return how it went."""
        vectors, _ = self.passages.questions(FEW)
        ended, clocks, short = threading.Event(), [], 0
        threading.Thread(target=lambda: (sys.stdin.read(), ended.set())).start()
        with mvindex.open(self.path) as index:
            index.search(vectors[0])
            print("it reads", flush=True)
            while len(clocks) < FEW or not ended.is_set():
                clock = Clock()
                found = clock(index.search, vectors[len(clocks) % FEW], top_k=10)
                clocks.append(clock)
                short += len(found.hits) < 10
                if len(clocks) % FEW == 0:
                    index.refresh()
        times = percentiles([clock.wall_s for clock in clocks])
        return {"searches": len(clocks), "short": short, "ms": times}

    def verify(self):
        size = disk_bytes(self.path)

        def on_progress(read):
            self.done_so_far(read / size)

        with mvindex.open(self.path) as index:
            clock = Clock()
            report = clock(index.admin.verify, on_progress=on_progress)
            return {"is_sound": report.is_sound, **clock.row(len(index))}


def percentiles(seconds):
    """Return the 50th, 95th and 99th percentile, in milliseconds."""
    return [round(1000 * float(value), 2) for value in np.percentile(seconds, [50, 95, 99])]


def times_of(passes):
    """Return the percentiles of the wall-clock and CPU times of each pass, lists of clocks by name."""
    row = {f"{name}_ms": percentiles([each.wall_s for each in clocks]) for name, clocks in passes.items()}
    return row | {f"{name}_cpu_ms": percentiles([each.cpu_s for each in clocks]) for name, clocks in passes.items()}


def disk_bytes(path):
    return sum(file.stat().st_size for file in path.rglob("*") if file.is_file())


STEPS = "ingest build tune open search finer stages texts tantivy filters callers small change copies verify".split()
KILLED = {"ingest", "build", "change", "verify"}


def finished(folder):
    """Return the rows of the steps that are done."""
    file = folder / "rows.jsonl"
    lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
    rows = [json.loads(line) for line in lines]
    return {row["step"]: row for row in rows if row.get("is_last")}


def command_of(name, options):
    """Return the command of a step in a process of its own."""
    return [sys.executable, *sys.argv, "--folder", str(options.folder), "--step", name]


def run_step(name, options):
    """Run a step in a process of its own, after one that is killed half way where the step is long."""
    command = command_of(name, options)
    mark = options.folder / f"killed-{name}"
    share = random.Random(f"{options.seed} {name}").uniform(0.3, 0.7)
    while True:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        for line in process.stdout:
            if name in KILLED and not mark.exists() and json.loads(line)["share"] >= share:
                process.kill()
                mark.write_text(line, encoding="utf-8")
        if process.wait() == 0:
            return
        if process.returncode != -9 or not mark.exists() or mark.read_text(encoding="utf-8") == "run again":
            sys.exit(f"{name}: ended with {process.returncode}; the same command continues")
        print(f"{name}: killed at {json.loads(mark.read_text())['share']:.2f}, runs again", file=sys.stderr, flush=True)
        mark.write_text("run again", encoding="utf-8")


def planned(options):
    """Return what `plan` says of the index: bytes of memory and disk."""
    # Of a document beside its views: id, title, metadata and words, of five letters and half as many bytes of postings.
    text_bytes = 50 + options.words * (5 if options.lexical == "none" else 7.5)
    held = Collection(
        documents=options.documents,
        views=options.views,
        dim=options.dim,
        view_type=ViewType.FP16,
        text_bytes=round(text_bytes),
    )
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    plan = make_plan(PlanRequest(collection=held, machine=Machine(ram_bytes=memory), scan=scan_name()))
    layout = next(each for each in plan.layouts if each.kind == "ivf-pq")
    return {
        "plan": True,
        "nlist": layout.nlist,
        "resident_bytes": layout.resident,
        "building_bytes": layout.building,
        "store_bytes": layout.store.disk,
        "engine_bytes": layout.engine.disk,
    }


def main():
    parser = harness.parser(__doc__, documents=21_015_324, views=8, dim=96, seed=0, data=harness.COLLECTIONS)
    parser.add_argument("--changed", type=int, help="documents that are added, replaced, deleted; a tenth, or 100,000")
    parser.add_argument("--lexical", default="none", help="terms: none, unicode or english")
    parser.add_argument("--words", type=int, default=WORDS, help="of the text of a document")
    parser.add_argument("--folder", type=Path, required=True, help="of the index and of rows.jsonl")
    parser.add_argument("--keep", action="store_true", help="leave the index there")
    parser.add_argument("--step", choices=[*STEPS, "reader"], help=argparse.SUPPRESS)
    options = harness.parse(
        parser, documents=16_500, views=2, dim=16, data=harness.DATA, folder=harness.OUT, lexical="english", changed=500
    )
    options.changed = options.changed or min(100_000, max(1, options.documents // 10))
    if options.step == "reader":
        print(json.dumps(Step(options).reader()))
        return
    if options.step is not None:
        Step(options).run()
        return
    options.folder.mkdir(parents=True, exist_ok=True)
    for name in STEPS:
        if name not in finished(options.folder):
            run_step(name, options)
        print(json.dumps(finished(options.folder)[name]), flush=True)
    print(json.dumps(planned(options)), flush=True)
    if not options.keep:
        shutil.rmtree(options.folder / "index.mvx", ignore_errors=True)


if __name__ == "__main__":
    main()
