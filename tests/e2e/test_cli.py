"""The command line as a user meets it: real processes, the packaged encoder, real passages."""

import csv
import json
import os
import re
import signal
import subprocess
import sys
import time

import jsonschema
import numpy as np
import pytest

import mvindex as package
from tests.helpers.cli import COMMAND, ROOT, lines, mvindex, ok, read_passages, schema, write_tsv

pytestmark = pytest.mark.needs("minilm")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with an index of 60 passages, among them number 201."""
    folder = tmp_path_factory.mktemp("cli")
    write_tsv(folder / "corpus.tsv", read_passages(60, first=170))
    done = ok(mvindex("ingest", "corpus.tsv", "--json", cwd=folder))
    report = json.loads(done.stdout)
    assert (report["added"], report["documents"], report["index"]) == (60, 60, "corpus.mvx")
    assert "dpr (detected)" in done.stderr
    return folder


def test_help_is_quick_to_import():
    code = (
        "import sys\n"
        "from typer.testing import CliRunner\n"
        "from mvindex.cli import app\n"
        "result = CliRunner().invoke(app, ['--help'])\n"
        "assert result.exit_code == 0 and 'ingest' in result.output\n"
        "heavy = {'torch', 'faiss', 'transformers', 'grpc', 'pyarrow', 'nltk', 'ir_measures'} & set(sys.modules)\n"
        "sys.exit(f'imported {heavy}' if heavy else 0)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_every_command_has_help_and_an_example(tmp_path):
    for command in (
        *("ingest", "query", "eval", "analyze", "get", "delete", "info", "build"),
        *("compact", "snapshot", "verify", "tune", "plan", "assemble", "families", "export-encoder"),
    ):
        shown = ok(mvindex(command, "-h", cwd=tmp_path)).stdout
        _, _, examples = shown.partition("\nExample")
        assert f"\n  mvindex {command}" in examples
        assert shown == ok(mvindex(command, "--help", cwd=tmp_path)).stdout
        assert max(map(len, shown.splitlines())) <= 80


def test_three_questions_find_three_views_of_one_passage(folder):
    questions = ROOT / "examples" / "squad" / "one_passage_three_views.tsv"
    results = lines(mvindex("query", "--queries", questions, "--top-k", "1", "--json", cwd=folder))
    for result in results:
        jsonschema.validate(result, schema("query_result"))
        (hit,) = result["hits"]
        assert hit["id"] == "201" and result["exact"] and result["short_by"] == 0
        begin, end = hit["span"]
        assert hit["text"][begin:end].strip() == hit["text"][begin:end] != ""
        cited = hit["citation"]
        assert hit["snippet"] == cited["text"]
        assert hit["text"][cited["start"] : cited["end"]] == cited["text"]
    assert len({result["hits"][0]["slot"] for result in results}) == 3
    assert "plains of Central Asia" in results[0]["hits"][0]["snippet"]


def test_ingesting_the_same_file_again_changes_nothing(folder):
    report = json.loads(ok(mvindex("ingest", "corpus.tsv", "--json", cwd=folder)).stdout)
    assert (report["added"], report["replaced"], report["unchanged"]) == (0, 0, 60)


def test_results_are_readable_and_explained(folder):
    done = ok(mvindex("query", "how did the plague spread?", "-k", "2", "--explain", cwd=folder))
    assert "how did the plague spread?" in done.stdout
    assert "slot" in done.stdout and "best" in done.stdout


def test_eval_reports_gold_answers_and_a_run(folder):
    questions = [
        {
            "id": "q1",
            "question": "Where did the black death originate?",
            "answers": ["Central Asia"],
            "passage_id": "201",
        },
        {"id": "q2", "question": "What is a word that is not there?", "answers": ["zyzzyva"], "passage_id": "999"},
    ]
    (folder / "questions.jsonl").write_text("".join(json.dumps(q) + "\n" for q in questions))
    (folder / "qrels.tsv").write_text("query-id\tcorpus-id\tscore\nq1\t201\t1\n")
    done = ok(
        mvindex(
            "eval", "--questions", "questions.jsonl", "--qrels", "qrels.tsv", "--trec", "run.trec", "--json", cwd=folder
        )
    )
    report = json.loads(done.stdout)
    jsonschema.validate(report, schema("eval"))
    assert report["gold"]["R@1"] == report["answer"]["R@1"] == 0.5
    assert report["qrels"]["nDCG@10"] == 1.0
    assert (report["questions"], report["documents"], report["gold_missing"]) == (2, 60, 1)
    first = (folder / "run.trec").read_text().splitlines()[0].split()
    assert first[:4] == ["q1", "Q0", "201", "1"]
    again = mvindex("eval", "--questions", "questions.jsonl", "--trec", "run.trec", cwd=folder)
    assert again.returncode == 1 and "run.trec" in again.stderr


def test_a_filter_of_conditions_compares_dates(tmp_path):
    days = ["2024-04-30T23:30:00Z", "2024-05-01", "2024-05-01T00:30:00+02:00", "2024-06-01T08:00:00", "May"]
    rows = [{"id": f"d{n}", "text": f"Passage number {n}.", "metadata": {"date": day}} for n, day in enumerate(days)]
    (tmp_path / "c.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    ok(mvindex("ingest", "c.jsonl", "--family", "single", cwd=tmp_path))
    for filter, expected in (
        ("date >= 2024-05-01", ["d1", "d3"]),
        ("date >= 2024-04-30T23:00Z and date < 2024-06", ["d0", "d1"]),
        ('{"date": {"lt": {"$date": "2024-05-01"}}}', ["d0", "d2"]),
    ):
        done = ok(mvindex("query", "passage", "--filter", filter, "--json", cwd=tmp_path))
        assert sorted(hit["id"] for hit in json.loads(done.stdout)["hits"]) == expected
    wrong = mvindex("query", "passage", "--filter", "date after 2024", cwd=tmp_path)
    assert wrong.returncode == 2 and "got 'date after 2024'" in wrong.stderr
    ok(mvindex("delete", "--filter", "date < 2024-05-01", cwd=tmp_path))
    assert json.loads(ok(mvindex("info", "--json", cwd=tmp_path)).stdout)["documents"] == 3


def test_get_delete_filter_info_and_build(tmp_path):
    rows = [{"id": f"d{n}", "text": f"Passage number {n}.", "metadata": {"year": 1990 + n}} for n in range(6)]
    (tmp_path / "c.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    ok(mvindex("ingest", "c.jsonl", "--family", "single", cwd=tmp_path))
    got = json.loads(ok(mvindex("get", "d2", "--json", cwd=tmp_path)).stdout)
    assert got == {"id": "d2", "title": "", "text": "Passage number 2.", "metadata": {"year": 1992}}
    missing = mvindex("get", "nope", cwd=tmp_path)
    assert missing.returncode == 1 and "'nope'" in missing.stderr
    done = ok(mvindex("query", "passage", "--filter", '{"year": {"gte": 1993}}', "--json", cwd=tmp_path))
    assert {hit["id"] for hit in json.loads(done.stdout)["hits"]} == {"d3", "d4", "d5"}
    assert json.loads(ok(mvindex("delete", "d0", "d1", "--json", cwd=tmp_path)).stdout)["deleted"] == 2
    ok(mvindex("delete", "--filter", '{"year": 1995}', cwd=tmp_path))
    ok(mvindex("build", "--kind", "hnsw", cwd=tmp_path))
    info = json.loads(ok(mvindex("info", "--json", cwd=tmp_path)).stdout)
    assert (info["documents"], info["kind"], info["encoder"]["family"]) == (3, "hnsw", "single")
    assert len(json.loads(ok(mvindex("query", "x", "--json", cwd=tmp_path)).stdout)["hits"]) == 3


def test_wrong_usage_is_2_and_our_errors_are_1_line_and_1(folder, tmp_path):
    for wrong in (["query"], ["ingest"], ["ingest", "corpus.tsv", "--on-error", "maybe"], ["nonsense"], ["tune", "x"],
                  ["query", "x", "--colour", "red"], ["delete"], ["build", "--kind", "ivf"],
                  ["ingest", "corpus.tsv", "--format", "xml"], ["query", "x", "--hybrid", "--fusion", "sum"],
                  ["eval", "--questions", "q", "--at", "one"], ["query", "x", "--output", "xml"],
                  ["eval", "--questions", "q", "--at", "0"], ["query", "x", "-k", "0"], ["query", "x", "--filter", "{"],
                  ["query", "x", "--diversity", "2"], ["query", "x", "--also", "y", "--combine", "median"],
                  ["compare", "a.run", "--qrels", "q"], ["sync", ".", "--check", "--dry-run"],
                  ["ingest", "corpus.tsv", "--include", "*.md"], ["ingest", "corpus.tsv", "--no-gitignore"],
                  ["tune", "--fusion", "--queries", "q", "--target-recall", ".98"],
                  ["tune", "--confidence", "q", "-k", "9"],
                  ["query", "x", "--json", "--output", "trec"], ["query", "x", "--output", "trec", "--trec", "a.run"],
                  ["info", "--output", "trec"], ["analyze", "corpus.mvx", "--index", "corpus.mvx"],
                  ["assemble", "corpus.mvx", "--index", "corpus.mvx"]):  # fmt: skip
        assert mvindex(*wrong, cwd=folder).returncode == 2, wrong
    for wrong in (["query", "x", "--index", "no.mvx"], ["ingest", "no.tsv"], ["query", " "],
                  ["ingest", "corpus.tsv", "--views", "3"]):  # fmt: skip
        done = mvindex(*wrong, cwd=folder)
        assert done.returncode == 1, wrong
        assert done.stderr.count("mvindex: ") == 1 and "Traceback" not in done.stderr, done.stderr
    nothing = mvindex("query", "x", cwd=tmp_path)
    assert nothing.returncode == 1 and "--index" in nothing.stderr


def test_results_as_tab_separated_values_and_as_a_run_have_the_same_documents(folder):
    arguments = ["query", "how did the plague spread?", "-k", "3"]
    (result,) = lines(mvindex(*arguments, "--json", cwd=folder))
    header, *rows = csv.reader(
        ok(mvindex(*arguments, "--output", "tsv", cwd=folder)).stdout.splitlines(), delimiter="\t"
    )
    table = [dict(zip(header, row, strict=True)) for row in rows]
    assert [(row["id"], row["rank"]) for row in table] == [
        (hit["id"], str(n + 1)) for n, hit in enumerate(result["hits"])
    ]
    assert [row["citation"].split() for row in table] == [hit["citation"]["text"].split() for hit in result["hits"]]
    run = ok(mvindex(*arguments, "--output", "trec", cwd=folder)).stdout.splitlines()
    assert [line.split()[2] for line in run] == [hit["id"] for hit in result["hits"]]


def test_a_person_reads_sentences_first(tmp_path):
    write_tsv(tmp_path / "corpus.tsv", read_passages(3))
    done = ok(mvindex("ingest", "corpus.tsv", cwd=tmp_path))
    assert done.stdout.startswith("corpus.mvx has 3 documents: 3 added, in ")
    assert 'Search it: mvindex query "your question" --index corpus.mvx\n' in done.stdout
    shown = ok(mvindex("info", cwd=tmp_path)).stdout
    assert shown.startswith("3 documents with ") and not re.search(r"^  [a-z ]+  none$", shown, re.MULTILINE)
    built = ok(mvindex("build", "--kind", "hnsw", cwd=tmp_path)).stdout
    assert built.startswith("The engine is now hnsw: ") and "mvindex tune" in built
    unchanged = ok(mvindex("ingest", "corpus.tsv", cwd=tmp_path)).stdout
    assert unchanged.startswith("corpus.mvx has 3 documents: 3 unchanged, in ")
    shown = ok(mvindex("info", "--output", "tsv", cwd=tmp_path)).stdout
    assert "documents\t3\n" in shown and "encoder.family\t" in shown


def test_an_index_that_is_not_named_or_not_there_is_an_error_that_says_what_to_do(tmp_path):
    assert "no *.mvx; mvindex ingest makes one" in mvindex("info", cwd=tmp_path).stderr
    assert (
        "(no current.json in it); mvindex ingest makes one" in mvindex("info", "--index", "a.mvx", cwd=tmp_path).stderr
    )
    (tmp_path / "a.mvx").mkdir()
    (tmp_path / "b.mvx").mkdir()
    assert "--index: expected one of a.mvx, b.mvx, as there are several" in mvindex("info", cwd=tmp_path).stderr


def test_output_that_an_encoding_lacks_is_escaped_in_json_and_an_error_elsewhere(tmp_path):
    with package.create(tmp_path / "a.mvx", dim=2) as index:
        index.add_views([package.Document("größer", "text")], [[1.0, 0.0]])
    ascii_only = {**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "1"}
    found = mvindex("get", "größer", "--json", cwd=tmp_path, env=ascii_only)
    assert found.stdout.isascii() and json.loads(found.stdout)["id"] == "größer"
    told = mvindex("get", "größer", cwd=tmp_path, env=ascii_only)
    assert told.returncode == 1 and "got ascii. Set PYTHONIOENCODING=utf-8" in told.stderr
    assert "Traceback" not in told.stderr


def test_a_file_in_place_of_an_index_names_the_commands_for_files(tmp_path):
    (tmp_path / "a.txt").write_text("a text")
    told = mvindex("info", "--index", "a.txt", cwd=tmp_path)
    assert (told.returncode, told.stdout) == (1, "")
    assert "expected the directory of an index, got a file. `mvindex ingest" in told.stderr


def test_a_file_without_documents_leaves_no_index_behind(tmp_path):
    (tmp_path / "empty.tsv").write_text("")
    (tmp_path / "broken.jsonl").write_text('{"id": "1"\n')
    for name in ("empty.tsv", "broken.jsonl"):
        done = mvindex("ingest", name, cwd=tmp_path)
        assert done.returncode == 1 and name in done.stderr
    assert not list(tmp_path.glob("*.mvx"))


def test_bad_rows_stop_the_run_or_go_to_a_rejects_file(tmp_path):
    rows = read_passages(5)
    path = write_tsv(tmp_path / "corpus.tsv", [*rows[:3], ["bad", "", ""], rows[3], rows[0]])
    done = mvindex("ingest", "corpus.tsv", cwd=tmp_path)
    assert done.returncode == 1 and "corpus.tsv:5" in done.stderr
    assert not (tmp_path / "corpus.mvx").exists()
    report = json.loads(ok(mvindex("ingest", "corpus.tsv", "--on-error", "skip", "--json", cwd=tmp_path)).stdout)
    assert (report["added"], report["rejected"]) == (4, 2)
    rejects = tmp_path / "corpus.rejects.tsv"
    with open(rejects, encoding="utf-8", newline="") as file:
        kept = list(csv.reader(file, delimiter="\t"))
    assert ["bad", "", ""] in kept and rows[0] in kept and kept[0] == ["id", "text", "title"]
    text = rejects.read_text(encoding="utf-8").replace("bad\t\t", "bad\tMended text.\t")
    (tmp_path / "mended.tsv").write_text(text, encoding="utf-8")
    again = json.loads(ok(mvindex("ingest", "mended.tsv", "--index", "corpus.mvx", "--json", cwd=tmp_path)).stdout)
    assert (again["added"], again["unchanged"]) == (1, 1)
    assert path.exists()


def test_two_devices_make_the_index_that_one_makes(tmp_path):
    corpus = tmp_path / "a.jsonl"
    rows = [{"id": str(number), "text": f"Number {number} is here. It was {number} before."} for number in range(20)]
    corpus.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    for name, options in {"one": ["--device", "cpu"], "two": ["--devices", "cpu,cpu"]}.items():
        ok(mvindex("ingest", str(corpus), "--index", str(tmp_path / name), *options, cwd=tmp_path))
    with package.open(tmp_path / "one") as one, package.open(tmp_path / "two") as two:
        assert [document.id for document in two] == [row["id"] for row in rows]
        expected, found = (index.views([row["id"] for row in rows]) for index in (one, two))
        assert all(np.array_equal(found[own].vectors, expected[own].vectors) for own in expected)
    refused = mvindex("ingest", str(corpus), "--device", "cpu", "--devices", "0", cwd=tmp_path)
    assert refused.returncode == 2 and "give one of the two" in refused.stderr


def test_stdin_and_compressed_input(tmp_path):
    import gzip

    rows = "".join(json.dumps({"_id": str(n), "title": "", "text": f"Text {n}."}) + "\n" for n in range(3))
    packed = gzip.compress(rows.encode())
    done = ok(mvindex("ingest", "-", "--index", "s.mvx", "--json", cwd=tmp_path, input=packed, text=False))
    assert json.loads(done.stdout)["added"] == 3
    nameless = mvindex("ingest", "-", cwd=tmp_path, input=rows)
    assert nameless.returncode == 1 and "--index" in nameless.stderr


def count_documents(path):
    if not (path / "current.json").exists():
        return 0
    with package.open(path) as index:
        return len(index)


@pytest.mark.parametrize("number", [pytest.param(signal.SIGINT, marks=pytest.mark.long), signal.SIGKILL])
@pytest.mark.full
def test_an_interrupted_ingest_goes_on_where_it_was(tmp_path, number):
    """Ctrl-C ends at a chunk boundary with a summary; after either, the same command completes the index."""
    # Three chunks: the second is being encoded when the first is seen, and the third is left.
    write_tsv(tmp_path / "corpus.tsv", [[str(n), f"Number {n}.", ""] for n in range(2100)])
    command = [*COMMAND, "ingest", "corpus.tsv", "--json"]
    running = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 240
    while not count_documents(tmp_path / "corpus.mvx") and time.monotonic() < deadline:
        time.sleep(0.2)
    os.kill(running.pid, number)
    out, err = running.communicate(timeout=240)
    if number == signal.SIGINT:
        report = json.loads(out)
        assert running.returncode == 1 and report["stopped"] and 0 < report["added"] < 2100
        assert "same command" in err
    done = json.loads(ok(mvindex("ingest", "corpus.tsv", "--json", cwd=tmp_path)).stdout)
    assert done["documents"] == 2100 and done["unchanged"] > 0 and not done["stopped"]
    assert done["added"] + done["unchanged"] == 2100


def test_a_cursor_goes_on_in_the_numbers_of_the_page_before(folder):
    first = ok(mvindex("query", "oil", "--index", "corpus.mvx", "-k", "3", "--cursor", "", "--json", cwd=folder))
    cursor = json.loads(first.stdout)["next"]
    done = ok(mvindex("query", "oil", "--index", "corpus.mvx", "-k", "3", "--cursor", cursor, cwd=folder))
    assert "\n  4. " in done.stdout and "\n  1. " not in done.stdout
