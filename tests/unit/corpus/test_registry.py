"""A corpus format from another package: found by its entry point, detected, read, and rejected rows written."""

import importlib
import sys

import pytest

from mvindex.corpus import CorpusOptions, RejectsWriter, Row, find_format, open_corpus, read_documents, registry
from mvindex.errors import ConfigError
from mvindex.records import Document

TOY = """
from mvindex.corpus import Reject, Row, Source, TextFormat


def open_toy(lines, options):
    source = Source(
        path=lines.path,
        format="toy",
        is_detected=options.format is None,
        id_field="id",
        text_field="text",
        title_field=None,
        columns=("id", "text"),
        rejects_suffix=".toy",
    )
    return source, read_rows(lines)


def read_rows(lines):
    from mvindex.records import Document

    while line := lines.take():
        doc_id, _, text = line.decode().rstrip().lstrip("%").partition(":")
        if text:
            yield Row(lines.location, Document(doc_id, text), line)
        else:
            yield Reject(lines.location, "no text after the colon", [line])


FORMAT = TextFormat(name="toy", matches=lambda first_line: first_line.startswith(b"%"), open=open_toy)
"""


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Install a package of one module, with its entry points, where importlib.metadata finds it."""
    site = tmp_path / "site"

    def install(module, entries):
        info = site / "toyformat-1.0.dist-info"
        info.mkdir(parents=True)
        (site / "toyformat.py").write_text(module)
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: toyformat\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text("[mvindex.corpus_formats]\n" + entries)
        monkeypatch.syspath_prepend(site)
        importlib.invalidate_caches()
        registry._all_formats.cache_clear()

    yield install
    registry._all_formats.cache_clear()
    sys.modules.pop("toyformat", None)


def test_a_format_of_another_package_is_detected_and_read(install, tmp_path):
    install(TOY, "toy = toyformat:FORMAT\n")
    path = tmp_path / "corpus.txt"
    path.write_text("%a:one\n%b:two\n")
    for options in (None, CorpusOptions(format="toy")):
        assert list(read_documents(path, options)) == [Document("a", "one"), Document("b", "two")]
    with open_corpus(path) as corpus:
        assert [str(row.location) for row in corpus] == [f"{path}:1", f"{path}:2"]
        assert str(corpus.source) == f"{path}: toy (detected): id = id, text = text, title = (none)"


@pytest.mark.parametrize("name", ["corpus.TOY", "corpus.v2.toy.gz", "corpus.toy.zst"])
def test_the_ending_of_a_name_decides_before_the_first_line(install, tmp_path, name):
    install(TOY.replace("open=open_toy)", 'open=open_toy, suffixes=(".toy",))'), "toy = toyformat:FORMAT\n")
    path = tmp_path / name
    path.write_text('{"id":one\n')
    assert list(read_documents(path)) == [Document('{"id"', "one")]


WHOLE = """
from mvindex.corpus import BinaryFormat, Row, Source, SourceLocation
from mvindex.records import Document


def open_whole(file, options):
    fields = {"id_field": "id", "text_field": "text", "title_field": None, "columns": ("id", "text")}
    source = Source(path=file.name, format="whole", is_detected=options.format is None, **fields)
    text = file.stream().read().decode()
    return source, iter([Row(SourceLocation(file.name, 1), Document(file.name, text), b"")])


FORMAT = BinaryFormat(name="whole", matches=lambda head: False, open=open_whole, suffixes=(".whole",))
"""


def test_a_file_read_as_a_whole_is_found_by_its_ending_or_by_the_given_format(install, tmp_path):
    install(WHOLE, "whole = toyformat:FORMAT\n")
    for name, options in (("a.whole", None), ("b.txt", CorpusOptions(format="whole"))):
        path = tmp_path / name
        path.write_text("one\n\ntwo\n")
        assert list(read_documents(path, options)) == [Document(str(path), "one\n\ntwo\n")]


def test_its_rejected_rows_are_written_and_read_again(install, tmp_path):
    install(TOY, "toy = toyformat:FORMAT\n")
    path = tmp_path / "corpus.txt"
    path.write_text("%a:one\n%b\n")
    with open_corpus(path) as corpus, RejectsWriter(tmp_path / "out") as rejects:
        for row in corpus:
            if not isinstance(row, Row):
                rejects.write(row, corpus.source_of(row.location))
        assert rejects.formats == {tmp_path / "out.rejects.toy": "toy"}
    assert (tmp_path / "out.rejects.toy").read_text() == "%b\n"


def test_other_formats_are_read_as_before(install, tmp_path):
    install(TOY, "toy = toyformat:FORMAT\n")
    path = tmp_path / "corpus.tsv"
    path.write_text("id\ttext\n1\tx\n")
    assert list(read_documents(path)) == [Document("1", "x")]


def test_an_unknown_format_names_those_there_are(install):
    install(TOY, "toy = toyformat:FORMAT\n")
    with pytest.raises(
        ConfigError,
        match=r"expected a corpus format \(arrow, beir, csv, dpr, json, jsonl, msmarco, parquet, toy\), got 'x'",
    ):
        find_format("x")
    with pytest.raises(ConfigError, match="got 'x'"):
        open_corpus("none.txt", CorpusOptions(format="x"))


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ("toy = toyformat:open_toy\n", "entry point toy .*: expected a TextFormat or BinaryFormat of this name"),
        ("toy2 = toyformat:FORMAT\n", "entry point toy2 .*: expected a TextFormat or BinaryFormat of this name"),
    ],
)
def test_an_entry_point_of_another_kind_is_named(install, entries, message):
    install(TOY, entries)
    with pytest.raises(ConfigError, match=message):
        find_format("dpr")


def test_a_name_that_is_taken_is_refused(install):
    install(TOY.replace('name="toy"', 'name="dpr"'), "dpr = toyformat:FORMAT\n")
    with pytest.raises(ConfigError, match="dpr is the name of another format"):
        find_format("dpr")
