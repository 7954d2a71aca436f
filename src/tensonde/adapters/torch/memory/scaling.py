"""Which memory grows with the batch: the step is run again with half of it, and what every op makes is compared."""

from __future__ import annotations

from collections.abc import Iterator
from contextvars import copy_context
from typing import Any

import torch
from torch import Tensor, nn

from tensonde.adapters.torch.memory.ledger import Held, Key, Ledger, Place
from tensonde.adapters.torch.replay.execute import execute, put
from tensonde.adapters.torch.replay.replay import Replay
from tensonde.adapters.torch.replay.restore.before import Before
from tensonde.adapters.torch.replay.undisturbed import roots_of, undisturbed
from tensonde.adapters.torch.run.state import RunState
from tensonde.adapters.torch.seams.function_mode import unseen
from tensonde.adapters.torch.tensors import tensors_in
from tensonde.adapters.torch.tracing.tracer import Tracer
from tensonde.model.moment import Phase

_FEW = "no input of the model has several samples"


class NotKnown(Exception):
    """How memory depends on the batch cannot be found out; says why."""


class Scaling:
    """`batch`: samples in the batch of the step. Belongs to the training thread."""

    def __init__(self, state: RunState, replay: Replay, name_of: Any) -> None:
        self._state, self._replay, self._name_of = state, replay, name_of
        self.batch = 0
        self._half = 0
        self._sizes: dict[Key, int] = {}

    def measure(self) -> None:
        """Right before the optimizer's step, of which the tape has all. Raises `NotKnown`."""
        replay, tape = self._replay, self._replay.tape
        cannot = replay.off or replay.refused or tape.trouble or replay._forbidden()
        if not cannot and (not tape.entries or not tape.losses):
            cannot = "no loss of this step was recorded"
        if cannot:
            raise NotKnown(cannot)
        problem = _FEW
        for dimension, flat in ((0, False), (0, True), (1, False)):
            self._take(self._samples(dimension))
            if self.batch < 2 and not self._made():
                continue
            try:
                self._run(dimension, flat=flat)
                return
            except NotKnown:
                raise
            except Exception as failure:
                problem = f"with half of the batch, the step fails: {type(failure).__name__}: {failure}"[:200]
        self.batch = 0
        raise NotKnown(problem)

    def share(self, held: Held) -> float:
        """The part of a piece of memory that grows with the batch."""
        if held.use in ("parameters", "buffers", "optimizer", "gradients") or held.phase is Phase.OPTIMIZER:
            return 0.0
        return part_of(held, self._sizes, self.batch, self._half)

    # -- the run ---------------------------------------------------------------------------------

    def _take(self, batch: int) -> None:
        self.batch, self._half = batch, batch // 2

    def _made(self) -> int:
        """How many entries there are before the first call of a module, where it and all others take only what the step itself has made, such
        as rows that it picks from a tensor with all data. 0: it is not so."""
        calls = [k for k, entry in enumerate(self._replay.tape.entries) if isinstance(entry.call, nn.Module)]
        return 0 if not calls or self._samples(0, of_modules=True) else calls[0]

    def _samples(self, dimension: int, *, of_modules: bool = False) -> int:
        """0: not known before the step is run."""
        entries = self._replay.tape.entries
        for entry in entries:
            if isinstance(entry.call, nn.Module):
                for tensor in tensors_in((entry.args, entry.kwargs)):
                    if tensor.dim() > dimension:
                        return int(tensor.shape[dimension])
        if of_modules or any(isinstance(entry.call, nn.Module) for entry in entries):
            return 0
        for entry in entries:
            for tensor in tensors_in((entry.args, entry.kwargs)):
                if tensor.dim() > max(dimension, 1) and not isinstance(tensor, nn.Parameter):
                    return int(tensor.shape[dimension])
        return 0

    def _run(self, dimension: int, *, flat: bool) -> None:
        """`flat`: what comes from outside may have a row for each place in each sample, such as the targets of a language model."""
        state, replay = self._state, self._replay
        entries, losses = list(replay.tape.entries), list(replay.tape.losses)
        with unseen():
            before = Before(roots_of(entries))
        if before.trouble:
            raise NotKnown(before.trouble)
        ledger = Ledger(self._name_of, boundary=execute.__code__)
        ledger.phase = lambda: state.phase
        with undisturbed(state, replay, before, Tracer(state)) as lost:
            copy_context().run(self._step, ledger, entries, losses, dimension, flat)
        replay._take_stock(lost, before.writes.refused, [], state.step)
        if lost or before.writes.refused:
            raise NotKnown(replay.refused)
        if ledger.failed is not None:
            raise ledger.failed
        self._sizes = {held.key: held.bytes for held in ledger.held}

    def _step(self, ledger: Ledger, entries: list[Any], losses: list[Any], dimension: int, flat: bool) -> None:
        values: dict[Any, Tensor] = {}
        parameters = [p for entry in entries if isinstance(entry.call, nn.Module) for p in entry.call.parameters()]
        own = {id(part) for entry in entries if isinstance(entry.call, nn.Module) for part in _parts(entry.call)}
        leaves = list({id(p): p for p in parameters if p.requires_grad}.values())
        made = self._made()
        if made:
            values = self._inputs(entries, made, own, dimension, flat)
        with ledger:
            for entry in entries[made:]:
                line, module, kind = entry.where(self._state)
                ledger.outside = Place(module, kind, line)
                plain = entry.args, entry.kwargs
                entry.args, entry.kwargs = self._cut(plain, own, dimension, flat)
                try:
                    values |= execute(entry, values)
                finally:
                    entry.args, entry.kwargs = plain
            self._state.phase = Phase.BACKWARD
            for k, (scaled, _, gradient) in enumerate(losses):
                loss = values.get(scaled)
                if loss is None or not loss.requires_grad or not leaves:
                    continue
                seed = gradient if isinstance(gradient, Tensor) and gradient.shape == loss.shape else None
                keep = k + 1 < len(losses)
                torch.autograd.grad(loss, leaves, grad_outputs=seed, retain_graph=keep, allow_unused=True)

    def _inputs(self, entries: list[Any], made: int, own: set[int], dimension: int, flat: bool) -> dict[Any, Tensor]:
        """What the step makes before it calls its model: made whole, then cut."""
        values: dict[Any, Tensor] = {}
        for entry in entries[:made]:
            values |= execute(entry, values)
        model = entries[made]
        given = [tensor for tensor in tensors_in(put((model.args, model.kwargs), values)) if tensor.dim() > dimension]
        self._take(int(given[0].shape[dimension]) if given else 0)
        if self.batch < 2:
            raise RuntimeError(_FEW)
        return {slot: self._cut(value, own, dimension, flat) for slot, value in values.items()}

    def _cut(self, value: Any, own: set[int], dimension: int, flat: bool) -> Any:
        """Half of what came from outside; slots stand for what the step makes itself."""

        def cut(item: Any) -> Any:
            if isinstance(item, Tensor):
                if id(item) in own or isinstance(item, nn.Parameter):
                    return item
                for k in (dimension, 0, 1):
                    if item.dim() > k and item.shape[k] == self.batch:
                        return item.narrow(k, 0, self._half).clone()
                if flat and item.dim() and item.shape[0] and item.shape[0] % self.batch == 0:
                    return item.narrow(0, 0, item.shape[0] // self.batch * self._half).clone()
                return item
            kind = type(item)
            if kind is tuple or kind is list:
                return kind([cut(part) for part in item])
            if kind is dict:
                return {name: cut(part) for name, part in item.items()}
            return item

        return cut(value)


def part_of(held: Held, sizes: dict[Key, int], batch: int, half: int) -> float:
    """`sizes`: of the same memory in a step with `half` of the batch."""
    smaller = sizes.get(held.key)
    if smaller is not None and held.bytes:
        slope = (held.bytes - smaller) / (batch - half) * batch
        return min(1.0, max(0.0, slope / held.bytes))
    return float(batch in held.shape[:2])  # what comes from outside, or was not run again


def _parts(module: nn.Module) -> Iterator[Tensor]:
    yield from module.parameters()
    yield from module.buffers()
