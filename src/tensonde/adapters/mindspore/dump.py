"""Dumps whole tensors as the training makes them: cells, gradients, losses, parameters, and ops where they are asked for.

Everything is copied before the training goes on, so what it changes in place later does not matter.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

import mindspore
import numpy as np

from tensonde.adapters.mindspore.run.entry import Entry
from tensonde.adapters.mindspore.tensors import hook, is_floating, is_tensor, tensors_in, values_of
from tensonde.adapters.mindspore.tracing import dispatch
from tensonde.adapters.mindspore.tracing.names import primitive
from tensonde.model.moment import Phase
from tensonde.model.site import Kind, Role, Site
from tensonde.session.dump.choice import Choice
from tensonde.session.dump.iterations import over, wanted
from tensonde.session.dump.settings import DumpSettings
from tensonde.store.dump.layout import claim_rank
from tensonde.store.dump.writer import DumpWriter, Seen
from tensonde.watch.suggest import nearest

if TYPE_CHECKING:
    from tensonde.adapters.mindspore.run.pynative import PyNative

log = logging.getLogger("tensonde.dump")


class Dump:
    """Belongs to the training thread."""

    def __init__(self, training: PyNative, settings: DumpSettings, rank: int) -> None:
        """Raises OSError, KeyError, TypeError or ValueError."""
        self.training = training
        self.settings = settings
        self.choice = Choice(settings)
        folder = claim_rank(Path(settings.folder), rank)
        facts = {"rank": rank, "framework": f"mindspore {mindspore.__version__}"}
        self.writer = DumpWriter(folder, facts, asynchronous=settings.asynchronous)
        self.on = False
        """This step is dumped."""
        self._calls: Counter[str] = Counter()
        self._ops: Counter[str] = Counter()
        self._marked: tuple[int, Counter[str]] = (0, Counter())
        self._valued: set[int] = set()
        self._updated: dict[int, Any] = {}
        self._seen: set[str] = set()
        self._roles = {role: role in self.choice.possible for role in Role}
        self.new_step(training.step)

    # -- steps -----------------------------------------------------------------------------------

    def new_step(self, step: int) -> None:
        self.on = wanted(self.settings.iterations, step) and self.writer.failure is None
        self._calls.clear()
        self._ops.clear()
        self._valued.clear()
        if self.on and self.choice.ops:
            dispatch.look(self._op)
        else:
            dispatch.look_away(self._op)

    def mark(self) -> None:
        """The step may turn out to have ended here (see `session/steps.py`)."""
        self._marked = (self.writer.entries, self._calls.copy())

    def finish_step(self, step: int, *, behind: bool) -> None:
        """`step` is the one that begins."""
        if not self.on and not wanted(self.settings.iterations, step):
            return
        if self.on:
            self._rest()
        calls = self._calls.copy()
        if behind:
            first, before = self._marked
            self.writer.move(first)
            calls -= before
        else:
            self.writer.end_step()
            calls.clear()
        if self.on:
            self.training.session.uncounted()  # how long it took says nothing about watching
        if self.on and over(self.settings.iterations, step):
            self._warn_of_idle_entries()
        self.new_step(step)
        self._calls = calls

    @property
    def _evaluating(self) -> bool:
        """A pass without gradients in a script that trains: no part of the step."""
        return not self.training.grad_on and self.training.session.steps.has_optimizer

    # -- cells and ops ---------------------------------------------------------------------------

    def entering(self, entry: Entry, args: Any, kwargs: Any) -> None:
        if not self.on or self.training.phase is Phase.BACKWARD or self._evaluating:
            return
        call = self._calls[entry.name]
        self._calls[entry.name] = call + 1
        given = tensors_in((args, kwargs))
        for k, tensor in enumerate(given):
            if self._roles[Role.IN]:
                self.put(tensor, _site(entry.name, Role.IN, Kind.MODULE, entry.type, k, given), call)
            if self._roles[Role.GRAD_IN]:
                self._on_gradient(tensor, _site(entry.name, Role.GRAD_IN, Kind.MODULE, entry.type, k, given), call)

    def left(self, entry: Entry, out: Any) -> None:
        if not self.on or self.training.phase is Phase.BACKWARD or self._evaluating:
            return
        call, given = max(0, self._calls[entry.name] - 1), tensors_in(out)
        for k, tensor in enumerate(given):
            if self._roles[Role.OUT]:
                self.put(tensor, _site(entry.name, Role.OUT, Kind.MODULE, entry.type, k, given), call)
            if self._roles[Role.GRAD]:
                self._on_gradient(tensor, _site(entry.name, Role.GRAD, Kind.MODULE, entry.type, k, given), call)

    def _op(self, name: str, args: Any, out: Any, frame: FrameType) -> None:
        training = self.training
        if not self.on or training.phase is not Phase.FORWARD or self._evaluating:
            return
        try:
            kind = primitive(name)
            cell = training.stack[-1].name if training.stack else ""
            count = self._ops[f"{cell}/{kind}"]
            self._ops[f"{cell}/{kind}"] = count + 1
            for role, tensors in ((Role.IN, tensors_in(args)), (Role.OUT, tensors_in(out))):
                for k, tensor in enumerate(tensors if self._roles[role] else ()):
                    self.put(tensor, _site(f"{cell}/{kind}#{count}", role, Kind.OP, kind, k, tensors), 0)
        except Exception as problem:
            training.contain("dumping an op", problem)

    def _on_gradient(self, tensor: Any, site: Site, call: int) -> None:
        if not self.training.grad_on or not is_floating(tensor) or not self.choice.wants(site):
            return
        step = self.training.step

        def arrived(gradient: Any) -> None:
            try:
                if self.on and self.training.step == step:
                    self.put(gradient, site, call)
            except Exception as problem:
                self.training.contain("dumping a gradient", problem)

        hook(tensor, arrived)

    # -- losses and parameters -------------------------------------------------------------------

    def loss(self, tensor: Any) -> None:
        if self.on:
            self.put(tensor, Site(-1, "loss", Role.VALUE, Kind.LOSS), 0)

    def before_optimizer(self, optimizer: Any, gradients: Sequence[Any]) -> None:
        """The values that this step used and the gradients that it gave."""
        if not self.on:
            return
        for k, parameter in enumerate(optimizer.parameters):
            name = self.training.parameters.names[id(parameter)][0]
            self._value(name, parameter)
            if self._roles[Role.GRAD] and k < len(gradients) and is_tensor(gradients[k]):
                self.put(gradients[k], Site(-1, name, Role.GRAD, Kind.PARAMETER), 0, phase=Phase.BACKWARD)
            if self._roles[Role.UPDATE] and self.choice.wants(Site(-1, name, Role.UPDATE, Kind.PARAMETER)):
                value = values_of(parameter)
                if value is not None:
                    self._updated[id(parameter)] = value.copy()

    def after_optimizer(self, optimizer: Any) -> None:
        for parameter in optimizer.parameters if self.on else ():
            old = self._updated.pop(id(parameter), None)
            new = values_of(parameter) if old is not None else None
            if old is not None and new is not None:
                name = self.training.parameters.names[id(parameter)][0]
                self.put(new - old, Site(-1, name, Role.UPDATE, Kind.PARAMETER), 0)

    def _rest(self) -> None:
        """What no optimizer showed in this step: frozen parameters and statistics."""
        if not self._roles[Role.VALUE]:
            return
        for name, parameter in self.training.parameters.live():
            self._value(name, parameter)
        for name, (reference, attribute) in self.training.parameters.buffers.items():
            held = getattr(reference(), attribute, None)
            if held is not None:
                self.put(held, Site(-1, name, Role.VALUE, Kind.BUFFER), 0)

    def _value(self, name: str, parameter: Any) -> None:
        if self._roles[Role.VALUE] and id(parameter) not in self._valued:
            self._valued.add(id(parameter))
            self.put(parameter, Site(-1, name, Role.VALUE, Kind.PARAMETER), 0, phase=Phase.FORWARD)

    # -- one tensor ------------------------------------------------------------------------------

    def put(self, tensor: Any, site: Site, call: int, *, phase: Phase | None = None) -> None:
        """Keeps a tensor, if it is wanted."""
        self._seen.add(site.address)
        if not self.choice.wants(site):
            return
        array = tensor if isinstance(tensor, np.ndarray) else values_of(tensor)
        if array is None or (self.settings.overflow_only and np.isfinite(array).all()):
            return
        training = self.training
        seen = Seen(
            site.address, training.step, str(phase or training.phase), call, str(site.kind), site.type,
            array.dtype.name, tuple(array.shape),
        )  # fmt: skip
        self.writer.put(seen, np.ascontiguousarray(array).reshape(-1).view(np.uint8))

    def close(self) -> dict[str, Any]:
        """Everything accepted is on disk when this returns."""
        self.on = False
        dispatch.look_away(self._op)
        self.writer.close()
        self._warn_of_idle_entries()
        return {"folder": self.settings.folder, **self.writer.outcome()}

    def _warn_of_idle_entries(self) -> None:
        if not self._seen or self.settings.overflow_only:
            return
        for text in sorted(self.choice.unmatched):
            close = nearest(text, sorted(self._seen))
            hint = f"the nearest are {', '.join(close)}" if close else "`tensonde show` lists the sites"
            log.warning("%r matches no tensor, so nothing was dumped for it; %s", text, hint)
        self.choice.unmatched.clear()


def _site(name: str, role: Role, kind: Kind, type: str, k: int, given: list[Any]) -> Site:
    return Site(-1, name, role, kind, k if len(given) > 1 else None, type)
