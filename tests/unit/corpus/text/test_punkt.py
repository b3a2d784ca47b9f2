"""Sentence starts: those of NLTK's Punkt, on real and on random texts, and fast."""

import csv
import functools
import itertools
import re
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mvindex.corpus.text.sentences import sentence_starts

ROOT = Path(__file__).resolve().parents[4]
DATA = ROOT / "mvindex/data/punkt_tab/english"
# Pieces that cut, nearly cut, or hide: stops, abbreviations, pairs, initials, numbers, quotes, odd spaces and letters.
PIECES = ["Mr. ", "Dr.", "e.g. ", "It rains. ", "So? ", "No! ", '"Yes." ', "(a.) ", "1. ", "...", ". . . ", "\n\n",
          "\t", "\u200b", "\u0301", "\u2028", "\x1c", "\xa0", "日本。", "’ ", "” ", "a", "B", " ", "U.S. ",
          "St. Louis. ", "p. 5, ", "1973. The ", "A. B. ", "--", '."', "!?", ",", "- ", "x-mr. ", "\r\n", "-.5. ",
          "\u0130. ", "é. É", "_. ", "Inc., ", "i. In ", " \n"]  # fmt: skip
CHARS = "aB.?! \n\"')-,1\xa0:\t(“”;\u0130"


class _PlainRules:
    """Punkt's rules on the standard library's `re`: NLTK's own stop after 5 s of wall-clock time."""

    def __init__(self, rules):
        self.sent_end_chars = rules.sent_end_chars
        self.re_boundary_realignment = re.compile(rules.re_boundary_realignment.pattern, re.MULTILINE)
        self._context = re.compile(rules.period_context_re().pattern, re.VERBOSE)
        self._word = re.compile(rules._word_tokenizer_re().pattern, re.VERBOSE)

    def period_context_re(self):
        return self._context

    def word_tokenize(self, line):
        return self._word.findall(line)


@functools.cache
def reference():
    punkt = pytest.importorskip("nltk.tokenize.punkt")
    lines = {path.stem: path.read_text(encoding="utf-8").rstrip("\n").split("\n") for path in DATA.iterdir()}
    learned = punkt.PunktParameters()
    learned.abbrev_types, learned.sent_starters = set(lines["abbrev_types"]), set(lines["sent_starters"])
    learned.collocations = {tuple(line.split("\t")) for line in lines["collocations"]}
    learned.ortho_context.update((line.split("\t")[0], int(line.split("\t")[1])) for line in lines["ortho_context"])
    return punkt.PunktSentenceTokenizer(learned, lang_vars=_PlainRules(punkt.PunktLanguageVars()))


def check(text):
    assert sentence_starts(text) == [begin for begin, _ in reference().span_tokenize(text)]


def test_texts_of_the_sample_corpus_are_cut_where_nltk_cuts():
    with (ROOT / "examples/squad/passages.tsv").open(encoding="utf-8", newline="") as file:
        for row in itertools.islice(csv.DictReader(file, delimiter="\t"), 0, None, 4):
            check(row["text"])


def test_pages_of_the_docs_are_cut_where_nltk_cuts():
    for page in sorted((ROOT / "docs").rglob("*.md")):
        check(page.read_text(encoding="utf-8"))


@settings(max_examples=500)
@given(st.lists(st.sampled_from(PIECES), max_size=30).map("".join))
def test_random_pieces_are_cut_where_nltk_cuts(text):
    check(text)


@settings(max_examples=500)
@given(st.text(CHARS, max_size=40))
def test_random_characters_are_cut_where_nltk_cuts(text):
    check(text)


@pytest.mark.parametrize(
    ("text", "starts"),
    [
        ("Dr. Smith met Mr. Jones. They talked.", [0, 25]),
        ("Johann S. Bach was born in 1685. He died.", [0, 33]),
        ("It is so (he said.) Then he left.", [0, 20]),
        ("", []),
    ],
)
def test_sentences_start_behind_the_ends_of_others(text, starts):
    assert sentence_starts(text) == starts


@pytest.mark.parametrize(
    "unit", [".", "!", "! ", ". ", ".\n", "a.\xa0", "It is. ", "1. ", '?" ', '."'], ids=lambda unit: repr(unit)
)
def test_time_grows_with_the_text_and_not_faster(unit):
    spent = []
    for size in (100_000, 400_000):
        text = unit * (size // len(unit))
        began = time.process_time()
        sentence_starts(text)
        spent.append(time.process_time() - began)
    # A square would take 16 times as long.
    assert spent[1] < max(9 * spent[0], 0.2)
