"""Measures of retrieval: by passages and answers, and by judgements with ir-measures' names and trec_eval's figures.

A ranking is the documents of a question, best first. Callers that have scores order them as trec_eval does: by score,
equal scores by descending id. A document is relevant from grade 1 on, or from `rel` on; nDCG takes the grades as gains.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NewType, Protocol

import numpy as np
import regex

from mvindex.errors import ConfigError, QueryError
from mvindex.measure.questions import Question
from mvindex.records import Bools, Doubles, Hit, Ints, SearchResult, winning_text

Judgements = Mapping[str, int]

# A table of the grades of questions that are computed together has about so many cells, or one question.
_CELLS = 1 << 20
# Grades that a file of judgements can hold.
_MAX_GRADE = 10**9
# In such a table: a document without a judgement, and a place behind the last document.
_UNJUDGED, _ABSENT = np.iinfo(np.int64).min + 1, np.iinfo(np.int64).min
_MAX_CUTOFF = 1_000_000
_SYNTAX = re.compile(r"(?P<name>[A-Za-z]+)(?:\((?P<options>[^()]*)\))?(?:@(?P<cutoff>[0-9]{1,7}))?")
_ALIASES = {"MAP": "AP", "MRR": "RR", "NDCG": "nDCG", "Precision": "P", "Recall": "R", "RPrec": "Rprec"}


@dataclass(frozen=True, slots=True)
class Measure:
    """A measure: cutoff is the number of hits that it sees, None for all; rel the least grade of a relevant document.

    judged_only: documents without a judgement are left out of a ranking first.
    """

    kind: str
    cutoff: int | None = None
    rel: int = 1
    judged_only: bool = False


@dataclass(frozen=True, slots=True)
class _Table:
    """The grades of some questions, as one measure sees them.

    ranked: (q, m) grades in the order of the rankings, up to the cut-off; judged: (q, j) all grades of each question,
    descending; the rest of a line is _ABSENT. rel: the least grade of a relevant document; cutoff: as in Measure.
    """

    ranked: Ints
    judged: Ints
    rel: int
    cutoff: int | None

    @property
    def hits(self) -> Bools:
        return self.ranked >= self.rel

    @property
    def num_relevant(self) -> Ints:
        return np.asarray((self.judged >= self.rel).sum(axis=1))


def parse_measure(name: str) -> Measure:
    """Return the measure of this name, such as nDCG@10, MRR@10, R@100, AP, P(rel=2)@5, nDCG(judged_only=True)@10.

    Raises:
        ConfigError: There is no such measure; the message lists those that exist.

    """
    parsed = _SYNTAX.fullmatch(name)
    kind = parsed and _ALIASES.get(parsed["name"], parsed["name"])
    if parsed is None or kind not in _KINDS:
        raise _unknown(name)
    try:
        cutoff = int(parsed["cutoff"]) if parsed["cutoff"] else None
        measure = Measure(kind, cutoff, **_options(parsed["options"] or "", kind))
    except ValueError as err:
        raise _unknown(name) from err
    needs = _KINDS[kind].needs_cutoff
    if needs not in (None, cutoff is not None) or not (cutoff is None or 1 <= cutoff <= _MAX_CUTOFF):
        raise _unknown(name)
    return measure


def measure_values(
    measure: Measure, qrels: Mapping[str, Judgements], rankings: Mapping[str, Sequence[str]]
) -> dict[str, float]:
    """Return the measure of each question of rankings that is judged.

    Args:
        measure: See parse_measure().
        qrels: Question id to document id to grade, a whole number up to 1,000,000,000.
        rankings: Question id to document ids, the best first, each once.

    Raises:
        ConfigError: A grade is no such number, or a ranking holds a document twice.

    """
    question_ids = [question_id for question_id in rankings if question_id in qrels]
    lengths = [max(len(rankings[question_id]), len(qrels[question_id]), 1) for question_id in question_ids]
    # Questions of about one length together: a table is as wide as its longest line.
    order = sorted(range(len(question_ids)), key=lengths.__getitem__)
    values: dict[str, float] = {}
    while order:
        some = [question_ids[at] for at in order[-max(1, _CELLS // lengths[order[-1]]) :]]
        del order[-len(some) :]
        ranked = [_ranked(measure, rankings[question_id], qrels[question_id]) for question_id in some]
        judged = [sorted(_checked(qrels[question_id], question_id), reverse=True) for question_id in some]
        for question_id in some:
            if len(set(rankings[question_id])) < len(rankings[question_id]):
                raise ConfigError(
                    f"ranking of question {question_id!r:.60}: expected each document once, got one twice"
                )
        table = _Table(_filled(ranked), _filled(judged), measure.rel, measure.cutoff)
        values.update(zip(some, _KINDS[measure.kind].compute(table).tolist(), strict=True))
    return {question_id: values[question_id] for question_id in question_ids}


def _checked(judgements: Judgements, question_id: str) -> list[int]:
    """Return the grades of a question."""
    for doc_id, grade in judgements.items():
        if not isinstance(grade, int | np.integer) or abs(grade) > _MAX_GRADE:
            raise ConfigError(
                f"judgements of question {question_id!r:.60}, document {doc_id!r:.60}: grade: expected a whole number "
                f"up to {_MAX_GRADE:,}, got {grade!r:.60}"
            )
    return list(map(int, judgements.values()))


def _options(text: str, kind: str) -> dict[str, Any]:
    """Return the options between the brackets of a name; ValueError for others than the measure has."""
    options: dict[str, Any] = {}
    for part in filter(None, map(str.strip, text.split(","))):
        option, _, value = part.partition("=")
        if option not in _KINDS[kind].options or option in options:
            raise ValueError(part)
        if option == "rel":
            if re.fullmatch("[0-9]{1,9}", value) is None:
                raise ValueError(part)
            options[option] = int(value)
        elif value in ("True", "False"):
            options[option] = value == "True"
        if option not in options or options.get("rel", 1) < 1:
            raise ValueError(part)
    return options


def _unknown(name: str) -> ConfigError:
    return ConfigError(
        "measure: expected nDCG, AP, RR (MRR) or Judged, each with an optional @k; P@k, R@k or Success@k; or Rprec "
        f"(k from 1 to {_MAX_CUTOFF:,}; such as nDCG@10 or P(rel=2)@5), got {name!r:.60}"
    )


def _ranked(measure: Measure, documents: Sequence[str], judgements: Judgements) -> list[int]:
    """Return the grades of the documents that the measure sees."""
    if measure.judged_only:
        return [judgements[doc_id] for doc_id in documents if judgements.get(doc_id, -1) >= 0][: measure.cutoff]
    return [judgements.get(doc_id, _UNJUDGED) for doc_id in documents[: measure.cutoff]]


def _filled(lines: Sequence[Sequence[int]]) -> Ints:
    """Return lines of different lengths as one table, (lines, longest)."""
    table = np.full((len(lines), max(map(len, lines), default=0)), _ABSENT, dtype=np.int64)
    for row, line in enumerate(lines):
        table[row, : len(line)] = line
    return table


def _ratio(numerators: Doubles | Ints, denominators: Doubles | Ints) -> Doubles:
    """Return the quotients, 0 where the denominator is 0."""
    return np.divide(
        numerators, denominators, out=np.zeros(len(numerators)), where=np.asarray(denominators) != 0, dtype=np.float64
    )


def _ndcg(table: _Table) -> Doubles:
    return _ratio(_gain(table.ranked), _gain(table.judged[:, : table.cutoff]))


def _gain(grades: Ints) -> Doubles:
    """Return the discounted cumulative gain of each line (Järvelin and Kekäläinen 2002); grades below 0 add 0."""
    return np.asarray(np.maximum(grades, 0) @ (1 / np.log2(np.arange(2, grades.shape[1] + 2))))


def _average_precision(table: _Table) -> Doubles:
    hits = table.hits
    precisions = hits.cumsum(axis=1) / np.arange(1, hits.shape[1] + 1)
    return _ratio((precisions * hits).sum(axis=1), table.num_relevant)


def _reciprocal_rank(table: _Table) -> Doubles:
    hits = table.hits
    if not hits.shape[1]:
        return np.zeros(len(hits))
    return np.asarray(np.where(hits.any(axis=1), 1 / (1 + hits.argmax(axis=1)), 0.0))


def _precision(table: _Table) -> Doubles:
    return np.asarray(table.hits.sum(axis=1) / table.cutoff)


def _recall(table: _Table) -> Doubles:
    return _ratio(table.hits.sum(axis=1), table.num_relevant)


def _r_precision(table: _Table) -> Doubles:
    """Return the precision among the first R documents, R being the number of relevant ones."""
    relevant = table.num_relevant
    is_read = np.arange(table.ranked.shape[1]) < relevant[:, None]
    return _ratio((table.hits & is_read).sum(axis=1), relevant)


def _success(table: _Table) -> Doubles:
    return np.asarray(table.hits.any(axis=1), dtype=np.float64)


def _judged(table: _Table) -> Doubles:
    return _ratio((table.ranked > _UNJUDGED).sum(axis=1), (table.ranked != _ABSENT).sum(axis=1))


@dataclass(frozen=True, slots=True)
class _Kind:
    """How a measure is computed, whether it needs a cut-off (None: either way), and the options that it has."""

    compute: Callable[[_Table], Doubles]
    needs_cutoff: bool | None = None
    options: tuple[str, ...] = ("rel", "judged_only")


_KINDS = {
    "nDCG": _Kind(_ndcg, options=("judged_only",)),
    "AP": _Kind(_average_precision),
    "RR": _Kind(_reciprocal_rank),
    "P": _Kind(_precision, needs_cutoff=True),
    "R": _Kind(_recall, needs_cutoff=True),
    "Success": _Kind(_success, needs_cutoff=True),
    "Rprec": _Kind(_r_precision, needs_cutoff=False),
    "Judged": _Kind(_judged, options=()),
}


# The lower-case tokens of a text, with a space before each and after the last: " what ' s on ? ". No token holds a
# space, so a sequence of tokens is a substring, and finding it needs no loop over tokens.
TokenText = NewType("TokenText", str)

# DPR's evaluation uses Python's re, which has no timeout; regex has one. They differ at a fraction such as ½, which
# is a word character to re only: the pattern `\b5\b` finds 5½ here and not there.
PATTERN_TIMEOUT_S = 5.0
# The same documents are retrieved for many questions: some 20,000 of 100 words are cached, in at most 128 MB.
CACHE_CHARS = 1 << 25

# Runs of letters, numbers and marks; any other character except separators and controls is a token by itself.
TOKEN = regex.compile(r"[\p{L}\p{N}\p{M}]+|[^\p{Z}\p{C}]")
ESCAPE = regex.compile(r"\\(.)")


def tokenize(text: str) -> TokenText:
    """Return the text's tokens after NFD normalisation, in lower case, ready for has_answer.

    They are lower-cased together with the spaces between them, so that a final sigma is judged within its own token.
    """
    tokens = TOKEN.findall(unicodedata.normalize("NFD", text))
    return TokenText(" ".join(("", *tokens, "")).lower())


def has_answer(document: TokenText, answers: Iterable[TokenText]) -> bool:
    """Return whether the document holds the tokens of an answer in sequence; an answer without tokens never matches."""
    return any(answer in document for answer in answers if not answer.isspace())


# (?R), (?1), (?+1), (?-1), (?&name), (?P>name); after an escaped bracket they are text.
_RECURSION = regex.compile(r"(?<!\\)(?:\\\\)*\(\?(?:R\)|[+-]?[0-9]+\)|&|P>)")


class AnswerMatcher:
    """Decides which texts hold an answer, by tokens, or with patterns=True by regular expressions.

    Normalised texts are cached, the most recently used up to CACHE_CHARS characters. Pass the text without the title.
    Not thread-safe.
    """

    def __init__(self, patterns: bool = False) -> None:
        self._patterns = patterns
        self._normalize = _Cache(_decompose if patterns else tokenize, CACHE_CHARS)

    def prepare(self, question_id: str, answers: Sequence[str]) -> Callable[[str], bool]:
        """Return a function that decides whether a text holds an answer to this question.

        Raises:
            QueryError: A pattern is not a regular expression, or runs for more than PATTERN_TIMEOUT_S. The message
                names the question.

        """
        if self._patterns:
            compiled = [_compile(answer, question_id) for answer in answers]
            return lambda text: any(_search(pattern, self._normalize(text), question_id) for pattern in compiled)
        tokenized = [tokenize(answer) for answer in answers]
        return lambda text: has_answer(TokenText(self._normalize(text)), tokenized)


def _decompose(text: str) -> str:
    return unicodedata.normalize("NFD", text)


def _compile(answer: str, question_id: str) -> Any:
    # Decomposed, an escaped letter such as \ě would become the escape \e and a caron: its backslash is removed first.
    pattern = ESCAPE.sub(lambda escape: escape[0] if escape[1].isascii() else escape[1], answer)
    try:
        if _RECURSION.search(pattern):
            raise ValueError("a pattern that calls itself or one of its groups takes memory without bound")
        return regex.compile(_decompose(pattern), regex.IGNORECASE | regex.MULTILINE | regex.UNICODE)
    except (regex.error, ValueError, OverflowError, RecursionError) as err:
        raise QueryError(
            f"question {question_id!r}: answers: expected regular expressions, got {answer[:80]!r}: {err}. "
            "Plain strings are matched without the regex option"
        ) from err


def _search(pattern: Any, text: str, question_id: str) -> bool:
    try:
        return pattern.search(text, timeout=PATTERN_TIMEOUT_S) is not None
    except TimeoutError as err:
        raise QueryError(
            f"question {question_id!r}: answers: expected a match within {PATTERN_TIMEOUT_S} s per text, got a timeout "
            f"of {pattern.pattern[:80]!r}. Write it without nested repeats"
        ) from err


class _Cache:
    """A function with a cache of its latest results, up to max_chars of texts and results together."""

    def __init__(self, function: Callable[[str], str], max_chars: int) -> None:
        self._function, self._max_chars = function, max_chars
        self._cached: OrderedDict[str, str] = OrderedDict()
        self._num_chars = 0

    def __call__(self, text: str) -> str:
        if text in self._cached:
            self._cached.move_to_end(text)
            return self._cached[text]
        result = self._cached[text] = self._function(text)
        self._num_chars += len(text) + len(result)
        while self._num_chars > self._max_chars:
            dropped = self._cached.popitem(last=False)
            self._num_chars -= len(dropped[0]) + len(dropped[1])
        return result


DEFAULT_CUTOFFS = (1, 5, 20, 100)
# Measures over judgements are computed for so many questions together.
_BATCH = 256

# Always reported; further ones are added.
JUDGED_MEASURES = ("nDCG@10", "MRR@10", "R@100")
DEEP_MEASURES = {"R@1000": 1000}


class Documents(Protocol):
    """The part of an index that an evaluation needs: its number of documents, and whether it has one."""

    def __len__(self) -> int: ...
    def __contains__(self, doc_id: object, /) -> bool: ...


class Evaluation:
    """Collects results one by one and reports their quality; it stores counts, not results.

    Args:
        cutoffs: The k of every R@k.
        qrels: Question id to document id to grade, for nDCG, MRR and recall.
        regex: Whether answers are regular expressions.
        documents: The index, to report its size and the gold documents it does not have.
        citations: Whether to report how often citations hold an answer.
        measures: Names of further measures over the judgements, such as "P@5"; those without a cut-off see as many
            hits as the deepest of the others.

    Raises:
        QueryError: Cutoffs are not whole numbers from 1.
        ConfigError: A measure is unknown.

    """

    def __init__(  # noqa: PLR0913 - each is a choice of the caller's
        self,
        cutoffs: Sequence[int] = DEFAULT_CUTOFFS,
        qrels: Mapping[str, Mapping[str, int]] | None = None,
        regex: bool = False,
        documents: Documents | None = None,
        *,
        citations: bool = False,
        measures: Sequence[str] = (),
    ) -> None:
        self._cutoffs = _check_cutoffs(cutoffs)
        self._judged = None if qrels is None else _JudgedMeans(qrels, self._cutoffs[-1], measures)
        self._matcher = AnswerMatcher(patterns=regex)
        self._documents = documents
        self._gold, self._answer = _HitRate(), _HitRate()
        self._cited = {"citations": _Cited(), "gold_citations": _Cited()} if citations else {}
        self._counts: Counter[str] = Counter()

    @property
    def needed_depth(self) -> int:
        """Return the top_k that a search needs, so that every figure is complete."""
        return max(self._cutoffs[-1], self._judged.depth if self._judged else 0)

    def add(self, question: Question, result: SearchResult) -> None:
        """Count the result of one question; add each question once.

        Raises:
            QueryError: An answer is not a regular expression.

        """
        self._counts.update(questions=1, exact=int(result.exact), short=int(result.short_by > 0))
        hits = result.hits[: self._cutoffs[-1]]
        if question.passage_id is not None:
            self._add_gold(question.passage_id, hits)
        if question.answers:
            holds_answer = self._matcher.prepare(question.id, question.answers)
            self._answer.add(next((rank for rank, hit in enumerate(hits, 1) if holds_answer(hit.text)), None))
            if self._cited:
                self._cited["citations"].add(hits[:1], holds_answer)
                self._cited["gold_citations"].add([hit for hit in hits if hit.id == question.passage_id], holds_answer)
        if self._judged:
            self._judged.add(question.id, result.hits)
            if self._documents is not None:
                found = {hit.id for hit in result.hits}
                relevant = self._judged.relevant(question.id) - found
                self._counts["relevant_missing"] += sum(doc_id not in self._documents for doc_id in relevant)

    def report(self) -> dict[str, Any]:
        """Return the figures so far, as JSON values: shares from 0 to 1, rounded to 4 digits.

        `gold`, `answer` and `qrels` are present only if some question had a gold document, answers or judgements;
        `counts` gives their number. With citations, `citations` gives for the first hits of questions with answers, and
        `gold_citations` for their gold documents among the hits, the share whose text, winning snippet and citation
        hold an answer. `questions`, `exact` (certified results) and `short` (results with fewer than top_k
        documents) are always present; `documents` and `gold_missing` (questions whose gold document is not in the
        index, each a miss) if the documents are known; `unjudged` (questions without judgements) and `unasked` (judged
        questions that were not added) if there are qrels; with both, `relevant_missing`: relevant judgements, over all
        questions, of documents that are not in the index.
        """
        sections = {"gold": self._gold.shares(self._cutoffs), "answer": self._answer.shares(self._cutoffs)}
        counts = {"gold": self._gold.total, "answer": self._answer.total}
        for name, cited in self._cited.items():
            sections[name], counts[name] = cited.shares(), cited.total
        report: dict[str, Any] = {"questions": self._counts["questions"]}
        if self._documents is not None:
            report.update(documents=len(self._documents), gold_missing=self._counts["gold_missing"])
        if self._judged:
            sections["qrels"], counts["qrels"] = self._judged.means(), self._judged.total
            report["unjudged"] = self._counts["questions"] - self._judged.total
            report["unasked"] = self._judged.num_judged - self._judged.total
            if self._documents is not None:
                report["relevant_missing"] = self._counts["relevant_missing"]
        report.update(exact=self._counts["exact"], short=self._counts["short"], counts=counts)
        return {name: section for name, section in sections.items() if counts[name]} | report

    def _add_gold(self, gold_id: str, hits: Sequence[Hit]) -> None:
        rank = next((rank for rank, hit in enumerate(hits, 1) if hit.id == gold_id), None)
        self._gold.add(rank)
        if rank is None and self._documents is not None and gold_id not in self._documents:
            self._counts["gold_missing"] += 1


class _HitRate:
    """Counts how often the first correct document is at rank k or better."""

    def __init__(self) -> None:
        self.total = 0
        self._by_rank: Counter[int] = Counter()

    def add(self, rank: int | None) -> None:
        """Count a question whose first correct document has this rank, from 1; None if there is none."""
        self.total += 1
        if rank is not None:
            self._by_rank[rank] += 1

    def shares(self, cutoffs: Sequence[int]) -> dict[str, float]:
        total = max(self.total, 1)
        found = {k: sum(count for rank, count in self._by_rank.items() if rank <= k) for k in cutoffs}
        return {f"R@{k}": round(found[k] / total, 4) for k in cutoffs}


class _Cited:
    """Counts how often the text, the winning snippet and the citation of a hit hold an answer."""

    def __init__(self) -> None:
        self.total = 0
        self._found: Counter[str] = Counter()

    def add(self, hits: Sequence[Hit], holds_answer: Callable[[str], bool]) -> None:
        """Count hits of one question."""
        for hit in hits:
            self.total += 1
            cited = "" if hit.citation is None else hit.citation.text
            texts = {"text": hit.text, "snippet": winning_text(hit) or "", "citation": cited}
            self._found.update(name for name, text in texts.items() if holds_answer(text))

    def shares(self) -> dict[str, float]:
        total = max(self.total, 1)
        return {name: round(self._found[name] / total, 4) for name in ("text", "snippet", "citation")}


class _JudgedMeans:
    """Means of the measures over the judged questions, in the order of the hits."""

    def __init__(self, qrels: Mapping[str, Mapping[str, int]], deepest: int, measures: Sequence[str]) -> None:
        deep = [name for name, depth in DEEP_MEASURES.items() if depth <= deepest]
        self._chosen = {name: parse_measure(name) for name in (*JUDGED_MEASURES, *deep, *measures)}
        self.depth = max(measure.cutoff or deepest for measure in self._chosen.values())
        self.total, self.num_judged = 0, len(qrels)
        self._sums = dict.fromkeys(self._chosen, 0.0)
        self._qrels = qrels
        self._run: dict[str, list[str]] = {}

    def add(self, question_id: str, hits: Sequence[Hit]) -> None:
        """Add the hits of a judged question; one without hits counts with zeros."""
        if question_id not in self._qrels:
            return
        self.total += 1
        self._run[question_id] = [hit.id for hit in hits[: self.depth]]
        if len(self._run) >= _BATCH:
            self._compute()

    def relevant(self, question_id: str) -> set[str]:
        """Return the ids of the documents that are relevant to a question."""
        return {doc_id for doc_id, grade in self._qrels.get(question_id, {}).items() if grade > 0}

    def means(self) -> dict[str, float]:
        self._compute()
        return {name: round(total / max(self.total, 1), 4) for name, total in self._sums.items()}

    def _compute(self) -> None:
        for name, measure in self._chosen.items():
            self._sums[name] += sum(measure_values(measure, self._qrels, self._run).values())
        self._run = {}


def _check_cutoffs(cutoffs: Sequence[int]) -> tuple[int, ...]:
    if not cutoffs or any(type(k) is not int or k < 1 for k in cutoffs):
        raise QueryError(f"cutoffs: expected whole numbers from 1, such as 1,5,20,100, got {list(cutoffs)}")
    return tuple(sorted(set(cutoffs)))
