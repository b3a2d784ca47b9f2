// One document from close by: its views and its questions in a plane.

const mapSection = {
  title: "One document and its questions",
  keys: ["maps"],
  data: (report) => report.maps,
  card(maps) {
    return figure(
      {
        title: this.title,
        good: "the views lie apart and questions are tied to different ones",
        bad: "the views lie on one spot, or all ties lead to one view",
        source: "the two main directions of the document's views and questions (principal components)",
        wide: true,
      },
      (id) => {
        const shown = html("div", { class: "map" });
        const select = html(
          "select",
          { id: newId("map") },
          maps.map((map, place) => html("option", { value: place }, mapName(map))),
        );
        select.addEventListener("change", () => shown.replaceChildren(...oneMap(maps[Number(select.value)], id)));
        shown.append(...oneMap(maps[0], id));
        return [html("p", { class: "picker" }, html("label", { for: select.id }, "Document"), select), shown];
      },
    );
  },
};

function mapName({ id, title, questions }) {
  return `${title ? `${title} (${id})` : id} \u00b7 ${counted(questions.length, "question")}`;
}

function oneMap(map, explanation) {
  const questions = map.questions.length
    ? html(
        "ol",
        { class: "asked" },
        map.questions.map(({ text, slot }) =>
          html("li", { dir: "auto" }, text, " ", html("span", { class: "muted" }, `won by view ${slot}`)),
        ),
      )
    : html("p", { class: "muted" }, "No question asks for this document.");
  return [
    html(
      "div",
      {},
      plot(`Views and questions of ${map.title || map.id} in a plane`, scatter(map), explanation),
      mapLegend(),
      html(
        "p",
        { class: "muted" },
        `The plane shows ${percent(map.explained)} of the variance. Hover, tap or use the arrow keys for the snippets.`,
      ),
    ),
    html("div", {}, html("h4", {}, "Questions"), questions),
    folded(
      "places of views and questions",
      [
        { name: "what", show: ({ name }) => name },
        { name: "first direction", show: ({ x }) => decimal(x) },
        { name: "second direction", show: ({ y }) => decimal(y) },
        { name: "text", show: ({ words }) => words, isText: true },
      ],
      [
        ...map.views.map((view) => ({ ...view, name: `view ${view.slot}`, words: cut(view.snippet || NONE) })),
        ...map.questions.map((question, order) => ({
          ...question,
          name: `question ${order + 1}`,
          words: cut(question.text),
        })),
      ],
    ),
  ];
}

function mapLegend() {
  return html(
    "ul",
    { class: "legend" },
    [
      ["a view that won a question, by slot", "view won"],
      ["a view that won none", "view"],
    ].map(([name, mark]) =>
      html(
        "li",
        {},
        svg(
          "svg",
          { width: 16, height: 16, viewBox: "0 0 28 28", "aria-hidden": "true" },
          svg("g", { class: mark }, svg("circle", { class: "disc", cx: 14, cy: 14, r: 11 })),
        ),
        name,
      ),
    ),
    html(
      "li",
      {},
      svg(
        "svg",
        { width: 16, height: 16, viewBox: "0 0 16 16", "aria-hidden": "true" },
        svg("g", { class: "question" }, symbol("diamond", 8, 8, 5)),
      ),
      "a question, tied to the view that won it",
    ),
  );
}
