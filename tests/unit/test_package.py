"""The package's face: public names, missing extras, engines by entry point, one Faiss only."""

import json
import re
import subprocess
import sys

import pytest

import mvindex
from mvindex import engines
from mvindex import plugins as extras
from mvindex.errors import ConfigError, ExtraMissing


def test_the_public_names_are_these():
    assert mvindex.__all__ == [
        "AsyncIndex",
        "CallableEncoder",
        "Citation",
        "Document",
        "DocumentViews",
        "Hit",
        "Index",
        "IndexProtocol",
        "MvindexError",
        "QueryGroup",
        "SearchResult",
        "SyncOptions",
        "SyncReport",
        "ViewText",
        "Views",
        "create",
        "load_encoder",
        "open",
        "open_async",
        "read_files",
        "repair",
        "restore",
        "salvage",
        "save_sentence_transformer",
        "set_threads",
        "sync_folder",
        "verify",
    ]
    assert all(getattr(mvindex, name) is not None for name in mvindex.__all__)
    with pytest.raises(AttributeError):
        _ = mvindex.nonsense


def test_importing_the_package_imports_nothing_heavy():
    code = (
        "import sys, mvindex, mvindex.index.factory, mvindex.corpus, mvindex.measure.questions\n"
        "heavy = {'torch', 'faiss', 'transformers', 'pyarrow', 'ir_measures', 'sklearn'} & set(sys.modules)\n"
        "sys.exit(f'imported {heavy}' if heavy else 0)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_missing_extra_is_named_with_its_command():
    message = f"reading X needs the package 'no_such_module': {extras.install_command('x')}"
    with pytest.raises(ExtraMissing, match=f"^{re.escape(message)}$"):
        extras.require("no_such_module", "x", "reading X")


@pytest.mark.parametrize(
    ("recorded", "command"),
    [
        (None, "pip install 'mvindex[x]'"),
        ({"dir_info": {"editable": True}}, "pip install -e '{checkout}[x]'"),
        ({"dir_info": {}}, "pip install '{checkout}[x]'"),
        ({"dir_info": {}, "url": "file:///no/such/checkout"}, "pip install 'mvindex[x]'"),
        ({"archive_info": {}}, "pip install 'mvindex[x]'"),
    ],
)
def test_an_extra_is_installed_from_where_mvindex_was(tmp_path, monkeypatch, recorded, command):
    checkout, installed = tmp_path / "a checkout", tmp_path / "site/mvindex-9.dist-info"
    for folder in (checkout, installed):
        folder.mkdir(parents=True)
    (checkout / "pyproject.toml").touch()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: mvindex\nVersion: 9\n")
    if recorded is not None:
        (installed / "direct_url.json").write_text(json.dumps({"url": checkout.as_uri(), **recorded}))
    monkeypatch.syspath_prepend(installed.parent)
    assert extras.install_command("x") == command.format(checkout=checkout)


def test_an_extra_is_installed_from_the_index_where_mvindex_is_not_installed(monkeypatch):
    monkeypatch.setattr(sys, "path", [])
    assert extras.install_command("x") == "pip install 'mvindex[x]'"


def test_an_import_error_inside_an_installed_package_is_not_hidden(tmp_path, monkeypatch):
    (tmp_path / "broken_package.py").write_text("import no_such_module_either\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="no_such_module_either"):
        extras.require("broken_package", "x", "reading X")


def test_two_faiss_packages_are_refused_with_the_repair(tmp_path, monkeypatch):
    for name in ("faiss_cpu-1.15.1", "faiss_gpu-1.15.1"):
        folder = tmp_path / f"{name}.dist-info"
        folder.mkdir()
        package, version = name.rsplit("-", 1)
        (folder / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {package.replace('_', '-')}\nVersion: {version}\n"
        )
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ConfigError, match="pip uninstall -y faiss-cpu faiss-gpu && pip install"):
        extras.require_faiss()


def test_engines_are_found_by_entry_point():
    for kind in ("flat", "graph", "hnsw"):
        assert engines.find_kind(kind).name == kind
    with pytest.raises(ConfigError, match="exact, flat, graph, hnsw"):
        engines.parse_kind("ivf-pq8")
