// The form, its requests to the server, and what the address names: a search, documents like one, a browse, or a document.
import { card, hideSnippet, scaleOf } from "./card.js";
import { documentPage } from "./document.js";
import { facetsOf, showChips, toggled } from "./filters.js";
import { choose, twins, walk } from "./keys.js";
import { counted, made, part } from "./made.js";

const SEARCHING = "Searching \u2026";
const STEP = 10;
const SAMPLE = 60;
const MOST_EXAMPLES = 4;
// Between a letter and its search, where no other letter comes: less than a person notices, more than a key repeats in.
const TYPING_MS = 40;
const SIDES = ["one", "other"];
const FIELDS = ["filter", "mode", "with", "temperature"];
// A ranking by the mode of its result, or by the scoring drpq: its name, and what decides.
const RANKINGS = {
  dense: ["meaning", "the best view of a document decides"],
  lexical: ["terms", "the terms in common decide (BM25)"],
  hybrid: ["meaning and terms", "the best view and the terms in common decide, fused"],
  drpq: ["all views", "all views of a document decide, by their softmax (DRPQ)"],
};
const OPTIONS = {
  max: { mode: "dense" }, drpq: { mode: "dense", scoring: "drpq" }, lexical: { mode: "lexical" }, hybrid: { mode: "hybrid" },
};
let running = new AbortController();
let info = null;
let facets = [];
let ready = null;
let timer = 0;
// Whether the address is that of a query being typed, which the next letters replace; else a search is a new entry of
// the history.
let isTyped = false;
// The document that was left for the results: the focus returns to it.
let left = "";

function say(text, kind = "") {
  part("status").textContent = text;
  part("status").className = kind;
}

function show(...names) {
  for (const name of ["blank", "results", "side", "document"]) part(name).hidden = !names.includes(name);
}

function fault(err) {
  show();
  part("filter").setAttribute("aria-invalid", String(/\bfilter\b/i.test(err.message)));
  say(err.message, "fault");
}

function blank(head, text, ...offers) {
  show("blank");
  part("blank").replaceChildren(made("h2", {}, head), made("p", { class: "quiet" }, text), ...offers);
}

async function ask(path, body) {
  const headers = body ? { "content-type": "application/json" } : {};
  const token = part("token").value.trim();
  const { signal } = running;
  if (token) headers.authorization = `Bearer ${token}`;
  let response;
  try {
    response = await fetch(path, { headers, signal, ...(body ? { method: "POST", body: JSON.stringify(body) } : {}) });
  } catch (err) {
    if (err.name === "AbortError") throw err;
    throw new Error("The server does not answer. Is it still running?");
  }
  const answer = await response.json().catch(() => ({}));
  if (response.status === 401) {
    part("token-label").hidden = false;
    part("token").focus();
    if (!token) throw new Error("This server requires a token.");
  }
  if (!response.ok) throw new Error(answer.error ? answer.error.message : `The server answered with ${response.status}.`);
  return answer;
}

function place(name = part("index").value) {
  return `v1/indexes/${encodeURIComponent(name)}`;
}

function shownAt() {
  return new URLSearchParams(location.search);
}

// The address: what is shown, as parameters. Empty values are left out.
function addressOf(changes = {}) {
  const values = { index: part("index").value, q: part("query").value.trim(), n: "", like: "", doc: "", browse: "" };
  for (const name of FIELDS) values[name] = part(name).value === defaultOf(part(name)) ? "" : part(name).value.trim();
  for (const name of ["exact", "explain"]) values[name] = part(name).checked ? "1" : "";
  const kept = new URLSearchParams();
  for (const [name, value] of Object.entries({ ...values, ...changes })) if (value) kept.set(name, value);
  return `?${kept}`;
}

function defaultOf(field) {
  return field.options ? field.options[0].value : field.defaultValue;
}

function go(changes) {
  isTyped = false;
  left = "";
  visit(addressOf(changes));
}

function visit(address) {
  if (address !== `?${shownAt()}`) history.pushState(null, "", address);
  route();
}

// What stands in the address beside filter and options where no query does: the document that others are like, or all.
function subject() {
  if (part("query").value.trim()) return {};
  const like = shownAt().get("like");
  return like ? { like } : { browse: "1" };
}

// Searches for what is typed so far.
function searchTyped() {
  const address = addressOf();
  if (address === `?${shownAt()}`) return;
  if (isTyped) history.replaceState(null, "", address); else history.pushState(null, "", address);
  isTyped = true;
  left = "";
  route();
}

function submit() {
  clearTimeout(timer);
  if (document.activeElement === part("token")) return withToken();
  // What was typed is searched for already.
  if (!isTyped || addressOf() !== `?${shownAt()}` || part("status").className) go({ browse: part("query").value.trim() ? "" : "1" });
  else if (part("main").getAttribute("aria-busy") === "true") say(SEARCHING, "busy");
  isTyped = false;
}

function filterOf() {
  const text = part("filter").value.trim();
  if (!text) return null;
  try { return JSON.parse(text); } catch (err) { throw new Error(`The filter is not JSON: ${err.message}`); }
}

function filterBy(filter) {
  part("filter").value = Object.keys(filter).length ? JSON.stringify(filter) : "";
  go(subject());
}

function plainFilter() {
  try {
    const filter = filterOf();
    return filter !== null && typeof filter === "object" && !Array.isArray(filter) ? filter : {};
  } catch {
    return {}; // Text that is no filter is replaced.
  }
}

async function route() {
  running.abort();
  const mine = running = new AbortController();
  const kept = shownAt();
  part("main").setAttribute("aria-busy", "true");
  part("filter").removeAttribute("aria-invalid");
  // Not for each letter, to a person who hears it.
  if (!isTyped) say(SEARCHING, "busy");
  hideSnippet();
  try {
    const isNew = await restore(kept);
    if (isNew) await describe();
    for (const name of ["mode", "with"]) {
      if (part(name).selectedOptions[0].disabled) part(name).value = defaultOf(part(name));
    }
    document.title = kept.get("q") ? `${kept.get("q")} \u2013 mvindex` : "mvindex";
    offer();
    if (info.encoder === null && !["doc", "browse", "like"].some((name) => kept.has(name))) noTexts();
    else if (kept.get("doc")) await showDocument(kept.get("doc"));
    else if (kept.get("q") || kept.get("like")) await search(Number(kept.get("n")) || STEP, kept.get("q") ? "" : kept.get("like"));
    else if (kept.has("browse")) await browse();
    else welcome();
  } catch (err) {
    if (mine === running) fault(err);
  }
  if (mine === running) part("main").setAttribute("aria-busy", "false");
}

// Shows the filter that is set, and values to filter by: those of the results first.
function offer() {
  showChips(part("chips"), plainFilter(), facets, filterBy);
}

// Brings the form to what the address says. Returns whether the index is another one.
async function restore(kept) {
  if (!part("index").options.length) {
    const { indexes } = await ask("v1/indexes");
    part("index").replaceChildren(...indexes.map((name) => made("option", { value: name }, name)));
    part("index-label").hidden = indexes.length < 2;
  }
  const names = [...part("index").options].map((each) => each.value);
  const wanted = kept.get("index") || names[0];
  if (!names.includes(wanted)) throw new Error(`This server has no index ${wanted}.`);
  part("index").value = wanted;
  const query = kept.get("q") || "";
  // A space at the end of what is being typed stays.
  if (part("query").value.trim() !== query) part("query").value = query;
  for (const name of FIELDS) part(name).value = kept.get(name) || defaultOf(part(name));
  if (part("with").selectedIndex < 0) part("with").value = "";
  if (part("mode").selectedIndex < 0) part("mode").value = "auto";
  for (const name of ["exact", "explain"]) part(name).checked = kept.has(name);
  return ready !== wanted;
}

async function describe() {
  const name = part("index").value;
  const [about, sample] = await Promise.all([ask(place()), ask(`${place()}/documents?limit=${SAMPLE}`)]);
  info = { ...about, sample: sample.documents };
  ready = name;
  facets = facetsOf([], sample.documents);
  part("about").textContent = `${counted(info.documents, "document")}, ${counted(info.views, "view")}`;
  part("temperature").placeholder = String(info.temperature);
  const hasTerms = info.lexical !== null;
  part("mode-label").hidden = !hasTerms;
  for (const option of [...part("with").options, ...part("mode").options]) {
    option.hidden = option.disabled = !hasTerms && ["lexical", "hybrid"].includes(option.value);
  }
  const takesTexts = info.encoder !== null;
  part("query").disabled = document.querySelector("[type=submit]").disabled = !takesTexts;
  if (takesTexts && !part("token-label").hidden) part("query").focus();
}

function question(top_k, like) {
  const body = like ? { like, top_k } : { query: part("query").value.trim(), top_k };
  const filter = filterOf();
  if (filter !== null) body.filter = filter;
  if (part("exact").checked) body.exact = true;
  if (!like && (part("explain").checked || part("with").value)) body.explain = true;
  return body;
}

function otherOptions() {
  const temperature = part("temperature").value;
  const options = OPTIONS[part("with").value];
  return options.scoring === "drpq" && temperature ? { ...options, temperature: Number(temperature) } : options;
}

// Searches for the query, or for documents like one: these are compared by views, so that nothing else can be chosen.
async function search(top_k, like) {
  const started = performance.now();
  const body = question(top_k, like);
  const bodies = [{ ...body, mode: like || info.lexical === null ? "dense" : part("mode").value }];
  if (part("with").value && !like) bodies.push({ ...body, ...otherOptions() });
  const found = await Promise.all(bodies.map((each) => ask(`${place()}/search`, each)));
  if (!found[0].hits.length) return nothing();
  facets = facetsOf(found[0].hits, info.sample);
  offer();
  rank(found, like);
  comeBack();
  say(summary(found, Math.round(performance.now() - started)));
  part("more").hidden = found[0].hits.length < top_k || top_k >= 1000 || info.documents <= top_k;
  part("more").onclick = () => more(top_k);
}

// Moves the focus to the document that was left, where it is shown again.
function comeBack() {
  for (const hit of document.querySelectorAll("#one .hit")) if (hit.dataset.id === left) hit.querySelector("a").focus();
  left = "";
}

// Shows ten more documents, and moves the focus to the first of them.
async function more(top_k) {
  history.replaceState(null, "", addressOf({ ...subject(), n: String(top_k + STEP) }));
  await route();
  part("one").children[top_k]?.querySelector("a").focus();
}

function summary([one, other], ms) {
  const count = one.hits.length;
  const base = `${counted(count, "document")} in ${ms} ms`;
  if (!other) return base;
  const ids = new Set(other.hits.map((hit) => hit.id));
  const both = one.hits.filter((hit) => ids.has(hit.id)).length;
  const isSame = both === count && one.hits.every((hit, at) => hit.id === other.hits[at].id);
  return `${base}, ${isSame ? "in the same order by both" : `${both} of them in both rankings`}`;
}

function rank(found, like) {
  const isCompared = found.length > 1;
  const kinds = found.map((result, at) => (at && part("with").value === "drpq" ? "drpq" : result.mode));
  const ranks = found.map((result) => new Map(result.hits.map((hit, at) => [hit.id, at + 1])));
  const scale = scaleOf(found);
  found.forEach((result, at) => {
    const side = SIDES[at];
    const [name, what] = RANKINGS[kinds[at]];
    part(`${side}-head`).textContent = like ? `More like ${like}: the two nearest views decide` : `By ${name}: ${what}`;
    part(`${side}-state`).textContent = exactness(result);
    part("side").children[at].textContent = name;
    part(side).replaceChildren(...result.hits.map((hit, n) => card(hit, {
      scale, rank: n + 1, isExplained: hit.views !== undefined, hasWeights: kinds[at] === "drpq",
      otherRank: isCompared ? ranks[1 - at].get(hit.id) : undefined,
      otherName: isCompared ? RANKINGS[kinds[1 - at]][0] : "",
      address: addressOf({ like, doc: hit.id, n: String(result.hits.length) }),
    }, { explain: like ? null : () => explain(hit.id), filterBy: (...of) => filterBy(toggled(plainFilter(), ...of)) })));
  });
  document.querySelector(".column[data-side=other]").hidden = !isCompared;
  document.body.classList.toggle("wide", isCompared);
  choose(isCompared ? part("results").dataset.side : "one");
  show("results", ...(isCompared ? ["side"] : []));
}

// Explains every document, and moves the focus to the views of this one.
async function explain(id) {
  part("explain").checked = true;
  history.replaceState(null, "", addressOf({ n: String(part("one").children.length) }));
  await route();
  for (const hit of document.querySelectorAll("#one .hit")) if (hit.dataset.id === id) hit.querySelector(".view")?.focus();
}

// How far a result can be trusted, in plain words.
function exactness(result) {
  const said = [result.exact
    ? "Exact: proven to be the best of all documents."
    : "Approximate: a better document may be missing. Tick \u201cCertified\u201d for a proof."];
  if (result.short_by) said.push(`${counted(result.short_by, "document")} short.`);
  if (result.missing_shards.length) said.push(`WITHOUT shards ${result.missing_shards.join(", ")}.`);
  return said.join(" ");
}

async function browse() {
  const after = shownAt().get("browse");
  const parameters = new URLSearchParams({ limit: String(2 * STEP) });
  if (after !== "1") parameters.set("after", after);
  const filter = filterOf();
  if (filter !== null) parameters.set("filter", JSON.stringify(filter));
  const page = await ask(`${place()}/documents?${parameters}`);
  if (!page.documents.length) return nothing();
  part("one-head").textContent = "All documents, in the order in which they were added";
  part("one-state").textContent = filter === null ? "" : "Those that pass the filter.";
  part("one").replaceChildren(...page.documents.map((found) => made("li", {}, listed(found))));
  document.querySelector(".column[data-side=other]").hidden = true;
  document.body.classList.remove("wide");
  choose("one");
  show("results");
  comeBack();
  part("more").hidden = page.next === null;
  part("more").onclick = () => { go({ browse: page.next }); part("main").focus(); };
  say(counted(page.documents.length, "document"));
}

function listed(found) {
  const start = found.text.length <= 200 ? found.text : found.text.slice(0, 200).replace(/\s+\S*$/u, "");
  const article = made("article", { class: "hit" },
    made("h3", { class: "title" }, made("a", { href: addressOf({ doc: found.id, browse: "1" }) }, found.title || found.id)),
    made("p", { class: "text" }, start + (start.length < found.text.length ? " \u2026" : "")),
    made("div", { class: "meta" }, made("span", { class: "name" }, found.id)));
  article.dataset.id = found.id;
  return article;
}

async function showDocument(id) {
  const kept = shownAt();
  const [found] = (await ask(`${place()}/get`, { ids: [id] })).documents;
  if (!found) throw new Error(`There is no document ${id}.`);
  const query = kept.get("q");
  let hit = null;
  if (query && info.encoder !== null) {
    const asked = { query, top_k: 1, filter: { id }, explain: true, mode: "dense" };
    hit = (await ask(`${place()}/search`, asked)).hits[0] || null;
  }
  const like = kept.get("like");
  const back = query || like ? { name: "Back to the results", address: addressOf({ like, n: kept.get("n") }) }
    : { name: "All documents", address: addressOf({ browse: "1" }) };
  document.body.classList.remove("wide");
  part("document").replaceChildren(...documentPage(found, hit, {
    back, query, alike: addressOf({ q: "", like: id }), filterBy: (...of) => filterBy(toggled(plainFilter(), ...of)),
  }));
  show("document");
  left = id;
  say("");
  part("document-title").focus({ preventScroll: true });
  scrollTo(0, 0);
}

function welcome() {
  document.body.classList.remove("wide");
  say("");
  if (!info.documents) {
    return blank("This index is empty", "Documents come in by mvindex ingest, from Python, or by a POST to /v1/indexes/NAME/documents.");
  }
  const titles = [...new Set(info.sample.map((each) => each.title).filter((title) => title && title.length < 60))];
  // From all over the sample, as neighbours are often alike.
  const step = Math.max(1, Math.floor(titles.length / MOST_EXAMPLES));
  const examples = titles.filter((_, at) => at % step === 0).slice(0, MOST_EXAMPLES);
  const offers = [];
  if (examples.length) {
    offers.push(made("h3", { class: "small" }, "Try what it is about"), made("ul", { class: "examples" },
      ...examples.map((title) => made("li", {}, made("a", { href: addressOf({ q: title }) }, title)))));
  }
  offers.push(made("p", {}, made("a", { href: addressOf({ browse: "1" }) }, `Browse all ${counted(info.documents, "document")}`)));
  return blank("What do you want to know?", "Ask in your own words. Each document that is found has the sentence that answers best marked.", ...offers);
}

function noTexts() {
  say("");
  blank("This index takes no texts", "It has no encoder to turn a text into a vector. Search it by vectors, over HTTP or "
    + "from Python.", made("p", {}, made("a", { href: addressOf({ browse: "1" }) }, "Browse its documents")));
}

function nothing() {
  say("");
  if (!part("filter").value.trim()) return blank("Nothing found", "No document matches.");
  const clear = made("button", { type: "button" }, "Search without the filter");
  clear.addEventListener("click", () => filterBy({}));
  return blank("Nothing passes the filter", `No document has such metadata: ${part("filter").value}`, clear);
}

function withToken() {
  ready = null;
  route();
}

part("form").addEventListener("submit", (event) => { event.preventDefault(); submit(); });
for (const name of ["input", "compositionend"]) part("query").addEventListener(name, (event) => {
  clearTimeout(timer);
  if (!event.isComposing) timer = setTimeout(searchTyped, TYPING_MS);
});
part("index").addEventListener("change", () => { part("filter").value = ""; go(); });
part("token").addEventListener("change", withToken);
for (const name of ["mode", "with", "temperature", "filter", "exact", "explain"]) {
  part(name).addEventListener("change", () => go(subject()));
}
part("home").addEventListener("click", (event) => {
  event.preventDefault();
  part("query").value = part("filter").value = "";
  go();
});
part("skip").addEventListener("click", (event) => { event.preventDefault(); part("main").focus(); });
part("side").addEventListener("click", (event) => { if (event.target.value) choose(event.target.value); });
for (const name of ["mouseover", "focusin"]) part("results").addEventListener(name, (event) => twins(event.target));
for (const name of ["mouseleave", "focusout"]) part("results").addEventListener(name, () => twins(null));
document.addEventListener("keydown", walk);
document.addEventListener("click", (event) => {
  const link = event.target.closest("a[href^='?']");
  if (!link || event.button || event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) return;
  event.preventDefault();
  isTyped = false;
  visit(link.getAttribute("href"));
});
addEventListener("popstate", () => { isTyped = false; route(); });
// Addresses of earlier versions.
if (/^#.*=/.test(location.hash)) history.replaceState(null, "", `?${location.hash.slice(1)}`);
route();
