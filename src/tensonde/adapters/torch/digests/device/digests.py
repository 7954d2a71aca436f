"""The digests of a training whose tensors are on devices: what is under way, and what has arrived.

A tensor is read in the device's current stream, where it is handed in; its row comes with the parcel of its step, mostly when the next step ends.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tensonde.adapters.torch.capture import capturing
from tensonde.adapters.torch.digests.device.parcels import Parcel, Room
from tensonde.adapters.torch.digests.device.staging import Staging
from tensonde.digest import DTYPES, Block
from tensonde.digest.reference import digest_values

log = logging.getLogger("tensonde.digest")

MOST_AHEAD = 8
"""Parcels that may be under way. A program that is further ahead of its device is made to wait for the oldest."""
WITHOUT = 32
"""Steps without digests after the device had no memory for them."""
CODES = {getattr(torch, name): k for k, name in enumerate(DTYPES) if hasattr(torch, name)}
WITH_TRITON = frozenset({"cuda", "xpu"})
"""Devices that Triton may have kernels for. ROCm's are called cuda."""
FLOAT8 = {
    getattr(torch, name): torch.float32 if name == "float8_e8m0fnu" else torch.float16
    for name in DTYPES
    if name.startswith("float8") and hasattr(torch, name)
}
"""What they are read as: no op computes with them, and few devices have kernels that load them."""
_WIDE = frozenset({torch.float64, torch.complex128})
_NOTHING = digest_values(np.zeros(0))


class Summed(Protocol):
    """What a device was asked to sum up, in one tensor of its own, for some of the tensors that it was given."""

    values: Tensor
    counts: list[int]

    def rows(self, host: NDArray[Any]) -> NDArray[Any]: ...


class Reducer(Protocol):
    """Of one stream and dtype of a device."""

    def take(self, tensors: Sequence[Tensor]) -> None: ...
    def done(self) -> Sequence[Summed]: ...


@dataclass(slots=True)
class Waiting:
    """A row whose numbers are to come."""

    step: int
    phase: int
    site: int
    call: int
    dtype: int
    empty: bool


class Lane:
    def __init__(self, device: torch.device, *, wide: bool) -> None:
        self.reducer = make_reducer(device, wide=wide)
        self.waiting: list[Waiting] = []
        self.marked = 0
        self._device, self._wide, self._proved = device, wide, False

    def take(self, tensors: Sequence[Tensor]) -> None:
        try:
            self.reducer.take(tensors)
        except Exception:
            if self._proved or isinstance(self.reducer, Staging):
                raise
            log.warning(
                "kernels for digests do not run on %s; torch's own ops do it, slower", self._device, exc_info=True
            )
            self.reducer = Staging(self._device, torch.float64 if self._wide else torch.float32)
            self.reducer.take(tensors)
        self._proved = True


class DeviceDigests:
    """Not for several threads at once, but for those of autograd, of which each has its own device."""

    def __init__(self) -> None:
        self._lanes: dict[tuple[Any, ...], Lane] = {}
        self._parcels: deque[tuple[Parcel | None, list[Summed], list[Waiting]]] = deque()
        self._room = Room()
        self._without = 0
        """Steps that go without digests, for want of memory."""
        self.used = False
        """Whether anything of this training is on a device. An attribute: every call of a module asks."""

    @property
    def pending(self) -> bool:
        """Whether something is on its way to the host."""
        return bool(self._parcels)

    def add(self, block: Block, site: int, tensor: Tensor, call: int = 0) -> bool:
        """Begins the digest of a tensor; False if it has none. `block` says which step and phase it is."""
        return self.add_many(block, (site,), (tensor,), call) == 1

    def add_many(self, block: Block, sites: Sequence[int], tensors: Sequence[Tensor | None], call: int = 0) -> int:
        """The same for all but the None, and how many of them have digests."""
        if self._without or capturing():
            return 0
        try:
            return self._add_many(block, sites, tensors, call)
        except torch.OutOfMemoryError:
            self._make_room()
            return 0

    def _add_many(self, block: Block, sites: Sequence[int], tensors: Sequence[Tensor | None], call: int) -> int:
        added = 0
        groups: dict[tuple[torch.device, bool], list[Tensor]] = {}
        with torch.no_grad():
            for site, tensor in zip(sites, tensors, strict=True):
                if tensor is None:
                    continue
                code = CODES.get(tensor.dtype)
                if code is None:
                    block.skipped += 1
                    continue
                added += 1
                wide = tensor.dtype in _WIDE
                plain = _real(tensor.detach())
                empty = not plain.numel()
                lane = self._lane(tensor.device, wide=wide)
                lane.waiting.append(Waiting(block.step, block.phase, site, call, code, empty))
                if not empty:
                    groups.setdefault((tensor.device, wide), []).append(plain)
            for (device, wide), group in groups.items():
                self._lane(device, wide=wide).take(group)
        return added

    def _lane(self, device: torch.device, *, wide: bool) -> Lane:
        stream = torch.accelerator.current_stream(device) if device.type == _accelerator() else None
        key = device, stream.stream_id if stream is not None else 0, wide
        lane = self._lanes.get(key)
        if lane is None:
            lane = self._lanes[key] = Lane(device, wide=wide)
            self.used = True
        return lane

    def mark(self) -> None:
        """The step may turn out to have ended here."""
        for lane in self._lanes.values():
            lane.marked = len(lane.waiting)

    def since_mark(self) -> Iterator[Waiting]:
        for lane in self._lanes.values():
            yield from lane.waiting[lane.marked :]

    def send(self) -> None:
        """The step is over: what was summed up is sent to the host."""
        if capturing():
            return
        if self._without:
            self._without -= 1
            return
        try:
            self._send()
        except torch.OutOfMemoryError:
            self._make_room()

    def _make_room(self) -> None:
        """The device has no memory left, which is for the training: what we have of it is given back."""
        log.warning("no memory is left for digests: nothing on a device is digested for %d steps", WITHOUT)
        self._without = WITHOUT
        self._lanes.clear()

    def _send(self) -> None:
        for lane in self._lanes.values():
            if lane.waiting:
                with torch.no_grad():
                    done = list(lane.reducer.done())
                    waiting, lane.waiting, lane.marked = lane.waiting, [], 0
                    parcel = Parcel([summed.values for summed in done], self._room) if done else None
                    for summed in done:
                        summed.values = _GONE
                    self._parcels.append((parcel, done, waiting))

    def arrived(self, *, wait: bool = False) -> NDArray[Any] | None:
        """The rows that have come meanwhile, in the order of their tensors, or None. `wait`: for all of them."""
        found = []
        while self._parcels and not capturing():
            parcel, done, waiting = self._parcels[0]
            if parcel is not None and not parcel.arrived:
                if not wait and len(self._parcels) <= MOST_AHEAD:
                    break
                parcel.wait()
            self._parcels.popleft()
            found.append(_rows(done, parcel.open() if parcel is not None else [], waiting))
        return np.concatenate(found) if found else None

    def at_once(self, tensor: Tensor) -> NDArray[Any] | None:
        """The digest of a tensor as an array of one row, which the device is waited for; None if it has none."""
        code = CODES.get(tensor.dtype)
        if code is None or capturing():
            return None
        with torch.no_grad():
            plain = _real(tensor.detach())
            waiting = Waiting(0, 0, 0, 0, code, not plain.numel())
            if waiting.empty:
                return _rows([], [], [waiting])
            lane = self._lane(tensor.device, wide=tensor.dtype in _WIDE)
            before = list(lane.reducer.done())
            lane.take([plain])
            done = list(lane.reducer.done())
        if before:  # of others, whose turn it is not
            parcel = Parcel([summed.values for summed in before], self._room)
            others, lane.waiting = lane.waiting, []
            self._parcels.append((parcel, before, others))
        return _rows(done, [summed.values.cpu().numpy() for summed in done], [waiting])


_GONE = torch.empty(0)


def _rows(done: Sequence[Summed], arrays: Sequence[NDArray[Any]], waiting: Sequence[Waiting]) -> NDArray[Any]:
    rows = np.repeat(_NOTHING, len(waiting))
    full = [k for k, entry in enumerate(waiting) if not entry.empty]
    if full:
        rows[full] = np.concatenate([summed.rows(array) for summed, array in zip(done, arrays, strict=True)])
    for name in ("step", "phase", "site", "call", "dtype"):
        rows[name] = [getattr(entry, name) for entry in waiting]
    return rows


def _accelerator() -> str:
    global _kind
    if _kind is None:
        found = torch.accelerator.current_accelerator()
        _kind = found.type if found is not None else ""
    return _kind


_kind: str | None = None


def make_reducer(device: torch.device, *, wide: bool) -> Reducer:
    """Triton's kernels where there are any, else torch's own ops."""
    if device.type in WITH_TRITON:
        try:
            from tensonde.adapters.torch.digests.device.fused import Fused
        except ImportError:
            pass
        else:
            return Fused(device)
    return Staging(device, torch.float64 if wide else torch.float32)


def _real(tensor: Tensor) -> Tensor:
    """Complex numbers as magnitudes; an element is NaN if either part is. Of float8 the same numbers in float16, which is exact."""
    if tensor.dtype in FLOAT8:
        return tensor.to(FLOAT8[tensor.dtype])
    if not tensor.is_complex():
        return tensor
    parts = torch.view_as_real(tensor.resolve_conj())
    size = torch.hypot(parts[..., 0], parts[..., 1])
    return torch.where(torch.isnan(parts).any(-1), torch.nan, size)
