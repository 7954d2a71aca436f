"""PyTorch behind the interface of `adapters/adapter.py`. What most programs never need is imported when it is called for."""

from __future__ import annotations

from collections.abc import Callable
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any

from tensonde.adapters.adapter import Adapter, Checkup, Opener, Training
from tensonde.adapters.capabilities import CAPABILITIES, Capability
from tensonde.adapters.devices import of_type
from tensonde.adapters.torch import seams
from tensonde.adapters.torch.seams import install
from tensonde.model.stop import Stop
from tensonde.session.options import Options

if TYPE_CHECKING:
    from tensonde.adapters.torch.debugging.inspector import TorchInspector
    from tensonde.adapters.torch.run.watcher import Watcher
    from tensonde.session.session import Session


class TorchTraining:
    """One training: what others may ask of `Watcher`."""

    def __init__(self, watcher: Watcher) -> None:
        self.watcher = watcher

    @property
    def session(self) -> Session:
        return self.watcher.session

    @property
    def thread(self) -> int:
        return self.watcher.state.thread

    @property
    def epoch(self) -> int:
        return self.watcher.state.epoch

    @property
    def resting(self) -> bool:
        return self.watcher.state.light

    def inspector(self) -> TorchInspector:
        from tensonde.adapters.torch.debugging.inspector import TorchInspector

        return TorchInspector(self.watcher.state, self.watcher.stops, self.watcher.graphs)

    def attach(self, things: tuple[Any, ...], named: dict[str, Any]) -> None:
        from tensonde.adapters.torch.run.attach import attach_all

        attach_all(self.watcher, things, named)

    def stop(self, stop: Stop) -> None:
        self.watcher.stops.hit(stop)

    def debugger_attached(self, *, stop_at_entry: bool) -> None:
        self.watcher.stops.entry_pending = stop_at_entry
        self.watcher.refresh()

    def bring_up_to_date(self) -> None:
        self.watcher.bring_up_to_date()

    def describe(self, problem: BaseException, trace: TracebackType | None) -> dict[str, Any]:
        from tensonde.adapters.torch.postmortem.failure import describe

        watcher = self.watcher
        return describe(problem, trace, watcher.state, watcher.latest, watcher.replay.failed_op, watcher.memory.history)

    def close(self, failure: dict[str, Any] | None) -> None:
        from tensonde.adapters.torch.run.coverage import coverage

        watcher, guard = self.watcher, self.session.guard
        try:
            watcher.rest.last_look()
        except Exception as problem:
            guard.contain("looking at the parameters", problem)
        try:
            if watcher.dump is not None:
                watcher.session.note("dump", **watcher.dump.close())
            watcher.facts.write(ended=True)
            watcher.session.close(exit={"exception": failure}, coverage=coverage(watcher))
        except Exception as problem:
            guard.contain("closing the recording", problem)
        try:
            self.detach()
        except Exception as problem:
            guard.contain("leaving torch", problem)

    def detach(self) -> None:
        self.watcher.detach()


class TorchAdapter:
    framework = "torch"
    capabilities: frozenset[Capability] = CAPABILITIES["torch"]

    def __init__(self) -> None:
        self._training: TorchTraining | None = None

    def install(self, opener: Opener) -> None:
        def opened() -> Watcher | None:
            training = opener()
            return training.watcher if isinstance(training, TorchTraining) else None

        install.install(opened)

    def installed(self) -> bool:
        return install.installed()

    def current(self) -> TorchTraining | None:
        return self._of(install.current())

    def begin(self) -> TorchTraining | None:
        return self._of(install.current() or install.begin())

    def _of(self, watcher: Watcher | None) -> TorchTraining | None:
        if watcher is None:
            return None
        if self._training is None or self._training.watcher is not watcher:
            self._training = TorchTraining(watcher)
        return self._training

    def open(self, options: Options) -> TorchTraining:
        from tensonde.adapters.torch.run.opening import open_watcher

        return TorchTraining(open_watcher(options))

    def withdraw(self) -> None:
        install.withdraw()

    def examine(self) -> Checkup:
        import torch
        import torch._dynamo.backends.common
        import torch._dynamo.trace_rules

        from tensonde.adapters.torch import private

        missing = private.missing()
        install.install(lambda: None)
        found = torch.accelerator.current_accelerator(check_available=True)
        return Checkup(
            torch.__version__,
            missing,
            {f"{seam.owner}.{seam.attribute}": seam.why for seam in sorted(seams.SEAMS)},
            of_type(found.type, hip=torch.version.hip is not None) if found is not None else None,
        )

    def concerns_training(self, problem: BaseException, trace: TracebackType | None) -> bool:
        from tensonde.adapters.torch.postmortem.failure import concerns_training

        return concerns_training(problem, trace)

    def trim(self, problem: BaseException) -> None:
        from tensonde.adapters.torch.postmortem.failure import trim

        trim(problem)

    def replay(self, options: Options, debugger: Callable[[Training], None] | None) -> None:
        from tensonde.adapters.torch.replay.bundle.perform import Performance

        performance = Performance(options, (lambda watcher: debugger(TorchTraining(watcher))) if debugger else None)
        if options.factory is None:
            performance.wait()
        else:
            performance.build(options.factory)

    def launch_blocking(self) -> None:
        from tensonde.adapters.torch.script.blocking import launch_blocking

        launch_blocking()

    def inspect(self, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any], wrt: Any, frame: FrameType) -> Any:
        from tensonde.adapters.torch.script.inspection import inspect

        return inspect(fn, args, kwargs, wrt, frame)

    def show(self, things: tuple[Any, ...], sep: str, precision: int, most: int, gradient: bool) -> Any:
        from tensonde.adapters.torch.script.printing import show

        return show(*things, sep=sep, precision=precision, most=most, gradient=gradient)


ADAPTER: Adapter = TorchAdapter()
