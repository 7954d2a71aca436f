"""`tensonde lr`: the learning-rate schedule of a script, plotted before it trains."""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import click

from tensonde.model.documents import version_of

REHEARSAL = "tensonde.train.rehearsal:rehearse"


@click.command("lr", context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.option("--steps", type=click.IntRange(2), metavar="N", help="Optimizer steps of the whole training.")
@click.option(
    "--epochs", type=click.IntRange(1), metavar="N", help="Epochs of the whole training; the loader tells their length."
)
@click.option(
    "--steps-per-epoch",
    type=click.IntRange(1),
    metavar="N",
    help="Optimizer steps per epoch, if there is no loader to tell.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the rates and the mistakes as JSON.")
@click.argument("target", nargs=-1, type=click.UNPROCESSED, required=True)
def lr(
    steps: int | None, epochs: int | None, steps_per_epoch: int | None, as_json: bool, target: tuple[str, ...]
) -> None:
    """Plot the learning rates that a script would use, and flag the usual mistakes, without training.

    The script runs until its second optimizer step; then its schedulers are simulated, for --steps or --epochs, or for as
    long as they were made for. Exit code 0: nothing is wrong, 1: a mistake, 2: usage error.

    \b
    tensonde lr train.py
    tensonde lr --epochs 90 train.py --lr 0.1
    tensonde lr --epochs 90 --steps-per-epoch 1200 train.py
    tensonde lr --steps 10000 --json train.py
    """
    from tensonde.cli.show.screen import print_json
    from tensonde.errors import TensondeError, UsageError
    from tensonde.launch.supervise import supervise
    from tensonde.launch.target import command_line
    from tensonde.session.options import Options
    from tensonde.store.claim import create_run

    command, script = command_line(target)
    with tempfile.TemporaryDirectory(prefix="tensonde-lr-") as scratch:
        folder = create_run(Path(scratch), "run", {"script": script, "argv": list(target[1:])})
        result = Path(scratch) / "rates.json"
        wanted = {"file": str(result), "steps": steps, "epochs": epochs, "steps_per_epoch": steps_per_epoch}
        options = Options(run=str(folder), budget=0.0, recommended=False, prepare=REHEARSAL, quiet=True)
        code = supervise(command, options, extra={"TENSONDE_LR": json.dumps(wanted)}, quiet_output=True)
        if not result.exists():
            if code:
                sys.exit(code)
            raise TensondeError(
                f"{script} ended before its second optimizer step, so that nothing is known of its schedule."
            )
        found: dict[str, Any] = json.loads(result.read_text())
    asking = [scheduler for scheduler in found["schedulers"] if "ask" in scheduler]
    if asking:
        given = "--epochs" if epochs else "--steps"
        raise UsageError(
            f"{script} iterates no DataLoader, so the length of an epoch is not known, and {given} needs it: "
            f"{asking[0]['type']} is stepped every {asking[0]['stepped']}; add --steps-per-epoch N."
        )
    if as_json:
        print_json({"schema": version_of("rates"), **found})
    else:
        _show(found)
    sys.exit(1 if any(scheduler["mistakes"] for scheduler in found["schedulers"]) else 0)


def _show(found: dict[str, Any]) -> None:
    from tensonde.cli.show.plot import plot
    from tensonde.cli.show.screen import console, plot_width

    out = console()
    if not found["schedulers"]:
        rates = ", ".join(f"{rate:g}" for rate in found["constant"])
        out.print(f"no scheduler: the learning rate is {rates} from beginning to end", markup=False)
    for scheduler in found["schedulers"]:
        if "unknown" in scheduler:
            out.print(f"{scheduler['type']}: {scheduler['unknown']}", markup=False)
            continue
        rates = scheduler["rates"]
        for group in range(len(rates[0])):
            values = [row[group] for row in rates]
            if group and values == [row[0] for row in rates]:
                continue
            title = f"{scheduler['type']}, group {group}, stepped every {scheduler['stepped']}"
            out.print(plot(list(range(len(values))), values, title=title, width=plot_width(out)), markup=False)
        how = (
            ""
            if scheduler["steps_given"]
            else " (as long as it was made for; --steps or --epochs say how long you train)"
        )
        unit = f"{scheduler['unit']}s"
        if scheduler["unit"] == "epoch":
            how += " (no DataLoader tells how many steps an epoch has; --steps-per-epoch does)"
        out.print(
            f"{len(rates)} {unit}{how}: first {rates[0][0]:g}, highest {max(r[0] for r in rates):g}, last {rates[-1][0]:g}",
            markup=False,
        )
        for mistake in scheduler["mistakes"]:
            out.print(f"warning: {mistake}", style="yellow", markup=False)
