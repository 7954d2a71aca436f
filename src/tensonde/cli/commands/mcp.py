"""`tensonde mcp`: Tensonde's tools for coding agents."""

from __future__ import annotations

from pathlib import Path

import click


@click.command("mcp")
@click.option("--folder", type=click.Path(exists=True, file_okay=False, path_type=Path), default=Path(), help="Where scripts and runs are (default: here). Nothing outside it is read or run.")  # fmt: skip
@click.option(
    "--allow-run", is_flag=True, help="Let agents start scripts in the folder. Without it, they can only look."
)
@click.option("--hub", "url", metavar="URL", help="Use this hub (default: start one when needed).")
def mcp_command(folder: Path, allow_run: bool, url: str | None) -> None:
    """A Model Context Protocol server on standard input and output, for coding agents.

    \b
    tensonde mcp
    tensonde mcp --allow-run --folder .
    """
    from tensonde.mcp.server import serve_stdio
    from tensonde.protocol.address import Address

    serve_stdio(folder, allow_run=allow_run, hub=Address.parse(url) if url else None)
