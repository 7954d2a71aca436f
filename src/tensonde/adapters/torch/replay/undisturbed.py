"""The user's code runs a second time and leaves no trace: state, output, log, warnings and what Tensonde observes are put back."""

from __future__ import annotations

import contextlib
import logging
import sys
from collections.abc import Iterator
from threading import get_ident
from typing import TYPE_CHECKING, Any

import torch

from tensonde.adapters.restore.deeds import no_deeds
from tensonde.adapters.torch.debugging.stops import OBSERVED_BY_NOBODY
from tensonde.adapters.torch.replay.call import TapedCall, autocast_devices
from tensonde.adapters.torch.replay.restore.before import Before
from tensonde.adapters.torch.run.state import RunState
from tensonde.adapters.torch.seams.function_mode import alone, look, look_away
from tensonde.adapters.torch.seams.warned import muted
from tensonde.adapters.torch.tracing.tracer import Tracer
from tensonde.model.moment import Phase


def roots_of(entries: list[TapedCall]) -> list[Any]:
    """What the calls of a tape begin with: their modules, and what these are given. Ops run no code of the user's."""
    return [
        root
        for entry in entries
        if isinstance(entry.call, torch.nn.Module)
        for root in (entry.call, entry.args, entry.kwargs)
    ]


@contextlib.contextmanager
def undisturbed(state: RunState, replay: Replay, before: Before, tracer: Tracer) -> Iterator[list[str]]:
    """Gives a list that afterwards holds what could not be put back."""
    thread, strangers, phase, stack = state.thread, state.other_threads, state.phase, state.stack
    tape, tracing = replay.tape, replay.tracing
    recording, tape.recording, replay.active = tape.recording, False, True
    state.replayed_by = get_ident()
    state.thread, state.phase, state.stack, tracing.tracer = OBSERVED_BY_NOBODY, Phase.FORWARD, [], tracer
    hidden = look_away(tape.mode)
    lost: list[str] = []
    try:
        with unheard(), restored(before, lost):
            yield lost
    finally:
        if hidden:
            look(tape.mode)
        tracing.tracer = None
        state.thread, state.other_threads, state.phase, state.stack = thread, strangers, phase, stack
        state.replayed_by = 0
        replay.active, tape.recording = False, recording


@contextlib.contextmanager
def restored(before: Before, lost: list[str]) -> Iterator[None]:
    """`lost` gets what could not be put back."""
    try:
        with alone(), before.writes, no_deeds(before.writes.refuse), torch.enable_grad():
            if autocast_devices():
                torch.set_autocast_cache_enabled(False)  # casts of this run are not for the training
            yield
    finally:
        lost += before.restore()


@contextlib.contextmanager
def unheard() -> Iterator[None]:
    """What this thread prints, logs and warns of is swallowed; other threads are heard."""
    out, err, disabled = sys.stdout, sys.stderr, logging.root.manager.disable
    sys.stdout, sys.stderr = _Muted(out), _Muted(err)
    logging.disable(logging.CRITICAL)
    try:
        with muted():
            yield
    finally:
        sys.stdout, sys.stderr = out, err
        logging.disable(disabled)


if TYPE_CHECKING:
    from tensonde.adapters.torch.replay.replay import Replay


class _Muted:
    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._thread = get_ident()

    def write(self, text: Any) -> Any:
        return len(text) if get_ident() == self._thread else self._stream.write(text)

    def writelines(self, lines: Any) -> None:
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        if get_ident() != self._thread:
            self._stream.flush()

    @property
    def buffer(self) -> Any:
        return _Muted(self._stream.buffer)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)
