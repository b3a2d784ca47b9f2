"""The command `mvindex mcp`."""

from __future__ import annotations

from typing import Annotated

import typer

from mvindex.cli.options import DeviceOption, IndexOption, ThreadsOption, open_chosen, option, switch

app = typer.Typer()
# Less holds no passage with its source.
_LEAST_CHARS = 1000


@app.command()
def mcp(  # noqa: PLR0913 - each option is a flag of the command
    index: IndexOption = None,
    http: Annotated[
        int | None, option("Listen on this port of 127.0.0.1, at /mcp (default: stdio).", names=("--http",))
    ] = None,
    allow_write: Annotated[bool, switch("--allow-write", "Let agents add documents, by the tool add.")] = False,
    max_chars: Annotated[int, option("Answer with at most so many characters.", min=_LEAST_CHARS)] = 20_000,
    describe: Annotated[
        list[str] | None, option("Describe a tool to agents by this text; may be repeated.", metavar="TOOL=TEXT")
    ] = None,
    device: DeviceOption = None,
    threads: ThreadsOption = None,
) -> None:
    """Serve an index to agents by the Model Context Protocol.

    Agents get the tools search, read and sources, which cite what they return.

    Example: mvindex mcp --index docs.mvx

    Example: mvindex mcp --index docs.mvx --http 7790
    """
    from mvindex.plugins import require

    require("mcp.server.mcpserver", "server", "mvindex mcp")
    from mvindex_connectors.mcp.server import make_server, serve

    texts = dict(_parse_description(text) for text in describe or ())
    with open_chosen(index, device) as target:
        serve(make_server(target, max_chars=max_chars, allow_write=allow_write, descriptions=texts), target, http)


def _parse_description(text: str) -> tuple[str, str]:
    from mvindex_connectors.mcp.server import DESCRIPTIONS

    name, sign, value = text.partition("=")
    if not sign or not value.strip() or name not in DESCRIPTIONS:
        raise typer.BadParameter(f"--describe {text}: expected TOOL=TEXT, with a tool of {', '.join(DESCRIPTIONS)}")
    return name, value
