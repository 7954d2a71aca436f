"""A progress bar on standard error, where that is a terminal; standard output is the training's own."""

from __future__ import annotations

import sys
import time
from typing import Any

from tensonde.train.extras import main_process

_REFRESH = 0.2


class Progress:
    """Steps of all epochs. `shown` None shows it on a terminal only. Used with `with`."""

    def __init__(self, total: int | None, *, shown: bool | None = None, what: str = "training") -> None:
        self.shown = (sys.stderr.isatty() if shown is None else shown) and main_process()
        self.total, self.what = total, what
        self._bar: Any = None
        self._next = 0.0

    def __enter__(self) -> Progress:
        if self.shown:
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
            from rich.progress import Progress as Bar

            self._bar = Bar(
                TextColumn("{task.description}"),
                BarColumn(20),
                MofNCompleteColumn(),
                TimeElapsedColumn(),
                TimeRemainingColumn(),
                TextColumn("{task.fields[told]}"),
                console=Console(stderr=True, force_terminal=True),
                auto_refresh=False,  # a thread of its own would take its time from the training
                redirect_stdout=False,
                redirect_stderr=False,
                transient=True,
            )
            self._bar.start()
            self._task = self._bar.add_task(self.what, total=self.total, told="")
        return self

    def __exit__(self, *failure: Any) -> None:
        if self._bar is not None:
            self._bar.stop()

    def advance(self, loss: Any = None) -> None:
        """One step further. The loss is looked at only when the bar is drawn: it may have to come from a device."""
        if self._bar is None:
            return
        self._bar.update(self._task, advance=1)
        now = time.monotonic()
        if now >= self._next:
            self._next = now + _REFRESH
            if loss is not None:
                try:
                    self._bar.update(self._task, told=f"loss {float(loss):.4g}")
                except (TypeError, ValueError, RuntimeError):
                    pass
            self._bar.refresh()
