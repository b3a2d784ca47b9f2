"""Safetensors files, and adapters merged into weights: against a plain reading of the format with struct and NumPy.

An input's first byte: 0, the file is read as it is; 1, it is the adapter of a small layer, and the second byte chooses
its config; 2, the file is made from the rest: right headers, and such as are wrong in one place.
"""

import json
import math
import struct
from pathlib import Path

import numpy as np
import torch

from fuzz_parts.opened_files import only_below
from fuzz_parts.target import Choices, Limits, require
from mvindex.encoder.checkpoint.load import merge_adapter
from mvindex.encoder.checkpoint.tensors import read_tensors
from mvindex.errors import CheckpointError

_KINDS = {"F32": "<f4", "F64": "<f8", "F16": "<f2", "I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "i1", "U8": "u1",
          "BOOL": "?", "U16": "<u2", "U32": "<u4", "U64": "<u8"}  # fmt: skip
_PLAIN = {"peft_type": "LORA", "r": 2, "lora_alpha": 4}
_CHANGES = (
    {}, {"use_rslora": True}, {"r": 10**400}, {"lora_alpha": float("nan")}, {"r": 0}, {"lora_alpha": 10**400},
    {"bias": "all"}, {"use_dora": True}, {"r": "2"}, {"lora_alpha": float("inf")}, {"init_lora_weights": ["x"]},
    {"lora_alpha": True}, {"lora_alpha": -0.5},
)  # fmt: skip
_CONFIGS = (*(_PLAIN | change for change in _CHANGES), {}, [])
_ALL_KINDS = (*_KINDS, "BF16", "F8_E4M3", "F8_E5M2", "F8_E8M0", "F4", "F6_E2M3", "C64")
_SIZES = (1, 2, 3, 2, 1, 0, 2**62, 2**32, 2**63)
_LAYER = "base_model.model.layer"


def open_target(name: str, folder: Path):
    return CheckpointTensors(folder)


class CheckpointTensors(Limits):
    """A file of weights, whole or as an adapter's."""

    name = "checkpoint-tensors"
    refusals = (CheckpointError,)
    extra_mib = 64
    tokens = (b'"dtype":"F32"', b'"dtype":"F8_E4M3"', b'"shape":[2,3]', b'"shape":[4611686018427387904,4]',
              b'"data_offsets":[0,24]', b'"data_offsets":[8,0]', b'"data_offsets":[0,99999999]', b'"shape":[0]', b",",
              b'"__metadata__":{"a":"b"}', b"{", b"}", b'"a":{', b"\xff" * 8, b"BF16", b"BOOL", b"I64", b'"shape":[]',
              b"F4", b"C64", b"F16", b"[[", b'"dtype":"U64"', b"-1", b"\x40\0\0\0\0\0\0\0")  # fmt: skip

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._path = folder / "adapter_model.safetensors"
        for number, config in enumerate(_CONFIGS):
            (folder / f"{number}").mkdir()
            (folder / f"{number}" / "adapter_config.json").write_text(json.dumps(config), encoding="utf-8")
            (folder / f"{number}" / self._path.name).symlink_to(self._path)
        self._path.write_bytes(_file({"a": np.ones(2, "<f4")}))
        read_tensors(self._path)

    def seeds(self) -> list[bytes]:
        numbers = np.arange(6, dtype="<f4").reshape(2, 3)
        files = [{}, {"a": numbers}, {"a": numbers, "b": np.arange(4, dtype="<i8"), "c": np.ones((1, 0), "<f4")}]
        files.append({f"k{number}": np.full(1, 1, kind) for number, kind in enumerate(_KINDS.values())})
        halves = {f"{_LAYER}.lora_A.weight": numbers, f"{_LAYER}.lora_B.weight": numbers.T[:2].copy() + 1}
        whole = {f"{_LAYER}.lora_A.weight": numbers, f"{_LAYER}.lora_B.weight": np.ones((4, 2), "<f2")}
        made = [bytes([2, *(number * step % 251 for number in range(60))]) for step in (1, 5, 7, 13)]
        return (
            made
            + [b"\0" + _file(each) for each in files]
            + [bytes([1, number]) + _file(each) for each in (whole, halves, {}) for number in range(len(_CONFIGS))]
        )

    def check(self, data: bytes) -> None:
        way = (data[0] if data else 0) % 3
        if way == 1:
            number = (data[1] if len(data) > 1 else 0) % len(_CONFIGS)
            self._path.write_bytes(data[2:])
            self._check_merged(data[2:], _CONFIGS[number], self._folder / f"{number}")
        else:
            self._check_read(data[1:] if way == 0 else _made(Choices(data[1:])))

    def _check_read(self, content: bytes) -> None:
        self._path.write_bytes(content)
        with only_below(self._folder):
            found = read_tensors(self._path)
        wanted = _plain(content)
        require(set(found) == set(wanted), "tensors", sorted(found), "wanted", sorted(wanted))
        for name, array in wanted.items():
            if array is not None:
                same = np.array_equal(found[name].numpy(), array, equal_nan=array.dtype.kind == "f")
                require(same and found[name].numpy().shape == array.shape, name, "is", found[name], "wanted", array)

    def _check_merged(self, content: bytes, config, folder: Path) -> None:
        layer = torch.nn.ModuleDict({"layer": torch.nn.Linear(3, 4, bias=False)})
        before = layer["layer"].weight.detach().clone().numpy()
        with only_below(self._folder), torch.no_grad():
            merge_adapter(layer, folder)
        tensors = _plain(content)
        scale = config["lora_alpha"] / (config["r"] ** 0.5 if config.get("use_rslora") else config["r"])
        wanted = before.astype(np.float64)
        if tensors:
            up, down = (tensors[f"{_LAYER}.lora_{side}.weight"].astype(np.float64) for side in "BA")
            wanted = wanted + scale * (up @ down)
        found = layer["layer"].weight.detach().numpy()
        bound = 1e-5 * np.nan_to_num(np.abs(wanted), nan=0, posinf=0, neginf=0).max() + 1e-5
        is_finite = np.isfinite(wanted).all() and np.abs(wanted).max() < 1e30
        require(not is_finite or np.abs(found - wanted).max() <= bound, "merged", found, "wanted", wanted)


def _file(tensors: dict[str, np.ndarray]) -> bytes:
    names = {kind: name for name, kind in _KINDS.items()}
    header, body = {}, b""
    for name, array in tensors.items():
        kind = names[next(each for each in _KINDS.values() if np.dtype(each) == array.dtype)]
        end = len(body) + array.nbytes
        header[name] = {"dtype": kind, "shape": list(array.shape), "data_offsets": [len(body), end]}
        body += array.tobytes()
    dumped = json.dumps(header).encode()
    return struct.pack("<Q", len(dumped)) + dumped + body


def _made(choices: Choices) -> bytes:
    """Return a file of up to four tensors of any kind and shape, mostly of their declared size."""
    header, end = {}, 0
    for number in range(choices.below(4)):
        kind, shape = choices.one_of(_ALL_KINDS), [choices.one_of(_SIZES) for _ in range(choices.below(4))]
        bits = {"BOOL": 8, "C64": 64, "F8_E8M0": 8, "F4": 4}.get(kind) or int(kind.strip("FIUB_EMZ").split("_")[0])
        begin, end = end, end + min(math.prod(shape) * bits // 8, 1 << 12)
        offsets = [begin, end] if choices.below(12) else [choices.one_of(_SIZES), choices.one_of((-1, 2**63, 0, end))]
        header[f"t{number}"] = {"dtype": kind, "shape": shape, "data_offsets": offsets}
    dumped = json.dumps(header).encode()
    size = len(dumped) if choices.below(12) else choices.one_of((0, 1, 2**31, 2**63, 100_000_001, len(dumped) + end))
    return struct.pack("<Q", size) + dumped + bytes(choices.below(256) for _ in range(end))


def _plain(content: bytes) -> dict[str, np.ndarray | None]:
    """Return the tensors of a file that the library took; None for a number type or a shape that NumPy lacks."""
    (size,) = struct.unpack("<Q", content[:8])
    header, body = json.loads(content[8 : 8 + size]), content[8 + size :]
    header.pop("__metadata__", None)
    return {name: _array(entry, body) for name, entry in header.items()}


def _array(entry: dict, body: bytes) -> np.ndarray | None:
    if entry["dtype"] not in _KINDS:
        return None
    begin, end = entry["data_offsets"]
    kind = np.dtype(_KINDS[entry["dtype"]])
    require(0 <= begin <= end <= len(body), "offsets outside the file were taken:", entry)
    require(end - begin == int(np.prod(entry["shape"], dtype=object)) * kind.itemsize, "a wrong size was taken:", entry)
    try:
        return np.frombuffer(body[begin:end], kind).reshape(entry["shape"])
    except ValueError:  # of no elements, and beyond NumPy's sizes
        return None
