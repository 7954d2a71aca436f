"""`tensonde replay`: a saved step again, op by op, in a process of its own."""

from __future__ import annotations

import json
import os
import secrets
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import click

from tensonde.cli.rebuilding import Plan, with_factory, with_script
from tensonde.cli.show.replayed import show_replay
from tensonde.cli.show.screen import console, error_console, print_json
from tensonde.diagnose.diagnose import diagnose
from tensonde.diagnose.report import report
from tensonde.errors import UsageError
from tensonde.launch.supervise import supervise
from tensonde.model.documents import version_of
from tensonde.session.options import Options
from tensonde.store.bundles import DOCUMENT, bundles_in, read_bundle
from tensonde.store.claim import create_run
from tensonde.store.reader import Recording

RESULT = "replay.json"


@click.command()
@click.argument("source", metavar="BUNDLE|RECORDING", type=click.Path(path_type=Path), default=Path())
@click.option("--step", type=click.IntRange(0), metavar="N", help="The bundle of this step (default: the first).")
@click.option("--rank", type=click.IntRange(0), metavar="N", help="The bundle of this rank (default: the first).")
@click.option(
    "--script", type=click.Path(path_type=Path), help="The script that builds the model, if Tensonde does not find it."
)
@click.option(
    "--factory",
    metavar="PACKAGE.MODULE:FUNCTION",
    help="A function that returns the model, to use instead of the script.",
)
@click.option("--output", type=click.Path(path_type=Path), metavar="DIR", help="Keep the new recording here.")
@click.option("--ops", type=click.IntRange(0), default=None, metavar="N", help="How many ops to list (default: those around the first bad one; 0: none).")  # fmt: skip
@click.option("--debug", is_flag=True, help="Go through the step in the terminal debugger.")
@click.option("--json", "as_json", is_flag=True, help="The result as JSON.")
def replay(
    source: Path, step: int | None, rank: int | None, script: Path | None, factory: str | None, output: Path | None,
    ops: int | None, debug: bool, as_json: bool,
) -> None:  # fmt: skip
    """Rerun the step in a bundle, op by op, and say whether the result is the same.

    The script runs up to its first call of the model; then the bundle's weights, inputs and random numbers
    take over, and the process ends before the script continues. Exit code 0: reproduced, 1: not.

    \b
    tensonde replay                                   the newest recording's first bundle
    tensonde replay .tensonde/runs/demo --step 37
    tensonde replay bundles/step37 --factory package.model:build
    tensonde replay demo --json
    """
    if debug and as_json:
        raise UsageError("--debug talks to you and --json to a program; give one of them.")
    if script is not None and factory is not None:
        raise UsageError("--script and --factory both build the model; give one of them.")
    bundle = find_bundle(source, step, rank)
    document = read_bundle(bundle)
    plan = with_factory(factory) if factory is not None else with_script(bundle, document, script)
    err = error_console()
    err.print(f"tensonde: step {document['step']} ({document['trigger']}): {_said(plan)}", markup=False)  # fmt: skip
    for path in plan.changed[:5]:
        err.print(f"tensonde: {path} has changed since the bundle was made", style="yellow", markup=False)
    with tempfile.TemporaryDirectory(prefix="tensonde-replay-") as scratch:
        folder = _new_run(output, Path(scratch), document, plan)
        outcome = perform(plan, bundle, folder, debug=debug)
        recording = Recording.open(folder)
        findings = diagnose(recording)
        if as_json:
            whole = report(recording, findings, exit_code=None)
            result = {"schema": version_of("replay"), "bundle": str(bundle), "step": document["step"], "trigger": document["trigger"], **outcome, "changed": list(plan.changed), "findings": whole["findings"], "recording": str(folder) if output else None}  # fmt: skip
            print_json(result)
        else:
            show_replay(console(), document, outcome, recording, findings, ops)
    sys.exit(0 if outcome["reproduced"] else 1)


def perform(plan: Plan, bundle: Path, folder: Path, *, debug: bool = False, experiments: float = 0.0) -> dict[str, Any]:
    """What came out; UsageError where the step did not run at all."""
    options = Options(run=str(folder.absolute()), budget=None, replay=str(bundle.absolute()), quiet=True, debug=debug, bundle_bytes=0, factory=plan.factory, experiments=experiments)  # fmt: skip
    code = supervise(plan.command, options, extra=_alone(), quiet_output=True, folder=plan.folder)
    path = folder / RESULT
    if not path.exists():
        raise UsageError(
            f"`{plan.shown}` ended with exit code {code} before it called the model of the bundle, "
            "so the step could not be replayed; see its output above."
        )
    outcome: dict[str, Any] = json.loads(path.read_text())
    if outcome["outcome"] != "performed":
        raise UsageError(f"the step cannot be replayed: {outcome['why'].rstrip('.')}.")
    return outcome


def _alone() -> dict[str, str]:
    """One process is the whole world, also for a script that a launcher had started on several ranks."""
    if "MASTER_ADDR" in os.environ:
        return {}
    import socket

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    return {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "LOCAL_WORLD_SIZE": "1"}  # fmt: skip


def find_bundle(source: Path, step: int | None, rank: int | None) -> Path:
    """A bundle's folder, or a recording's first that fits. Raises UsageError with the reason why there is none."""
    if (source / DOCUMENT).exists():
        return source
    if source.name == DOCUMENT and source.exists():
        return source.parent
    if source.is_dir() and source.parent.name == "bundles":
        raise UsageError(f"{source} is not a bundle: there is no {DOCUMENT} in it.")
    recording = Recording.open(source)
    found = [path for process in recording.ranks if rank in (None, process.rank) for path in bundles_in(process.folder)]
    fitting = [path for path in found if step is None or path.name.removeprefix("step").partition("-")[0] == str(step)]
    if fitting:
        return fitting[0]
    if found:
        known = ", ".join(sorted({path.name.removeprefix("step").partition("-")[0] for path in found}, key=int))
        raise UsageError(f"{source} has no bundle of step {step}; it has those of step {known}.")
    raise UsageError(f"{source} has no bundle: {_why_none(recording)}")


def _why_none(recording: Recording) -> str:
    for event in recording.events:
        if event["kind"] in ("replay_impossible", "bundle_declined"):
            what = "could not be replayed" if event["kind"] == "replay_impossible" else "was not saved"
            return f"step {event.get('step')} {what}, because {event.get('why')}."
    return "one is saved when a loss or a gradient is not finite, when a loss leaps, or for a step that `tensonde run --save-step N` names."


def _new_run(output: Path | None, scratch: Path, document: dict[str, Any], plan: Plan) -> Path:
    manifest = {"script": document["program"]["script"] or plan.shown, "argv": document["program"]["argv"]}
    if output is None:
        return create_run(scratch, f"replay-{time.strftime('%H%M%S')}-{secrets.token_hex(2)}", manifest)
    try:
        return create_run(output.parent, output.name, manifest)
    except OSError as problem:
        raise UsageError(f"the recording cannot be made in {output}: {problem.strerror}.") from None


def _said(plan: Plan) -> str:
    if plan.factory is not None:
        return f"with the model that {plan.factory} gives"
    folder = "." if plan.folder == Path.cwd() else str(plan.folder)
    return f"running `{plan.shown}` in {folder} up to its first call of the model"
