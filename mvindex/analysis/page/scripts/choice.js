// One of a few, as radio buttons that look like one control.

/** A group of radio buttons. onChoice is called with the place of the option, and once at the start. */
function choice(label, options, first, onChoice) {
  const name = newId("choice");
  const inputs = options.map((option, place) => {
    const id = newId("option");
    const input = html("input", { type: "radio", name, id, value: place, checked: place === first });
    input.addEventListener("change", () => onChoice(place));
    return [input, html("label", { for: id }, option)];
  });
  onChoice(first);
  return html("fieldset", { class: "choice" }, html("legend", {}, label), html("div", {}, inputs));
}
