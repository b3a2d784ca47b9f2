// The chips below the query: the filter that is set, and values of metadata to filter by.
import { isFilterable } from "./card.js";
import { made } from "./made.js";

const MOST_VALUES = 8;
const MOST_CHIPS = 14;

// The filter with a value added, or taken away where it has it already. Several values of one field are an "in".
export function toggled(filter, key, value) {
  const { [key]: before, ...others } = filter;
  const values = valuesOf(before);
  const after = values.includes(value) ? values.filter((each) => each !== value) : [...values, value];
  if (!after.length) return others;
  return { ...others, [key]: after.length === 1 ? after[0] : { in: after } };
}

function valuesOf(condition) {
  if (condition === undefined) return [];
  if (typeof condition !== "object" || condition === null) return [condition];
  return Object.keys(condition).join() === "in" ? condition.in : [];
}

// The values of each field that has few of them among these documents.
export function facetsOf(documents) {
  const fields = new Map();
  for (const { metadata } of documents) {
    for (const [key, value] of Object.entries(metadata)) {
      if (!isFilterable(key, value) || value === null || String(value).length > 40) continue;
      if (!fields.has(key)) fields.set(key, new Map());
      fields.get(key).set(value, (fields.get(key).get(value) || 0) + 1);
    }
  }
  // A value that all documents have, or that each has to itself, filters nothing.
  const isUseful = (counts) => counts.size <= MOST_VALUES && [...counts.values()].some((count) => count > 1)
    && [...counts.values()].every((count) => count < documents.length);
  const few = [...fields].filter(([, counts]) => isUseful(counts));
  return few.flatMap(([key, counts]) => [...counts].sort(byValueOrCount).map(([value]) => [key, value]))
    .slice(0, MOST_CHIPS);
}

// Numbers in their order, other values by how many documents have them.
function byValueOrCount([one, count], [other, otherCount]) {
  return typeof one === "number" && typeof other === "number" ? one - other : otherCount - count;
}

// Fills the node with chips. choose(filter) is called with the filter that a click makes.
export function showChips(node, filter, facets, choose) {
  const set = Object.entries(filter).map(([key, condition]) => {
    const values = valuesOf(condition);
    if (values.length) return values.map((value) => [key, value, true]);
    return [[key, condition, true]];
  }).flat();
  const isSet = (key, value) => set.some(([one, other]) => one === key && other === value);
  const offered = facets.filter(([key, value]) => !isSet(key, value)).map(([key, value]) => [key, value, false]);
  node.replaceChildren(...[...set, ...offered].map(([key, value, isOn]) => {
    const text = `${key}: ${typeof value === "string" ? value : JSON.stringify(value)}`;
    const chip = made("button", { type: "button", class: "chip", "aria-pressed": String(isOn) }, text);
    if (isOn) chip.append(made("span", { "aria-hidden": "true" }, " \u00d7"));
    chip.addEventListener("click", () => {
      const { [key]: gone, ...others } = filter;
      choose(typeof value === "object" && value !== null ? others : toggled(filter, key, value));
    });
    return chip;
  }));
  node.hidden = !node.children.length;
}
