// Reading a plot's marks one by one: by pointer, by touch, and by arrow keys from one stop of the Tab key.

const STEPS = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 };

/**
 * Makes marks readable. marks: [{node, title, lines, x, y, row?}]; each node gets its words as its label, and shows
 * them in the tip while it has the pointer or the focus. rowLength: for grids, how many marks Up and Down step over.
 */
function makeReadable(holder, marks, { rowLength = 1, start = 0 } = {}) {
  const tip = holder.tip;
  const show = (place) => {
    for (const mark of marks) mark.node.classList.remove("active");
    marks[place].node.classList.add("active");
    showTip(holder, marks[place]);
  };
  const hide = () => {
    for (const mark of marks) mark.node.classList.remove("active");
    tip.hidden = true;
  };
  const stopAt = (place) => {
    for (const [other, mark] of marks.entries()) mark.node.setAttribute("tabindex", other === place ? 0 : -1);
    holder.place = place;
  };
  marks.forEach((mark, place) => {
    mark.node.setAttribute("role", "img");
    mark.node.setAttribute("aria-label", [mark.title, ...mark.lines].join("; "));
    mark.node.addEventListener("pointerenter", () => show(place));
    mark.node.addEventListener("pointerleave", hide);
    mark.node.addEventListener("click", () => show(place));
    mark.node.addEventListener("blur", hide);
    mark.node.addEventListener("focus", () => {
      stopAt(place);
      show(place);
    });
    mark.node.addEventListener("keydown", (event) => {
      if (event.key === "Escape") hide();
      const next = target(event.key, place, marks.length, rowLength);
      if (next === null) return;
      event.preventDefault();
      marks[next].node.focus();
    });
  });
  if (marks.length) stopAt(Math.min(start, marks.length - 1));
}

/** Where a key leads from a place, or null for keys that lead nowhere. */
function target(key, place, length, rowLength) {
  if (key === "Home") return 0;
  if (key === "End") return length - 1;
  if (!(key in STEPS)) return null;
  const across = key === "ArrowUp" || key === "ArrowDown" ? rowLength : 1;
  const next = place + STEPS[key] * across;
  return next < 0 || next >= length ? place : next;
}

/** Shows a mark's words beside it, inside the plot's own width. */
function showTip(holder, mark) {
  const tip = holder.tip;
  tip.replaceChildren(html("strong", {}, quoted(mark.title)), ...mark.lines.map((line) => quoted(line, "span")));
  tip.hidden = false;
  const left = Math.max(0, Math.min(mark.x - tip.offsetWidth / 2, holder.clientWidth - tip.offsetWidth));
  const above = mark.y - tip.offsetHeight - 14;
  tip.style.left = `${left}px`;
  tip.style.top = `${above < -40 ? mark.y + 16 : above}px`;
}
