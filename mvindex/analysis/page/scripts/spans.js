// A document's text with the span of every view marked.

/**
 * The text in pieces, cut wherever a span begins or ends: [{text, slots that cover it, slots that begin here}].
 * Spans count characters as Python does, so the text is cut by code points. Spans past a cut text are shortened.
 */
function pieces(text, views) {
  const characters = Array.from(text);
  const spans = views
    .filter(({ span }) => span && span[0] < span[1] && span[0] < characters.length)
    .map(({ slot, span }) => ({ slot, begin: Math.max(0, span[0]), end: Math.min(span[1], characters.length) }));
  const cuts = [...new Set([0, characters.length, ...spans.flatMap(({ begin, end }) => [begin, end])])].sort(
    (one, other) => one - other,
  );
  return cuts.slice(0, -1).map((begin, place) => ({
    text: characters.slice(begin, cuts[place + 1]).join(""),
    slots: spans.filter((span) => span.begin <= begin && begin < span.end).map(({ slot }) => slot),
    starts: spans.filter((span) => span.begin === begin).map(({ slot }) => slot),
  }));
}

/** The text with each span numbered and underlined, and the winning one highlighted. */
function markedText({ text, views, slot: winner, is_cut: isCut }) {
  const marked = pieces(text, views).map(({ text: part, slots, starts }) => {
    if (!slots.length) return part;
    const isWinner = slots.includes(winner);
    const parity = Math.max(...slots) % 2 ? "odd" : "even";
    return html(
      isWinner ? "mark" : "span",
      { class: `span ${parity}`, "data-slots": slots.join(" ") },
      starts.map((slot) => slotTag(slot, slot === winner)),
      part,
    );
  });
  return html(
    "p",
    { class: "text", dir: "auto" },
    marked,
    isCut ? html("span", { class: "cut" }, " \u2026 (cut)") : null,
  );
}

function slotTag(slot, isWinner) {
  return html(
    "span",
    { class: isWinner ? "tag winner" : "tag" },
    html("span", { class: "unseen" }, isWinner ? "winning view " : "view "),
    String(slot),
  );
}

/** The score of each view, the best first, the winner's marked. */
function scoreList({ views, slot: winner }) {
  return html(
    "ol",
    { class: "scores", "aria-label": "Scores of the views" },
    [...views]
      .sort((one, other) => other.score - one.score)
      .map(({ slot, score, span }) =>
        html(
          "li",
          { class: slot === winner ? "winner" : null },
          slotTag(slot, slot === winner),
          ` ${decimal(score)}`,
          span ? null : html("span", { class: "muted" }, " no span"),
        ),
      ),
  );
}
