"""A run of `mvindex mine`: open the inputs of the job, mine batch by batch, write resumable output.

Fingerprints of the inputs decide whether an interrupted run can be resumed.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import xxhash

from mvindex.corpus import read_documents
from mvindex.durable import file_checksum
from mvindex.encoder import Encoder, load_encoder
from mvindex.encoder.checkpoint import read_checkpoint
from mvindex.encoder.cross_encoder import CrossEncoder, cross_encoder_fingerprint
from mvindex.errors import ConfigError
from mvindex.index import Index
from mvindex.index.factory import create, open_index, open_local
from mvindex.records import CountCallback, Document, batched
from mvindex_train.data.options import ReadOptions
from mvindex_train.data.read import read_training
from mvindex_train.data.records import Example, dump_example
from mvindex_train.negatives.bm25 import Bm25Source, build_bm25
from mvindex_train.negatives.candidates import CandidateSource, EarlierFile
from mvindex_train.negatives.config import MiningJob, SourceKind
from mvindex_train.negatives.miner import DenseSource, Miner
from mvindex_train.negatives.output import ResumableOutput


def job_settings(job: MiningJob) -> dict[str, Any]:
    """Return the settings of a mining job by name, with checksums of its files in place of their names.

    Raises ConfigError for a file that is missing, unreadable or stdin, which a resumed run could not read again.
    """
    options = dataclasses.asdict(job.config)
    del options["work_folder"]
    return {
        "questions": [path_checksum(path) for path in job.questions],
        "format": job.format.value if job.format else None,
        "passages": path_checksum(job.passages) if job.passages else None,
        "index": _index_checksum(job.index) if job.index else None,
        "source": job.source.value,
        "encoder": read_checkpoint(job.encoder).fingerprint if job.encoder else None,
        "cross_encoder": cross_encoder_fingerprint(job.cross_encoder) if job.cross_encoder else None,
        "merge": path_checksum(job.merge) if job.merge else None,
        **options,
    }


def path_checksum(name: str) -> str:
    """Return the checksum of a file, or of all files of a folder with their names; raise ConfigError for stdin."""
    path = Path(name)
    if name == "-":
        raise ConfigError(
            "expected input files, got - (stdin), which a resumed run cannot read again. Save it to a file"
        )
    try:
        if not path.is_dir():
            return file_checksum(path)
        files = sorted(entry for entry in path.rglob("*") if entry.is_file())
        parts = [f"{entry.relative_to(path)} {file_checksum(entry)}" for entry in files]
    except OSError as err:
        raise ConfigError(f"{name}: cannot be read: {err.strerror or err}") from err
    return xxhash.xxh3_128_hexdigest("\n".join(parts).encode())


def _index_checksum(path: Path) -> dict[str, Any]:
    """Return a checksum of the documents of an index, and all that their ranking depends on."""
    digest = xxhash.xxh3_128()
    with open_index(path) as index:
        info = index.info()
        for document in index:
            for part in (document.id, document.title, document.text):
                data = part.encode()
                digest.update(len(data).to_bytes(8, "little"))
                digest.update(data)
    encoder = info.encoder["fingerprint"] if info.encoder else None
    ranking = {"encoder": encoder, "dtype": info.dtype, "kind": info.kind, "views": info.views}
    return {"documents": digest.hexdigest(), **ranking}


# The counts of a report in order; the miner fills them.
_REPORTED = (
    "questions", "without_answers", "negatives", "merged", "removed_positive", "removed_answer",
    "removed_cross_encoder", "too_few",
)  # fmt: skip


@dataclass(slots=True)
class MiningRun:
    """Runs a job. note: called with remarks; on_progress: with the number of questions just finished."""

    job: MiningJob
    note: Callable[[str], None]
    on_progress: CountCallback
    _stack: ExitStack = field(default_factory=ExitStack, init=False)

    def run(self) -> dict[str, Any]:
        """Run the job; return the path of the output and the counts, those of an interrupted run included."""
        with ResumableOutput(self.job.out, job_settings(self.job), self.job.force) as output:
            # The sources are closed before finish() removes the folder that they may lie in.
            with self._stack:
                self._mine(output)
            output.finish()
        return {"out": str(self.job.out)} | {name: output.counts[name] for name in _REPORTED}

    def _mine(self, output: ResumableOutput) -> None:
        if output.finished:
            self.note(f"resuming after {output.finished:,} questions")
            self.on_progress(output.finished)
        miner = self._miner(output)
        examples = islice(self._examples(), output.finished, None)
        for batch in batched(examples, self.job.config.batch_questions):
            output.add(map(dump_example, miner.mine_batch(batch)), len(batch), miner.counts)
            self.on_progress(len(batch))

    def _miner(self, output: ResumableOutput) -> Miner:
        job = self.job
        cross_encoder = None if job.cross_encoder is None else CrossEncoder(job.cross_encoder, job.device)
        earlier = None if job.merge is None else self._stack.enter_context(closing(EarlierFile(job.merge)))
        return Miner(self._sources(output.work_folder), job.config, cross_encoder, earlier, output.counts)

    def _examples(self) -> Iterator[Example]:
        return read_training(self.job.questions, ReadOptions(format=self.job.format, passages=self.job.passages))

    def _documents(self) -> Iterator[Document]:
        """Yield the documents to mine."""
        if self.job.index is None:
            yield from read_documents(self.job.passages or "")
            return
        with open_local(self.job.index) as index:
            yield from index

    def _sources(self, work_folder: Path) -> list[CandidateSource]:
        sources: list[CandidateSource] = []
        if self.job.source is not SourceKind.DENSE:
            sources.append(self._bm25(work_folder / "bm25"))
        if self.job.source is not SourceKind.BM25:
            index = self._stack.enter_context(self._dense_index(work_folder / "dense.mvx"))
            sources.append(DenseSource(index, self.job.config.exact))
        return sources

    def _bm25(self, folder: Path) -> Bm25Source:
        if not folder.exists():
            self.note("indexing the documents for BM25")
            build_bm25(self._documents(), folder)
        return self._stack.enter_context(closing(Bm25Source(folder)))

    def _dense_index(self, path: Path) -> Index:
        """Open the job's index if it has the job's encoder, else build one of the same documents with it."""
        if self.job.index is not None and _has_encoder(self.job.index, self.job.encoder):
            return open_local(self.job.index, device=self.job.device)
        encoder = load_encoder(self.job.encoder or "", device=self.job.device)
        self.note(f"encoding the documents with {self.job.encoder}")
        return self._encode(path, encoder)

    def _encode(self, path: Path, encoder: Encoder) -> Index:
        path.parent.mkdir(parents=True, exist_ok=True)
        index = (
            open_local(path, encoder=encoder, device=self.job.device)
            if path.exists()
            else create(path, encoder=encoder)
        )
        # Documents that an interrupted run has added are unchanged, and not encoded again.
        index.add(self._documents())
        return index


def _has_encoder(index: Path, encoder: str | None) -> bool:
    if encoder is None:
        return True
    with open_local(index) as opened:
        spec = opened.info().encoder
    return spec is not None and spec["fingerprint"] == read_checkpoint(encoder).fingerprint
