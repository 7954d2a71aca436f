"""Which step it is, from what optimizers do.

A step is one round in which every optimizer at work steps at most once. With one optimizer that is
each `step()`. With several (a GAN), the round is over when all of them have stepped; when one of them
steps again before that (three critic updates per generator update), the round ended with the last
`step()` before it: the boundary lies *behind*, and what was observed since then belongs to the new step.
With no optimizer at all, a new step begins with the first forward call after a backward pass, or with the next
backward pass where forwards go by unnoticed. The adapter says which of them belong to one step all the same, since
gradients add up (`adapters/torch/by_hand.py`).
"""

from __future__ import annotations

from collections.abc import Hashable

ABSENT = 3
"""An optimizer that was not used in this many steps is no longer waited for."""


class Steps:
    def __init__(self) -> None:
        self.step = 0
        self._idle: dict[int, int] = {}  # optimizer → rounds since it stepped
        self._stepped: set[int] = set()
        self._backward_done = False
        self.begun = False
        """The step has done something: a forward with gradients, or a backward pass. Right after an optimizer's step it has not."""
        self.unannounced = False
        """Optimizers may step without a word, inside compiled code. Until one does say so, there is none."""
        self._heard = False
        self._within: dict[Hashable, bool] = {}

    def optimizer_exists(self, key: int) -> None:
        self._idle.setdefault(key, 0)

    def optimizer_gone(self, key: int) -> None:
        self._idle.pop(key, None)
        self._stepped.discard(key)

    @property
    def has_optimizer(self) -> bool:
        """One that says when it steps."""
        return bool(self._idle) and (self._heard or not self.unannounced)

    @property
    def optimizers(self) -> int:
        """How many are at work."""
        return sum(idle < ABSENT for idle in self._idle.values())

    @property
    def only(self) -> int | None:
        """The optimizer that there is, where there is one: each of its steps is a step, and `step` may be counted up by hand."""
        return next(iter(self._idle)) if len(self._idle) == 1 and not self._stepped else None

    def before_optimizer(self, key: int) -> bool:
        """True when a step ended behind us, with the last optimizer step before this one."""
        self.optimizer_exists(key)
        self._heard = True
        return key in self._stepped

    def after_optimizer(self, key: int) -> bool:
        """True when the step is over now."""
        self._idle[key] = 0
        self._stepped.add(key)
        self._backward_done = False
        return all(key in self._stepped for key, idle in self._idle.items() if idle < ABSENT)

    def after_backward(self) -> None:
        self._backward_done = self.begun = True

    def step_at(self, place: Hashable, *, seen: bool) -> int:
        """The step that something said at `place` in the program belongs to: until the next one begins, the one that ended.

        `seen`: forwards are noticed now. While they are not, the place is taken to be where in the step it was before.
        """
        if seen:
            self._within[place] = self.begun
        within = self.begun or (not seen and self._within.get(place, False))
        return self.step if within else max(0, self.step - 1)

    def before_forward(self) -> bool:
        """True when, for want of an optimizer, the step is over now that the next forward begins."""
        return self._backward_done and not self.has_optimizer

    def advance(self) -> None:
        for key in self._idle:
            if key not in self._stepped:
                self._idle[key] += 1
        self._stepped.clear()
        self._backward_done = self.begun = False
        self.step += 1
