"""Goes through a bundle's step as a training would, for a debugger: calls, loss and backward pass are observed.

Each call is made from a frame that stands at the user's line, as if the script itself made it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from tensonde.adapters.torch.replay.call import Slot, TapedCall
from tensonde.adapters.torch.replay.execute import Losses, execute

if TYPE_CHECKING:
    from tensonde.adapters.torch.run.watcher import Watcher


def live(watcher: Watcher, entries: list[TapedCall], losses: Losses) -> None:
    """To the end of the step, or to where the user quits."""
    values: dict[Slot, Tensor] = {}
    waiting = list(losses)
    try:
        for entry in entries:
            values |= execute(entry, values, _at(entry))
            while (
                waiting and waiting[0][0] in values
            ):  # in the order of the training: a backward pass when its loss is there
                scaled, _, seed = waiting.pop(0)
                if values[scaled].requires_grad:
                    torch.autograd.backward(
                        values[scaled], seed if isinstance(seed, Tensor) else None, retain_graph=True
                    )
        watcher.finish_step()
    except SystemExit:
        pass


def _at(entry: TapedCall) -> Callable[[Callable[..., Any], Any, Any], Any]:
    source = entry.place[0] if entry.place is not None else None
    if source is None:
        return lambda call, args, kwargs: call(*args, **kwargs)
    text = "\n" * (source.line - 1) + "result = call(*args, **kwargs)"
    code = compile(text, source.file, "exec")

    def through(call: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        space = {"call": call, "args": args, "kwargs": kwargs, "__name__": "__replay__"}
        exec(code, space)
        return space["result"]

    return through
