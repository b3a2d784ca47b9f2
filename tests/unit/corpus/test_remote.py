"""Files behind addresses: http and s3 from servers on this machine, memory://, errors, secrets."""

import gzip
import re
import socket

import numpy as np
import pytest

from mvindex.corpus import CorpusOptions, open_corpus, read_documents
from mvindex.corpus.paths import expand_local_paths, is_remote, shown_address
from mvindex.errors import CorpusError, ExtraMissing
from mvindex.plugins import install_command
from mvindex.records import Document

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")
fsspec = pytest.importorskip("fsspec")
pytest.importorskip("aiohttp")

from tests.helpers.file_server import serve_folder  # noqa: E402 - needs aiohttp
from tests.helpers.s3_server import s3_bucket  # noqa: E402 - as above

CSV = b"id,text,year\n1,The crisis began.,1973\n2,It ended later.,1980\n"
FOUND = [Document("1", "The crisis began.", "", {"year": 1973}), Document("2", "It ended later.", "", {"year": 1980})]
JSONL = b'{"id": "3", "text": "Text three."}\n'


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("served")
    (folder / "table.csv").write_bytes(CSV)
    (folder / "rows.jsonl.gz").write_bytes(gzip.compress(JSONL))
    (folder / "bad.csv").write_bytes(b"id,text\n1,a\n2\n")
    for part in (1, 2):
        rows = {"id": [f"{part}-{row}" for row in range(2)], "text": ["x", "y"]}
        pq.write_table(pa.table(rows), folder / f"part-{part}.parquet")
    vectors = np.random.default_rng(1).random((4000, 768), dtype=np.float32)
    wide = {"id": list(map(str, range(4000))), "text": ["x"] * 4000, "vector": list(vectors)}
    pq.write_table(pa.table(wide), folder / "wide.parquet", compression="none")
    return folder


@pytest.fixture(scope="module")
def http(folder):
    with serve_folder(folder) as server:
        yield server


@pytest.fixture(scope="module")
def bucket(folder):
    with s3_bucket("corpora") as name:
        system = fsspec.filesystem("s3")
        for path in sorted(folder.iterdir()):
            system.put_file(str(path), f"{name}/texts/{path.name}")
        yield f"s3://{name}/texts"


class TestHttp:
    def test_a_file_is_read(self, http):
        with open_corpus(f"{http.url}/table.csv") as corpus:
            assert [row.document for row in corpus] == FOUND
            assert corpus.bytes_read == corpus.bytes_total == len(CSV)
            assert str(corpus.source).startswith(f"{http.url}/table.csv: csv (detected): id = id")

    def test_a_compressed_file_is_read(self, http):
        assert list(read_documents(f"{http.url}/rows.jsonl.gz")) == [Document("3", "Text three.")]

    def test_parquet_is_read_by_ranges(self, http, folder):
        assert len(list(read_documents(f"{http.url}/wide.parquet"))) == 4000
        size_bytes = (folder / "wide.parquet").stat().st_size
        assert size_bytes > 12_000_000
        assert http.sent["/wide.parquet"] < size_bytes * 0.9

    def test_a_pattern_is_expanded_where_the_server_lists_its_files(self, http):
        assert [one.id for one in read_documents(f"{http.url}/part-*.parquet")] == ["1-0", "1-1", "2-0", "2-1"]
        with pytest.raises(CorpusError, match=r"nothing-\*\.csv: no file matches this pattern"):
            open_corpus(f"{http.url}/nothing-*.csv")

    def test_a_bad_row_names_the_address(self, http):
        with pytest.raises(CorpusError, match=rf"^{http.url}/bad\.csv:3: expected 2 columns"):
            list(read_documents(f"{http.url}/bad.csv"))

    @pytest.mark.parametrize(
        ("path", "told"),
        [
            ("none.csv", "no such file"),
            ("status/403/x.csv", "permission denied; give the credentials"),
            ("status/401/x.csv", "permission denied; give the credentials"),
            ("status/500/x.csv", "the server answered with status 500"),
        ],
    )
    def test_an_answer_that_is_no_file_is_told_without_secrets(self, http, path, told):
        address = http.url.replace("//", "//someone:hidden@") + f"/{path}?token=hidden"
        with pytest.raises(CorpusError) as caught:
            open_corpus(address)
        assert str(caught.value).startswith(f"{http.url}/{path}: {told}")
        assert "hidden" not in str(caught.value)

    def test_a_server_that_is_not_there_is_told(self):
        with socket.create_server(("127.0.0.1", 0)) as free:
            address = f"http://127.0.0.1:{free.getsockname()[1]}"
        with pytest.raises(CorpusError, match=rf"^{address}/a\.csv: the server cannot be reached"):
            open_corpus(f"{address}/a.csv")


@pytest.mark.needs("s3")
class TestS3:
    def test_a_file_is_read(self, bucket):
        assert list(read_documents(f"{bucket}/table.csv")) == FOUND
        assert list(read_documents(f"{bucket}/rows.jsonl.gz")) == [Document("3", "Text three.")]

    def test_a_pattern_gives_files_in_order(self, bucket):
        with open_corpus(f"{bucket}/part-*.parquet") as corpus:
            assert corpus.paths == [f"{bucket}/part-1.parquet", f"{bucket}/part-2.parquet"]
            assert [row.document.id for row in corpus] == ["1-0", "1-1", "2-0", "2-1"]

    @pytest.mark.parametrize(
        ("path", "told"),
        [
            ("s3://corpora/texts/none.csv", "no such file"),
            ("s3://no-bucket/a.csv", "no such file"),
            ("s3://corpora/texts", "is a directory; name the files in it"),
        ],
    )
    def test_what_is_no_file_is_told(self, bucket, path, told):
        with pytest.raises(CorpusError, match=f"^{path}: {told}"):
            open_corpus(path)

    def test_a_server_that_is_not_there_is_told(self, bucket, monkeypatch):
        with socket.create_server(("127.0.0.1", 0)) as free:
            monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{free.getsockname()[1]}")
        monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
        fsspec.filesystem("s3").clear_instance_cache()
        with pytest.raises(CorpusError, match="^s3://corpora/x.csv: the server cannot be reached"):
            open_corpus("s3://corpora/x.csv")
        fsspec.filesystem("s3").clear_instance_cache()

    def test_missing_credentials_are_told(self, bucket, monkeypatch, tmp_path):
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            monkeypatch.delenv(name)
        monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
        fsspec.filesystem("s3").clear_instance_cache()
        with pytest.raises(CorpusError, match="^s3://corpora/x.csv: (there are no credentials|permission denied)"):
            open_corpus("s3://corpora/x.csv")
        fsspec.filesystem("s3").clear_instance_cache()


class TestOther:
    def test_memory_and_file_addresses(self, tmp_path):
        with fsspec.open("memory://rows/table.csv", "wb") as file:
            file.write(CSV)
        (tmp_path / "table.csv").write_bytes(CSV)
        assert list(read_documents("memory://rows/table.csv")) == FOUND
        assert list(read_documents("memory://rows/*.csv")) == FOUND
        assert list(read_documents(f"file://{tmp_path}/table.csv")) == FOUND

    def test_the_same_address_twice_is_an_error(self):
        with fsspec.open("memory://rows/table.csv", "wb") as file:
            file.write(CSV)
        with pytest.raises(CorpusError, match="memory://rows/table.csv: is named twice"):
            open_corpus(["memory://rows/table.csv"] * 2)

    def test_arrow_needs_no_download(self, tmp_path):
        feather = pytest.importorskip("pyarrow.feather")
        feather.write_feather(pa.table({"id": ["a"], "text": ["x"]}), str(tmp_path / "t.feather"))
        fsspec.filesystem("memory").pipe_file("/t.feather", (tmp_path / "t.feather").read_bytes())
        assert list(read_documents("memory://t.feather")) == [Document("a", "x")]

    @pytest.mark.parametrize(
        ("address", "told"),
        [("nosuch://a/b.csv", "expected a protocol that fsspec knows"), ("memory://none.csv", "no such file")],
    )
    def test_an_address_that_is_none_is_told(self, address, told):
        with pytest.raises(CorpusError, match=f"^{address}: {told}"):
            open_corpus(address)

    def test_a_protocol_without_its_package_names_the_extra(self, monkeypatch):
        def fail(*_):
            raise ImportError("Please install gcsfs to access Google Storage")

        monkeypatch.setattr("fsspec.core.url_to_fs", fail)
        with pytest.raises(ExtraMissing, match=re.escape(install_command("files")) + ".*gcsfs"):
            open_corpus("gcs://bucket/a.csv")

    def test_fsspec_is_named_where_it_is_missing(self, monkeypatch):
        monkeypatch.setitem(__import__("sys").modules, "fsspec.core", None)
        with pytest.raises(ExtraMissing, match=re.escape(install_command("files"))):
            open_corpus("https://example.org/a.csv")

    def test_what_needs_a_local_file_says_so(self):
        with pytest.raises(CorpusError, match="^https://example.org/a.csv: expected a file of this machine"):
            expand_local_paths("https://me:hidden@example.org/a.csv?token=hidden")

    @pytest.mark.parametrize("path", ["a.csv", "/a/b.csv", "a:b.csv", "-", "ir_datasets:vaswani"])
    def test_files_are_no_addresses(self, path):
        assert not is_remote(path) and shown_address(path) == path

    def test_reading_options_hold_for_addresses(self):
        with fsspec.open("memory://other/rows.csv", "wb") as file:
            file.write(CSV)
        found = list(read_documents("memory://other/rows.csv", CorpusOptions(text_field="text,year")))
        assert found[0].text == "The crisis began.\n\n1973"
