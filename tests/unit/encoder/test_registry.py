"""The table of encoder families: its functions exist, and a family comes from outside the package too."""

import sys
from importlib.metadata import EntryPoint, EntryPoints
from types import ModuleType

import numpy as np
import pytest

from mvindex.encoder import load_encoder
from mvindex.encoder.checkpoint import families, parse_family
from mvindex.encoder.checkpoint.families import BUILT_IN, GROUP, Family
from mvindex.encoder.families import load_arrange
from mvindex.encoder.families.windows import Arrangement, Window, context, whole_windows
from mvindex.errors import CheckpointError, ConfigError
from mvindex.records import Document
from tests.helpers.tiny_models import make_model


def arrange_ends(text, frame):
    """Two views: the states of the first and of the last token of the first window."""
    ids = whole_windows(text, frame)[0]
    slots = context(len(ids))
    slots[[0, -1]] = [0, 1]
    return Arrangement([Window(ids, slots)], [text.whole] * 2, 2)


@pytest.fixture
def toy(monkeypatch):
    """A package outside mvindex that registers the family `ends`."""
    module = ModuleType("toy_family")
    module.arrange_ends = arrange_ends
    module.ENDS = Family(name="ends", arrange="toy_family:arrange_ends", default_max_views=2)
    module.WRONG = "no family"
    monkeypatch.setitem(sys.modules, "toy_family", module)
    names = {"ends": "toy_family:ENDS", "wrong": "toy_family:WRONG"}
    entries = EntryPoints(EntryPoint(name, value, GROUP) for name, value in names.items())
    monkeypatch.setattr(families, "entry_points", lambda group: entries.select(group=group))
    return module


@pytest.mark.parametrize("family", BUILT_IN, ids=lambda family: family.name)
def test_every_family_of_the_table_has_its_function(family):
    assert callable(load_arrange(family)) and parse_family(family.name) is family


def test_a_family_from_outside_is_found_by_name_and_encodes(toy, tmp_path):
    assert parse_family("ends") is toy.ENDS
    encoder = load_encoder(make_model(tmp_path / "bert"), family="ends", device="cpu")
    assert encoder.spec["family"] == "ends" and encoder.max_views == 2
    views = encoder.encode_documents([Document("1", "The cat sat on the mat."), Document("2", "It ran.")])
    assert views.starts.tolist() == [0, 2, 4] and np.allclose(np.linalg.norm(views.rows, axis=1), 1)


def test_a_checkpoint_may_name_a_family_from_outside(toy, tmp_path):
    folder = make_model(tmp_path / "bert")
    (folder / "mvindex.json").write_text('{"format_version": 1, "family": "ends", "max_views": 2}')
    assert load_encoder(folder, device="cpu").spec["family"] == "ends"
    (folder / "mvindex.json").write_text('{"format_version": 1, "family": "middle"}')
    with pytest.raises(CheckpointError, match="'family': expected one of 'snippets', .*'ends', 'wrong', got 'middle'"):
        load_encoder(folder, device="cpu")


def test_what_is_no_family_is_refused(toy):
    with pytest.raises(ConfigError, match="toy_family:WRONG: expected a Family of the name 'wrong'"):
        parse_family("wrong")
    with pytest.raises(ConfigError, match="family: expected one of 'snippets', 'single', .* got 'colbert'"):
        parse_family("colbert")


@pytest.mark.parametrize("place", ["toy_family:nothing", "no_such_module:arrange", "toy_family"])
def test_a_family_whose_function_is_missing_is_refused(toy, place):
    with pytest.raises(ConfigError, match="'lost': expected a function at"):
        load_arrange(Family(name="lost", arrange=place))
