"""`tensonde debug`: a training under Tensonde, stopped before step 0, with the terminal debugger."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from tensonde.cli.run import run_target


@click.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.option(
    "--watch",
    "watch_texts",
    multiple=True,
    metavar="'SITE CONDITION'",
    help="Pause where a condition holds; repeatable.",
)
@click.option(
    "--budget",
    metavar="5%|off|0",
    default="off",
    show_default=True,
    help="Share of the step time that Tensonde may take.",
)
@click.option("--record", type=click.Path(path_type=Path), metavar="DIR", help="Where the recording goes.")
@click.option("--ui", is_flag=True, help="Stop for the web UI (or `tensonde attach`) instead of this terminal.")
@click.option("--no-recommended", is_flag=True, help="Only your own watchpoints.")
@click.argument("target", nargs=-1, type=click.UNPROCESSED, required=True)
def debug(
    watch_texts: tuple[str, ...],
    budget: str,
    record: Path | None,
    ui: bool,
    no_recommended: bool,
    target: tuple[str, ...],
) -> None:
    """Run a training stopped before step 0, in the terminal debugger.

    \b
    tensonde debug train.py --lr 0.1
    tensonde debug --watch '**:grad norm > 1e3' train.py
    tensonde debug --ui train.py
    echo 'break encoder; continue; where' | tensonde debug train.py
    """
    code = run_target(
        target, watch_texts=watch_texts, on_hit="pause", budget=budget, record=record,
        recommended=not no_recommended, debug=True, ui=ui,
    )  # fmt: skip
    sys.exit(code)
