"""Do the tutorials word for word in a bare environment; print minutes, of the clock and of processors, of each.

    python bench/tutorials.py [--only serve-it,your-files] [--keep-environment FOLDER]
    python bench/tutorials.py --tiny

It copies what git tracks to a new folder, makes an environment there, and runs each code block of each tutorial in
turn: those of bash in one shell for a page, those of Python in one process for a page. What a block shows is compared
with what it prints, as in tests/docs. A tutorial installs what it says, on top of what those before it installed; the
column `install` has the minutes of that. --keep-environment uses the environment in FOLDER, and makes it first where
there is none. --tiny does one tutorial in this environment, and installs nothing.
"""

import json
import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import harness

ROOT = Path(__file__).resolve().parent.parent
# The blocks of a page, and how what they show is compared, are those of the tests.
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "docs")]
from docs_pages import RUNS, blocks_of  # noqa: E402 - found by the line above
from docs_running import check_comments, check_shown  # noqa: E402 - found by the line above

TUTORIALS = (
    "first-index",
    "your-files",
    "rag-with-citations",
    "evaluate-in-ci",
    "serve-it",
    "rag-with-langchain",
    "an-agent-over-mcp",
    "use-milvus",
    "train-on-your-questions",
)
# Runs what comes as lines of JSON in one namespace, and writes a line of JSON for each.
PYTHON = """
import contextlib, io, json, sys
names = {"__name__": "__main__"}
for line in sys.stdin:
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(json.loads(line), names)
    print(json.dumps(printed.getvalue()), flush=True)
"""


class Reader:
    """A reader of one page: a shell and a Python process in one folder, with the environment's programs first."""

    def __init__(self, folder, programs):
        environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "MVINDEX_INDEX")}
        environment |= {"PATH": f"{programs}:{environment['PATH']}", "COLUMNS": "100", "TERM": "dumb"}
        options = {"cwd": folder, "env": environment, "stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        self._aside = Path(tempfile.mkdtemp())
        self._bash = subprocess.Popen(["bash", "-u"], start_new_session=True, **options)
        self._python = subprocess.Popen([f"{programs}/python", "-c", PYTHON], **options)

    def run(self, block):
        """Run a block, and compare what it prints."""
        printed = self._run_python(block.code) if block.language == "python" else self._run_bash(block)
        if block.language == "python":
            check_comments(block.code, printed, block.place)
        if block.shows is not None:
            check_shown(block.shows, printed, block.place)

    def _run_python(self, code):
        self._python.stdin.write(json.dumps(code) + "\n")
        self._python.stdin.flush()
        line = self._python.stdout.readline()
        if not line:
            raise RuntimeError(f"Python ended with {self._python.wait()}")
        return json.loads(line)

    def _run_bash(self, block):
        script, output = self._aside / f"{block.line}.sh", self._aside / f"{block.line}.out"
        script.write_text(block.code, encoding="utf-8")
        self._bash.stdin.write(f"set -e; . {script} >{output}; set +e; echo done\n")
        self._bash.stdin.flush()
        if self._bash.stdout.readline() != "done\n":
            raise RuntimeError(f"{block.place}: exit {self._bash.wait()}")
        return output.read_text(encoding="utf-8")

    def close(self):
        """End both processes, and what the shell left running."""
        for process in (self._bash, self._python):
            process.stdin.close()
        self._python.wait()
        if self._bash.poll() is None:
            os.killpg(self._bash.pid, 15)
        self._bash.wait()
        shutil.rmtree(self._aside)


def copy_checkout(folder):
    """Copy what git tracks, as it is now."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout
    for name in filter(None, listed.decode().split("\0")):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)


def do(name, checkout, programs, installs):
    """Do a tutorial in the copy of the checkout; return its row."""
    blocks = [block for block in blocks_of(f"docs/tutorials/{name}.md") if block.language in RUNS]
    installing = [block for block in blocks if block.code.startswith("pip install")]
    blocks = [block for block in blocks if block not in installing]
    began = time.monotonic()
    for block in installing if installs else ():
        run_in_a_shell(block, checkout, programs)
    installed, used, reader = time.monotonic(), cpu_s(), Reader(checkout, programs)
    try:
        for block in blocks:
            reader.run(block)
    finally:
        reader.close()
    commands = sum(len(re.findall("^mvindex ", block.code, re.MULTILINE)) for block in blocks)
    return {
        "tutorial": name,
        "install, min": f"{(installed - began) / 60:.1f}",
        "minutes": f"{(time.monotonic() - installed) / 60:.1f}",
        "CPU, min": f"{(cpu_s() - used) / 60:.1f}",
        "mvindex commands": commands,
        "blocks of Python": sum(block.language == "python" for block in blocks),
    }


def cpu_s():
    """Return the CPU seconds of all processes that were begun here and have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def run_in_a_shell(block, checkout, programs):
    environment = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}", "PIP_QUIET": "1"}
    subprocess.run(["bash", "-ec", block.code], cwd=checkout, env=environment, check=True)


def main():
    """Print the table; end with 1 where a tutorial fails."""
    parser = harness.parser(__doc__)
    parser.add_argument("--only", default=",".join(TUTORIALS), help="some of %(default)s")
    parser.add_argument("--keep-environment", type=Path, help="an environment that is used again")
    args = harness.parse(parser, only="rag-with-citations")
    rows, failed = [], []
    with tempfile.TemporaryDirectory(prefix="mvindex-tutorials-") as folder:
        checkout = Path(folder) / "mvindex"
        copy_checkout(checkout)
        environment = Path(sys.prefix) if args.tiny else (args.keep_environment or Path(folder) / "env").absolute()
        if not (environment / "bin/python").exists():
            subprocess.run([sys.executable, "-m", "venv", environment], check=True)
        for name in args.only.split(","):
            try:
                rows.append(do(name, checkout, environment / "bin", installs=not args.tiny))
            except (AssertionError, RuntimeError, subprocess.CalledProcessError) as error:
                failed.append(f"{name}: {error}")
    harness.print_table([*rows[0]] if rows else [], rows)
    if failed:
        sys.exit("\n".join(failed))


if __name__ == "__main__":
    main()
