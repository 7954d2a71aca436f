"""Learning-rate schedules that torch does not have; for all others, use torch.optim.lr_scheduler."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from torch.optim.lr_scheduler import LambdaLR, LRScheduler, SequentialLR

from tensonde.errors import UsageError
from tensonde.train.callback import Callback

if TYPE_CHECKING:
    from tensonde.train.context import RunContext


class WarmUpLR:
    """A schedule as a function of the step: from 0 in a straight line to `learning_rate` at `warmup_steps`, and there it
    stays. `follow(optimizer, WarmUpLR(0.1, 500))` makes a scheduler of it, as of any such function.
    """

    def __init__(self, learning_rate: float, warmup_steps: int) -> None:
        if not isinstance(learning_rate, float) or learning_rate < 0:
            raise UsageError(f"learning_rate is {learning_rate!r}; it must be a float that is not negative.")
        if not isinstance(warmup_steps, int) or warmup_steps < 1:
            raise UsageError(f"warmup_steps is {warmup_steps!r}; it must be a whole number from 1.")
        self.learning_rate, self.warmup_steps = learning_rate, warmup_steps

    def __call__(self, global_step: int) -> float:
        return self.learning_rate * min(global_step, self.warmup_steps) / self.warmup_steps


class Follow(LRScheduler):  # type: ignore[misc]
    """Sets the learning rate of every group to `function(step)`: the rate itself, not a factor as with LambdaLR."""

    def __init__(self, optimizer: Any, function: Callable[[int], float], last_epoch: int = -1) -> None:
        self.function = function
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        rate = float(self.function(self.last_epoch))
        return [rate for _ in self.optimizer.param_groups]

    def state_dict(self) -> dict[str, Any]:
        return {name: value for name, value in super().state_dict().items() if name != "function"}


follow = Follow
"""As it reads in a script: `scheduler = follow(optimizer, lambda step: 0.1 / (1 + step))`."""


def warm_up(optimizer: Any, steps: int, then: Any = None) -> Any:
    """A scheduler that rises over `steps` steps to the optimizer's own rate, and then goes on with the scheduler `then`.

    The first step already has a rate: 1/steps of it, not 0.
    """
    if steps < 1:
        raise UsageError(f"the warm-up was given {steps} steps; it must be at least 1.")
    rising = LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / steps))
    return rising if then is None else SequentialLR(optimizer, [rising, then], milestones=[steps])


class LearningRateScheduler(Callback):
    """Steps a torch scheduler after each step or, with `every="epoch"`, after each epoch of the training."""

    def __init__(self, scheduler: Any, every: str = "step") -> None:
        if every not in ("step", "epoch"):
            raise UsageError(f"every is {every!r}; it may be step or epoch.")
        self.scheduler, self.every = scheduler, every

    def on_train_step_end(self, run_context: RunContext) -> None:
        if self.every == "step":
            self.scheduler.step()

    def on_train_epoch_end(self, run_context: RunContext) -> None:
        if self.every == "epoch":
            self.scheduler.step()
