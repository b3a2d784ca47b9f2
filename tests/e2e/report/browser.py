"""A report in real headless Chromium, and what tests ask of the page."""

from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.action_chains import ActionChains

from mvindex.analysis.page import write_page

FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update", "--disable-dev-shm-usage",
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
    """Chromium with a page in it."""

    def __init__(self, folder):
        options = webdriver.ChromeOptions()
        options.binary_location = "/usr/bin/chromium"
        for flag in (*FLAGS, f"--user-data-dir={folder / 'profile'}"):
            options.add_argument(flag)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        self.driver = webdriver.Chrome(options=options, service=Service("/usr/bin/chromedriver"))
        self.driver.set_script_timeout(30)
        self._file = folder / "report.html"

    def show(self, report, width=1280, theme="light"):
        write_page(report, self._file, force=True)
        self.set(width, theme)
        self.driver.get(self._file.as_uri())
        self.settle()
        return self

    def set(self, width, theme, media=""):
        self.driver.execute_cdp_cmd(
            "Emulation.setEmulatedMedia",
            {"media": media, "features": [{"name": "prefers-color-scheme", "value": theme}]},
        )
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)

    def settle(self):
        """Waits until the plots are drawn: two frames after the page is there."""
        self.driver.execute_async_script(
            "const done = arguments[0]; requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done, 50)));"
        )

    def ask(self, script, *values):
        return self.driver.execute_script(script, *values)

    def number(self, selector):
        return self.ask("return document.querySelectorAll(arguments[0]).length", selector)

    def attributes(self, selector, *names):
        """These attributes, which are numbers, of all elements that match."""
        script = (
            "return [...document.querySelectorAll(arguments[0])].map((one) => "
            "arguments[1].map((name) => Number(one.getAttribute(name))));"
        )
        return self.ask(script, selector, names)

    def choose_document(self, place):
        self.ask(
            "const one = document.querySelector('select'); one.value = arguments[0]; "
            "one.dispatchEvent(new Event('change'));",
            place,
        )
        self.settle()

    def count(self, title, selector):
        """How many elements of a card match."""
        script = (
            "const card = [...document.querySelectorAll('article')].find((one) => "
            "one.querySelector('h3').textContent === arguments[0]); return card.querySelectorAll(arguments[1]).length;"
        )
        return self.ask(script, title, selector)

    def texts(self, selector):
        return self.ask("return [...document.querySelectorAll(arguments[0])].map((one) => one.textContent)", selector)

    def tip(self):
        """The words beside the mark that is being read; None where there are none."""
        shown = self.texts(".tip:not([hidden])")
        assert len(shown) <= 1
        return shown[0] if shown else None

    def console(self):
        return self.driver.get_log("browser")

    def press(self, *keys):
        for key in keys:
            ActionChains(self.driver).send_keys(key).perform()
