"""An optimizer's step: gradients before it, parameters after it, and maybe the end of a step of the training."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tensonde.adapters.mindspore.observers.origins import groups_of
from tensonde.adapters.mindspore.tensors import wait_for
from tensonde.model.moment import Phase

if TYPE_CHECKING:
    from tensonde.adapters.mindspore.run.pynative import PyNative


def steps(training: PyNative, optimizer: Any, gradients: Sequence[Any]) -> None:
    """An optimizer is called with these."""
    session = training.session
    wait_for(gradients)
    mark = session.clock()
    try:
        if session.steps.before_optimizer(id(optimizer)):
            training.stepping.finish(behind=True)
        training.rates = [group.get("lr") for group in groups_of(optimizer)]
        training.parameters.before(optimizer, gradients)
        replay_if_spoilt(training)
        training.facts.before_optimizer(optimizer, gradients)
        if training.dump is not None:
            training.dump.before_optimizer(optimizer, gradients)
    except Exception as problem:
        training.contain("observing gradients", problem)
    session.spent_since(mark)
    try:
        training.laboratory.ask(optimizer, gradients)
    except Exception as problem:
        training.contain("asking a step", problem)


def replay_if_spoilt(training: PyNative) -> None:
    """The first time that a value is not finite, the pass is run again to see where it came from."""
    again, training.pass_again = training.pass_again, None
    if again is not None and training.tracing.to_replay:
        again()
    else:
        training.pass_again = again


def stepped(training: PyNative, optimizer: Any) -> None:
    session = training.session
    training.pass_again = None
    wait_for(optimizer.parameters)
    mark = session.clock()
    try:
        training.parameters.after(optimizer)
        training.facts.after_optimizer(optimizer)
        if training.dump is not None:
            training.dump.after_optimizer(optimizer)
    except Exception as problem:
        training.contain("observing parameters", problem)
    try:
        training.set_phase(Phase.FORWARD)
        over = session.steps.after_optimizer(id(optimizer))
        rates = training.rates
        session.spent_since(mark)
        if over:
            known = {f"lr/{k}": float(lr) for k, lr in enumerate(rates) if isinstance(lr, int | float)}
            training.stepping.finish(scalars=known)
        else:
            training.stepping.mark()
    except Exception as problem:
        training.contain("ending a step", problem)
