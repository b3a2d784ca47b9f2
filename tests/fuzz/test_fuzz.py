"""Every target of the fuzz harness on a few inputs, always the same ones. bench/fuzz.py runs them by the million."""

import importlib.util

import hypothesis
import pytest
from fuzz_parts import targets
from fuzz_parts.strategies import mutated
from fuzz_parts.watching import Journal, Watch

# Inputs: so many of a target with share 1; a few of each.
_EXAMPLES, _FEWEST, _MOST = 80, 12, 120
_MODULES = {
    "checkpoint-files": ("torch", "transformers"),
    "checkpoint-tensors": ("torch", "transformers"),
    "checkpoint-model": ("torch", "transformers"),
    "index-files": ("faiss",),
    "index-hostile": ("faiss",),
}


def _case(name):
    missing = [module for module in _MODULES.get(name, ()) if importlib.util.find_spec(module) is None]
    skip = pytest.mark.skipif(bool(missing), reason=f"NOT RUN: needs {' and '.join(missing)}")
    return pytest.param(name, marks=skip)


CASES = [_case(name) for name in targets.TARGETS]


@pytest.mark.parametrize("name", CASES)
def test_no_input_crashes_hangs_fills_the_memory_or_is_answered_wrongly(name, fuzz_folder):
    target = targets.open_target(name, fuzz_folder)
    watch = Watch(target, fuzz_folder / "kept", Journal(fuzz_folder / "journal"))
    examples = min(max(int(_EXAMPLES * targets.TARGETS[name][1]), _FEWEST), _MOST)

    @hypothesis.settings(
        max_examples=examples,
        derandomize=True,
        database=None,
        phases=[hypothesis.Phase.generate],
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    @hypothesis.given(mutated(target))
    def run(data):
        watch.run(data)

    run()
    assert "".join(fault["trace"] for fault in watch.faults.values())[-3000:] == ""
    assert watch.counts["inputs"] >= examples // 2
    assert watch.counts["accepted"] or any(watch.run(data) == "accepted" for data in target.seeds())
