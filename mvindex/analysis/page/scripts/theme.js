// Light or dark: as the system has it until the reader chooses; the choice lasts as long as the page is open.

function themeButton() {
  const button = html("button", { type: "button", class: "theme" });
  const system = matchMedia("(prefers-color-scheme: dark)");
  const isDark = () => (document.documentElement.dataset.theme ?? (system.matches ? "dark" : "light")) === "dark";
  const name = () => {
    button.textContent = isDark() ? "Light theme" : "Dark theme";
  };
  button.addEventListener("click", () => {
    document.documentElement.dataset.theme = isDark() ? "light" : "dark";
    name();
  });
  system.addEventListener("change", name);
  name();
  return button;
}
