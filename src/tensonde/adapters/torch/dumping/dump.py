"""Dumps whole tensors as the training makes them: modules, gradients, losses, parameters, and ops where they are asked for.

Everything is copied before the training goes on, so what it changes in place later does not matter. Nothing here keeps a
tensor alive longer than that, but for device tensors, which wait in `Staging` for their copy to arrive.
"""

from __future__ import annotations

import logging
import os
import signal
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor, nn

from tensonde.adapters.torch.capture import capturing
from tensonde.adapters.torch.dumping.ops import DumpOps
from tensonde.adapters.torch.dumping.staging import Staging
from tensonde.adapters.torch.replay.replay import Replay
from tensonde.adapters.torch.seams.function_mode import unseen
from tensonde.adapters.torch.seams.hooks import hook
from tensonde.adapters.torch.tensors import dense_of, dtype_name, gradient_of, tensors_in, values_of
from tensonde.digest import Block, rows_of
from tensonde.model.moment import Phase
from tensonde.model.site import Kind, Role, Site
from tensonde.session.dump.choice import Choice
from tensonde.session.dump.iterations import over, wanted
from tensonde.session.dump.settings import DumpSettings
from tensonde.store.dump.layout import claim_rank
from tensonde.store.dump.writer import DumpWriter, Seen
from tensonde.watch.suggest import nearest

if TYPE_CHECKING:
    from tensonde.adapters.torch.run.state import RunState

log = logging.getLogger("tensonde.dump")


class Named(Protocol):
    """A module, as far as a dump needs it."""

    name: str
    type: str


class Dump:
    """Belongs to the training thread; only gradients may come from autograd's own threads."""

    def __init__(self, state: RunState, replay: Replay, settings: DumpSettings, rank: int) -> None:
        """Raises OSError, KeyError, TypeError or ValueError."""
        self.state, self.replay = state, replay
        self.settings = settings
        self.choice = Choice(settings)
        folder = claim_rank(Path(settings.folder), rank)
        facts = {"rank": rank, "framework": f"torch {torch.__version__}"}
        self.writer = DumpWriter(folder, facts, asynchronous=settings.asynchronous)
        self.staging = Staging(self.writer, asynchronous=settings.asynchronous)
        self.on = False
        """This step is dumped."""
        self.unsupported: set[str] = set()
        self._calls: Counter[str] = Counter()
        self._marked: tuple[int, Counter[str]] = (0, Counter())
        self._valued: set[int] = set()
        self._kept: dict[int, Tensor] = {}
        self._seen: set[str] = set()
        possible = self.choice.possible
        self._roles = {role: role in possible for role in Role}
        self._scratch = Block(1)
        self.ops = DumpOps(self) if self.choice.ops else None
        self._pid = os.getpid()
        self._end_on_termination()
        self.new_step(state.step)

    # -- steps -----------------------------------------------------------------------------------

    def new_step(self, step: int) -> None:
        self.on = wanted(self.settings.iterations, step) and self.writer.failure is None
        self._calls.clear()
        self._valued.clear()
        if self.ops is not None:
            self.ops.new_step(self.on)

    def mark(self) -> None:
        """The step may turn out to have ended here (see `session/steps.py`)."""
        self.staging.drain()
        self._marked = (self.writer.entries, self._calls.copy())

    def finish_step(self, step: int, *, behind: bool) -> None:
        """`step` is the one that begins."""
        if not self.on and not wanted(self.settings.iterations, step):
            return
        if self.on:
            self._rest()
        self.staging.drain()
        calls = self._calls.copy()
        if behind:
            first, before = self._marked
            self.writer.move(first)
            calls -= before
        else:
            self.writer.end_step()
            calls.clear()
        if self.on:
            self.state.session.uncounted()  # how long it took says nothing about watching
        if self.on and over(self.settings.iterations, step):
            self._warn_of_idle_entries()
        self.new_step(step)
        self._calls = calls

    # -- modules ---------------------------------------------------------------------------------

    def entering(self, entry: Named, args: Any, kwargs: Any) -> int:
        """A module is about to run. The number of its call in this step, or -1 where it is not dumped."""
        state = self.state
        if state.opaque or state.phase is Phase.BACKWARD or self.evaluating:
            return -1
        call = self._calls[entry.name]
        self._calls[entry.name] = call + 1
        if self._roles[Role.IN] and not self.settings.overflow_only:
            self._inputs(entry, call, args, kwargs)
        if self._roles[Role.GRAD_IN] and state.grad_on:
            given = tensors_in((args, kwargs))
            for k, tensor in enumerate(given):
                self.on_gradient(tensor, self._site(entry.name, Role.GRAD_IN, Kind.MODULE, entry.type, k, given), call)
        return call

    def left(self, entry: Named, call: int, args: Any, kwargs: Any, out: Any) -> None:
        """A module gave `out`."""
        given = tensors_in(out)
        if self.settings.overflow_only and self._roles[Role.IN] and any(map(self.overflowed, given)):
            self._inputs(entry, call, args, kwargs, anyway=True)
        for k, tensor in enumerate(given):
            if self._roles[Role.OUT]:
                self.put(tensor, self._site(entry.name, Role.OUT, Kind.MODULE, entry.type, k, given), call)
            if self._roles[Role.GRAD] and self.state.grad_on:
                self.on_gradient(tensor, self._site(entry.name, Role.GRAD, Kind.MODULE, entry.type, k, given), call)

    def hidden_from(self, module: nn.Module) -> bool:
        """A compiled module is about to run: ops are not looked at meanwhile. Whether they would have been."""
        compiled = (
            type(module).__name__ == "OptimizedModule" or getattr(module, "_compiled_call_impl", None) is not None
        )
        if self.ops is None or not compiled:
            return False
        self.ops.pause()
        return True

    def _inputs(self, entry: Named, call: int, args: Any, kwargs: Any, *, anyway: bool = False) -> None:
        given = tensors_in((args, kwargs))
        for k, tensor in enumerate(given):
            self.put(tensor, self._site(entry.name, Role.IN, Kind.MODULE, entry.type, k, given), call, anyway=anyway)

    @property
    def evaluating(self) -> bool:
        """A pass without gradients in a script that trains: no part of the step."""
        return not self.state.grad_on and self.state.session.steps.has_optimizer

    def calls_of(self, name: str) -> int:
        """Which call of that module runs now."""
        return max(0, self._calls[name] - 1)

    @staticmethod
    def _site(name: str, role: Role, kind: Kind, type: str, k: int, given: list[Tensor]) -> Site:
        return Site(-1, name, role, kind, k if len(given) > 1 else None, type)

    def on_gradient(self, tensor: Tensor, site: Site, call: int) -> None:
        if not self.choice.wants(site) or not tensor.requires_grad or tensor.is_leaf:
            return
        step = self.state.step

        def arrived(gradient: Any) -> None:
            try:
                if gradient is not None and self.on and self.state.step == step:
                    self.put(gradient, site, call)
            except Exception as problem:
                self.state.session.guard.contain("dumping a gradient", problem)

        hook(tensor, arrived)

    # -- losses and parameters -------------------------------------------------------------------

    def loss(self, tensor: Tensor) -> None:
        self.put(tensor, Site(-1, "loss", Role.VALUE, Kind.LOSS), 0)

    def before_optimizer(self, optimizer: torch.optim.Optimizer, closure: bool) -> None:
        """The values that this step used and the gradients that it gave."""
        for parameter in _parameters(optimizer):
            name = self._name(parameter)
            self._value(name, parameter)
            if not closure:
                self._gradient(name, parameter)
            update = Site(-1, name, Role.UPDATE, Kind.PARAMETER)
            if self._roles[Role.UPDATE] and self.choice.wants(update):
                before = dense_of(parameter)
                if before is not None:
                    self._kept[id(parameter)] = before.detach().clone()

    def after_optimizer(self, optimizer: torch.optim.Optimizer, closure: bool) -> None:
        for parameter in _parameters(optimizer):
            name = self._name(parameter)
            if closure:
                self._gradient(name, parameter)
            old, new = self._kept.pop(id(parameter), None), dense_of(parameter)
            if old is not None and new is not None:
                self.put(new.detach() - old, Site(-1, name, Role.UPDATE, Kind.PARAMETER), 0)

    def gradients_alone(self) -> None:
        """A backward pass is over and no optimizer will come."""
        for name, parameter in self.state.parameters.live():
            self._gradient(name, parameter)

    def _rest(self) -> None:
        """What no optimizer showed in this step: frozen parameters and buffers."""
        if not self._roles[Role.VALUE]:
            return
        for name, parameter in self.state.parameters.live():
            self._value(name, parameter)
        for name, (reference, attribute) in list(self.state.parameters.buffers.items()):
            buffer = getattr(reference(), attribute, None)
            if buffer is not None:
                self.put(buffer, Site(-1, name, Role.VALUE, Kind.BUFFER), 0)

    def _value(self, name: str, parameter: Tensor) -> None:
        if self._roles[Role.VALUE] and id(parameter) not in self._valued:
            self._valued.add(id(parameter))
            self.put(parameter, Site(-1, name, Role.VALUE, Kind.PARAMETER), 0, phase=Phase.FORWARD)

    def _gradient(self, name: str, parameter: Tensor) -> None:
        gradient = gradient_of(parameter) if self._roles[Role.GRAD] else None
        if gradient is not None:
            self.put(gradient, Site(-1, name, Role.GRAD, Kind.PARAMETER), 0, phase=Phase.BACKWARD)

    def _name(self, parameter: Tensor) -> str:
        known = self.state.parameters.names.get(id(parameter))
        return known[0] if known is not None else f"parameter_{len(self.state.parameters.names)}"

    # -- one tensor ------------------------------------------------------------------------------

    def put(self, tensor: Tensor, site: Site, call: int, *, phase: Phase | None = None, anyway: bool = False) -> None:
        """Keeps a tensor, if it is wanted. With `anyway` also one without an overflow, where only those are kept."""
        self._seen.add(site.address)
        if not self.choice.wants(site):
            return
        if self.settings.overflow_only and not anyway and not self.overflowed(tensor):
            return
        with unseen(), torch.no_grad():
            found = dense_of(tensor)
            if found is None:
                self.unsupported.add(f"{site.address} ({type(tensor).__name__})")
                return
            plain = found.detach()
            if plain.is_conj() or plain.is_neg():
                plain = plain.resolve_conj().resolve_neg()
            seen = Seen(
                site.address, self.state.step, str(phase or self.state.phase), call, str(site.kind), site.type,
                dtype_name(plain), tuple(plain.shape),
            )  # fmt: skip
            if plain.device.type != "cpu" and capturing():
                self.unsupported.add(f"{site.address}, in a captured graph")
                return
            self.staging.put(seen, plain)

    def overflowed(self, tensor: Tensor) -> bool:
        """NaN or Inf in it."""
        found = values_of(tensor)
        if found is None:
            return False
        if found.device.type != "cpu":
            return bool((~torch.isfinite(found.detach())).any()) if found.is_floating_point() else False
        self._scratch.clear()
        if self._scratch.add(0, found.detach()) < 0:
            return False
        row = rows_of(self._scratch)[0]
        return bool(row["nan"] or row["pos_inf"] or row["neg_inf"])

    # -- the end ---------------------------------------------------------------------------------

    def close(self) -> dict[str, Any]:
        """Everything accepted is on disk when this returns."""
        if self.ops is not None:
            self.ops.new_step(False)
        self.on = False
        self.staging.drain()
        self.writer.close()
        self._warn_of_idle_entries()
        if self.unsupported:
            log.warning("not dumped, because they have no plain bytes: %s", ", ".join(sorted(self.unsupported)[:10]))
        return {"folder": self.settings.folder, **self.writer.outcome()}

    def _warn_of_idle_entries(self) -> None:
        if not self._seen or self.settings.overflow_only:
            return
        for text in sorted(self.choice.unmatched):
            close = nearest(text, sorted(self._seen))
            log.warning(
                "%r matches no tensor, so nothing was dumped for it; %s",
                text, f"the nearest are {', '.join(close)}" if close else "`tensonde show` lists the sites",
            )  # fmt: skip
        self.choice.unmatched.clear()

    def _end_on_termination(self) -> None:
        """SIGTERM ends a Python program at once, without its exit functions. Where the script leaves it at that, we finish first."""
        try:
            if signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
                return
            signal.signal(signal.SIGTERM, self._terminated)
        except ValueError:
            log.debug("not the main thread: SIGTERM will cut the dump short")

    def _terminated(self, number: int, _: FrameType | None) -> None:
        signal.signal(number, signal.SIG_DFL)
        if os.getpid() == self._pid:  # a data worker inherits this
            try:
                self.staging.drain()
                self.writer.close()
            except Exception as problem:
                log.warning("the dump could not be finished: %s", problem)
        os.kill(os.getpid(), number)


def _parameters(optimizer: torch.optim.Optimizer) -> list[Tensor]:
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]
