"""MindSpore behind the interface of `adapters/adapter.py`. What most programs never need is imported when it is called for."""

from __future__ import annotations

from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any

from tensonde.adapters.adapter import Adapter, Checkup, Opener, Training
from tensonde.adapters.capabilities import CAPABILITIES, Capability
from tensonde.adapters.mindspore import private
from tensonde.adapters.mindspore.debugging.inspector import MindSporeInspector
from tensonde.adapters.mindspore.run.opening import coverage, open_training
from tensonde.adapters.mindspore.run.pynative import PyNative
from tensonde.adapters.mindspore.seams import install, place
from tensonde.errors import UsageError
from tensonde.model.stop import Stop
from tensonde.session.options import Options
from tensonde.session.session import Session


class MindSporeTraining:
    """One training: what others may ask of `PyNative`."""

    def __init__(self, inner: PyNative) -> None:
        self.inner = inner

    @property
    def session(self) -> Session:
        return self.inner.session

    @property
    def thread(self) -> int:
        return self.inner.thread

    @property
    def epoch(self) -> int:
        return self.inner.epoch

    @property
    def resting(self) -> bool:
        return self.inner.light

    def inspector(self) -> MindSporeInspector:
        return MindSporeInspector(self.inner)

    def attach(self, things: tuple[Any, ...], named: dict[str, Any]) -> None:
        from tensonde.adapters.mindspore.run.attach import attach_all

        attach_all(self.inner, things, named)

    def stop(self, stop: Stop) -> None:
        self.inner.stops.hit(stop)

    def debugger_attached(self, *, stop_at_entry: bool) -> None:
        self.inner.entry_pending = stop_at_entry
        self.inner.refresh()

    def bring_up_to_date(self) -> None:
        self.inner.bring_up_to_date()

    def describe(self, problem: BaseException, trace: TracebackType | None) -> dict[str, Any]:
        from tensonde.adapters.mindspore.postmortem.failure import describe

        return describe(problem, trace, self.inner)

    def close(self, failure: dict[str, Any] | None) -> None:
        inner, guard = self.inner, self.session.guard
        try:
            inner.rest.wake()
            if inner.dump is not None:
                inner.session.note("dump", **inner.dump.close())
            inner.facts.write()
            inner.session.close(exit={"exception": failure}, coverage=coverage(inner))
        except Exception as problem:
            guard.contain("closing the recording", problem)
        try:
            self.detach()
        except Exception as problem:
            guard.contain("leaving MindSpore", problem)

    def detach(self) -> None:
        self.inner.detach()


class MindSporeAdapter:
    framework = "mindspore"
    capabilities: frozenset[Capability] = CAPABILITIES["mindspore"]

    def __init__(self) -> None:
        self._training: MindSporeTraining | None = None

    def install(self, opener: Opener) -> None:
        def opened() -> PyNative | None:
            training = opener()
            return training.inner if isinstance(training, MindSporeTraining) else None

        private.check()
        install.install(opened)

    def installed(self) -> bool:
        return install.installed()

    def current(self) -> MindSporeTraining | None:
        return self._of(place.current())

    def begin(self) -> MindSporeTraining | None:
        return self._of(place.current() or place.begin())

    def _of(self, inner: PyNative | None) -> MindSporeTraining | None:
        if inner is None:
            return None
        if self._training is None or self._training.inner is not inner:
            self._training = MindSporeTraining(inner)
        return self._training

    def open(self, options: Options) -> MindSporeTraining:
        return MindSporeTraining(open_training(options))

    def withdraw(self) -> None:
        install.withdraw()

    def examine(self) -> Checkup:
        import mindspore

        private.check()
        missing = private.missing()
        install.install(lambda: None)
        return Checkup(mindspore.__version__, missing, dict(sorted(place.SEAMS.items())))

    def concerns_training(self, problem: BaseException, trace: TracebackType | None) -> bool:
        from tensonde.adapters.mindspore.postmortem.failure import concerns_training

        return concerns_training(problem, trace)

    def trim(self, problem: BaseException) -> None:
        from tensonde.adapters.mindspore.postmortem.failure import trim

        trim(problem)

    def replay(self, options: Options, debugger: Callable[[Training], None] | None) -> None:
        raise UsageError("bundles of MindSpore trainings cannot be made, so there is none to replay.")

    def launch_blocking(self) -> None:
        import mindspore

        mindspore.runtime.launch_blocking()

    def inspect(self, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any], wrt: Any, frame: FrameType) -> Any:
        from tensonde.adapters.mindspore.script.inspection import inspect

        private.check()
        return inspect(fn, args, kwargs, wrt, frame)

    def show(self, things: tuple[Any, ...], sep: str, precision: int, most: int, gradient: bool) -> Any:
        from tensonde.adapters.mindspore.script.printing import show

        return show(things, sep, precision, most, gradient=gradient)


ADAPTER: Adapter = MindSporeAdapter()
