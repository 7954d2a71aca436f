"""A bar on standard error while something large is read or written, where a person looks on."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

WORTH_IT = 256 << 20


@contextlib.contextmanager
def progress_of(what: str, total: int) -> Iterator[Callable[[int], None]]:
    """Returns a function that takes the number of further bytes done."""
    from rich.console import Console

    console = Console(stderr=True)
    if total < WORTH_IT or not console.is_terminal:
        yield lambda size: None
        return
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task(what, total=total)
        yield lambda size: progress.advance(task, size)
