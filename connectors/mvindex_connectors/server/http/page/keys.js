// The keyboard: which ranking is shown, and where the focus goes.
import { hideSnippet } from "./card.js";
import { part } from "./made.js";

const SIDES = ["one", "other"];

export function choose(side) {
  part("results").dataset.side = side;
  for (const button of part("side").children) button.setAttribute("aria-pressed", String(button.value === side));
}

export function twins(node) {
  const id = node instanceof Element ? node.closest(".hit")?.dataset.id : undefined;
  for (const one of document.querySelectorAll(".wide .hit")) one.classList.toggle("twin", one.dataset.id === id);
}

export function walk(event) {
  const isTyping = event.target.matches("input, select, textarea");
  if (event.altKey || event.ctrlKey || event.metaKey) return;
  if (event.key === "/" && !isTyping) {
    event.preventDefault();
    part("query").select();
  } else if (event.key === "Escape") {
    // It would also empty the query.
    if (hideSnippet()) event.preventDefault();
    else if (!isTyping && !part("document").hidden) part("document").querySelector(".back").click();
    else if (document.activeElement.closest(".hit")) part("query").focus();
  } else if (event.key === "e" && !isTyping) {
    document.activeElement.closest(".hit")?.querySelector(".explain")?.click();
  } else if (event.key.startsWith("Arrow") && !event.target.closest("summary, #side, #options")) {
    if (!isTyping || (event.target.id === "query" && event.key === "ArrowDown")) step(event);
  }
}

function step(event) {
  const goal = goalOf(event.key, document.activeElement.closest(".hit"));
  if (!goal) return;
  event.preventDefault();
  const column = goal.closest(".column");
  if (column) choose(column.dataset.side);
  (goal.querySelector(".title a") || goal).focus();
}

function goalOf(key, here) {
  const columns = SIDES.map((side) => (part("results").hidden ? [] : [...part(side).querySelectorAll(".hit")]));
  if (!here) return key === "ArrowDown" ? columns[SIDES.indexOf(part("results").dataset.side)][0] : null;
  const column = columns[0].includes(here) ? 0 : 1;
  const row = columns[column].indexOf(here);
  const across = part("side").hidden ? null : columns[1 - column][Math.min(row, columns[1 - column].length - 1)];
  return {
    ArrowDown: columns[column][row + 1], ArrowUp: columns[column][row - 1] || part("query"),
    ArrowLeft: column === 1 ? across : null, ArrowRight: column === 0 ? across : null,
  }[key];
}
