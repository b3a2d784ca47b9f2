"""Rows that people have, from file to hits: CSV, JSON, tables and addresses through the commands."""

import json
import shlex

import pytest

import mvindex as package
from mvindex.cli.ingest import default_path
from tests.helpers.cli import lines, mvindex, ok

pytestmark = pytest.mark.needs("minilm")

PRODUCTS = (
    "sku;name;description;year;price\r\n"
    'A1;Lamp;"It glows; softly\r\nin the dark.";1973;9.5\r\n'
    "A2;Chair;A wooden seat for one person.;1965;\r\n"
    'A3;Lamp;"It glows; softly\r\nin the dark.";1973;9.5\r\n'
    "A4;Kettle;It boils water quickly.;1980;20\r\n"
)


def ingest(*args, cwd, **options):
    done = ok(mvindex("ingest", *args, "--json", cwd=cwd, **options))
    return json.loads(done.stdout), done.stderr


def test_a_table_is_ingested_and_filtered_by_its_numbers(tmp_path):
    (tmp_path / "products.csv").write_bytes(b"\xef\xbb\xbf" + PRODUCTS.encode())
    report, shown = ingest("products.csv", cwd=tmp_path)
    assert "text = (all columns), title = name, metadata = sku, name, description, year, price, numbers =" in shown
    assert (report["added"], report["documents"]) == (4, 4) and "repeated" not in report
    (result,) = lines(
        mvindex("query", "something that makes light", "--filter", '{"year": {"gte": 1973}}', "--json", cwd=tmp_path)
    )
    assert [hit["title"] for hit in result["hits"]] == ["Lamp", "Lamp", "Kettle"]
    shown = ok(mvindex("get", "products.csv#row-4", cwd=tmp_path)).stdout
    assert '"year": 1965}' in " ".join(shown.split())
    assert mvindex("query", "--like", "nope", "--output", "tsv", cwd=tmp_path).stdout == ""
    again, _ = ingest("products.csv", cwd=tmp_path)
    assert (again["added"], again["unchanged"]) == (0, 4)


def test_the_printed_command_reads_mended_rejects_as_their_source_was_read(tmp_path):
    tmp_path = tmp_path / "two words"
    tmp_path.mkdir()
    (tmp_path / "t.csv").write_text("pid;body, all;year\n1;One text.;1973\n2;Two\n3;Three texts.;1975\n")
    done = mvindex("ingest", "t.csv", cwd=tmp_path)
    assert done.returncode == 1 and "t.csv:3: expected 3 columns (pid, body, all, year), got 2" in done.stderr
    assert not (tmp_path / "t.mvx").exists()
    report, shown = ingest("t.csv", "--text-field", "body, all", "--on-error", "skip", cwd=tmp_path)
    assert (report["added"], report["rejected"]) == (2, 1)
    rejects = tmp_path / "t.rejects.csv"
    rejects.write_text(rejects.read_text().replace("2;Two", "2;Two texts.;1974"))
    command = next(line for line in shown.splitlines() if line.strip().startswith("mvindex ingest"))
    assert "--format csv --id-field pid --text-field 'body, all' --title-field ''" in command
    _, *again = shlex.split(command)
    report, _ = ingest(*again[1:], cwd=tmp_path)
    assert (report["added"], report["documents"]) == (1, 3)
    with package.open(tmp_path / "t.mvx") as index:
        assert index.get("2").metadata == {"year": 1974}


def test_two_files_of_a_name_are_noted_and_their_indexes_are_two(tmp_path):
    for folder, text in (("x", "It glows."), ("y", "It boils.")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "p.csv").write_text(f"name,text\nA,{text}\n")
        report, shown = ingest("p.csv", "--index", "../w.mvx", cwd=tmp_path / folder)
        assert ("documents replaced: 1; ids of p.csv are made of its name" in shown) == (report["replaced"] == 1)
    assert report["replaced"] == 1
    again = ok(mvindex("ingest", "p.csv", "--index", "../w.mvx", cwd=tmp_path / "x"))
    assert "w.mvx has 1 document: 1 replaced" in again.stdout and "1 view per document" in again.stdout
    assert ingest("p.csv", "--index", "../w.mvx", cwd=tmp_path / "x")[0]["views_per_document"] is None
    names = {"wiki.en.tsv": "wiki.en", "wiki.de.tsv.gz": "wiki.de", "v1.0.jsonl": "v1.0", ".x.tsv": ".x", "a.b": "a.b"}
    assert [default_path([name]).name for name in names] == [f"{name}.mvx" for name in names.values()]


def test_json_of_several_shapes_and_a_shared_content_make_one_index(tmp_path):
    (tmp_path / "a.json").write_text(json.dumps({"count": 2, "data": [{"review": "It is fine."}, {"review": "Bad."}]}))
    (tmp_path / "b.jsonl").write_text('{"content": "It is fine."}\n{"content": "Unheard of."}\n')
    (tmp_path / "c.json").write_text('["Bad.", "A text alone."]')
    report, _ = ingest("a.json", "b.jsonl", "c.json", "--index", "all.mvx", cwd=tmp_path)
    assert report["added"] == 6
    with package.open(tmp_path / "all.mvx") as index:
        assert index.get("c.json#row-2").text == "A text alone."


def test_made_ids_go_to_shards_and_repeats_of_stdin_are_counted_there(tmp_path):
    rows = "".join(json.dumps({"content": f"Text {number % 5}."}) + "\n" for number in range(8))
    (tmp_path / "rows.jsonl").write_text(rows)
    report, _ = ingest("rows.jsonl", "--shards", "2", cwd=tmp_path)
    assert (report["added"], report["documents"]) == (8, 8)
    report, _ = ingest("-", "--index", "stdin.mvx", "--shards", "2", cwd=tmp_path, input=rows)
    assert (report["added"], report["repeated"], report["documents"]) == (5, 3, 5)


def test_a_row_of_a_table_is_found_by_any_column(tmp_path):
    notes = ("fragile", "recalled in May")
    rows = [f"PX-{1000 + number},Orbitex,{number},{notes[number % 2]}" for number in range(60)]
    (tmp_path / "parts.csv").write_text("\n".join(["part,maker,stock,note", *rows]))
    report, _ = ingest("parts.csv", cwd=tmp_path)
    assert report["documents"] == 60
    (result,) = lines(mvindex("query", "what is the stock of PX-1037?", "--json", cwd=tmp_path))
    hit = result["hits"][0]
    assert hit["text"] == "part: PX-1037; maker: Orbitex; stock: 37; note: recalled in May"
    assert (hit["citation"]["file"], hit["citation"]["line"]) == ("parts.csv", 39)


def test_the_same_id_twice_stops_and_names_both_rows(tmp_path):
    (tmp_path / "t.csv").write_text("id,text\n1,One text.\n1,Another.\n")
    done = mvindex("ingest", "t.csv", cwd=tmp_path)
    assert done.returncode == 1 and "t.csv:3: id '1' occurs at t.csv:2 already" in done.stderr
    report, _ = ingest("t.csv", "--id-field", "", cwd=tmp_path)
    assert report["added"] == 2


def test_an_index_is_named_after_a_remote_file_without_its_secrets(tmp_path):
    fsspec = pytest.importorskip("fsspec")
    with fsspec.open("memory://shop/products.csv", "wb") as file:
        file.write(PRODUCTS.encode())
    report, shown = ingest("memory://shop/products.csv", cwd=tmp_path)
    assert (report["index"], report["documents"]) == ("products.mvx", 4)
    assert "reading memory://shop/products.csv: csv" in shown


@pytest.mark.parametrize("name", ["empty.csv", "header.csv", "nohead.csv", "binary.csv", "latin.csv"])
def test_a_file_that_is_no_table_makes_no_index(tmp_path, name):
    (tmp_path / "empty.csv").touch()
    (tmp_path / "header.csv").write_text("id,text\n")
    (tmp_path / "nohead.csv").write_text("1,The crisis began.\n")
    (tmp_path / "binary.csv").write_bytes(bytes(range(256)) * 8)
    (tmp_path / "latin.csv").write_bytes("id,text\n1,café\n".encode("latin-1"))
    done = mvindex("ingest", name, cwd=tmp_path)
    assert done.returncode == 1 and name in done.stderr and "Traceback" not in done.stderr
    assert not list(tmp_path.glob("*.mvx"))
