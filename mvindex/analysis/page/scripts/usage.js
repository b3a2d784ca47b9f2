// Which views win questions, and by how much.

const usageSection = {
  title: "Which views win",
  keys: ["usage"],
  data: (report) => report.usage,
  card(usage) {
    const all = usage.reduce((sum, { available }) => sum + available, 0);
    const shareOfViews = ({ available }) => available / all;
    const series = [
      { name: "share of all views", mark: "series-quiet", values: usage.map(shareOfViews) },
      { name: "questions won", mark: "series-0", values: usage.map(({ wins }) => wins) },
    ];
    return figure(
      {
        title: this.title,
        good: "each view wins about its share, so that all are of use",
        bad: "one view wins nearly always: the others are dead weight",
        source: "the best view of the document that was wanted, per question; compare MVR, eq. 10",
        wide: usage.length > 12,
      },
      (id) => [
        plot(
          "Share of questions won by each view",
          bars({
            labels: usage.map(({ slot }) => String(slot)),
            titles: usage.map(({ slot }) => `View ${slot}`),
            series,
            lines: (place) => [`${percent(usage[place].available)} of the documents have it`],
            xName: "view (slot, from 0)",
            yName: "share (%)",
            kind: PERCENT,
          }),
          id,
        ),
        legend(series.map(({ name, mark }) => ({ name, mark, shape: "bar" }))),
        folded(
          "questions won by each view",
          [
            { name: "view", show: ({ slot }) => `view ${slot}` },
            { name: "questions won", show: ({ wins }) => percent(wins) },
            { name: "share of all views", show: (row) => percent(shareOfViews(row)) },
            { name: "documents that have it", show: ({ available }) => percent(available) },
          ],
          usage,
        ),
      ],
    );
  },
};

const localSection = {
  title: "How far the best view stands out",
  keys: ["local"],
  data: (report) => report.local,
  card(local, report) {
    const { margin } = local;
    const steps = [
      ["p10", "10th percentile", margin.p10],
      ["p50", "median", margin.p50],
      ["mean", "mean", margin.mean],
      ["p90", "90th percentile", margin.p90],
    ];
    return figure(
      {
        title: this.title,
        good: "a clear margin together with a perplexity well above 1: views are told apart and several are used",
        bad: "a margin near 0, or a perplexity near 1, which is one view doing all the work",
        source:
          "MVR, eq. 9 (LV) and eq. 10 (perplexity), " +
          `over ${counted(local.pairs, "pair")} of a question and its document`,
      },
      (id) => [
        facts([
          ["Local variation (LV)", decimal(local.lv)],
          [
            "Perplexity of the winners",
            `${grouped(local.ppl, 2)} of ${grouped(report.subject?.views_per_document, 1)} views`,
          ],
        ]),
        plot(
          "Best minus second-best view score",
          bars({
            labels: steps.map(([label]) => label),
            titles: steps.map(([, name]) => name),
            xName: "percentile of the pairs",
            yName: "best minus second-best score",
            kind: DECIMAL,
            series: [{ name: "margin", mark: "series-0", values: steps.map(([, , value]) => value) }],
          }),
          id,
        ),
        folded(
          "margin of the best view",
          [
            { name: "over pairs", show: ([, name]) => name },
            { name: "margin", show: ([, , value]) => decimal(value) },
          ],
          steps,
        ),
      ],
    );
  },
};
