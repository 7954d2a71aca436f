"""What is under way in this process, as far as the replaced parts of MindSpore must know, and how the session is opened.

Nothing is observed until the training does something (calls a cell); only then is a session opened. A forked child starts anew: it
has its own session, or none (data workers).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from tensonde.adapters.mindspore.experiments.recorder import Recorder
from tensonde.adapters.mindspore.making import first_pass
from tensonde.adapters.mindspore.observers.origins import KNOWN
from tensonde.adapters.mindspore.run.pynative import PyNative
from tensonde.adapters.mindspore.tracing.tracer import Tracer

Opener = Callable[[], PyNative | None]

SEAMS: dict[str, str] = {}
"""Attributes of MindSpore that are replaced, and why."""


class Place:
    __slots__ = (
        "compiled",
        "graphs",
        "in_optimizer",
        "opener",
        "orphans",
        "outputs",
        "pending",
        "rehearsing",
        "replaying",
        "training",
    )

    def __init__(self) -> None:
        self.opener: Opener | None = None
        self.pending = False
        """A session is opened when the training begins."""
        self.training: PyNative | None = None
        self.orphans: list[PyNative] = []
        self.graphs = 0
        """Forward passes under way that will be differentiated, one inside the other."""
        self.in_optimizer = False
        self.compiled = 0
        """Compiled calls under way: what they call is theirs."""
        self.replaying: Tracer | Recorder | None = None
        """Who looks at a pass that is run again."""
        self.rehearsing = False
        """It is a compiled one, run in PyNative mode up to its optimizer."""
        self.outputs: dict[int, Any] = {}
        """What was differentiated, by the id of the function or cell, until its backward pass."""


HERE = Place()


def current() -> PyNative | None:
    return HERE.training


def differentiating() -> bool:
    """Whether what runs now will be differentiated."""
    return HERE.graphs > 0


@contextmanager
def unobserved() -> Iterator[None]:
    """What is computed meanwhile is Tensonde's own affair."""
    training, graphs = HERE.training, HERE.graphs
    HERE.training = None
    try:
        yield
    finally:
        HERE.training, HERE.graphs = training, graphs


def put(owner: Any, attribute: str, replacement: Any, why: str) -> None:
    name = f"{owner.__module__}.{owner.__qualname__}" if isinstance(owner, type) else owner.__name__
    SEAMS[f"{name}.{attribute}"] = why
    setattr(owner, attribute, replacement)


def begin() -> PyNative | None:
    """Opens the session, once."""
    if not HERE.pending or HERE.opener is None:
        return None
    HERE.pending = False
    training = HERE.training = HERE.opener()
    if training is not None:
        dataset = first_pass()
        if dataset is not None:
            training.epoch_begins(dataset)
        for optimizer in KNOWN.optimizers():
            training.session.steps.optimizer_exists(id(optimizer))
    return training


def forked() -> None:
    """The parent's session is the parent's: it is kept, untouched, so that nothing of it is closed or flushed here."""
    if HERE.training is not None:
        HERE.orphans.append(HERE.training)
        HERE.training, HERE.pending = None, True
