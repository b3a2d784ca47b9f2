"""The pure parts of the papers' studies: what is shared, what is measured, and what may be said of it."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
BENCH = Path(__file__).parents[3] / "bench"
sys.path.insert(0, str(BENCH))

from studies_parts.agreement import (  # noqa: E402 - only where torch and the folder are
    COLLAPSED,
    Difference,
    Verdict,
    collapse_label,
    difference,
    figure,
    judge,
    values,
)
from studies_parts.claims import CLAIMS, Above, Claim, Within, falling  # noqa: E402 - as above
from studies_parts.data import Questions  # noqa: E402 - as above
from studies_parts.measures import (  # noqa: E402 - as above
    answer_view_ranks,
    single_views,
    winning_slots,
)
from studies_parts.report import MARKED, write_report  # noqa: E402 - as above
from studies_parts.results import is_done, read_results  # noqa: E402 - as above
from studies_parts.rows import ORDER, TABLES, all_rows  # noqa: E402 - as above
from studies_parts.settings import Plan, Size, config_of, settings_hash  # noqa: E402 - as above
from studies_parts.weights import weight_figures  # noqa: E402 - as above

from mvindex.records import Document, Views  # noqa: E402 - as above
from mvindex_train.config import LossConfig  # noqa: E402 - as above
from mvindex_train.evaluation import DevSet  # noqa: E402 - as above
from mvindex_train.losses import epoch_tau  # noqa: E402 - as above


def row_of(key):
    (found,) = [row for row in all_rows() if row.key == key]
    return found


def config(key, train="train.jsonl", **plan):
    return config_of(row_of(key), Plan(**plan), train, None)


def views_of(*documents, spans=None):
    """Views of these documents, each a list of vectors."""
    rows = np.array([row for document in documents for row in document], dtype=np.float32)
    starts = np.cumsum([0, *map(len, documents)])
    return Views(rows, starts, np.array(spans if spans else [(0, 1)] * len(rows)))


def result(ranks, **more):
    return {"ranks": ranks, "lv": [0.5] * len(ranks), "ppl": [2.0], "label": "", **more}


# What is trained


def test_rows_of_equal_settings_share_a_training_run():
    k8 = settings_hash(config("mvr-table-2/k=8/small"))
    same = (
        "mvr-table-3/MVR/small",
        "mvr-table-5/MVR/small",
        "mvr-table-6/MVR/small",
        "mvr-table-8/lambda = 0.01/small",
    )
    assert {settings_hash(config(key)) for key in same} == {k8}
    assert settings_hash(config("mvr-table-2/k=8/small", train="/elsewhere/train.jsonl")) == k8


@pytest.mark.parametrize("change", ["form", "seed", "steps", "row"])
def test_rows_of_other_settings_share_none(change):
    k8 = settings_hash(config("mvr-table-2/k=8/small"))
    # The number of steps is that of the passages trained on, which the file's name says.
    other = {
        "form": lambda: config("mvr-table-2/k=8/paper"),
        "seed": lambda: config("mvr-table-2/k=8/small", seed=1),
        "steps": lambda: config("mvr-table-2/k=8/small", train="more.jsonl"),
        "row": lambda: config("mvr-table-8/lambda = 0.05/small"),
    }
    assert settings_hash(other[change]()) != k8


def test_a_small_run_has_as_many_passages_as_its_steps_take_in_three_epochs():
    assert Plan(steps=18).num_passages() == 48  # 6 batches of 8 passages, three times
    assert Plan(size=Size.FULL).num_passages() is None


def test_annealed_tau_falls_to_its_floor_after_the_first_of_three_epochs():
    # alpha = 0.1 * 40 / 3: exp(-4 / 3) = 0.264 lies below the floor.
    annealed = config("mvr-table-2/k=8/small").loss
    assert [epoch_tau(annealed, epoch) for epoch in range(3)] == [1.0, 0.3, 0.3]
    fixed = config("mvr-table-3/without annealing (tau = 1)/small").loss
    assert [epoch_tau(fixed, epoch) for epoch in range(3)] == [1.0, 1.0, 1.0]


def test_the_papers_form_has_raw_products_and_viewers_that_read_everything():
    for key in ("mvr-table-2/k=8/paper", "camvr-table-5/n=8/paper"):
        encoder, loss = config(key).encoder, config(key).loss
        assert (encoder.normalise, encoder.pooling, encoder.own_snippet, encoder.residual) == (False, "cls", False, 0)
        assert (encoder.viewer_init, loss.scale) == ("random", 1.0)


def test_only_refreshed_rows_mine_negatives_anew():
    for row in all_rows():
        made = config_of(row, Plan(), "train.jsonl", None)
        assert (made.refresh_epochs is not None) == ("refreshed" in row.name)
        assert (made.data.hard_negatives > 0) == ("refreshed" in row.name)


def test_every_line_of_every_table_is_run_in_both_forms():
    keys = [row.key for row in all_rows()]
    assert len(keys) == len(set(keys)) == 2 * sum(map(len, TABLES.values()))
    assert {pattern.partition("/")[0] for pattern, _ in ORDER} == TABLES.keys()


def test_a_row_is_named_by_study_name_and_form():
    row = row_of("mvr-table-2/k=4/paper")
    assert row.is_named("mvr-table-2") and row.is_named("mvr-table-2/k=4") and row.is_named("mvr-table-2/k=4/paper")
    assert not row.is_named("mvr-table-2/k=4/small") and not row.is_named("mvr-table")
    assert not any("," in row.key for row in all_rows())  # --only cuts at commas


def test_claims_are_of_rows_that_there_are():
    for claim in CLAIMS:
        names = {line.name for line in TABLES[claim.study]}
        for test in claim.tests:
            assert {test.higher, test.lower} <= names if isinstance(test, Above) else test.row in names


# What is measured


def test_the_winning_slot_is_the_first_of_the_best_views():
    random = np.random.default_rng(0)
    views = views_of(*(random.normal(size=(count, 5)) for count in (1, 4, 2, 7)), [[1.0] * 5] * 3)
    queries = random.normal(size=(6, 5)).astype(np.float32)
    found = winning_slots(views, queries)
    for number, query in enumerate(queries):
        for row in range(len(views)):
            scores = [float(view @ query) for view in views.rows[views.starts[row] : views.starts[row + 1]]]
            assert found[number, row] == scores.index(max(scores))


def test_a_view_alone_is_ranked_among_the_documents_that_have_it():
    # Slot 0: documents 0 and 1; slot 1: document 1 alone. The question asks along the first axis, for document 0.
    views = views_of([[1.0, 0]], [[2.0, 0], [0, 1]])
    queries = np.array([[1.0, 0], [0, 1]], dtype=np.float32)
    first, second = single_views(views, queries, [np.array([0]), np.array([1])], LossConfig())
    # Slot 0: 1 against 2 for question 0, second; 0 against 0 for question 1, whose positive comes after document 0.
    assert first == {"slot": 1, "documents": 2, "questions": 2, "R@1": 0.0, "R@5": 1.0}
    assert second == {"slot": 2, "documents": 1, "questions": 1, "R@1": 1.0, "R@5": 1.0}


def test_an_answer_view_is_a_winning_view_whose_text_has_the_answer():
    documents = [Document("0", "Ada wrote. Bob read."), Document("1", "Eve ran. Bob sat.")]
    spans = [(0, 10), (11, 20), (0, 8), (9, 17)]
    views = views_of([[4.0, 0], [0, 3]], [[3.0, 0], [0, 4]], spans=spans)
    queries = np.array([[1.0, 0], [0, 1], [1, 0]], dtype=np.float32)
    dev = DevSet(documents, ["who wrote?", "who read?", "who sat?"], [np.array([0]), np.array([0]), np.array([1])])
    asked = Questions(dev, [("Ada",), ("read",), ("sat",)])
    # 0: document 0 wins with its first view, which has Ada. 1: document 1 comes first, with "Bob sat.", then document 0
    # with "Bob read.". 2: both win with their first views, and neither says "sat", though document 1 does.
    assert answer_view_ranks(views, queries, asked, LossConfig()) == [1, 2, 0]
    whole = replace(views, spans=np.repeat([(0, 20), (0, 17)], 2, axis=0))
    assert answer_view_ranks(whole, queries, asked, LossConfig()) is None


def test_weight_figures_are_means_over_questions():
    # Equal scores: weights 1/2 and 1/2. Scores 40 and 0 at T = 1: 1 and, but for 1e-15, 0; their variance is 1/4.
    views = views_of([[1.0, 1], [1, 1]], [[40.0, 0], [0, 0]])
    found = weight_figures(views, np.array([[1.0, 0], [1, 0]]), [0, 1], 1.0)
    assert found == {"greatest": 0.75, "variance": 0.125}


# What may be said of it


def test_a_difference_is_paired_over_questions():
    # Hits at 5: 1 1 1 0 against 0 1 0 0. Gaps 100, 0, 100, 0: mean 50, deviation 57.735, error 57.735 / 2.
    gap = difference([result([1, 5, 2, 9])], [result([6, 1, 7, 9])], "R@5")
    assert (gap.mean, gap.error) == pytest.approx((50.0, 28.8675), abs=1e-3)
    assert gap.verdict is Verdict.NOISE


@pytest.mark.parametrize(
    ("mean", "error", "expected"),
    [(2.1, 1.0, Verdict.AGREES), (2.0, 1.0, Verdict.NOISE), (-2.1, 1.0, Verdict.DISAGREES), (0.0, 0.0, Verdict.NOISE)],
)
def test_a_difference_counts_beyond_two_standard_errors(mean, error, expected):
    assert Difference(mean, error).verdict is expected


def test_seeds_are_averaged_question_by_question():
    assert values([result([1, 2]), result([9, 2])], "R@1").tolist() == [50.0, 0.0]
    assert values([result([1, 4])], "MRR").tolist() == [100.0, 25.0]
    found = values([result([1, 1], answer_view_ranks=[0, 3])], "AV@5")
    assert found.tolist() == [0.0, 100.0]  # 0 is not found


def test_rows_of_other_questions_are_not_compared():
    with pytest.raises(ValueError, match="expected rows of the same questions, got 3 and 2 values"):
        difference([result([1, 2, 3])], [result([1, 2])], "R@5")


CLAIM = Claim("mvr-table-2", "a above b above c", "", falling("R@5", "a", "b", "c"))
GOOD, HALF, BAD = [1] * 40, [1, 9] * 20, [9] * 40


@pytest.mark.parametrize(
    ("a", "b", "c", "expected"),
    [
        (GOOD, HALF, BAD, Verdict.AGREES),
        (GOOD, BAD, HALF, Verdict.DISAGREES),
        (GOOD, GOOD, BAD, Verdict.NOISE),
        (HALF, GOOD, GOOD, Verdict.DISAGREES),
    ],
)
def test_a_claim_holds_when_all_of_it_does(a, b, c, expected):
    rows = {name: [result(ranks)] for name, ranks in (("a", a), ("b", b), ("c", c))}
    assert judge(CLAIM, rows)[0] is expected
    assert judge(CLAIM, {name: rows[name] for name in "ab"}) == (Verdict.NOT_RUN, [])


def test_nothing_is_said_of_collapsed_rows_but_that_they_collapse():
    rows = {name: [result(ranks)] for name, ranks in (("a", GOOD), ("b", HALF), ("c", BAD))}
    rows["b"] = [result(HALF, label=COLLAPSED)]
    assert judge(CLAIM, rows)[0] is Verdict.COLLAPSED
    assert judge(replace(CLAIM, of_collapse=True), rows)[0] is Verdict.AGREES


@pytest.mark.parametrize(
    ("cosine", "lv", "expected"),
    [(0.981, 0.2, COLLAPSED), (0.98, 0.2, ""), (0.5, 0.009, COLLAPSED), (0.5, 0.01, ""), (None, None, "")],
)
def test_collapse_is_a_cosine_above_98_or_a_variation_below_01(cosine, lv, expected):
    assert collapse_label(cosine, lv) == expected


def test_figures_of_views_alone_leave_out_slots_that_few_documents_have():
    views = [{"documents": count, "R@5": share} for count, share in ((10, 0.6), (9, 0.7), (4, 0.1))]
    rows = [result([1, 1, 1, 1, 9], single_views=views)]  # R@5 is 80
    assert figure(rows, "spread of single views") == pytest.approx(10)
    assert figure(rows, "all views over the best single one") == pytest.approx(10)
    assert figure([result([1])], "spread of single views") is None
    kl = [result([1], attention_kl={"least": 0.1, "mean": 0.2, "greatest": 0.4})]
    assert (figure(kl, "least KL"), figure(kl, "greatest KL")) == (0.1, 0.4)


def test_a_bound_is_held_or_not():
    claim = Claim("s", "w", "", (Within("least KL", "a", least=0.07, most=1.0),))
    rows = {"a": [result([1], attention_kl={"least": 0.06})]}
    assert judge(claim, rows) == (Verdict.DISAGREES, [0.06])
    rows["a"][0]["attention_kl"]["least"] = 0.07
    assert judge(claim, rows) == (Verdict.AGREES, [0.07])


# What is written


def written_row(**more):
    head = {"study": "mvr-table-2", "row": "k=4", "form": "small", "seed": 0, "size": "small", "settings_hash": "abc"}
    return head | {
        "steps": 18, "questions": 2, "documents": 2, "R@5": 1.0, "view_cosine": 0.5, "views": 4.0, "date": "2020-02-02",
        "cpu": "one", "versions": {"mvindex": "1"}, **result([1, 2]), **more,
    }  # fmt: skip


def test_the_last_result_of_a_row_counts_and_other_settings_are_run_again(tmp_path):
    path = tmp_path / "results.jsonl"
    assert read_results(path) == []
    rows = [written_row(settings_hash="old"), written_row(seed=1), written_row()]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = read_results(path)
    assert [(row["seed"], row["settings_hash"]) for row in found] == [(0, "abc"), (1, "abc")]
    row = row_of("mvr-table-2/k=4/small")
    assert is_done(found, row, Plan(), "abc") and not is_done(found, row, Plan(), "old")
    assert not is_done(found, row, Plan(seed=2), "abc") and not is_done(found, row, Plan(size=Size.FULL), "abc")
    assert not is_done(found, row_of("mvr-table-2/k=4/paper"), Plan(), "abc")


def marked_places(*names):
    return "".join(f"Before {name}.\n<!-- {name} -->\nold\n<!-- end -->\nAfter.\n" for name in names)


def test_the_report_writes_between_the_marks_and_nowhere_else(tmp_path):
    marks = marked_places("summary", *TABLES)
    page, path = tmp_path / "studies.md", tmp_path / "results.jsonl"
    page.write_text(marks)
    other = written_row(row="k=1 (DPR)", ranks=[9, 9], view_cosine=None, lv=[None, None])
    path.write_text(json.dumps(written_row()) + "\n" + json.dumps(other) + "\n")
    write_report(path, page, tmp_path / "rows.tsv")
    text = page.read_text()
    assert MARKED.sub("", text) == MARKED.sub("", marks) and "old" not in text
    rows = [line.split("\t") for line in (tmp_path / "rows.tsv").read_text().splitlines()]
    first = [row[1:] for row in rows if row[0] == "mvr-table-2"]
    assert first[:2] == [
        ["k=1 (DPR)", "small", "R@5 66.2; R@20 76.8; R@100 85.2", "0.0 / 0.0 / 100.0", "11.1", "-", "2.00", "-", ""],
        [
            "k=4",
            "small",
            "R@5 68.5; R@20 78.5; R@100 85.8",
            "50.0 / 100.0 / 100.0",
            "75.0",
            "0.500",
            "2.00",
            "0.500",
            "",
        ],
    ]
    not_run = [(row[0], row[1]) for row in first if row[-1] == "not run"]
    assert [name for name, form in not_run if form == "small"] == ["k=8", "k=12", "ME-BERT k=8"]
    assert sorted({form for _, form in not_run}) == ["paper", "small"] and all(len(row) == 10 for row in rows)
    write_report(path, page, tmp_path / "rows.tsv")
    assert page.read_text() == text
    page.write_text(marked_places("summary", *(study for study in TABLES if study != "mvr-table-8")))
    with pytest.raises(ValueError, match="no marked place for mvr-table-8"):
        write_report(path, page, tmp_path / "rows.tsv")


def test_the_page_has_a_place_for_every_study():
    text = (BENCH.parent / "docs/explanation/studies.md").read_text(encoding="utf-8")
    assert {match["name"] for match in MARKED.finditer(text)} == {"summary", *TABLES}


def test_the_committed_results_are_what_the_page_says(tmp_path):
    docs = BENCH.parent / "docs"
    page = tmp_path / "studies.md"
    page.write_text((docs / "explanation/studies.md").read_text(encoding="utf-8"), encoding="utf-8")
    write_report(docs / "studies/results.jsonl", page, tmp_path / "rows.tsv")
    assert page.read_text(encoding="utf-8") == (docs / "explanation/studies.md").read_text(encoding="utf-8")
    assert (tmp_path / "rows.tsv").read_text("utf-8") == (docs / "studies/rows.tsv").read_text("utf-8")


def test_the_nightly_script_says_how_it_is_used():
    found = subprocess.run(["sh", BENCH / "nightly.sh"], capture_output=True, text=True, check=False)
    assert found.returncode == 2 and "usage:" in found.stderr
