// The form, its requests to the server, and the two rankings that are returned.
import { card, made, hideSnippet, scaleOf } from "./card.js";

const SIDES = ["max", "other"];
// The rankings beside max: their names, and what decides in them.
const RANKINGS = { drpq: ["DRPQ", "all views, by their softmax"], hybrid: ["hybrid", "the best view, and the terms"] };
const KEPT = ["filter", "top_k", "temperature", "way"];
const part = (id) => document.getElementById(id);
let asking = new AbortController();

function say(text, kind = "") {
  part("status").textContent = text;
  part("status").className = kind;
}

function fault(err) {
  part("results").hidden = part("side").hidden = part("blank").hidden = true;
  part("filter").setAttribute("aria-invalid", String(/\bfilter\b/i.test(err.message)));
  say(err.message, "fault");
}

function blank(head, text, offer = null) {
  part("results").hidden = part("side").hidden = true;
  part("blank").replaceChildren(made("h2", {}, head), made("p", { class: "quiet" }, text), ...(offer ? [offer] : []));
  part("blank").hidden = false;
}

async function ask(path, body, signal) {
  const headers = body ? { "content-type": "application/json" } : {};
  const token = part("token").value.trim();
  if (token) headers.authorization = `Bearer ${token}`;
  let response;
  try {
    response = await fetch(path, body ? { method: "POST", headers, body: JSON.stringify(body), signal } : { headers });
  } catch (err) {
    if (err.name === "AbortError") throw err;
    throw new Error("The server does not answer. Is it still running?");
  }
  const answer = await response.json().catch(() => ({}));
  if (response.status === 401) {
    askForToken();
    if (!token) throw new Error("This server requires a token.");
  }
  if (!response.ok) throw new Error(answer.error ? answer.error.message : `The server answered with ${response.status}.`);
  return answer;
}

function askForToken() {
  part("token-label").hidden = false;
  part("token").focus();
}

function place() {
  return `v1/indexes/${encodeURIComponent(part("index").value)}`;
}

function question() {
  const body = { query: part("query").value, top_k: Number(part("top_k").value) || 10, explain: true, mode: "dense" };
  const filter = part("filter").value.trim();
  if (filter) {
    try { body.filter = JSON.parse(filter); } catch (err) { throw new Error(`The filter is not JSON: ${err.message}`); }
  }
  if (part("exact").checked) body.exact = true;
  return body;
}

function optionsOf(way) {
  if (way === "hybrid") return { mode: "hybrid" };
  const temperature = part("temperature").value;
  return { scoring: "drpq", ...(temperature ? { temperature: Number(temperature) } : {}) };
}

async function search() {
  asking.abort();
  const mine = asking = new AbortController();
  const started = performance.now();
  part("filter").removeAttribute("aria-invalid");
  part("results").setAttribute("aria-busy", "true");
  say("Searching \u2026", "busy");
  try {
    const body = question();
    const way = part("way").value;
    const bodies = [{ ...body, scoring: "max" }, { ...body, ...optionsOf(way) }];
    const found = await Promise.all(bodies.map((each) => ask(`${place()}/search`, each, mine.signal)));
    show(found, way);
    say(summary(found, Math.round(performance.now() - started)));
    keepInAddress();
  } catch (err) {
    if (mine === asking) fault(err);
  }
  if (mine === asking) part("results").setAttribute("aria-busy", "false");
}

function summary([max, other], ms) {
  const count = max.hits.length;
  const ids = new Set(other.hits.map((hit) => hit.id));
  const both = max.hits.filter((hit) => ids.has(hit.id)).length;
  const isSame = both === count && max.hits.every((hit, at) => hit.id === other.hits[at].id);
  const order = !count ? "" : isSame ? ", in the same order by both" : `, ${both} of them in both rankings`;
  return `${count} document${count === 1 ? "" : "s"} in ${ms} ms${order}`;
}

function keepInAddress() {
  const kept = new URLSearchParams({ q: part("query").value, index: part("index").value });
  for (const name of KEPT) if (part(name).value !== defaultOf(part(name))) kept.set(name, part(name).value);
  if (part("exact").checked) kept.set("exact", "1");
  history.replaceState(null, "", `#${kept}`);
}

function defaultOf(field) {
  return field.options ? field.options[0].value : field.defaultValue;
}

function show(found, way) {
  if (!found[0].hits.length) return nothing();
  const ranks = found.map((result) => new Map(result.hits.map((hit, at) => [hit.id, at + 1])));
  const scale = scaleOf(found);
  const [name, what] = RANKINGS[way];
  part("other-head").replaceChildren(`${name} `, made("span", { class: "quiet" }, what));
  part("side").lastElementChild.textContent = name;
  part("other-legend").hidden = way !== "drpq";
  SIDES.forEach((side, at) => {
    const [otherName, others] = [at ? "max" : name, ranks[1 - at]];
    const where = (hit, n) => ({
      scale, rank: n + 1, otherRank: others.get(hit.id), otherName, hasWeights: at === 1 && way === "drpq",
    });
    part(side).replaceChildren(...found[at].hits.map((hit, n) => card(hit, where(hit, n), filterBy)));
    part(`${side}-state`).textContent = notes(found[at]);
  });
  part("blank").hidden = true;
  part("results").hidden = part("side").hidden = false;
}

function notes(result) {
  const said = [result.exact ? "certified exact" : "approximate"];
  if (result.short_by) said.push(`${result.short_by} short`);
  if (result.missing_shards.length) said.push(`WITHOUT shards ${result.missing_shards.join(", ")}`);
  return said.join(", ");
}

function nothing() {
  if (!part("filter").value.trim()) return blank("Nothing found", "The index holds no document.");
  const clear = made("button", { type: "button" }, "Search without the filter");
  clear.addEventListener("click", () => { part("filter").value = ""; search(); part("query").focus(); });
  return blank("Nothing passes the filter", `No document has such metadata: ${part("filter").value}`, clear);
}

function filterBy(key, value) {
  let filter = {};
  try { filter = JSON.parse(part("filter").value || "{}"); } catch { /* Text that is no filter is replaced. */ }
  part("filter").value = JSON.stringify({ ...filter, [key]: value });
  search();
}

function choose(side) {
  part("results").dataset.side = side;
  for (const button of part("side").children) button.setAttribute("aria-pressed", String(button.value === side));
}

function twins(node) {
  const id = node instanceof Element ? node.closest(".hit")?.dataset.id : undefined;
  for (const one of document.querySelectorAll(".hit")) one.classList.toggle("twin", one.dataset.id === id);
}

function walk(event) {
  const isTyping = event.target.matches("input, select, textarea");
  if (event.key === "/" && !isTyping) {
    event.preventDefault();
    part("query").select();
    return;
  }
  if (event.key === "Escape") hideSnippet();
  if (!event.key.startsWith("Arrow") || event.target.closest("summary, #side")) return;
  if (isTyping && !(event.target.id === "query" && event.key === "ArrowDown")) return;
  const goal = goalOf(event.key, document.activeElement.closest(".hit"));
  if (!goal) return;
  event.preventDefault();
  const column = goal.closest(".column");
  if (column) choose(column.dataset.side);
  goal.focus();
}

function goalOf(key, here) {
  const columns = SIDES.map((side) => [...part(side).querySelectorAll(".hit")]);
  const isFirst = key === "ArrowDown" && !part("results").hidden;
  if (!here) return isFirst ? columns[SIDES.indexOf(part("results").dataset.side)][0] : null;
  const column = columns[0].includes(here) ? 0 : 1;
  const row = columns[column].indexOf(here);
  const across = columns[1 - column][Math.min(row, columns[1 - column].length - 1)];
  return {
    ArrowDown: columns[column][row + 1], ArrowUp: columns[column][row - 1] || part("query"),
    ArrowLeft: column === 1 ? across : null, ArrowRight: column === 0 ? across : null,
  }[key];
}

function onlyWhatCounts() {
  part("temperature").disabled = part("way").value !== "drpq";
}

async function describe() {
  const before = asking;
  const info = await ask(place());
  part("about").textContent = `${info.documents.toLocaleString("en")} documents, ${info.views.toLocaleString("en")} views, `
    + `${info.dim} dims, ${info.kind}`;
  part("temperature").placeholder = String(info.temperature);
  part("way-label").hidden = info.lexical === null;
  if (info.lexical === null) part("way").value = "drpq";
  onlyWhatCounts();
  const takesTexts = info.encoder !== null;
  part("query").disabled = document.querySelector("[type=submit]").disabled = !takesTexts;
  // A search that began meanwhile must stay visible.
  if (asking !== before) return;
  say("");
  if (!takesTexts) {
    blank("This index takes no texts", "It has no encoder to turn a text into a vector. "
      + "Search it by vectors, over HTTP or from Python.");
  } else if (!info.documents) {
    blank("This index is empty", "Documents come in by mvindex ingest, from Python, or by a POST to /v1/indexes/NAME/documents.");
  } else {
    const other = info.lexical === null ? "by all views (DRPQ)" : "beside it by all views (DRPQ) or by views and terms";
    blank("Ask, and see why each document was found", `Two rankings are shown: by the best view, and ${other}. `
      + "In each document the sentence that answers best is marked; each bar is a view, and shows its snippet when pointed at.");
  }
}

async function begin() {
  try {
    const { indexes } = await ask("v1/indexes");
    part("index").replaceChildren(...indexes.map((name) => made("option", { value: name }, name)));
    const kept = new URLSearchParams(location.hash.slice(1));
    if (indexes.includes(kept.get("index"))) part("index").value = kept.get("index");
    for (const name of KEPT) if (kept.has(name)) part(name).value = kept.get(name);
    if (!RANKINGS[part("way").value]) part("way").value = "drpq";
    part("exact").checked = kept.has("exact");
    await describe();
    if (!part("token-label").hidden && !part("query").disabled) part("query").focus();
    if (kept.get("q") && !part("query").disabled) { part("query").value = kept.get("q"); await search(); }
  } catch (err) {
    fault(err);
  }
}

part("form").addEventListener("submit", async (event) => {
  event.preventDefault();
  if (!part("index").value) await begin();
  else if (part("query").value.trim()) await search();
});
part("index").addEventListener("change", () => describe().catch(fault));
part("token").addEventListener("change", begin);
part("way").addEventListener("change", () => {
  onlyWhatCounts();
  if (part("query").value.trim()) search();
});
part("side").addEventListener("click", (event) => { if (event.target.value) choose(event.target.value); });
for (const name of ["mouseover", "focusin"]) part("results").addEventListener(name, (event) => twins(event.target));
for (const name of ["mouseleave", "focusout"]) part("results").addEventListener(name, () => twins(null));
document.addEventListener("keydown", walk);
begin();
