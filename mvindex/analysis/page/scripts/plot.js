// A plot's place on the page: drawn for the width it has, and again when that changes.

const LEAST_WIDTH = 220;

/**
 * A holder that draws itself. label: what a screen reader calls it; describedBy: id of its explanation.
 * draw(width) gives {height, nodes, marks, rowLength?}.
 */
function plot(label, draw, describedBy = null) {
  const holder = html("div", { class: "plot" });
  holder.tip = html("div", { class: "tip", hidden: true, "aria-hidden": "true" });
  holder.place = 0;
  let width = 0;
  holder.redraw = () => {
    width = Math.max(LEAST_WIDTH, Math.floor(holder.clientWidth));
    const drawn = draw(width);
    const hadFocus = holder.contains(document.activeElement);
    const start = holder.place;
    const picture = svg(
      "svg",
      {
        role: "group",
        "aria-roledescription": "plot",
        "aria-label": label,
        "aria-describedby": describedBy,
        width,
        height: drawn.height,
        viewBox: `0 0 ${width} ${drawn.height}`,
      },
      drawn.nodes,
    );
    holder.tip.hidden = true;
    holder.replaceChildren(picture, holder.tip);
    makeReadable(holder, drawn.marks, { rowLength: drawn.rowLength, start });
    if (hadFocus) drawn.marks[Math.min(start, drawn.marks.length - 1)]?.node.focus();
  };
  // Its height changes with each drawing, so only the width counts; a frame later, or the observer would loop.
  new ResizeObserver(() => {
    requestAnimationFrame(() => {
      if (holder.isConnected && Math.max(LEAST_WIDTH, Math.floor(holder.clientWidth)) !== width) holder.redraw();
    });
  }).observe(holder);
  return holder;
}

/** What tells a plot's series apart, with the same marks as in the plot. entries: [{name, mark: class, shape}]. */
function legend(entries) {
  return html(
    "ul",
    { class: "legend" },
    entries.map(({ name, mark, shape }) =>
      html(
        "li",
        {},
        svg("svg", { width: 18, height: 12, viewBox: "0 0 18 12", "aria-hidden": "true" }, sample(mark, shape)),
        name,
      ),
    ),
  );
}

function sample(mark, shape) {
  if (shape === "line") return svg("line", { class: `reference ${mark}`, x1: 0, x2: 18, y1: 6, y2: 6 });
  if (shape === "bar") return svg("rect", { class: `bar ${mark}`, x: 3, y: 0, width: 12, height: 12, rx: 2 });
  return svg("g", { class: mark }, svg("line", { class: "line", x1: 0, x2: 18, y1: 6, y2: 6 }), symbol(shape, 9, 6, 4));
}

/** A point: circle, square, diamond or triangle, of about equal weight. */
function symbol(shape, x, y, size) {
  if (shape === "circle") return svg("circle", { class: "point", cx: x, cy: y, r: size });
  const far = size * 1.25;
  const corners = {
    square: [
      [-0.9, -0.9],
      [0.9, -0.9],
      [0.9, 0.9],
      [-0.9, 0.9],
    ].map(([a, b]) => [a * size, b * size]),
    diamond: [
      [0, -far],
      [far, 0],
      [0, far],
      [-far, 0],
    ],
    triangle: [
      [0, -far],
      [far, far * 0.8],
      [-far, far * 0.8],
    ],
  }[shape];
  return svg("polygon", { class: "point", points: corners.map(([a, b]) => `${x + a},${y + b}`).join(" ") });
}

const SHAPES = ["circle", "square", "diamond", "triangle"];
