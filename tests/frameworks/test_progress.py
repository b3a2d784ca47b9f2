"""Progress of documents that are added: on a terminal or when asked, quiet elsewhere."""

import io
import sys

import pytest

from mvindex_connectors.frameworks.views import show_added


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize(
    ("stream", "total", "is_wanted", "is_shown"),
    [
        (Terminal, 50, None, True),
        (Terminal, 49, None, False),
        (Terminal, 50, False, False),
        (io.StringIO, 50, None, False),
        (io.StringIO, 2, True, True),
    ],
)
def test_a_bar_is_shown_on_a_terminal_or_when_asked(monkeypatch, stream, total, is_wanted, is_shown):
    monkeypatch.setattr(sys, "stderr", stream())
    with show_added(total, is_wanted) as on_progress:
        on_progress(total)
    shown = sys.stderr.getvalue()
    assert (f"{total}/{total}" in shown) is is_shown and bool(shown) is is_shown
