"""`tensonde diagnose`: the findings of a recording again, offline."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click

from tensonde.cli.show.outcome import grouped, show_finding
from tensonde.cli.show.screen import Screen
from tensonde.diagnose.diagnose import diagnose
from tensonde.diagnose.report import report
from tensonde.store.reader import Recording


@click.command("diagnose")
@click.argument("recording", type=click.Path(path_type=Path), default=Path())
@click.option("--json", "as_json", is_flag=True, help="The report as JSON.")
def diagnose_command(recording: Path, as_json: bool) -> None:
    """Findings of a recording, again. Exit code 1 when there is an error or a warning.

    \b
    tensonde diagnose
    tensonde diagnose .tensonde/runs/demo --json
    """
    opened = Recording.open(recording)
    findings = diagnose(opened)
    if as_json:
        click.echo(json.dumps(report(opened, findings, exit_code=None), indent=2))
    else:
        console = Screen(highlight=False)
        for finding, depth in grouped(findings):
            show_finding(console, finding, indent=2 * depth)
        if not findings:
            console.print("no problem found")
    sys.exit(1 if any(finding.severity != "info" for finding in findings) else 0)
