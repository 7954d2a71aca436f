"""`tensonde debug`: a training under Tensonde, stopped before step 0, with the terminal debugger."""

from __future__ import annotations

import sys
from typing import Any

import click

from tensonde.cli.commands.run import run_target
from tensonde.cli.options import training_options


@click.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@training_options
@click.argument("target", nargs=-1, type=click.UNPROCESSED, required=True)
def debug(target: tuple[str, ...], on_hit: str | None, budget: str | None, **chosen: Any) -> None:
    """Start a training in the terminal debugger, stopped before step 0. The options are those of `tensonde run`.

    \b
    tensonde debug train.py --lr 0.1
    tensonde debug --watch '**:grad norm > 1e3' train.py
    tensonde debug --ui train.py
    tensonde debug --steps 100 --report findings.json train.py
    echo 'break encoder; continue; where' | tensonde debug train.py
    """
    sys.exit(run_target(target, on_hit=on_hit or "pause", budget=budget or "off", debug=True, **chosen))
