// Elements of the page. Data only ever become text nodes and attribute values, never HTML.

const SVG = "http://www.w3.org/2000/svg";

/** An HTML element with these attributes (null leaves one out) and children; strings become text. */
function html(name, attributes = {}, ...children) {
  return filled(document.createElement(name), attributes, children);
}

/** The same for SVG. */
function svg(name, attributes = {}, ...children) {
  return filled(document.createElementNS(SVG, name), attributes, children);
}

function filled(node, attributes, children) {
  for (const [key, value] of Object.entries(attributes)) {
    if (value !== null && value !== undefined && value !== false) node.setAttribute(key, value === true ? "" : value);
  }
  node.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

/** Text of the data, kept apart from the direction of what stands around it. */
function quoted(text, name = "bdi") {
  return html(name, { dir: "auto" }, text);
}

/** A string that no other call gave, for ids that labels point to. */
const newId = (() => {
  let last = 0;
  return (prefix) => `${prefix}-${(last += 1)}`;
})();
