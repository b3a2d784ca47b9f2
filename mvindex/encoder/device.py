"""Choose where the model runs, and in which floating-point type."""

from __future__ import annotations

import importlib.util
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy.typing as npt

from mvindex.encoder.batches import BatchShape
from mvindex.encoder.checkpoint.settings import first_line
from mvindex.errors import ConfigError, EncoderError
from mvindex.kernels.threads import LibraryThreads
from mvindex.plugins import FAISS_PACKAGES, install_command, installed_version

if TYPE_CHECKING:
    import torch

# Tokens of a batch, padding included. On a CPU larger batches leave the caches (measured: 4,096 is best, 1,024 and
# 16,384 a tenth slower); a GPU needs larger ones to be busy.
_CPU_BATCH_TOKENS = 4096
_CUDA_BATCH_TOKENS = 65536
# Tokens that a GPU computes while this process starts the kernels of one more batch, about: fewer are not spared.
CUDA_LEAST_SPARED = 8192
# As the Linux kernel names them, on x86 and on ARM.
_BF16_FLAGS = {"avx512_bf16", "amx_bf16", "bf16"}
_CPU_INFO = Path("/proc/cpuinfo")
_DRIVER = Path("/proc/driver/nvidia/version")
# Of which one is there with a driver; the last in Windows' Subsystem for Linux.
_DRIVER_SIGNS = (_DRIVER, Path("/dev/nvidiactl"), Path("/dev/dxg"))


def has_driver() -> bool:
    """Return whether this machine has an NVIDIA driver, so that torch may find a GPU."""
    return any(sign.exists() for sign in _DRIVER_SIGNS)


@contextmanager
def memory_of(device: torch.device, what: str) -> Iterator[None]:
    """Raise EncoderError, which names the way out, where a GPU has too little memory for what the block puts there."""
    import torch

    try:
        yield
    except torch.OutOfMemoryError as err:
        raise EncoderError(
            f"{device}: too little memory for {what}; end other programs that use this GPU, give another --device, "
            f"or --device cpu ({first_line(err)})"
        ) from None


def choose_device(name: str | None) -> torch.device:
    """Return the device of that name ("cpu", "cuda", "cuda:N"); without a name CUDA where there is one, else the CPU.

    Raises ConfigError for another name, or a device that is not there.
    """
    import torch

    if name is None:
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if not re.fullmatch(r"cpu|cuda(:\d+)?", name):
        raise ConfigError(f"device is {name!r}; expected 'cpu', 'cuda' or 'cuda:N'")
    device = torch.device(name)
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        why = why_no_gpu() or f"the last of them is cuda:{torch.cuda.device_count() - 1}"
        raise ConfigError(
            f"device is {name!r}, but torch {torch.__version__} finds {torch.cuda.device_count()} CUDA devices: {why}; "
            "leave the device out to run on the CPU"
        )
    return device


def why_no_gpu() -> str | None:
    """Return why torch finds no GPU, and the way out; None where it finds one."""
    if importlib.util.find_spec("torch") is None:
        return f"torch is not installed ({install_command('train')})"
    import torch

    if torch.cuda.is_available():
        return None
    if torch.version.cuda is None:
        return f"torch {torch.__version__} is a build without CUDA; install one for the CUDA of your driver"
    if not has_driver():
        return "this machine has no NVIDIA driver (no /proc/driver/nvidia/version)"
    if os.environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1"):
        return f"CUDA_VISIBLE_DEVICES is {os.environ['CUDA_VISIBLE_DEVICES']!r}, which hides them all; unset it"
    try:
        torch.cuda.init()  # type: ignore[no-untyped-call]  # torch leaves it untyped
    except RuntimeError as err:
        cause = str(err).splitlines()[0]
        if (visible := os.environ.get("CUDA_VISIBLE_DEVICES")) is not None:
            cause += f"; CUDA_VISIBLE_DEVICES is {visible!r}: is there such a GPU?"
        return (
            f"the driver cannot run torch's CUDA {torch.version.cuda} ({cause}); install a newer driver, or a torch "
            "build for an older CUDA"
        )
    return "the driver lists no device"


def describe_devices() -> dict[str, Any]:
    """Return what runs where: torch and Faiss, the driver, each GPU with its memory, and why where there is none."""
    why = why_no_gpu()
    found: list[dict[str, Any]] = []
    if why is None:
        import torch

        for number in range(torch.cuda.device_count()):
            free, total = torch.cuda.mem_get_info(number)
            major, minor = torch.cuda.get_device_capability(number)
            name = {"device": f"cuda:{number}", "name": torch.cuda.get_device_name(number)}
            found.append(
                {
                    **name,
                    "capability": f"{major}.{minor}",
                    "memory_bytes": total,
                    "free_bytes": free,
                    "bf16": major >= 8,
                }
            )
    lines = _DRIVER.read_text(encoding="utf-8", errors="replace").splitlines() if _DRIVER.exists() else []
    packages = {name: installed_version(name) for name in ("torch", *FAISS_PACKAGES)}
    return {
        "packages": {name: version for name, version in packages.items() if version is not None},
        "driver": lines[0] if lines else None,
        "gpus": found,
        "why_no_gpu": why,
    }


def on_device(array: npt.NDArray[Any], device: torch.device) -> torch.Tensor:
    """Return the array as a tensor on the device; to a GPU it is copied while this process goes on."""
    return pinned(array, device).to(device, non_blocking=True)


def pinned(array: npt.NDArray[Any], device: torch.device) -> torch.Tensor:
    """Return the array as a tensor in this machine's memory; one for a GPU is where its copies wait for nothing."""
    import torch

    tensor = torch.from_numpy(array)
    return tensor if device.type == "cpu" else tensor.pin_memory()


def document_dtype(device: torch.device) -> torch.dtype:
    """Return the fastest native type of the device: bf16 if it has it, else fp16 on CUDA, fp32 on a CPU."""
    import torch

    if device.type == "cuda":
        has_bf16 = torch.cuda.get_device_capability(device) >= (8, 0)
        return torch.bfloat16 if has_bf16 else torch.float16
    return torch.bfloat16 if _cpu_has_bf16() else torch.float32


@cache
def torch_threads() -> LibraryThreads:
    """Return torch's threads, which follow default_threads() inside limited()."""
    import torch

    return LibraryThreads(torch.get_num_threads, torch.set_num_threads)


def batch_shape(device: torch.device, window: int) -> BatchShape:
    """Return the batches that suit the device, of windows of at most so many tokens."""
    if device.type != "cpu":
        return BatchShape(
            max_tokens=_CUDA_BATCH_TOKENS, length_step=8, max_length=max(window, 8), least_spared=CUDA_LEAST_SPARED
        )
    return BatchShape(max_tokens=_CPU_BATCH_TOKENS, length_step=8, count_step=8, max_length=max(window, 8))


def _cpu_has_bf16() -> bool:
    # torch also runs bf16 on processors without it, slower than fp32, and has no public way to ask.
    try:
        lines = _CPU_INFO.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return False  # not Linux
    flags = next((line for line in lines if line.lower().startswith(("flags", "features"))), "")
    return not _BF16_FLAGS.isdisjoint(flags.split())
