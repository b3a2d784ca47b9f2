"""Processors and systems: what `import mvindex` refuses by name, and what runs on an emulated one."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from mvindex.processor import reason_against

V2 = {"pni", "ssse3", "cx16", "sse4_1", "sse4_2", "popcnt"}
AVX2 = V2 | {"avx", "avx2"}


@pytest.mark.parametrize(
    ("machine", "reason"),
    [
        (("linux", "little", V2, {}), None),
        (("linux", "little", None, {}), None),
        (("darwin", "little", None, {}), None),
        (("linux", "little", V2, {"OPENBLAS_CORETYPE": "Nehalem"}), None),
        (("linux", "little", AVX2, {"OPENBLAS_CORETYPE": "Haswell"}), None),
        (("linux", "little", V2 - {"popcnt", "sse4_2"}, {}), "x86-64-v2 processor.* without popcnt, sse4_2:"),
        (("linux", "little", set(), {}), "without cx16, pni, popcnt, sse4_1, sse4_2, ssse3:"),
        (("linux", "little", V2, {"OPENBLAS_CORETYPE": "haswell"}), "OPENBLAS_CORETYPE: .* lacks avx2, got 'haswell'"),
        (("linux", "little", AVX2, {"OPENBLAS_CORETYPE": "SkylakeX"}), "lacks avx512f, got 'SkylakeX'"),
        (("linux", "big", None, {}), "expected a little-endian processor, got a big-endian one"),
        (("win32", "little", AVX2, {}), "expected Linux or macOS, got Windows, .*WSL 2"),
    ],
)
def test_a_machine_that_cannot_run_is_named_with_what_it_lacks(machine, reason):
    found = reason_against(*machine)
    assert found is None if reason is None else re.search(reason, found or "")


def run_on(processor, code, *arguments, **variables):
    """Run Python code on an emulated processor, or on this one."""
    program = str(Path(sys.executable).resolve())
    given = {name: value for name, value in os.environ.items() if name != "OPENBLAS_CORETYPE"}
    given |= {"PYTHONPATH": os.pathsep.join(sys.path), **variables}
    emulator = ["qemu-x86_64", "-cpu", processor] if processor else []
    command = [*emulator, program, "-c", code, *map(str, arguments)]
    return subprocess.run(command, env=given, capture_output=True, text=True, timeout=300, check=False)


@pytest.mark.needs("qemu")
@pytest.mark.parametrize(
    ("processor", "variables", "named"),
    [
        ("Penryn", {}, "without popcnt, sse4_2"),
        ("qemu64", {}, "without popcnt, sse4_1, sse4_2, ssse3"),
        ("Nehalem", {"OPENBLAS_CORETYPE": "Haswell"}, "OPENBLAS_CORETYPE: "),
    ],
)
def test_an_older_processor_is_refused_before_an_illegal_instruction(processor, variables, named):
    done = run_on(processor, "import mvindex", **variables)
    assert done.returncode == 1 and named in done.stderr.splitlines()[-1], done


ASK = """
import json, sys
import mvindex
texts = {"oil": "The oil crisis began in October 1973. Prices rose.", "plants": "Plants turn light into energy."}
with mvindex.create(sys.argv[1], encoder="minilm-views") as index:
    index.add([mvindex.Document(name, text) for name, text in texts.items()])
    asked = [{"mode": "hybrid"}, {"mode": "lexical"}, {"mode": "dense", "exact": True}, {"scoring": "drpq"}]
    found = [index.search("when did the oil crisis begin?", 2, **options) for options in asked]
    print(json.dumps([[[hit.id, hit.score, hit.citation.text] for hit in result] for result in found]))
"""


@pytest.mark.needs("qemu")
def test_the_oldest_processor_ingests_and_searches_as_this_one_does(tmp_path):
    expected, found = (run_on(cpu, ASK, tmp_path / str(cpu)) for cpu in (None, "Nehalem"))
    assert (expected.returncode, found.returncode) == (0, 0), found.stderr
    for here, there in zip(json.loads(expected.stdout), json.loads(found.stdout), strict=True):
        assert [(doc_id, cited) for doc_id, _, cited in here] == [(doc_id, cited) for doc_id, _, cited in there]
        # Without fused multiply-add the rest of the encoder rounds otherwise: see encoder/test_light.py.
        np.testing.assert_allclose([score for _, score, _ in there], [score for _, score, _ in here], atol=0.02)
