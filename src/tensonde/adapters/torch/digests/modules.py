"""What digests the tensors that a module gives: made when a call is seen for the first time."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from tensonde.adapters.torch.debugging.stops import Stops
from tensonde.adapters.torch.digests.tensors import Digests
from tensonde.adapters.torch.run.record import MOST_CALLS, ModuleRecord, Tap
from tensonde.adapters.torch.seams.function_mode import unseen
from tensonde.adapters.torch.tensors import device_name, dtype_name, is_dense, is_plain, part_of, shape_of
from tensonde.model.site import Kind, Role
from tensonde.program.frames import user_line
from tensonde.session.session import Session


class Taps:
    def __init__(self, session: Session, digests: Digests, stops: Stops) -> None:
        self._session, self._digests, self._stops = session, digests, stops

    def make_taps(self, entry: ModuleRecord, call: int, tensors: Any) -> list[tuple[Tap | None, Tap | None]]:
        """Registers the sites of a call that is seen for the first time, and makes its taps."""
        if call >= MOST_CALLS or call > len(entry.taps):
            return []
        several = len(tensors) > 1
        source = user_line()
        pairs: list[tuple[Tap | None, Tap | None]] = []
        entry.seen = True
        for k, tensor in enumerate(tensors):
            facts: dict[str, Any] = {
                "index": k if several else None,
                "type": entry.type,
                "shape": shape_of(tensor),
                "dtype": dtype_name(tensor),
                "device": device_name(tensor),
                "source": source,
                "part": part_of(tensor),
            }
            out = self._session.site(entry.name, Role.OUT, Kind.MODULE, **facts)
            pair: tuple[Tap | None, Tap | None] = (self._tap(out, tensor, call), None)
            if tensor.is_floating_point() or tensor.is_complex():
                grad = self._session.site(entry.name, Role.GRAD, Kind.MODULE, **facts)
                entry.watched |= self._session.user_watched(self._session.sites[grad])
                pair = (pair[0], self._tap(grad, tensor, call))
            entry.watched |= self._session.user_watched(self._session.sites[out])
            self._session.policy.has_watched |= entry.watched
            pairs.append(pair)
        if call == len(entry.taps):
            entry.taps.append(pairs)
        else:
            entry.taps[call] = pairs
        return pairs

    def _tap(self, site: int, like: Tensor, call: int) -> Tap:
        """What digests a tensor at this site: the kernel itself, if nothing must act at once."""
        session, device = self._session, self._digests.device
        if self._stops.keeping or site in session.immediate:
            return self._stops.tap(site, call)
        if is_plain(like):
            return session.block.tap(site, call)
        if not is_dense(like):
            return self._careful(site, call)

        def device_tap(tensor: Any) -> None:
            with unseen():
                device.add(session.block, site, tensor, call)

        return device_tap

    def _careful(self, site: int, call: int) -> Tap:
        """For kinds of tensors that the kernel cannot read as they are."""
        digests = self._digests

        def tap(tensor: Any) -> None:
            with unseen():
                digests.add(site, tensor, call)

        return tap
