"""Ops of the function API for a dump: a torch-function mode that is on only in steps that are dumped, and only where ops are asked for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from threading import get_ident
from types import FrameType
from typing import TYPE_CHECKING, Any

from torch import Tensor

from tensonde.adapters.torch.debugging.ops import op_name
from tensonde.adapters.torch.seams.function_mode import Looker, look, look_away, transforming, unseen
from tensonde.adapters.torch.tensors import tensors_in
from tensonde.model.moment import Phase
from tensonde.model.site import Kind, Role, Site

if TYPE_CHECKING:
    from tensonde.adapters.torch.dumping.dump import Dump
    from tensonde.adapters.torch.run.record import ModuleRecord


class DumpOps(Looker):
    def __init__(self, dump: Dump) -> None:
        self.dump = dump
        self._on = False
        self._paused = 0
        self._counts: Counter[tuple[str, int, str]] = Counter()

    def new_step(self, wanted: bool) -> None:
        self._counts.clear()
        wanted = wanted and not self.dump.replay.off
        if wanted and not self._on:
            look(self)
        elif self._on and not wanted:
            look_away(self)
        self._on, self._paused = wanted, 0

    def pause(self) -> None:
        """A compiled module runs: its compiler must not see a mode."""
        self._paused += 1
        if self._on and self._paused == 1:
            look_away(self)

    def resume(self) -> None:
        self._paused = max(0, self._paused - 1)
        if self._on and not self._paused:
            look(self)

    def called(
        self,
        func: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        run: Callable[..., Any],
        frame: FrameType,
    ) -> Any:
        state = self.dump.state
        name = op_name(func)
        if (
            name is None or not self._on or state.phase is not Phase.FORWARD or state.thread != get_ident()
            or self.dump.replay.active or state.opaque or transforming() or self.dump.evaluating
        ):  # fmt: skip
            return run(*args, **kwargs)
        entry = state.stack[-1] if state.stack else None
        module = entry.name if entry is not None else ""
        given = (args, kwargs)
        if self.dump.choice.everything and not of_the_program(entry, given):
            return run(*args, **kwargs)
        try:
            with unseen():
                address, call = self.begins(module, name, given)
        except Exception as problem:
            state.session.guard.contain("dumping an op", problem)
            return run(*args, **kwargs)
        out = run(*args, **kwargs)
        try:
            with unseen():
                self.ends(address, name, call, given, out)
        except Exception as problem:
            state.session.guard.contain("dumping an op", problem)
        return out

    def begins(self, module: str, name: str, given: Any) -> tuple[str, int]:
        """An op is about to run in that module. Its address, and which call of the module it is."""
        call = self.dump.calls_of(module)
        count = self._counts[module, call, name]
        self._counts[module, call, name] = count + 1
        address = f"{module}/{name}#{count}"
        if not self.dump.settings.overflow_only:
            self._put(address, name, Role.IN, given, call)
        return address, call

    def ends(self, address: str, name: str, call: int, given: Any, out: Any) -> None:
        if isinstance(out, Tensor | list | tuple):
            if self.dump.settings.overflow_only and any(map(self.dump.overflowed, tensors_in(out))):
                self._put(address, name, Role.IN, given, call, anyway=True)
            self._put(address, name, Role.OUT, out, call)

    def _put(self, name: str, op: str, role: Role, value: Any, call: int, *, anyway: bool = False) -> None:
        given = tensors_in(value)
        for k, tensor in enumerate(given):
            index = k if len(given) > 1 else None
            self.dump.put(tensor, Site(-1, name, role, Kind.OP, index, op), call, anyway=anyway)
            if role is Role.OUT and self.dump.state.grad_on:
                self.dump.on_gradient(tensor, Site(-1, name, Role.GRAD, Kind.OP, index, op), call)


def of_the_program(entry: ModuleRecord | None, given: Any) -> bool:
    """Whether an op is written in the program, for a dump of everything: what torch's own layers do inside shows in the layer's
    outputs, and what is computed outside modules counts where it leads to a gradient."""
    tensors = tensors_in(given)
    if entry is None:
        return any(tensor.requires_grad for tensor in tensors)
    module = entry.ref()
    return bool(tensors) and not type(module).__module__.startswith("torch.nn.")
