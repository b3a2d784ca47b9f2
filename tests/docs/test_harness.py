"""The runner and the parser of the docs' blocks find faults in them."""

import time

import pytest
from docs_pages import Block, blocks_of, language_of
from docs_parsing import check_block
from docs_running import Page, check_comments, check_shown
from markdown_it import MarkdownIt


def block(code, language="bash", shows=None):
    return Block(page="page.md", line=1, language=language, code=code, shows=shows)


@pytest.fixture
def page(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    state = Page()
    yield state
    state.close()


def test_variables_folders_and_files_last_from_block_to_block(page, tmp_path):
    page.run(block("mkdir inner; cd inner; name=oil\n"))
    page.run(block('echo "$name" > out.txt\ncat out.txt\n', shows="oil\n"))
    assert (tmp_path / "inner" / "out.txt").read_text() == "oil\n"
    page.run(block("number = 3\n", "python"))
    page.run(block("print(number + 1)\n", "python", shows="4\n"))


def test_mvindex_runs_in_pipes_and_loops_and_fails_as_a_program(page):
    page.run(block("for one in a b; do mvindex --version | tr m M; done\n", shows="Mvindex ...\nMvindex ...\n"))
    with pytest.raises(AssertionError, match="exit 1\n.*there is no mvindex index here"):
        page.run(block("mvindex info --index none.mvx\necho never\n"))


def test_a_command_that_fails_ends_its_block(page):
    with pytest.raises(AssertionError, match=r"page.md:1: exit 1"):
        page.run(block("false\necho never\n"))


def test_nothing_is_installed(page):
    with pytest.raises(AssertionError, match="pip is not for tests"):
        page.run(block("pip install mvindex\n"))


def test_what_a_page_has_started_ends_with_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    page = Page()
    page.run(
        block("(while true; do date +%s%N > beat; sleep 0.02; done) &\nwhile ! test -s beat; do sleep 0.02; done\n")
    )
    page.close()
    last = (tmp_path / "beat").read_text()
    time.sleep(0.2)
    assert (tmp_path / "beat").read_text() == last


def test_what_is_shown_must_be_printed():
    check_shown("1. 0.4008  oil\n...\n", "1. 0.4021  oil \nmore\n", "here")
    for printed in ("1. 0.4008  river\nmore", "1. 0.4108  oil\nmore", "0. first\n1. 0.4008  oil\nmore"):
        with pytest.raises(AssertionError):
            check_shown("1. 0.4008  oil\n...\n", printed, "here")


def test_comments_behind_prints_must_be_printed_in_their_order():
    code = "print(a)  # one: the first\nprint(b)   # two\n# three\n"
    check_comments(code, "one\ntwo\n", "here")
    for printed in ("two\none\n", "one\n", "one\ntwenty\n"):
        with pytest.raises(AssertionError, match="here: no line"):
            check_comments(code, printed, "here")


@pytest.mark.parametrize(
    "code",
    [
        "mvindex ingest a.tsv --index a.mvx --dtype fp32 --shards 2 > out.txt &",
        "OMP_NUM_THREADS=1 python bench/search.py --documents 10 \\\n    --threads 2",
        "pip install -c constraints.txt '.[all]' && pip install 'mvindex[server,reports]'",
        "make demo   # all of it",
        "sh bench/nightly.sh",
    ],
)
def test_commands_that_there_are_can_be_read(code):
    check_block(code)


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("mvindex ingets a.tsv", "no such command"),
        ("mvindex ingest a.tsv --indx a.mvx", "--indx"),
        ("mvindex plan --documents 21M --ram 64G --dim many", "valid int"),
        ("true_is_no_command x", "no command that is known"),
        ("python bench/no_such.py", "no_such.py"),
        ("python bench/search.py --no-such-flag", "exit 2"),
        ("pip install 'mvindex[no-such]'", "no such extra"),
        ("make no_such_target", "no_such_target"),
        ("sh bench/no_such.sh", "no_such.sh"),
    ],
)
def test_commands_that_there_are_not_are_named(code, said):
    with pytest.raises(Exception, match=said):
        check_block(code)


def test_indented_blocks_count_and_text_under_a_block_is_what_it_prints():
    found = blocks_of("docs/tutorials/first-index.md")
    assert [one.language for one in found].count("python") == 2
    assert found[2].shows.startswith("what is shipped on the river?")
    tokens = MarkdownIt().parse("a\n\n    mvindex info\n\nb\n\n    import numpy\n\n```toml\na = 1\n```\n")
    assert [language_of(token) for token in tokens if token.content and token.type != "inline"] == [
        "bash", "python", "toml",
    ]  # fmt: skip
