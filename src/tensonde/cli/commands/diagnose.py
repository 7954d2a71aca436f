"""`tensonde diagnose`: the findings of a recording again, offline."""

from __future__ import annotations

import json
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

import click

from tensonde.cli.commands.replay import find_bundle, perform
from tensonde.cli.rebuilding import with_script
from tensonde.cli.show.health import health_rows
from tensonde.cli.show.outcome import grouped, show_finding
from tensonde.cli.show.screen import Screen, console, print_json, table
from tensonde.diagnose.analysis.health import Health, health_of
from tensonde.diagnose.diagnose import diagnose
from tensonde.diagnose.report import report
from tensonde.errors import UsageError
from tensonde.model.documents import version_of
from tensonde.store.bundles import read_bundle
from tensonde.store.claim import create_run
from tensonde.store.reader import Recording

SECONDS = 60.0
"""Of processor time, for the experiments on a saved step."""


@click.command("diagnose")
@click.argument("recording", type=click.Path(path_type=Path), default=Path())
@click.option("--json", "as_json", is_flag=True, help="The report as JSON.")
@click.option("--experiment", is_flag=True, help="Run all experiments on a saved step, in a separate process.")
@click.option("--step", type=click.IntRange(0), metavar="N", help="With --experiment: which saved step.")
@click.option(
    "--script", type=click.Path(path_type=Path), help="With --experiment: the script, if Tensonde does not find it."
)
def diagnose_command(recording: Path, as_json: bool, experiment: bool, step: int | None, script: Path | None) -> None:
    """Diagnose a recording again. Exit code 1: there is an error or a warning.

    \b
    tensonde diagnose
    tensonde diagnose .tensonde/runs/demo --json
    tensonde diagnose --experiment --step 37       all experiments on a saved step
    """
    if not experiment and (step is not None or script is not None):
        raise UsageError("--step and --script are for --experiment.")
    if experiment:
        asked = _asked(recording, step, script)
        if as_json:
            print_json({"schema": version_of("experiment"), "health": [asdict(row) for row in asked]})
        else:
            console().print(table(("", "question", "answer"), health_rows(asked)))
        sys.exit(1 if any(row.state == "problem" for row in asked) else 0)
    opened = Recording.open(recording)
    findings = diagnose(opened)
    if as_json:
        click.echo(json.dumps(report(opened, findings, exit_code=None), indent=2))
    else:
        screen = Screen(highlight=False)
        for finding, depth in grouped(findings):
            show_finding(screen, finding, indent=2 * depth)
        if not findings:
            screen.print("no problem found")
    sys.exit(1 if any(finding.severity != "info" for finding in findings) else 0)


def _asked(source: Path, step: int | None, script: Path | None) -> list[Health]:
    """The answers of a saved step: the script builds the model again, and the step is computed with changes."""
    bundle = find_bundle(source, step, None)
    document = read_bundle(bundle)
    plan = with_script(bundle, document, script)
    with tempfile.TemporaryDirectory(prefix="tensonde-experiment-") as scratch:
        folder = create_run(Path(scratch), "experiment", {"script": plan.shown, "argv": document["program"]["argv"]})
        outcome = perform(plan, bundle, folder, experiments=SECONDS)
        if not outcome["reproduced"]:
            raise UsageError(f"step {document['step']} does not come out as it did, so that it cannot be asked.")
        return health_of(Recording.open(folder))
