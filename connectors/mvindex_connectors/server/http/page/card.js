// A document in a ranking: its title, its text with the citation marked, and, explained, a bar for each view.
import { drawn, made, shown } from "./made.js";
import { comparable, named } from "./filters.js";
import { mark } from "./text.js";

const BAR = { width: 28, height: 32 };
let hideShown = () => false;

// Hides the snippet that is shown beside a bar. Returns whether there was one.
export function hideSnippet() {
  return hideShown();
}

// The range of scores of all bars of a page, zero included.
export function scaleOf(results) {
  const scores = results.flatMap((result) => result.hits.flatMap((hit) => (hit.views || []).map((view) => view.score)));
  return { low: Math.min(0, ...scores), high: Math.max(0, ...scores) };
}

// place: rank, otherRank, otherName, scale, hasWeights, isExplained, address. explain() and filterBy(key, value) are called
// when a person asks for them; explain is null where nothing can be explained.
export function card(hit, place, { explain, filterBy }) {
  const text = made("p", { class: "text" });
  const point = (view) => mark(hit, text, view);
  const article = made("article", { class: "hit", "aria-label": `${place.rank}: ${hit.title || hit.id}` },
    made("div", { class: "head" },
      made("span", { class: "rank" }, String(place.rank)),
      made("h3", { class: "title" }, made("a", { href: place.address }, hit.title || hit.id)),
      place.otherName ? moved(place) : null),
    text,
    footer(hit, place, filterBy),
    place.isExplained ? explained(hit, place, point) : explain && explainButton(explain));
  article.dataset.id = hit.id;
  point(null);
  return made("li", {}, article);
}

function footer(hit, place, filterBy) {
  const where = placeOf(hit);
  return made("div", { class: "meta" },
    made("span", { class: "name" }, hit.title ? hit.id : "untitled"),
    ...(where ? [made("span", {}, where)] : []),
    ...metadata(hit.metadata, filterBy));
}

// File, page and line of the citation, as far as they are known.
function placeOf(hit) {
  const { file, page, line } = hit.citation || {};
  const known = [file, page === undefined ? null : `page ${page}`, line === undefined ? null : `line ${line}`];
  return known.filter(Boolean).join(", ");
}

function explainButton(explain) {
  const button = made("button", { type: "button", class: "more explain" }, "Why this?");
  button.addEventListener("click", explain);
  return button;
}

function explained(hit, place, point) {
  return made("div", { class: "why" },
    ...(hit.views.length ? [views(hit, place, point), made("p", {}, margin(hit))] : []),
    components(hit),
    made("p", {}, `Score ${shown(hit.score, 4)}.`
      + (hit.confidence === undefined ? "" : ` Confidence ${shown(hit.confidence, 4)}.`)));
}

function moved({ rank, otherRank, otherName }) {
  if (otherRank === rank) return null;
  if (otherRank === undefined) return made("span", { class: "moved up" }, `not in ${otherName}`);
  const [kind, arrow] = otherRank > rank ? ["moved up", "\u25b2"] : ["moved", "\u25bc"];
  return made("span", { class: kind }, `${arrow} ${otherRank} in ${otherName}`);
}

// Of lexical and hybrid search: what views and terms contribute to the score.
function components(hit) {
  if (!hit.components) return null;
  const named = { dense: "Views", lexical: "terms" };
  const each = hit.components.map(({ name, rank, score, contribution }) => {
    const where = rank === null ? "not ranked" : `rank ${rank}`;
    return `${named[name]}: ${where}, score ${shown(score, 4)}, adding ${shown(contribution, 4)}`;
  });
  return made("p", { class: "components" }, `${each.join("; ")}.`);
}

export function margin(hit) {
  if (hit.views.length === 1) return "Its only view.";
  const next = Math.max(...hit.views.filter((view) => view.slot !== hit.slot).map((view) => view.score));
  const won = hit.views.find((view) => view.slot === hit.slot).score;
  return `View ${hit.slot} of ${hit.views.length} is the best, ${shown(won - next, 4)} ahead of the next.`;
}

function label(hit, view, hasWeights, digits = 4) {
  const best = Math.max(...hit.views.map((each) => each.score));
  const behind = view.slot === hit.slot ? "the best view" : `${shown(best - view.score, digits)} behind`;
  const weight = hasWeights ? `, weight ${shown(view.weight, 3)}` : "";
  const stands = view.snippet === null ? ", stands for no text" : view.span === null && view.snippet ? ", the title" : "";
  return `View ${view.slot}: ${shown(view.score, digits)}, ${behind}${weight}${stands}`;
}

function views(hit, place, point) {
  // Each bar's label has the same text, with fewer digits.
  const tip = made("div", { class: "tip", "aria-hidden": "true" });
  const bars = made("div", { class: "bars", role: "group", "aria-label": "Views" });
  const room = made("div", { class: "views" }, bars, tip);
  const hide = () => {
    const wasShown = !tip.hidden && tip.isConnected;
    tip.hidden = true;
    point(null);
    return wasShown;
  };
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
    // With the digits that are seen, so that a person who speaks to the browser can name the button.
    const name = `${label(hit, view, place.hasWeights, 2)}${view.snippet ? `: ${view.snippet}` : ""}`;
    const kind = view.slot === hit.slot ? "view won" : "view";
    const button = made("button", { type: "button", class: kind, "aria-label": name },
      bar(view, place), made("span", { "aria-hidden": "true" }, shown(view.score, 2)));
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

export function metadata(fields, filterBy) {
  return Object.entries(fields).flatMap(([key, value]) => {
    const values = comparable(key, value);
    if (!values.length) return [made("span", {}, `${key}: ${JSON.stringify(value)}`)];
    return values.map(([each, isMember]) => {
      const button = made("button", { type: "button", title: "Filter by this" }, named(key, each));
      button.addEventListener("click", () => filterBy(key, each, isMember));
      return button;
    });
  });
}
