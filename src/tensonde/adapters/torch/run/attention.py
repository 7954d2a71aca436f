"""How much of the next step is observed: all of it, its loss, gradients and parameters, or nothing for a stretch (`rest`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tensonde.adapters.torch.debugging.stops import Stops
from tensonde.adapters.torch.observers.facts import Facts
from tensonde.adapters.torch.observers.origins import KNOWN
from tensonde.adapters.torch.postmortem.latest import LatestCall
from tensonde.adapters.torch.replay.replay import Replay
from tensonde.adapters.torch.run.rest import Rest
from tensonde.adapters.torch.run.state import RunState
from tensonde.adapters.torch.seams.lifted import PATCHES
from tensonde.session.policy import Level

if TYPE_CHECKING:
    from tensonde.adapters.torch.dumping.dump import Dump


class Attention:
    """Carries out what `Policy` decides. Belongs to the training thread."""

    def __init__(
        self,
        state: RunState,
        stops: Stops,
        replay: Replay,
        facts: Facts,
        latest: LatestCall,
        rest: Rest,
        asked_of: tuple[int, ...],
    ) -> None:
        """`asked_of`: steps that experiments are asked of."""
        self._state, self._session = state, state.session
        self._stops, self._replay, self._facts, self._latest = stops, replay, facts, latest
        self._rest = rest
        rest.ended, rest.woken, rest.enough = self.choose, self.wake, self._enough
        rest.evaluating = replay.evaluation_begins
        self.dump: Dump | None = None
        self._restful = False
        options = state.session.options
        self._asked_for = [*options.save_steps, *(step for step in options.window if step > 1), *asked_of]
        """Steps that must be seen: to be saved, traced, asked, or the last."""
        if options.steps is not None:
            self._asked_for.append(options.steps - 1)

    def choose(self, *, behind: bool = False) -> None:
        """A step ended: the next is looked at, glanced at, or the first of a stretch that rests. `behind`: it has begun already."""
        policy = self._session.policy
        level = policy.level
        if level < Level.SENTINEL and not self._stops.whole:
            room = self._room()
            if self.may_rest() and room > 0:
                asleep = level is Level.REST and not behind
                self._out(asleep=asleep)
                if asleep:
                    self._rest.begin(min(policy.stretch, room), policy.cold)
                else:
                    policy.level = Level.GLANCE
                return
            policy.level = Level.SENTINEL
        if self._state.light:
            self.wake()
            self._replay.wake()
        self._state.level = Level.FULL if self._stops.whole else policy.level
        self.settle()

    def may_rest(self) -> bool:
        """Whether the coming steps may go unseen. What the user watches, and what must act at once, is looked at in
        every step, whatever it costs."""
        session = self._session
        return (
            self._restful
            and self._session.world == 1  # others must see that this rank goes on
            and not KNOWN.compiled  # what is compiled may be guarded by the code that would be exchanged
            and session.steps.has_optimizer
            and self._replay.tracing.tracer is None
            and not self._state.stack
            and not self._replay.tracing.wanted
            and not session.gate.asked
            and not self._stops.keeping
        )

    def _room(self) -> int:
        """Steps from now on before one that was asked for."""
        now = self._state.step
        return min([step - now for step in self._asked_for if step >= now], default=1 << 30)

    def _out(self, *, asleep: bool) -> None:
        """Out of the training's way, but for what a glance needs."""
        state = self._state
        if not state.light:
            state.light = True
            state.idle, state.inside_idle = True, False
            self._replay.sleep()
            self._facts.sleep()
            self._latest.forget()
        state.level = Level.SENTINEL
        PATCHES.lift(losses=asleep)

    def wake(self) -> None:
        """Everything is in its place again; where the step has begun already, the rest of it is seen."""
        policy = self._session.policy
        policy.level = max(policy.level, Level.SENTINEL)
        self._state.light = False
        PATCHES.put()
        self._rest.settle()
        self._state.level = Level.FULL if self._stops.whole else policy.level
        self.settle()

    def doze(self) -> None:
        """Only the loss, the gradients and the parameters are looked at from here to the end of the step."""
        self._session.policy.level = Level.GLANCE
        self._out(asleep=False)

    def _enough(self) -> None:
        if self._replay.tracing.tracer is None:
            self.doze()

    def settle(self) -> None:
        """Modules need not even be noticed in steps that leave them alone."""
        state = self._state
        state.idle = state.level <= Level.SENTINEL and not self._stops.inputs_wanted
        state.idle = state.idle and (self._session.steps.has_optimizer or state.step > 0)
        if self.dump is not None and self.dump.on:
            state.idle = False
        state.inside_idle = False
        PATCHES.back()

    def refresh(self) -> None:
        """Watchpoints, breakpoints or the plan changed."""
        session = self._session
        options = session.options
        if self._stops.whole:
            self._state.level = Level.FULL
        self._restful = (
            not session.immediate
            and not session.has_user_watchpoints
            and (session.gate.light or not self._stops.debugging)
            and self.dump is None
            and options.twin is None
            and options.graph not in ("nodes", "full")
            and options.verify_steps is None
        )
        if self._rest.asleep:
            self._rest.soon()
        elif not self._state.light:
            self.settle()
