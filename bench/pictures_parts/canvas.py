"""Draw small SVG pictures that follow the reader's light or dark mode."""

import textwrap
from xml.sax.saxutils import escape

STYLE = """
.card{fill:#fff;stroke:#d0d7de} .ink{fill:#1f2328} .soft{fill:#59636e} .box{fill:#f6f8fa;stroke:#8c959f}
.one{fill:#8c959f} .two{fill:#0969da} .three{fill:#bf8700} .four{fill:#1a7f37} .five{fill:#cf222e} .six{fill:#8250df}
.mark{fill:#fff8c5;stroke:#d4a72c} .line{stroke:#8c959f;fill:none} .strong{stroke:#0969da;fill:none}
@media (prefers-color-scheme:dark){
.card{fill:#0d1117;stroke:#30363d} .ink{fill:#f0f6fc} .soft{fill:#9198a1} .box{fill:#151b23;stroke:#656c76}
.one{fill:#656c76} .two{fill:#4493f8} .three{fill:#d29922} .four{fill:#3fb950} .five{fill:#f85149} .six{fill:#ab7df8}
.mark{fill:#3a2d04;stroke:#9e6a03} .line{stroke:#656c76} .strong{stroke:#4493f8}}
"""
FONT = "font-family:-apple-system,'Segoe UI',Roboto,'Helvetica Neue',Arial,'DejaVu Sans',sans-serif"


class Canvas:
    """A picture of some width; text wraps by an estimated width of letters, and the height is set at the end."""

    def __init__(self, width, title, description):
        """Begin a picture; title and description are for readers who do not see it."""
        self.width = width
        self._head = f"<title>{escape(title)}</title><desc>{escape(description)}</desc>"
        self._parts = []

    def rect(self, x, y, width, height, kind="box", radius=4):
        self._parts.append(
            f'<rect class="{kind}" x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="{radius}"/>'
        )

    def dot(self, x, y, kind, radius=3.5):
        self._parts.append(f'<circle class="{kind}" cx="{x:.1f}" cy="{y:.1f}" r="{radius}"/>')

    def line(self, points, kind="line", dashed=False, arrow=False):
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        extra = ' stroke-dasharray="4 3"' * dashed + ' marker-end="url(#arrow)"' * arrow
        self._parts.append(f'<polyline class="{kind}" points="{path}" stroke-width="1.5"{extra}/>')

    def text(self, x, y, text, *, size=13, kind="ink", anchor="start", weight=400):
        self._parts.append(
            f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}"'
            f' font-weight="{weight}">{escape(text)}</text>'
        )

    def wrapped(self, x, y, text, width, *, size=13, kind="ink", weight=400, anchor="start"):
        """Write lines of at most this width from the first baseline y on; return the baseline after the last one."""
        for line in wrap(text, width, size):
            self.text(x, y, line, size=size, kind=kind, weight=weight, anchor=anchor)
            y += size * 1.35
        return y

    def boxed(self, x, y, width, height, title, text, kind="box"):
        """Draw a box with a title and lines under it."""
        self.rect(x, y, width, height, kind)
        self.text(x + width / 2, y + 20, title, weight=600, anchor="middle")
        self.wrapped(x + width / 2, y + 38, text, width - 16, size=11, kind="soft", anchor="middle")

    def render(self, height):
        """Return the picture as SVG, of this height, on a card that is legible on any page."""
        marker = (
            '<defs><marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7"'
            ' orient="auto"><path class="one" d="M0 0L8 4L0 8z"/></marker></defs>'
        )
        card = f'<rect class="card" x=".5" y=".5" width="{self.width - 1}" height="{height - 1:g}" rx="8"/>'
        body = "\n".join(self._parts)
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width} {height:g}" width="{self.width}"'
            f' height="{height:g}" role="img" style="{FONT}">{self._head}<style>{STYLE}</style>{marker}{card}\n'
            f"{body}\n</svg>\n"
        )


def wrap(text, width, size):
    """Return lines of about this width in pixels; a letter is half as wide as it is high."""
    return textwrap.wrap(text, max(8, int(width / (size * 0.52))))
