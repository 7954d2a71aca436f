"""Opens a session for this process, and says at the end how much of the training was looked at."""

from __future__ import annotations

import logging
import os
import platform
import sys
from pathlib import Path
from typing import Any

import mindspore

from tensonde.adapters.mindspore.dump import Dump
from tensonde.adapters.mindspore.run.pynative import PyNative
from tensonde.digest import kernel_name
from tensonde.program.lines import display_path, working_directory
from tensonde.session.dump.settings import DumpSettings
from tensonde.session.ending import prepare_for_the_end
from tensonde.session.options import Options
from tensonde.session.policy import Level
from tensonde.session.session import Session
from tensonde.store.claim import claim_rank

log = logging.getLogger("tensonde.dump")


def open_training(options: Options) -> PyNative:
    from tensonde.adapters.mindspore.seams.place import differentiating

    rank, world = rank_of_process()
    folder = claim_rank(Path(options.run), rank)
    facts = {
        "rank": rank,
        "world_size": world,
        "pid": os.getpid(),
        "framework": f"mindspore {mindspore.__version__}",
        "python": platform.python_version(),
        "device": str(mindspore.get_context("device_target")).lower(),
        "cpu_threads": os.cpu_count() or 1,
        "script": display_path(sys.argv[0]) if sys.argv and sys.argv[0] else "",
        "cwd": working_directory(),
        "host": platform.node(),
        "kernel": kernel_name(),
        "options": {"budget": options.budget, "watches": [list(watch) for watch in options.watches]},
    }
    session = Session(options, folder, facts, rank=rank)
    prepare_for_the_end(folder, session.whereabouts)
    training = PyNative(session, differentiating)
    if options.dump is not None:
        _open_dump(training, options.dump, rank)
    return training


def _open_dump(training: PyNative, content: dict[str, Any], rank: int) -> None:
    """A dump that cannot be made is said and done without: the training is watched all the same."""
    try:
        settings = DumpSettings.from_json(content)
        if settings.ranks is None or rank in settings.ranks:
            training.dump = Dump(training, settings, rank)
            training.refresh()
    except Exception as problem:
        if os.environ.get("TENSONDE_STRICT") == "1":
            raise
        log.warning("nothing is dumped: %s: %s", type(problem).__name__, problem)


def rank_of_process() -> tuple[int, int]:
    """From the launcher's environment: msrun's, or the common one."""
    for rank, world in (("RANK_ID", "RANK_SIZE"), ("RANK", "WORLD_SIZE")):
        try:
            return int(os.environ[rank]), int(os.environ.get(world, "1"))
        except (KeyError, ValueError):
            continue
    return 0, 1


def coverage(training: PyNative) -> dict[str, Any]:
    """Which cells were looked at, and why not the others. They are counted by name, also those that are gone."""
    roster = training.roster
    seen = {entry.name for entry in roster.entries.values() if entry.looked_at} | roster.gone
    why = {name: reason for name, reason in training.unsupported.items() if name not in seen}
    why |= training.compiled
    taken = training.session.policy.taken
    missing: dict[str, str] = {}
    if taken[Level.FULL] or taken[Level.WATCHED]:
        reason = "runs compiled" if training.compiled else "was never called"
        missing = {name: why.get(name, reason) for name in sorted(roster.names - seen)}
    return {
        "modules": len(roster.names),
        "modules_watched": len(roster.names & seen),
        "parameters": len(training.parameters.names),
        "not_watched": {**dict(list(missing.items())[:50]), **why},
        "calls_from_other_threads": training.other_threads,
        "rows_dropped": training.block.dropped,
    }
