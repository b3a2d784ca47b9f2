"""Evaluation of folders as BEIR's, and comparison of runs, from the command line."""

import gzip
import json

import pytest

from tests.helpers.cli import lines, mvindex, ok, read_passages

pytestmark = pytest.mark.needs("minilm")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder of the BEIR layout, its index, and two runs."""
    folder = tmp_path_factory.mktemp("compare")
    beir = folder / "beir"
    (beir / "qrels").mkdir(parents=True)
    rows = read_passages(40, first=190)
    documents = [{"_id": row[0], "title": row[2], "text": row[1]} for row in rows]
    with gzip.open(beir / "corpus.jsonl.gz", "wt") as file:
        file.writelines(json.dumps(each) + "\n" for each in documents)
    queries = [{"_id": f"q{row[0]}", "text": " ".join(row[1].split()[5:9])} for row in rows[:30]]
    (beir / "queries.jsonl").write_text("".join(json.dumps(each) + "\n" for each in queries))
    judged = "".join(f"q{row[0]}\t{row[0]}\t1\n" for row in rows[:30])
    (beir / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\n" + judged)
    (beir / "qrels" / "dev.tsv").write_text("".join(judged.splitlines(keepends=True)[:20]))
    ok(mvindex("ingest", "beir", "--index", "beir.mvx", cwd=folder))
    for mode in ("dense", "lexical"):
        ok(mvindex("eval", "--questions", "beir", "--mode", mode, "--trec", f"{mode}.run", "--json", cwd=folder))
    return folder


def test_a_beir_folder_is_corpus_questions_and_judgements(folder):
    [report] = lines(mvindex("eval", "--questions", "beir", "--json", cwd=folder))
    assert (report["questions"], report["counts"]["qrels"], report["documents"]) == (30, 30, 40)
    [dev] = lines(mvindex("eval", "--questions", "beir", "--split", "dev", "--json", cwd=folder))
    assert (dev["counts"]["qrels"], dev["unjudged"]) == (20, 10)
    [deep] = lines(mvindex("eval", "--questions", "beir", "--at", "2,40", "--measure", "P@5", "--json", cwd=folder))
    assert list(deep["qrels"]) == ["nDCG@10", "MRR@10", "R@100", "R@2", "R@40", "P@5"]
    # All 40 documents are seen, the one that is relevant among them, and it is one of the first five at most.
    assert deep["qrels"]["R@40"] == 1 and deep["qrels"]["R@2"] <= 5 * deep["qrels"]["P@5"] + 1e-3 <= 1.001
    refused = mvindex("eval", "--questions", "beir", "--measure", "nDCG@0", cwd=folder)
    assert refused.returncode == 1 and "expected a cut-off from 1 to 1,000,000" in refused.stderr
    refused = mvindex("eval", "--questions", "beir/queries.jsonl", "--measure", "P@5", cwd=folder)
    assert refused.returncode == 2 and "--measure: needs judgements" in refused.stderr
    refused = mvindex("eval", "--questions", "beir", "--split", "train", cwd=folder)
    assert refused.returncode == 1 and "it has dev.tsv, test.tsv" in refused.stderr
    (folder / "empty").mkdir(exist_ok=True)
    refused = mvindex("ingest", "empty", cwd=folder)
    assert refused.returncode == 1 and "empty: no file can be read" in refused.stderr
    refused = mvindex("eval", "--questions", "empty", "--index", "beir.mvx", cwd=folder)
    assert refused.returncode == 1 and "BEIR" in refused.stderr


def test_a_beir_folder_is_analyzed(folder):
    command = ("analyze", "--index", "beir.mvx", "--questions", "beir", "--split", "dev", "--attention-documents", "0")
    [report] = lines(mvindex(*command, "--json", cwd=folder))
    assert (report["questions"]["target"], report["questions"]["used"]) == ("gold", 20)


def test_runs_are_compared_and_so_is_an_evaluation(folder):
    [report] = lines(
        mvindex("compare", "dense.run", "lexical.run", "--qrels", "beir/qrels/test.tsv", "--json", cwd=folder)
    )
    assert lines(mvindex("compare", "dense.run", "lexical.run", "--questions", "beir", "--json", cwd=folder)) == [
        report
    ]
    [dev] = lines(
        mvindex("compare", "dense.run", "lexical.run", "--questions", "beir", "--split", "dev", "--json", cwd=folder)
    )
    assert (report["questions"], dev["questions"]) == (30, 20)
    means = {each["run"]: each["mean"] for each in report["runs"]}
    for mode in ("dense", "lexical"):
        [own] = lines(mvindex("eval", "--questions", "beir", "--mode", mode, "--json", cwd=folder))
        assert means[f"{mode}.run"] == pytest.approx(own["qrels"]["nDCG@10"], abs=1e-4)
    [pair] = report["comparisons"]
    assert pair["difference"] == pytest.approx(means["lexical.run"] - means["dense.run"])
    [hybrid] = lines(
        mvindex(
            *(
                "eval",
                "--questions",
                "beir",
                "--compare",
                "dense.run",
                "--compare",
                "lexical.run",
                "--measure",
                "MRR@10",
            ),
            "--json",
            cwd=folder,
        )
    )
    assert [each["second"] for each in hybrid["compared"]["comparisons"]] == ["lexical.run", "this"]
    shown = ok(mvindex("compare", "dense.run", "lexical.run", "--qrels", "beir/qrels/test.tsv", cwd=folder)).stdout
    assert "lexical.run" in shown and f"{pair['p']:.4f}" in shown


def test_wrong_usage_is_named(folder):
    for arguments, message in (
        (("compare", "dense.run", "lexical.run"), "either --qrels FILE or --questions FILE"),
        (("compare", "dense.run", "dense.run", "--qrels", "beir/qrels/test.tsv"), "each run once"),
        (("eval", "--questions", "beir/queries.jsonl", "--compare", "dense.run"), "needs judgements"),
    ):
        refused = mvindex(*arguments, cwd=folder)
        assert refused.returncode == 2 and message in " ".join(refused.stderr.split())
