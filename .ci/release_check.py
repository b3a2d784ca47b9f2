"""Check that what would be released can be installed and works: metadata, then the quickstart by extra and Python.

    python .ci/release_check.py [--pythons 3.11,3.12] [--extras base,train] [--draft]

It builds the source distribution, and the wheel from it, in build/release, and once more elsewhere: the bytes must be
the same. It checks both by twine, and that NOTICE names all data in the wheel. Then it installs the wheel with each
extra in a bare environment of each Python, by constraints.txt, and the source distribution without one. There the
quickstart runs: over given vectors and over texts. Of the base of the first Python it writes a bill of materials,
build/release/sbom-VERSION.cdx.json (CycloneDX), in which each package must have a licence. The last lines name what is
NOT RUN. --draft allows the placeholder in project.urls. The exit status is 1 if anything fails.

Sizes with torch are of the build that pip finds: on Linux the package index has one with CUDA, of 5 GB.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator, Sequence
from email.message import Message
from email.parser import Parser
from hashlib import sha256
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
OUT = ROOT / "build" / "release"
PYTHONS = ("3.10", "3.11", "3.12", "3.13")
# Extras for developers; the GPU's need a driver, and end where there is none.
LEFT_OUT = {"dev", "dev-core", "frameworks-dev", "agents-dev", "docs", "bench", "gpu"}
PLACEHOLDER = ".example"
VECTORS = """
import mvindex
with mvindex.create("vectors.mvx", dim=3) as index:
    documents = [mvindex.Document("two", ""), mvindex.Document("one", "")]
    index.add_views(documents, [[[1, 0, 0], [0, 1, 0]], [[0, 0.6, 0.8]]])
    result = index.search([0, 1, 0], top_k=2)
    assert [hit.id for hit in result.hits] == ["two", "one"] and result.exact, result
"""


class Failed(Exception):
    """A check failed."""


def run(*command: object, cwd: Path = ROOT) -> str:
    """Run a command and return its output."""
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    done = subprocess.run(
        [str(word) for word in command], cwd=cwd, env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise Failed(
            f"{' '.join(map(str, command[:6]))}: exit {done.returncode}\n{(done.stdout + done.stderr)[-1500:]}"
        )
    return done.stdout


def build() -> tuple[Path, Path]:
    """Build the source distribution, and the wheel from it, twice; return wheel and source distribution."""
    shutil.rmtree(OUT, ignore_errors=True)
    run(sys.executable, "-m", "build", "--outdir", OUT)
    with tempfile.TemporaryDirectory() as again:
        run(sys.executable, "-m", "build", "--outdir", again)
        check_same(OUT, Path(again))
    run(sys.executable, "-m", "twine", "check", "--strict", *OUT.iterdir())
    (wheel,), (source,) = OUT.glob("*.whl"), OUT.glob("*.tar.gz")
    return wheel, source


def check_same(one: Path, other: Path) -> None:
    """Check that two folders hold the same files, byte by byte."""
    sums = [{path.name: sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()} for folder in (one, other)]
    if sums[0] != sums[1]:
        raise Failed(f"two builds: expected the same bytes of unchanged files, got {sums[0]} and {sums[1]}")


def check_licences(wheel: Path) -> int:
    """Check that the wheel holds LICENSE and NOTICE, and that NOTICE names the folders of data; count its files."""
    with zipfile.ZipFile(wheel) as files:
        names = files.namelist()
        texts = {Path(name).name: name for name in names if ".dist-info/licenses/" in name}
        if texts.keys() != {"LICENSE", "NOTICE"}:
            raise Failed(f"{wheel.name}: expected LICENSE and NOTICE, got {', '.join(sorted(texts)) or 'none'}")
        notice = files.read(texts["NOTICE"]).decode()
    data = [Path(name) for name in names if name.startswith("mvindex/data/") and not name.endswith(".py")]
    for path in data:
        if not any(f"{folder.as_posix()}/" in notice for folder in path.parents if len(folder.parts) > 2):
            raise Failed(f"NOTICE: expected a folder of {path.as_posix()}, got none")
    return len(data)


def old_licence(interpreter: Path, name: str) -> str:
    """Return the licence of a package in the old form, one line of its metadata that the tool does not read."""
    show = "import importlib.metadata, sys; print(importlib.metadata.metadata(sys.argv[1]).get('License') or '')"
    found = run(interpreter, "-c", show, name).strip()
    if not found or "\n" in found:
        raise Failed(f"{name}: expected a licence in its metadata, got {found[:40]!r}")
    return found


def write_bill(interpreter: Path, version: str) -> str:
    """Write the bill of materials of an environment; return what it is. Failed where a package has no licence."""
    path = OUT / f"sbom-{version}.cdx.json"
    tool = Path(sys.executable).with_name("cyclonedx-py")
    run(tool, "environment", "--output-reproducible", "--of", "JSON", "-o", path, interpreter)
    bill = json.loads(path.read_text(encoding="utf-8"))
    parts = [part for part in bill["components"] if part["name"] != "pip"]
    for part in (part for part in parts if not part.get("licenses")):
        part["licenses"] = [{"license": {"name": old_licence(interpreter, part["name"])}}]
    path.write_text(json.dumps(bill, indent=2) + "\n", encoding="utf-8")
    return f"{path.name}: {len(parts)} packages, each with its licence"


def metadata_of(wheel: Path) -> Message:
    """Return the metadata in the wheel."""
    with zipfile.ZipFile(wheel) as files:
        (name,) = (name for name in files.namelist() if name.endswith(".dist-info/METADATA"))
        return Parser().parsestr(files.read(name).decode())


def check_metadata(metadata: Message, is_draft: bool) -> None:
    """Check what twine does not: the version in the changelog, links, addresses."""
    version = metadata["Version"]
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    if not re.search(rf"^## \[{re.escape(version)}\] - \d{{4}}-\d\d-\d\d$", changelog, re.MULTILINE):
        raise Failed(f"CHANGELOG.md: expected a heading with a date for version {version}, got none")
    relative = re.findall(r"\]\((?!https?:|#)[^)]*\)", metadata.get_payload())
    if relative:
        raise Failed(f"README.md: expected absolute links in the metadata, got {relative[0]}")
    placeholders = [line for line in metadata.get_all("Project-URL") if PLACEHOLDER in line]
    if placeholders and not is_draft:
        raise Failed(f"pyproject.toml: project.urls: expected the repository's address, got {placeholders[0]}")


def find_python(version: str) -> str | None:
    """Return a working interpreter of this version: on the path, of pyenv, or known to uv; None where there is none."""
    candidates = [shutil.which(f"python{version}")]
    candidates += sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python"), reverse=True)
    uv = shutil.which("uv") or shutil.which("uv", path=str(Path(sys.executable).parent))
    if uv:
        done = subprocess.run([uv, "python", "find", version], capture_output=True, text=True, check=False)
        candidates.append(done.stdout.strip())
    for path in filter(None, candidates):
        command = [str(path), "-c", "import sys, venv, ensurepip; print('%d.%d' % sys.version_info[:2])"]
        if subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip() == version:
            return str(path)
    return None


def check_extra(python: str, wheel: Path, extra: str, after: Callable[[Path], object] = lambda _: None) -> str:
    """Install a distribution with this extra in a bare environment and run the quickstart; return seconds, MB, torch.

    after: called with the interpreter of the environment at the end.
    """
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="mvindex-release-") as folder:
        folder = Path(folder)
        run(python, "-m", "venv", folder / "env")
        interpreter = folder / "env/bin/python"
        target = str(wheel) if extra == "base" else f"{wheel}[{extra}]"
        run(interpreter, "-m", "pip", "install", "--quiet", "--no-compile", "-c", ROOT / "constraints.txt", target)
        installed_s = time.monotonic() - began
        run(interpreter, "-c", VECTORS, cwd=folder)
        run(folder / "env/bin/mvindex", "query", "--help", cwd=folder)
        run(interpreter, "-m", "pip", "check", cwd=folder)
        if extra == "base":
            run(interpreter, ROOT / ".ci/base_install.py", cwd=folder)
        run(interpreter, ROOT / "examples/quickstart.py", cwd=folder)
        size = sum(file.stat().st_size for file in (folder / "env").rglob("*") if file.is_file())
        after(interpreter)
        torch = [path.name.split("-")[1] for path in (folder / "env").glob("lib/*/site-packages/torch-*.dist-info")]
    ran = "vectors, texts" + "".join(f"; torch {version.removesuffix('.dist')}" for version in torch)
    return f"{installed_s:6.0f}  {time.monotonic() - began - installed_s:5.0f}  {size / 2**20:6,.0f}  {ran}"


def not_run(ran: Sequence[tuple[str, str]], extras: Sequence[str], missing: Sequence[str]) -> Iterator[str]:
    """Yield what was not checked, and why.

    ran: The pairs of Python and extra that were checked, whether they passed or failed.
    extras: All extras of the wheel, and base.
    missing: The Pythons that were asked for and are not here.
    """
    pythons, done = {python for python, _ in ran} | set(missing), {extra for _, extra in ran}
    for kind, names, why in (
        ("Python", [python for python in PYTHONS if python not in pythons], "not chosen"),
        ("Python", missing, "not found here"),
        ("extras", [extra for extra in extras if extra not in done | LEFT_OUT], "not chosen"),
        ("extras", [extra for extra in extras if extra in LEFT_OUT], "for developers, or they need a GPU"),
    ):
        if names:
            yield f"NOT RUN: {kind} {', '.join(names)}: {why}"


def main() -> int:
    """Check everything; print a line for each Python and extra."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pythons", default=",".join(PYTHONS))
    parser.add_argument("--extras", default="", help="some of pyproject.toml, and base; all by default")
    parser.add_argument("--draft", action="store_true", help="allow the placeholder in project.urls")
    args = parser.parse_args()
    failures, ran, missing = [], [], []
    wheel, source = build()
    metadata = metadata_of(wheel)
    print(f"{wheel.name}: {wheel.stat().st_size / 2**20:.1f} MB; built twice alike; twine check passed", flush=True)
    try:
        print(f"NOTICE names {check_licences(wheel)} files of data", flush=True)
        check_metadata(metadata, args.draft)
    except Failed as failed:
        failures.append(str(failed))
    all_extras = ["base", *sorted(metadata.get_all("Provides-Extra"))]
    known = [extra for extra in all_extras if extra not in LEFT_OUT]
    extras = args.extras.split(",") if args.extras else known
    if unknown := set(extras) - set(known):
        parser.error(f"--extras: expected some of {', '.join(known)}, got {', '.join(sorted(unknown))}")
    print("python  extra                  install s  run s      MB  quickstart over", flush=True)
    bills: list[str] = []

    def bill(interpreter: Path) -> None:
        bills.extend([] if bills else [write_bill(interpreter, metadata["Version"])])

    for version in args.pythons.split(","):
        python = find_python(version)
        # The source distribution is one more way to the base.
        ways = [(extra, wheel, bill if extra == "base" else lambda _: None) for extra in extras]
        ways += [("base", source, lambda _: None)] if "base" in extras else []
        for extra, distribution, after in ways if python else ():
            try:
                said = check_extra(python, distribution, extra, after)
            except Failed as failed:
                failures.append(f"Python {version}, {extra}: {failed}")
                said = "FAILED"
            ran.append((version, extra))
            name = extra if distribution == wheel else "base, from source"
            print(f"{version:6}  {name:21}  {said}", flush=True)
        if not python:
            missing.append(version)
    print(*bills, sep="\n")
    print(f"{len(ran)} environments, {len(failures)} failures")
    print(*not_run(ran, all_extras, missing), sep="\n", flush=True)
    for failure in failures:
        print(f"\n{failure}", file=sys.stderr)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
