// The frame of a plot: margins, grid lines, ticks, and what the axes are.

const MARGIN = { top: 30, right: 14, bottom: 46, left: 46 };

/** Inner edges of a plot of that size. */
function frameOf(width, height, margin = {}) {
  const { top, right, bottom, left } = { ...MARGIN, ...margin };
  return { left, right: width - right, top, bottom: height - bottom, width, height };
}

/** Horizontal grid lines with their values, and the axis' name above them. kind: PERCENT and such. */
function yAxis(frame, scale, values, kind, name) {
  return [
    svg("text", { class: "axis-name", x: 0, y: 12 }, `\u2191 ${name}`),
    values.map((value) => {
      const y = scale(value);
      return [
        svg("line", { class: value === 0 ? "grid zero" : "grid", x1: frame.left, x2: frame.right, y1: y, y2: y }),
        svg("text", { class: "tick", x: frame.left - 8, y: y + 4, "text-anchor": "end" }, kind.tick(value)),
      ];
    }),
  ];
}

/** Labels under the plot at these places, so many that they do not touch, and the axis' name below them. */
function xAxis(frame, labels, at, name) {
  const longest = Math.max(1, ...labels.map((label) => label.length));
  const step = labelStep(labels.length, frame.right - frame.left, longest * 7 + 10);
  return [
    labels.map((label, place) =>
      place % step
        ? null
        : svg("text", { class: "tick", x: at(place), y: frame.bottom + 18, "text-anchor": "middle" }, label),
    ),
    svg("text", { class: "axis-name", x: frame.right, y: frame.height - 6, "text-anchor": "end" }, `${name} \u2192`),
  ];
}

/** A dashed line across the plot at a value that others are compared with. */
function reference(frame, y, mark) {
  return svg("line", { class: `reference ${mark}`, x1: frame.left, x2: frame.right, y1: y, y2: y });
}
