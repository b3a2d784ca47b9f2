// From values to places on paper.

/** A function that maps [from, to] linearly onto [start, end]; all in the middle where from equals to. */
function linear([from, to], [start, end]) {
  const span = to - from;
  return (value) => (span === 0 ? (start + end) / 2 : start + ((value - from) / span) * (end - start));
}

/** Round values that cover [from, to], about `wanted` of them: steps of 1, 2, 2.5 or 5 times a power of ten. */
function ticks(from, to, wanted) {
  if (!(to > from)) return [from];
  const rough = (to - from) / wanted;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map((factor) => factor * power).find((size) => size >= rough * 0.999);
  const first = Math.floor(from / step + 1e-9);
  const last = Math.ceil(to / step - 1e-9);
  return Array.from({ length: last - first + 1 }, (_, place) => Number(((first + place) * step).toPrecision(12)));
}

/** Round values as `kind` counts: bytes in whole numbers of their unit. */
function ticksOf(kind, [from, to], wanted) {
  return ticks(from / kind.unit, to / kind.unit, wanted).map((value) => value * kind.unit);
}

/** Which of `number` labels to show so that each has `needed` of the `room` there is: every n-th, n round. */
function labelStep(number, room, needed) {
  const least = Math.max(1, Math.ceil((number * needed) / Math.max(room, 1)));
  return [1, 2, 4, 5, 8, 10, 16, 20, 32, 50, 100].find((step) => step >= least) ?? least;
}

/** [least, greatest] of the values that are numbers, or null where there is none. */
function extent(values) {
  const known = values.filter(isNumber);
  return known.length ? [Math.min(...known), Math.max(...known)] : null;
}
