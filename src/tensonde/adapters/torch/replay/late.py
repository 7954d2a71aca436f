"""Steps on a device: what came of one is known when the next has begun, so what it takes to run it again is kept until then.

That is the tape, which keeps what the step was given, a copy of the parameters from before the optimizer changed them (one launch per step), and the numbers that the
modules' code reads from the script (`scalars`). All are bounded; where a step is not kept, it is said why.
"""

from __future__ import annotations

from collections import deque
from math import nan
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from tensonde.adapters.torch.capture import capturing
from tensonde.adapters.torch.digests.device.digests import MOST_AHEAD
from tensonde.adapters.torch.replay.call import Slot, TapedCall
from tensonde.adapters.torch.replay.scalars import Noted, Scalars
from tensonde.adapters.torch.run import batches
from tensonde.adapters.torch.tensors import bytes_of
from tensonde.digest.layout import of_one
from tensonde.model.site import Kind, Role

if TYPE_CHECKING:
    from tensonde.adapters.torch.replay.replay import Replay

MOST_BYTES = 64 << 20
"""Of all that is kept, and no more than a hundredth of the device's memory."""
MOST_KEPT = MOST_AHEAD + 2
"""Steps that are kept: as many as a program may be ahead of its device."""
REMEMBERED = 16


class Kept:
    """A step that can be run again, in the place of the tape."""

    def __init__(self, replay: Replay, parameters: list[Tensor], limit: int) -> None:
        tape = replay.tape
        self.step = replay.state.step
        self.trouble = tape.trouble
        self.losses = tape.losses
        self.scalars = replay.late.scalars.now([entry.call for entry in tape.entries])
        self.batch = batches.latest
        self.leapt = False
        """It is run again for a loss that is finite, but far out."""
        self.entries: list[TapedCall] = tape.entries
        self._given = tape._given
        self.parameters: list[Tensor] = []
        self.copies: list[Tensor] = []
        own = {id(parameter) for parameter in parameters}
        held = sum(bytes_of(tensor) for key, (tensor, _) in self._given.items() if key not in own)
        size = sum(map(bytes_of, parameters))
        self.size = size + held
        if not self.trouble and self.size > limit // 2:  # two steps, at the least
            self.trouble = f"its parameters and its batch take {self.size >> 20} MB, which are not kept on the device"
        if self.trouble:
            self.size = 0
            self.entries, self._given, self.losses = [], {}, []
            self.scalars = Noted([])
        else:
            self.parameters = parameters

    def slot(self, tensor: Tensor) -> Slot | None:
        return None

    def alive(self, slots: list[Slot]) -> list[tuple[Slot, Tensor]]:
        return []

    def unchanged(self) -> bool:
        """But for the parameters, of which there are copies."""
        return not self.changed()

    def changed(self) -> list[str]:
        own = {id(parameter) for parameter in self.parameters}
        return [
            f"{type(tensor).__name__} {list(tensor.shape)}"
            for key, (tensor, version) in self._given.items()
            if version >= 0 and key not in own and tensor._version != version
        ]

    def put_back(self) -> None:
        """The parameters get the values they had in that step. The caller puts everything back."""
        with torch.no_grad():
            for parameter, copy in zip(self.parameters, self.copies, strict=True):
                parameter.detach().copy_(copy)


class Late:
    """Belongs to the training thread."""

    def __init__(self, replay: Replay) -> None:
        self._replay = replay
        self.kept: deque[Kept] = deque()
        self.scalars = Scalars()
        self._spare: dict[tuple[int, ...], list[list[Tensor]]] = {}
        self._limit: int | None = None
        self._bad: list[tuple[int, str, float]] = []
        """What has arrived and was not finite: step, what it is, the loss."""
        self._leapt: list[tuple[int, float]] = []
        self._poisoned = False
        self._heard = -1
        """The last step of which something has arrived."""
        self.looked_at: dict[int, int] = {}
        """Of each of the last steps: the last step before it that was looked at."""

    def keep(self, optimizer: Any) -> None:
        """An optimizer is about to change its parameters."""
        replay = self._replay
        if not replay.digests.device.used or not replay.tape.wanted or not replay.tape.losses or replay.active:
            return
        if capturing():  # a copy would be made at every replay of the graph
            return
        held = [p for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
        kept = Kept(replay, held, self._most())
        try:
            self._copy(kept, held)
        except torch.OutOfMemoryError:  # the training needs it
            self.forget()
            self._limit = 0
            return
        self.kept.append(kept)
        while len(self.kept) > MOST_KEPT or sum(one.size for one in self.kept) > self._most():
            self._drop(self.kept.popleft())

    def _copy(self, kept: Kept, held: list[Tensor]) -> None:
        if kept.parameters:
            key = tuple([id(parameter) for parameter in held])
            spare = self._spare.get(key)
            with torch.no_grad():
                kept.copies = (
                    spare.pop() if spare else [torch.empty_like(parameter, requires_grad=False) for parameter in held]
                )
                groups: dict[torch.device, tuple[list[Tensor], list[Tensor]]] = {}
                for copy, parameter in zip(kept.copies, held, strict=True):
                    copies, values = groups.setdefault(parameter.device, ([], []))
                    copies.append(copy)
                    values.append(parameter.detach())
                for copies, values in groups.values():
                    torch._foreach_copy_(copies, values)

    def _drop(self, kept: Kept) -> None:
        if kept.copies:
            key = tuple([id(parameter) for parameter in kept.parameters])
            if len(self._spare) > 4:
                self._spare.clear()
            self._spare.setdefault(key, []).append(kept.copies)

    def _most(self) -> int:
        if self._limit is None:
            self._limit = MOST_BYTES
            try:
                self._limit = min(MOST_BYTES, torch.accelerator.get_memory_info()[1] // 100)
            except Exception:  # a device that does not say how much it has
                pass
        return self._limit

    def forget(self) -> None:
        """No step is run again any more."""
        self.kept.clear()
        self._spare.clear()

    # -- what has arrived ------------------------------------------------------------------------

    def arrived(self, rows: np.ndarray[Any, Any]) -> None:
        """Digests of a device, in their order."""
        session = self._replay.state.session
        sites = session.sites
        self._heard = max(self._heard, int(rows["step"].max()))
        bad = (rows["nan"] > 0) | (rows["pos_inf"] > 0) | (rows["neg_inf"] > 0)
        for row in rows[bad]:
            site, step = sites[int(row["site"])], int(row["step"])
            self._replay.tell_unseen(step, self.looked_at.get(step))
            if site.kind is Kind.LOSS:
                self._bad.append((step, "loss", float(of_one(row.__getitem__)) if row["count"] == 1 else nan))
            elif site.kind is Kind.PARAMETER and site.role is Role.GRAD:
                self._bad.append((step, "gradient", nan))
            elif site.kind is Kind.PARAMETER and site.role is Role.VALUE:
                self._poisoned = True
        loss = session.site_ids.get(("loss", Role.VALUE, None))
        for row in rows[(rows["site"] == loss) & ~bad & (rows["count"] == 1)] if loss is not None else ():
            if self._replay.leaps.is_one(float(row["mean"])):
                self._leapt.append((int(row["step"]), float(row["mean"])))

    def look(self) -> None:
        """Between two steps: runs again what has gone wrong, if anything has."""
        for step in [step for step in self.looked_at if step < self._replay.state.step - REMEMBERED]:
            del self.looked_at[step]
        bad, self._bad = self._bad, []
        leapt, self._leapt = self._leapt, []
        replay = self._replay
        for step in dict.fromkeys(step for step, _, _ in bad):
            kinds = [kind for at, kind, _ in bad if at == step]
            if "loss" in kinds:
                replay.run_late("the loss is not finite", step, self._of(step), loss=True)
            elif not replay.state.session.engine.loss_scaling:
                replay.run_late("a gradient is not finite", step, self._of(step), loss=False)
        for step, _ in leapt:
            replay.leapt_late(step, self._of(step))
        while self.kept and self.kept[0].step <= self._heard:
            self._drop(self.kept.popleft())
        if self._poisoned:
            self._poisoned = False
            replay.poisoned()
            self.forget()

    def _of(self, step: int) -> Kept | None:
        return next((kept for kept in self.kept if kept.step == step), None)
