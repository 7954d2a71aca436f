"""Where the training is: its step and phase, the modules that run, how closely it is observed, and what everything is called.

`Watcher` and `Attention` write it; every room reads it. It knows no room.
"""

from __future__ import annotations

from math import nan
from threading import get_ident

from tensonde.adapters.torch.run.record import ModuleRecord
from tensonde.adapters.torch.run.roster import Roster
from tensonde.model.moment import Phase
from tensonde.session.session import Session


class RunState:
    """Belongs to one thread, the one that first calls a module. Calls from other threads pass unobserved and are counted."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.thread = get_ident()
        self.step = 0
        self.epoch = 0
        self.set_phase(Phase.FORWARD)
        self.stack: list[ModuleRecord] = []
        """The modules that run now, outermost first."""
        self.came_from: tuple[int, ...] = ()
        """The way by which the program came to the root that runs now; of several ranks only."""
        self.grad_on = True
        """The root that runs now was called with gradients."""
        self.opaque = False
        """Inside a function transform, where tensors are wrappers without values."""
        self.loss = nan
        """What was differentiated last, if it is one number on the host; else NaN."""
        self.optimizer_steps = 0
        self.level: int = session.policy.level
        self.light = False
        """This step is skipped (see `rest`), or only its loss, gradients and parameters are observed."""
        self.idle = False
        """Nothing is wanted of modules in this step."""
        self.inside_idle = False
        """A root runs in such a step: the modules inside it are not even looked up."""
        self.roster = Roster(session)
        self.parameters = self.roster.parameters
        self.replayed_by = 0
        """The thread that runs a step again just now, or 0. Other threads go on with the training meanwhile."""
        self.other_threads = 0
        """Calls of modules by other threads."""
        self.communicates = False
        """A module or a backward pass of this training has called a collective: to run it again takes all ranks."""
        self.unsupported: dict[str, str] = {}
        """What could not be observed, by name or address, and why."""

    def set_phase(self, phase: Phase) -> None:
        self.phase = phase
        self.session.block.phase = int(phase)
