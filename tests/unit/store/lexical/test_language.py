"""How texts are split into terms where their language decides."""

import csv
from pathlib import Path

import numpy as np
import pytest

import mvindex
from mvindex.errors import ConfigError
from mvindex.index.factory import index_exists, remove_untouched
from mvindex.store.lexical.tokenizer import Lexical, detect_lexical

ENGLISH = "The embargo began in October. By March the price of oil had risen, and it was a shock to the economy."
# Of the Universal Declaration of Human Rights, article 1.
OTHERS = {
    "German": "Alle Menschen sind frei und gleich an Würde und Rechten geboren. Sie sind mit Vernunft und Gewissen "
    "begabt und sollen einander im Geist der Brüderlichkeit begegnen.",
    "Dutch": "Alle mensen worden vrij en gelijk in waardigheid en rechten geboren. Zij zijn begiftigd met verstand "
    "en geweten, en behoren zich jegens elkander in een geest van broederschap te gedragen.",
    "French": "Tous les êtres humains naissent libres et égaux en dignité et en droits. Ils sont "
    "doués de raison et de conscience.",
    "Spanish": "Todos los seres humanos nacen libres e iguales en dignidad y derechos y, dotados como están de "
    "razón y conciencia, deben comportarse fraternalmente los unos con los otros.",
    "Danish": "Alle mennesker er født frie og lige i værdighed og rettigheder. De er udstyret med fornuft og "
    "samvittighed, og de bør handle mod hverandre i en broderskabets ånd.",
    "numbers": "1973 12.5 42",
}


def documents(text, count=3):
    return [mvindex.Document(f"d{number}", text) for number in range(count)]


def test_english_passages_have_stems():
    path = Path(__file__).parents[4] / "examples" / "squad" / "passages.tsv"
    with path.open(newline="") as file:
        rows = list(csv.reader(file, delimiter="\t"))[1:]
    assert len(rows) > 10
    assert detect_lexical([text for _, text, *_ in rows]) is Lexical.ENGLISH


@pytest.mark.parametrize("language", OTHERS)
def test_other_texts_have_plain_terms(language):
    assert detect_lexical([OTHERS[language]]) is Lexical.UNICODE


@pytest.mark.parametrize("shards", [None, 2])
@pytest.mark.parametrize(("text", "kind"), [(ENGLISH, "english"), (OTHERS["German"], "unicode")])
def test_the_first_documents_decide_once(tmp_path, shards, text, kind):
    mvindex.create(tmp_path / "a.mvx", dim=2, lexical="auto", shards=shards).close()
    with mvindex.open(tmp_path / "a.mvx") as index:
        assert index.info().lexical is None
        assert index.search(np.ones(2), text="oil").mode == "dense"
        index.add_views(documents(text), np.ones((3, 2)))
        assert index.info().lexical == kind
        index.add_views([mvindex.Document("later", OTHERS["French"])], np.ones((1, 2)))
        assert index.info().lexical == kind
        assert index.search(np.ones(2), text=text.split()[1]).mode == "hybrid"
        assert index.admin.verify().is_sound
    with mvindex.open(tmp_path / "a.mvx") as index:
        assert len(index.search(text, mode="lexical").hits) >= 3


def test_an_existing_index_is_split_by_its_own_texts(tmp_path):
    with mvindex.create(tmp_path / "a.mvx", dim=2) as index:
        index.add_views(documents(ENGLISH), np.ones((3, 2)))
        index.admin.enable_lexical("auto")
        assert index.info().lexical == "english"
        with pytest.raises(ConfigError, match="klingon"):
            index.admin.enable_lexical("klingon")


def test_an_index_that_only_chose_its_terms_is_untouched(tmp_path):
    index = mvindex.create(tmp_path / "a.mvx", dim=2, lexical="auto")
    with pytest.raises(mvindex.errors.MvindexError):
        index.add_views([mvindex.Document("a", ENGLISH), mvindex.Document("a", ENGLISH)], np.ones((2, 2)))
    remove_untouched(index)
    assert not index_exists(tmp_path / "a.mvx")
