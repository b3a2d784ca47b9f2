// What counts as found, in words, and at which ranks it is counted.

const FOUND = {
  gold: "the document that is marked as right",
  answer: "a document whose text holds the answer",
  best: "the document that the whole index itself puts first",
};

/** What the recall figures mean by a question that is answered. */
function foundMeans(report) {
  const target = report.questions?.target;
  return FOUND[target] ?? target ?? "what was wanted";
}

/** R@1, R@5 and so on, as in the report. */
function cutoffNames(report) {
  return (report.recall?.cutoffs ?? cutoffsOf(report)).map((cutoff) => `R@${cutoff}`);
}

/** The cutoffs of a report without recall: those that its other sections name. */
function cutoffsOf(report) {
  const row = report.alone?.[0] ?? report.kept?.[0] ?? report.pruned?.[0] ?? report.one_vector ?? {};
  return Object.keys(row)
    .filter((name) => name.startsWith("R@"))
    .map((name) => Number(name.slice(2)));
}

/** The one R@k that single figures quote: R@5 as in the papers, else the first. */
function mainCutoff(report) {
  const names = cutoffNames(report);
  return names.includes("R@5") ? "R@5" : names[0];
}
