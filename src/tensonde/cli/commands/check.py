"""`tensonde check`: two steps of a training, and whether it trains at all."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

import click
from rich.text import Text

from tensonde.cli.show.outcome import finish, show_finding
from tensonde.cli.show.screen import console, print_json, table
from tensonde.diagnose.analysis.training import ParameterState, parameter_states
from tensonde.diagnose.diagnose import diagnose
from tensonde.launch.supervise import supervise
from tensonde.launch.target import command_line
from tensonde.session.options import Options
from tensonde.store.claim import create_run
from tensonde.store.reader import Rank, Recording

STEPS = 2
_MARKS = {"ok": ("✓", "green"), "problem": ("✗", "bold red"), "unknown": ("?", "yellow")}


@dataclass(frozen=True, slots=True)
class Line:
    """One question about the training. `unknown`: the recording does not say, which is no problem by itself."""

    what: str
    state: Literal["ok", "problem", "unknown"]
    answer: str


@click.command("check", context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.option("--json", "as_json", is_flag=True, help="The answers as JSON.")
@click.option("--steps", type=click.IntRange(1), default=STEPS, show_default=True, help="Optimizer steps to run.")
@click.option(
    "--record", type=click.Path(path_type=Path), metavar="DIR", help="Keep the recording there (default: thrown away)."
)
@click.argument("target", nargs=-1, type=click.UNPROCESSED, required=True)
def check(as_json: bool, steps: int, record: Path | None, target: tuple[str, ...]) -> None:
    """Run two steps of a training: does it train at all?

    No error, a finite loss, a gradient for every trainable parameter, and a change of each. Exit code 0 when it
    trains, 1 when it does not, 2 for wrong use.

    \b
    Examples:
      tensonde check train.py
      tensonde check --json train.py --lr 0.1
    """
    command, script = command_line(target)
    with tempfile.TemporaryDirectory(prefix="tensonde-check-") as scratch:
        parent, name = (record.parent, record.name) if record is not None else (Path(scratch), "run")
        folder = create_run(parent, name, {"script": script, "argv": list(target[1:])})
        code = supervise(
            command, Options(run=str(folder.absolute()), budget=None, steps=steps, quiet=True), quiet_output=as_json
        )
        outcome = finish(folder, code, quiet=True)
        recording = Recording.open(folder)
        lines, parameters = answers(recording, code, steps)
        findings = [finding for finding in diagnose(recording) if finding.severity != "info"]
        trains = all(line.state != "problem" for line in lines)
        if as_json:
            print_json(
                {
                    "trains": trains,
                    "checks": [asdict(line) for line in lines],
                    "parameters": [asdict(state) for state in parameters],
                    "findings": outcome["findings"],
                }
            )
        else:
            _show(lines, parameters, trains)
            for finding in findings[:1]:
                show_finding(console(), finding)
    sys.exit(0 if trains else 1)


def answers(recording: Recording, code: int, wanted: int) -> tuple[list[Line], list[ParameterState]]:
    """Of the process that got furthest, where a launcher started several."""
    if not recording.ranks:
        return [Line("training seen", "problem", "no module was called and no optimizer stepped")], []
    rank = max(recording.ranks, key=lambda rank: int(rank.session.get("steps") or 0))
    states = parameter_states(rank)
    stepped = bool(rank.session.get("steps"))
    trainable = [state for state in states if state.trainable]
    return [
        _error(recording, code),
        _steps(rank, wanted),
        _loss(rank),
        _all("gradients", trainable, [state for state in trainable if not state.gradient], "got a gradient", stepped),
        _all(
            "updates",
            trainable,
            [state for state in trainable if not state.changed and not state.excused],
            "changed",
            stepped,
        ),
    ], states


def _error(recording: Recording, code: int) -> Line:
    raised = [event for event in recording.events if event.get("kind") == "exception"]
    if raised:
        where = raised[0].get("source") or {}
        at = f" at {where['file']}:{where['line']}" if where else ""
        text = str(raised[0].get("message", "")).split("\n")[0][:120]
        return Line("no error", "problem", f"{raised[0]['type']}{at}: {text}")
    if code:
        return Line("no error", "problem", f"the script ended with code {code}")
    return Line("no error", "ok", "the script ran without one")


def _steps(rank: Rank, wanted: int) -> Line:
    done = int(rank.session.get("steps") or 0)
    if done == 0:
        return Line("optimizer steps", "problem", "no optimizer step was taken")
    return Line(
        "optimizer steps",
        "ok",
        f"{done}" + ("" if done >= wanted else f" (the script has no more than that; {wanted} were asked for)"),
    )


def _loss(rank: Rank) -> Line:
    found = rank.scalars("loss").to_pylist()
    if not found:
        return Line("loss finite", "unknown", "no loss was seen: nothing was differentiated")
    values = [float(row["value"]) for row in found]
    bad = [value for value in values if value - value != 0]
    text = ", ".join(f"{value:.6g}" for value in values[:4])
    return Line("loss finite", "problem" if bad else "ok", text)


def _all(what: str, trainable: list[ParameterState], missing: list[ParameterState], verb: str, stepped: bool) -> Line:
    if not stepped:
        return Line(what, "unknown", "no step was taken")
    if not trainable:
        return Line(what, "problem", "there is no trainable parameter")
    excused = sum(state.excused and not state.changed for state in trainable) if what == "updates" else 0
    if not missing:
        return Line(
            what,
            "ok",
            f"all {len(trainable)} trainable parameters {verb}"
            if not excused
            else f"{len(trainable) - excused} of {len(trainable)} trainable parameters {verb}, the others need not",
        )
    return Line(what, "problem", f"{len(missing)} of {len(trainable)} trainable parameters never {verb}")


def _show(lines: list[Line], parameters: list[ParameterState], trains: bool) -> None:
    out = console()
    rows: list[tuple[Text | str, ...]] = []
    for line in lines:
        mark, style = _MARKS[line.state]
        rows.append((Text(mark, style=style), line.what, line.answer))
    out.print(table(("", "check", "answer"), rows))
    wrong = [state for state in parameters if state.why]
    if wrong:
        out.print()
        out.print(table(("parameter", "gradient", "changed", "why"), [_row(state) for state in wrong[:20]]))
        if len(wrong) > 20:
            out.print(f"and {len(wrong) - 20} more", style="dim")
    out.print()
    out.print(Text("it trains" if trains else "it does not train", style="bold green" if trains else "bold red"))


def _row(state: ParameterState) -> tuple[str, ...]:
    yes: Mapping[bool, str] = {True: "yes", False: "no"}
    return (state.name, yes[state.gradient], yes[state.changed], state.why)
