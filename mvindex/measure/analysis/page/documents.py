"""Documents in the report: maps of their views, and the hardest questions side by side with what was retrieved."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from mvindex.measure.analysis.page import charts
from mvindex.measure.analysis.page.markup import NONE, Content, Markup, counted, decimal, element, percent, user_text


def maps(documents: Sequence[Mapping[str, Any]]) -> list[Markup]:
    """Return each document's views and questions in a plane, folded but for the first."""
    return [_map(document, is_open=not position) for position, document in enumerate(documents)]


def hardest_questions(questions: Sequence[Mapping[str, Any]]) -> list[Markup]:
    """Return each question with its relevant and its retrieved document, folded but for the first."""
    return [_hard_question(question, is_open=not position) for position, question in enumerate(questions)]


def _map(document: Mapping[str, Any], is_open: bool) -> Markup:
    name = user_text(document["title"] or document["id"])
    summary = element(
        "summary", name, element("span", f" \u00b7 {counted(len(document['questions']), 'question')}", class_="muted")
    )
    views = (
        element("li", element("b", f"{view['slot']} "), user_text(view["snippet"] or NONE, "span"))
        for view in document["views"]
    )
    questions = [
        element("li", element("b", f"Q{number} "), user_text(one["text"], "span"),
                element("span", f" won by view {one['slot']}", class_="muted"))
        for number, one in enumerate(document["questions"], start=1)
    ]  # fmt: skip
    lists = (
        element("h4", "Questions"),
        element("ul", questions, class_="plain")
        if questions
        else element("p", "No question is about this document.", class_="muted"),
        element("h4", "Views"),
        element("ul", views, class_="plain"),
    )
    note = element("p", f"The plane shows {percent(document['explained'])} of the variance.", class_="muted")
    plot = element("div", charts.plane(document), note)
    body = element("div", plot, element("div", lists, class_="text-box", tabindex="0"), class_="split")
    return element("details", summary, body, class_="item", open=is_open)


def _hard_question(question: Mapping[str, Any], is_open: bool) -> Markup:
    rank = "not found" if question["rank"] is None else f"rank {question['rank']:,}"
    summary = element("summary", element("span", rank, class_="rank"), user_text(question["question"]))
    answers = [(", " if position else None, user_text(answer)) for position, answer in enumerate(question["answers"])]
    about = element(
        "p",
        "Question ",
        user_text(question["id"]),
        (" \u00b7 answers: ", *answers) if answers else None,
        class_="muted",
    )
    sides = element(
        "div", _document("Relevant", question["relevant"]), _document("Retrieved instead", question["retrieved"]),
        class_="sides",
    )  # fmt: skip
    return element("details", summary, about, sides, class_="item", open=is_open)


def _document(heading: str, document: Mapping[str, Any]) -> Markup:
    name = element("b", user_text(document["title"] or document["id"]))
    origin = (" ", user_text(document["id"]), f" \u00b7 score {decimal(document['score'])} by view {document['slot']}")
    text = element("p", _mark(document), " \u2026 (cut)" if document["is_cut"] else None, dir="auto")
    scores = (
        element(
            "li", _tag(view["slot"], view["slot"] == document["slot"]), f" {decimal(view['score'])}",
            None if view["span"] else element("span", " no span", class_="muted"),
        )
        for view in sorted(document["views"], key=lambda view: -view["score"])
    )  # fmt: skip
    return element(
        "section",
        element("h4", heading),
        element("p", name, element("span", origin, class_="muted")),
        element("div", text, class_="text-box", tabindex="0", role="group", aria_label=f"Text: {heading.lower()}"),
        element("ol", scores, class_="scores", aria_label="Scores of the views"),
        class_="side",
    )


def _mark(document: Mapping[str, Any]) -> Iterator[Content]:
    """Yield the text in pieces: each span numbered and underlined, the winning one highlighted."""
    text = document["text"]
    spans = [
        (view["slot"], view["span"][0], min(view["span"][1], len(text)))
        for view in document["views"]
        if view["span"] and view["span"][0] < min(view["span"][1], len(text))
    ]
    cuts = sorted({0, len(text), *(begin for _, begin, _ in spans), *(end for _, _, end in spans)})
    for begin, end in zip(cuts, cuts[1:], strict=False):
        slots = [slot for slot, first, last in spans if first <= begin < last]
        starts = (_tag(slot, slot == document["slot"]) for slot, first, _ in spans if first == begin)
        piece = text[begin:end]
        if slots:
            parity = "odd" if max(slots) % 2 else "even"
            yield element("mark" if document["slot"] in slots else "span", starts, piece, class_=f"span {parity}")
        else:
            yield piece


def _tag(slot: int, is_winner: bool) -> Markup:
    hidden = element("span", "winning view " if is_winner else "view ", class_="unseen")
    return element("span", hidden, str(slot), class_="tag winner" if is_winner else "tag")
