"""Trainings that are picked up again, with a part of their state left behind."""

from __future__ import annotations

from tensonde.diagnose.case import Case
from tensonde.diagnose.rule import rule
from tensonde.model.facts import ResumedFact, SchedulerFact
from tensonde.model.finding import Finding

JUMP = 2.0


@rule("schedule-not-resumed", severity="error", phase="optimizer")
def not_resumed(case: Case) -> list[Finding]:
    """An optimizer gets the state of an earlier run, with the small learning rate that its schedule had reached. Its
    scheduler is a new one that counts from 0 (it has counted only its own steps): at its first step, or when it is
    created, the learning rate jumps back up.

    Silent for a scheduler that got its state, that is created with `last_epoch` or stepped with an epoch, that was
    stepped forward before the training continues, and for schedules that continue from the current rate.
    """
    found = []
    for fact in case.facts.resumed:
        jump = [rate for rate in fact.rates[:2] if rate >= JUMP * fact.lr]
        fresh = [s for s in case.facts.schedulers if s.optimizer == fact.optimizer and _fresh(s)]
        if jump and fresh:
            found.append(_finding(case, fact, fresh[0], jump[0]))
    return found[:1]


def _fresh(scheduler: SchedulerFact) -> bool:
    """Began at 0 and counts nothing but its own steps."""
    return bool(scheduler.steps >= 1 and scheduler.numbers.get("last_epoch") == scheduler.steps)


def _finding(case: Case, fact: ResumedFact, scheduler: SchedulerFact, rate: float) -> Finding:
    return case.finding(
        (
            f"{scheduler.type} starts over when the training is resumed: the learning rate jumps from {fact.lr:.3g} back to "
            f"{rate:.3g}"
        ),
        "Save scheduler.state_dict() with the optimizer's, and load it into the new scheduler after the optimizer's.",
        step=None,
        site="lr_scheduler",
        source=fact.line or scheduler.made,
        evidence={
            "restored_lr": fact.lr,
            "initial_lr": fact.initial_lr,
            "rates_after": fact.rates,
            "scheduler_steps": scheduler.steps,
            "scheduler_made_at": scheduler.made.line if scheduler.made else None,
        },
        confidence=0.9,
    )


@rule("optimizer-state-not-read", severity="error", phase="optimizer")
def not_read(case: Case) -> list[Finding]:
    """A distributed checkpoint (`torch.distributed.checkpoint`) contains the state of an optimizer. It is read into the
    `state_dict()` of an optimizer that has not stepped and so has no tensors. Nothing is read, no error is raised, and
    the training continues with an empty state.

    Silent if `get_state_dict` creates the state first, or if no step follows the load.
    """
    return [
        case.finding(
            f"None of the {fact.stored} values that the checkpoint has for {fact.name} is read: the optimizer's state is still empty",
            "dcp.load only fills existing tensors, and an optimizer that has not stepped has none. Get the states from "
            "torch.distributed.checkpoint.state_dict.get_state_dict(model, optimizer), which creates them, and apply them with set_state_dict.",
            step=fact.step,
            site="optimizer",
            source=fact.line,
            evidence={"values": fact.stored, "name": fact.name},
            confidence=0.95,
        )
        for fact in case.facts.unfilled
        if case.steps > fact.step
    ][:1]
