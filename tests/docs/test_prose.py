"""Sentences have at most 30 words; what is counted as a sentence and a word."""

import sys

import pytest
from docs_pages import PAGES, ROOT


@pytest.fixture(scope="module")
def prose():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "path", [str(ROOT / "bench"), *sys.path])
        import prose

        yield prose


@pytest.mark.parametrize("page", PAGES)
def test_a_page_has_no_sentence_over_thirty_words(page, prose):
    found = [f"{page}:{line}: {count} words: {text}" for line, count, text in prose.long_sentences(ROOT / page)]
    assert not found, "\n".join(found)


def test_code_is_one_word_and_blocks_are_none(prose, tmp_path):
    page = tmp_path / "page.md"
    short = "Call `index.search(a, b, c)` with " + "very " * 20 + "few words. Then stop."
    page.write_text(
        f"# A title\n\n{short}\n\n```bash\n{'word ' * 40}\n```\n\n| a | b |\n| --- | --- |\n| c | {'d ' * 31}. |\n"
    )
    assert [(line, count) for line, count, _ in prose.long_sentences(page)] == [(11, 31)]
    row = prose.measure(page)
    assert (row["words"], row["pictures"], row["long"]) == (2 + 27 + 3 + 31, 0, 1)


def test_long_words_are_harder(prose, tmp_path):
    easy, hard = tmp_path / "easy.md", tmp_path / "hard.md"
    easy.write_text("The cat sat on the mat.\n")
    hard.write_text("Considerable institutional organisations necessitate interoperability.\n")
    assert prose.measure(easy)["ease"] > 90 > 0 > prose.measure(hard)["ease"]
