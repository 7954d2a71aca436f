"""How a bundle's model is built again: which script is run, in which folder, and whether it is still the same.

The bundle names files relative to the folder that the training ran in. They are looked for in the working directory
and in the folders above the bundle, so that both can be moved together.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tensonde.errors import UsageError
from tensonde.launch.target import check_syntax


@dataclass(frozen=True, slots=True)
class Plan:
    """A command to start in a folder, and what of the program is not what it was (`changed`: files)."""

    command: list[str]
    folder: Path
    shown: str
    changed: tuple[str, ...] = ()
    factory: str | None = None


def with_factory(name: str) -> Plan:
    module, _, attribute = name.partition(":")
    if not module.replace(".", "_").isidentifier() or not attribute.replace(".", "_").isidentifier():
        raise UsageError(f"the factory {name!r} is not of the form package.module:function.")
    code = "from tensonde.launch.child import replay; replay()"
    return Plan([sys.executable, "-c", code], Path.cwd(), name, factory=name)


def with_script(bundle: Path, document: dict[str, Any], given: Path | None) -> Plan:
    program = document["program"]
    name = program["script"]
    if given is None and name is None:
        raise UsageError(
            "the bundle was made without a script, in a notebook perhaps; give the script with --script, "
            "or a function that builds the model with --factory."
        )
    if given is not None:
        script = given
        if not script.is_file():
            raise UsageError(f"there is no script {given}.")
        folder = _base(script.absolute(), name) if name else Path.cwd()
    else:
        folder = _find(bundle, name, program["files"])
        script = folder / name
    check_syntax(script)
    changed = tuple(
        path for path, checksum in program["files"].items() if _differs(folder / path, checksum, script, name)
    )
    argv = [str(word) for word in program["argv"]]
    module = program["module"]
    if module is not None and given is None:
        if not all(part.isidentifier() for part in module.split(".")):
            raise UsageError(f"the bundle is damaged: its module is {module!r}.")
        command = [sys.executable, "-m", module, *argv]
    else:
        path = os.path.relpath(script, folder)
        command = [sys.executable, str(script) if path.startswith("..") else path, *argv]
    return Plan(command, folder, " ".join(command[1:]), changed)


def _find(bundle: Path, name: str, files: dict[str, Any]) -> Path:
    """The folder to run in: the first where the script is as it was, else the first where it is."""
    places = [folder for folder in _places(bundle) if (folder / name).is_file()]
    if not places:
        raise UsageError(
            f"the script {name} is neither here nor in a folder above the bundle; "
            "go to the folder that the training ran in, or give it with --script."
        )
    return next((folder for folder in places if _checksum(folder / name) == files.get(name)), places[0])


def _places(bundle: Path) -> Iterator[Path]:
    yield Path.cwd()
    yield from bundle.absolute().parents


def _base(script: Path, name: str) -> Path:
    """The folder that `name` is relative to, when `script` is it; else the script's own."""
    parts = Path(os.path.normpath(name)).parts
    return script.parents[len(parts) - 1] if ".." not in parts and script.parts[-len(parts) :] == parts else Path.cwd()


def _differs(path: Path, checksum: Any, script: Path, name: str | None) -> bool:
    known = script if name is not None and path == path.parent / Path(name).name and path.name == script.name else path
    return known.is_file() and _checksum(known) != checksum


def _checksum(path: Path) -> str:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        return ""
