"""Several `tensonde run` of one training, one per node or per rank, that write into one recording.

A launcher gives all of its processes the same id: srun a job and a step, torchrun a run id. Commands with one id that are given the same
folder, which all of them can reach, join: the first makes the recording, watches the ranks and diagnoses; the others only add to it.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tensonde.errors import UsageError
from tensonde.store.claim import create_run
from tensonde.store.files import dump_json, replace_file
from tensonde.store.format import MANIFEST
from tensonde.store.liveness import alive, identity, machine

PARTS = "parts"
APPEARS = 10.0
"""Seconds in which the manifest appears of a folder that another command has just made."""
PATIENCE = 15.0
"""Seconds that the first command waits for the others when its own program has ended. Ranks that wait for ended ones never end."""
MOST_RUNS = 100


def launcher_id(words: tuple[str, ...], environment: Mapping[str, str] | None = None) -> str | None:
    """What all commands of this training have in common; None where this one is the only one, or nothing tells."""
    given = os.environ if environment is None else environment
    step, tasks = given.get("SLURM_STEP_ID", ""), given.get("SLURM_STEP_NUM_TASKS", "")
    if step.isdigit() and tasks.isdigit() and int(tasks) > 1 and given.get("SLURM_JOB_ID"):
        restarts = given.get("SLURM_RESTART_COUNT", "0")
        return f"slurm-{given['SLURM_JOB_ID']}.{step}" + (f"-restart{restarts}" if restarts not in ("", "0") else "")
    run = given.get("TORCHELASTIC_RUN_ID", "")
    if run and given.get("WORLD_SIZE", "1") != "1":
        # torchrun calls every run "none" that was given no id; its store's address tells two of them apart
        return f"torchrun-{run}" + (f"-{given.get('MASTER_PORT', '')}" if run == "none" else "")
    return _of_torchrun(words)


def _of_torchrun(words: tuple[str, ...]) -> str | None:
    """`tensonde run torchrun --nnodes 2 --rdzv-id ID ...` on each node."""
    name = Path(words[0]).name if words else ""
    if name != "torchrun" and words[:2] not in (("-m", "torch.distributed.run"), ("-m", "torch.distributed.launch")):
        return None
    options: dict[str, str] = {}
    for word, following in zip(words[1:], (*words[2:], ""), strict=True):
        key, equals, value = word.partition("=")
        options.setdefault(key.lstrip("-").replace("_", "-"), value if equals else following)
    nodes, run = options.get("nnodes", "1"), options.get("rdzv-id", "")
    return f"torchrun-{run}" if nodes.split(":")[-1] not in ("", "1") and run not in ("", "none") else None


@dataclass(frozen=True, slots=True)
class Place:
    """A run's folder; `part` is the note of a command that has joined it, None for the one that made it."""

    folder: Path
    part: Path | None = None
    name: str = ""
    """The launcher's id."""

    @property
    def is_first(self) -> bool:
        return self.part is None

    def ended(self, code: int) -> None:
        """Said by a command that has joined, for the first one. Never raises."""
        if self.part is not None:
            try:
                replace_file(self.part, dump_json({**json.loads(self.part.read_bytes()), "exit_code": code}) + b"\n")
            except (OSError, ValueError):
                pass  # the first command waits in vain for some seconds

    def wait_for_others(self, code: int) -> int:
        """Until those that have joined have ended, for some seconds. The exit code of the training: the first that is not 0."""
        until = time.monotonic() + PATIENCE
        while True:
            parts = self._parts()
            if all("exit_code" in part or _dead(part) for part in parts) or time.monotonic() > until:
                break
            time.sleep(0.1)
        return code or next((int(part["exit_code"]) for part in parts if part.get("exit_code")), 0)

    def _parts(self) -> list[dict[str, Any]]:
        found = []
        for path in sorted((self.folder / PARTS).glob("*.json")):
            try:
                found.append(json.loads(path.read_bytes()))
            except (OSError, ValueError):
                continue
        return found


def _dead(part: Mapping[str, Any]) -> bool:
    """Its process has gone without a word. Of a process on another machine, nothing is known."""
    return part.get("boot") == machine() and not alive(part)


def join_or_create(parent: Path, name: str | None, manifest: Mapping[str, Any], launcher: str) -> Place:
    """The recording of this training: joined where another of its commands has made it, else made. A recording that has ended is
    another training's, which had the same id: without a name, the next number is tried. Raises UsageError and OSError."""
    stem = re.sub(r"[^\w.-]+", "-", f"{Path(str(manifest.get('script', 'run'))).stem}-{launcher}").strip("-.")
    for number in range(1, MOST_RUNS):
        chosen = name if name is not None else stem if number == 1 else f"{stem}-{number}"
        try:
            return Place(create_run(parent, chosen, {**manifest, "job": launcher}), name=launcher)
        except UsageError:
            found = _manifest(parent / chosen)
            if found is not None and found.get("job") == launcher and "exit_code" not in found:
                return Place(parent / chosen, _join(parent / chosen), launcher)
            if name is not None:
                raise
    raise UsageError(f"{parent} has {MOST_RUNS} recordings of {launcher}; choose another place with --record.")


def _manifest(folder: Path) -> dict[str, Any] | None:
    until = time.monotonic() + APPEARS
    while True:
        try:
            found = json.loads((folder / MANIFEST).read_bytes())
            return found if isinstance(found, dict) else None
        except (OSError, ValueError):
            if not any(folder.glob(f"{MANIFEST}*")) or time.monotonic() > until:
                return None
            time.sleep(0.05)


def _join(folder: Path) -> Path:
    (folder / PARTS).mkdir(exist_ok=True)
    own = identity()
    path = folder / PARTS / f"{own['boot'][:8]}-{own['pid']}.json"
    path.write_bytes(dump_json(own) + b"\n")
    return path
