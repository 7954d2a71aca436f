"""What digests the tensors that a module gives: made when a call is seen for the first time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch import Tensor

from tensonde.adapters.torch.run.entry import MOST_CALLS, Entry, Tap
from tensonde.adapters.torch.seams.function_mode import unseen
from tensonde.adapters.torch.tensors import dtype_name, is_dense, is_plain, shape_of
from tensonde.model.site import Kind, Role
from tensonde.program.frames import user_line

if TYPE_CHECKING:
    from tensonde.adapters.torch.run.eager import Eager


class Taps:
    def __init__(self, eager: Eager) -> None:
        self._eager, self._session = eager, eager.session

    def grow(self, entry: Entry, call: int, tensors: Any) -> list[tuple[Tap | None, Tap | None]]:
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
                "source": source,
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
        """What digests a tensor at this site: the kernel itself where nobody needs to act at once."""
        session, device = self._session, self._eager.device
        if self._eager.stops.keeping or site in session.immediate:
            return self._eager.stops.tap(site, call)
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
        eager = self._eager

        def tap(tensor: Any) -> None:
            with unseen():
                eager.add(site, tensor, call)

        return tap
