"""Which exact scan there is, and what it is called."""

import pytest

from mvindex.engines import open_scan, scan_name
from mvindex.engines.scan_torch import TorchScan
from mvindex.kernels import has_int8_products


@pytest.mark.parametrize("device", ["cuda", "cuda:1"])
def test_a_scan_on_a_gpu_is_named_with_its_device(device):
    assert scan_name(device) == f"torch fp32 on {device}"


def test_the_scan_of_the_cpu_is_named_by_what_multiplies():
    assert scan_name() == scan_name("cpu")
    assert isinstance(open_scan(), TorchScan) is not has_int8_products()
    assert scan_name().split()[0] == ("native" if has_int8_products() else "torch")
