"use strict";
// Texts reach the page as text nodes only: nothing that a document says is ever read as HTML.
(() => {
  const SHOWN_CHARS = 480;
  const SIDES = ["max", "drpq"];
  const SVG = "http://www.w3.org/2000/svg";
  const part = (id) => document.getElementById(id);
  let latest = 0;

  function made(name, attributes = {}, ...children) {
    const node = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
    node.append(...children.filter((child) => child !== null));
    return node;
  }

  function say(text, isFault = false) {
    const status = part("status");
    status.textContent = text;
    status.classList.toggle("fault", isFault);
  }

  async function ask(path, body) {
    const headers = body ? { "content-type": "application/json" } : {};
    const token = part("token").value.trim();
    if (token) headers.authorization = `Bearer ${token}`;
    const response = await fetch(path, body ? { method: "POST", headers, body: JSON.stringify(body) } : { headers });
    const answer = await response.json().catch(() => ({}));
    if (response.status === 401) part("token-label").hidden = false;
    if (!response.ok) throw new Error(answer.error ? answer.error.message : `the server said ${response.status}`);
    return answer;
  }

  function question() {
    const body = { query: part("query").value, top_k: Number(part("top_k").value) || 10, explain: true };
    const filter = part("filter").value.trim();
    if (filter) {
      try { body.filter = JSON.parse(filter); } catch (err) { throw new Error(`The filter is not JSON: ${err.message}`); }
    }
    if (part("exact").checked) body.exact = true;
    return body;
  }

  async function search() {
    const turn = ++latest;
    const started = performance.now();
    say("Searching ...");
    try {
      const body = question();
      const temperature = part("temperature").value;
      const drpq = { ...body, scoring: "drpq", ...(temperature ? { temperature: Number(temperature) } : {}) };
      const path = `v1/indexes/${encodeURIComponent(part("index").value)}/search`;
      const found = await Promise.all([ask(path, { ...body, scoring: "max" }), ask(path, drpq)]);
      if (turn !== latest) return;
      show(found);
      const count = found[0].hits.length;
      say(`${count} document${count === 1 ? "" : "s"} in ${Math.round(performance.now() - started)} ms`);
      keepInAddress();
    } catch (err) {
      if (turn === latest) say(err.message, true);
    }
  }

  function keepInAddress() {
    const kept = new URLSearchParams({ q: part("query").value, index: part("index").value });
    if (part("filter").value) kept.set("filter", part("filter").value);
    history.replaceState(null, "", `#${kept}`);
  }

  function show(found) {
    delete part("results").dataset.empty;
    const ranks = found.map((result) => new Map(result.hits.map((hit, at) => [hit.id, at + 1])));
    SIDES.forEach((side, at) => {
      const result = found[at];
      const other = ranks[1 - at];
      part(side).replaceChildren(...result.hits.map((hit, n) => card(hit, n + 1, other.get(hit.id), SIDES[1 - at])));
      const notes = [result.exact ? "certified exact" : "approximate"];
      if (result.short_by) notes.push(`${result.short_by} short`);
      if (result.missing_shards.length) notes.push(`WITHOUT shards ${result.missing_shards.join(", ")}`);
      part(`${side}-state`).textContent = result.hits.length ? notes.join(", ") : "Nothing passes the filter.";
    });
  }

  function card(hit, rank, otherRank, otherSide) {
    const text = made("p", { class: "text" });
    const what = made("p", { class: "what", "aria-live": "polite" });
    const moved = otherRank === undefined ? `not in ${otherSide}` : otherRank === rank ? "" : `#${otherRank} in ${otherSide}`;
    const article = made("article", { class: "hit", tabindex: "0", "aria-label": `${rank}: ${hit.title || hit.id}` },
      made("div", { class: "head" },
        made("span", { class: "rank" }, String(rank)),
        made("span", { class: "title" }, hit.title || hit.id),
        hit.title ? made("span", { class: "moved" }, hit.id) : null,
        made("span", { class: "moved" }, moved),
        made("span", { class: "score" }, hit.score.toFixed(4))),
      text,
      bars(hit, (view) => { point(hit, text, view); what.textContent = words(hit, view); }),
      what,
      Object.keys(hit.metadata).length ? made("p", { class: "meta" }, JSON.stringify(hit.metadata)) : null);
    article.dataset.id = hit.id;
    for (const name of ["mouseenter", "focusin"]) article.addEventListener(name, () => twins(hit.id));
    for (const name of ["mouseleave", "focusout"]) article.addEventListener(name, () => twins(null));
    point(hit, text, null);
    return made("li", {}, article);
  }

  function twins(id) {
    for (const one of document.querySelectorAll(".hit")) one.classList.toggle("twin", id !== null && one.dataset.id === id);
  }

  function words(hit, view) {
    if (view === null) return "";
    const weight = view.weight > 0 && view.weight < 1 ? `, weight ${view.weight.toFixed(3)}` : "";
    const margin = view.slot === hit.slot ? "won" : `${(hit.views[0].score - view.score).toFixed(4)} behind`;
    const stands = view.snippet === null ? "stands for no words" : view.span === null ? "the title" : "";
    return `View ${view.slot}: ${view.score.toFixed(4)}, ${margin}${weight}${stands ? `, ${stands}` : ""}`;
  }

  function bars(hit, tell) {
    const scores = hit.views.map((view) => view.score);
    const high = Math.max(...scores), low = Math.min(...scores, 0);
    const room = made("div", { class: "views", role: "group", "aria-label": "Views" });
    for (const view of [...hit.views].sort((one, other) => one.slot - other.slot)) {
      const share = high > low ? (view.score - low) / (high - low) : 1;
      const height = Math.max(2, Math.round(30 * share));
      const svg = document.createElementNS(SVG, "svg");
      svg.setAttribute("viewBox", "0 0 28 30");
      svg.setAttribute("aria-hidden", "true");
      const rect = document.createElementNS(SVG, "rect");
      for (const [key, value] of Object.entries({ x: 2, y: 30 - height, width: 24, height, rx: 3 })) {
        rect.setAttribute(key, value);
      }
      svg.append(rect);
      const bar = made("button", { type: "button", class: `view${view.slot === hit.slot ? " won" : ""}` },
        svg, made("span", {}, view.score.toFixed(2)));
      bar.setAttribute("aria-label", `${words(hit, view)}${view.snippet ? `: ${view.snippet}` : ""}`);
      for (const name of ["mouseenter", "focus"]) bar.addEventListener(name, () => tell(view));
      for (const name of ["mouseleave", "blur"]) bar.addEventListener(name, () => tell(null));
      room.append(bar);
    }
    return room;
  }

  // The text with the winning snippet marked, and that of the view which is pointed at. Spans count code points.
  function point(hit, node, view) {
    const letters = Array.from(hit.text);
    const other = view && view.slot !== hit.slot ? view.span : null;
    const spans = [[hit.span, "won"], [other, "other"]].filter(([span]) => span !== null);
    const [begin, end] = node.dataset.whole ? [0, letters.length] : window_(letters.length, other || hit.span);
    const cuts = [...new Set([begin, end, ...spans.flatMap(([span]) => span)])].filter((cut) => cut >= begin && cut <= end);
    cuts.sort((one, two) => one - two);
    const pieces = begin > 0 ? ["... "] : [];
    for (let at = 0; at + 1 < cuts.length; at++) {
      const piece = letters.slice(cuts[at], cuts[at + 1]).join("");
      const kinds = spans.filter(([span]) => span[0] <= cuts[at] && cuts[at + 1] <= span[1]).map(([, kind]) => kind);
      pieces.push(kinds.length ? made("mark", { class: kinds.includes("other") ? "other" : "won" }, piece) : piece);
    }
    if (end < letters.length) pieces.push(" ... ");
    if (letters.length > SHOWN_CHARS) pieces.push(wholeButton(hit, node));
    if (!letters.length && hit.snippet) pieces.push(made("mark", { class: "won" }, hit.snippet));
    if (node.contains(document.activeElement) && document.activeElement.className === "more") return;
    node.replaceChildren(...pieces);
  }

  function wholeButton(hit, node) {
    const button = made("button", { type: "button", class: "more" }, node.dataset.whole ? "less" : "all of it");
    button.addEventListener("click", () => {
      if (node.dataset.whole) delete node.dataset.whole; else node.dataset.whole = "1";
      button.blur();
      point(hit, node, null);
      node.querySelector(".more").focus();
    });
    return button;
  }

  function window_(length, span) {
    if (length <= SHOWN_CHARS) return [0, length];
    const middle = span === null ? 0 : span[0];
    const begin = Math.max(0, Math.min(middle - SHOWN_CHARS / 4, length - SHOWN_CHARS));
    return [Math.round(begin), Math.min(length, Math.max(Math.round(begin) + SHOWN_CHARS, span === null ? 0 : span[1]))];
  }

  function walk(event) {
    const isTyping = event.target.matches("input, select, textarea");
    if (event.key === "/" && !isTyping) {
      event.preventDefault();
      part("query").select();
      return;
    }
    if (!event.key.startsWith("Arrow") || (isTyping && !(event.target.id === "query" && event.key === "ArrowDown"))) return;
    const here = document.activeElement.closest(".hit");
    const columns = SIDES.map((side) => [...part(side).querySelectorAll(".hit")]);
    if (!here) {
      if (event.key === "ArrowDown" && columns[0][0]) { event.preventDefault(); columns[0][0].focus(); }
      return;
    }
    event.preventDefault();
    const column = columns[0].includes(here) ? 0 : 1;
    const row = columns[column].indexOf(here);
    const goal = {
      ArrowDown: columns[column][row + 1], ArrowUp: columns[column][row - 1] || part("query"),
      ArrowLeft: columns[0][row], ArrowRight: columns[1][row],
    }[event.key];
    if (goal) goal.focus();
  }

  async function describe() {
    const name = part("index").value;
    if (!name) return;
    const info = await ask(`v1/indexes/${encodeURIComponent(name)}`);
    const numbers = `${info.documents.toLocaleString("en")} documents, ${info.views.toLocaleString("en")} views, ${info.kind}`;
    part("about").textContent = info.encoder ? numbers : `${numbers}; made of given vectors: it takes no texts`;
    part("temperature").placeholder = String(info.temperature);
  }

  async function begin() {
    part("results").dataset.empty = "1";
    try {
      const { indexes } = await ask("v1/indexes");
      part("index").replaceChildren(...indexes.map((name) => made("option", { value: name }, name)));
      const kept = new URLSearchParams(location.hash.slice(1));
      if (indexes.includes(kept.get("index"))) part("index").value = kept.get("index");
      part("filter").value = kept.get("filter") || "";
      await describe();
      say("");
      if (kept.get("q")) { part("query").value = kept.get("q"); await search(); }
    } catch (err) {
      say(err.message, true);
    }
  }

  part("form").addEventListener("submit", async (event) => {
    event.preventDefault();
    if (!part("index").value) await begin();
    if (part("index").value && part("query").value.trim()) await search();
  });
  part("index").addEventListener("change", () => describe().catch((err) => say(err.message, true)));
  part("token").addEventListener("change", begin);
  document.addEventListener("keydown", walk);
  begin();
})();
