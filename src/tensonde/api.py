"""What a training script may call. Under `tensonde run` the session is there; otherwise the first call opens one."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

from tensonde.adapters.registry import chosen, imported
from tensonde.errors import UsageError

if TYPE_CHECKING:
    from tensonde.adapters.adapter import Training
    from tensonde.model.watchpoint import Action


def attach(*things: Any, **named: Any) -> None:
    """Tells Tensonde about modules and optimizers, so that nothing is guessed: `attach(model, optimizer)`, `attach(G=gen, D=disc)`.

    Modules given by keyword go by that name. Without `tensonde run`, this begins a recording under `.tensonde/runs`.
    """
    training = _open_training(begin=True)
    if training is not None:
        training.attach(things, named)


def watch(sites: str, condition: str, *, on_hit: Action | None = None) -> None:
    """Adds a watchpoint: `watch("**:grad", "norm > 1e3")`. `on_hit` is report, stop or pause."""
    if on_hit not in (None, "report", "stop", "pause"):
        raise UsageError(f"on_hit is {on_hit!r}; it may be report, stop or pause.")
    from tensonde.watch.parse import watchpoint

    watchpoint(f"{sites} {condition}", id=1)  # wrong use raises in the script, with or without Tensonde
    training = _open_training(begin=True)
    if training is not None:
        training.session.watch(sites, condition, on_hit)


def breakpoint() -> None:
    """Stops here if a debugger is attached; does nothing otherwise."""
    training = _open_training(begin=False)
    if training is not None and training.session.gate.controller is not None:
        from tensonde.model.stop import Stop

        training.stop(Stop("code", training.session.moment, frame=sys._getframe(1)))


def view(thing: Any = ".", *, height: int = 640) -> Any:
    """A recording (its path, its name, or opened), a trace or an inspection, to look at in a notebook: `view(".tensonde/runs/demo")`.

    The last expression of a cell shows it; `.save("report.html")` writes the same page to a file. Of a run that still goes
    on, what was recorded until now is diagnosed and shown.
    """
    training = _open_training(begin=False)
    if training is not None:
        training.bring_up_to_date()
    from tensonde.page.notebook import view as show

    return show(thing, height=height)


def launch_blocking() -> None:
    """Makes every op synchronous from now on, on any device, so that an error surfaces at the line that caused it; slow.

    On a CPU ops are synchronous anyway, and this only says so. `tensonde run --blocking` does the same from the start.
    """
    chosen().launch_blocking()


def report(name: str, value: float, step: int | None = None) -> None:
    """Notes a number of the training's own, such as an accuracy: in the recording, and for `tensonde tune`.

    `step` is the optimizer step that it belongs to (default: the current one, which lasts until the next one begins with
    a forward or backward pass). Without a recording it does nothing.
    """
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise UsageError(f"report({name!r}, ...) was given {value!r}, which is no number.") from None
    training = _open_training(begin="TENSONDE_OPTIONS" in os.environ and imported() is not None)
    if training is not None:
        session = training.session
        try:
            if step is None:
                caller = sys._getframe(1)
                step = session.steps.step_at((caller.f_code, caller.f_lineno), seen=not training.resting)
            session.writer.scalars(int(step), {str(name): number})
        except Exception as problem:
            session.guard.contain("writing the recording", problem)
    from tensonde.model.reported import note

    note(str(name), number, step)


def current() -> Training | None:
    """The training of this process, if one is watched; its `session` holds hits and watchpoints."""
    return _open_training(begin=False)


def print(*things: Any, sep: str = " ", precision: int = 4, most: int = 1000, gradient: bool = False) -> Any:
    """Prints strings and tensors, also from compiled code (in program order, without a graph break), forward or backward.

    A tensor of more than `most` elements is shown by its corners and its digest. Goes to standard output, as it is
    the script's own. With `gradient=True` nothing is printed now: what comes back is the tensor (a tuple of them),
    passed on unchanged, and its gradient is printed in the backward pass: `h = tensonde.print("grad of h", h, gradient=True)`.
    """
    if "torch" not in sys.modules:
        return chosen().show(things, sep, precision, most, gradient)
    from tensonde.adapters.torch.script.printing import (
        show,  # the compiler reads this function and follows imports, not look-ups
    )

    return show(*things, sep=sep, precision=precision, most=most, gradient=gradient)


def inspect(fn: Any, *args: Any, wrt: Any = None, **kwargs: Any) -> Any:
    """Calls an op, a function or a module and gives back every op of the call, with values, digests, source lines and gradients.

    `inspect(torch.mul, x, y, wrt="all").gradients`; `print(inspect(model, batch))`. `wrt` names the inputs whose gradients are
    wanted (by name, by position, the tensor itself, or "all"); those of parameters always come. No session is needed.
    """
    return chosen().inspect(fn, args, kwargs, wrt, sys._getframe(1))


def _open_training(*, begin: bool) -> Training | None:
    """The training of this process; opened, or begun on the spot, where `begin` asks for it."""
    if not begin and imported() is None:
        return None
    adapter = chosen()
    found = adapter.current()
    if found is None and begin:
        parts = sys.modules.get("tensonde.launch.part")
        if not adapter.installed() or (parts is not None and parts.take_over()):
            from tensonde.launch.child import start_here

            start_here()
        found = adapter.begin()
    return found
