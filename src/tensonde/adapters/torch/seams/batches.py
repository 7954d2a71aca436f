"""What loaders give. The indices are noted as the sampler gives them and matched to the batches in the order that those come out,
which is the same (unless the loader was told `in_order=False`). Loading is no part of the step: the tape rests meanwhile.
"""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Callable
from threading import get_ident
from typing import TYPE_CHECKING, Any

from torch.utils.data import dataloader

from tensonde.adapters.torch import seams
from tensonde.adapters.torch.observers.loaders import LOADERS
from tensonde.adapters.torch.run import batches
from tensonde.adapters.torch.run.batches import Batch
from tensonde.adapters.torch.seams.function_mode import unseen

if TYPE_CHECKING:
    from tensonde.adapters.torch.run.watcher import Watcher


def observe_batches(current: Callable[[], Watcher | None]) -> None:
    """Once in a process."""
    base = dataloader._BaseDataLoaderIter
    next_index, step = base._next_index, base.__next__

    @functools.wraps(next_index)
    def noted_index(self: Any) -> Any:
        index = next_index(self)
        if isinstance(index, list) and all(isinstance(item, int) for item in index[:1]):
            waiting = self.__dict__.setdefault("_tensonde_indices", deque(maxlen=1024))
            waiting.append(index[: batches.MOST])
        return index

    @functools.wraps(step)
    def observed_next(self: Any) -> Any:
        watcher = current()
        if watcher is None or watcher.state.thread != get_ident():
            batch = step(self)
        else:
            with watcher.replay.loading():
                batch = step(self)
        waiting = self.__dict__.get("_tensonde_indices")
        if waiting:
            with unseen():
                indices = waiting.popleft()
                batches.latest = Batch(self._dataset, indices, batch)
                LOADERS.given(self._dataset, indices)
        return batch

    seams.put(base, "_next_index", noted_index, "know which samples a batch is made of")
    seams.put(base, "__next__", observed_next, "know which samples a batch is made of")
