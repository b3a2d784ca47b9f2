"""The command `mvindex grep`."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Collection
from contextlib import ExitStack
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mvindex.cli.options import (
    FOLDERS,
    HYBRID,
    OUTPUT_PANEL,
    ThreadsOption,
    note,
    option,
    parse_choice,
    search_option,
    switch,
)
from mvindex.cli.terminal import columns, escape_controls, has_colours, print_json, shortened, stdout_width, styled

if TYPE_CHECKING:
    from mvindex.index import Index
    from mvindex.io.hidden import GrepHit, HiddenIndex
    from mvindex.records import Hit, ProgressCallback

_FILE, _LINE, _MATCH = "35", "32", "1;31"
_WORD = re.compile(r"[^\W_]+")
_SENTENCE_LINES = 3
_SHORT = 3
_LEAST_ROOM = 20
_BUDGET_S = 40.0


def grep(  # noqa: PLR0913 - each option is a flag of the command
    words: Annotated[
        str | None, typer.Argument(metavar="WORDS", help="The words to search for, or a question.", show_default=False)
    ] = None,
    folder: Annotated[str, typer.Argument(metavar="FOLDER", help="The folder.", show_default=False)] = ".",
    top_k: Annotated[int, option("Print so many hits.", names=("--top-k", "-n", "-k"), min=1)] = 10,
    glob: Annotated[
        list[str] | None,
        option(
            "Search only files that match, such as '*.md', or with '!*.md' only others; may be repeated.",
            FOLDERS,
            "PATTERN",
            names=("--glob", "-g"),
        ),
    ] = None,
    mode: Annotated[str, search_option("mode", metavar="MODE")] = "hybrid",
    budget: Annotated[
        float | None,
        option(
            "Encode for at most so many seconds, also passages that an earlier run deferred (default: 40 for new "
            "ones).",
            HYBRID,
            "SECONDS",
            min=0,
        ),
    ] = None,
    where: Annotated[
        bool, switch("--where", "Print the directory of the folder's hidden index, and do nothing else.")
    ] = False,
    as_json: Annotated[bool, switch("--json", "Print one line of JSON for each hit.", OUTPUT_PANEL)] = False,
    threads: ThreadsOption = None,
) -> None:
    """Search the files of a folder by terms and by meaning, without an index of yours.

    Prints file:line: sentence, the best first. Exit 0: hits, 1: none, 2: an error, as grep does.

    A hidden index in your cache is made the first time; later only changed files are read. Files that .gitignore names,
    hidden ones, links and binary ones are left out. To remove the index: rm -r "$(mvindex grep --where)"

    Example: mvindex grep "how long are cookies kept" src/

    Example: mvindex grep retry -g '*.py' -n 3 --json
    """
    from mvindex.io.hidden import HiddenIndex, search_hidden
    from mvindex.search.fusion import Mode

    chosen = parse_choice("--mode", mode, Mode)
    if where:
        folder = folder if folder != "." else words or "."  # there are no words to give
    hidden = HiddenIndex(folder)
    if where:
        typer.echo(hidden.place)
        return
    if not (words or "").strip():
        raise typer.BadParameter("WORDS: expected words to search for, got none")
    with _open(hidden, chosen is not Mode.LEXICAL, budget) as index:
        if not hidden.files:
            note(f"{folder}: no file that can be read; left out: {hidden.left_out or 'nothing'}")
        files = _matching(hidden.files, glob or ())
        hits = search_hidden(index, words or "", top_k, chosen, files, has_bare=hidden.counts[1] > 0)
    base, wanted = "" if folder == "." else folder, {word.casefold() for word in _WORD.findall(words or "")}
    for hit in hits:
        if as_json:
            print_json(_as_json(hit, base, wanted))
        else:
            sys.stdout.write(_as_line(hit.hit, base, wanted) + "\n")
    if not hits:
        raise typer.Exit(1)


def _open(hidden: HiddenIndex, with_views: bool, budget: float | None) -> Index:
    from mvindex.io.hidden import RefreshHooks

    with ExitStack() as shown:
        hooks = RefreshHooks(on_note=note, on_progress=_progress(shown))
        index = hidden.open(
            hooks,
            with_views=with_views,
            budget_s=_BUDGET_S if budget is None else budget,
            encode_all=budget is not None,
        )
    count, bare = hidden.counts
    if with_views and bare:
        note(
            f"{count - bare:,} of {count:,} passages are found by meaning too, the others by their terms only; "
            "--budget SECONDS encodes more"
        )
    return index


def _progress(shown: ExitStack) -> ProgressCallback:
    """Return a callback that shows progress until the stack is left; what shows it is imported by the first call."""
    show: ProgressCallback | None = None

    def advance(step: str, done: int, total: int | None) -> None:
        nonlocal show
        if show is None:
            from mvindex.cli.progress import show_step_progress

            show = shown.enter_context(show_step_progress())
        show(step, done, total)

    return advance


def _matching(files: Collection[str], patterns: Collection[str]) -> list[str] | None:
    """Return the files that the patterns of --glob leave; None without patterns."""
    if not patterns:
        return None
    from mvindex.corpus import FolderOptions
    from mvindex.corpus.folder import IgnorePatterns

    included = [pattern for pattern in patterns if not pattern.startswith("!")]
    excluded = [pattern[1:] for pattern in patterns if pattern.startswith("!")]
    FolderOptions(include=included, exclude=excluded)  # checks the patterns
    include, exclude = IgnorePatterns(included), IgnorePatterns(excluded)
    return [file for file in files if (not included or include.names(file)) and not exclude.names(file)]


def _as_json(found: GrepHit, base: str, words: Collection[str]) -> dict[str, Any]:
    """Return a hit as a JSON object: its place, its sentence, and the score of each ranking."""
    hit = found.hit
    line, text = _sentence(hit, words)
    return {
        "file": os.path.join(base, str(hit.metadata["file"])),
        "line": line,
        "page": hit.metadata.get("page"),
        "text": text,
        "id": hit.id,
        "dense": found.dense,
        "lexical": found.lexical,
    }


def _as_line(hit: Hit, base: str, words: Collection[str]) -> str:
    """Return file:line: sentence, on a terminal in colours and cut to its width; of a PDF the line is p3, its page."""
    is_coloured = has_colours()
    line, text = _sentence(hit, words)
    page = hit.metadata.get("page")
    place = str(line) if line is not None else "" if page is None else f"p{page}"
    file = escape_controls(os.path.join(base, str(hit.metadata["file"])))
    text = escape_controls(text)
    if sys.stdout.isatty():
        room = stdout_width() - columns(file) - len(place) - 3
        text = shortened(text, max(room, _LEAST_ROOM), "", is_coloured=False)
    if is_coloured:
        text = _WORD.sub(lambda found: styled(found[0], _MATCH, is_coloured=_is_one_of(found[0], words)), text)
    shown = [styled(file, _FILE, is_coloured=is_coloured)] + (
        [styled(place, _LINE, is_coloured=is_coloured)] * bool(place)
    )
    return f"{':'.join(shown)}: {text}"


def _sentence(hit: Hit, words: Collection[str]) -> tuple[int | None, str]:
    """Return the line with the most of the words in the citation, and the citation in one line of text.

    Of a longer citation than a sentence has lines, such as a statement of code, only that line is returned.
    """
    cited = hit.citation
    lines = (hit.snippet or hit.title if cited is None else cited.text).split("\n")
    counts = [sum(_is_one_of(word, words) for word in set(_WORD.findall(line))) for line in lines]
    best = max(range(len(lines)), key=lambda place: (counts[place], bool(lines[place].strip()), -place))
    first = hit.metadata.get("line") if cited is None else cited.line
    shown = lines if len(lines) <= _SENTENCE_LINES else lines[best : best + 1]
    return first + best if isinstance(first, int) else None, " ".join(" ".join(shown).split())


def _is_one_of(word: str, words: Collection[str]) -> bool:
    """Return whether a word is one of those searched for, in lower case, up to a short ending: retry, retries."""
    word = word.casefold()
    return any(
        word == one or (len(word) < len(one) + 4 and word.startswith(one[: max(4, len(one) - 2)])) for one in words
    )
