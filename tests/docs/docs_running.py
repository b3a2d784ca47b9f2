"""The blocks of one page, run one after the other in one folder, by one shell and in one Python namespace."""

import asyncio
import contextlib
import io
import re
import socket
import time

from docs_shell import Shell

# What pages name, and what it stands for here: servers of several tests may run at once.
PORTS = ("7700", "7780")
PRINTED = re.compile(r"^\s*print\(.*\)[ \t]+# (.+)$", re.MULTILINE)
DECIMAL = re.compile(r"\d+\.\d+")
# Encoders differ in the last digits from processor to processor.
TOLERANCE = 0.005


class Page:
    """The state that the blocks of a page share, in the current folder; close() ends what they started."""

    def __init__(self):
        self._ports = dict(zip(PORTS, free_ports(len(PORTS)), strict=True))
        self._shell = Shell(self._arguments_for, serving=["--port", self._ports["7700"]])
        self._names = {"__name__": "__main__"}
        # Libraries run coroutines in the loop that is set, or leave one of their own open.
        self._loop = asyncio.new_event_loop()
        asyncio.set_event_loop(self._loop)

    def run(self, block):
        """Run the block to its end and compare its output with the page."""
        code = re.sub("|".join(PORTS), lambda found: self._ports[found[0]], block.code)
        printed = self._run_python(code, block) if block.language == "python" else self._run_bash(code, block)
        if block.shows is not None:
            check_shown(block.shows, printed, block.place)

    def _arguments_for(self, args):
        """Return these arguments once the server that they name listens."""
        if any(word.startswith("grpc://") for word in args):
            wait_for_port(self._ports["7700"])
        return args

    def _run_bash(self, code, block):
        ended = self._shell.run(code, f"block-{block.line}")
        assert ended.status == 0, f"{block.place}: exit {ended.status}\n{ended.output}{ended.error}"
        return ended.output

    def _run_python(self, code, block):
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            exec(compile(code, block.place, "exec"), self._names)
        check_comments(code, printed.getvalue(), block.place)
        return printed.getvalue()

    def close(self):
        self._shell.close()
        asyncio.set_event_loop(None)
        self._loop.close()


def free_ports(count):
    """So many ports, as text, on which nothing listens."""
    with contextlib.ExitStack() as stack:
        taken = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in taken:
            one.bind(("127.0.0.1", 0))
        return [str(one.getsockname()[1]) for one in taken]


def wait_for_port(port):
    """Wait until a process listens on the port, at most a minute."""
    until = time.monotonic() + 60
    while time.monotonic() < until:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", int(port))):
            return
        time.sleep(0.05)


def check_shown(shown, printed, place):
    """Compare the output with the page; `...` matches anything, and decimals need to be close only."""
    wanted, found = (re.sub(r"[ \t]+$", "", text.strip(), flags=re.MULTILINE) for text in (shown, printed))
    numbers = [float(number) for number in DECIMAL.findall(wanted)]
    parts = [r"(\d+\.\d+)".join(map(re.escape, DECIMAL.split(part))) for part in wanted.split("...")]
    match = re.fullmatch(".*?".join(parts), found, flags=re.DOTALL)
    assert match, f"{place} shows\n{shown}\nbut prints\n{printed}"
    off = [pair for pair in zip(numbers, map(float, match.groups()), strict=True) if abs(pair[0] - pair[1]) > TOLERANCE]
    assert not off, f"{place} shows, and prints, {off}"


def check_comments(code, printed, place):
    """Check that each comment after a print() begins with a printed line, in the comments' order."""
    lines = iter(printed.splitlines())
    for comment in PRINTED.findall(code):
        assert any(line and comment.startswith(line) for line in lines), f"{place}: no line {comment!r} in\n{printed}"
