"""Opens a session for this process: which rank it is, where its recording goes, what is known at the start."""

from __future__ import annotations

import logging
import os
import platform
import sys
from pathlib import Path
from typing import Any

import torch

from tensonde.adapters.torch.run.watcher import Watcher
from tensonde.adapters.torch.script import blocking
from tensonde.digest import kernel_name
from tensonde.program.lines import display_path, working_directory
from tensonde.session.dump.settings import DumpSettings
from tensonde.session.ending import prepare_for_the_end
from tensonde.session.options import Options
from tensonde.session.session import Session
from tensonde.session.stillness import Stillness
from tensonde.store.claim import claim_rank

log = logging.getLogger("tensonde.dump")


def open_watcher(options: Options) -> Watcher:
    rank, world = rank_of_process()
    folder = claim_rank(Path(options.run), rank)
    facts = {
        "rank": rank,
        "world_size": world,
        "pid": os.getpid(),
        "framework": f"torch {torch.__version__}",
        "python": platform.python_version(),
        "device": torch.get_default_device().type,
        "cpu_threads": torch.get_num_threads(),
        "script": display_path(sys.argv[0]) if sys.argv and sys.argv[0] else "",
        "cwd": working_directory(),
        "host": platform.node(),
        "kernel": kernel_name(),
        "options": {"budget": options.budget, "watches": [list(watch) for watch in options.watches]},
    }
    session = Session(options, folder, facts, rank=rank)
    prepare_for_the_end(folder, session.whereabouts)
    blocking.training_begins()
    watcher = Watcher(session)
    if world > 1:
        watcher.stillness = Stillness(session.whereabouts, session.collectives, watcher.state.thread)
    if options.dump is not None:
        open_dump(watcher, options.dump, rank)
    return watcher


def open_dump(watcher: Watcher, content: dict[str, Any], rank: int) -> None:
    """A dump that cannot be made is said and done without: the training is watched all the same."""
    from tensonde.adapters.torch.dumping.dump import Dump

    try:
        settings = DumpSettings.from_json(content)
        if settings.ranks is None or rank in settings.ranks:
            watcher.dump_into(Dump(watcher.state, watcher.replay, settings, rank))
    except Exception as problem:
        if os.environ.get("TENSONDE_STRICT") == "1":
            raise
        log.warning("nothing is dumped: %s: %s", type(problem).__name__, problem)


def rank_of_process() -> tuple[int, int]:
    """From the process group if there is one, else from the launcher's environment."""
    distributed = torch.distributed
    if distributed.is_available() and distributed.is_initialized():
        return distributed.get_rank(), distributed.get_world_size()
    try:
        return int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    except ValueError:
        return 0, 1
