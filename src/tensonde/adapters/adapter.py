"""The interface of a framework: `launch`, `tensonde.api` and the debugger know an adapter by this file only.

An `Adapter` stands for a framework in this process. It changes nothing until the training begins; then it opens a `Training`,
which belongs to the thread that trains. Everything else an adapter does, it does by calling its `Session`: it registers sites,
digests tensors, ends steps, asks the gate where the training may stop, and writes traces and facts into the recording.

Threads: all methods are called by the training thread, but for `current` and `Training.bring_up_to_date`, which may be called
by any. Failure: nothing here raises into the user's program but `UsageError`, for wrong use. `tests/conformance` is what every
adapter must pass.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any, Protocol

from tensonde.adapters.capabilities import Capability
from tensonde.adapters.devices import Device

if TYPE_CHECKING:
    from tensonde.model.stop import Stop
    from tensonde.session.inspector import Inspector
    from tensonde.session.options import Options
    from tensonde.session.session import Session

Opener = Callable[[], "Training | None"]
"""Makes the training when it begins. None: this process is not watched."""


@dataclass(frozen=True, slots=True)
class Checkup:
    """How the adapter gets on with the installed release of its framework."""

    version: str
    missing: dict[str, str]
    """Private names of the framework that are gone, and what happens without them."""
    replaced: dict[str, str]
    """Attributes of the framework that the adapter replaces, and why."""
    device: Device | None = None
    """The accelerator that is there; None: none, or not known."""


class Training(Protocol):
    """One training in this process."""

    @property
    def session(self) -> Session: ...

    @property
    def thread(self) -> int:
        """The thread that trains. Calls from other threads pass unobserved."""

    @property
    def epoch(self) -> int: ...

    @property
    def resting(self) -> bool:
        """The current step is not observed, or only at a glance."""

    def inspector(self) -> Inspector: ...

    def attach(self, things: tuple[Any, ...], named: dict[str, Any]) -> None:
        """Names modules and optimizers that the script hands over. Raises UsageError for anything else."""

    def stop(self, stop: Stop) -> None:
        """Stops here and now, if a debugger is attached."""

    def debugger_attached(self, *, stop_at_entry: bool) -> None:
        """The gate has a controller now. `stop_at_entry` asks for a stop before the first module runs."""

    def bring_up_to_date(self) -> None:
        """Writes everything known so far. Does nothing in a thread that does not train."""

    def describe(self, problem: BaseException, trace: TracebackType | None) -> dict[str, Any]:
        """The event of the exception that ends the program, as JSON. It keeps no object of the program alive."""

    def close(self, failure: dict[str, Any] | None) -> None:
        """The program ends: writes the rest and closes the recording. `failure` is what `describe` gave."""

    def detach(self) -> None:
        """Takes everything off the framework's stacks. May be called twice, and in a forked child."""


class Adapter(Protocol):
    """A framework in this process."""

    framework: str
    """The module whose import the adapter waits for."""
    capabilities: frozenset[Capability]

    def install(self, opener: Opener) -> None:
        """Puts the adapter into the framework, which has just been imported. A second call only replaces the opener."""

    def installed(self) -> bool: ...

    def current(self) -> Training | None:
        """The training of this process, if one is open."""

    def begin(self) -> Training | None:
        """Opens the training, once. None: this process is not watched."""

    def open(self, options: Options) -> Training:
        """Makes the session and the training. The opener calls it."""

    def withdraw(self) -> None:
        """The program ends: calls from now on are the framework's own."""

    def examine(self) -> Checkup:
        """Puts the adapter in and says what it found. For a process that trains nothing."""

    def concerns_training(self, problem: BaseException, trace: TracebackType | None) -> bool:
        """Whether an exception from before the training is worth a recording."""

    def trim(self, problem: BaseException) -> None:
        """Takes Tensonde's frames out of the traceback of an exception."""

    def replay(self, options: Options, debugger: Callable[[Training], None] | None) -> None:
        """Turns this process into the replay of a bundle. Needs the capability `bundles`."""

    def launch_blocking(self) -> None:
        """Makes every op synchronous. Needs the capability `blocking`."""

    def inspect(self, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any], wrt: Any, frame: FrameType) -> Any:
        """`tensonde.inspect`. Needs the capability `inspect`."""

    def show(self, things: tuple[Any, ...], sep: str, precision: int, most: int, gradient: bool) -> Any:
        """`tensonde.print`. Needs the capability `print`."""
