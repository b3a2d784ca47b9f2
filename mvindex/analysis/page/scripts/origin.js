// Where the numbers come from: the subject, the questions, the sample and the settings.

/** A sentence for readers who would otherwise compare numbers that do not compare. */
function caveats({ questions, sample }) {
  const notes = [];
  if (questions?.target === "best")
    notes.push(
      "There are no judgements: found means the document that the whole index itself puts first, " +
        "so that all views together reach 100% by definition.",
    );
  if (sample && !sample.is_all)
    notes.push(
      `Searched over a sample of ${count(sample.documents)} of ${counted(sample.of, "document")}: ` +
        "recall over all of them is lower.",
    );
  if (questions?.gold_missing)
    notes.push(
      `The index does not hold the document that ${counted(questions.gold_missing, "question")} asked for: ` +
        "not found, in all figures.",
    );
  return notes.length
    ? html(
        "div",
        { class: "notes", role: "note" },
        notes.map((note) => html("p", {}, note)),
      )
    : null;
}

/** All that is needed to do the analysis again; reasons: [name, why] of what else was left out. */
function origin(report, reasons) {
  const { subject, questions, sample, scoring, settings } = report;
  const groups = [
    ["Subject", subject && flat(subject)],
    ["Questions", questions && flat(questions)],
    ["Sample", sample && flat(sample)],
    ["Scoring", scoring && flat(scoring)],
    ["Settings", settings && flat(settings)],
    ["Also left out", reasons],
  ];
  return groups
    .filter(([, entries]) => entries?.length)
    .map(([name, entries]) =>
      html(
        "article",
        { class: "card" },
        html("h3", {}, name),
        facts(entries.map(([key, value]) => [key.replaceAll("_", " "), value])),
      ),
    );
}

function flat(values) {
  return Object.entries(values).flatMap(([key, value]) =>
    value !== null && typeof value === "object" && !Array.isArray(value)
      ? flat(value).map(([inner, text]) => [`${key} ${inner}`, text])
      : [[key, plain(value)]],
  );
}

function plain(value) {
  if (Array.isArray(value)) return value.map(plain).join(", ") || NONE;
  if (typeof value === "boolean") return value ? "yes" : "no";
  if (typeof value === "number") return Number.isInteger(value) ? count(value) : short(value);
  return value === null || value === undefined ? NONE : String(value);
}
