"""A compiled step, run once more in PyNative mode, where every op shows (docs/adr/0023).

The first compiled step that trains is traced in this way, and the first whose loss or parameters are not finite. The program's Python is run with the same
arguments and the parameters as they were, up to where an optimizer would step. Its results are thrown away, and all that it may change is put back;
what `tracing/replay` refuses to run again is refused here, too.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import mindspore
from mindspore import PYNATIVE_MODE
from numpy.typing import NDArray

from tensonde.adapters.mindspore import private
from tensonde.adapters.mindspore.graphs.taps import trained_roots
from tensonde.adapters.mindspore.observers.origins import KNOWN
from tensonde.adapters.mindspore.run.naming import parameters_in
from tensonde.adapters.mindspore.tensors import bytes_of, memory_of, tensors_in, write
from tensonde.adapters.mindspore.tracing.replay import Refused, State, undisturbed, without_dropout
from tensonde.adapters.mindspore.tracing.tracer import Tracer
from tensonde.model.moment import Phase
from tensonde.session.session import StopTraining

if TYPE_CHECKING:
    from tensonde.adapters.mindspore.run.pynative import PyNative

MOST_BYTES, EACH_BYTES = 256 << 20, 16 << 20
"""Parameters that are copied, at most: before the calls up to the first that trains, and before each call after that, in case it goes wrong."""
Reason = Literal["first", "replay"]


class OptimizerReached(BaseException):
    """An optimizer is about to step: the pass is over."""


class Rehearsal:
    """Belongs to the training thread."""

    def __init__(self, training: PyNative) -> None:
        self._training = training
        self._before: list[tuple[Any, NDArray[Any]]] = []
        self._first = training.session.options.budget != 0
        self._alarmed = training.session.options.budget != 0
        """A step that goes wrong is still to be run."""
        self._roots: list[weakref.ref[Any]] = []
        self._held: list[Any] = []
        self._made = 0
        """Cells that there were when parameters were looked for."""
        self._on_cpu = str(mindspore.get_context("device_target")).lower() == "cpu"

    @property
    def roots(self) -> list[Any]:
        """The networks that are trained."""
        return [root for ref in self._roots if (root := ref()) is not None]

    def calling(self) -> None:
        """A compiled call begins: parameters as they are."""
        self._before = []
        mark = self._training.session.clock()
        self._meet()
        wanted = self._on_cpu and (self._first or self._alarmed)
        untapped = not self._training.graphs.taps.there  # else the taps would be run, too
        most = MOST_BYTES if self._first else EACH_BYTES
        if wanted and untapped and sum(map(bytes_of, self._held)) <= most:
            before = [(p, values.copy()) for p in self._held if (values := memory_of(p)) is not None]
            self._before = before if len(before) == len(self._held) else []
        self._training.session.spent_since(mark)

    def _meet(self) -> None:
        """The networks that are trained, their parameters, and the statistics that they keep."""
        made = sum(1 for _ in KNOWN.made)
        if made == self._made:
            return
        self._made = made
        roots, roster = trained_roots(), self._training.roster
        self._roots = [weakref.ref(root) for root in roots]
        for root in roots:
            if id(root) not in roster.entries:
                roster.meet_root(root)
        self._held = list({id(p): p for root in roots for p in parameters_in(root)}.values())

    def stepped(self, fn: Any, again: partial[Any]) -> None:
        """The call of `fn` has trained; `again` runs its Python. What is called without a tensor takes its data from elsewhere (sink mode), where they would be missing."""
        training = self._training
        if not tensors_in((again.args, again.keywords)):
            self._before = []
        bad = self._alarmed and training.tracing.alarmed is not None
        if self._before and (self._first or bad):
            reason: Reason = "replay" if bad else "first"
            self._first = False
            self._alarmed = self._alarmed and not bad
            self._rehearse(fn, again, reason)
        self._before = []

    def _rehearse(self, fn: Any, again: partial[Any], reason: Reason) -> None:
        from tensonde.adapters.mindspore.seams.passes import replaying

        training, session, step = self._training, self._training.session, self._training.step
        state = State(training, fn, [p for p, _ in self._before])
        grad_on, phase, stack = training.grad_on, training.phase, list(training.stack)
        live = training.tracing.tracer
        if live is not None:  # of the step around it
            live.pause()
        tracer = Tracer(training, live=True)
        problem: BaseException | None = None
        try:
            for parameter, values in self._before:
                write(parameter, values)
            with _pynative(), replaying(tracer, compiled=True), undisturbed(training):
                training.grad_on = True
                training.set_phase(Phase.FORWARD)
                if without_dropout(training):
                    tracer.notes.append("dropout was left out when the step was run in PyNative mode")
                tracer.weigh("before", [(name, held, held) for name, held in training.parameters.live()])
                again()
        except OptimizerReached:
            pass
        except (Refused, StopTraining) as refused:
            problem = refused
            session.note("replay_refused", step=step, why=str(refused))
        except Exception as failed:
            problem = failed
            session.note("replay_failed", step=step, why=f"{type(failed).__name__}: {failed}"[:200])
        finally:
            training.grad_on, training.stack[:] = grad_on, stack
            training.set_phase(phase)
            state.restore()
            if live is not None:
                live.begin()
        if problem is None and tracer.drafts:
            training.parameters.traced(tracer)
            training.tracing.write(tracer, step, reason)
        session.uncounted()


@contextmanager
def _pynative() -> Iterator[None]:
    """Nothing is compiled meanwhile."""
    mode = mindspore.get_context("mode")
    if mode != PYNATIVE_MODE:
        private.set_mode(PYNATIVE_MODE)
    try:
        yield
    except OptimizerReached:
        raise
    except BaseException:
        private.abandon_pass()
        raise
    finally:
        if mode != PYNATIVE_MODE:
            private.set_mode(mode)
