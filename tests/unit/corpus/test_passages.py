"""Files of prose are split into passages at headings, paragraphs and sentences; each leads back to its line."""

import codecs
import json
import random
import re
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mvindex.corpus import CorpusOptions, Reject, open_corpus, read_documents
from mvindex.corpus.passages.html import outline_html
from mvindex.corpus.passages.markdown import outline_markdown, outline_markdown_file
from mvindex.corpus.passages.outline import Block, Section, split_section
from mvindex.corpus.passages.plain import outline_rst, outline_text
from mvindex.corpus.text.citation import Citer
from mvindex.errors import CorpusError


def headings_and_texts(outline, max_words=200):
    return [
        (section.headings, outline.text[begin:end])
        for section in outline.sections
        for begin, end in split_section(outline.text, section, max_words)
    ]


def read(tmp_path, name, content, **options):
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return list(read_documents(path, CorpusOptions(**options)))


class TestMarkdown:
    def test_lone_carriage_returns_end_lines_where_nothing_else_does(self, tmp_path):
        found = read(tmp_path, "a.md", "# A\r\rone and more\r\r# B\r\rtwo and more\r")
        assert [(one.metadata["headings"], one.metadata["line"]) for one in found] == [("A", 1), ("B", 5)]

    def test_sections_begin_at_headings_and_know_their_path(self):
        text = "before\n\n# A\none\n## B ##\ntwo\n# C\nthree\n"
        assert headings_and_texts(outline_markdown(text)) == [
            ((), "before"),
            (("A",), "# A\none"),
            (("A", "B"), "## B ##\ntwo"),
            (("C",), "# C\nthree"),
        ]

    def test_a_heading_directly_above_a_deeper_one_makes_no_passage_of_its_own(self):
        assert headings_and_texts(outline_markdown("# A\n\n## B\n\ntext")) == [(("A", "B"), "# A\n\n## B\n\ntext")]

    def test_a_heading_without_text_before_one_of_its_level_is_a_passage(self):
        assert headings_and_texts(outline_markdown("# A\n# B\na much longer text")) == [
            (("A",), "# A"),
            (("B",), "# B\na much longer text"),
        ]

    def test_headings_without_text_share_a_passage_below_the_heading_above_them(self):
        outline = outline_markdown("# A\nintro\n## B\n## C\n\n## D\n## E\nlonger text\n## F\n")
        assert outline.title == "A"
        assert headings_and_texts(outline) == [
            (("A",), "# A\nintro"),
            (("A",), "## B\n## C\n\n## D"),
            (("A", "E"), "## E\nlonger text"),
            (("A", "F"), "## F"),
        ]

    def test_headings_without_text_below_different_headings_share_none(self):
        text = "intro\n# A\n## B\n# C\n## D\n## E"
        assert headings_and_texts(outline_markdown(text)) == [
            ((), "intro"),
            (("A", "B"), "# A\n## B"),
            (("C",), "# C\n## D\n## E"),
        ]

    def test_sections_of_a_few_characters_share_a_passage_below_the_heading_above_them(self):
        text = "# A\nabout the letters\n## B\nb\n## C\n\n## D\nd\n# E\nabout the others\n## F\nf\n"
        assert headings_and_texts(outline_markdown(text)) == [
            (("A",), "# A\nabout the letters"),
            (("A",), "## B\nb\n## C\n\n## D\nd"),
            (("E",), "# E\nabout the others"),
            (("E", "F"), "## F\nf"),
        ]

    @pytest.mark.parametrize(
        ("outline_of", "heading"),
        [(outline_markdown, "# a{}\n"), (outline_markdown, "a{}\n===\n"), (outline_rst, "a{}\n====\n\n")],
    )
    def test_many_headings_without_text_make_passages_of_the_usual_size(self, outline_of, heading):
        outline = outline_of("".join(map(heading.format, range(90))))
        found = [text for _, text in headings_and_texts(outline, 50)]
        assert outline.title == "a0"
        assert [each for text in found for each in re.findall(r"a\d+", text)] == [f"a{row}" for row in range(90)]
        assert 3 <= len(found) <= 5

    def test_tags_of_headings_without_text_share_a_passage(self):
        outline = outline_html("<h1>A</h1><h2>B</h2><h2>C</h2><h2>D</h2>a much longer text")
        assert outline.title == "A"
        assert headings_and_texts(outline) == [(("A",), "A\n\nB\n\nC"), (("A", "D"), "D\n\na much longer text")]

    def test_underlined_headings_are_headings_and_rules_are_not(self):
        text = "Top\n===\none\n\nSub\nof it\n---\ntwo\n\n---\n\nthree\n"
        assert headings_and_texts(outline_markdown(text)) == [
            (("Top",), "Top\n===\none"),
            (("Top", "Sub of it"), "Sub\nof it\n---\ntwo\n\n---\n\nthree"),
        ]

    @pytest.mark.parametrize(
        ("heading", "name"),
        [
            ("# a # b ##  ", "a # b"),
            ("#a", None),
            ("## ", ""),
            ("# C#", "C#"),
            ("# [text](http://a/(b)) {#own}", "text"),
            ("# text { #own .class }", "text"),
            ("# text {: #own }", "text"),
            ("# a set {1, 2}", "a set {1, 2}"),
            ("# [![Build](a.svg)](b) *x* `y`", "Build x y"),
            ("# {#a", "{#a"),
        ],
    )
    def test_the_name_of_a_heading_has_no_marks_links_and_ids(self, heading, name):
        sections = outline_markdown(f"{heading}\ntext").sections
        assert [section.headings for section in sections] == [(name,) if name else ()]

    @pytest.mark.parametrize(
        ("rule", "is_table"),
        [("-|-", True), ("|:-:| ---  |", True), ("---", True), ("- -|-", False), ("-||-", False), ("|", False)],
    )
    def test_a_table_has_a_rule_below_its_header(self, rule, is_table):
        [section] = outline_markdown(f"a|b\n{rule}\n").sections
        assert section.blocks[0].is_lines == is_table

    def test_includes_and_comments_are_no_text(self):
        text = "# A\n\n{* a/b.py hl[1] *}\n\n<!-- c -->\n\n# B\n\n--8<-- 'd.md'\n\ntext {* e *} of it\n\n{! f.md !}\n"
        assert headings_and_texts(outline_markdown(text)) == [
            (("A",), "# A"),
            (("B",), "# B\n\n--8<-- 'd.md'\n\ntext {* e *} of it"),
        ]

    @pytest.mark.parametrize("fence", ["```", "~~~~", "- ```"[2:]])
    def test_a_comment_in_a_fence_is_no_heading(self, fence):
        text = f"# A\n\n{fence}sh\n# comment\n{fence}\n\ntail\n"
        assert [headings for headings, _ in headings_and_texts(outline_markdown(text))] == [("A",)]

    def test_a_fence_that_is_not_closed_runs_to_the_end(self):
        assert [found for found, _ in headings_and_texts(outline_markdown("# A\n```\n# no\n"))] == [("A",)]

    def test_a_table_stays_whole_where_it_fits_and_is_cut_between_rows_where_not(self):
        table = "| a | b |\n| - | - |\n| 1 | 2 |\n| 3 | 4 |"
        outline = outline_markdown(f"one two three\n\n{table}\n")
        assert [text for _, text in headings_and_texts(outline, 20)] == ["one two three", table]
        assert [text for _, text in headings_and_texts(outline, 10)] == [
            "one two three\n\n| a | b |",
            "| - | - |\n| 1 | 2 |",
            "| 3 | 4 |",
        ]

    def test_front_matter_becomes_metadata_and_title(self, tmp_path):
        text = "---\ntitle: Oil & gas\ndate: 2024-05-01\ntags: [a, b]\nfile: mine\n---\n# Embargo\ntext\n"
        [found] = read(tmp_path, "a.md", text)
        assert (found.title, found.text) == ("Oil & gas > Embargo", "# Embargo\ntext")
        assert found.metadata == {
            "date": "2024-05-01",
            "tags": ["a", "b"],
            "front_matter_file": "mine",
            "file": str(tmp_path / "a.md"),
            "headings": "Embargo",
            "line": 7,
        }

    @pytest.mark.parametrize("bad", ["- 1", "{", "A word", "A word\nNote: this: that", "%"])
    def test_front_matter_without_fields_stays_text(self, bad):
        text = f"---\n{bad}\n---\nbody\n"
        outline = outline_markdown_file(text, lambda *_: pytest.fail("warned"))
        assert outline.metadata == {}
        assert bad in "".join(found for _, found in headings_and_texts(outline))

    @pytest.mark.parametrize(
        ("front", "fields", "lines"),
        [
            ("title: ADR 1: Use Postgres\nyear: 1973", {"title": "ADR 1: Use Postgres", "year": 1973}, [2]),
            ("# a comment\n\na: b: c\ntags: [x, y\nn: .nan", {"a": "b: c", "tags": "[x, y", "n": "nan"}, [4, 5]),
            ("date: 2024-02-30\nid: 5\ntags:\n- x\n- y", {"date": "2024-02-30", "id": 5, "tags": ["x", "y"]}, [2]),
            ("a: &x [1]\nb: *x", {"a": [1], "b": "*x"}, [3]),
            ("a: b\n\tc: d", {"a": "b"}, [2]),
            ("a:\n  b: c: d\n  e", {"a": "b: c: d e"}, [2]),
            ('who: "x" y\r\nn: 1\r', {"who": '"x" y', "n": 1}, [2]),
            ("\n".join(" " * depth + "a:" for depth in range(90)), {"a": " ".join(["a:"] * 89)}, [2]),
            ("a: !!bool x\nn: 1", {"a": "!!bool x", "n": 1}, [2]),
            ("n: 1\na: !!timestamp x", {"a": "!!timestamp x", "n": 1}, [3]),
            ("a: !!int ''\nn: 1", {"a": "!!int ''", "n": 1}, [2]),
            (f"a: 1{':1' * 300}.0\nn: 1", {"a": f"1{':1' * 300}.0", "n": 1}, [2]),
            ("[a: b]: c: d\nn: 1", {"[a": "b]: c: d", "n": 1}, [2]),
        ],
    )
    def test_fields_that_yaml_refuses_are_texts_and_their_lines_are_named(self, front, fields, lines):
        warnings = []
        outline = outline_markdown_file(f"---\n{front}\n---\nbody\n", lambda *warning: warnings.append(warning))
        found = {**outline.metadata} | ({"title": outline.title} if outline.title else {})
        assert found == fields and [line for line, _ in warnings] == lines
        assert "front matter: expected YAML, got" in warnings[0][1]
        assert headings_and_texts(outline) == [((), "body")]

    @pytest.mark.parametrize("front", ["? 0x" + "f" * 5_000 + "\n: 1", "a: {0x" + "f" * 5_000 + ": 1}"])
    def test_front_matter_that_no_metadata_can_hold_is_text(self, tmp_path, front):
        found = read(tmp_path, "a.md", f"---\n{front}\n---\n# Head\n\nbody\n")
        assert "".join("".join(one.text for one in found).split()).startswith("".join(f"---{front}---#Head".split()))
        assert not any("a" in one.metadata for one in found)

    def test_front_matter_that_does_not_fit_is_left_out_by_name_and_stays_text(self):
        warnings = []
        long = "x" * 1_990
        front = f"a: 1\nabstract: {long}x\nb: {long[20:]}\nc: 2"
        outline = outline_markdown_file(f"---\n{front}\n---\n# body\n", lambda *warning: warnings.append(warning))
        # {"a": 1} has 8 characters, {"b": "xxx"} 9 and the letters: 8 + 1,979 + 8 is under 2,000.
        assert outline.metadata == {"a": 1, "b": long[20:], "c": 2}
        assert warnings == [
            (
                1,
                "front matter: expected at most 2,000 characters of fields, which go with every passage, got more; "
                "left out: 'abstract'; it is a text too",
            )
        ]
        assert [(path, text[:4]) for path, text in headings_and_texts(outline)] == [((), "---\n"), (("body",), "# bo")]

    def test_what_goes_with_every_passage_is_bounded(self, tmp_path):
        fields = "".join(f"field_{number}: {'x' * 40}\n" for number in range(1_000))
        sections = "".join(f"## part {number}\nlonger text\n" for number in range(500))
        text = f"---\n{fields}---\n# {'long ' * 2_000}\n{sections}"
        found = read(tmp_path, "a.md", text)
        assert len(found) > 500
        assert sum(len(str(one.metadata)) + len(one.title) for one in found) < 5_000 * len(found)

    @pytest.mark.parametrize(
        "front",
        ["[" * 60_000, "a: " + "{" * 60_000, "- " * 30_000, "a:\n" + "- " * 30_000, "&a " * 20_000, "a: " * 20_000,
         "a: " + "x" * 60_000, "a: x" + " " * 60_000 + "y", "? " * 30_000, "a: b: c\n" + "a:\n" * 15_000,
         "a: 0x" + "f" * 60_000],
    )  # fmt: skip
    def test_hostile_front_matter_is_read_at_once(self, front):
        begun = time.process_time()
        outline = outline_markdown_file(f"---\n{front}\n---\nbody\n", lambda *_: None)
        assert time.process_time() - begun < 0.5
        assert outline.metadata == {} and outline.text.endswith("body\n")

    def test_front_matter_of_toml_becomes_metadata_and_title(self, tmp_path):
        front = '+++\ntitle = "Oil"\ndate = 2024-05-01\ntags = ["a", "b"]\n[extra]\nn = 1\n+++\n'
        (found,) = read(tmp_path, "a.md", f"{front}The text.\n")
        assert (found.title, found.text, found.metadata["line"]) == ("Oil", "The text.", 8)
        fields = {"date": "2024-05-01", "tags": ["a", "b"], "extra": {"n": 1}}
        assert {name: found.metadata[name] for name in fields} == fields

    @pytest.mark.parametrize("front", ["title = ", "x = " + "[" * 5000, "a = 1\na = 2"])
    def test_front_matter_that_is_no_toml_is_text_and_told(self, front):
        told = []
        text = f"+++\n{front}\n+++\nThe text.\n"
        outline = outline_markdown_file(text, lambda line, message: told.append((line, message)))
        assert not outline.metadata
        assert "".join(part for _, part in headings_and_texts(outline)).replace("\n", "") == text.replace("\n", "")
        assert [line for line, _ in told] == [1] and "expected TOML" in told[0][1]

    @pytest.mark.parametrize("element", ["!--", "pre", "script"])
    def test_signs_in_comments_and_preformatted_text_are_no_headings(self, element):
        closing = "-->" if element == "!--" else f"</{element}>"
        text = f"# A\n\n<{element}\n>\n# no heading\n\n- x\n{closing}\n\n# B\n\ntext that is there"
        assert [headings for headings, _ in headings_and_texts(outline_markdown(text))] == [("A",), ("B",)]

    def test_a_comment_that_is_not_closed_hides_no_heading(self):
        text = "# A\n\n<!-- note\n# B\n\ntext that is there\n" + "<!-- x\n" * 3
        assert [headings for headings, _ in headings_and_texts(outline_markdown(text))] == [("A",), ("B",)]

    def test_many_comments_that_are_not_closed_are_read_at_once(self):
        begun = time.process_time()
        outline_markdown("<!-- x\n<pre\n" * 50_000)
        assert time.process_time() - begun < 5

    def test_marks_are_removed_from_headings(self):
        outline = outline_markdown("# The `x` of *[y](http://z)* {#id}\n")
        assert outline.title == "The x of y"


class TestSplit:
    def test_no_sentence_is_cut_unless_it_is_too_long(self):
        text = "One two three. Four five six. Seven eight nine ten eleven twelve. End."
        outline = outline_text(text)
        assert [found for _, found in headings_and_texts(outline, 5)] == [
            "One two three.",
            "Four five six.",
            "Seven eight nine ten eleven",
            "twelve. End.",
        ]

    def test_paragraphs_fill_a_passage(self):
        outline = outline_text("a b\n\nc d\n\ne f g\n")
        assert [found for _, found in headings_and_texts(outline, 4)] == ["a b\n\nc d", "e f g"]

    def test_a_small_last_passage_takes_text_from_the_one_before(self):
        outline = outline_text("\n\n".join(f"a{n} b c d" for n in range(5)) + "\n\nlast")
        assert [len(found.split()) for _, found in headings_and_texts(outline, 20)] == [12, 9]

    def test_passages_of_a_section_are_about_equally_long(self):
        outline = outline_text("\n\n".join(["a b c d."] * 11))
        # 44 words in passages of at most 20: three of about 15, in blocks of four.
        assert [len(found.split()) for _, found in headings_and_texts(outline, 20)] == [16, 16, 12]

    @pytest.mark.parametrize(
        ("lead", "content"),
        [
            ("Run it so:", "```sh\n" + "b " * 12 + "\n```"),
            ("Run it::", "    " + " ".join("b" * 12)),
            (".. code-block:: sh\n    :caption: c", "    " + " ".join("b" * 12)),
            ("!!! note", "    " + " ".join("b" * 12)),
            ('=== "Tab"', "    " + " ".join("b" * 12)),
        ],
    )
    def test_what_introduces_a_block_is_in_its_passage(self, lead, content):
        text = f"{'a ' * 24}\n\n{lead}\n\n{content}"
        found = [text for _, text in headings_and_texts(outline_text(text), 30)]
        assert found == [" ".join("a" * 24), f"{lead}\n\n{content}"]

    @pytest.mark.parametrize(
        ("name", "body"),
        [
            ("- `--force`", "  Overwrites"),
            ("`--force`", "Overwrites"),
            ("Force", ":   Overwrites"),
            (":::{tip}", "Take"),
        ],
    )
    def test_a_name_is_in_the_passage_of_what_it_stands_for(self, name, body):
        words = " ".join(["word"] * 8)
        text = "\n\n".join(f"{name}\n\n{body} {words} {number}." for number in range(9))
        parts = [text for _, text in headings_and_texts(outline_markdown(text), max_words=30)]
        assert len(parts) > 2 and all(part.startswith(name) and part.endswith(".") for part in parts)

    def test_a_list_that_fits_is_in_the_passage_of_the_sentence_that_introduces_it(self):
        text = "\n\n".join(
            ["Some words stand here before it. " * 2 + "They are:", *(f"- one item {n}" for n in range(4))] * 5
        )
        parts = [text for _, text in headings_and_texts(outline_markdown(text), max_words=60)]
        assert len(parts) > 2 and all(part.startswith("Some words") and part.endswith("item 3") for part in parts)

    def test_sentences_that_introduce_each_other_are_a_passage_all_the_same(self):
        found = headings_and_texts(outline_text("\n\n".join(["a a a:"] * 9)), 7)
        assert " ".join(text for _, text in found).split() == ["a", "a", "a:"] * 9

    def test_letters_without_spaces_are_counted_in_pairs(self):
        assert [len(found) for _, found in headings_and_texts(outline_text("石油" * 30), 20)] == [40, 20]

    def test_a_line_without_spaces_is_cut(self):
        assert max(len(found) for _, found in headings_and_texts(outline_text("x" * 100_000), 100)) == 2400

    @given(
        st.text(alphabet=st.sampled_from("ab .#\n-|`石é\r\t"), max_size=300),
        st.integers(min_value=1, max_value=12),
    )
    def test_passages_are_disjoint_slices_that_hold_every_visible_character(self, text, max_words):
        for outline in (outline_markdown(text), outline_text(text), outline_rst(text)):
            spans = [span for one in outline.sections for span in split_section(text, one, max_words)]
            assert spans == sorted(spans)
            covered = set()
            for begin, end in spans:
                assert text[begin:end] == text[begin:end].strip() != ""
                assert covered.isdisjoint(range(begin, end))
                covered.update(range(begin, end))
            assert all(text[at].isspace() or at in covered for at in range(len(text)))


class TestOtherFormats:
    def test_rst_headings_are_underlined_and_some_overlined(self):
        text = "=====\nTitle\n=====\n\nintro\n\nPart\n----\n\none\n\n::\n\n  code\n"
        assert [headings for headings, _ in headings_and_texts(outline_rst(text))] == [("Title",), ("Title", "Part")]

    def test_rst_definitions_are_sections_with_their_names(self):
        text = (
            "Config\n======\n\nValues:\n\n.. py:data:: MAX_SIZE\n\n    The limit.\n\n    Default: 3\n\n"
            ".. class:: App(name)\n    :noindex:\n\n    An app.\n\n    .. method:: run(port)\n\n        Runs.\n\n"
            "    The end.\n\nTail.\n\n.. autoclass:: Other\n    :members:\n\n.. data:: empty\n"
        )
        assert headings_and_texts(outline_rst(text)) == [
            (("Config",), "Config\n======\n\nValues:"),
            (("Config", "MAX_SIZE"), ".. py:data:: MAX_SIZE\n\n    The limit.\n\n    Default: 3"),
            (("Config", "App"), ".. class:: App(name)\n    :noindex:\n\n    An app."),
            (("Config", "App", "run"), ".. method:: run(port)\n\n        Runs."),
            (("Config", "App"), "The end."),
            (("Config",), "Tail.\n\n.. autoclass:: Other\n    :members:\n\n.. data:: empty"),
        ]

    def test_rst_definitions_are_nested_three_deep_at_most(self):
        text = "".join(" " * depth + f".. class:: A{depth}\n\n" + " " * depth + " text\n\n" for depth in range(9))
        found = headings_and_texts(outline_rst(text))
        assert [headings[-1] for headings, _ in found] == ["A0", "A1", "A2"]
        assert "A8" in found[-1][1]

    def test_rst_labels_and_settings_are_no_text(self, tmp_path):
        text = ":orphan:\n\n.. highlight:: c\n\n.. _top:\n\nTop\n===\n\none\n\n.. _a b:\n.. _next:\n\nNext\n----\n\ntwo"
        found = read(tmp_path, "a.rst", text)
        assert [(one.text, one.metadata["line"]) for one in found] == [
            ("Top\n===\n\none", 7),
            ("Next\n----\n\ntwo", 15),
        ]

    def test_rst_directives_that_repeat_a_heading_are_of_its_section(self):
        text = (
            "Top\n---\n\none\n\n.. autofunction:: f\n\n.. _label:\n"
            ".. setting:: B_SIZE\n\n``B_SIZE``\n----------\n\ntwo\n\n"
            ".. command:: run [path]\n\nrun\n---\n\n.. setting:: other\n\nlast\n----\n\nfour\n"
        )
        assert headings_and_texts(outline_rst(text)) == [
            (("Top",), "Top\n---\n\none\n\n.. autofunction:: f"),
            (("B_SIZE",), ".. setting:: B_SIZE\n\n``B_SIZE``\n----------\n\ntwo"),
            (("run",), ".. command:: run [path]\n\nrun\n---\n\n.. setting:: other"),
            (("last",), "last\n----\n\nfour"),
        ]

    @given(
        st.lists(
            st.sampled_from(
                [
                    ".. data:: A\n",
                    "    ",
                    "\n",
                    "a b\n",
                    "===\n",
                    "A\n---\n",
                    "    :o:\n",
                    ".. note::\n",
                    "a::\n",
                    "- a\n",
                ]
                + ["== ==\n", "+-+-+\n", "**a?**\n", ".. code:: c\n", "::\n", "#. a\n", ".. list-table::\n", "* - a\n"]
            ),
            max_size=30,
        )
    )
    def test_passages_of_rst_are_disjoint_slices_that_hold_every_visible_character(self, pieces):
        text = "".join(pieces)
        spans = [span for one in outline_rst(text).sections for span in split_section(text, one, 5)]
        flat = [at for span in spans for at in span]
        assert flat == sorted(flat)
        assert "".join("".join(text[begin:end] for begin, end in spans).split()) == "".join(text.split())

    def test_rst_is_cut_between_items_and_code_and_tables_stay_whole(self):
        code = ".. code-block:: c\n\n    " + "\n\n    ".join(["a b c"] * 4)
        table = "=== ===\na   b\n=== ===\n1   2\n3   4\n=== ==="
        text = f"T\n=\n\n1. one two three\n   four five\n2. six seven\n\n{code}\n\n{table}\n"
        assert [found for _, found in headings_and_texts(outline_rst(text), 16)] == [
            "T\n=\n\n1. one two three\n   four five\n2. six seven",
            code,
            table,
        ]

    def test_rst_sections_of_directives_without_content_share_a_passage(self):
        heads = [f"{name}\n{'-' * len(name)}\n\n" for name in ("Application", "Blueprint", "Text", "Pages")]
        marks = (
            ".. autoclass:: App\n   :members:",
            ".. autofunction:: f",
            "It says something here.",
            ".. toctree::\n\n   one",
        )
        text = "API\n===\n\n" + "\n\n".join(map("".join, zip(heads, marks, strict=True)))
        assert [(headings, part.count("---\n")) for headings, part in headings_and_texts(outline_rst(text))] == [
            (("API",), 2),
            (("API", "Text"), 1),
            (("API", "Pages"), 1),
        ]

    def test_the_names_of_rst_headings_have_no_marks(self):
        assert (
            outline_rst("The ``x`` of :meth:`y` \\-\\-z\n==============================\n\na").title == "The x of y --z"
        )

    @pytest.mark.parametrize(
        ("name", "text"),
        [
            ("a.md", "# FAQ\n\n**Is it free?**\n\nYes.\n\n**Is it fast?**\n\nSo it is.\n"),
            ("a.md", "# FAQ\n\n1. **Is it free?**\n\n   Yes.\n\n2. **Is it fast?**\n\n   So it is.\n"),
            ("a.md", "# FAQ\n\n<details>\n<summary>Is it free?</summary>\n\nYes.\n\n</details>\n<details>\n"
             "<summary>Is it fast?</summary>\n\nSo it is.\n\n</details>\n"),
            ("a.md", '# FAQ\n\n??? question "Is it free?"\n\n    Yes.\n\n??? note "Is it fast?"\n\n    So it is.\n'),
            ("a.rst", "FAQ\n===\n\n#. **Is it free?**\n\n   Yes.\n\n#. **Is it fast?**\n\n   So it is.\n"),
        ],
    )  # fmt: skip
    def test_a_question_of_a_faq_begins_a_section(self, tmp_path, name, text):
        found = read(tmp_path, name, text)
        assert [one.title for one in found] == ["FAQ > Is it free?", "FAQ > Is it fast?"]
        assert all(answer in one.text for one, answer in zip(found, ("Yes.", "So it is."), strict=True))
        assert Citer("is it fast?").cite(found[1].text, found[1].title).text.endswith("So it is.")

    def test_questions_and_answers_of_a_plain_text_are_sections(self, tmp_path):
        found = read(tmp_path, "a.txt", "Intro.\n\nQ: Is it free?\nA: Yes.\n\nQ2: Is it fast?\nA2: So it is.\n")
        assert [(one.title, one.metadata["line"]) for one in found] == [
            ("a.txt", 1),
            ("a.txt > Is it free?", 3),
            ("a.txt > Is it fast?", 6),
        ]

    @pytest.mark.parametrize(
        ("name", "head", "row"),
        [
            ("a.md", "# Top\n\n| part | stock |\n|---|---|\n", "| p{n} | {n} |\n"),
            ("a.rst", "Top\n===\n\n=====  =====\npart   stock\n=====  =====\n", "p{n:<4}  {n}\n"),
            ("a.rst", "Top\n===\n\n+-----+-----+\n|part |stock|\n+=====+=====+\n", "|p{n:<4}|{n:<5}|\n+-----+-----+\n"),
            (
                "a.rst",
                "Top\n===\n\n.. list-table::\n   :header-rows: 1\n\n   * - part\n     - stock\n",
                "   * - p{n}\n     - {n}\n",
            ),
            ("a.html", "<h1>Top</h1><table><tr><th>part<th>stock", "<tr><td>p{n}<td>{n}\n"),
        ],
    )
    def test_a_passage_that_begins_inside_a_table_names_its_columns(self, tmp_path, name, head, row):
        text = head + "".join(row.format(n=number) for number in range(40)) + ("</table>" if name == "a.html" else "")
        found = read(tmp_path, name, text, passage_words=40)
        assert len(found) > 1 and {one.title for one in found[1:]} == {"Top > part | stock"}
        assert found[0].title == "Top"
        for one in found[1:]:
            number = re.search(r"p(\d+)", one.text)[1]
            assert Citer(f"p{number}").cite(one.text, one.title).text == f"part: p{number}; stock: {number}"

    def test_fields_of_a_form_are_no_one_word(self):
        page = (
            "<label>Name</label><select><option>Apple</option><option>Pear</option></select><textarea>Kiwi</textarea>"
        )
        assert outline_html(page).text.split() == ["Name", "Apple", "Pear", "Kiwi"]

    def test_html_becomes_text_with_headings_and_without_scripts(self):
        page = (
            "<html><head><title>The\n page</title><style>p{}</style></head><body><nav>menu</nav><h1>A &amp; B</h1>"
            "<p>Some <b>bold</b>\n text.<br>more</p><script>if (a<b) {}</script><ul><li>one<li>two</ul>"
            "<h2>C</h2><table><tr><th>x<th>y<tr><td>1<td>2</table><pre>a\n  b</pre></body></html>"
        )
        outline = outline_html(page)
        assert outline.title == "The page" and outline.first_line is None
        assert headings_and_texts(outline) == [
            (("A & B",), "A & B\n\nSome bold text.\nmore\n\n- one\n\n- two"),
            (("A & B", "C"), "C\n\nx | y\n--- | ---\n1 | 2\n\na\n  b"),
        ]

    @pytest.mark.parametrize(
        ("name", "content"),
        [
            ("a.html", "<p>The refrig&shy;er&shy;ator, &#xfb01;nance, data&#8203;base</p>"),
            ("a.html", "<p>The refrig\u00aderator, \ufb01nance, data\u200bbase</p>"),
            ("a.txt", "The refrig\u00aderator, \ufb01nance, data\u2060base"),
            ("a.md", "The refrig\u00aderator, \ufb01nance, data\ufeffbase"),
        ],
    )
    def test_texts_have_no_soft_hyphens_and_ligatures(self, tmp_path, name, content):
        [found] = read(tmp_path, name, content.encode())
        assert found.text == "The refrigerator, finance, database"

    def test_what_a_script_needs_stays(self, tmp_path):
        text = "می\u200cروم ភាសា\u200bខ្មែរ क\u094d\u200dष"
        assert read(tmp_path, "a.txt", text.encode())[0].text == text

    @pytest.mark.parametrize(
        ("table", "expected"),
        [
            ("<tr><th>x<th>y<tr><th>1<td>2", "x | y\n--- | ---\n1 | 2"),
            ("<thead><tr><th>x</th><th>y</th></tr></thead><tbody><tr><td>1<td>2", "x | y\n--- | ---\n1 | 2"),
            ("<tr><td>x<td>y<tr><th>1<th>2", "x | y\n1 | 2"),
            ("<tr><th>x<td>y<tr><th>1<td>2", "x | y\n1 | 2"),
            ("<tr><th>x<tr><td>1", "x\n1"),
            # An empty first cell, cells over rows and columns, further lines in a cell, a bar.
            ("<tr><th>x<th>y<tr><td><td>2", "x | y\n--- | ---\n| | 2"),
            ("<tr><th>x<th>y<tr><td rowspan=2>1<td>2<tr><td>3<tr><td>4<td>5", "x | y\n--- | ---\n1 | 2\n1 | 3\n4 | 5"),
            ("<tr><th>x<th>y<th>z<tr><td colspan='2'>1<td>3", "x | y | z\n--- | --- | ---\n1 | | 3"),
            ("<tr><td rowspan=2 colspan=2>1<td>2<tr><td>3", "1 | | 2\n1 | | 3"),
            ("<tr><td colspan=0 rowspan=0>1<td colspan=x>2<tr><td>3", "1 | 2\n3"),
            ("<tr><td>1<br>2<td><p>3</p><p>4</p><ul><li>5</ul><td>6|7", "1 2 | 3 4 5 | 6\\|7"),
            # The last row of a header names the columns.
            (
                "<tr><th><th colspan=2>y<tr><th>x<th>a<th>b<tr><td>1<td>2<td>3",
                "| | y\nx | a | b\n--- | --- | ---\n1 | 2 | 3",
            ),
            ("<tr><td><h2>News</h2><p>First.</p><p>Second.</p>", "News\n\nFirst. Second."),
            ("<tr><td><tr><td> ", ""),
        ],
    )
    def test_a_rule_tells_the_header_of_a_table_from_its_rows(self, table, expected):
        assert outline_html(f"<table>{table}</table>").text == expected

    @pytest.mark.parametrize(
        "table",
        [
            "<tr>" + "<td rowspan=9999>abcdefgh" * 1_000 + "<tr><td>x" * 3_000,
            "<tr><td colspan=9999>a<td>b" * 3_000,
            "<tr><td rowspan=9999>" + "w " * 3_000 + "<tr><td>1<td>2" * 3_000,
        ],
    )
    def test_cells_over_many_rows_and_columns_add_a_bounded_number_of_characters(self, table):
        assert len(outline_html(f"<table>{table}</table>").text) < 9 * len(table) + 20_000

    def test_no_word_of_a_table_is_lost_or_joined_to_another(self):
        drawn = random.Random(1)

        def cell(number):
            spans = "".join(
                f" {name}span={drawn.choice((0, 1, 2, 3, 50, 9999))}" * drawn.randint(0, 1) for name in ("row", "col")
            )
            one, other = f"w{number}", f"v{number}"
            inner = ("", one, f"{one}<br>{other}", f"<p>{one}</p><p>{other}</p>", f"<h2>{one}</h2>{other}",
                     f"<pre>{one}</pre>", f"<table><tr><td>{one}<td>{other}</table>")  # fmt: skip
            tag = drawn.choice(("td", "td", "th"))
            return f"<{tag}{spans}>{drawn.choice(inner)}{drawn.choice(('', f'</{tag}>'))}"

        for _ in range(2_000):
            rows = ("".join(cell(f"{row}x{column}") for column in range(drawn.randint(0, 5))) for row in range(4))
            page = "<table>" + "".join(f"<tr>{row}{drawn.choice(('', '</tr>'))}" for row in rows) + "</table>end"
            words = set(re.sub("<[^>]*>", " ", page).split())
            assert words == set(outline_html(page).text.split()) - {"|", "---"}, page

    def test_a_passage_inside_a_table_names_the_columns_of_the_last_row_of_its_header(self, tmp_path):
        head = "<h1>Top</h1><table><tr><th><th colspan=2>Prices<tr><th>part<th>low<th>high"
        rows = "".join(f"<tr><td>p{number}<td>{number}<td>{number}9" for number in range(40))
        found = read(tmp_path, "a.html", f"{head}{rows}</table>", passage_words=40)
        assert len(found) > 1 and {one.title for one in found[1:]} == {"Top > part | low | high"}

    def test_a_term_of_html_stands_above_its_definition(self, tmp_path):
        page = "<dl><dt>--jobs</dt><dd><p>Number of workers.</p><p>Or none.</p></dd><dt>-v<dd>Tells more.</dl><p>End."
        [found] = read(tmp_path, "a.html", page)
        assert found.text == "--jobs\n    Number of workers.\n\nOr none.\n\n-v\n    Tells more.\n\nEnd."
        assert Citer("what is -v?").cite(found.text).text == "-v\n    Tells more."
        assert [text for _, text in headings_and_texts(outline_html(page), 4)][0] == "--jobs\n    Number of workers."

    def test_html_has_the_title_of_its_front_matter_or_first_h1(self, tmp_path):
        [found] = read(tmp_path, "a.html", "---\ntitle: Own\ntags: [x]\n---\n<h2>Sub</h2><p>Text.")
        assert (found.title, found.text, found.metadata["tags"]) == ("Own > Sub", "Sub\n\nText.", ["x"])
        first, second = read(tmp_path, "b.html", "<h2>Sub</h2><p>A longer text.</p><h1>Top</h1><p>More.")
        assert (first.title, second.title) == ("Top > Sub", "Top")
        assert read(tmp_path, "c.html", "<h2>Sub</h2><p>Text.")[0].title == "c.html > Sub"

    def test_passages_of_python_name_their_class_and_function(self, tmp_path):
        body = "".join(f"        line_{number} = 1\n" for number in range(9))
        text = (
            f'"""Head."""\n\n# About A.\n@mark\nclass A:\n    """An A."""\n\n    def f(self):\n{body}\n'
            "    def g(self):\n        pass\n\n\ntail = 1\n"
        )
        (tmp_path / "b").mkdir()
        found = read(tmp_path, "b/app.py", text)
        assert [(one.title, one.text.split("\n")[0], one.metadata["line"]) for one in found] == [
            ("app.py", '"""Head."""', 1),
            ("app.py > A", "# About A.", 3),
            ("app.py > A > f", "def f(self):", 8),
            ("app.py > A", "def g(self):", 19),
            ("app.py", "tail = 1", 23),
        ]
        assert [one.title for one in read_documents(tmp_path) if "tail" in one.text] == ["b/app.py"]
        assert len({one.id for one in found}) == 5

    @pytest.mark.parametrize(
        "text", ["def f(:\n    pass", "x = '\\d'\f\ny = 1", "(" * 5_000, "def f():\n\tx\n        y"]
    )
    def test_python_that_cannot_be_parsed_is_code(self, tmp_path, text):
        found = read(tmp_path, "a.py", text)
        assert "".join("".join(one.text for one in found).split()) == "".join(text.split())

    @pytest.mark.parametrize("field", ["{a}", "{a:{b}}"])
    def test_python_with_a_crowded_f_string_is_code(self, tmp_path, field):
        # Python's own parser takes 4 and 17 seconds.
        text = f"def f():\n    return f'{field * (250_000 // len(field))}'\n"
        begun = time.process_time()
        found = read(tmp_path, "a.py", text)
        assert time.process_time() - begun < 2
        assert "".join("".join(one.text for one in found).split()) == "".join(text.split())
        data = "d = [\n" + '    {"a": {}},\n' * 15_000 + "]\n"
        body = "".join(f"    line_{number} = 1\n" for number in range(9))
        assert read(tmp_path, "b.py", f"{data}def f():\n{body}")[-1].title == "b.py > f"

    def test_code_keeps_its_lines(self, tmp_path):
        found = read(tmp_path, "a.py", "def f():\n    return 1\n\n\ndef g():\n    return 2\n", passage_words=4)
        assert [(one.text, one.metadata["line"]) for one in found] == [
            ("def f():\n    return 1", 1),
            ("def g():\n    return 2", 5),
        ]


class TestEncodings:
    TEXT = "Der Preis für Öl stieg während der Krise erheblich, was große Folgen für die Wirtschaft hatte.\n" * 3

    @pytest.mark.parametrize(
        ("page", "text"),
        [
            ("<p>a <b and c", "a <b and c"),
            ("1 < 2 <3> 4", "1 < 2 <3> 4"),
            ("a<!-- <p> --> b <!--> c <!---> d", "a b c d"),
            ("a <!-- b", "a <!-- b"),
            ("a <!doctype html><?x y?></> b", "a b"),
            ('<a title="1 > 0" href=x>a</a> b', "a b"),
            ('<a title="1 >a</a> b', "a b"),
            ("<SCRIPT>if (a</b>) '<p>'</scripts></SCRIPT >c", "c"),
            ("a<script>b", "a"),
            ("<textarea><p>&lt;</textarea>", "<p><"),
            ("<title>a <p>b", "a\n\nb"),
            ("<svg/>a<svg><g><title>b</title></svg></g>c", "ac"),
            ("&#65;&#x42;&amp;&#99999999999999999999;&#xFFFFFFFFF;", "AB&\ufffd\ufffd"),
            ("&#" + "1" * 5000 + ";", "\ufffd"),
        ],
    )
    def test_html_that_is_odd_loses_no_text(self, page, text):
        assert outline_html(page).text == text

    @pytest.mark.parametrize("mark", [codecs.BOM_UTF8, codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE, codecs.BOM_UTF32_LE])
    def test_a_byte_order_mark_decides(self, tmp_path, mark):
        encoding = {codecs.BOM_UTF8: "utf-8", codecs.BOM_UTF16_LE: "utf-16-le", codecs.BOM_UTF16_BE: "utf-16-be"}
        name = encoding.get(mark, "utf-32-le")
        [found] = read(tmp_path, "a.txt", mark + self.TEXT.encode(name))
        assert found.text == self.TEXT.strip()
        assert found.metadata.get("encoding", "utf-8") == name

    def test_latin_1_is_detected(self, tmp_path):
        pytest.importorskip("charset_normalizer")
        [found] = read(tmp_path, "a.txt", self.TEXT.encode("latin-1"))
        assert found.text == self.TEXT.strip() and "encoding" in found.metadata

    @pytest.mark.parametrize(
        ("text", "encoding"),
        [
            ("Não há informações sobre a situação do coração da nação.", "cp1252"),
            ("Æblet er rødt, og børnene går på stranden om sommeren.", "cp1252"),
            ("Å ena sidan är det kallt på hösten, men å andra sidan är det vackert.", "cp1252"),
            ("Le Rhin naît dans les Alpes. Sa frontière est à l’est.", "cp1252"),
            ("The café’s “naïve” résumé – it’s £5.", "cp1252"),
            ("Příliš žluťoučký kůň úpěl ďábelské ódy. Město leží na řece.", "cp1250"),
            ("Zażółć gęślą jaźń. Wisła jest najdłuższą rzeką w Polsce.", "cp1250"),
            ("Árvíztűrő tükörfúrógép. A Duna Európa második leghosszabb folyója.", "cp1250"),
            ("Волга впадает в Каспийское море. Это самая длинная река в Европе.", "cp1251"),
            ("ライン川はスイスのアルプスに源を発し、北海に注ぐ。", "shift_jis"),
        ],
    )
    def test_a_few_sentences_tell_their_encoding(self, tmp_path, text, encoding):
        pytest.importorskip("charset_normalizer")
        [found] = read(tmp_path, "a.txt", text.encode(encoding))
        assert found.text == text

    def test_sentences_of_languages_are_detected_in_cp1252(self, tmp_path):
        pytest.importorskip("charset_normalizer")
        lines = Path("bench/languages.jsonl").read_text(encoding="utf-8").splitlines()
        texts = [text for text in (json.loads(line)["passage"] for line in lines) if not text.isascii()]
        western = [text for text in texts if text.encode("cp1252", "ignore").decode("cp1252") == text]
        assert len(western) >= 25
        for text in western:
            [found] = read(tmp_path, "a.txt", text.encode("cp1252"))
            assert (found.text, found.metadata["encoding"]) == (text, "cp1252")

    def test_chinese_and_japanese_are_cut_between_sentences(self, tmp_path):
        text = "".join(f"第{number}章は石油の話です。" for number in range(200))
        found = read(tmp_path, "a.txt", text)
        assert len(found) > 3 and "".join(one.text for one in found) == text
        assert all(one.text.startswith("第") and one.text.endswith("。") for one in found)

    def test_html_is_decoded_as_it_declares(self, tmp_path):
        [found] = read(tmp_path, "a.html", b'<meta charset="iso-8859-2"><p>\xb1</p>')
        assert (found.text, found.metadata["encoding"]) == ("ą", "iso8859-2")

    @pytest.mark.parametrize(
        ("content", "told"),
        [
            (b"a\0b", "holds a NUL at character 2; expected text"),
            (b"\xff\xfea", "has the byte order mark of utf-16-le, but byte 2 is not valid in it"),
            (b"\xff\0\xfa\0", "NUL bytes; expected text, got binary data"),
            (b" \n\t\n", "has no text"),
            (b"", "has no text"),
        ],
    )
    def test_what_is_no_text_is_refused(self, tmp_path, content, told):
        with pytest.raises(CorpusError, match=re.escape(told)):
            read(tmp_path, "a.md", content)

    def test_a_file_over_the_limit_is_refused(self, tmp_path):
        with pytest.raises(CorpusError, match="is over 5 bytes, the limit of files that are read whole"):
            read(tmp_path, "a.md", "123456", max_file_bytes=5)


class TestIds:
    TEXT = "# A\n\none two three\n\nfour five six\n\n## B\n\nb\n\n# A\n\nagain and again\n"

    def ids(self, tmp_path, text):
        return [one.id.removeprefix(str(tmp_path) + "/") for one in read(tmp_path, "a.md", text, passage_words=6)]

    def test_they_name_file_headings_and_passage(self, tmp_path):
        assert self.ids(tmp_path, self.TEXT) == ["a.md#a", "a.md#a:2", "a.md#a/b", "a.md#a-2"]

    def test_an_edit_in_one_section_leaves_those_of_the_others(self, tmp_path):
        edited = self.TEXT.replace("one two", "zero one two").replace("# A\n\nagain", "# New\n\nx\n\n# A\n\nagain")
        assert set(self.ids(tmp_path, edited)) > {"a.md#a/b", "a.md#a-2"}

    def test_a_text_without_headings_is_numbered(self, tmp_path):
        found = read(tmp_path, "a.txt", "one two\n\nthree four\n", passage_words=2)
        assert [one.id.removeprefix(str(tmp_path) + "/") for one in found] == ["a.txt", "a.txt:2"]

    def test_long_paths_and_headings_make_valid_distinct_ids(self, tmp_path):
        long = "x" * 500
        text = "".join(f"{'#' * level} {long}{level}\n\ntext\n\n" for level in range(1, 7))
        found = self.ids(tmp_path, text)
        assert len(set(found)) == len(found) == 24 and max(map(len, found)) <= 1024


@given(st.text(alphabet=st.sampled_from("ab \n#`"), max_size=200))
def test_the_line_of_a_passage_is_where_its_text_begins(tmp_path_factory, text):
    path = tmp_path_factory.mktemp("lines") / "a.md"
    path.write_text(text, newline="")
    if not text.strip():
        return
    lines = text.split("\n")
    for found in read_documents(path, CorpusOptions(passage_words=3)):
        first = found.text.split("\n")[0]
        assert first in lines[found.metadata["line"] - 1]


def test_blocks_of_one_section_are_cut_independently_of_what_follows():
    text = "a b c d"
    section = Section((), [Block(0, 3), Block(4, 7)])
    assert split_section(text, section, 2) == [(0, 3), (4, 7)]


def notebook(*cells, **more):
    kinds = [{"cell_type": kind, "source": source, "metadata": {}} for kind, source in cells]
    return json.dumps({"cells": kinds, "nbformat": 4, "metadata": {}, **more}, indent=1)


class TestNotebook:
    def test_cells_are_sections_below_the_headings_before_them(self, tmp_path):
        cells = [
            ("markdown", ["# Oil\n", "\n", "An introduction."]),
            ("code", "import math\n\nprint(math.pi)"),
            ("markdown", "## Prices"),
            ("code", ["price = 3\n"]),
            ("raw", "A raw text."),
            ("code", "  \n"),
        ]
        found = read(tmp_path, "a.ipynb", notebook(*cells))
        assert [(one.id.partition("#")[2], one.title, one.text) for one in found] == [
            ("oil", "Oil", "# Oil\n\nAn introduction."),
            ("oil-2", "Oil", "import math\n\nprint(math.pi)"),
            ("oil/prices", "Oil > Prices", "## Prices\n\nprice = 3"),
            ("oil/prices-2", "Oil > Prices", "A raw text."),
        ]
        assert found[2].metadata == {"file": str(tmp_path / "a.ipynb"), "headings": "Oil > Prices"}

    def test_a_notebook_of_before_version_4_is_read(self, tmp_path):
        cells = [{"cell_type": "heading", "level": 2, "source": "Oil"}, {"cell_type": "code", "input": ["x = 1"]}]
        [found] = read(tmp_path, "a.ipynb", json.dumps({"worksheets": [{"cells": cells}], "nbformat": 3}))
        assert found.text == "## Oil\n\nx = 1"

    @pytest.mark.parametrize(("level", "marks"), [(10**12, 6), (7, 6), (0, 1), (-5, 1)])
    def test_a_heading_has_one_to_six_levels(self, tmp_path, level, marks):
        cells = [{"cell_type": "heading", "level": level, "source": "Oil"}]
        [found] = read(tmp_path, "a.ipynb", json.dumps({"worksheets": [{"cells": cells}], "nbformat": 3}))
        assert (found.title, found.text) == ("Oil", "#" * marks + " Oil")

    @pytest.mark.parametrize(
        ("content", "told"),
        [
            (notebook(("code", "x"))[:-5], "expected JSON, got what is damaged or cut at line"),
            ("[]", "expected a notebook, an object with cells"),
            ('{"a": 1}', "expected a notebook, an object with cells"),
            ('{"cells": [{"cell_type": "code"}]}', "expected a notebook, an object with cells"),
            ('{"cells": [7]}', "expected a notebook, an object with cells"),
            ('{"cells": [{"cell_type": "code", "source": [7]}]}', "expected a notebook, an object with cells"),
        ],
    )
    def test_what_is_no_notebook_is_named(self, tmp_path, content, told):
        with pytest.raises(CorpusError, match=told):
            read(tmp_path, "a.ipynb", content)


class TestMail:
    HEAD = (
        "From: Ann <ann@example.org>\nTo: bob@example.org\nSubject: =?utf-8?q?Caf=C3=A9?= hours\n"
        "Date: Wed, 01 May 2024 10:00:00 +0200\n"
    )

    def test_the_subject_is_the_title_and_the_body_the_text(self, tmp_path):
        [found] = read(tmp_path, "a.eml", self.HEAD + "\nWe open at nine.\n")
        assert (found.id, found.title, found.text) == (str(tmp_path / "a.eml"), "Café hours", "We open at nine.")
        assert found.metadata == {
            "from": "Ann <ann@example.org>",
            "to": "bob@example.org",
            "date": "2024-05-01T10:00:00+02:00",
            "file": str(tmp_path / "a.eml"),
        }

    @pytest.mark.parametrize(
        ("kind", "body", "text"),
        [
            ("text/html", "<p>We <b>open</b> at nine.</p>", "We open at nine."),
            ("text/plain; charset=latin-1\nContent-Transfer-Encoding: quoted-printable", "caf=E9", "café"),
            ("text/plain; charset=base64\nContent-Transfer-Encoding: base64", "Y2Fmw6k=", "café"),
            ("text/plain; charset=nowhere", "cafe", "cafe"),
            (f'text/plain; name="{"x" * 5_000}";\n CharSet = "latin-1"', "caf\u00e9", "cafÃ©"),
            (f'multipart/mixed; name="{"x;" * 900}"; boundary="x y"', "--x y\n\nP\n--x y--", "P"),
            ("image/png\nContent-Transfer-Encoding: base64", "AAAA", "Café hours"),
            (
                "multipart/alternative; boundary=x",
                "--x\nContent-Type: text/html\n\n<p>H</p>\n--x\nContent-Type: text/plain\n\nP\n--x--",
                "P",
            ),
            (
                "multipart/mixed; boundary=x",
                "--x\nContent-Type: text/plain\n\nP\n--x\nContent-Disposition: attachment\n\nA\n--x--",
                "P",
            ),
            ("multipart/mixed; boundary=x", "--x\nContent-Type: text/plain\n\nP and cut", "P and cut"),
        ],
    )
    def test_the_plain_text_is_read_else_the_html_else_the_subject(self, tmp_path, kind, body, text):
        [found] = read(tmp_path, "a.eml", f"{self.HEAD}Content-Type: {kind}\n\n{body}\n")
        assert (found.title, found.text) == ("Café hours", text)

    def test_headers_that_are_wrong_are_kept_as_they_stand(self, tmp_path):
        [found] = read(tmp_path, "a.eml", b"From: \xff\nSubject: x\nDate: some day\n\nbody\n")
        assert (found.metadata["date"], found.text) == ("some day", "body")

    @pytest.mark.parametrize("content", [b"no headers at all", b"\0\1\2\3", b"{}"])
    def test_what_is_no_mail_is_named(self, tmp_path, content):
        with pytest.raises(CorpusError, match="a.eml: expected an e-mail"):
            read(tmp_path, "a.eml", content)

    @pytest.mark.parametrize(
        "head",
        [
            "From: " + "a " * 60_000,
            "To: x\nFrom: " + "a@b," * 60_000,
            "Subject: x\nContent-Type: text/plain; " + "a=1; " * 25_000,
            "Subject: x\nContent-Type: text/plain; " + "".join(f"a*{n}=1; " for n in range(14_000)),
            "Subject: " + "=?utf-8?q?a?= " * 17_000,
            "From: x\nContent-Type: multipart/mixed; boundary=b\n\n"
            + "".join(f"--b\nContent-Type: text/plain; n={n}; {'a=1; ' * 14}\n\n" for n in range(1_200))
            + "--b--",
            "From: x\n"
            + "".join(f'Content-Type: multipart/mixed; boundary="b{n}"\n\n--b{n}\n' for n in range(19))
            + "\n" * 60_000,
        ],
    )
    def test_hostile_mails_are_read_at_once(self, tmp_path, head):
        begun = time.process_time()
        (tmp_path / "a.eml").write_text(f"{head}\n\nbody b\n")
        with open_corpus(tmp_path) as corpus:
            assert not any(isinstance(row, Reject) for row in corpus)
        assert time.process_time() - begun < 2

    def test_a_long_header_is_cut_and_named(self, tmp_path, caplog):
        people = ", ".join(["bob@example.org"] * 1_000)
        [found] = read(tmp_path, "a.eml", f"From: a@b.c\nTo: {people}\nSubject: {'x ' * 9_000}\n\nbody\n")
        assert found.title.startswith("x x") and {*found.metadata} == {"from", "file"}
        assert "expected headers of at most 4,096 characters, got more; cut: subject, to" in caplog.text

    @pytest.mark.parametrize(
        ("head", "told"),
        [
            (
                "From: x\n"
                + "".join(f'Content-Type: multipart/mixed; boundary="b{n}"\n\n--b{n}\n' for n in range(250)),
                "a.eml: expected parts nested at most 20 deep, got more",
            ),
            ("From: x\n" + "Content-Type: message/rfc822\n\n" * 250, "nested at most 20 deep"),
            ("From: " + "(a " * 5_000, "a.eml: expected comments in headers that are not nested as deeply"),
        ],
    )
    def test_a_mail_that_is_nested_too_deeply_is_named(self, tmp_path, head, told):
        with pytest.raises(CorpusError, match=told):
            read(tmp_path, "a.eml", f"{head}\n\nbody\n")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.md", "# " + "word " * 2_000 + "\n\nThe body.\n"),
        ("a.rst", "word " * 2_000 + "\n" + "=" * 10_000 + "\n\nThe body.\n"),
        ("a.md", "It is one line. " * 20_000),
        ("a.md", "# A\n\n```sh\n" + "run it\n" * 3_000),
        ("a.md", "```{note}\n" * 3_000 + "text\n"),
        ("a.rst", ".. code-block:: c\n\n" + "   run it\n" * 3_000),
        ("a.rst", ".. note::\n" * 3_000 + "text\n"),
        ("a.rst", "ab\n~~~~\n\n" * 1_000),
        ("a.rst", "==== ====\na    b\n" * 1_000),
        ("a.rst", "+---+---+\n| a | b |\n" * 1_000),
        ("a.md", "It is so:\n\n" * 3_000),
        ("a.md", "**Is it?**\n\n" * 1_000),
    ],
)
def test_of_odd_files_nothing_is_lost_or_doubled(tmp_path, name, text):
    found = read(tmp_path, name, text)
    assert "".join("".join(one.text.split()) for one in found) == "".join(text.split())
    for one in found[:3]:
        assert Citer("what is run").cite(one.text, one.title) is not None


def test_a_title_that_is_empty_or_equal_to_the_text(tmp_path):
    [found] = read(tmp_path, "a.md", '---\ntitle: ""\n---\n# \n\nThe text.\n')
    assert (found.title, found.text) == ("a.md", "# \n\nThe text.")
    assert Citer("text").cite("The text", "The text").text == "The text"
    assert Citer("text").cite("The text", "").text == "The text"
