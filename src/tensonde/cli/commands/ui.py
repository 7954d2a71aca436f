"""`tensonde ui`: the hub and the web UI."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import threading
from pathlib import Path
from typing import Any

import click

from tensonde.cli.show.echo import echo
from tensonde.errors import UsageError


@click.command()
@click.option("--port", type=click.IntRange(0, 65535), default=0, show_default=True, help="0 takes any free port.")
@click.option(
    "--host",
    default="127.0.0.1",
    show_default=True,
    help="0.0.0.0 opens it to the network, over TLS; the token is still required.",
)
@click.option("--token", envvar="TENSONDE_HUB_TOKEN", help="The secret that opens the hub (default: a new one).")
@click.option(
    "--tls-cert", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="The certificate for https."
)
@click.option("--tls", is_flag=True, help="Serve https with a certificate made here; the default beyond this machine.")
@click.option("--plain", is_flag=True, help="No TLS, even beyond this machine: whoever can listen gets the token.")
@click.option("--tls-key", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="The certificate's key.")
@click.option(
    "--allow-run",
    is_flag=True,
    help="Let agents that connect to /api/mcp start scripts in this folder (see `tensonde mcp`).",
)
@click.option("--open/--no-open", "show", default=None, help="Open a browser (default: if there is a display).")
@click.option(
    "--companion",
    is_flag=True,
    hidden=True,
    help="Used by `--ui`: print the address, and end with standard input.",
)
@click.argument("given", nargs=-1, type=click.Path(path_type=Path))
def ui(
    port: int,
    host: str,
    token: str | None,
    tls_cert: Path | None,
    tls_key: Path | None,
    tls: bool,
    plain: bool,
    allow_run: bool,
    show: bool | None,
    companion: bool,
    given: tuple[Path, ...],
) -> None:
    """Start the hub and the web UI, for live trainings and recordings (by default, those in this folder).

    \b
    tensonde ui
    tensonde ui runs/a runs/b
    tensonde ui --port 8000 --no-open
    """
    if (tls_cert is None) != (tls_key is None):
        raise UsageError("--tls-cert and --tls-key go together; give both, or none.")
    if token is not None and len(token) < 16:
        raise UsageError(f"a token of {len(token)} characters can be guessed; give at least 16, or none for a new one.")
    if plain and (tls or tls_cert is not None):
        raise UsageError("--plain is without TLS; leave it out, or --tls and --tls-cert.")
    from tensonde.mcp.mount import PATH, Mount
    from tensonde.protocol.address import Address, read_note, remove_note, write_note
    from tensonde.server.serve import is_loopback, serve

    pinned = tls_cert is None and not plain and (tls or not is_loopback(host))
    if pinned:
        from tensonde.server.certificate import own_certificate

        tls_cert, tls_key = own_certificate()
    noted: list[Address] = []
    agents = Mount(next((path for path in given if path.is_dir()), Path()), allow_run=allow_run)

    def ready(address: Address) -> None:
        agents.address = address
        if not companion or read_note() is None:  # a hub that somebody has started stays the one that others find
            noted.append(address)
            write_note(address)
        if companion:
            print(json.dumps({"url": address.url, "token": address.token, "pin": address.pin}), flush=True)
            return
        echo(f"tensonde: the UI is at {address.link}", err=True)
        if address.pin:
            echo(f"tensonde: a browser asks once about its certificate, whose SHA-256 is {address.pin}", err=True)
        echo("tensonde: Ctrl-C ends it; `tensonde run --ui train.py` joins it", err=True)
        if show or (show is None and _has_display()):
            import webbrowser

            webbrowser.open(address.link)

    def prepare(server: Any) -> None:
        if companion:
            threading.Thread(target=_end_with_input, args=(server,), daemon=True).start()

    try:
        serve(
            given or (Path(),),
            host=host,
            port=port,
            token=token,
            certificate=tls_cert,
            key=tls_key,
            pinned=pinned,
            ready=ready,
            prepare=prepare,
            mounts={PATH: agents},
        )
    finally:
        agents.close()
        for address in noted:
            remove_note(address)


def _end_with_input(server: Any) -> None:
    with contextlib.suppress(OSError, ValueError):
        while sys.stdin.read(4096):
            pass
    server.should_exit = True


def _has_display() -> bool:
    return sys.stderr.isatty() and (
        sys.platform == "darwin" or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
    )
