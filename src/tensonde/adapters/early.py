"""A program that fails before its training begins: in its data, its configuration, or where the model is built."""

from __future__ import annotations

import os
import sysconfig
from collections.abc import Sequence
from types import ModuleType

from tensonde.program.values import FrameState

_OTHERS = tuple(f"{os.sep}{name}" for name in ("subprocess.py", f"multiprocessing{os.sep}", f"concurrent{os.sep}"))
"""Where Python says that another process failed. That one speaks for itself."""


def failed_early(problem: BaseException, places: Sequence[FrameState], framework: str) -> bool:
    """Raised through the framework from the user's own code, or by the user's code itself where it uses the framework.

    Launchers import it, too, but stand among the environment's scripts, and a process that only waits for others passes on what they said.
    """
    scripts = sysconfig.get_path("scripts") + os.sep
    mine = [place for place in places if place.is_user and not os.path.abspath(place.path).startswith(scripts)]
    if not mine or not isinstance(problem, Exception):
        return False
    if any(framework in place.path.rpartition("-packages")[2] for place in places if not place.is_user):
        return True
    return not any(part in places[-1].path for part in _OTHERS) and any(_uses(place, framework) for place in mine)


def _uses(place: FrameState, framework: str) -> bool:
    """The file imports the framework, or something of it."""
    return any(
        (held.__name__ if isinstance(held, ModuleType) else str(getattr(held, "__module__", ""))).partition(".")[0]
        == framework
        for held in list(place.frame.f_globals.values())
        if isinstance(held, ModuleType | type) or callable(held)
    )
