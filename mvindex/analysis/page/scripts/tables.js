// Tables: wide ones scroll inside themselves.

/**
 * A table. columns: [{name, show: (row) => text, isText?}], the first one names its row; caption is read out, not seen.
 */
function table(caption, columns, rows) {
  const cells = (row) =>
    columns.map(({ show, isText }, column) =>
      html(
        column ? "td" : "th",
        { class: isText ? "words" : "number", scope: column ? null : "row", dir: isText ? "auto" : null },
        show(row),
      ),
    );
  return html(
    "div",
    { class: "scroll", tabindex: 0, role: "region", "aria-label": `Table: ${caption}` },
    html(
      "table",
      {},
      html("caption", { class: "unseen" }, caption),
      html(
        "thead",
        {},
        html(
          "tr",
          {},
          columns.map(({ name, isText }) => html("th", { class: isText ? "words" : "number", scope: "col" }, name)),
        ),
      ),
      html(
        "tbody",
        {},
        rows.map((row) => html("tr", {}, cells(row))),
      ),
    ),
  );
}

/** The same, folded away under a plot. */
function folded(caption, columns, rows) {
  return html(
    "details",
    { class: "numbers" },
    html("summary", {}, "Table of these numbers"),
    table(caption, columns, rows),
  );
}

/** A matrix of slots by slots as a table. */
function matrixTable(caption, corner, matrix, show) {
  const columns = [
    { name: corner, show: ({ slot }) => `view ${slot}` },
    ...matrix.map((_, column) => ({ name: `view ${column}`, show: ({ row }) => show(row[column]) })),
  ];
  return folded(
    caption,
    columns,
    matrix.map((row, slot) => ({ row, slot })),
  );
}

/** Columns of R@k for rows that hold it by name. */
function recallColumns(report) {
  return cutoffNames(report).map((name) => ({ name, show: (row) => percent(row[name]) }));
}
