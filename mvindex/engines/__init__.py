"""Search engines: the exact scans, and whatever an entry point of the group mvindex.engines brings."""

from __future__ import annotations

import importlib.util
from importlib.metadata import entry_points
from typing import TypeGuard

from mvindex.engines.protocol import EngineFactory, Kind, ScanEngine, cache_bytes
from mvindex.errors import ConfigError, EngineMissing
from mvindex.kernels import has_int8_products
from mvindex.plugins import require

GROUP = "mvindex.engines"


def parse_kind(name: str) -> Kind:
    """The kind of that name; ConfigError lists the kinds there are."""
    try:
        return Kind(name)
    except ValueError as err:
        raise ConfigError(f"kind {name!r} is unknown; wanted one of {', '.join(kind.value for kind in Kind)}") from err


def open_scan(device: str | None = None, share: int = 1) -> ScanEngine:
    """The fastest exact scan that is installed and that this machine can run. All of them give the same results.

    device: "cuda" or "cuda:0" scans there, with torch; the CPU is used otherwise. share: of so many scans it is one;
    its copies of views take as small a part of the memory.
    """
    if _is_cuda(device):
        require("torch", "encode", "a scan on a GPU")
        from mvindex.engines.scan_torch import ScanConfig, TorchScan

        return TorchScan(ScanConfig(device=device, share=share))
    if not has_int8_products():
        return _open_plain_scan(share)
    from mvindex.engines.scan_vnni import NativeConfig, NativeScan

    return NativeScan(lambda: _open_plain_scan(share), NativeConfig(cache_bytes=cache_bytes() // share))


def scan_name(device: str | None = None) -> str:
    """What open_scan(device) gives, for people: the type it multiplies in, by what, and where if not on the CPU."""
    if _is_cuda(device):
        require("torch", "encode", "a scan on a GPU")
        return f"{_torch_name(device)} on {device}"
    if has_int8_products():
        return "native int8 (AVX-512 VNNI)"
    if importlib.util.find_spec("torch") is None:
        return "numpy fp32"
    return _torch_name("cpu")


def _torch_name(device: str) -> str:
    from mvindex.engines.torch_blocks import usual_precision

    return f"torch {usual_precision(device).value}"


def _is_cuda(device: str | None) -> TypeGuard[str]:
    return device is not None and device.startswith("cuda")


def _open_plain_scan(share: int) -> ScanEngine:
    """Torch's scan, else NumPy's."""
    if importlib.util.find_spec("torch") is None:
        from mvindex.engines.scan_numpy import NumpyScan

        return NumpyScan()
    from mvindex.engines.scan_torch import ScanConfig, TorchScan

    return TorchScan(ScanConfig(share=share))


def find_factory(kind: Kind) -> EngineFactory:
    """The installed engine that builds and opens indexes of this kind; EngineMissing when there is none."""
    for entry in entry_points(group=GROUP):
        factory: EngineFactory = entry.load()()
        if kind in factory.kinds:
            return factory
    raise EngineMissing(f"no installed engine offers kind {kind.value!r}; reinstall mvindex: its entry points are gone")
