// Elements, and numbers in words. Texts reach the page as text nodes only: no document is ever parsed as HTML.
const SVG = "http://www.w3.org/2000/svg";

export function part(id) {
  return document.getElementById(id);
}

export function made(name, attributes = {}, ...children) {
  return filled(document.createElement(name), attributes, children);
}

export function drawn(name, attributes, ...children) {
  return filled(document.createElementNS(SVG, name), attributes, children);
}

function filled(node, attributes, children) {
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  node.append(...children.filter((child) => child !== null));
  return node;
}

// No minus before a number that is shown as zero.
export function shown(number, digits) {
  return number.toFixed(digits).replace(/^-(0\.0*)$/, "$1");
}

export function counted(number, word) {
  return `${number.toLocaleString("en")} ${word}${number === 1 ? "" : "s"}`;
}
