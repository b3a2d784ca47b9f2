// Does the view that won also hold the answer?

const answerSection = {
  title: "Answers found, and held by the winning view",
  keys: ["recall.answer", "answer", "answers", "recall"],
  data: (report) => (report.recall?.answer ? report.recall : null),
  card({ answer, answer_view: answerView }, report) {
    const names = cutoffNames(report);
    const series = [
      { name: "a document holds the answer", mark: "series-0", values: names.map((name) => answer[name]) },
      answerView && {
        name: "its winning view holds it",
        mark: "series-2",
        values: names.map((name) => answerView[name]),
      },
    ].filter(Boolean);
    return figure(
      {
        title: this.title,
        good: "the second bar is nearly as high as the first: documents are found by the snippet that answers",
        bad: "it is far lower: they are found by luck or by context, and a snippet shown to a reader would mislead",
        source: "answer accuracy as in DPR; answer-view accuracy, CAMVR eq. 15",
      },
      (id) => [
        plot(
          "Answer accuracy and answer-view accuracy",
          bars({ labels: names, series, xName: "documents looked at", yName: "questions (%)", kind: PERCENT }),
          id,
        ),
        legend(series.map(({ name, mark }) => ({ name, mark, shape: "bar" }))),
        answerView
          ? null
          : html(
              "p",
              { class: "muted" },
              "Answer-view accuracy is left out: ",
              quoted(reasonFor(["recall.answer_view", "answer_view"], report) ?? NO_REASON),
            ),
        folded(
          "answer accuracy",
          [
            { name: "first k", show: ({ name }) => name },
            { name: "document holds the answer", show: ({ name }) => percent(answer[name]) },
            answerView && { name: "winning view holds it", show: ({ name }) => percent(answerView[name]) },
            answerView && { name: "points more", show: ({ name }) => points(answerView[name] - answer[name]) },
          ].filter(Boolean),
          names.map((name) => ({ name })),
        ),
      ],
    );
  },
};
