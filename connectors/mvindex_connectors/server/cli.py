"""The command `mvindex serve`."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Coroutine, Mapping
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from mvindex.cli.options import DeviceOption, ThreadsOption, option
from mvindex.paths import user_path
from mvindex.records import MAX_DOCUMENT_CHARS

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

app = typer.Typer()
# Options under a heading of the help.
_listen = partial(typer.Option, rich_help_panel="Address")
_access = partial(typer.Option, rich_help_panel="Access")
_copies = partial(typer.Option, rich_help_panel="Upkeep and snapshots")
_limit = partial(typer.Option, rich_help_panel="Limits")
_VARIABLE = "MVINDEX_SERVE_"


class LogLevel(Enum):
    """Severities of log lines."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


def read_defaults(context: typer.Context, file: Path | None) -> Path | None:
    """Take options that the command line leaves out from MVINDEX_SERVE_* variables, or else from the file."""
    flags = {max(each.opts, key=len).removeprefix("--"): each for each in context.command.params if each.name != "help"}
    del flags["config"]
    file = file and user_path(file) or (user_path(name) if (name := os.environ.get(f"{_VARIABLE}CONFIG")) else None)
    found = {} if file is None else _read_toml(file, flags)
    for flag, each in flags.items():
        value = os.environ.get(_VARIABLE + flag.upper().replace("-", "_"))
        if value is not None:
            found[each.name or flag] = value.split() if each.multiple else value
    context.default_map = found
    return file


def _read_toml(file: Path, flags: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of a file by the parameters' names; ConfigError names an option that there is not."""
    from mvindex.errors import ConfigError

    try:
        options = tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as err:  # tomllib's and a wrong encoding's are ValueErrors
        raise ConfigError(f"{file}: expected TOML: {err}") from err
    for name, value in options.items():
        if name not in flags:
            raise ConfigError(f"{file}: {name}: expected an option of mvindex serve, such as {', '.join(flags)}")
        if not _is_value_of(flags[name], value):
            kind = (
                "a list of texts" if flags[name].multiple else "true or false" if flags[name].is_flag else "one value"
            )
            raise ConfigError(f"{file}: {name}: expected {kind}, got {value!r:.60}")
    return {flags[name].name: value for name, value in options.items()}


def _is_value_of(option: Any, value: object) -> bool:
    """Return whether a value of a file is one of an option: it would be made one otherwise, true the port 1."""
    if option.multiple:
        return isinstance(value, list) and all(isinstance(each, str) for each in value)
    return isinstance(value, bool) == option.is_flag and isinstance(value, bool | int | float | str)


@app.command()
def serve(  # noqa: PLR0913 - each option is a flag of the command
    index: Annotated[
        list[str] | None,
        option(
            "Serve this index under this name: a directory or an address; may be repeated.",
            metavar="NAME=DIR",
            names=("--index", "-i"),
        ),
    ] = None,
    host: Annotated[str, _listen(help="Listen on this address.")] = "127.0.0.1",
    port: Annotated[int, _listen(help="Serve gRPC on this port; 0 takes a free one.")] = 7700,
    http: Annotated[
        int | None, _listen("--http", help="Also serve JSON over HTTP, the search page and /metrics on this port.")
    ] = None,
    tls_cert: Annotated[Path | None, _access(help="Use this certificate (PEM).")] = None,
    tls_key: Annotated[Path | None, _access(help="Use this key with the certificate (PEM).")] = None,
    tls_client_ca: Annotated[Path | None, _access(help="Require client certificates of this authority (PEM).")] = None,
    token_file: Annotated[
        Path | None,
        _access(
            help="Allow the tokens of this file: lines of read-only, read-write or admin, a token, a name, and what it "
            "is bound to. Read again on SIGHUP."
        ),
    ] = None,
    insecure: Annotated[
        bool, _access("--insecure", help="Allow everyone who can reach this address to read and write.")
    ] = False,
    read_only: Annotated[
        bool, _access("--read-only", help="Refuse writes; follow the writes of other processes.")
    ] = False,
    batch: Annotated[int, _limit(help="Search at most so many queries together; 1 turns batching off.")] = 256,
    drain_s: Annotated[float, _limit("--drain", help="Let calls end for so many seconds after SIGTERM.")] = 30.0,
    compact_at: Annotated[
        float, _copies(help="Compact an index when this share of its rows is deleted or replaced; 1 is never.")
    ] = 0.5,
    snapshots: Annotated[
        str | None,
        _copies(metavar="PLACE", help="Add dated snapshots of every index to PLACE/NAME, a directory or an address."),
    ] = None,
    snapshot_every: Annotated[
        str, _copies(metavar="DURATION", help="Take a snapshot of each index this often: 15m, 6h or 1d.")
    ] = "1d",
    snapshot_keep: Annotated[int, _copies(help="Keep so many snapshots of an index.")] = 7,
    follow: Annotated[
        str | None,
        _copies(
            metavar="PLACE", help="Restore the newest snapshot of PLACE/NAME into DIR, serve it, and take later ones."
        ),
    ] = None,
    follow_every: Annotated[str, _copies(metavar="DURATION", help="Look for a later snapshot this often.")] = "10s",
    max_message_mb: Annotated[int, _limit(help="Accept requests of up to so many MiB.")] = 16,
    max_queries: Annotated[int, _limit(help="Accept so many queries in one request.")] = 4096,
    max_top_k: Annotated[int, _limit(help="Return at most so many documents in a result.")] = 10_000,
    max_hits: Annotated[int, _limit(help="Return at most so many documents in all results of one request.")] = 500_000,
    max_response_mb: Annotated[
        int, _limit(help="Send responses of up to so many MiB; large ones in flight may have four times as much.")
    ] = 64,
    max_query_chars: Annotated[int, _limit(help="Accept queries of so many characters.")] = 32_768,
    max_document_chars: Annotated[
        int, _limit(help="Store documents whose title and text have up to so many characters.")
    ] = MAX_DOCUMENT_CHARS,
    max_calls: Annotated[int, _limit(help="Answer so many calls at once.")] = 256,
    max_streams: Annotated[int, _limit(help="Run so many ingests and lists at once.")] = 32,
    idle_s: Annotated[float, _limit("--idle", help="End a stream that is idle for so many seconds.")] = 300.0,
    admin_folder: Annotated[
        Path | None,
        _copies(
            help="Let jobs of admins create indexes in this folder, which are served too, and keep snapshots there."
        ),
    ] = None,
    log_level: Annotated[
        LogLevel, option("Log lines of this severity and above: debug, info, warning or error.")
    ] = LogLevel.INFO,
    config_file: Annotated[
        Path | None,
        option(
            "Take options from a TOML file, such as port = 7700; MVINDEX_SERVE_PORT and --port override it.",
            metavar="FILE",
            names=("--config",),
            is_eager=True,
            callback=read_defaults,
        ),
    ] = None,
    device: DeviceOption = None,
    threads: ThreadsOption = None,
) -> None:
    """Serve indexes over gRPC and HTTP, with a search page.

    Logs are JSON lines on stderr. SIGTERM ends the server after the calls in progress. Changed certificates and
    tokens are read within a second, and on SIGHUP.

    Example: mvindex serve --index squad=squad.mvx --http 7780

    Example: mvindex serve --index a=a.mvx --index b=b.mvx --token-file tokens.txt --config serve.toml
    """
    from mvindex.cli.terminal import print_json
    from mvindex.errors import ConfigError
    from mvindex.measure.planning.units import parse_seconds
    from mvindex.plugins import require

    require("grpc", "server", "mvindex serve")
    require("prometheus_client", "server", "mvindex serve")
    from mvindex_connectors.server.config import Limits, ServerConfig, Snapshots, Tls, parse_index
    from mvindex_connectors.server.grpc_middleware import raise_open_files
    from mvindex_connectors.server.lifecycle import Addresses, Server
    from mvindex_connectors.server.telemetry import log_to_stderr

    if not index and admin_folder is None:
        raise typer.BadParameter("--index: expected NAME=DIR at least once, or --admin-folder, got neither")
    if (tls_cert is None) != (tls_key is None) or (tls_client_ca is not None and tls_cert is None):
        raise ConfigError("--tls-cert, --tls-key: expected both (--tls-client-ca needs them too), got one")
    config = ServerConfig(
        indexes=[parse_index(text) for text in index or ()],
        host=host,
        port=port,
        http_port=http,
        tls=None if tls_cert is None or tls_key is None else Tls(cert=tls_cert, key=tls_key, client_ca=tls_client_ca),
        token_file=token_file,
        is_insecure=insecure,
        is_read_only=read_only or follow is not None,
        device=device,
        batch=batch,
        drain_s=drain_s,
        compact_at=compact_at,
        snapshots=None
        if snapshots is None
        else Snapshots(place=snapshots, every_s=parse_seconds("--snapshot-every", snapshot_every), keep=snapshot_keep),
        follow=follow,
        follow_every_s=parse_seconds("--follow-every", follow_every),
        admin_folder=admin_folder,
        limits=Limits(
            message_bytes=max_message_mb << 20,
            queries=max_queries,
            top_k=max_top_k,
            hits=max_hits,
            response_bytes=max_response_mb << 20,
            query_chars=max_query_chars,
            document_chars=max_document_chars,
            calls=max_calls,
            streams=max_streams,
            idle_s=idle_s,
        ),
    )
    log_to_stderr(getattr(logging, log_level.value.upper()))
    raise_open_files()

    def print_addresses(addresses: Addresses) -> None:
        print_json({"grpc": addresses.grpc, "http": addresses.http, "indexes": list(addresses.indexes)})
        sys.stdout.flush()

    _run(Server(config).run(print_addresses))


def _run(server: Coroutine[Any, Any, None]) -> None:
    """Run the server to its end, on uvloop: a quarter of a millisecond less per call."""
    import uvloop

    uvloop.run(server)
