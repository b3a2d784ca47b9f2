// Recall: all views against one vector, and each view on its own.

const RECALL_NAME = "recall (% of questions)";

const recallSection = {
  title: "Recall: all views against one vector",
  keys: ["recall"],
  data: (report) => report.recall,
  card(recall, report) {
    const names = cutoffNames(report);
    const single = report.one_vector;
    const series = [
      {
        name: "all views",
        mark: "series-0",
        values: names.map((name) => recall.whole[name]),
        intervals: recall.interval && names.map((name) => recall.interval[name]),
      },
      single && { name: single.name, mark: "series-1", values: names.map((name) => single[name]) },
    ].filter(Boolean);
    return figure(
      {
        title: this.title,
        good: "all views stand clear of the one vector, beyond the interval's whisker",
        bad: "both are level, so the further vectors of a document find nothing more",
        source: `share of questions with ${foundMeans(report)} among the first k documents; whiskers: 95% bootstrap`,
      },
      (id) => [
        plot(
          `Recall of all views and of one vector, by number of documents looked at`,
          bars({ labels: names, series, xName: "documents looked at", yName: RECALL_NAME, kind: PERCENT }),
          id,
        ),
        legend(series.map(({ name, mark }) => ({ name, mark, shape: "bar" }))),
        folded(
          "recall of all views and of one vector",
          [
            { name: "first k", show: ({ name }) => name },
            { name: "all views", show: ({ name }) => percent(recall.whole[name]) },
            recall.interval && {
              name: "95% interval",
              show: ({ name }) => recall.interval[name].map((value) => percent(value)).join(" to "),
            },
            single && { name: single.name, show: ({ name }) => percent(single[name]) },
            single && { name: "points more", show: ({ name }) => points(recall.whole[name] - single[name]) },
          ].filter(Boolean),
          names.map((name) => ({ name })),
        ),
      ],
    );
  },
};

const aloneSection = {
  title: "Each view alone",
  keys: ["alone"],
  data: (report) => report.alone,
  card(alone, report) {
    const names = cutoffNames(report);
    const compared = [
      report.recall && { name: "all views", mark: "reference-0", of: report.recall.whole },
      report.one_vector && { name: report.one_vector.name, mark: "reference-1", of: report.one_vector },
    ].filter(Boolean);
    return figure(
      {
        title: this.title,
        good: "the views differ from each other and all of them together reach higher than any one",
        bad: "every view alone does as well as all together: the views have collapsed into one",
        source: "that view as the document's only vector (CAMVR, tables 2 and 7)",
        wide: alone.length > 12,
      },
      (id) => {
        let chosen = mainCutoff(report);
        const draw = (width) =>
          bars({
            labels: alone.map(({ slot }) => String(slot)),
            titles: alone.map(({ slot }) => `View ${slot} alone`),
            series: [{ name: chosen, mark: "series-0", values: alone.map((row) => row[chosen]) }],
            references: compared.map(({ name, mark, of }) => ({ name, mark, value: of[chosen] })),
            lines: (place) => [`${percent(alone[place].documents)} of the documents have it`],
            xName: "view (slot, from 0)",
            yName: `${chosen} (% of questions)`,
            kind: PERCENT,
          })(width);
        const holder = plot("Recall of each view alone against all views", draw, id);
        return [
          choice("Recall at", names, names.indexOf(chosen), (place) => {
            chosen = names[place];
            if (holder.isConnected) holder.redraw();
          }),
          holder,
          legend([
            { name: "the view alone", mark: "series-0", shape: "bar" },
            ...compared.map(({ name, mark }) => ({ name, mark, shape: "line" })),
          ]),
          folded(
            "recall of each view alone",
            [
              { name: "view", show: ({ slot, name }) => name ?? `view ${slot}` },
              { name: "documents that have it", show: ({ documents }) => percent(documents) },
              ...recallColumns(report),
            ],
            [...alone, ...compared.map(({ name, of }) => ({ ...of, name, documents: 1 }))],
          ),
        ];
      },
    );
  },
};
