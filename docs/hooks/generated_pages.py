"""Makes the pages that come from the code: commands, HTTP, gRPC, options of a search. A test compares them.

Run as a program, it writes all of them: `python docs/hooks/generated_pages.py`. As a hook of MkDocs it adds every page
as Markdown to the site, and the list of them.
"""

import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import click
import typer.main

ROOT = Path(__file__).resolve().parents[2]


def cli_page() -> str:
    """Return a page of all commands and options, from the program itself."""
    from mvindex.cli import app
    from mvindex.cli.program import _add_commands

    _add_commands()
    program = typer.main.get_command(app)
    parts = [
        "# Commands",
        "Generated from the program. Each command prints the same with `--help`."
        " Exit status: 0 done, 1 error, 2 wrong usage, 3 refused by a gate of `eval`.",
    ]
    for name, command in sorted(commands_of(program)):
        parts.append(f"## mvindex {name}")
        paragraphs = [" ".join(text.split()) for text in re.split(r"\n\s*\n|(?=Example: )", command.help or "")]
        parts += [re.sub("^Example: (.+)$", r"Example: `\1`", text) for text in paragraphs if text]
        rows = [row for parameter in command.params if (row := option_row(parameter))]
        parts.append("\n".join(["| argument | meaning |", "| --- | --- |", *rows]))
    return "\n\n".join(parts) + "\n"


def commands_of(group: Any, prefix: str = "") -> Iterator[tuple[str, click.Command]]:
    """Yield the name and the command of everything that is not hidden, groups opened."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if hasattr(command, "list_commands"):
            yield from commands_of(command, f"{prefix}{name} ")
        elif not command.hidden:
            yield prefix + name, command


def option_row(parameter: Any) -> str | None:
    """Return the row of an option or argument; None for --help and hidden ones."""
    if getattr(parameter, "hidden", False) or "--help" in parameter.opts:
        return None
    names = [*parameter.opts, *parameter.secondary_opts]
    if parameter.param_type_name == "argument":
        names = [parameter.name.upper()]
    default = parameter.default
    shown = f" Default: `{default}`." if isinstance(default, int | float | str) and default not in (False, "") else ""
    meaning = (getattr(parameter, "help", None) or "").replace("|", "\\|").replace("<", "&lt;")
    return f"| {', '.join(f'`{name}`' for name in names)} | {meaning}{shown} |"


def search_options_page() -> str:
    """Return a page of the options of a search, from the one table that every door shows."""
    from mvindex.search.flags import SEARCH_FLAGS

    rows = [
        f"| `{flag.name}` | {', '.join(f'`{choice}`' for choice in flag.choices) or flag.kind} | {flag.default} | "
        f"{re.sub(' .default: .*?[)]', '', flag.help)} |"
        for flag in SEARCH_FLAGS.values()
    ]
    return (
        "\n\n".join(
            [
                "# Which options does a search have?",
                "Python takes them by these names, `mvindex query` with dashes (`--top-k`), HTTP and gRPC as members of"
                " a request. Python says more of each at [`search()`](indexes.md).",
                "\n".join(["| option | takes | default | what it does |", "| --- | --- | --- | --- |", *rows]),
                "Reranking is done where the caller is: HTTP and gRPC do not take its options, but the Python client of"
                " a server does.",
                "## What becomes of them?",
                "Each door makes one `SearchRequest` of them, which is checked there.",
                "::: mvindex.search.request.SearchRequest",
            ]
        )
        + "\n"
    )


def http_page() -> str:
    """Return a page of all HTTP requests, from the types by which the server checks them."""
    from mvindex_connectors.server.http.openapi import openapi

    described = openapi(requires_token=False)
    parts = [
        "# HTTP",
        "Generated from the server's types; a server gives the same as OpenAPI 3.1 at `/openapi.json`."
        " See [serving](../how-to/serving.md#http).",
        "## Requests",
        "| request | does | body | answer |\n| --- | --- | --- | --- |",
    ]
    for path, operations in described["paths"].items():
        for method, operation in operations.items():
            if method == "parameters":
                continue
            body = schema_of(operation.get("requestBody", {}))
            answer = schema_of(next(iter(operation["responses"].values())))
            parts[-1] += f"\n| `{method.upper()} {path}` | {operation['summary']} | {body} | {answer} |"
    parts.append("## Bodies")
    for name, schema in sorted(described["components"]["schemas"].items()):
        if schema.get("type") == "object":
            needed = schema.get("required", ())
            rows = [
                f"| `{member}` | {type_of(kind)} | {'yes' if member in needed else ''} |"
                f" {kind.get('description', '')} |"
                for member, kind in schema.get("properties", {}).items()
            ]
            head = f"### {name}\n\n{schema.get('description', '')}"
            table = ["| member | type | required | meaning |", "| --- | --- | --- | --- |", *rows] if rows else []
            parts += [head.strip(), "\n".join(table)]
        elif "enum" in schema:
            values = ", ".join(f"`{value}`" for value in schema["enum"])
            parts += [f"### {name}\n\n{schema.get('description', '')}", f"One of {values}."]
    return "\n\n".join(parts) + "\n"


def schema_of(holder: dict[str, Any]) -> str:
    """Return links to the schemas that a body or response has."""
    content = next(iter(holder.get("content", {}).values()), {})
    names = re.findall(r"#/components/schemas/(\w+)", str(content))
    return ", ".join(f"[{name}](#{name.lower()})" for name in dict.fromkeys(names))


def type_of(schema: dict[str, Any]) -> str:
    """Return the type of a member in words of JSON."""
    if "$ref" in schema:
        return f"`{schema['$ref'].rpartition('/')[2]}`"
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(type_of(one) for one in schema["anyOf"]))
    if schema.get("type") == "array":
        return "array of " + type_of(schema.get("items") or {"type": "value"})
    return str(schema.get("type", "value"))


def grpc_page() -> str:
    """Return a page of the service and its messages, from the schemas."""
    parts = [
        "# gRPC",
        "Generated from `schemas/mvindex/v1`. Names and numbers are stable within v1. See"
        " [serving](../how-to/serving.md#grpc-from-elsewhere).",
    ]
    for name in ("service", "search", "documents", "jobs"):
        text = (ROOT / "schemas" / "mvindex" / "v1" / f"{name}.proto").read_text(encoding="utf-8")
        parts.append(f"## {name}.proto\n\n```proto\n{text.strip()}\n```")
    return "\n\n".join(parts) + "\n"


PAGES = {"cli": cli_page, "http": http_page, "grpc": grpc_page, "search-options": search_options_page}


# Of a page whose text is made by the site from docstrings: a table says the same in short where there is no site.
DIRECTIVE = re.compile(r"^::: (\S+)$", re.MULTILINE)
TABLE = "| name | is |"
# Of an error's docstring: what whoever sees it can do.
WAY_OUT = re.compile(r"^Way out: (.+)", re.MULTILINE)


def summarised_page(text: str) -> str:
    """Return a page of directives with a table before them: each name, its docstring's first sentence, and way out."""
    head, first, rest = text.partition(":::")
    named = dict(row for path in DIRECTIVE.findall(first + rest) for row in summaries(path))
    ways = {name: found[1] for name, each in named.items() if (found := WAY_OUT.search(inspect.getdoc(each) or ""))}
    header = f"{TABLE} way out |\n| --- | --- | --- |\n" if ways else f"{TABLE}\n| --- | --- |\n"
    rows = "".join(
        f"| `{name}` | {sentence_of(each)} |" + (f" {ways[name]} |\n" if ways else "\n") for name, each in named.items()
    )
    return f"{head.partition(TABLE)[0].rstrip()}\n\n{header}{rows}\n{first}{rest}"


def summaries(path: str) -> Iterator[tuple[str, object]]:
    """Yield an object with its name, or each class of a module."""
    holder, _, name = path.rpartition(".")
    found = getattr(importlib.import_module(holder), name)
    if isinstance(found, ModuleType):
        for each in vars(found).values():
            if (
                inspect.isclass(each)
                and each.__module__ == path
                and not hasattr(importlib.import_module("mvindex"), each.__name__)
            ):
                yield each.__name__, each
    else:
        short = path.removeprefix("mvindex.records.").removeprefix("mvindex.ingest.")
        yield path if "." in short else short, found


def sentence_of(found: object) -> str:
    """Return the first sentence of a docstring; none for one that a class did not get itself."""
    text = " ".join((inspect.getdoc(found) or "").partition("\n\n")[0].split())
    return re.split(r"(?<=[.:;]) ", text)[0].rstrip(".:;").replace("|", "\\|")


def summarised_pages() -> Iterator[Path]:
    """Yield the pages of directives that are not made from the code otherwise."""
    for page in sorted((ROOT / "docs" / "reference").glob("*.md")):
        if page.stem not in PAGES and DIRECTIVE.search(page.read_text(encoding="utf-8")):
            yield page


def on_config(config: Any) -> None:
    """Say on each page of which version it is."""
    from mvindex import __version__

    config.copyright = f"mvindex {__version__}"


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Keep what each page is written in."""
    config.extra.setdefault("written", {})[page.file.src_uri] = (page.title, markdown)
    return markdown


def on_post_build(config: Any) -> None:
    """Write each page as Markdown beside its HTML; llms.txt, the list of them; and llms-full.txt, all in one."""
    site = Path(config.site_dir)
    written = config.extra["written"]
    for name, (_, markdown) in written.items():
        (site / name).parent.mkdir(parents=True, exist_ok=True)
        (site / name).write_text(markdown, encoding="utf-8")
    (site / "llms.txt").write_text(list_of_pages(config.nav, written), encoding="utf-8")
    whole = [f"<!-- {name} -->\n\n{markdown.strip()}\n" for name, (_, markdown) in written.items()]
    (site / "llms-full.txt").write_text("\n".join(whole), encoding="utf-8")


def list_of_pages(nav: list[Any], written: dict[str, tuple[str, str]]) -> str:
    """Return llms.txt: a title, a summary, and the pages by section, each with its first sentence."""
    lines = [
        "# mvindex",
        "",
        "> Multi-view dense retrieval: several vectors per document, k distinct documents per query, each with the"
        " sentence that answers. A Python package with a command line, a server, and an encoder included.",
    ]
    for section in nav:
        ((title, entries),) = section.items()
        lines += ["", f"## {title}", ""]
        for name, path in entries_of(entries):
            lines.append(f"- [{name}]({path}): {first_sentence(written[path][1])}")
    return "\n".join(lines) + "\n"


def entries_of(entries: Any) -> Iterator[tuple[str, str]]:
    """Yield title and path of each page of a section, sections in it opened."""
    for entry in entries:
        for name, value in entry.items():
            if isinstance(value, str):
                yield name, value
            else:
                yield from entries_of(value)


def first_sentence(markdown: str) -> str:
    """Return the first sentence of a page's first paragraph, without links."""
    text = re.sub(r"```.*?```", "", markdown, flags=re.DOTALL)
    paragraphs = (part.strip() for part in text.split("\n\n"))
    first = next((part for part in paragraphs if re.match(r"[\w*`\[]", part)), "")
    plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", " ".join(first.split()))
    return re.split(r"(?<=[.!?:]) ", plain)[0]


if __name__ == "__main__":
    for each, made in PAGES.items():
        (ROOT / "docs" / "reference" / f"{each}.md").write_text(made(), encoding="utf-8")
    for page in summarised_pages():
        page.write_text(summarised_page(page.read_text(encoding="utf-8")), encoding="utf-8")
