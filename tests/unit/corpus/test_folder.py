"""The files of a folder: which are read, in which order, and what is said of the others."""

import os
import subprocess
import time

import pytest

from mvindex.corpus import CorpusOptions, FolderOptions, Reject, open_corpus
from mvindex.corpus.folder import IgnorePatterns
from mvindex.corpus.reader import Corpus
from mvindex.errors import ConfigError, CorpusError
from tests.growth.test_growth import slowness


@pytest.fixture
def make(tmp_path):
    def make(**files):
        for name, content in files.items():
            path = tmp_path / "notes" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content)
        return str(tmp_path / "notes")

    return make


@pytest.fixture
def make_nested(tmp_path):
    """Return a function that makes folders in each other by steps, the innermost with a file and an empty one."""

    def make(folder, names):
        at = os.open(folder, os.O_RDONLY)
        for name in names:
            os.mkdir(name, dir_fd=at)
            below = os.open(name, os.O_RDONLY, dir_fd=at)
            os.close(at)
            at = below
        for name, text in {"a.md": b"deep", "b.md": b""}.items():
            file = os.open(name, os.O_WRONLY | os.O_CREAT, dir_fd=at)
            os.write(file, text)
            os.close(file)
        os.close(at)

    yield make
    # Python's own function is recursive.
    subprocess.run(["rm", "-rf", tmp_path / "notes"], check=True)


def read(folder, **options):
    with open_corpus(folder, folders=FolderOptions(**options)) as corpus:
        rows = list(corpus)
    return rows, corpus.left_out.counts


def files(rows):
    return [row.document.metadata["file"] for row in rows]


def test_files_are_read_in_sorted_order_with_their_place(make):
    folder = make(**{"b.md": "b", "a/z.txt": "z", "a/b.md": "# H\nab"})
    rows, _ = read(folder)
    assert files(rows) == ["a/b.md", "a/z.txt", "b.md"]
    document = rows[0].document
    assert (document.id, document.title) == ("notes/a/b.md#h", "H")
    assert document.metadata == {
        "file": "a/b.md",
        "headings": "H",
        "line": 1,
        "folder": "notes",
        "folder_path": os.path.realpath(folder),
    }


def test_hidden_empty_and_unknown_files_are_left_out_and_counted(make):
    folder = make(
        **{".git/x.md": "x", ".h.md": "x", "e.md": "", "blank.md": " \n", "p.png": "x", "noend": "x", "a.md": "a"}
    )
    rows, counts = read(folder)
    assert files(rows) == ["a.md"]
    assert counts == {"hidden": 2, "empty": 2, "without a reader (.png)": 1, "without a reader (no suffix)": 1}


def test_gitignore_files_are_honoured_the_innermost_last(make):
    folder = make(
        **{
            ".gitignore": "*.log\n/build/\n",
            "a.log": "x",
            "build/b.md": "x",
            "sub/build/c.md": "c",
            "sub/.gitignore": "!keep.log\n",
            "sub/keep.log": "k",
            "sub/other.log": "x",
        }
    )
    assert files(read(folder)[0]) == ["sub/build/c.md", "sub/keep.log"]
    assert len(read(folder, gitignore=False)[0]) == 5


def test_gitignore_files_above_count_within_a_repository_only(make, tmp_path):
    folder = make(**{"a.log": "x", "b.md": "b", "sub/c.md": "c"})
    (tmp_path / ".gitignore").write_text("*.log\nnotes/sub/\n")
    assert files(read(folder)[0]) == ["a.log", "b.md", "sub/c.md"]
    (tmp_path / ".git").mkdir()
    assert files(read(folder)[0]) == ["b.md"]


def test_a_folder_that_its_repository_ignores_is_read_where_it_is_named(make, tmp_path):
    folder = make(**{"b.md": "b"})
    (tmp_path / ".gitignore").write_text("notes/\n")
    (tmp_path / ".git").mkdir()
    assert files(read(folder)[0]) == ["b.md"]


def test_include_and_exclude_are_patterns(make):
    folder = make(**{"a.md": "a", "a.txt": "a", "drafts/b.md": "b", "docs/c.md": "c"})
    rows, counts = read(folder, include=["*.md"], exclude=["drafts/"])
    assert files(rows) == ["a.md", "docs/c.md"]
    assert counts == {"not included": 1, "excluded": 1}
    with pytest.raises(ConfigError, match="include: expected patterns"):
        FolderOptions(include=["!"])


def test_a_gitignore_of_many_stars_ends(make):
    name = "a" * 240 + ".md"
    folder = make(**{".gitignore": "a*" * 20 + "b\n" + "[" * 4000, name: "x"})
    assert files(read(folder)[0]) == [name]


@pytest.mark.parametrize("kind", ["pipe", "link to a device", "large", "long line", "many patterns"])
def test_a_gitignore_that_is_no_small_file_leaves_its_folder_out(make, tmp_path, kind):
    folder = make(**{"a.md": "a", "sub/b.md": "b"})
    ignore = tmp_path / "notes/sub/.gitignore"
    if kind == "pipe":
        os.mkfifo(ignore)
    elif kind == "link to a device":
        ignore.symlink_to("/dev/zero")
    else:
        texts = {
            "large": "*.log\n" * 30_000,
            "long line": "a" * 5_000,
            "many patterns": "".join(f"a{n}\n" for n in range(4_001)),
        }
        ignore.write_text(texts[kind])
    rows, _ = read(folder)
    [left_out] = [row for row in rows if isinstance(row, Reject)]
    assert files(row for row in rows if row is not left_out) == ["a.md"]
    assert "cannot be read as .gitignore patterns" in left_out.reason
    ignore.replace(tmp_path / "notes/.gitignore")
    with pytest.raises(CorpusError, match="cannot be read as .gitignore patterns"):
        read(folder)


def numbered(pattern, size_bytes):
    """Return different lines of such a pattern, of about so many bytes, 4,000 at most."""
    num_lines = min(4_000, size_bytes // (len(pattern) + 5))
    return "".join(f"{pattern}{number:04}\n" for number in range(num_lines))


@pytest.mark.parametrize(
    ("lines", "depth", "num_files"),
    [
        ("**/" + "a/" * 50 + "b\n", 100, 1),
        ("**/" + "a/" * 50 + "b/**/a\n", 100, 1),
        (numbered("**/" + "a/" * 40 + "b/**/a*", 60_000), 100, 1),
        (numbered("**/a/**/a*", 60_000), 100, 1),
        (numbered("*a*b*c", 60_000), 1, 100),
        ("*a*b*c\n", 1, 100),
        (numbered("*.x", 40_000), 20, 1),
    ],
    ids=["one end", "one middle", "middles", "short middles", "stars", "equal stars", "in each folder"],
)
def test_hostile_gitignore_files_cost_seconds_at_most(make, make_nested, lines, depth, num_files):
    folder = make(**{f"{'abab' * 50}{n}.md": "x" for n in range(num_files)})
    make_nested(folder, ["a"] * depth)
    at = os.path.join(folder, "a")
    for _ in range(depth if "x0" in lines else 1):
        with open(os.path.join(at, ".gitignore"), "w") as file:
            file.write((lines * (120_000 // len(lines)))[:120_000] if lines.count("\n") == 1 else lines)
        at = os.path.join(at, "a")
    if depth == 1:
        os.replace(os.path.join(folder, "a/.gitignore"), os.path.join(folder, ".gitignore"))
    begun = time.process_time()
    rows, _ = read(folder)
    # A busy machine takes longer: by the speed at which Python runs then.
    assert time.process_time() - begun < 2 * slowness()
    assert len([row for row in rows if not isinstance(row, Reject)]) >= num_files


def test_gitignore_files_that_cost_too_much_together_leave_their_folder_out(make):
    many = "".join(f"a{n}\n" for n in range(2_001))
    folder = make(**{".gitignore": many, "sub/.gitignore": many.replace("a", "b"), "sub/a.md": "a", "b.md": "b"})
    reject, good = read(folder)[0]
    assert files([good]) == ["b.md"] and reject.location.path.endswith("notes/sub/")
    assert "expected at most 4,000 patterns in the .gitignore files that hold here, got 4,002" in reject.reason


GIT_PATTERNS = [
    "*.log",
    "/build/",
    "doc/**/x",
    "**/y",
    "a/**",
    "[^b]*",
    "!keep",
    "\\#c",
    "d ",
    "e\\*f",
    "*//",
    "/",
    "t/u",
    "a/**/z/**/w",
    "**/**/w",
    "a/**/**",
    "**",
    "p/**/q/**/x",
    "**/p/q/x",
    "d*c/**/q/x",
]
GIT_FILES = [
    "a.log",
    "build",
    "doc/x",
    "doc/p/q/x",
    "p/y",
    "a/z/w",
    "keep",
    "b",
    "#c",
    "d",
    "e*f",
    "eef",
    "t/u",
    "p/t/u",
]


@pytest.mark.parametrize("pattern", GIT_PATTERNS)
def test_patterns_decide_as_git_does(pattern, tmp_path):
    subprocess.run(["git", "init", "--quiet", tmp_path], check=True)
    (tmp_path / ".gitignore").write_text(f"{pattern}\n")
    command = ["git", "-C", tmp_path, "check-ignore", "--no-index", "--stdin"]
    asked = subprocess.run(command, input="\n".join(GIT_FILES), text=True, capture_output=True, check=False)
    # git quotes what it shows; none of these names needs it.
    patterns = IgnorePatterns([pattern])
    folders = {file: [file[: place + 1] for place, char in enumerate(file) if char == "/"] for file in GIT_FILES}
    ignored = [file for file in GIT_FILES if any(patterns.decide(each) for each in [*folders[file], file])]
    assert ignored == asked.stdout.splitlines()


def test_links_cannot_make_a_loop(make, tmp_path):
    folder = make(**{"a.md": "a"})
    (tmp_path / "out.md").write_text("out")
    for name, target in {"loop": ".", "same.md": "a.md", "out.md": "../out.md", "dead.md": "nowhere"}.items():
        os.symlink(target, os.path.join(folder, name))
    assert "links out of the folder" in read(folder)[1]
    rows, counts = read(folder, follow_links=True)
    assert files(rows) == ["a.md", "out.md"]
    assert sorted(counts) == [
        "links to folders",
        "links within the folder",
        "no files (broken links, pipes, devices)",
    ] or sorted(counts) == ["links to folders", "links within the folder"]


def test_a_link_to_itself_is_left_out_by_name(make):
    folder = make(**{"a.md": "a"})
    os.symlink("s.md", os.path.join(folder, "s.md"))
    os.symlink("t", os.path.join(folder, "s"))
    os.symlink("s", os.path.join(folder, "t"))
    for follow_links in (False, True):
        rows, counts = read(folder, follow_links=follow_links)
        assert files(rows) == ["a.md"] and counts == {"links within the folder": 3}


def test_a_link_out_of_the_folder_that_leads_to_itself_is_a_reject(make, tmp_path):
    folder = make(**{"a.md": "a"})
    (tmp_path / "loop.md").symlink_to("loop.md")
    os.symlink("../loop.md", os.path.join(folder, "s.md"))
    reject, good = read(folder, follow_links=True)[0]
    assert reject.is_file and reject.location.path.endswith("notes/s.md") and files([good]) == ["a.md"]
    assert reject.reason == "cannot be read: Too many levels of symbolic links"


def test_folders_nested_deeper_than_calls_are_read(make, make_nested):
    folder = make(**{"z.md": "a"})
    make_nested(folder, ["d"] * 1_200)
    rows, counts = read(folder)
    assert files(rows) == ["d/" * 1_200 + "a.md", "z.md"] and counts == {"empty": 1}


@pytest.mark.parametrize(
    ("over", "reasons"),
    [
        (3, ["cannot be read: File name too long"] * 2),
        (150, ["the folder cannot be read: File name too long"]),
    ],
)
def test_a_path_longer_than_the_system_takes_is_a_reject(make, make_nested, over, reasons):
    # 4,095 bytes at most: a folder's own path may fit where those of its files do not.
    folder = make(**{"z.md": "a"})
    steps, rest = divmod(4_095 - len(os.path.realpath(folder)) - len("/a.md"), 100)
    make_nested(folder, [*["d" * 99] * steps, "e" * (rest - 1 + over)])
    *rejects, good = read(folder)[0]
    assert [row.reason for row in rejects] == reasons and files([good]) == ["z.md"]


def test_a_file_that_is_removed_after_the_walk_is_a_reject(make):
    folder = make(**{"a.md": "a", "b.md": "b"})
    with open_corpus(folder) as corpus:
        listed = corpus.files
    os.unlink(os.path.join(folder, "a.md"))
    reject, good = Corpus(listed, CorpusOptions())
    assert reject.is_file and files([good]) == ["b.md"]


def test_an_index_in_the_folder_and_rejects_are_no_input(make):
    folder = make(**{"a.mvx/x.md": "x", "a.rejects.jsonl": "{}", "a.md": "a"})
    assert files(read(folder)[0]) == ["a.md"]


def test_an_index_is_no_folder_of_files(make):
    folder = make(**{"a.mvx/x.md": "x"})
    with pytest.raises(CorpusError, match="a.mvx: expected a folder of files, got an index"):
        open_corpus(os.path.join(folder, "a.mvx"))


def test_a_broken_file_is_a_reject_and_the_rest_is_read(make):
    folder = make(**{"a.md": "a\0b", "b.md": "b"})
    broken, good = read(folder)[0]
    assert isinstance(broken, Reject) and broken.is_file
    assert (broken.location.path, broken.reason) == (
        os.path.join(os.path.realpath(folder), "a.md"),
        "holds a NUL at character 2; expected text",
    )
    assert good.document.text == "b"


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        (
            "a.json",
            '{"a":1',
            "1: expected JSON, got what is damaged or cut at line 1, column 7: Expecting ',' delimiter",
        ),
        ("a.json", '{"a": {\n"b": 1,\n"c"', "3: expected JSON, got what is damaged or cut"),
        ("a.json", "no JSON", "1: expected JSON"),
        ("a.json", '[{"id": 1, "text": "a"}, {"id": 2', "1: record 2: expected a comma or ] behind it, the file ends"),
        ("a.jsonl", "x", "1: has no tab and no JSON object"),
        ("a.csv", "1,The oil crisis began.\n2,It ended.\n", "1: expected a first line that names the columns"),
        ("a.tsv", "x", "1: has no tab"),
        ("a.parquet", "PAR1\1\1\1\1", "1: is not a whole Parquet file"),
        ("a.parquet", "PK\3\4", "1: is a zip archive"),
        ("a.arrow", "ARROW1", "1: is not a whole Arrow file"),
        ("a.csv.gz", "\x1f", "1: "),
        ("a.html", "\0", "1: holds a NUL"),
    ],
)
def test_a_broken_file_of_any_reader_is_a_reject_that_names_its_line(make, name, content, told):
    folder = make(**{name: content, "b.md": "b"})
    reject, good = read(folder)[0]
    assert isinstance(reject, Reject) and reject.is_file
    assert f"{reject.location}: {reject.reason}".startswith(os.path.join(os.path.realpath(folder), f"{name}:{told}"))
    assert good.document.text == "b"


def test_what_a_reader_does_not_expect_costs_no_other_file(make, monkeypatch):
    def fail(*_):
        raise RecursionError("too deep")

    monkeypatch.setattr("mvindex.corpus.passages.html.outline_html", fail)
    reject, good = read(make(**{"a.html": "x", "b.md": "b"}))[0]
    assert reject.reason == "cannot be read: RecursionError: too deep" and good.document.text == "b"


@pytest.mark.parametrize(
    "content",
    [
        '{\n  "name": "demo",\n  // a comment\n  "version": "1.0"\n}\n',
        '{"name": "demo", "files": ["a", "b"],}',
        '{"name": "demo", "description": "A thing.", "contributors": [{"name": "A"}]}',
        '{"compilerOptions": {"a": 1}, "references": [{"path": "x"}]}',
        "[1, 2, 3]",
        "[[1], [2]]",
        "7",
        "/* a comment */ {}",
    ],
)
def test_json_that_is_no_list_of_rows_is_text(make, content):
    (row,) = read(make(**{"sub/a.json": content}))[0]
    assert (row.document.id, row.document.text) == ("notes/sub/a.json", content.strip())


@pytest.mark.parametrize(
    "content",
    [
        '[{"id": "1", "text": "a"}]',
        '[\n {\n  "id": "1",\n  "text": "a"\n }\n]\n',
        '{"count": 1, "rows": [{"id": "1", "text": "a"}]}',
        '{"id": "1", "text": "a"}\n',
    ],
)
def test_json_rows_stay_rows(make, content):
    (row,) = read(make(**{"a.json": content}))[0]
    assert (row.document.id, row.document.text) == ("notes/a.json#1", "a")


def test_a_large_json_file_is_told_by_its_beginning(make, monkeypatch):
    monkeypatch.setattr("mvindex.corpus.json_files._BEGIN_BYTES", 100)
    config = '{"name": "demo", "values": [' + ", ".join(["1"] * 100) + "]}"
    rows = "[" + ", ".join(['{"text": "a b", "n": 1}'] * 50) + "]"
    found = read(make(**{"a.json": config, "b.json": rows}))[0]
    assert found[0].document.id == "notes/a.json" and found[-1].document.id == "notes/b.json#row-50"


def test_comments_are_taken_away_in_linear_time(make):
    for hostile in ("{/*" * 50_000, '{"\\"' * 50_000, "{" + "," + " " * 200_000, '{"' + "\\" * 99_999):
        started = time.process_time()
        (reject,) = read(make(**{"a.json": hostile}))[0]
        assert reject.is_file and time.process_time() - started < 1


def test_rows_of_a_folder_name_their_file(make):
    folder = make(**{"r.jsonl": '{"id": "1", "text": "x"}\n{"id": "2", "text": "y", "file": "other"}\n'})
    good, bad = read(folder)[0]
    assert good.document.id == "notes/r.jsonl#1" and good.document.metadata["file"] == "r.jsonl"
    assert bad.reason.startswith('the field "file" names the file in a folder')


def test_tables_of_a_folder_with_equal_keys_do_not_collide(make):
    folder = make(**{"a.csv": "id,text\n1,x\n2,y\n", "b.csv": "id,text\n1,x\n2,z\n", "c.csv": "part,n\nA,1\nA,1\n"})
    assert [row.document.id for row in read(folder)[0]] == [
        "notes/a.csv#1",
        "notes/a.csv#2",
        "notes/b.csv#1",
        "notes/b.csv#2",
        "notes/c.csv#row-2",
        "notes/c.csv#row-3",
    ]


def test_a_long_key_or_path_leaves_room_for_the_other(make):
    key, name = "k" * 1000, "/".join(["d" * 100] * 8) + "/a.csv"
    folder = make(**{"a.csv": f"id,text\n{key},x\n", name: f"id,text\n{key},x\n"})
    first, second = (row.document.id for row in read(folder)[0])
    assert first == f"notes/a.csv#{key}"
    assert [len(part) for part in second.split("#")] == [32, 32]


def test_folders_and_files_are_read_together(make, tmp_path):
    folder = make(**{"a.md": "a"})
    (tmp_path / "c.txt").write_text("c")
    with open_corpus([folder, tmp_path / "c.txt"], CorpusOptions()) as corpus:
        assert [row.document.id for row in corpus] == ["notes/a.md", str(tmp_path / "c.txt")]
    with pytest.raises(CorpusError, match="is named twice"):
        open_corpus([folder, os.path.join(folder, "a.md")])


def test_two_folders_of_one_name_are_refused(make, tmp_path):
    folder = make(**{"a.md": "a"})
    (tmp_path / "x" / "notes").mkdir(parents=True)
    with pytest.raises(CorpusError, match="add them one by one with mvindex sync --name"):
        open_corpus([folder, str(tmp_path / "x" / "notes")])


def test_a_folder_without_readable_files_says_what_was_left_out(make):
    with pytest.raises(CorpusError, match=r"no file can be read; left out: 1 without a reader \(.png\) \(a.png\)"):
        open_corpus(make(**{"a.png": "x"}))


def test_a_folder_with_the_settings_of_sphinx_is_a_site(make):
    folder = make(**{"conf.py": "x = 1", "README.md": "R", "a.css": "p {}", "_templates/page.html": "{{ title }}"})
    rows, counts = read(folder)
    assert files(rows) == ["README.md"]
    assert counts == {"that build or style a site of documentation": 3}


def test_a_program_with_settings_is_no_site(make):
    rows, counts = read(make(**{"conf.py": "x = 1", "README.md": "R", "a.css": "p {}"}))
    assert files(rows) == ["README.md", "a.css", "conf.py"] and not counts


def test_files_that_build_a_site_of_documentation_are_left_out(make):
    site = {"docs/index.rst": "I", "docs/conf.py": "x = 1", "docs/_static/a.css": "p {}", "docs/a/b.js": "f()"}
    folder = make(**site, **{"docs/a/c.py": "y = 2", "lib/conf.py": "z = 3", "lib/a.js": "g()"})
    rows, counts = read(folder)
    assert files(rows) == ["docs/a/c.py", "docs/index.rst", "lib/a.js", "lib/conf.py"]
    assert counts == {"that build or style a site of documentation": 3}
    rows, _ = read(folder, include=["*.css", "conf.py"])
    assert files(rows) == ["docs/_static/a.css", "docs/conf.py", "lib/conf.py"]
