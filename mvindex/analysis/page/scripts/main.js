// The page, top to bottom.

const CHAPTERS = [
  { id: "pays", title: "Do the views pay?", sections: [recallSection, aloneSection, keptSection, prunedSection] },
  { id: "differ", title: "Do they differ?", sections: [usageSection, localSection, heatSection, histogramSection] },
  { id: "learn", title: "How they look and learn", sections: [attentionSection, gradientSection] },
  { id: "answer", title: "Do they hold the answers?", sections: [answerSection] },
  { id: "close", title: "From close by", sections: [mapSection, hardestSection] },
];

/** A section that fails to draw says so in its place, and in the console; the others still appear. */
function drawn(section, report) {
  try {
    return cardOf(section, report);
  } catch (error) {
    console.error(error);
    return leftOut(section.title, `its numbers are not as expected, so it cannot be drawn (${error.message})`);
  }
}

function chapter({ id, title }, cards) {
  const heading = `${id}-title`;
  return html(
    "section",
    { class: "chapter", id, "aria-labelledby": heading },
    html("h2", { id: heading }, title),
    html("div", { class: "cards" }, cards),
  );
}

function contents(chapters) {
  return html(
    "ul",
    {},
    chapters.map(({ id, title }) => html("li", {}, html("a", { href: `#${id}` }, title))),
  );
}

/** Folded questions are part of what is printed; they fold again afterwards. */
function openForPrint() {
  let opened = [];
  addEventListener("beforeprint", () => {
    opened = [...document.querySelectorAll("details.hard:not([open])")];
    for (const details of opened) details.open = true;
  });
  addEventListener("afterprint", () => {
    for (const details of opened) details.open = false;
  });
}

function drawPage(report) {
  const last = { id: "origin", title: "How this was measured" };
  document.title = `${subjectName(report)} \u00b7 mvindex view analysis`;
  document.getElementById("top").append(titleOf(report), themeButton());
  document.getElementById("contents").append(contents([{ id: "verdict", title: "Verdict" }, ...CHAPTERS, last]));
  const figures = html("section", { "aria-label": "Key figures" }, tiles(report));
  const chapters = CHAPTERS.map((one) =>
    chapter(
      one,
      one.sections.map((section) => drawn(section, report)),
    ),
  );
  document
    .getElementById("content")
    .replaceChildren(
      ...[
        verdictCard(report.verdict ?? { level: "unknown", headline: "The analysis came to no verdict" }),
        caveats(report),
        figures,
      ].filter(Boolean),
      ...chapters,
      chapter(last, origin(report, otherReasons(report))),
    );
  document
    .getElementById("end")
    .append(
      `Made by mvindex ${report.version ?? ""}. Slots count from 0. Nothing on this page was loaded from elsewhere.`,
    );
  openForPrint();
}

drawPage(JSON.parse(document.getElementById("report").textContent));
