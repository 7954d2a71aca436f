"""Asks MindSpore to write its first compiled step down: graph, lines and the outputs of every kernel (docs/adr/0017).

MindSpore reads the settings of its dump when it compiles for the first time. They name iteration 0 only, so later steps are as fast as ever.
A whole step goes to the disk, so this is done only for `--budget off` and where a debugger is attached.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from tensonde.adapters.mindspore.graphs.trace import trace_of
from tensonde.adapters.mindspore.observers.origins import KNOWN

if TYPE_CHECKING:
    from tensonde.adapters.mindspore.run.pynative import PyNative

VARIABLE = "MINDSPORE_DUMP_CONFIG"
_OUTPUTS = 2
_PLAIN = re.compile(r"/[A-Za-z0-9_/-]*")
"""The only paths that MindSpore dumps to; at any other it raises, and the training would end. A recording's path has dots."""
ROOM = 4 << 30
"""Bytes that must be free on the disk."""


class Export:
    """Belongs to the training thread."""

    def __init__(self, training: PyNative) -> None:
        self._training = training
        self._folder: Path | None = None
        self._asked = False
        self._under_way = False

    def begin(self) -> None:
        """A compiled call begins."""
        training = self._training
        if self._asked:
            return
        self._asked = True
        wanted = training.session.options.budget is None or training.stops.debugging
        if not wanted or VARIABLE in os.environ:
            return
        parent = tempfile.gettempdir()
        if not _PLAIN.fullmatch(parent) or shutil.disk_usage(parent).free < ROOM:
            return
        folder = self._folder = Path(tempfile.mkdtemp(prefix="tensonde-compiled-", dir=parent))
        settings = folder / "settings.json"
        settings.write_text(json.dumps(_settings(folder)))
        os.environ[VARIABLE] = str(settings)
        self._under_way = True

    def end(self) -> None:
        """It has ended, or failed."""
        if not self._under_way or self._folder is None:
            return
        self._under_way = False
        os.environ.pop(VARIABLE, None)
        training = self._training
        try:
            names = [str(held.name) for optimizer in KNOWN.optimizers() for held in optimizer.parameters]
            trace = trace_of(self._folder, training.step, names)
            if trace is not None:
                training.session.writer.trace(trace)
                training.session.note("traced", step=training.step, reason=trace.reason, ops=len(trace.ops))
        except Exception as problem:
            training.contain("reading what was compiled", problem)
        finally:
            self.close()
            training.session.uncounted()

    def close(self) -> None:
        """MindSpore writes graphs that it compiles later, too."""
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)


def _settings(folder: Path) -> dict[str, object]:
    return {
        "common_dump_settings": {
            "op_debug_mode": 0, "dump_mode": 0, "path": str(folder), "net_name": "Net", "iteration": "0",
            "saved_data": "tensor", "input_output": _OUTPUTS, "kernels": [], "support_device": [0],
        },
        "e2e_dump_settings": {"enable": True, "trans_flag": True},
    }  # fmt: skip
