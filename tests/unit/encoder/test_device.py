"""Why there is no GPU, said so that a user knows what to install."""

import importlib.util

import pytest

torch = pytest.importorskip("torch")

from mvindex.encoder import device  # noqa: E402
from mvindex.engines import open_scan  # noqa: E402
from mvindex.errors import ConfigError  # noqa: E402


@pytest.fixture
def no_gpu(monkeypatch, tmp_path):
    """A torch for CUDA that finds no device, on a machine with a driver."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    driver = tmp_path / "version"
    driver.write_text("NVRM version: 470.1\nGCC\n")
    monkeypatch.setattr(device, "_DRIVER", driver)
    monkeypatch.setattr(device, "_DRIVER_SIGNS", (driver,))
    return driver


def test_torch_without_cuda_is_named(no_gpu, monkeypatch):
    monkeypatch.setattr(torch.version, "cuda", None)
    assert "is a build without CUDA; install one" in device.why_no_gpu()


def test_a_machine_without_a_driver_is_named(no_gpu):
    no_gpu.unlink()
    assert "has no NVIDIA driver" in device.why_no_gpu()
    assert device.describe_devices()["driver"] is None


def test_hidden_devices_are_named(no_gpu, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert "CUDA_VISIBLE_DEVICES is '', which hides them all" in device.why_no_gpu()


def test_a_driver_that_is_too_old_is_named_with_what_torch_says(no_gpu, monkeypatch):
    def init():
        raise RuntimeError("The NVIDIA driver on your system is too old (found version 11040).\nPlease update")

    monkeypatch.setattr(torch.cuda, "init", init)
    found = device.describe_devices()
    assert (
        "cannot run torch's CUDA 13.0 (The NVIDIA driver on your system is too old (found version 11040).)"
        in found["why_no_gpu"]
    )
    assert (found["driver"], found["gpus"]) == ("NVRM version: 470.1", [])


def test_a_missing_torch_is_named(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert device.why_no_gpu().startswith("torch is not installed (pip install")


def test_a_scan_on_a_gpu_that_is_not_there_says_why(no_gpu):
    no_gpu.unlink()
    with pytest.raises(ConfigError, match="device is 'cuda:1', but torch .* finds 0 CUDA devices: this machine has no"):
        open_scan("cuda:1")
