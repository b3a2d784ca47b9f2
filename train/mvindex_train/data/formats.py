"""Readers of the formats of training data, a function each.

- BEIR folders: corpus.jsonl, queries.jsonl and the judgements of qrels/SPLIT.tsv.
- DPR's biencoder files: one JSON array of {question, answers, positive_ctxs, negative_ctxs, hard_negative_ctxs}.
- JSONL of one question a line: with a `passage_id` in a corpus, or with the `passage` itself.
- SQuAD's JSON, versions 1.1 and 2: articles of paragraphs, each with its questions and their answers' positions.
- Tevatron's JSONL: {query_id, query, positive_passages, negative_passages}, optionally answers and teacher_scores.
- MS MARCO's triples: `query<TAB>positive<TAB>negative`, as texts or as ids with queries and collection beside them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from mvindex.corpus.inputs import read_lines, stream_name
from mvindex.errors import CorpusError
from mvindex.measure.questions import QuestionFormat, read_qrels, read_questions
from mvindex.records import Document, Span, has_visible
from mvindex_train.data.context import ReadContext, find_file, has_file, read_passage
from mvindex_train.data.entries import Entry, read_items, read_objects
from mvindex_train.data.options import ReadCount
from mvindex_train.data.records import Example


def is_beir(path: str) -> bool:
    """Return whether the path is a folder with a BEIR corpus, or a qrels file of one."""
    return os.path.isdir(_folder(path)) and has_file(_folder(path), "corpus.jsonl")


def read_beir(path: str, context: ReadContext) -> Iterator[Example]:
    """Yield the judged queries of a folder, or of one of its qrels files, in the order of the judgements.

    Documents with a grade above 0 are positives, in descending order of grade, then in the order of the file.
    """
    folder = _folder(path)
    qrels = find_file(Path(folder, "qrels"), f"{context.options.split.value}.tsv") if os.path.isdir(path) else path
    queries, corpus = (context.corpus(find_file(folder, name)) for name in ("queries.jsonl", "corpus.jsonl"))
    for query_id, grades in read_qrels(qrels).items():
        place = f"{qrels}: query {query_id!r}"
        positives = tuple(corpus.get(doc_id, place) for doc_id in _relevant(grades))
        if context.has_positive(positives):
            yield Example(query_id, queries.get(query_id, place).text, positives)


def _relevant(grades: Mapping[str, int]) -> list[str]:
    relevant = [doc_id for doc_id, grade in grades.items() if grade > 0]
    return sorted(relevant, key=lambda doc_id: -grades[doc_id])


def _folder(path: str) -> str:
    if os.path.isdir(path):
        return path
    parent = Path(path).parent
    return str(parent.parent) if parent.name == "qrels" else path


_DPR_IDS = ("passage_id", "psg_id", "id")


def read_dpr(path: str, context: ReadContext) -> Iterator[Example]:
    """Yield the examples of an array, or of one object a line; hard negatives come before the other negatives."""
    for entry in read_objects(path):
        question_id = context.question_id(entry.optional_id("question_id", "id", "_id"))
        positives = context.documents(entry.entries("positive_ctxs"), *_DPR_IDS)
        negatives = [
            document
            for name in ("hard_negative_ctxs", "negative_ctxs")
            for document in context.documents(entry.entries(name, optional=True), *_DPR_IDS)
        ]
        if context.has_positive(positives):
            with entry.prefix_errors():
                yield Example(
                    question_id, entry.string("question"), positives, tuple(negatives), entry.strings("answers")
                )


def read_question_file(path: str, context: ReadContext) -> Iterator[Example]:
    """Yield the questions that have a passage_id, each with that passage."""
    passages = context.passages(path)
    for question in read_questions([path], QuestionFormat.JSONL):
        ids = () if question.passage_id is None else (question.passage_id,)
        place = f"{path}: question {question.id!r}"
        positives = tuple(passages.get(passage_id, place) for passage_id in ids)
        if context.has_positive(positives):
            yield Example(question.id, question.text, positives, answers=question.answers or ())


def read_pairs(path: str, context: ReadContext) -> Iterator[Example]:
    """Yield an example for each pair of `passage` and `question`; optional are id, passage_id, title and answers."""
    for entry in read_objects(path):
        question_id = context.question_id(entry.optional_id("id"))
        passage = Entry({**entry.fields, "text": entry.string("passage")}, entry.place)
        positives = context.visible([read_passage(passage, "passage_id")])
        if context.has_positive(positives):
            with entry.prefix_errors():
                yield Example(question_id, entry.string("question"), positives, answers=entry.strings("answers"))


def read_squad(path: str, context: ReadContext) -> Iterator[Example]:
    """Yield the questions that have an answer, article by article; a paragraph's id is `title#number`, from 1."""
    for article in read_items(path, "data.item", "article"):
        title = article.text("title")
        for number, paragraph in enumerate(article.entries("paragraphs"), start=1):
            with paragraph.prefix_errors():
                passage = Document(f"{title}#{number}", paragraph.string("context"), title)
            yield from _read_paragraph(paragraph, passage, context)


def _read_paragraph(paragraph: Entry, passage: Document, context: ReadContext) -> Iterator[Example]:
    positives = context.visible([passage])
    for question in paragraph.entries("qas"):
        question_id = context.question_id(question.optional_id("id"))
        if question.fields.get("is_impossible"):
            context.report.add(ReadCount.IMPOSSIBLE)
        elif context.has_positive(positives):
            yield _read_question(question, question_id, passage, context)


def _read_question(question: Entry, question_id: str, passage: Document, context: ReadContext) -> Example:
    answers = list(question.entries("answers", optional=True))
    texts = tuple(dict.fromkeys(answer.string("text") for answer in answers))
    span = _given_span(answers[0], passage, context) if answers else None
    with question.prefix_errors():
        return Example(question_id, question.string("question"), (passage,), answers=texts, answer_span=span)


def _given_span(answer: Entry, passage: Document, context: ReadContext) -> Span | None:
    """Return the span at the answer's answer_start; None, and counted, where the text there is another."""
    begin, text = answer.fields.get("answer_start"), answer.string("text")
    if begin is None or not text:
        return None
    if type(begin) is not int:
        raise answer.error(f'"answer_start": expected a whole number, got {begin!r:.60}')
    end = begin + len(text)
    if begin < 0 or passage.text[begin:end] != text:
        context.report.add(ReadCount.MISPLACED)
        return None
    return begin, end


_TEVATRON_IDS = ("docid", "id")


def read_tevatron(path: str, context: ReadContext) -> Iterator[Example]:
    """Yield an example for each line; teacher_scores belong to the positives, then to the negatives."""
    for entry in read_objects(path):
        question_id = context.question_id(entry.optional_id("query_id"))
        passages = [*entry.entries("positive_passages"), *entry.entries("negative_passages", optional=True)]
        teacher = _visible_scores(entry, passages)
        positives = context.documents(entry.entries("positive_passages"), *_TEVATRON_IDS)
        negatives = context.documents(entry.entries("negative_passages", optional=True), *_TEVATRON_IDS)
        if context.has_positive(positives):
            with entry.prefix_errors():
                yield Example(
                    question_id,
                    entry.string("query"),
                    positives,
                    negatives,
                    answers=entry.strings("answers"),
                    teacher=teacher,
                )


def _visible_scores(entry: Entry, passages: list[Entry]) -> tuple[float, ...] | None:
    """Return the teacher's scores of the passages with visible text, as the others are dropped; None without scores."""
    scores = entry.numbers("teacher_scores")
    if scores is None:
        return None
    if len(scores) != len(passages):
        raise entry.error(
            f'"teacher_scores": expected {len(passages)} scores, one for each positive and negative, got {len(scores)}'
        )
    return tuple(score for score, passage in zip(scores, passages, strict=True) if _is_visible(passage))


def _is_visible(passage: Entry) -> bool:
    return has_visible(passage.text("text")) or has_visible(passage.text("title"))


def read_triples(path: str, context: ReadContext) -> Iterator[Example]:
    """Yield an example for each line of three texts; a passage's id is the hash of its text."""
    for place, (query, *texts) in _rows(path):
        question_id = context.question_id(None)
        positive, negative = (context.visible([read_passage(Entry({"text": text}, place))]) for text in texts)
        if context.has_positive(positive):
            yield _example(place, Document(question_id, query), positive, negative)


def read_triple_ids(path: str, context: ReadContext) -> Iterator[Example]:
    """Yield an example for each line of three ids: the query's and those of two passages."""
    folder, options = os.path.dirname(path) or ".", context.options
    queries = context.corpus(options.queries or find_file(folder, "queries.train.tsv", "queries.tsv"))
    passages = context.corpus(options.passages or find_file(folder, "collection.tsv"))
    for place, (query_id, *ids) in _rows(path):
        positive, negative = (passages.get(doc_id, place) for doc_id in ids)
        yield _example(place, queries.get(query_id, place), (positive,), (negative,))


def _rows(path: str) -> Iterator[tuple[str, list[str]]]:
    """Yield the place and the three cells of each line that is not blank."""
    name = stream_name(path)
    for number, line in read_lines(path):
        if not line.strip():
            continue
        cells = line.split("\t")
        if len(cells) != 3:
            raise CorpusError(
                f"{name}:{number}: expected 3 columns separated by tabs, `query<TAB>positive<TAB>negative`, got "
                f"{len(cells)}"
            )
        yield f"{name}:{number}", cells


def _example(place: str, query: Document, positives: tuple[Document, ...], negatives: tuple[Document, ...]) -> Example:
    with Entry({}, place).prefix_errors():
        return Example(query.id, query.text, positives, negatives)
