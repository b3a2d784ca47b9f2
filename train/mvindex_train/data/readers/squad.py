"""SQuAD's JSON, versions 1.1 and 2: articles of paragraphs, each with its questions and their answers' positions."""

from __future__ import annotations

from collections.abc import Iterator

from mvindex.records import Document, Span
from mvindex_train.data.entries import Entry
from mvindex_train.data.readers.context import ReadContext
from mvindex_train.data.readers.objects import read_items
from mvindex_train.data.records import Example
from mvindex_train.data.report import ReadCount


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
