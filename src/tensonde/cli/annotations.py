"""`--sarif` and `--github`: findings where a pull request is looked at."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from tensonde.cli.show.echo import echo
from tensonde.errors import UsageError

SARIF = click.option("--sarif", "sarif_file", type=click.Path(path_type=Path), metavar="FILE", help="Write findings as SARIF 2.1.0, which annotates pull requests.")  # fmt: skip
GITHUB = click.option("--github", is_flag=True, help="Print findings as GitHub Actions annotations, on standard error.")


def check_writable(path: Path, what: str = "report") -> None:
    """Better to hear it before a training of hours than after."""
    if path.is_dir():
        raise UsageError(f"the {what} cannot be written to {path}: it is a folder.")
    if not path.parent.is_dir():
        raise UsageError(f"the {what} cannot be written to {path}: the folder {path.parent} does not exist.")


def annotate(report: dict[str, Any], sarif_file: Path | None, github: bool) -> None:
    """After the training, which ran in this folder."""
    if sarif_file is None and not github:
        return
    from tensonde.diagnose.sarif import commands, repository, sarif

    folder = Path.cwd()
    root = repository(folder)
    if sarif_file is not None:
        try:
            sarif_file.write_text(json.dumps(sarif(report, folder, root), indent=2) + "\n")
        except OSError as problem:
            raise UsageError(f"the SARIF file cannot be written to {sarif_file}: {problem.strerror}.") from None
    if github:
        for line in commands(report, folder, root):
            echo(line, err=True)
