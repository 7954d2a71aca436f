"""What running a step again may touch is put back: random generators, buffers, attributes, output, log, what Tensonde observes."""

from __future__ import annotations

import contextlib
import io
import logging
import random
import sys
import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import nn

from tensonde.adapters.torch.modes import alone, look, look_away
from tensonde.adapters.torch.stops import OBSERVED_BY_NOBODY
from tensonde.adapters.torch.taped import Entry
from tensonde.adapters.torch.trace import Tracer
from tensonde.model.moment import Phase

if TYPE_CHECKING:
    from tensonde.adapters.torch.eager import Eager

_COPY_BYTES = 1 << 30
_INTERNAL = frozenset(nn.Module().__dict__)


@contextlib.contextmanager
def undisturbed(eager: Eager, entries: list[Entry], tracer: Tracer) -> Iterator[None]:
    thread, strangers, phase, stack = eager.thread, eager.other_threads, eager.phase, eager.stack
    replay, tape = eager.replay, eager.replay.tape
    recording, tape.recording, replay.active = tape.recording, False, True
    eager.thread, eager.phase, eager.stack, eager.tracer = OBSERVED_BY_NOBODY, Phase.FORWARD, [], tracer
    modules = {id(m): m for e in entries if isinstance(e.call, nn.Module) for m in e.call.modules()}
    buffers = {id(b): b for m in modules.values() for _, b in m.named_buffers(recurse=False)}
    size = sum(b.numel() * b.element_size() for b in buffers.values())
    held = tuple(buffers.values()) if size <= _COPY_BYTES else ()
    copies = [buffer.detach().clone() for buffer in held]
    names = [(m, n, b) for m in modules.values() for n, b in list(m._buffers.items())]
    attributes = [(m, {k: v for k, v in vars(m).items() if k not in _INTERNAL}) for m in modules.values()]
    hidden = look_away(tape.mode)
    states = _random_states()
    disabled = logging.root.manager.disable
    try:
        with (
            contextlib.redirect_stdout(io.StringIO()),
            contextlib.redirect_stderr(io.StringIO()),
            warnings.catch_warnings(),
            alone(),
            torch.enable_grad(),
            torch.autograd._unsafe_preserve_version_counter(held),
        ):
            warnings.simplefilter("ignore")
            logging.disable(logging.CRITICAL)
            try:
                yield
            finally:
                with torch.no_grad():
                    for module, own in attributes:
                        _put_back(vars(module), own)
                    for module, name, buffer in names:
                        module._buffers[name] = buffer
                    for buffer, copy in zip(held, copies, strict=True):
                        buffer.copy_(copy)
    finally:
        logging.disable(disabled)
        _restore(states)
        if hidden:
            look(tape.mode)
        eager.tracer = None
        eager.thread, eager.other_threads, eager.phase, eager.stack = thread, strangers, phase, stack
        replay.active, tape.recording = False, recording


def _put_back(held: dict[str, Any], before: dict[str, Any]) -> None:
    """A counter, or a hidden state that a module keeps: what its attributes were."""
    for key in [key for key in held if key not in _INTERNAL and key not in before]:
        del held[key]
    held.update(before)


def _random_states() -> list[tuple[Literal["torch", "cuda", "python", "numpy"], Any]]:
    states: list[tuple[Literal["torch", "cuda", "python", "numpy"], Any]] = [
        ("torch", torch.default_generator.get_state()),
        ("python", random.getstate()),
    ]
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        states.append(("cuda", torch.cuda.get_rng_state_all()))
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        states.append(("numpy", numpy.random.get_state()))
    return states


def _restore(states: list[tuple[Literal["torch", "cuda", "python", "numpy"], Any]]) -> None:
    for kind, state in states:
        if kind == "torch":
            torch.default_generator.set_state(state)
        elif kind == "python":
            random.setstate(state)
        elif kind == "cuda":
            torch.cuda.set_rng_state_all(state)
        else:
            sys.modules["numpy"].random.set_state(state)
