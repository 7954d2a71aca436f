"""`tensonde dap`: the debug adapter, for editors."""

from __future__ import annotations

import click


@click.command("dap")
@click.option("--port", type=click.IntRange(0, 65535), metavar="N", help="Listen on this port of this machine (0: any free one) instead of standard input.")  # fmt: skip
@click.option("--once", is_flag=True, help="With --port: end after the first conversation.")
def dap_command(port: int | None, once: bool) -> None:
    """A Debug Adapter Protocol server: debug trainings in your editor.

    \b
    tensonde dap
    tensonde dap --port 5679
    """
    from tensonde.dap.serve import serve_port, serve_stdio

    if port is None:
        serve_stdio()
    else:
        serve_port(port, once=once)
