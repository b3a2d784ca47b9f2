"""Pictures that are drawn from tables of the docs are those that are committed, and are sound SVG."""

import re
import sys
from xml.etree import ElementTree

import pytest
from docs_pages import ROOT

PICTURES = sorted((ROOT / "docs" / "pictures").glob("*.svg"))


@pytest.fixture(scope="module")
def pictures():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "path", [str(ROOT / "bench"), *sys.path])
        import pictures

        yield pictures


@pytest.mark.parametrize("name", ["architecture", "life", "quality", "recall"])
def test_a_picture_is_drawn_from_the_docs_of_today(name, pictures):
    committed = (ROOT / "docs" / "pictures" / f"{name}.svg").read_text(encoding="utf-8")
    assert committed == pictures.FIXED[name](), f"run python bench/pictures.py --only {name}"


@pytest.mark.parametrize("path", PICTURES, ids=lambda path: path.stem)
def test_a_picture_is_small_describes_itself_and_is_shown_on_a_page(path):
    text = path.read_text(encoding="utf-8")
    root = ElementTree.fromstring(text)
    names = [child.tag.rpartition("}")[2] for child in root]
    assert {"title", "desc", "style"} <= set(names) and "prefers-color-scheme:dark" in text
    assert len(text) < 20_000
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    assert any(re.search(rf"!\[.+\]\([\w./]*{path.name}\)", page.read_text(encoding="utf-8")) for page in pages)


def test_all_pictures_are_committed(pictures):
    assert {path.stem for path in PICTURES} == {*pictures.FIXED, *pictures.SEARCHED}


def test_the_picture_of_a_query_marks_the_cited_sentence(pictures, tmp_path):
    pytest.importorskip("torch")
    import mvindex

    texts = {"oil": "The embargo began in 1973. Oil reached $12.", "tea": "Tea is drunk hot. It grows in hills."}
    with mvindex.create(tmp_path / "two.mvx", encoder="minilm-views") as index:
        index.add([mvindex.Document(name, text, title=name) for name, text in texts.items()])
        drawn = pictures.SEARCHED["query"](index, "how much did oil cost?")
        assert drawn.count('class="mark"') == 1 and "first of 2 documents, exact" in drawn
        bounds = pictures.SEARCHED["certified"](index, "how much did oil cost?", top_k=1)
        assert "2 documents, the 1 best wanted" in bounds and bounds.count('class="three"') >= 2


def test_bounds_hold_the_exact_score(pictures):
    import numpy as np
    import pyarrow as pa
    from pictures_parts.searched import bounds_of

    rng = np.random.default_rng(3)
    documents = pa.array([rng.normal(size=(views, 16)).tolist() for views in (1, 3, 8, 2)])
    for lower, upper, exact in bounds_of(documents, rng.normal(size=16)):
        assert lower <= exact <= upper
