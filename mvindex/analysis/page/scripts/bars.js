// Bars, one group a label, one bar a series.

/**
 * What draws bars. spec: {labels, titles?, xName, yName, kind, series: [{name, mark, values, intervals?}],
 * references?: [{value, mark}], lines?: (place) => more words, touching?, edges?: for histograms, height?,
 * margin?, ticks?}.
 */
function bars(spec) {
  return (width) => {
    const height = spec.height ?? 260;
    const frame = frameOf(width, height, spec.margin);
    const [low, high] = barRange(spec);
    const values = ticksOf(spec.kind, [low, high], spec.ticks ?? 4);
    const scale = linear([values[0], values.at(-1)], [frame.bottom, frame.top]);
    const band = (frame.right - frame.left) / spec.labels.length;
    const centre = (place) => frame.left + (place + 0.5) * band;
    const drawn = spec.labels
      .flatMap((_, place) =>
        spec.series.map((series, order) => oneBar({ spec, series, order, scale, band, frame, place })),
      )
      .filter(Boolean);
    const references = spec.references ?? [];
    return {
      height,
      nodes: [
        yAxis(frame, scale, values, spec.kind, spec.yName),
        spec.edges ? edgeLabels(frame, spec.edges, band, spec.xName) : xAxis(frame, spec.labels, centre, spec.xName),
        drawn.map((mark) => mark.node),
        references.map(({ value, mark }) => reference(frame, scale(value), mark)),
        drawn.map((mark) => mark.label),
      ],
      marks: drawn,
    };
  };
}

function barRange(spec) {
  const all = spec.series.flatMap((series) => [...series.values, ...(series.intervals ?? []).flat()]);
  const [low, high] = extent([...all, ...(spec.references ?? []).map(({ value }) => value), 0]);
  return low === high ? [0, 1] : [low, high];
}

function oneBar({ spec, series, order, scale, band, frame, place }) {
  const value = series.values[place];
  if (!isNumber(value)) return null;
  const { x, width } = barPlace(spec, order, frame.left + place * band, band);
  const [top, bottom] = [Math.min(scale(value), scale(0)), Math.max(scale(value), scale(0))];
  // A small number is still seen; only 0 is nothing.
  const height = value === 0 ? 0 : Math.max(bottom - top, 1);
  const interval = series.intervals?.[place];
  const peak = interval ? Math.min(top, scale(interval[1])) : top;
  const middle = x + width / 2;
  const label = spec.kind.show(value);
  const isRoomy = !spec.touching && width >= label.length * 6.2;
  const node = svg(
    "g",
    { class: "mark" },
    // The whole column reads, however small the bar is.
    svg("rect", { class: "reach", x, y: frame.top, width, height: frame.bottom - frame.top }),
    svg("rect", {
      class: `bar ${series.mark}`,
      x,
      y: value < 0 ? top : bottom - height,
      width,
      height,
      rx: Math.min(3, width / 4),
    }),
    interval && whisker(middle, scale(interval[0]), scale(interval[1])),
  );
  const words = [`${series.name}: ${label}`];
  if (interval) words.push(`95% interval ${spec.kind.show(interval[0])} to ${spec.kind.show(interval[1])}`);
  return {
    node,
    label: isRoomy && svg("text", { class: "value", x: middle, y: peak - 5, "text-anchor": "middle" }, label),
    title: spec.titles?.[place] ?? spec.labels[place],
    lines: [...words, ...(spec.lines?.(place) ?? [])],
    x: middle,
    y: peak,
  };
}

/** Where a bar stands in its group's band: side by side in the middle, or filling it in a histogram. */
function barPlace(spec, order, left, band) {
  if (spec.touching) return { x: left, width: Math.max(1, band - 1) };
  const number = spec.series.length;
  const room = Math.min(band * 0.76, 44 * number);
  const gap = number > 1 ? 2 : 0;
  return { x: left + (band - room + gap) / 2 + order * (room / number), width: Math.max(1, room / number - gap) };
}

function whisker(x, low, high) {
  return svg("path", {
    class: "whisker",
    d: `M${x} ${low}V${high}M${x - 4} ${low}H${x + 4}M${x - 4} ${high}H${x + 4}`,
  });
}

/** Labels at the borders between bars, for histograms. */
function edgeLabels(frame, edges, band, name) {
  return xAxis(frame, edges.map(short), (place) => frame.left + place * band, name);
}
