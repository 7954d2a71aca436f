"""Opens a session for this process: which rank it is, where its recording goes, what is known at the start."""

from __future__ import annotations

import os
import platform
import sys
from pathlib import Path

import torch

from sonde.adapters.torch.eager import Eager
from sonde.adapters.torch.frames import display_path
from sonde.digest import kernel_name
from sonde.session.options import Options
from sonde.session.session import Session
from sonde.store.claim import claim_rank


def open_eager(options: Options) -> Eager:
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
        "cwd": os.getcwd(),
        "host": platform.node(),
        "kernel": kernel_name(),
        "options": {"budget": options.budget, "watches": [list(watch) for watch in options.watches]},
    }
    return Eager(Session(options, folder, facts, rank=rank))


def rank_of_process() -> tuple[int, int]:
    """From the process group if there is one, else from the launcher's environment."""
    distributed = torch.distributed
    if distributed.is_available() and distributed.is_initialized():
        return distributed.get_rank(), distributed.get_world_size()
    try:
        return int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    except ValueError:
        return 0, 1
