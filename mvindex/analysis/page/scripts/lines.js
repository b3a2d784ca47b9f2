// Lines over labelled steps: one shape and colour a line, its name at its end.

/** What draws lines. spec: {labels, titles?, xName, yName, kind, series: [{name, values}], lines?, margin?}. */
function lines(spec) {
  return (width) => {
    const height = spec.height ?? 270;
    const frame = frameOf(width, height, spec.margin);
    const [low, high] = extent(spec.series.flatMap((series) => series.values)) ?? [0, 1];
    const values = ticks(Math.max(0, low - (high - low) * 0.1 - 0.01), Math.min(1, high + 0.01), 5);
    const scale = linear([values[0], values.at(-1)], [frame.bottom, frame.top]);
    const band = (frame.right - frame.left) / spec.labels.length;
    const at = (place) => frame.left + (place + 0.5) * band;
    const drawn = spec.series.map((series, order) => oneLine({ spec, series, order, at, scale }));
    return {
      height,
      nodes: [
        yAxis(frame, scale, values, spec.kind, spec.yName),
        xAxis(frame, spec.labels, at, spec.xName),
        drawn.map((line) => line.node),
        endNames(frame, spec.series, scale),
      ],
      marks: drawn.flatMap((line) => line.marks),
      rowLength: spec.labels.length,
    };
  };
}

function oneLine({ spec, series, order, at, scale }) {
  const known = series.values.map((value, place) => [value, place]).filter(([value]) => isNumber(value));
  const path = known.map(([value, place], step) => `${step ? "L" : "M"}${at(place)} ${scale(value)}`).join("");
  const marks = known.map(([value, place]) => {
    const [x, y] = [at(place), scale(value)];
    const node = svg(
      "g",
      { class: "mark" },
      svg("circle", { class: "reach", cx: x, cy: y, r: 11 }),
      symbol(SHAPES[order % 4], x, y, 4),
    );
    return { node, title: `${series.name}: ${spec.kind.show(value)}`, lines: spec.lines(place), x, y };
  });
  const node = svg(
    "g",
    { class: `series-${order % 4}` },
    svg("path", { class: "line", d: path }),
    marks.map((mark) => mark.node),
  );
  return { node, marks };
}

/** The lines' names at their right ends, moved apart where they would touch. */
function endNames(frame, series, scale) {
  const ends = series
    .map(({ name, values }, order) => ({ name, order, value: values.filter(isNumber).at(-1) }))
    .filter(({ value }) => isNumber(value))
    .sort((one, other) => other.value - one.value || other.order - one.order);
  let lowest = 0;
  return ends.map(({ name, order, value }) => {
    const y = Math.max(scale(value) + 4, lowest + 14);
    lowest = y;
    return svg("text", { class: `line-name series-${order % 4}`, x: frame.right + 6, y }, name);
  });
}
