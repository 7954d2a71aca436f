"""What inspectors of all frameworks say in the same way."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

from tensonde.errors import UsageError
from tensonde.model.moment import Phase
from tensonde.session.session import Session
from tensonde.watch.suggest import nearest

_ROLES = ("value", "out", "out[0]", "grad", "in")
"""The most telling first."""


def resolved(address: str, known: Callable[[], Collection[str]]) -> str:
    """A bare name means its most telling role: a parameter's value, a module's output."""
    if ":" in address:
        return address
    there = set(known())
    return next((found for role in _ROLES if (found := f"{address}:{role}") in there), f"{address}:out")


def no_tensor(address: str, known: list[str], *, before: bool) -> UsageError:
    """Why there is none at an address."""
    if address in known:
        return no_value(address, before=before)
    close = nearest(address, known)
    hint = f"; the nearest are {', '.join(close[:3])}" if close else ""
    return UsageError(f"there is no site {address!r} so far{hint}.")


def no_value(address: str, *, before: bool) -> UsageError:
    if before:
        return UsageError(f"no earlier value of {address} is at hand; run a step on and try again.")
    return UsageError(f"no value of {address} is at hand; run on to it with `until {address}`.")


def changed(session: Session, address: str, index: tuple[Any, ...], value: float, step: int) -> str:
    """A debugger set a value: notes it, and says what follows."""
    session.writer.event("assigned", address=address, index=str(index), value=value, step=step)
    return f"{address} was changed: from here on the training is no longer bit-identical to an undisturbed run"


def run_facts(session: Session, step: int, epoch: int, phase: Phase, framework: str) -> dict[str, str]:
    policy = session.policy
    speed = policy.counted / (policy.bare_ns * 1e-9) if policy.bare_ns else 0.0
    return {
        "step": str(step),
        "epoch": str(epoch),
        "phase": str(phase),
        "steps/s": f"{speed:.3g}",
        "overhead": f"{(policy.ratio - 1) * 100:.1f} %",
        "rank": str(session.rank),
        "framework": framework,
    }


def group_texts(group: Mapping[str, Any], sizes: list[int]) -> dict[str, str]:
    """The settings of a group of parameters with this many elements."""
    shown = {"tensors": str(len(sizes)), "elements": str(sum(sizes))}
    plain = {k: v for k, v in group.items() if isinstance(v, int | float | tuple) and v is not False}
    texts = {name: f"{value:g}" if isinstance(value, float) else str(value) for name, value in plain.items()}
    return {**shown, **texts}
