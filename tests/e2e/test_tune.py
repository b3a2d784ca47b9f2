"""`mvindex tune` on the command line: its table, its JSON, its drawing."""

import json

import numpy as np
import pytest

import mvindex as library
from tests.helpers.cli import mvindex, ok

DIM, COUNT = 32, 1500


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tune")
    rng = np.random.default_rng(8)
    with library.create(folder / "x.mvx", dim=DIM) as index:
        documents = [library.Document(str(number), "t") for number in range(COUNT)]
        index.add_views(documents, rng.standard_normal((COUNT, 4, DIM)))
        index.admin.build("ivf-pq", nlist=32)
    return folder


def test_the_frontier_is_drawn_and_the_choice_is_kept(folder):
    pytest.importorskip("matplotlib")
    from matplotlib import image

    command = ("tune", "--index", "x.mvx", "--top-k", 10, "--target-recall", 0.8, "--plot", "tune.png", "--json")
    report = json.loads(ok(mvindex(*command, cwd=folder)).stdout)
    assert report["chosen"]["recall"] >= 0.8
    drawing = image.imread(folder / "tune.png")
    assert min(drawing.shape[:2]) > 400 and drawing[..., :3].std() > 0.05
    info = json.loads(ok(mvindex("info", "--index", "x.mvx", "--json", cwd=folder)).stdout)
    assert info["search"] == report["chosen"]["search"]


@pytest.mark.full
def test_a_table_of_recall_and_time_is_for_people(folder):
    shown = ok(mvindex("tune", "--index", "x.mvx", "--top-k", 10, "--target-recall", 0.8, cwd=folder))
    assert "exact scan" in shown.stdout and "-> nprobe" in shown.stdout
    assert "the queries were views of the index" in shown.stderr


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("--plot", "tune.gif"), "expected a name that ends in .png, .svg or .pdf"),
        (("--target-recall", 1.5), "target_recall is 1.5"),
        (("--queries", "none.txt"), "none.txt"),
    ],
)
def test_nonsense_is_refused_by_name(folder, args, message):
    done = mvindex("tune", "--index", "x.mvx", *args, cwd=folder)
    assert done.returncode in (1, 2) and message in done.stderr.replace("\n", " ")


@pytest.mark.needs("minilm")
def test_confidences_are_fitted_and_kept(tmp_path):
    names = ("oil", "gold", "grain", "steel", "coal", "tin", "wool", "salt", "silk", "corn", "rice", "wine")
    rows = [
        {"id": f"{name}{year}", "text": f"In {year} the price of {name} rose."}
        for name in names
        for year in (1973, 1979)
    ]
    questions = [
        {"question": f"when was {row['id'][:-4]} expensive, {row['id'][-4:]}?", "passage_id": row["id"]} for row in rows
    ]
    unanswered = [{"question": f"which battery fits camera {number}?"} for number in range(5)]
    for name, lines in (("corpus.jsonl", rows), ("questions.jsonl", questions + unanswered), ("few.jsonl", unanswered)):
        (tmp_path / name).write_text("".join(json.dumps(line) + "\n" for line in lines))
    ok(mvindex("ingest", "corpus.jsonl", "--index", "c.mvx", cwd=tmp_path))
    command = ("tune", "--index", "c.mvx", "--confidence")
    report = json.loads(ok(mvindex(*command, "questions.jsonl", "--json", cwd=tmp_path)).stdout)
    assert (report["answerable"], report["unanswerable"]) == (24, 29)
    assert [point["mode"] for point in report["points"]] == ["dense", "lexical", "hybrid"]
    assert report["points"][2]["auroc"] > 0.7
    assert "AUROC" in ok(mvindex(*command, "questions.jsonl", cwd=tmp_path)).stdout
    info = json.loads(ok(mvindex("info", "--index", "c.mvx", "--json", cwd=tmp_path)).stdout)
    assert set(info["confidence"]["models"]) == {"dense", "lexical", "hybrid"}
    for wrong, message in ((("few.jsonl",), "20 at least"), (("questions.jsonl", "--fusion"), "does not belong to")):
        done = mvindex(*command, *wrong, cwd=tmp_path)
        assert done.returncode in (1, 2) and message in done.stderr.replace("\n", " ")
