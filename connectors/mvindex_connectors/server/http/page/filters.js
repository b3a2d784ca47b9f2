// The chips below the query: the filter that is set, and values of metadata to filter by.
import { made } from "./made.js";

const MOST_VALUES = 8;
const MOST_CHIPS = 14;
const LONGEST = 40;
// In a filter these mean something else than fields.
const LOGIC = ["id", "and", "or", "not"];

export function named(key, value) {
  return `${key}: ${typeof value === "string" ? value : JSON.stringify(value)}`;
}

// The values of a field of metadata that a filter can compare, each with whether it is a member of a list.
export function comparable(key, value) {
  if (!/^[^."\\\p{C}]+$/u.test(key) || LOGIC.includes(key)) return [];
  const isPlain = (each) => typeof each !== "object" || each === null;
  if (isPlain(value)) return [[value, false]];
  return Array.isArray(value) && value.every(isPlain) ? [...new Set(value)].map((each) => [each, true]) : [];
}

// The filter with a value added, or taken away where it has it already. Several values of one field are alternatives;
// what else the field must be, such as a range, stays.
export function toggled(filter, key, value, isMember = false) {
  const { values, rest } = partsOf(filter, key);
  const after = values.includes(value) ? values.filter((each) => each !== value) : [...values, value];
  const [one] = after;
  if (!after.length) return withCondition(filter, key, rest);
  if (isMember) {
    const members = after.length === 1 ? { contains: one } : { contains_any: after };
    return withCondition(filter, key, { ...rest, ...members });
  }
  return withCondition(filter, key, after.length === 1 && !rest ? one : { ...rest, in: after });
}

// The filter with another condition of a field; undefined takes the field away.
function withCondition(filter, key, condition) {
  const { [key]: gone, ...others } = filter;
  return condition === undefined ? others : { ...others, [key]: condition };
}

// The filter with the values of a field and nothing else of it.
function withoutRest(filter, key) {
  const { values, operator } = partsOf(filter, key);
  return withCondition(filter, key, values.length ? { [operator]: filter[key][operator] } : undefined);
}

// What a filter demands of a field: values that are alternatives, by their operator, and the rest; undefined for none.
function partsOf(filter, key) {
  const condition = Object.hasOwn(filter, key) ? filter[key] : undefined;
  if (condition === undefined) return { values: [] };
  if (typeof condition !== "object" || condition === null) return { values: [condition] };
  const operator = ["in", "contains", "contains_any"].find((name) => Object.hasOwn(condition, name));
  if (Array.isArray(condition) || !operator) {
    return { values: [], rest: Object.keys(condition).length ? condition : undefined };
  }
  const { [operator]: values, ...rest } = condition;
  return { values: [values].flat(), operator, rest: Object.keys(rest).length ? rest : undefined };
}

// The values of each field that has few of them: those of the results first, then others of a sample of the index.
export function facetsOf(results, sample) {
  const found = few(results);
  const isNew = ([key, value]) => !found.some(([one, other]) => one === key && other === value);
  return [...found, ...few(sample).filter(isNew)].slice(0, MOST_CHIPS);
}

function few(documents) {
  const fields = new Map();
  for (const { metadata } of documents) {
    for (const [key, whole] of Object.entries(metadata)) {
      for (const [value, isMember] of comparable(key, whole)) {
        if (value === null || String(value).length > LONGEST) continue;
        if (!fields.has(key)) fields.set(key, { counts: new Map(), isMember });
        const { counts } = fields.get(key);
        counts.set(value, (counts.get(value) || 0) + 1);
      }
    }
  }
  // A value that all documents have, or that each has to itself, filters nothing.
  const isUseful = ([, { counts }]) => counts.size <= MOST_VALUES && [...counts.values()].some((count) => count > 1)
    && [...counts.values()].every((count) => count < documents.length);
  return [...fields].filter(isUseful).flatMap(([key, { counts, isMember }]) => (
    [...counts].sort(byValueOrCount).map(([value]) => [key, value, isMember])));
}

// Numbers in their order, other values by how many documents have them.
function byValueOrCount([one, count], [other, otherCount]) {
  return typeof one === "number" && typeof other === "number" ? one - other : otherCount - count;
}

// Fills the node with chips. choose(filter) is called with the filter that a click makes.
export function showChips(node, filter, facets, choose) {
  const set = Object.keys(filter).flatMap((key) => {
    const { values, operator, rest } = partsOf(filter, key);
    const isMember = operator !== undefined && operator !== "in";
    const chips = values.map((value) => [key, value, isMember, true]);
    return rest === undefined ? chips : [...chips, [key, rest, false, true]];
  });
  const isSet = (key, value) => set.some(([one, other]) => one === key && other === value);
  const offered = facets.filter(([key, value]) => !isSet(key, value));
  // Chips are made anew: the focus stays with the value.
  const focused = node.contains(document.activeElement) ? document.activeElement.dataset.name : undefined;
  node.replaceChildren(...[...set, ...offered].map(([key, value, isMember, isOn = false]) => {
    const chip = made("button", { type: "button", class: "chip", "aria-pressed": String(isOn) }, named(key, value));
    chip.dataset.name = named(key, value);
    if (isOn) chip.append(made("span", { "aria-hidden": "true" }, " \u00d7"));
    chip.addEventListener("click", () => {
      const isRest = typeof value === "object" && value !== null;
      choose(isRest ? withoutRest(filter, key) : toggled(filter, key, value, isMember));
    });
    return chip;
  }));
  node.hidden = !node.children.length;
  [...node.children].find((chip) => chip.dataset.name === focused)?.focus();
}
