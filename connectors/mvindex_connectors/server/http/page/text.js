// The text of a document with ranges marked: the citation in a result, the heat of all views on its own page.
import { made, shown } from "./made.js";

const SHOWN_CHARS = 420;
export const HEAT_LEVELS = 5;

// The text with the citation and the snippet of the view under the pointer marked. Spans count code points.
export function mark(hit, node, view) {
  const letters = Array.from(hit.text);
  const cited = hit.citation ? [hit.citation.start, hit.citation.end] : hit.span;
  const spans = [[cited, "won"], [view && view.span, "other"]].filter(([span]) => span);
  const [begin, end] = node.dataset.whole ? [0, letters.length] : cut(letters, cited);
  const pieces = begin > 0 ? ["\u2026 "] : [];
  for (const [from, to] of between(spans.map(([span]) => span), begin, end)) {
    const piece = letters.slice(from, to).join("");
    const kinds = spans.filter(([span]) => span[0] <= from && to <= span[1]).map(([, kind]) => kind);
    pieces.push(kinds.length ? made("mark", { class: kinds.includes("other") ? "other" : "won" }, piece) : piece);
  }
  if (end < letters.length) pieces.push(" \u2026 ");
  if (letters.length > SHOWN_CHARS) pieces.push(wholeButton(hit, node));
  if (!letters.length && hit.snippet) pieces.push(made("mark", { class: "won" }, hit.snippet));
  node.replaceChildren(...pieces);
  node.hidden = !pieces.length;
}

// The ranges between the ends of these spans within [begin, end), in order.
function between(spans, begin, end) {
  const cuts = [...new Set([begin, end, ...spans.flat()])].filter((at) => at >= begin && at <= end);
  cuts.sort((one, two) => one - two);
  return cuts.slice(1).map((to, at) => [cuts[at], to]);
}

function wholeButton(hit, node) {
  const button = made("button", { type: "button", class: "more" }, node.dataset.whole ? "less" : "whole text");
  button.setAttribute("aria-expanded", String(Boolean(node.dataset.whole)));
  button.addEventListener("click", () => {
    if (node.dataset.whole) delete node.dataset.whole; else node.dataset.whole = "1";
    mark(hit, node, null);
    node.querySelector(".more").focus();
  });
  return button;
}

// The part of a long text that is shown: the span, with some text before and after.
function cut(letters, span) {
  const length = letters.length;
  if (length <= SHOWN_CHARS) return [0, length];
  const [first, last] = span || [0, 0];
  const begin = Math.round(Math.max(0, Math.min(first - SHOWN_CHARS / 4, length - SHOWN_CHARS)));
  const end = Math.min(length, Math.max(begin + SHOWN_CHARS, last));
  // Not within a word, where there are spaces near.
  const before = begin === 0 ? 0 : letters.indexOf(" ", begin) + 1;
  const after = end === length ? length : letters.lastIndexOf(" ", end);
  return [
    before > 0 && before - begin < 30 && before <= first ? before : begin,
    end - after < 30 && after >= last ? after : end,
  ];
}

// The whole text, each part as warm as the best view that stands for it; a view's score is at its beginning.
export function heated(hit) {
  const letters = Array.from(hit.text);
  const views = hit.views.filter((view) => view.span);
  const best = hit.views.find((view) => view.slot === hit.slot);
  const level = levels(hit.views);
  const cited = hit.citation ? [hit.citation.start, hit.citation.end] : null;
  const pieces = [];
  for (const [from, to] of between([...views.map((view) => view.span), cited || []], 0, letters.length)) {
    for (const view of views.filter((each) => each.span[0] === from)) pieces.push(tag(view, best, level(view)));
    const over = views.filter((view) => view.span[0] <= from && to <= view.span[1]);
    const piece = letters.slice(from, to).join("");
    const heat = over.length ? Math.max(...over.map(level)) : -1;
    const part = heat < 0 ? made("span", {}, piece) : made("span", { class: `heat heat-${heat}` }, piece);
    const isCited = cited && cited[0] <= from && to <= cited[1];
    pieces.push(isCited ? made("mark", { class: `cited${heat < 0 ? "" : ` heat-${heat}`}` }, piece) : part);
  }
  return made("p", { class: "text whole" }, ...pieces);
}

// A function that returns the level of a view: 0, the lowest score of the document, to HEAT_LEVELS - 1.
export function levels(views) {
  const scores = views.map((view) => view.score);
  const low = Math.min(...scores);
  const range = Math.max(...scores) - low;
  return (view) => (range ? Math.round((HEAT_LEVELS - 1) * (view.score - low) / range) : HEAT_LEVELS - 1);
}

function tag(view, best, level) {
  const label = `view ${view.slot}, score ${shown(view.score, 2)}${view === best ? ", the best" : ""}: `;
  return made("span", { class: `tag heat-${level}` },
    made("span", { class: "unseen" }, label),
    made("span", { "aria-hidden": "true" }, `${view === best ? "\u2605 " : ""}${shown(view.score, 2)}`));
}
