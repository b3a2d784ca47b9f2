// Key figures, each with what it is to be compared with.

/** The tiles of all figures that the report holds. */
function tiles(report) {
  const found = [recallTile, gainTile, usedTile, variationTile, cosineTile, duplicateTile, bytesTile, questionTile]
    .map((tile) => tile(report))
    .filter(Boolean);
  return html(
    "dl",
    { class: "tiles" },
    found.map(({ name, value, note }) =>
      html(
        "div",
        { class: "tile" },
        html("dt", {}, name),
        html("dd", {}, html("strong", {}, value), html("span", {}, quoted(note))),
      ),
    ),
  );
}

function recallTile(report) {
  const name = mainCutoff(report);
  if (!report.recall) return null;
  const interval = report.recall.interval?.[name];
  const note = interval ? `95% interval ${percent(interval[0])} to ${percent(interval[1])}` : "of the questions";
  return { name: `${name}, all views`, value: percent(report.recall.whole[name]), note };
}

function gainTile(report) {
  const name = mainCutoff(report);
  if (!report.recall || !report.one_vector) return null;
  const gain = report.one_vector.gain[name];
  return {
    name: `${name}, gain over one vector`,
    value: points(gain.value),
    note: `points (95% interval ${points(gain.low)} to ${points(gain.high)}); ${report.one_vector.name}`,
  };
}

function usedTile({ local, subject }) {
  if (!isNumber(local?.ppl)) return null;
  return {
    name: "Views in use per document",
    value: grouped(local.ppl, 2),
    note: `of ${grouped(subject.views_per_document, 1)}; perplexity of the winners (MVR eq. 10)`,
  };
}

function variationTile({ local }) {
  if (!isNumber(local?.lv)) return null;
  return { name: "Local variation", value: decimal(local.lv), note: "how far the best view stands out (MVR eq. 9)" };
}

function cosineTile({ similarity }) {
  if (!isNumber(similarity?.mean_cosine)) return null;
  return {
    name: "Cosine between views",
    value: decimal(similarity.mean_cosine),
    note: "mean within a document; 1 is one and the same",
  };
}

function duplicateTile({ similarity }) {
  const nearest = similarity?.near_duplicates?.[0];
  if (!nearest) return null;
  return {
    name: "Near-duplicate views",
    value: percent(nearest.share),
    note: `within EPS ${short(nearest.eps)} of another of the document`,
  };
}

function bytesTile({ subject }) {
  if (!isNumber(subject?.view_bytes)) return null;
  return {
    name: "Size of the vectors",
    value: bytes(subject.view_bytes),
    note:
      `${grouped(subject.views_per_document, 2)} views per document (at most ${count(subject.most_views)}), ` +
      `${bytes(subject.view_bytes / Math.max(subject.documents, 1))} each document`,
  };
}

function questionTile({ questions }) {
  if (!questions) return null;
  return {
    name: "Questions asked",
    value: count(questions.used),
    note: `about ${counted(questions.documents, "document")}, ${grouped(questions.per_document, 2)} each (AVQ)`,
  };
}
