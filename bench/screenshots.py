"""Take the screenshots of the search page that docs/how-to/serving.md shows, in headless Chromium.

    python bench/screenshots.py [--out docs/plots] [--passages 150]
    python bench/screenshots.py --tiny

Makes an index of the first passages of examples/squad, with the title as metadata, serves it, and opens the page at the
widths of a phone and a desk, light and dark. Needs chromium, and playwright of the extra dev.
"""

import csv
import itertools
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from urllib.parse import urlencode

import harness
from playwright.sync_api import sync_playwright

import mvindex
from mvindex import Document

QUESTION = "why did the oil price rise?"
# By file: width, height, pixels per pixel of CSS, scheme, and what the address says.
SCREENS = {
    "page-phone-light": (390, 780, 2, "light", {"q": QUESTION}),
    "page-phone-dark": (390, 780, 2, "dark", {"q": QUESTION, "explain": "1"}),
    "page-phone-document": (390, 780, 2, "light", {"q": QUESTION, "doc": "5"}),
    "page-desk-light": (1180, 760, 1, "light", {"q": QUESTION, "filter": '{"topic": "1973 oil crisis"}'}),
    "page-desk-document": (1180, 760, 1, "dark", {"q": QUESTION, "doc": "5"}),
    "page-desk-compare": (1180, 760, 1, "light", {"q": QUESTION, "with": "drpq"}),
}
SMALL_COLOURS = 256


def passages(count):
    with Path(harness.SQUAD).open(encoding="utf-8", newline="") as file:
        for row in itertools.islice(csv.DictReader(file, delimiter="\t"), count):
            yield Document(row["id"], row["text"], row["title"], {"topic": row["title"]})


def shoot(address, out):
    """Write the screenshot of each screen."""
    from PIL import Image

    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--disable-gpu"])
        for name, (width, height, scale, scheme, values) in SCREENS.items():
            size = {"width": width, "height": height}
            page = chromium.new_page(viewport=size, device_scale_factor=scale, color_scheme=scheme)
            page.goto(f"{address}/?{urlencode({'index': 'wiki'} | values)}")
            page.wait_for_selector("main[aria-busy=false]")
            page.evaluate("document.activeElement.blur()")
            file = out / f"{name}.png"
            page.screenshot(path=file)
            with Image.open(file) as image:
                image.convert("RGB").quantize(SMALL_COLOURS).save(file, optimize=True)
            page.close()
        chromium.close()


def main():
    parser = harness.parser(__doc__, passages=150)
    parser.add_argument("--out", type=Path, default=Path("docs/plots"), help="folder of the screenshots")
    options = harness.parse(parser, out=harness.OUT, passages=8)
    options.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "wiki.mvx"
        with mvindex.create(path, encoder="minilm-views", lexical="english") as index:
            index.add(passages(options.passages))
        command = [sys.executable, "-m", "mvindex", "serve", "--index", f"wiki={path}", "--port", "0", "--http", "0"]
        server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        try:
            shoot(json.loads(server.stdout.readline())["http"], options.out)
        finally:
            server.terminate()
            server.wait()
    files = [options.out / f"{name}.png" for name in SCREENS]
    print(f"{len(files)} screenshots, {sum(file.stat().st_size for file in files):,} bytes, in {options.out}")


if __name__ == "__main__":
    main()
