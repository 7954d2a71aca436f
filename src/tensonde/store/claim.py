"""Who may write where: a run's folder and each rank's folder is made once, by one process, and never
overwritten."""

from __future__ import annotations

import json
import os
import re
import secrets
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tensonde.errors import UsageError
from tensonde.store.files import dump_json, replace_file
from tensonde.store.format import FORMAT_VERSION, MANIFEST, TEMPORARY
from tensonde.version import __version__


def default_name(script: str) -> str:
    """`train-20260729-141502-3fa9`: the script, the time, and four digits against two runs in one second."""
    stem = re.sub(r"[^\w.-]+", "-", Path(script).stem).strip("-.") or "run"
    return f"{stem}-{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(2)}"


def create_run(parent: Path, name: str | None, manifest: Mapping[str, Any]) -> Path:
    """Make `parent/name` (a default name if None) with its manifest, and return it.

    `manifest` should hold `script` and `argv`; format, id, tensonde and started are added. An empty folder is
    taken over; one with anything in it is refused with UsageError, also when two processes ask at once.
    Raises OSError.
    """
    folder = Path(parent) / (name if name is not None else default_name(str(manifest.get("script", "run"))))
    taken = f"{folder} already exists and is not empty; choose another name, or remove it first"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise UsageError(taken)
    except (FileExistsError, NotADirectoryError) as error:
        raise UsageError(f"{folder} cannot be made into a recording: a file is in the way") from error
    content = {
        **manifest,
        "format": FORMAT_VERSION,
        "id": str(manifest.get("id") or secrets.token_hex(8)),
        "tensonde": __version__,
        "started": str(manifest.get("started") or datetime.now(UTC).isoformat(timespec="milliseconds")),
    }
    draft = folder / f"{MANIFEST}.{os.getpid()}{TEMPORARY}"
    try:
        draft.write_bytes(dump_json(content, indent=2) + b"\n")
        os.link(draft, folder / MANIFEST)  # atomic, and fails if another process was first
    except FileExistsError as error:
        raise UsageError(taken) from error
    except PermissionError:  # a file system without hard links
        with open(folder / MANIFEST, "xb") as file:
            file.write(draft.read_bytes())
    finally:
        draft.unlink(missing_ok=True)
    return folder


def note_exit(run: Path, code: int) -> None:
    """Add the exit code, which only the supervisor knows, to the manifest. Raises OSError, ValueError."""
    path = Path(run) / MANIFEST
    replace_file(path, dump_json({**json.loads(path.read_bytes()), "exit_code": code}, indent=2) + b"\n")


def claim_rank(run: Path, rank: int) -> Path:
    """Make and return this process's own folder in `run`: `rank0`, or `rank0-<pid>` if that is taken. Raises
    OSError.

    Safe between processes: each gets another folder. A process that asks twice gets `rank0-<pid>-2` and so
    on.
    """
    pid = os.getpid()
    for suffix in ("", f"-{pid}", *(f"-{pid}-{n}" for n in range(2, 1000))):
        folder = Path(run) / f"rank{rank}{suffix}"
        try:
            folder.mkdir()
            return folder
        except FileExistsError:
            continue
    raise UsageError(f"{run} holds a thousand folders of rank {rank} for process {pid}; start a new run")
