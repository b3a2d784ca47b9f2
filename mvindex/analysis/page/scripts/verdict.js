// The top of the page: whose report this is, and what it comes to.

const LEVELS = {
  pays: { name: "Pays", mark: "good", icon: "M4 10l4 4 8-8" },
  mixed: { name: "Mixed", mark: "fair", icon: "M4 8h12M4 13h12" },
  "does not pay": { name: "Does not pay", mark: "poor", icon: "M5 5l10 10M15 5L5 15" },
  collapsed: { name: "Collapsed", mark: "poor", icon: "M10 3v4M10 17v-4M3 10h4M17 10h-4M10 9.5v1" },
  unknown: { name: "Unknown", mark: "none", icon: "M7 8a3 3 0 1 1 4 2.8q-1 .5-1 1.7M10 15.5v.5" },
};

/** The name of the index or encoder: the last part of its path. */
function subjectName(report) {
  const path = report.subject?.path ?? "";
  return path.replace(/\/+$/, "").split("/").pop() || path || "unnamed";
}

/** The heading with what was measured in one line. */
function titleOf(report) {
  const subject = report.subject ?? {};
  const kind = subject.kind === "checkpoint" ? "encoder" : "index";
  const encoder = subject.encoder?.source ? [" \u00b7 encoder ", quoted(String(subject.encoder.source))] : [];
  return html(
    "div",
    { class: "title" },
    html("p", { class: "product" }, "mvindex \u00b7 view analysis"),
    html("h1", {}, quoted(subjectName(report))),
    html(
      "p",
      { class: "muted" },
      `${kind} of ${counted(subject.documents, "document")}, ${counted(subject.views, "view")}`,
      encoder,
    ),
  );
}

/** The verdict: its level in colour and words, why, and what to do. */
function verdictCard(verdict) {
  const level = LEVELS[verdict.level] ?? { ...LEVELS.unknown, name: verdict.level };
  return html(
    "section",
    { class: `verdict ${level.mark}`, id: "verdict", "aria-labelledby": "verdict-title" },
    html(
      "p",
      { class: "level" },
      svg(
        "svg",
        { width: 20, height: 20, viewBox: "0 0 20 20", "aria-hidden": "true" },
        svg("path", { d: level.icon }),
      ),
      html("span", { class: "unseen" }, "Verdict: "),
      quoted(level.name),
    ),
    html("h2", { id: "verdict-title" }, quoted(verdict.headline)),
    html("div", { class: "because" }, pointList("Why", verdict.reasons), pointList("What to do", verdict.advice)),
  );
}

/** Text whose parts in backticks, such as commands, stand as code. */
function withCode(text) {
  const parts = text.split("`");
  return parts.length % 2 ? parts.map((part, place) => (place % 2 ? html("code", {}, part) : part)) : text;
}

function pointList(title, texts) {
  if (!texts?.length) return null;
  return html(
    "div",
    {},
    html("h3", {}, title),
    html(
      "ul",
      {},
      texts.map((text) => html("li", { dir: "auto" }, withCode(text))),
    ),
  );
}
