"""The examples work as they show."""

import re
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.needs("minilm")


def test_the_quickstart_answers_from_the_right_views(capsys):
    runpy.run_path(str(ROOT / "examples" / "quickstart.py"), run_name="__main__")
    shown = capsys.readouterr().out
    assert "oil (" in shown and "price of oil had risen" in shown
    assert "plague (" in shown and "reached Crimea by 1343" in shown
    assert "since 1900: ['oil']" in shown


@pytest.mark.full
def test_the_drpq_example_shows_what_the_temperature_does(capsys):
    runpy.run_path(str(ROOT / "examples" / "drpq.py"), run_name="__main__")
    shown = capsys.readouterr().out
    assert "max: [('history'," in shown and "drpq, T = 0.05: [('history'," in shown
    assert "drpq, T = 1.0: [('crisis'," in shown
    heaviest = re.findall(r"(\S+) x \S+  The embargo made oil four times as expensive", shown)
    assert len(heaviest) == 2 and float(heaviest[0]) < 0.4 < 0.9 < float(heaviest[1])


def test_the_fastapi_application_searches_reads_and_adds(monkeypatch):
    pytest.importorskip("fastapi", reason="NOT RUN: needs fastapi")
    testclient = pytest.importorskip("fastapi.testclient", reason="NOT RUN: needs httpx")
    monkeypatch.delenv("CORPUS", raising=False)
    app = runpy.run_path(str(ROOT / "examples" / "fastapi_app.py"))["app"]
    with testclient.TestClient(app) as client:
        found = client.get("/search", params={"q": "when did the oil crisis end", "top_k": 1}).json()
        assert found["hits"][0]["id"] == "oil" and "oil crisis" in found["hits"][0]["cited"]
        assert client.put("/documents/new", params={"text": "Coffee was dear in 1977."}).json()["added"] == 1
        assert client.get("/search", params={"q": "coffee", "top_k": 1}).json()["hits"][0]["id"] == "new"
        assert client.get("/documents/new").json()["text"] == "Coffee was dear in 1977."
        assert client.get("/documents/none").status_code == 404
        refused = client.get("/search", params={"q": "x", "top_k": 0})
        assert refused.status_code == 400 and "top_k" in refused.json()["error"]
