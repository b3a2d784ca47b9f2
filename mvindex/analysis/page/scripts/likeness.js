// How alike the views of one document are.

const heatSection = {
  title: "How alike the views are",
  keys: ["similarity", "similarity.heat"],
  data: (report) => report.similarity?.heat,
  card(matrix, report) {
    const found = extent(matrix.flatMap((row, y) => row.filter((_, x) => x !== y)));
    const domain = [Math.min(0, found?.[0] ?? 0), 1];
    return figure(
      {
        title: this.title,
        good: "low numbers off the diagonal: the views of a document point different ways",
        bad: "numbers near 1 throughout: they are near copies of each other",
        source: `mean cosine of two views of one document, over ${counted(report.similarity.documents, "document")}`,
      },
      (id) => [
        plot(
          "Mean cosine between views",
          heat({
            matrix,
            domain,
            kind: DECIMAL,
            xName: "view (slot, from 0)",
            yName: "view (slot)",
            words: (row, column) => `Views ${row} and ${column}`,
          }),
          id,
        ),
        tintLegend(domain, DECIMAL),
        matrixTable("mean cosine between views", "cosine", matrix, decimal),
      ],
    );
  },
};

const histogramSection = {
  title: "Cosines between views of one document",
  keys: ["similarity", "similarity.histogram"],
  data: (report) => report.similarity?.histogram,
  card(histogram, report) {
    const shown = filledBins(histogram);
    const duplicates = report.similarity.near_duplicates ?? [];
    return figure(
      {
        title: this.title,
        good: "the hill lies well left of 1",
        bad: "it leans on 1: many views repeat another one of their document",
        source: "all pairs of views of a document; empty bins at both ends are not drawn",
      },
      (id) => [
        plot(
          "Histogram of cosines between views",
          bars({
            labels: shown.bins.map(({ from, to }) => `${short(from)} to ${short(to)}`),
            edges: shown.edges,
            touching: true,
            xName: "cosine",
            yName: "pairs of views",
            kind: COUNT,
            series: [{ name: "pairs", mark: "series-0", values: shown.bins.map(({ number }) => number) }],
          }),
          id,
        ),
        folded(
          "cosines between views",
          [
            { name: "cosine", show: ({ from, to }) => `${short(from)} to ${short(to)}` },
            { name: "pairs", show: ({ number }) => count(number) },
          ],
          shown.bins,
        ),
        duplicates.length ? html("h4", {}, "Views within EPS of another one of their document") : null,
        duplicates.length
          ? table(
              "near-duplicate views",
              [
                { name: "EPS", show: ({ eps }) => short(eps) },
                { name: "share of views", show: ({ share }) => percent(share) },
              ],
              duplicates,
            )
          : null,
      ],
    );
  },
};

/** The bins from the first to the last that holds anything, and their edges. */
function filledBins({ edges, counts }) {
  const all = counts.map((number, place) => ({ number, from: edges[place], to: edges[place + 1] }));
  const first = Math.max(
    0,
    counts.findIndex((number) => number > 0),
  );
  const last = counts.findLastIndex((number) => number > 0);
  const bins = all.slice(first, (last < 0 ? all.length - 1 : last) + 1);
  return { bins, edges: [...bins.map(({ from }) => from), bins.at(-1).to] };
}
