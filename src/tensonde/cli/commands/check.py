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

from tensonde.cli.annotations import GITHUB, SARIF, annotate, check_writable
from tensonde.cli.show.health import answer_row, health_rows
from tensonde.cli.show.memory import memory_json, show_memory
from tensonde.cli.show.outcome import finish, show_finding
from tensonde.cli.show.screen import console, error_console, print_json, table
from tensonde.diagnose.analysis.health import Health, health_of
from tensonde.diagnose.analysis.training import ParameterState, parameter_states
from tensonde.diagnose.case import Case
from tensonde.diagnose.diagnose import diagnose
from tensonde.errors import UsageError
from tensonde.launch.supervise import supervise
from tensonde.launch.target import command_line
from tensonde.model.documents import version_of
from tensonde.model.facts import MemoryFact
from tensonde.session.options import Options, parse_size
from tensonde.store.claim import create_run
from tensonde.store.reader import Rank, Recording

STEPS = 2
MEMORY_STEPS = 4
"""Three that are measured, and one of which half a batch is run again."""
EXPERIMENTS = 20.0
"""Seconds of processor time that they may take, at most."""


@dataclass(frozen=True, slots=True)
class Line:
    """One question about the training. `unknown`: the recording does not say, which is no problem by itself."""

    what: str
    state: Literal["ok", "problem", "unknown"]
    answer: str


@click.command("check", context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.option("--json", "as_json", is_flag=True, help="The answers as JSON.")
@click.option("--steps", type=click.IntRange(1), help="Optimizer steps to run (default 2; with --memory 4).")
@click.option(
    "--memory", is_flag=True, help="Instead, show how much memory the training takes, by kind, module and line."
)
@click.option(
    "--limit", metavar="8G", help="With --memory: whether the training fits into this, and which batch would."
)
@click.option(
    "--record", type=click.Path(path_type=Path), metavar="DIR", help="Keep the recording there (default: delete it)."
)
@SARIF
@GITHUB
@click.argument("target", nargs=-1, type=click.UNPROCESSED, required=True)
def check(
    as_json: bool,
    steps: int | None,
    memory: bool,
    limit: str | None,
    record: Path | None,
    sarif_file: Path | None,
    github: bool,
    target: tuple[str, ...],
) -> None:
    """Run two steps of a training: does it train at all?

    It checks for errors, a finite loss, a gradient for every trainable parameter, and a change in each. Experiments then ask: is the
    model better than a constant, does every input matter, is each sample independent of the others. Exit code 0: it trains,
    1: it does not, 2: usage error.

    \b
    Examples:
      tensonde check train.py
      tensonde check --json train.py --lr 0.1
      tensonde check --memory --limit 8G train.py
      tensonde check --github --sarif findings.sarif train.py
    """
    if limit is not None and not memory:
        raise UsageError("--limit goes with --memory.")
    room = parse_size(limit) if limit is not None else None
    steps = steps or (MEMORY_STEPS if memory else STEPS)
    command, script = command_line(target)
    if sarif_file is not None:
        check_writable(sarif_file, "SARIF file")
    with tempfile.TemporaryDirectory(prefix="tensonde-check-") as scratch:
        parent, name = (record.parent, record.name) if record is not None else (Path(scratch), "run")
        folder = create_run(parent, name, {"script": script, "argv": list(target[1:])})
        code = supervise(
            command,
            Options(
                run=str(folder.absolute()),
                budget=0.0 if memory else None,
                steps=steps,
                quiet=True,
                experiments=0.0 if memory else EXPERIMENTS,
                memory=memory,
            ),
            quiet_output=as_json,
        )
        outcome = finish(folder, code, quiet=True)
        recording = Recording.open(folder)
        if memory:
            sys.exit(_memory(recording, code, room, as_json))
        lines, parameters = answers(recording, code, steps)
        asked = health_of(recording)
        findings = [finding for finding in diagnose(recording) if finding.severity != "info"]
        trains = all(line.state != "problem" for line in lines)
        if as_json:
            print_json(
                {
                    "schema": version_of("check"),
                    "trains": trains,
                    "checks": [asdict(line) for line in lines],
                    "health": [asdict(row) for row in asked],
                    "parameters": [asdict(state) for state in parameters],
                    "findings": outcome["findings"],
                }
            )
        else:
            _show(lines, asked, parameters, trains)
            for finding in findings[:1]:
                show_finding(console(), finding)
        annotate(outcome, sarif_file, github)
    sys.exit(0 if trains else 1)


def _memory(recording: Recording, code: int, limit: int | None, as_json: bool) -> int:
    """Exit code 0: it fits, or no limit was given. Of the process that takes most, where a launcher started several."""
    facts = [fact for rank in recording.ranks if (fact := Case(rank).facts.memory) is not None]
    fact = max(
        facts, key=lambda fact: fact.peak, default=MemoryFact(why="no module was called and no optimizer stepped")
    )
    if as_json:
        print_json(memory_json(fact, limit))
    else:
        show_memory(fact, limit)
    if code:
        for finding in diagnose(recording)[:1]:
            show_finding(error_console(), finding)
    return int(bool(code) or not fact.peak or (limit is not None and fact.peak > limit))


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


def _show(lines: list[Line], asked: list[Health], parameters: list[ParameterState], trains: bool) -> None:
    out = console()
    rows = [answer_row(line.state, line.what, line.answer) for line in lines] + health_rows(asked)
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
