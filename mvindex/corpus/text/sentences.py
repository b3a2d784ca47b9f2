"""Sentences of a text, by Punkt's rules and by the abbreviations of a language, and snippets of several sentences.

A candidate is a full stop, question or exclamation mark before whitespace or punctuation. Whether it ends a sentence is
decided on the word before and the token after it (Kiss and Strunk 2006, section 4). The rules are those of
nltk.tokenize.punkt 3.10 (Apache License 2.0); most candidates follow a plain word, and need few of them.

Rules for English cut after an abbreviation of another language, and nowhere in a text without spaces. The rules by
language take these cuts away, and add the others; they are about words and marks that English has not.
"""

from __future__ import annotations

import functools
import heapq
import importlib
import importlib.resources
import itertools
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from mvindex.errors import ConfigError
from mvindex.records import Span, has_visible

# Characters that cannot be inside a word, beside white space.
_NON_WORD = r"[)\";}\]*:@'({\[\u2018\u2019\u201c\u201d\xab\xbb?!]"
_RUN = r"(?:-{2,}|\.{2,}|(?:\.\s){2,}\.)"
_CANDIDATE = re.compile(rf"[.?!](?=({_NON_WORD}|\s+(\S+)))")
_TOKEN = re.compile(
    rf"({_RUN}"
    r"|(?=[^(\"`{\[:;&#*@)}\]\-,])\S+?"
    rf"(?=\s|$|{_NON_WORD}|{_RUN}|,(?=$|\s|{_NON_WORD}|{_RUN}))"
    r"|\S)"
)
# Closing marks that belong to the sentence before.
_CLOSERS = "\"')]}\u2018\u2019\u201c\u201d\xab\xbb"
_CLOSING = re.compile(rf"[{re.escape(_CLOSERS)}]+?(?:\s+|(?=--)|$)", re.MULTILINE)
_NUMBER = re.compile(r"-?[.,]?\d[\d,.-]*$")
_ELLIPSIS = re.compile(r"\.\.+$")
_NUMBER_TYPE = "##number##"
# Everything up to the whitespace before the last word.
_BEFORE_WORD = re.compile(r"(?:.*[ \n\t\r\x0b\x0c])?", re.DOTALL)
_ENDS = (".", "?", "!")
_PUNCTUATION = frozenset(";:,.!?")
# Where a word was seen in training: flags of ortho_context.tab.
_MIDDLE_UPPER, _UPPER, _FIRST_LOWER, _LOWER = 1 << 2, 0b1110, 1 << 4, 0b1110000
# Decisions that are kept, and the longest context of one: a text of nothing but sentence ends repeats a few.
_KEPT_CONTEXTS, _KEPT_CHARS = 1 << 12, 64


class _Parameters(NamedTuple):
    """Learned parameters: abbreviations without their full stop, pairs of types, and where each type was seen."""

    abbreviations: frozenset[str]
    starters: frozenset[str]
    collocations: frozenset[tuple[str, ...]]
    collocation_starts: frozenset[str]
    seen: dict[str, int]


def sentence_starts(text: str) -> list[int]:
    """Return where each sentence begins, in order; the first one's start is where the text's is."""
    starts: list[int] = []
    shift = 0
    sentences = _sentences(text)
    begin, end = next(sentences)
    for next_begin, next_end in sentences:
        first = begin + shift
        is_closed = next_begin < next_end and text[next_begin] in _CLOSERS
        closing = _CLOSING.match(text, next_begin, next_end) if is_closed else None
        shift = closing.end() - next_begin if closing else 0
        if closing or first < end:
            starts.append(first)
        begin, end = next_begin, next_end
    if begin + shift < end:
        starts.append(begin + shift)
    return starts


def _sentences(text: str) -> Iterator[tuple[int, int]]:
    """Yield the ranges between the marks that end sentences."""
    begin = 0
    for start, mark in _candidates(text):
        if _ends_sentence(text, start, mark):
            end = mark.end()
            yield begin, end
            begin = end if mark[2] is None else mark.start(2)
    yield begin, len(text.rstrip())


def _candidates(text: str) -> Iterator[tuple[int, re.Match[str]]]:
    """Yield each candidate with the start of the word before it; of those within one word the last."""
    start = stop = 0
    last: re.Match[str] | None = None
    for mark in _CANDIDATE.finditer(text):
        end = mark.start()
        before = _BEFORE_WORD.match(text, stop, end)
        begin = start if before is None or before.end() <= stop + 1 else before.end()
        if last is not None and stop <= begin:
            yield start, last
        start, stop, last = begin, end, mark
    if last is not None:
        yield start, last


def _ends_sentence(text: str, start: int, mark: re.Match[str]) -> bool:
    """Return whether the candidate, whose word begins at start, ends a sentence."""
    end = mark.start()
    word = text[start:end]
    # Most words have only letters. What they end, ends a sentence, unless an abbreviation or a pair is known.
    if mark[2] is not None and word.isalpha() and word.isascii() and len(word) > 1:
        if mark[0] != ".":
            return True
        kind, known = word.lower(), _parameters()
        if kind not in known.abbreviations and kind not in known.collocation_starts:
            return True
    context = text[start : mark.end(1)]
    return _decided(context) if len(context) <= _KEPT_CHARS else _decide(context)


def _decide(context: str) -> bool:
    """Return whether a token of the context that is not its last one ends a sentence."""
    before: str | None = None
    for line in context.split("\n"):
        for found in _TOKEN.finditer(line):
            token = found[0]
            if before is not None and before.endswith(_ENDS) and _breaks(before, token):
                return True
            before = token
    return False


_decided = functools.lru_cache(_KEPT_CONTEXTS)(_decide)


def _breaks(token: str, following: str) -> bool:
    """Return whether a sentence ends between the two tokens (Kiss and Strunk, section 4)."""
    breaks, is_odd = _first_guess(token)
    if not token.endswith("."):
        return breaks
    known = _parameters()
    kind = _type_without_period(token)
    is_initial = _is_initial(token)
    next_kind = _type_without_period(following) if _first_guess(following)[0] else _type(following)
    if (kind, next_kind) in known.collocations:
        return False
    seen = known.seen.get(next_kind, 0)
    starts = _starts_sentence(following, seen)
    if is_odd and not is_initial:
        if starts is True or (following[0].isupper() and next_kind in known.starters):
            return True
    if is_initial or kind == _NUMBER_TYPE:
        if starts is False:
            return False
        if starts is None and is_initial and following[0].isupper() and not seen & _LOWER:
            return False
    return breaks


def _is_initial(token: str) -> bool:
    """Return whether the token is a letter and a full stop."""
    return len(token) == 2 and token[1] == "." and _letter().match(token) is not None


@functools.cache
def _letter() -> Any:
    # NLTK matches it with the package regex, whose letters include combining marks. Imported late: it takes 40 ms.
    regex = importlib.import_module("regex")
    return regex.compile(r"[^\W\d]")


def _first_guess(token: str) -> tuple[bool, bool]:
    """Return whether the token ends a sentence by itself, and whether it is an abbreviation or an ellipsis."""
    if token in _ENDS:
        return True, False
    if _ELLIPSIS.match(token):
        return False, True
    if token[-1] != "." or token.endswith(".."):
        return False, False
    word, known = token[:-1].lower(), _parameters().abbreviations
    is_known = word in known or word.rpartition("-")[2] in known
    return not is_known, is_known


def _starts_sentence(token: str, seen: int) -> bool | None:
    """Return whether the token's case says that it begins a sentence, or does not; None where that is unknown."""
    if token in _PUNCTUATION:
        return False
    if token[0].isupper() and seen & _LOWER and not seen & _MIDDLE_UPPER:
        return True
    if token[0].islower() and (seen & _UPPER or not seen & _FIRST_LOWER):
        return False
    return None


def _type(token: str) -> str:
    kind = token.lower()
    return _NUMBER_TYPE if _NUMBER.match(kind) else kind


def _type_without_period(token: str) -> str:
    kind = _type(token)
    return kind[:-1] if len(kind) > 1 and kind[-1] == "." else kind


@functools.cache
def _parameters() -> _Parameters:
    collocations = frozenset(tuple(line.split("\t")) for line in _lines("collocations.tab"))
    contexts = (line.split("\t") for line in _lines("ortho_context.tab"))
    return _Parameters(
        frozenset(_lines("abbrev_types.txt")),
        frozenset(_lines("sent_starters.txt")),
        collocations,
        frozenset(pair[0] for pair in collocations),
        {word: int(flags) for word, flags in contexts},
    )


def _lines(name: str) -> list[str]:
    folder = importlib.resources.files("mvindex") / "data" / "punkt_tab" / "english"
    return (folder / name).read_text(encoding="utf-8").rstrip("\n").split("\n")


# Part of an encoder's fingerprint: increment it whenever the same text may yield other spans.
SPLITTER_VERSION = "punkt_tab-english+camvr-1"


def split_snippets(text: str, max_snippets: int) -> list[Span]:
    """Split a text into at most max_snippets ranges, in order: its sentences, the shortest ones merged.

    The ranges do not overlap and together contain every visible character; a text without any has none.
    """
    return merge_sentences(split_sentences(text), max_snippets)


def split_sentences(text: str) -> list[Span]:
    """Split a text into sentences by NLTK's English Punkt model: character ranges without outer whitespace."""
    begins = sentence_starts(text)
    # A sentence reaches to the next one's start: what Punkt leaves out between two of them can then not be lost.
    borders = [0, *begins[1:], len(text)]
    pieces = ((begin, text[begin:end]) for begin, end in itertools.pairwise(borders))
    return [without_whitespace(begin, piece) for begin, piece in pieces if has_visible(piece)]


def merge_sentences(sentences: Sequence[Span], max_snippets: int) -> list[Span]:
    """Merge sentences into at most max_snippets ranges: the shortest joins its shorter neighbour (CAMVR alg. 1).

    No range is empty. A range's length is its number of characters, with the whitespace inside it. The paper leaves
    ties open: here the leftmost of the shortest is merged, and of two equal neighbours into the left one. Takes
    O(n log n) time.
    """
    if max_snippets < 1:
        raise ConfigError(f"max_snippets is {max_snippets}; expected 1 or more")
    if len(sentences) <= max_snippets:
        return list(sentences)
    begins, ends = (list(places) for places in zip(*sentences, strict=True))
    lefts, rights = list(range(-1, len(begins) - 1)), [*range(1, len(begins)), -1]
    # A merged span is longer than both of its parts: no length gets positions after it was taken.
    positions = defaultdict[int, list[int]](list)
    for position, (begin, end) in enumerate(sentences):
        positions[end - begin].append(position)
    lengths = list(positions)
    heapq.heapify(lengths)
    num_spans = len(sentences)
    while num_spans > max_snippets:
        length = heapq.heappop(lengths)
        for position in sorted(positions.pop(length)):
            if ends[position] - begins[position] != length or num_spans == max_snippets:
                continue
            left, right = lefts[position], rights[position]
            if right < 0 or (left >= 0 and ends[left] - begins[left] <= ends[right] - begins[right]):
                left, right = left, position
            else:
                left = position
            # The right span becomes empty, and is skipped from then on.
            ends[left], ends[right] = ends[right], begins[right]
            after = rights[left] = rights[right]
            if after >= 0:
                lefts[after] = left
            num_spans -= 1
            merged = ends[left] - begins[left]
            if merged not in positions:
                heapq.heappush(lengths, merged)
            positions[merged].append(left)
    return [span for span in zip(begins, ends, strict=True) if span[0] < span[1]]


def without_whitespace(begin: int, piece: str) -> Span:
    """Return the range of a piece of a text, which begins there, without outer whitespace; an empty one for none."""
    bare = piece.lstrip()
    first = begin + len(piece) - len(bare)
    return first, first + len(bare.rstrip())


def stripped(text: str, begin: int, end: int) -> Span:
    """Return a range of the text without outer whitespace; an empty one for none."""
    return without_whitespace(begin, text[begin:end])


# Before a sentence of these languages, beside what English has: inverted marks, low and angled quotes. After one: the
# angled quote, also behind a space, and the one that is low in English.
OPENERS, CLOSERS = "¿¡„«‹", "»›“"
# Letters of scripts without spaces; what follows the marks that end a sentence there: all closing quotes, and then no
# particle by which the quoted is reported.
UNSPACED = "\u3040-\u30ff\u3400-\u9fff"
AFTER_UNSPACED = "(?:[」』”’）]+(?![」』”’）とっ、])|(?![」』”’）]))"
_ENDS_WITHOUT_SPACE = re.compile(rf"(?:[。！？]|(?<=[{UNSPACED}])[!?])[。！？!?]*{AFTER_UNSPACED}")
# In lower case; those in capitals are others, such as those of states.
_ABBREVIATIONS = frozenset(
    # German
    "abb anm bd bspw bzgl bzw ca evtl ggf hrsg inkl insb jh nr sog usw vgl zzgl z.b u.a d.h u.u o.ä s.o s.u v.a i.d.r "
    # French
    "apr av cf mlle mme p.ex ste "
    # Spanish and Portuguese
    "avda dra ej núm pág págs p.ej profa sra sras srta ud uds exmo exma "
    # Italian
    "avv dott ecc pag pagg sig sigg "
    # Dutch
    "bijv blz dhr drs d.w.z e.a enz i.p.v m.b.t mevr t.o.v "
    # Polish
    "godz hab inż itd itp m.in mgr mld mln św tys tzn tzw ul zob "
    # Russian
    "акад вв гг гл др им млн млрд напр н.э пл просп проф рис руб см ср ст стр табл т.д т.е т.к т.п тыс ул".split()
)
# Before a number, and words otherwise.
_BEFORE_NUMBER = frozenset("abs art cap chap env kap pos poz rys sec str tab".split())
_COUNT = re.compile(r"\s+(?:\d|[IVXLC]+\b)")
# After the ordinal number of a day or century.
_GERMAN_ORDINAL = re.compile(
    r"\s+(?:Jan(?:uar|\.)|Feb(?:ruar|\.)|März|Mai|Juni|Juli|Okt(?:ober|\.)|Dez(?:ember|\.)|Jahrhunderts?\b|Jh\.)"
)
# Of "z. B.", "т. е." or "д. 5".
_AFTER_INITIAL = re.compile(r"\s+(?:\w\.|\d)")
_DASHES = "—–"
_LONGEST_ABBREVIATION = 64


def is_abbreviation(text: str, word: str, dot: int) -> bool:
    """Return whether the word before the full stop at dot is an abbreviation of these languages, or a German ordinal.

    "EE. UU." and streets in "-str." are known too.
    """
    if word.isdigit():
        return len(word) <= 2 and _GERMAN_ORDINAL.match(text, dot + 1) is not None
    lower = word.lower()
    lower = lower[max(map(lower.rfind, "'’")) + 1 :]
    if not lower:
        return False
    if lower in _BEFORE_NUMBER or (lower.endswith("str") and word[0].isupper()):
        return _COUNT.match(text, dot + 1) is not None
    if word.isupper() and len(word) > 1:
        return word == "EE" and text.startswith("UU", dot + 2)
    return lower in _ABBREVIATIONS


def split_in_languages(text: str) -> list[Span]:
    """Split a text in English or another of these languages into sentences: ranges without outer whitespace."""
    # In a text without capitals a small letter says nothing.
    goes_on = str.isspace if text.islower() else str.islower
    starts = [start for begin in sentence_starts(text)[1:] if (start := _start(text, begin, goes_on)) is not None]
    if not text.isascii():
        starts = sorted({*starts, *(mark.end() for mark in _ENDS_WITHOUT_SPACE.finditer(text))})
    pieces = ((begin, text[begin:end]) for begin, end in itertools.pairwise([0, *starts, len(text)]))
    return [without_whitespace(begin, piece) for begin, piece in pieces if has_visible(piece)]


def split_prose(text: str) -> list[Span]:
    """Split a text into sentences, in Chinese and Japanese too, where no blank separates them."""
    if text.isascii() or not _ENDS_WITHOUT_SPACE.search(text):
        return split_sentences(text)
    return split_in_languages(text)


def _start(text: str, begin: int, goes_on: Callable[[str], bool]) -> int | None:
    """Return where the sentence that was found here begins; None where the one before goes on.

    It goes on behind an abbreviation, with such a character, and with a dash. An opening quote belongs to what follows.
    """
    end = begin
    while text[end - 1].isspace():
        end -= 1
    if text[end - 1] in OPENERS:
        return end - 1
    if goes_on(text[begin]) or text[begin] in _DASHES:
        return None
    words = text[max(0, end - 1 - _LONGEST_ABBREVIATION) : end - 1].split()
    if text[end - 1] != "." or not words:
        return begin
    word = words[-1].lstrip("(\"'[“‘„«")
    is_first = len(word) == 1 and _AFTER_INITIAL.match(text, end) is not None
    return None if is_first or is_abbreviation(text, word, end - 1) else begin
