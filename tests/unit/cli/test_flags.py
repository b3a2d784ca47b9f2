import inspect
from dataclasses import dataclass

import pytest
import typer
from typer.testing import CliRunner

from mvindex.cli import app
from mvindex.cli.flags import FileFlags, RerankFlags, expand_flags
from mvindex.corpus import CorpusOptions, FolderOptions


@dataclass(frozen=True)
class Size:
    width: int = 3
    height: int = 4


def area(name: str, *, size: Size, unit: str = "m") -> str:
    return f"{name}: {size.width * size.height} {unit}2"


def test_the_fields_of_a_group_are_options_where_the_group_stands():
    expanded = expand_flags(area)
    assert list(inspect.signature(expanded).parameters) == ["name", "width", "height", "unit"]
    assert expanded(name="hall", width=5, height=4, unit="ft") == "hall: 20 ft2"


def test_flags_of_files_have_the_defaults_of_the_library():
    flags = FileFlags()
    assert CorpusOptions(**flags.limits()) == CorpusOptions()
    assert FolderOptions(**flags.choice()) == FolderOptions()


@pytest.mark.parametrize("flags", [RerankFlags(rerank_on="text"), RerankFlags(rerank_depth=9)])
def test_flags_of_reranking_need_a_checkpoint(flags):
    with pytest.raises(typer.BadParameter, match="belongs to --rerank CHECKPOINT"):
        flags.check()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["info", "notes.mvx"], "got notes.mvx. An index is given by --index notes.mvx"),
        (["query", "oil", "notes.mvx"], "got notes.mvx. An index is given by --index notes.mvx"),
        (["info", "."], "got .. An index is given by --index ."),
        (["query", "when", "was", "it"], "got was it. A text with spaces is given in quotes"),
        (["info", "\x1b[31m"], "got ␛[31m"),
    ],
)
def test_further_arguments_are_refused_with_the_way_out(words, told, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "notes.mvx").mkdir()
    done = CliRunner().invoke(app, words, env={"COLUMNS": "200"})
    assert done.exit_code == 2
    assert done.stderr.splitlines()[-1] == f"Error: expected no further arguments, {told}"
