// What only training shows: where the views look, and which of them the gradient reaches.

const attentionSection = {
  title: "Where the views look",
  keys: ["attention"],
  data: (report) => report.attention,
  card(attention) {
    const { kl: matrix } = attention;
    const domain = [0, extent(matrix.flat())?.[1] || 1];
    return figure(
      {
        title: this.title,
        good: "high numbers off the diagonal: the views read different parts of the text",
        bad: "numbers near 0 throughout: they read the same, and will say the same",
        source:
          "KL divergence of the last layer's attention (CAMVR, eq. 14), " +
          `over ${counted(attention.documents, "document")}; mean ${decimal(attention.mean)}`,
      },
      (id) => [
        plot(
          "KL divergence of the views' attention",
          heat({
            matrix,
            domain,
            kind: { show: (value) => `${decimal(value)} nats`, tick: short },
            xName: "to view (slot)",
            yName: "from view (slot)",
            words: (row, column) => `View ${row} from view ${column}`,
          }),
          id,
        ),
        tintLegend(domain, { show: (value) => `${decimal(value)} nats` }),
        matrixTable("KL divergence of the views' attention, in nats", "KL", matrix, decimal),
      ],
    );
  },
};

const gradientSection = {
  title: "Gradient weight of a view, by rank",
  keys: ["gradient"],
  data: (report) => report.gradient,
  card(gradient) {
    const ranks = gradient.by_rank.map((value, place) => ({
      name: place ? `number ${place + 1}` : "best view",
      place,
      value,
    }));
    const even = 1 / ranks.length;
    return figure(
      {
        title: this.title,
        good: "the best view leads and the next ones still get some: training tells views apart without starving them",
        bad: "the best one gets all (1), or all get the same: the rest learns nothing, or nothing of their own",
        source:
          `r(c_j), DRPQ eq. 11, at temperature ${short(gradient.temperature)}, ` +
          `mean over ${counted(gradient.pairs, "pair")}`,
        wide: ranks.length > 12,
      },
      (id) => [
        facts([
          ["Mean of the largest r", decimal(gradient.max)],
          ["Mean variance of r", decimal(gradient.variance)],
        ]),
        plot(
          "Gradient weight r by rank of the view",
          bars({
            labels: ranks.map(({ place }) => String(place + 1)),
            titles: ranks.map(({ name }) => name),
            series: [{ name: "r", mark: "series-0", values: gradient.by_rank }],
            references: [{ name: "even share", value: even, mark: "reference-1" }],
            xName: "rank of the view by score",
            yName: "gradient weight r(c_j)",
            kind: DECIMAL,
          }),
          id,
        ),
        legend([
          { name: "r of the view", mark: "series-0", shape: "bar" },
          { name: `even share, ${decimal(even)}`, mark: "reference-1", shape: "line" },
        ]),
        folded(
          "gradient weight by rank",
          [
            { name: "view", show: ({ name }) => name },
            { name: "r", show: ({ value }) => decimal(value) },
          ],
          ranks,
        ),
      ],
    );
  },
};
