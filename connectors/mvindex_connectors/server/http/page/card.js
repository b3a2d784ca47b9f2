// A document in a ranking: its text with the citation marked, and a bar for each view.
// Texts reach the page as text nodes only: no document is ever parsed as HTML.
const SHOWN_CHARS = 480;
const BAR = { width: 28, height: 32 };
const SVG = "http://www.w3.org/2000/svg";
let hideShown = () => {};

// Hides the snippet that is shown beside a bar.
export function hideSnippet() {
  hideShown();
}

export function made(name, attributes = {}, ...children) {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  node.append(...children.filter((child) => child !== null));
  return node;
}

// No minus before a number that is shown as zero.
export function shown(number, digits) {
  return number.toFixed(digits).replace(/^-(0\.0*)$/, "$1");
}

// The range of scores of all bars of a page, zero included.
export function scaleOf(results) {
  const scores = results.flatMap((result) => result.hits.flatMap((hit) => hit.views.map((view) => view.score)));
  return { low: Math.min(0, ...scores), high: Math.max(0, ...scores) };
}

// place: rank, otherRank, otherName, scale, hasWeights. filterBy(key, value) is called when its metadata is clicked.
export function card(hit, place, filterBy) {
  const text = made("p", { class: "text" });
  const article = made("article", { class: "hit", tabindex: "0", "aria-label": `${place.rank}: ${hit.title || hit.id}` },
    made("div", { class: "head" },
      made("span", { class: "rank" }, String(place.rank)),
      made("h3", { class: "title" }, hit.title || hit.id),
      hit.title ? made("span", { class: "name" }, hit.id) : null,
      moved(place),
      made("span", { class: "score" }, shown(hit.score, 4))),
    text,
    views(hit, place, (view) => mark(hit, text, view)),
    made("p", { class: "what" }, margin(hit)),
    components(hit),
    metadata(hit, filterBy));
  article.dataset.id = hit.id;
  mark(hit, text, null);
  return made("li", {}, article);
}

function moved({ rank, otherRank, otherName }) {
  if (otherRank === rank) return null;
  if (otherRank === undefined) return made("span", { class: "moved up" }, `not in ${otherName}`);
  const [kind, arrow] = otherRank > rank ? ["moved up", "\u25b2"] : ["moved", "\u25bc"];
  return made("span", { class: kind }, `${arrow} ${otherRank} in ${otherName}`);
}

// Of hybrid search: what views and terms contribute to the score.
function components(hit) {
  if (!hit.components) return null;
  const named = { dense: "Views", lexical: "terms" };
  const each = hit.components.map(({ name, rank, score, contribution }) => {
    const where = rank === null ? "not ranked" : `rank ${rank}`;
    return `${named[name]}: ${where}, score ${shown(score, 4)}, adding ${shown(contribution, 4)}`;
  });
  return made("p", { class: "what components" }, `${each.join("; ")}.`);
}

function margin(hit) {
  if (hit.views.length === 1) return "Its only view.";
  const next = Math.max(...hit.views.filter((view) => view.slot !== hit.slot).map((view) => view.score));
  const won = hit.views.find((view) => view.slot === hit.slot).score;
  return `View ${hit.slot} of ${hit.views.length} is the best, ${shown(won - next, 4)} ahead of the next.`;
}

function label(hit, view, hasWeights) {
  const best = Math.max(...hit.views.map((each) => each.score));
  const behind = view.slot === hit.slot ? "the best view" : `${shown(best - view.score, 4)} behind`;
  const weight = hasWeights ? `, weight ${shown(view.weight, 3)}` : "";
  const stands = view.snippet === null ? ", stands for no text" : view.span === null && view.snippet ? ", the title" : "";
  return `View ${view.slot}: ${shown(view.score, 4)}, ${behind}${weight}${stands}`;
}

function views(hit, place, point) {
  // Each bar's label has the same text.
  const tip = made("div", { class: "tip", "aria-hidden": "true" });
  const bars = made("div", { class: "bars", role: "group", "aria-label": "Views" });
  const room = made("div", { class: "views" }, bars, tip);
  const hide = () => { tip.hidden = true; point(null); };
  const show = (view) => {
    hideSnippet();
    hideShown = hide;
    tip.replaceChildren(made("p", {}, label(hit, view, place.hasWeights)),
      ...(view.snippet ? [made("blockquote", {}, view.snippet)] : []));
    tip.hidden = false;
    point(view);
  };
  hide();
  for (const view of [...hit.views].sort((one, other) => one.slot - other.slot)) {
    const name = `${label(hit, view, place.hasWeights)}${view.snippet ? `: ${view.snippet}` : ""}`;
    const kind = view.slot === hit.slot ? "view won" : "view";
    const button = made("button", { type: "button", class: kind, "aria-label": name },
      bar(view, place), made("span", {}, shown(view.score, 2)));
    for (const name of ["mouseenter", "focus", "click"]) button.addEventListener(name, () => show(view));
    button.addEventListener("blur", hide);
    bars.append(button);
  }
  room.addEventListener("mouseleave", hide);
  return room;
}

function bar(view, { scale, hasWeights }) {
  const svg = drawn("svg", { viewBox: `0 0 ${BAR.width} ${BAR.height}`, "aria-hidden": "true" });
  const unit = BAR.height / (scale.high - scale.low || 1);
  const zero = scale.high * unit;
  const height = Math.max(1, Math.abs(view.score) * unit);
  const wide = hasWeights ? 14 : 20;
  const y = view.score < 0 ? zero : zero - height;
  svg.append(drawn("rect", { class: "score", x: 4, width: wide, y, height, rx: 2 }));
  if (hasWeights) {
    const share = Math.max(1, view.weight * zero);
    svg.append(drawn("rect", { class: "weight", x: 20, width: 5, y: zero - share, height: share, rx: 1 }));
  }
  svg.append(drawn("line", { x1: 0, x2: BAR.width, y1: zero, y2: zero }));
  return svg;
}

function drawn(name, attributes) {
  const node = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  return node;
}

function metadata(hit, filterBy) {
  const entries = Object.entries(hit.metadata);
  if (!entries.length) return null;
  return made("div", { class: "meta" }, ...entries.map(([key, value]) => {
    const text = `${key}: ${typeof value === "string" ? value : JSON.stringify(value)}`;
    // In a filter these mean something else.
    const isField = /^[^."\\\p{C}]+$/u.test(key) && !["id", "and", "or", "not"].includes(key);
    if (!isField || (typeof value === "object" && value !== null)) return made("span", {}, text);
    const button = made("button", { type: "button", title: "Filter by this" }, text);
    button.addEventListener("click", () => filterBy(key, value));
    return button;
  }));
}

// The text with the citation and the snippet of the view under the pointer marked. Spans count code points.
function mark(hit, node, view) {
  const letters = Array.from(hit.text);
  const cited = hit.citation ? [hit.citation.start, hit.citation.end] : hit.span;
  const spans = [[cited, "won"], [view && view.span, "other"]].filter(([span]) => span !== null);
  const [begin, end] = node.dataset.whole ? [0, letters.length] : cut(letters, cited);
  const cuts = [...new Set([begin, end, ...spans.flatMap(([span]) => span)])].filter((at) => at >= begin && at <= end);
  cuts.sort((one, two) => one - two);
  const pieces = begin > 0 ? ["\u2026 "] : [];
  for (let at = 0; at + 1 < cuts.length; at++) {
    const piece = letters.slice(cuts[at], cuts[at + 1]).join("");
    const kinds = spans.filter(([span]) => span[0] <= cuts[at] && cuts[at + 1] <= span[1]).map(([, kind]) => kind);
    pieces.push(kinds.length ? made("mark", { class: kinds.includes("other") ? "other" : "won" }, piece) : piece);
  }
  if (end < letters.length) pieces.push(" \u2026 ");
  if (letters.length > SHOWN_CHARS) pieces.push(wholeButton(hit, node));
  if (!letters.length && hit.snippet) pieces.push(made("mark", { class: "won" }, hit.snippet));
  node.replaceChildren(...pieces);
  node.hidden = !pieces.length;
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
