// Questions whose document came late or not at all: what was wanted, and what was found in its place.

const hardestSection = {
  title: "Hardest questions",
  keys: ["hardest"],
  empty: "every question has its document at rank 1",
  data: (report) => report.hardest,
  card(hardest) {
    return figure(
      {
        title: this.title,
        good: "what was found answers as well, or the wanted snippet lost by little",
        bad: "the winning snippet has nothing to do with the question, or the wanted span is cut in an odd place",
        source: "the questions whose wanted document ranks lowest; numbered tags are slots, the highlighted span won",
        wide: true,
      },
      () =>
        html(
          "div",
          { class: "hardest" },
          hardest.map((question, place) => oneQuestion(question, place === 0)),
        ),
    );
  },
};

function oneQuestion(question, isOpen) {
  const rank = isNumber(question.rank) ? `rank ${count(question.rank)}` : "not found";
  const answers = question.answers?.length ? question.answers : null;
  const details = html(
    "details",
    { class: "hard", open: isOpen },
    html(
      "summary",
      {},
      html("span", { class: "rank" }, rank),
      html("span", { class: "asked-for", dir: "auto" }, question.question),
    ),
    html(
      "p",
      { class: "muted" },
      "Question ",
      quoted(question.id),
      answers ? " \u00b7 answers: " : null,
      answers?.map((answer, place) => [place ? ", " : null, quoted(answer)]),
    ),
    html(
      "div",
      { class: "sides" },
      documentCard("Wanted", question.wanted),
      documentCard("Found instead", question.found),
    ),
  );
  details.addEventListener("toggle", () => details.querySelectorAll(".text-box").forEach(showWinner));
  return details;
}

/** Scrolls a long text to the snippet that won. */
function showWinner(box) {
  const winner = box.querySelector("mark");
  if (winner && winner.offsetTop + winner.offsetHeight > box.clientHeight) box.scrollTop = winner.offsetTop - 24;
}

function documentCard(title, found) {
  const heading = newId("side");
  if (!found)
    return html(
      "section",
      { class: "side", "aria-labelledby": heading },
      html("h4", { id: heading }, title),
      html("p", { class: "muted" }, "None."),
    );
  return html(
    "section",
    { class: "side", "aria-labelledby": heading },
    html("h4", { id: heading }, title),
    html(
      "p",
      { class: "name" },
      quoted(found.title || found.id, "strong"),
      html(
        "span",
        { class: "muted" },
        " ",
        quoted(found.id),
        ` \u00b7 score ${decimal(found.score)} by view ${found.slot}`,
      ),
    ),
    html(
      "div",
      { class: "text-box", tabindex: 0, role: "group", "aria-label": `Text of the document: ${title.toLowerCase()}` },
      markedText(found),
    ),
    scoreList(found),
  );
}
