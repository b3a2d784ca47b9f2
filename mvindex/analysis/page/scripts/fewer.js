// What is lost by keeping fewer views: so many a document, or only those that differ.

const keptSection = {
  title: "Recall by number of views kept",
  keys: ["kept"],
  data: (report) => report.kept,
  card(kept, report) {
    return fewer(
      {
        title: this.title,
        good: "recall keeps rising to the right: each further view pays for its bytes",
        bad: "the lines are flat while the bytes grow: fewer views would do",
        source: "the views of each document that differ most from those kept before; bytes as of the whole index",
      },
      {
        rows: kept,
        report,
        xName: "views kept per document (at most)",
        step: { name: "views kept", show: ({ views }) => String(views) },
        extra: [{ name: "views / doc.", show: (row) => grouped(row.views_per_document, 2) }],
        title: ({ views }) => `${counted(views, "view")} kept`,
      },
    );
  },
};

const prunedSection = {
  title: "Pruning near-duplicate views",
  keys: ["pruned"],
  data: (report) => report.pruned,
  card(pruned, report) {
    return fewer(
      {
        title: this.title,
        good: "bytes fall while recall stays: that EPS is free to use",
        bad: "recall falls as soon as the bytes do: every view is needed",
        source:
          "views within EPS (the distance of unit vectors) of one that stays are left out; steps are not to scale",
      },
      {
        rows: pruned,
        report,
        xName: "EPS (distance)",
        step: { name: "EPS", show: ({ eps }) => short(eps) },
        extra: [
          { name: "cosine", show: ({ cosine }) => decimal(cosine) },
          { name: "views", show: ({ views }) => count(views) },
        ],
        title: ({ eps, cosine }) => `EPS ${short(eps)} (cosine above ${decimal(cosine)})`,
      },
    );
  },
};

// Longer tables are folded away.
const MOST_OPEN_ROWS = 12;

/** A card with recall over steps, and the bytes of each step below. */
function fewer(words, { rows, report, xName, step, extra, title }) {
  const names = cutoffNames(report);
  const labels = rows.map(step.show);
  const said = (place) => [
    title(rows[place]),
    `${bytes(rows[place].bytes)}, ${percent(rows[place].share)} of all views`,
  ];
  const columns = [
    step,
    ...extra,
    { name: "bytes", show: (row) => bytes(row.bytes) },
    { name: "share", show: (row) => percent(row.share) },
    ...recallColumns(report),
  ];
  const margin = { right: 56 };
  const kind = bytesUpTo(Math.max(...rows.map((row) => row.bytes)));
  const plots = (id) => [
    plot(
      `${words.title}: recall`,
      lines({
        labels,
        xName,
        yName: RECALL_NAME,
        kind: PERCENT,
        lines: said,
        margin,
        series: names.map((name) => ({ name, values: rows.map((row) => row[name]) })),
      }),
      id,
    ),
    plot(
      `${words.title}: bytes`,
      bars({
        labels,
        titles: rows.map(title),
        xName,
        yName: `size of the vectors (${kind.name})`,
        kind,
        height: 160,
        margin,
        ticks: 3,
        series: [{ name: "size", mark: "series-quiet", values: rows.map((row) => row.bytes) }],
        lines: (place) => [`${percent(rows[place].share)} of all views`],
      }),
      id,
    ),
  ];
  const isShort = rows.length <= MOST_OPEN_ROWS;
  const numbers = (isShort ? table : folded)(words.title, columns, rows);
  return figure({ ...words, wide: true }, (id) =>
    html("div", { class: isShort ? "split" : null }, html("div", {}, plots(id)), numbers),
  );
}
