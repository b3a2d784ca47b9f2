"""A page in real headless Chromium, the system's own, and what tests ask of it."""

import shutil

from playwright.sync_api import sync_playwright

from mvindex.measure.analysis.page import write_page

FLAGS = (
    "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync", "--disable-background-networking",
    "--disable-component-update", "--disable-dev-shm-usage",
)  # fmt: skip
# The contrast of each text that is seen with what it stands on, by the formula of WCAG 2.
CONTRASTS = """
const pen = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
const known = new Map();
function rgba(colour) {
  if (!known.has(colour)) {
    pen.clearRect(0, 0, 1, 1); pen.fillStyle = colour; pen.fillRect(0, 0, 1, 1);
    known.set(colour, [...pen.getImageData(0, 0, 1, 1).data]);
  }
  return known.get(colour);
}
function light(colour) {
  const linear = (v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
  const [r, g, b] = rgba(colour).map((v) => linear(v / 255));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}
function ground(node) {
  const under = node instanceof SVGElement && node.previousElementSibling;
  if (under && (under.matches(".cell") || under.matches(".disc"))) return getComputedStyle(under).fill;
  for (let one = node; one; one = one.parentElement) {
    const colour = getComputedStyle(one).backgroundColor;
    if (rgba(colour)[3] === 255) return colour;
  }
}
const found = [];
for (const node of document.body.querySelectorAll("*:not(script, noscript, option, .unseen)")) {
  const text = [...node.childNodes].filter((child) => child.nodeType === 3).map((child) => child.data).join("").trim();
  if (!text || !node.checkVisibility()) continue;
  const style = getComputedStyle(node);
  const [one, other] = [light(node instanceof SVGElement ? style.fill : style.color), light(ground(node))];
  found.push([text.slice(0, 40), (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05)]);
}
return found;
"""


class Browser:
    """Chromium with a page in it; close() ends it."""

    def __init__(self, folder):
        self._playwright = sync_playwright().start()
        self._chromium = self._playwright.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
        self.page = self._chromium.new_context(no_viewport=True).new_page()
        self._screen = self.page.context.new_cdp_session(self.page)
        self._file = folder / "report.html"
        self._report = None
        self._said, self._asked = [], []
        self.page.on("console", lambda message: self._said.append(message.text))
        self.page.on("pageerror", lambda error: self._said.append(str(error)))
        self.page.on("request", lambda request: self._asked.append(request.url))

    def close(self):
        self._chromium.close()
        self._playwright.stop()

    def show(self, report, width=1280, theme="light"):
        if report != self._report:
            write_page(report, self._file, force=True)
            self._report = report
        self.set(width, theme)
        self.page.goto(self._file.as_uri())
        self.settle()
        return self

    def set(self, width, theme, media="screen"):
        self.page.emulate_media(media=media, color_scheme=theme)
        # Playwright's own viewport is that of a desk for good; a phone is another screen, not a narrower one.
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
        self._screen.send("Emulation.setDeviceMetricsOverride", size)

    def settle(self):
        """Waits until the plots are drawn: two frames after the page is there."""
        self.ask(
            "return new Promise((done) => "
            "requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done, 50))));"
        )

    def ask(self, script, *values):
        """Return the value of a function body that sees `arguments`; a promise is awaited."""
        return self.page.evaluate(f"(values) => (function () {{ {script} }}).apply(null, values)", list(values))

    def picture(self, path):
        """A screenshot of all of the page."""
        path.parent.mkdir(parents=True, exist_ok=True)
        self.page.screenshot(path=path, full_page=True)

    def number(self, selector):
        return self.ask("return document.querySelectorAll(arguments[0]).length", selector)

    def attributes(self, selector, *names):
        """These attributes, which are numbers, of all elements that match."""
        script = (
            "return [...document.querySelectorAll(arguments[0])].map((one) => "
            "arguments[1].map((name) => Number(one.getAttribute(name))));"
        )
        return self.ask(script, selector, names)

    def texts(self, selector):
        return self.ask("return [...document.querySelectorAll(arguments[0])].map((one) => one.textContent)", selector)

    def console(self):
        """Return the page's messages, errors and policy violations since the last call."""
        # Events come in while the browser is asked something.
        self.ask("return 0")
        said, self._said = self._said, []
        return said

    def requests(self):
        """The addresses that were asked for since the last time."""
        self.ask("return 0")
        asked, self._asked = self._asked, []
        return asked

    def press(self, *keys):
        for key in keys:
            self.page.keyboard.press(key)
