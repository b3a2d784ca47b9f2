"""SQuAD's JSON, versions 1.1 and 2: articles of paragraphs, each with its questions and the answers' places."""

from __future__ import annotations

from collections.abc import Iterator

from mvindex.records import Document, Span
from mvindex_train.data.entries import Entry
from mvindex_train.data.readers.context import Reading
from mvindex_train.data.readers.objects import read_items
from mvindex_train.data.records import Example
from mvindex_train.data.report import Count


def read_squad(path: str, reading: Reading) -> Iterator[Example]:
    """The questions that have an answer, article by article; a paragraph's id is `title#number`, from 1."""
    for article in read_items(path, "data.item", "article"):
        title = article.text("title")
        for number, paragraph in enumerate(article.entries("paragraphs"), start=1):
            with paragraph.located():
                passage = Document(f"{title}#{number}", paragraph.string("context"), title)
            yield from _read_paragraph(paragraph, passage, reading)


def _read_paragraph(paragraph: Entry, passage: Document, reading: Reading) -> Iterator[Example]:
    positives = reading.shown([passage])
    for question in paragraph.entries("qas"):
        question_id = reading.question_id(question.optional_id("id"))
        if question.fields.get("is_impossible"):
            reading.report.add(Count.IMPOSSIBLE)
        elif reading.has_positive(positives):
            yield _read_question(question, question_id, passage, reading)


def _read_question(question: Entry, question_id: str, passage: Document, reading: Reading) -> Example:
    answers = list(question.entries("answers", optional=True))
    texts = tuple(dict.fromkeys(answer.string("text") for answer in answers))
    span = _given_span(answers[0], passage, reading) if answers else None
    with question.located():
        return Example(question_id, question.string("question"), (passage,), answers=texts, answer_span=span)


def _given_span(answer: Entry, passage: Document, reading: Reading) -> Span | None:
    """The characters that the first answer says it stands at; None, counted, where they are not the answer."""
    begin, text = answer.fields.get("answer_start"), answer.string("text")
    if begin is None or not text:
        return None
    if type(begin) is not int:
        raise answer.error(f'"answer_start" is {begin!r:.60}; wanted a whole number')
    end = begin + len(text)
    if begin < 0 or passage.text[begin:end] != text:
        reading.report.add(Count.MISPLACED)
        return None
    return begin, end
