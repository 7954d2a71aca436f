"""PyTorch behind the interface of `adapters/adapter.py`. What most programs never need is imported when it is called for."""

from __future__ import annotations

from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any

from tensonde.adapters.adapter import Adapter, Capability, Checkup, Opener, Training
from tensonde.adapters.torch import private, seams
from tensonde.adapters.torch.debugging.inspector import TorchInspector
from tensonde.adapters.torch.run.attach import attach_all
from tensonde.adapters.torch.run.coverage import coverage
from tensonde.adapters.torch.run.eager import Eager
from tensonde.adapters.torch.run.opening import open_eager
from tensonde.adapters.torch.seams import install
from tensonde.model.stop import Stop
from tensonde.session.options import Options
from tensonde.session.session import Session


class TorchTraining:
    """One training: what others may ask of `Eager`."""

    def __init__(self, eager: Eager) -> None:
        self.eager = eager

    @property
    def session(self) -> Session:
        return self.eager.session

    @property
    def thread(self) -> int:
        return self.eager.thread

    @property
    def epoch(self) -> int:
        return self.eager.epoch

    @property
    def resting(self) -> bool:
        return self.eager.light

    def inspector(self) -> TorchInspector:
        return TorchInspector(self.eager)

    def attach(self, things: tuple[Any, ...], named: dict[str, Any]) -> None:
        attach_all(self.eager, things, named)

    def stop(self, stop: Stop) -> None:
        self.eager.stops.hit(stop)

    def debugger_attached(self, *, stop_at_entry: bool) -> None:
        self.eager.entry_pending = stop_at_entry
        self.eager.refresh()

    def bring_up_to_date(self) -> None:
        self.eager.bring_up_to_date()

    def describe(self, problem: BaseException, trace: TracebackType | None) -> dict[str, Any]:
        from tensonde.adapters.torch.postmortem.failure import describe

        return describe(problem, trace, self.eager)

    def close(self, failure: dict[str, Any] | None) -> None:
        eager, guard = self.eager, self.session.guard
        try:
            eager.rest.last_look()
        except Exception as problem:
            guard.contain("looking at the parameters", problem)
        try:
            if eager.dump is not None:
                eager.session.note("dump", **eager.dump.close())
            eager.facts.write(ended=True)
            eager.session.close(exit={"exception": failure}, coverage=coverage(eager))
        except Exception as problem:
            guard.contain("closing the recording", problem)
        try:
            self.detach()
        except Exception as problem:
            guard.contain("leaving torch", problem)

    def detach(self) -> None:
        self.eager.detach()


class TorchAdapter:
    framework = "torch"
    capabilities: frozenset[Capability] = frozenset(
        ("ops", "lines", "trace", "replay", "bundles", "dump", "compiled", "blocking", "print", "inspect")
    )

    def __init__(self) -> None:
        self._training: TorchTraining | None = None

    def install(self, opener: Opener) -> None:
        def opened() -> Eager | None:
            training = opener()
            return training.eager if isinstance(training, TorchTraining) else None

        install.install(opened)

    def installed(self) -> bool:
        return install.installed()

    def current(self) -> TorchTraining | None:
        return self._of(install.current())

    def begin(self) -> TorchTraining | None:
        return self._of(install.current() or install.begin())

    def _of(self, eager: Eager | None) -> TorchTraining | None:
        if eager is None:
            return None
        if self._training is None or self._training.eager is not eager:
            self._training = TorchTraining(eager)
        return self._training

    def open(self, options: Options) -> TorchTraining:
        return TorchTraining(open_eager(options))

    def withdraw(self) -> None:
        install.withdraw()

    def examine(self) -> Checkup:
        import torch
        import torch._dynamo.backends.common
        import torch._dynamo.trace_rules

        missing = private.missing()
        install.install(lambda: None)
        return Checkup(
            torch.__version__, missing, {f"{seam.owner}.{seam.attribute}": seam.why for seam in sorted(seams.SEAMS)}
        )

    def concerns_training(self, problem: BaseException, trace: TracebackType | None) -> bool:
        from tensonde.adapters.torch.postmortem.failure import concerns_training

        return concerns_training(problem, trace)

    def trim(self, problem: BaseException) -> None:
        from tensonde.adapters.torch.postmortem.failure import trim

        trim(problem)

    def replay(self, options: Options, debugger: Callable[[Training], None] | None) -> None:
        from tensonde.adapters.torch.replay.bundle.perform import Performance

        performance = Performance(options, (lambda eager: debugger(TorchTraining(eager))) if debugger else None)
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


ADAPTER: Adapter = TorchAdapter()
