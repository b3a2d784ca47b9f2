// A card: what is measured, how to read it, the plot, its numbers, and where the measure comes from.

/**
 * A card. spec: {title, good, bad, source, wide?}; body: (id of the explanation) => nodes, for plots to point to it.
 */
function figure(spec, body) {
  const [heading, explanation] = [newId("title"), newId("reading")];
  return html(
    "article",
    { class: spec.wide ? "card wide" : "card", "aria-labelledby": heading },
    html("h3", { id: heading }, spec.title),
    html(
      "p",
      { class: "reading", id: explanation },
      html("b", { class: "good" }, "Good: "),
      `${spec.good}; `,
      html("b", { class: "bad" }, "bad: "),
      `${spec.bad}.`,
    ),
    body(explanation),
    html("p", { class: "source" }, `Source: ${spec.source}`),
  );
}

/** The place of a card that has no data: its name, and why. */
function leftOut(title, why) {
  return html(
    "article",
    { class: "card left-out", "aria-label": `${title}: left out` },
    html("h3", {}, title),
    html("p", {}, html("b", {}, "Left out: "), quoted(why)),
  );
}

const NO_REASON = "the analysis gave no numbers for it, and no reason";

/**
 * The card of a section, or its place where the report holds null or nothing for it.
 * section: {title, keys: names in left_out, data: (report) => what it draws or null, card: (data, report) => node}.
 */
function cardOf(section, report) {
  const data = section.data(report);
  const isThere = data !== null && data !== undefined && !(Array.isArray(data) && data.length === 0);
  if (isThere) return section.card(data, report);
  return leftOut(section.title, reasonFor(section.keys, report) ?? section.empty ?? NO_REASON);
}

const toldReasons = new Set();

/** Why the first of these names was left out, or null; what is told here is not told again at the end. */
function reasonFor(names, { left_out: reasons }) {
  const name = names.find((one) => one in (reasons ?? {}));
  if (name === undefined) return null;
  toldReasons.add(name);
  return reasons[name];
}

/** The reasons that no card has told, once all are made. */
function otherReasons({ left_out: reasons }) {
  return Object.entries(reasons ?? {}).filter(([name]) => !toldReasons.has(name));
}

/** A short list of names and values. */
function facts(entries) {
  return html(
    "dl",
    { class: "facts" },
    entries
      .filter(Boolean)
      .map(([name, value]) => html("div", {}, html("dt", {}, name), html("dd", {}, quoted(value)))),
  );
}
