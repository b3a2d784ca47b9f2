// One document in a plane: its views as numbered circles, its questions as diamonds tied to the view that won them.

/** What draws {views: [{slot, x, y, snippet}], questions: [{text, x, y, slot}]}; one unit is as long across as up. */
function scatter(map) {
  return (width) => {
    const height = Math.round(Math.min(460, Math.max(300, width * 0.62)));
    const place = placer(map, width, height);
    const views = map.views.map((view) => ({ ...view, at: place(view) }));
    const questions = map.questions.map((question) => ({ ...question, at: place(question) }));
    const viewOf = new Map(views.map((view) => [view.slot, view]));
    const marks = [
      ...views.map((view) => viewMark(view, questions)),
      ...questions.map((question, order) => questionMark(question, order)),
    ];
    return {
      height,
      nodes: [
        svg("text", { class: "axis-name", x: 0, y: 12 }, "\u2191 second main direction (vector units)"),
        svg(
          "text",
          { class: "axis-name", x: width, y: height - 6, "text-anchor": "end" },
          "first main direction (vector units) \u2192",
        ),
        svg("rect", { class: "field", x: 0.5, y: 22.5, width: width - 1, height: height - 48, rx: 6 }),
        questions.map((question) => tie(question, viewOf.get(question.slot))),
        marks.map((mark) => mark.node),
      ],
      marks,
    };
  };
}

function placer({ views, questions }, width, height) {
  const all = [...views, ...questions];
  const [left, right] = extent(all.map(({ x }) => x)) ?? [0, 0];
  const [bottom, top] = extent(all.map(({ y }) => y)) ?? [0, 0];
  const margin = 34;
  const unit = Math.min(
    (width - 2 * margin) / (right - left || 1e-9),
    (height - 48 - 2 * margin) / (top - bottom || 1e-9),
  );
  const size = Number.isFinite(unit) ? Math.min(unit, 1e9) : 1;
  return ({ x, y }) => ({
    x: width / 2 + (x - (left + right) / 2) * size,
    y: 22 + (height - 48) / 2 - (y - (bottom + top) / 2) * size,
  });
}

function viewMark({ slot, snippet, at }, questions) {
  const wins = questions.filter((question) => question.slot === slot).length;
  const node = svg(
    "g",
    { class: wins ? "mark view won" : "mark view" },
    svg("circle", { class: "disc", cx: at.x, cy: at.y, r: 12 }),
    svg("text", { class: "disc-name", x: at.x, y: at.y + 4, "text-anchor": "middle" }, String(slot)),
  );
  const lines = [
    wins ? `won ${counted(wins, "question")}` : "won no question",
    snippet || "stands for no span of the text",
  ];
  return { node, title: `View ${slot}`, lines: lines.map(cut), ...at };
}

function questionMark({ text, slot, at }, order) {
  const node = svg(
    "g",
    { class: "mark question" },
    svg("circle", { class: "reach", cx: at.x, cy: at.y, r: 12 }),
    symbol("diamond", at.x, at.y, 6),
  );
  return { node, title: `Question ${order + 1}`, lines: [cut(text), `won by view ${slot}`], ...at };
}

function tie(question, view) {
  if (!view) return null;
  return svg("line", { class: "tie", x1: question.at.x, y1: question.at.y, x2: view.at.x, y2: view.at.y });
}

const MOST_IN_TIP = 280;

/** The beginning of a text that is too long for a tip. */
function cut(text) {
  const characters = Array.from(text.slice(0, MOST_IN_TIP * 2 + 2));
  return characters.length > MOST_IN_TIP ? `${characters.slice(0, MOST_IN_TIP).join("")}\u2026` : text;
}
