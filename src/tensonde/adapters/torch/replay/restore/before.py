"""Everything as it was before the user's code runs a second time: put back afterwards, and checked."""

from __future__ import annotations

import contextlib
import random
import sys
from typing import Any

import torch
from torch import Tensor
from torch.nn.modules import module as hooks

from tensonde.adapters.restore.holders import Holder, StateHolder
from tensonde.adapters.torch import precision
from tensonde.adapters.torch.checksum import memory_sum
from tensonde.adapters.torch.randomness import device_states, put_device_states
from tensonde.adapters.torch.replay.restore.reach import Reach, position
from tensonde.adapters.torch.replay.restore.writes import Writes, header, version_of
from tensonde.adapters.torch.seams.function_mode import unseen

SMALL = 1 << 20
MOST_COPIED = 256 << 20
"""Tensors up to `SMALL` bytes are copied in any case, as long as there are no more than this: some ops do not say what they
write to, and memory can be written to by other ways than ops. Larger ones are copied when an op writes to them."""
_set_versions = torch._C._autograd._unsafe_set_version_counter


class Before:
    """Made right before the run, which goes on inside `writes`; `restore` comes right after it.

    Nothing may run between that the training would notice. Belongs to the training thread."""

    def __init__(self, roots: list[Any], *, tensors: bool = True) -> None:
        """`tensors`: without them, only what ops write to is put back, and nothing is checked: for runs that are given no values."""
        with unseen(), torch.no_grad():
            self.writes = Writes()
            self._settings = _settings()
            self._reach = Reach([*roots, *_around()])
            self.trouble = self._reach.trouble
            """Why the run must not be, if so: it could not be undone."""
            if not self.trouble:
                self._tensors = _states(self._reach.tensors) if tensors else []
                self._positions = [position(value) for _, value in self._reach.opaque]

    def restore(self) -> list[str]:
        """What could not be put back."""
        with unseen(), torch.no_grad():
            versions: dict[int, tuple[Tensor, int]] = {}
            holders = [*self._reach.holders, *self._settings]
            for holder in holders:
                _put_back(holder)
            for state in self._tensors:
                state.restore_header()
            for tensor, version in self.writes.undo():
                versions[id(tensor)] = tensor, version
            for state in self._tensors:
                state.restore_content()
                versions[id(state.tensor)] = state.tensor, state.version
            _restore_versions(list(versions.values()))
            lost = [f"a tensor of shape {list(s.tensor.shape)}" for s in self._tensors if not s.is_as_before()]
            lost += [holder.describe() for holder in holders if holder.changed()]
            looked = zip(self._reach.opaque, self._positions, strict=True)
            lost += [f"the {what}" for (what, value), was in looked if position(value) != was]
            return list(dict.fromkeys(lost))


class _State:
    __slots__ = ("alias", "copy", "grad", "header", "requires_grad", "sum", "tensor", "version")

    def __init__(self, tensor: Tensor, *, copied: bool) -> None:
        self.tensor = tensor
        self.header = header(tensor)
        self.alias = tensor.detach()
        self.version = version_of(tensor)
        self.requires_grad = tensor.requires_grad
        self.grad = tensor.grad if tensor.is_leaf else None
        self.sum = memory_sum(tensor)
        self.copy = tensor.detach().clone() if copied else None

    def restore_header(self) -> None:
        tensor = self.tensor
        if header(tensor) != self.header:
            tensor.data = self.alias
        if tensor.is_leaf:
            if tensor.requires_grad != self.requires_grad:
                tensor.requires_grad_(self.requires_grad)
            if tensor.grad is not self.grad:
                tensor.grad = self.grad

    def restore_content(self) -> None:
        if self.copy is not None and memory_sum(self.tensor) != self.sum:
            self.alias.copy_(self.copy)

    def is_as_before(self) -> bool:
        tensor = self.tensor
        return (
            header(tensor) == self.header
            and memory_sum(tensor) == self.sum
            and version_of(tensor) == self.version
            and (not tensor.is_leaf or tensor.grad is self.grad)
        )


def _states(tensors: list[Tensor]) -> list[_State]:
    room = MOST_COPIED
    found = []
    for tensor in tensors:
        size = tensor.numel() * tensor.element_size() if tensor.device.type != "meta" else SMALL + 1
        copied = size <= min(SMALL, room) and tensor.layout is torch.strided  # sparse ones are their parts
        room -= size * copied
        found.append(_State(tensor, copied=copied))
    return found


def _restore_versions(pairs: list[tuple[Tensor, int]]) -> None:
    moved = [(tensor, version) for tensor, version in pairs if version >= 0 and version_of(tensor) != version]
    if moved:
        _set_versions(tuple(tensor for tensor, _ in moved), tuple(version for _, version in moved))


def _put_back(holder: Holder) -> None:
    with contextlib.suppress(Exception):  # the check at the end reports what is still changed
        if holder.changed():
            holder.restore()


def _around() -> list[Any]:
    """Code that runs with any module. Modes of the script do not see the run."""
    return [hooks._global_forward_hooks, hooks._global_forward_pre_hooks]


def _settings() -> list[Holder]:
    """Random generators, and what a program can set for all of torch."""
    found: list[Holder] = [
        StateHolder(torch.default_generator.get_state, torch.default_generator.set_state),
        StateHolder(random.getstate, random.setstate),
        StateHolder(torch.get_default_dtype, torch.set_default_dtype),
        StateHolder(torch.get_num_threads, torch.set_num_threads),
        StateHolder(precision.chosen, precision.put),
        StateHolder(torch.is_autocast_cache_enabled, torch.set_autocast_cache_enabled),
    ]
    if device_states():
        found.append(StateHolder(device_states, put_device_states))
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        found.append(StateHolder(numpy.random.get_state, numpy.random.set_state))
    return found
