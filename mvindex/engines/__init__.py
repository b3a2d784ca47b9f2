"""Search engines: the exact scans, and the kinds that entry points or register_engine() add."""

from __future__ import annotations

import importlib.util
from functools import cache
from importlib.metadata import EntryPoints, PackageNotFoundError, distribution, entry_points
from typing import TypeGuard

from mvindex.engines.protocol import EXACT, EngineKind, ScanEngine, cache_bytes
from mvindex.errors import ConfigError, EngineMissing
from mvindex.kernels import has_int8_products
from mvindex.plugins import require
from mvindex.store.snapshot import Snapshot

GROUP = "mvindex.engines"
_REGISTERED: dict[str, EngineKind] = {}


def register_engine(kind: EngineKind) -> None:
    """Add a kind of engine to this process, beside those of entry points; one of the same name is replaced.

    A package does better with an entry point of the group mvindex.engines, which every process finds.

    Raises:
        ConfigError: If the name is that of the certified scan.

    """
    if kind.name == EXACT:
        raise ConfigError(f"kind {EXACT!r} is the certified scan of every index; choose another name")
    _REGISTERED[kind.name] = kind


def kind_names() -> list[str]:
    """Return the names of all kinds, the certified scan first; no engine is imported."""
    return [EXACT, *sorted({entry.name for entry in entry_points(group=GROUP)} | _REGISTERED.keys())]


def parse_kind(name: str) -> str:
    """Return the name.

    Raises:
        ConfigError: If no kind has it; the message lists those that there are.

    """
    names = kind_names()
    if name not in names:
        raise ConfigError(f"kind: expected one of {', '.join(names)}, got {name!r:.60}")
    return name


def find_kind(name: str) -> EngineKind:
    """Return the kind of that name.

    Raises:
        EngineMissing: If nothing that is installed or registered offers it.

    """
    if name in _REGISTERED:
        return _REGISTERED[name]
    kind = _load_kind(name)
    if kind is None:
        raise EngineMissing(
            f"no installed engine offers kind {name!r}; install the package that does, or build another kind"
        )
    return kind


@cache
def _load_kind(name: str) -> EngineKind | None:
    """Return the kind of an entry point; cached, as a search of other packages than our own reads every one."""
    try:
        own = distribution("mvindex").entry_points.select(group=GROUP, name=name)
    except PackageNotFoundError:
        own = EntryPoints()
    for entry in own or entry_points(group=GROUP, name=name):
        kind: EngineKind = entry.load()
        return kind
    return None


def open_scan(device: str | None = None, share: int = 1) -> ScanEngine:
    """Return the fastest exact scan for this machine and installation, loaded once it pays. All give the same results.

    device: "cuda" or "cuda:0" scans there, with torch; the CPU is used otherwise. share: of so many scans it is one;
    its copies of views take as small a part of the memory.
    """
    if _is_cuda(device):
        require("torch", "train", "a scan on a GPU")
        from mvindex.engines.device_views import DeviceConfig
        from mvindex.engines.scan_torch import TorchScan

        return TorchScan(DeviceConfig(device=device, share=share))
    from mvindex.engines.scan_numpy import PlainFirstScan

    return PlainFirstScan(lambda snapshot: _open_fast_scan(share, snapshot))


def scan_name(device: str | None = None) -> str:
    """Return a description of open_scan(device): by what and where it multiplies, and in which type on a CPU."""
    if _is_cuda(device):
        require("torch", "train", "a scan on a GPU")
        return f"torch on {device}"
    if has_int8_products():
        return "native int8 (AVX-512 VNNI)"
    return "numpy fp32" if importlib.util.find_spec("torch") is None else "torch fp32"


def _is_cuda(device: str | None) -> TypeGuard[str]:
    return device is not None and device.startswith("cuda")


def _open_fast_scan(share: int, snapshot: Snapshot) -> ScanEngine:
    """Return the compiled scan with its loops loaded where the processor has its instructions, else torch's or NumPy's.

    snapshot: what is to be scanned; it has a document.
    """
    if not has_int8_products():
        return _open_plain_scan(share)
    from mvindex.engines.scan_vnni import VnniConfig, VnniScan

    scan = VnniScan(lambda: _open_plain_scan(share), VnniConfig(cache_bytes=cache_bytes() // share))
    scan.load_loops(snapshot)
    return scan


def _open_plain_scan(share: int) -> ScanEngine:
    """Return torch's scan, else NumPy's."""
    if importlib.util.find_spec("torch") is None:
        from mvindex.engines.scan_numpy import NumpyScan

        return NumpyScan()
    from mvindex.engines.device_views import DeviceConfig
    from mvindex.engines.scan_torch import TorchScan

    return TorchScan(DeviceConfig(share=share))
