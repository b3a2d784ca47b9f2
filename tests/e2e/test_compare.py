"""Evaluation of folders as BEIR's, and comparison of runs, from the command line."""

import gzip
import json
import re

import jsonschema
import pytest

from tests.helpers.cli import lines, mvindex, ok, read_passages, schema

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
    assert refused.returncode == 2 and "k from 1 to 1,000,000" in refused.stderr
    refused = mvindex("eval", "--questions", "beir/queries.jsonl", "--measure", "P@5", cwd=folder)
    assert refused.returncode == 2 and "--measure: needs judgements" in refused.stderr
    refused = mvindex("eval", "--questions", "beir", "--split", "train", cwd=folder)
    assert refused.returncode == 1 and "it has dev.tsv, test.tsv" in refused.stderr
    (folder / "others.qrels").write_text("query-id\tcorpus-id\tscore\nz1\t1\t1\n")
    refused = mvindex("eval", "--questions", "beir/queries.jsonl", "--qrels", "others.qrels", "--json", cwd=folder)
    told = "others.qrels: expected judgements of these 30 questions, got 1 of other ids"
    assert refused.returncode == 1 and told in refused.stderr
    done = ok(mvindex("eval", "--questions", "beir/queries.jsonl", "--json", cwd=folder))
    assert "nothing was measured" in done.stderr
    (folder / "empty").mkdir(exist_ok=True)
    refused = mvindex("ingest", "empty", cwd=folder)
    assert refused.returncode == 1 and "empty: no file can be read" in refused.stderr
    refused = mvindex("eval", "--questions", "empty", "--index", "beir.mvx", cwd=folder)
    assert refused.returncode == 1 and "BEIR" in refused.stderr


def test_judged_questions_that_are_not_asked_count_for_nothing_in_measures_and_in_the_gate(folder):
    asked = (folder / "beir" / "queries.jsonl").read_text().splitlines(keepends=True)
    (folder / "some.jsonl").write_text("".join(asked[:12]))
    command = ("eval", "--questions", "some.jsonl", "--qrels", "beir/qrels/test.tsv", "--index", "beir.mvx")
    done = ok(
        mvindex(*command, "--mode", "dense", "--baseline", "dense.run", "--compare", "dense.run", "--json", cwd=folder)
    )
    report = json.loads(done.stdout)
    assert (report["unasked"], report["counts"]["qrels"]) == (18, 12)
    assert "18 judged questions were not asked" in done.stderr
    for compared in report["gate"]["baseline"], report["compared"]:
        assert [each["difference"] for each in compared["comparisons"]] == [0.0]
        assert {round(each["mean"], 4) for each in compared["runs"]} == {report["qrels"]["nDCG@10"]}


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
    command = ("compare", "dense.run", "lexical.run", "--qrels", "beir/qrels/test.tsv", "--output", "tsv")
    names, values = (line.split("\t") for line in ok(mvindex(*command, cwd=folder)).stdout.splitlines())
    assert dict(zip(names, values, strict=True)) == {
        **{name: str(value) for name, value in pair.items()},
        "first_mean": str(means["dense.run"]),
        "second_mean": str(means["lexical.run"]),
    }


def test_of_one_judged_question_no_error_is_known(folder):
    (folder / "one.tsv").write_text("".join((folder / "beir/qrels/test.tsv").read_text().splitlines(keepends=True)[:2]))
    command = ("compare", "dense.run", "lexical.run", "--qrels", "one.tsv")
    assert '"error": null' in ok(mvindex(*command, "--json", cwd=folder)).stdout
    assert "\u00b1" not in ok(mvindex(*command, cwd=folder)).stdout


def test_an_unwritable_summary_is_an_error_before_anything_is_measured(folder):
    command = ("eval", "--questions", "beir", "--mode", "dense", "--fail-below", "R@1=1", "--summary")
    refused = mvindex(*command, "nowhere/s.md", cwd=folder)
    assert refused.returncode == 1 and "nowhere/s.md: No such file" in refused.stderr and not refused.stdout


def test_a_gate_ends_an_evaluation_below_its_values(folder):
    command = ("eval", "--questions", "beir", "--mode", "dense")
    [report] = lines(mvindex(*command, "--json", cwd=folder))
    value = report["qrels"]["nDCG@10"]
    below, above = f"nDCG@10={value - 0.01:.4f}", f"qrels.nDCG@10={min(1.0, value + 0.01):.4f}"
    passed = mvindex(*command, "--fail-below", below, "--fail-below", "R@7=0", "--json", cwd=folder)
    assert passed.returncode == 0 and passed.stderr.count("passed qrels.") == 2
    [report] = lines(passed)
    jsonschema.validate(report, schema("eval"))
    assert report["gate"]["passed"] and "R@7" in report["qrels"]
    refused = mvindex(*command, "--fail-below", below, "--fail-below", above, cwd=folder)
    assert refused.returncode == 3
    assert f"FAILED qrels.nDCG@10: {value:.4f} < " in refused.stderr and "passed qrels.nDCG@10" in refused.stderr
    options = ("--fail-below", "P(rel=1)@5=1", "--summary", "s.md", "--json")
    again = [mvindex(*command, *options, cwd=folder) for _ in range(2)]
    assert {each.returncode for each in again} == {3}
    text = (folder / "s.md").read_text()
    assert (
        text.count("## mvindex eval: FAILED") == 2 and "| qrels P(rel=1)@5 | 30 |" in text and "| 1 | FAILED |" in text
    )


def test_a_gate_knows_what_is_worse_than_a_baseline(folder):
    rows = [line.split() for line in (folder / "dense.run").read_text().splitlines()]
    worst = [(question, doc_id, str(100 + int(rank))) for question, _, doc_id, rank, _, _ in rows]
    (folder / "worst.run").write_text("".join(f"{q} Q0 {d} 1 {score} x\n" for q, d, score in worst))
    command = ("eval", "--questions", "beir", "--mode", "dense", "--measure", "MRR@10")
    same = mvindex(*command, "--baseline", "dense.run", "--json", cwd=folder)
    assert same.returncode == 0 and "passed MRR@10 against dense.run: +0.0000, corrected p 1.0000" in same.stderr
    better = mvindex(*command, "--baseline", "worst.run", "--json", cwd=folder)
    [pair] = lines(better)[0]["gate"]["baseline"]["comparisons"]
    assert better.returncode == 0 and pair["difference"] > 0 and pair["p_corrected"] < 0.05
    assert "hits a question" not in same.stderr
    (folder / "short.run").write_text("".join(f"{q} Q0 {d} 1 {s} x\n" for q, _, d, r, s, _ in rows if int(r) <= 5))
    short = mvindex(*command, "--measure", "R@5", "--baseline", "short.run", cwd=folder)
    told = "--baseline short.run: has up to 5 hits a question, this run 40; MRR@10 is compared as they are"
    assert told in short.stderr and "R@5 is compared" not in short.stderr
    # What is measured is the worse one of both: questions whose words are all the same.
    queries = [json.loads(line) for line in (folder / "beir" / "queries.jsonl").read_text().splitlines()]
    (folder / "blind.jsonl").write_text("".join(json.dumps({**each, "text": "the of"}) + "\n" for each in queries))
    blind = ("eval", "--questions", "blind.jsonl", "--qrels", "beir/qrels/test.tsv", "--mode", "dense")
    worse = mvindex(*blind, "--baseline", "dense.run", "--summary", "w.md", "--json", cwd=folder)
    assert worse.returncode == 3 and "FAILED nDCG@10 against dense.run: -" in worse.stderr
    assert re.search(
        r"\| nDCG@10 \| [0-9.]+ \| [0-9.]+ \| -[0-9.]+ ± [0-9.]+ \| [0-9.]+ \| FAILED \|", (folder / "w.md").read_text()
    )


def test_a_gate_reads_gold_passages_where_there_are_no_judgements(folder):
    rows = [json.loads(line) for line in (folder / "beir" / "queries.jsonl").read_text().splitlines()]
    gold = [{"id": each["_id"], "question": each["text"], "passage_id": each["_id"][1:]} for each in rows]
    (folder / "gold.jsonl").write_text("".join(json.dumps(each) + "\n" for each in gold))
    command = ("eval", "--questions", "gold.jsonl", "--index", "beir.mvx", "--json")
    done = mvindex(*command, "--baseline", "dense.run", "--fail-below", "R@1=0.1", cwd=folder)
    assert done.returncode == 0 and "passed gold.R@1" in done.stderr and "R@1 against dense.run" in done.stderr
    refused = mvindex(*command, "--fail-below", "nDCG@10=.1", cwd=folder)
    report = json.loads(refused.stdout)
    assert report["gold"] == lines(done)[0]["gold"] and "gate" not in report
    assert refused.returncode == 1 and "expected a measure of this evaluation, gold.R@1" in refused.stderr
    (folder / "other.run").write_text("z Q0 d 1 1 x\n")
    refused = mvindex(*command, "--baseline", "other.run", cwd=folder)
    assert refused.returncode == 1 and "expected a run of these questions" in refused.stderr


def test_wrong_usage_is_named(folder):
    for arguments, message in (
        (("compare", "dense.run", "lexical.run"), "either --qrels FILE or --questions FILE"),
        (("compare", "dense.run", "dense.run", "--qrels", "beir/qrels/test.tsv"), "each run once"),
        (("eval", "--questions", "beir/queries.jsonl", "--compare", "dense.run"), "needs judgements"),
        (("eval", "--questions", "beir", "--fail-below", "R@1"), "MEASURE=VALUE"),
        (("eval", "--questions", "beir", "--trec", "-"), "--trec -: expected a file"),
        (("query", "x", "--trec", "-", "--json"), "--trec -: expected a file"),
        (("eval", "--questions", "beir", "--fail-below", "R@1=85"), "a value from 0 to 1"),
        (("eval", "--questions", "beir", "--fail-below", "R@1=nan"), "a value from 0 to 1"),
        (("eval", "--questions", "beir", "--fail-below", "Recal@1=.5"), "expected nDCG, AP, RR"),
        (("eval", "--questions", "beir", "--fail-below", "golden.R@1=.5"), "expected a section gold, answer"),
    ):
        refused = mvindex(*arguments, cwd=folder)
        assert refused.returncode == 2 and message in " ".join(refused.stderr.split())
