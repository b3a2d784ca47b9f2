"""Texts as terms: the tokenizers, the one that suits some texts, and when compiled loops do the work.

ASCII characters other than letters and digits separate terms, so that FTS5 is given only what stands between them, and
each such chunk once. A query is split by the same code as the texts, and never becomes an FTS5 query: quotes, operators
and brackets in it have no meaning.
"""

from __future__ import annotations

import re
import sqlite3
from array import array
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from contextvars import ContextVar
from enum import Enum
from functools import partial
from itertools import chain, count, islice
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import xxhash

from mvindex.corpus.text.words import PAIRED, letters_of, normal_form, pairs_and_letters, pairs_of, replace_runs
from mvindex.errors import ConfigError, StoreError, Unsupported
from mvindex.kernels import has_numba, pays_to_load, pays_to_wait
from mvindex.kernels.loading import Loading
from mvindex.records import Bools, Hashes, Ints

# What a character takes without the loops, in the elements that loading is counted in.
_ELEMENTS = 40
LOADING = Loading()


def pays_to_compile(num_chars: int, load: Callable[[], None]) -> bool:
    """Return whether texts of so many characters are split by compiled loops, which a process with much work loads.

    load: loads or compiles them.
    """
    elements = num_chars * _ELEMENTS
    return has_numba() and pays_to_load(elements) and LOADING.is_done(load, waits=pays_to_wait(elements))


# Returns the hashes of the terms of each chunk.
SplitChunks = Callable[[Sequence[bytes]], Sequence[tuple[int, ...]]]


class Lexical(Enum):
    """How texts in their normal form are split into terms: by Unicode 6.1's letters, marks and digits.

    Of scripts such as Chinese, Korean and Thai each letter is a term, and each two that follow each other. ENGLISH: the
    others are reduced to their stems (Porter 1980). BIGRAMS: as UNICODE, and quicker where most texts are in such
    scripts.
    """

    UNICODE = "unicode"
    ENGLISH = "english"
    BIGRAMS = "bigrams"


# With marks, which are vowels in Thai and Hindi; those that are not are gone from the normal form.
_PLAIN_TERMS = "unicode61 remove_diacritics 0 categories ''L* N* Co Mn Mc''"
_TOKENIZERS = {
    Lexical.UNICODE: _PLAIN_TERMS,
    Lexical.ENGLISH: f"porter {_PLAIN_TERMS}",
    Lexical.BIGRAMS: _PLAIN_TERMS,
}

# Of what an index has stored, 1 being that of version 0.2: one higher whenever a text may have other terms.
TERMS_VERSION = 2

_MOST_CHARS = 1 << 24
# Texts that are shorter together, such as queries, take no longer without compiled loops.
_FEW_CHARS = 1 << 14
# A longer text may take a tenth of a second or more, where so many of its bytes are those of no ASCII characters.
_LONG_CHARS, _OTHER_BYTES = 1 << 15, 1 / 4
# What FTS5 is given at a time: every other ASCII character separates terms, whatever stands beside it.
_CHUNK = re.compile("[0-9A-Za-z\x80-\U0010ffff]+")
# Chunks whose terms are remembered, of each kind: some 50 MB; and their longest.
_MOST_CHUNKS, _MOST_CHUNK_CHARS = 1 << 18, 64


class Tokens(NamedTuple):
    """The terms of n texts, each with the texts that have it.

    hashes: (w,) of distinct terms, rising; texts[starts[i]:starts[i + 1]] have hashes[i], as often as counts gives.
    lengths: (n,) int64, the number of terms of each text.
    """

    hashes: Hashes
    starts: Ints
    texts: Ints
    counts: Ints
    lengths: Ints


# Returns the terms of texts; None where it cannot.
TokenizeLong: TypeAlias = Callable[[Sequence[str], Lexical], Tokens | None]
_TOKENIZE_LONG: ContextVar[TokenizeLong | None] = ContextVar("tokenize_long", default=None)


@contextmanager
def tokenizing_long_texts_by(tokenize: TokenizeLong) -> Iterator[None]:
    """Have texts tokenized by this function inside the block, and here where it cannot, if one of them is long.

    A megabyte may take seconds.
    """
    token = _TOKENIZE_LONG.set(tokenize)
    try:
        yield
    finally:
        _TOKENIZE_LONG.reset(token)


def parse_lexical(value: object) -> Lexical | None:
    """Return the kind of this name, or None; ConfigError for another value."""
    if value is None:
        return None
    names = [kind.value for kind in Lexical]
    if not isinstance(value, str) or value not in names:
        raise ConfigError(f"lexical: expected {', '.join(names)}, auto or none, got {value!r:.60}")
    return Lexical(value)


class StoredLexical(NamedTuple):
    """How the stored terms of an index were made; its setting is the kind, and behind a slash a version above 1."""

    kind: Lexical
    version: int = TERMS_VERSION

    @classmethod
    def parse(cls, setting: str) -> StoredLexical:
        """Return what a setting says; ValueError where it is none."""
        kind, _, version = setting.partition("/")
        return cls(Lexical(kind), int(version or 1))

    @property
    def setting(self) -> str:
        """The setting that says this."""
        return f"{self.kind.value}/{self.version}"

    def check_version(self, where: object) -> None:
        """Raise StoreError for terms of another version of mvindex: they are not those of a query or of new texts."""
        if self.version != TERMS_VERSION:
            raise StoreError(
                f"{where}: expected terms of version {TERMS_VERSION}, got {self.version}, of an older mvindex; make "
                f"them again from the texts, by `mvindex build --lexical {self.kind.value}` or, in a new index, by "
                "`mvindex migrate`. Dense search works without"
            )


def required_lexical(setting: str | None, where: object) -> StoredLexical:
    """Return how terms are stored; Unsupported without a lexical index, StoreError for terms of an older one."""
    if setting is None:
        raise Unsupported(
            f"{where}: has no lexical index; `mvindex build --lexical unicode` makes one (english: terms by their "
            "stems)"
        )
    stored = StoredLexical.parse(setting)
    stored.check_version(where)
    return stored


def tokenize_in_parts(texts: Sequence[str], lexical: Lexical) -> Iterator[Tokens]:
    """Yield the terms of the texts, in parts of a bounded number of characters."""
    begin = size = 0
    for number, text in enumerate(texts):
        if size + len(text) > _MOST_CHARS and number > begin:
            yield tokenize(texts[begin:number], lexical)
            begin, size = number, 0
        size += len(text)
    if len(texts) > begin:
        yield tokenize(texts[begin:], lexical)


def tokenize(texts: Sequence[str], lexical: Lexical) -> Tokens:
    """Return the terms of the texts, a term by its 64-bit xxh3; Unsupported where SQLite was built without FTS5."""
    tokenize_long = _TOKENIZE_LONG.get()
    if tokenize_long is not None and any(map(_takes_long, texts)):
        tokens = tokenize_long(texts, lexical)
        if tokens is not None:
            return tokens
    read = list(map(_indexed_form, texts)) if lexical is Lexical.BIGRAMS else texts
    num_chars = sum(map(len, read))
    is_compiled = num_chars >= _FEW_CHARS and pays_to_compile(num_chars, _load_loops)
    return tokenize_compiled(read, lexical) if is_compiled else tokenize_plainly(read, lexical)


def _takes_long(text: str) -> bool:
    """Return whether the terms of a text may take a tenth of a second: ASCII needs no normal form."""
    return len(text) > _LONG_CHARS and len(text.encode()) > (1 + _OTHER_BYTES) * len(text)


def _load_loops() -> None:
    """Call the loops of terms and postings for one term, which loads or compiles them."""
    from mvindex.store.lexical.chunks import ChunkCounter
    from mvindex.store.lexical.postings import Postings, encode_compiled, merge_compiled

    hashes, starts, texts, counts, _ = ChunkCounter(lambda chunks: [[0] for _ in chunks]).count(["a"])
    blobs = encode_compiled(Postings(hashes, starts, texts, counts), np.array([0, 1]))
    merge_compiled([(blobs, 1)], 1)


def tokenize_query(query: str, lexical: Lexical) -> Tokens:
    """Return the terms that a query is searched by: of pairs of letters not also the letters."""
    if query.isascii() or not PAIRED.search(normal := normal_form(query)):
        return tokenize([query], lexical)
    return _tokens_of([replace_runs(normal, pairs_of)], _QUERY_VOCABULARIES[lexical])


def tokenize_compiled(texts: Sequence[str], lexical: Lexical) -> Tokens:
    """Return the terms of texts, with BIGRAMS of those in their indexed form, by compiled loops."""
    from mvindex.store.lexical.chunks import ChunkCounter

    idle: list[ChunkCounter] = _COUNTERS[lexical]
    # Another thread that counts has taken one, or takes this one first.
    try:
        counter = idle.pop()
    except IndexError:
        counter = ChunkCounter(_splitter(lexical))
    tokens = Tokens(*counter.count(texts))
    if not counter.is_full:
        idle.append(counter)
    return tokens


def tokenize_plainly(texts: Sequence[str], lexical: Lexical) -> Tokens:
    """Return the terms of texts, with BIGRAMS of those in their indexed form, without compiled loops."""
    return _tokens_of(texts, _VOCABULARIES[lexical])


def _tokens_of(texts: Sequence[str], vocabulary: _Vocabulary) -> Tokens:
    numbers = defaultdict[str, int](count().__next__)
    sizes, found = [], array("q")
    for text in texts:
        chunks = _CHUNK.findall(text)
        sizes.append(len(chunks))
        found.extend(map(numbers.__getitem__, chunks))
    owners = np.repeat(np.arange(len(texts)), sizes)
    hashes, places, owners = _terms_of(numbers, np.frombuffer(found, dtype=np.int64), owners, vocabulary)
    # One key for each occurrence: by term, then by text.
    keys = places * max(len(texts), 1) + owners
    keys.sort()
    firsts = np.flatnonzero(np.diff(keys, prepend=-1))
    terms, numbered = np.divmod(keys[firsts], max(len(texts), 1))
    return Tokens(
        hashes=hashes,
        starts=np.searchsorted(terms, np.arange(len(hashes) + 1)),
        texts=numbered,
        counts=np.diff(firsts, append=len(keys)),
        lengths=np.bincount(owners, minlength=len(texts)).astype(np.int64),
    )


def has_phrase(texts: Sequence[str], phrase: str, lexical: Lexical) -> Bools:
    """Return which texts have the terms of the phrase, one after the other, (n,)."""
    found = np.zeros(len(texts), dtype=bool)
    with _split_texts([_phrase_form(text) for text in texts], lexical) as connection:
        # A string of FTS5: nothing in it is an operator, and it ends at no NUL.
        query = '"' + _phrase_form(phrase).replace('"', " ").replace("\0", " ") + '"'
        rows = connection.execute("SELECT rowid FROM t WHERE t MATCH ?", (query,)).fetchall()
    found[[row for (row,) in rows]] = True
    return found


def _indexed_form(text: str) -> str:
    """Return the text as FTS5 splits it into terms."""
    return replace_runs(normal_form(text), pairs_and_letters)


def _phrase_form(text: str) -> str:
    """Return the text as FTS5 looks for phrases in it: letters of paired scripts one by one."""
    return replace_runs(normal_form(text), letters_of)


def _terms_of(chunks: Iterable[str], found: Ints, owners: Ints, vocabulary: _Vocabulary) -> tuple[Hashes, Ints, Ints]:
    """Return the distinct terms' hashes, rising, and for each occurrence of a term its place there and its text.

    found: which of the chunks stands at each place, (p,); owners: in which text, (p,).
    """
    terms = vocabulary.terms_of(list(chunks))
    flat = np.fromiter(chain.from_iterable(terms), dtype=np.uint64)
    hashes, places = np.unique(flat, return_inverse=True)
    sizes = np.fromiter(map(len, terms), dtype=np.int64, count=len(terms))
    if np.all(sizes == 1):
        return hashes, places[found], owners
    ends = np.cumsum(sizes)
    counts = sizes[found]
    firsts = np.repeat((ends - sizes)[found] - (np.cumsum(counts) - counts), counts)
    return hashes, places[firsts + np.arange(len(firsts))], np.repeat(owners, counts)


class _Vocabulary:
    """The terms of chunks of text, by what splits them; frequent chunks are remembered. Thread-safe."""

    def __init__(self, split: SplitChunks) -> None:
        self._split = split
        self._recent: dict[str, tuple[int, ...]] = {}
        self._older: dict[str, tuple[int, ...]] = {}

    def terms_of(self, chunks: Sequence[str]) -> list[tuple[int, ...]]:
        """Return the hashes of each chunk's terms; chunks are distinct."""
        recent = self._recent
        terms = {chunk: recent[chunk] for chunk in chunks if chunk in recent}
        if len(terms) < len(chunks):
            terms |= self._split_others([chunk for chunk in chunks if chunk not in terms])
        return list(map(terms.__getitem__, chunks))

    def _split_others(self, chunks: Sequence[str]) -> dict[str, tuple[int, ...]]:
        """Return the hashes of the terms of chunks that were not met lately, and remember them."""
        older = self._older
        new = [chunk for chunk in chunks if chunk not in older]
        split = dict(zip(new, self._split([chunk.encode() for chunk in new]), strict=True))
        terms = {chunk: split[chunk] if chunk in split else older[chunk] for chunk in chunks}
        self._remember({chunk: own for chunk, own in terms.items() if len(chunk) <= _MOST_CHUNK_CHARS})
        return terms

    def _remember(self, terms: dict[str, tuple[int, ...]]) -> None:
        """Keep the terms; when half of the room is taken, chunks that were not met since the last time give way."""
        if len(self._recent) + len(terms) <= _MOST_CHUNKS // 2:
            self._recent.update(terms)
        elif terms:
            self._recent, self._older = dict(islice(terms.items(), _MOST_CHUNKS // 2)), self._recent


# Vocabularies of compiled loops, those that no thread uses now.
_COUNTERS: dict[Lexical, list[Any]] = {lexical: [] for lexical in Lexical}


def _splitter(lexical: Lexical) -> SplitChunks:
    """Return what splits chunks of texts into terms; the indexed form of a text is that of its chunks."""
    return partial(_split_chunks if lexical is Lexical.BIGRAMS else _split_raw_chunks, lexical=lexical)


def _split_raw_chunks(chunks: Sequence[bytes], lexical: Lexical) -> list[tuple[int, ...]]:
    """Return the hashes of the terms of the indexed form of each chunk, in UTF-8."""
    others = [chunk for chunk in chunks if not chunk.isascii()]
    if others:
        # All at once, which is quicker: a line break is in no chunk, and comes from no other character.
        forms = iter(_indexed_form(b"\n".join(others).decode()).encode().split(b"\n"))
        chunks = [chunk if chunk.isascii() else next(forms) for chunk in chunks]
    return _split_chunks(chunks, lexical)


def _split_chunks(chunks: Sequence[bytes], lexical: Lexical) -> list[tuple[int, ...]]:
    """Return the hashes of the terms of each chunk, in UTF-8, as FTS5 splits them."""
    digest, has_stems = xxhash.xxh3_64_intdigest, lexical is Lexical.ENGLISH
    # Of ASCII a chunk in lower case is its only term, if FTS5 does not cut it.
    found: list[tuple[int, ...]] = [
        () if has_stems or len(chunk) > _MOST_CHUNK_CHARS or not chunk.isalnum() else (digest(chunk.lower()),)
        for chunk in chunks
    ]
    others = [number for number, own in enumerate(found) if not own]
    if others:
        with _split_texts([chunks[number].decode() for number in others], lexical) as connection:
            connection.execute("CREATE VIRTUAL TABLE terms USING fts5vocab(t, instance)")
            # Of accents without a letter FTS5 makes a term without a character.
            split: list[list[int]] = [[] for _ in others]
            for term, place in connection.execute("SELECT term, doc FROM terms WHERE term IS NOT NULL"):
                split[place].append(digest(term))
        for number, own in zip(others, split, strict=True):
            found[number] = tuple(own)
    return found


@contextmanager
def _split_texts(texts: Sequence[str], lexical: Lexical) -> Iterator[sqlite3.Connection]:
    """Split the texts by FTS5, into a table t in memory, for as long as the block takes."""
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        try:
            connection.execute(
                f"CREATE VIRTUAL TABLE t USING fts5(text, content='', tokenize='{_TOKENIZERS[lexical]}')"
            )
        except sqlite3.OperationalError as err:
            raise Unsupported(f"lexical search needs SQLite with FTS5; this one says: {err}") from err
        # FTS5 cuts terms of more than 32 KiB, maybe inside a letter: then they are not valid UTF-8.
        connection.text_factory = bytes
        try:
            connection.execute("BEGIN")
            connection.executemany("INSERT INTO t(rowid, text) VALUES (?, ?)", enumerate(texts))
            yield connection
            connection.execute("ROLLBACK")
        except sqlite3.Error as err:
            raise StoreError(f"texts of {sum(map(len, texts)):,} characters cannot be split into terms: {err}") from err


_VOCABULARIES = {lexical: _Vocabulary(_splitter(lexical)) for lexical in Lexical}
_QUERY_VOCABULARIES = {lexical: _Vocabulary(partial(_split_chunks, lexical=lexical)) for lexical in Lexical}


# In place of a tokenizer: the one that suits the first texts.
AUTO = "auto"
# In place of a tokenizer: no lexical search.
NONE = "none"
# Texts that decide, and characters of each.
JUDGED_TEXTS = 256
_JUDGED_CHARS = 2000
_WORD = re.compile(r"[^\W\d_]+")
# Frequent in English, rare in other languages that are written in Latin letters.
_ENGLISH = frozenset("the of and to that for with by from which this are it as at be his were has their".split())
_LETTER = re.compile(r"[^\W\d_]")
# Pairs of letters do no harm to words, so that few such texts among others decide.
_LEAST_PAIRED = 0.05
# English prose has some 25 to 35 % of these, lists and titles 10 to 20 %; Dutch and German have 1 to 4 %.
_LEAST_SHARE = 0.08


def detect_lexical(texts: Iterable[str]) -> Lexical:
    """Return BIGRAMS where a part of the first texts is in scripts that are searched by pairs of letters.

    ENGLISH where most are English, else UNICODE, which suits every language.
    """
    num_words = num_english = num_letters = num_paired = 0
    for text in islice(texts, JUDGED_TEXTS):
        begin = text[:_JUDGED_CHARS]
        num_letters += len(_LETTER.findall(begin))
        num_paired += 0 if begin.isascii() else len(PAIRED.findall(begin))
        words = _WORD.findall(begin.lower())
        num_words += len(words)
        num_english += sum(word in _ENGLISH for word in words)
    if num_paired > _LEAST_PAIRED * num_letters:
        return Lexical.BIGRAMS
    return Lexical.ENGLISH if num_english > _LEAST_SHARE * num_words else Lexical.UNICODE
