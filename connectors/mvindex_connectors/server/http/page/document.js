// The page of one document: its text, as warm as its views answer the query, and a table of the views.
import { margin, metadata } from "./card.js";
import { made, shown } from "./made.js";
import { heated, HEAT_LEVELS, levels } from "./text.js";

// hit: the document as a search with the query returns it, explained; null without a query.
export function documentPage(found, hit, { back, query, alike, filterBy }) {
  const parts = [
    made("p", {}, made("a", { href: back.address, class: "back" }, `\u2190 ${back.name}`)),
    made("h2", { id: "document-title", tabindex: "-1" }, found.title || found.id),
    made("div", { class: "meta" }, made("span", { class: "name" }, found.id), ...metadata(found.metadata, filterBy)),
    made("p", { class: "small" }, made("a", { href: alike }, "More like this")),
  ];
  if (hit === null || !hit.views.length) {
    parts.push(
      made("p", { class: "quiet small" }, "Ask a question above, and open this document again to see which parts answer it."),
      made("p", { class: "text whole" }, found.text));
    return parts;
  }
  return [...parts, legend(query), heated(hit), made("p", { class: "quiet small" }, margin(hit)), table(hit)];
}

function legend(query) {
  const steps = Array.from({ length: HEAT_LEVELS }, (_, at) => made("i", { class: `heat-${at}` }));
  return made("p", { class: "legend small" },
    `The warmer a part, the better its view answers \u201c${query}\u201d: `,
    made("span", { class: "steps", "aria-hidden": "true" }, ...steps),
    " The number is the view's score; \u2605 is the best view; the underlined sentence is the one cited.");
}

function table(hit) {
  const level = levels(hit.views);
  const rows = [...hit.views].sort((one, two) => two.score - one.score).map((view) => made("tr", {},
    made("th", { scope: "row" }, String(view.slot)),
    made("td", { class: `heat-${level(view)}` }, shown(view.score, 4)),
    made("td", {}, view.snippet === null ? "no text" : view.span === null ? `the title: ${view.snippet}` : view.snippet)));
  const head = ["View", "Score", "Stands for"].map((name) => made("th", { scope: "col" }, name));
  return made("details", { class: "small" }, made("summary", {}, `All ${hit.views.length} views`),
    made("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Views" },
      made("table", {}, made("thead", {}, made("tr", {}, ...head)), made("tbody", {}, ...rows))));
}

