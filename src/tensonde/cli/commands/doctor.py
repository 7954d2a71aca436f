"""`tensonde doctor`: whether this environment has what Tensonde needs, and what Tensonde changes in a framework."""

from __future__ import annotations

import os
import platform
import sys
from pathlib import Path
from typing import Any

import click

from tensonde.adapters import devices
from tensonde.adapters.capabilities import lacks
from tensonde.adapters.registry import ADAPTERS, adapter_of, installed
from tensonde.cli.show.screen import console, print_json, table
from tensonde.model.documents import version_of
from tensonde.version import __version__


@click.command()
@click.option("--seams", is_flag=True, help="List everything that Tensonde replaces in the framework, and why.")
@click.option("--json", "as_json", is_flag=True, help="Print it as JSON.")
def doctor(seams: bool, as_json: bool) -> None:
    """Check this environment: versions, the kernel, the framework, and whether recordings can be written.

    Exit code 0: everything is there, 1: something is missing.

    \b
    tensonde doctor
    tensonde doctor --seams
    tensonde doctor --json
    """
    found = examine()
    if as_json:
        print_json({"schema": version_of("environment"), **found})
    else:
        _show(found, seams=seams)
    sys.exit(1 if found["problems"] else 0)


def examine() -> dict[str, Any]:
    from tensonde.digest import kernel_name

    kernel = kernel_name()
    problems = []
    if kernel == "numpy":
        problems.append(
            "The C kernel is missing, so digests are slow. Install a C compiler and install Tensonde again."
        )
    frameworks: dict[str, Any] = {}
    for name in installed():
        try:
            seen = adapter_of(name).examine()
        except Exception as problem:
            problems.append(f"{name} is installed but cannot be watched: {type(problem).__name__}: {problem}")
            continue
        frameworks[name] = {
            "version": seen.version,
            "missing": seen.missing,
            "lacks": dict(lacks(name)),
            "replaced": seen.replaced,
            "device": seen.device,
            "not_there": devices.lacks(seen.device) if seen.device else [],
            "untested_there": devices.lacks(seen.device, "untested") if seen.device else [],
        }
        problems += [f"{name} {seen.version} has no {gone}: {then}." for gone, then in seen.missing.items()]
    if not frameworks and not problems:
        problems.append(f"No framework is installed. Tensonde watches {', '.join(ADAPTERS)}.")
    if not _writable(Path(".tensonde")):
        problems.append("Recordings cannot be written to .tensonde in this folder. Choose another one with --record.")
    return {
        "tensonde": __version__, "python": platform.python_version(), "platform": platform.platform(), "kernel": kernel,
        "processors": os.cpu_count(), "frameworks": frameworks, "problems": problems,
    }  # fmt: skip


def _writable(folder: Path) -> bool:
    """Whether it can be written to, or made."""
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    return folder.is_dir() and os.access(folder, os.W_OK)


def _show(found: dict[str, Any], *, seams: bool) -> None:
    screen = console()
    rows = [
        ("Tensonde", found["tensonde"]),
        ("Python", f"{found['python']} on {found['platform']}"),
        ("kernel", found["kernel"]),
    ]
    for name, seen in found["frameworks"].items():
        rows.append(
            (name, f"{seen['version']}, {len(seen['replaced'])} attributes replaced while a training is watched")
        )
        rows += [("", f"not for {name}: {text}") for text in seen["lacks"].values()]
        if seen["device"]:
            there = devices.NAMES[seen["device"]]
            rows.append(("", f"device: {there}"))
            rows += [("", f"not on {there}: {text}") for text in seen["not_there"]]
            rows += [("", f"has not run on {there} yet: {text}") for text in seen["untested_there"]]
    for name, value in rows:
        screen.print(f"{name:<10}{value}", markup=False)
    for name, seen in found["frameworks"].items() if seams else ():
        screen.print()
        screen.print(table((f"replaced in {name}", "in order to"), seen["replaced"].items()))
    for problem in found["problems"]:
        screen.print(f"✗ {problem}", markup=False)
    if not found["problems"]:
        screen.print("Nothing is missing.")
