// A matrix of slots by slots as tinted cells.

const CELL_WITH_NUMBER = 34;
// The tints at which black and white read equally well (4.5:1), with the colours of either theme.
const DEEP = { light: 0.725, dark: 0.56 };

/**
 * What draws the matrix. spec: {matrix, domain: [low, high], xName, yName, kind, words: (row, column) => title}.
 * Cells that are null are hatched.
 */
function heat(spec) {
  return (width) => {
    const number = spec.matrix.length;
    const left = 46;
    const top = 24;
    const cell = Math.min(56, (width - left - 4) / number);
    const tint = linear(spec.domain, [0, 1]);
    const marks = spec.matrix.flatMap((row, y) =>
      row.map((value, x) =>
        oneCell({ spec, value, row: y, column: x, left: left + x * cell, top: top + y * cell, cell, tint }),
      ),
    );
    const step = labelStep(number, number * cell, 22);
    const labelled = spec.matrix.map((_, place) => place).filter((place) => place % step === 0);
    return {
      height: top + number * cell + 44,
      nodes: [
        hatching(),
        svg("text", { class: "axis-name", x: 0, y: 12 }, `\u2193 ${spec.yName}`),
        labelled.map((place) => [
          svg(
            "text",
            { class: "tick", x: left - 8, y: top + (place + 0.5) * cell + 4, "text-anchor": "end" },
            String(place),
          ),
          svg(
            "text",
            { class: "tick", x: left + (place + 0.5) * cell, y: top + number * cell + 18, "text-anchor": "middle" },
            String(place),
          ),
        ]),
        svg(
          "text",
          {
            class: "axis-name",
            x: Math.max(left + number * cell, 150),
            y: top + number * cell + 38,
            "text-anchor": "end",
          },
          `${spec.xName} \u2192`,
        ),
        marks.map((mark) => mark.node),
      ],
      marks,
      rowLength: number,
    };
  };
}

function oneCell({ spec, value, row, column, left, top, cell, tint }) {
  const known = isNumber(value);
  const share = known ? Math.max(0, Math.min(1, tint(value))) : 0;
  const square = svg("rect", {
    class: known ? "cell" : "cell unknown",
    x: left,
    y: top,
    width: cell - 1,
    height: cell - 1,
    rx: Math.min(3, cell / 8),
  });
  square.style.setProperty("--tint", `${(share * 100).toFixed(1)}%`);
  const number = svg(
    "text",
    { class: cellInk(share), x: left + cell / 2 - 0.5, y: top + cell / 2 + 4, "text-anchor": "middle" },
    known ? value.toFixed(2).replace("-", MINUS) : NONE,
  );
  return {
    node: svg("g", { class: "mark" }, square, cell >= CELL_WITH_NUMBER ? number : null),
    title: spec.words(row, column),
    lines: [known ? spec.kind.show(value) : "no document has both"],
    x: left + cell / 2,
    y: top,
  };
}

function cellInk(share) {
  return ["cell-value", ...Object.keys(DEEP).map((theme) => (share > DEEP[theme] ? `deep-in-${theme}` : ""))]
    .join(" ")
    .trim();
}

function hatching() {
  return svg(
    "defs",
    {},
    svg(
      "pattern",
      { id: "hatching", width: 6, height: 6, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" },
      svg("line", { class: "hatch", x1: 0, x2: 0, y1: 0, y2: 6 }),
    ),
  );
}

/** The ramp of tints with its ends. */
function tintLegend([low, high], kind) {
  const ramp = html("span", { class: "ramp", "aria-hidden": "true" });
  return html("p", { class: "ramp-legend" }, kind.show(low), ramp, kind.show(high));
}
