"""The digest of one tensor, of any kind and on any device."""

from __future__ import annotations

from typing import Any

from tensonde.adapters.torch.digests.device.digests import DeviceDigests
from tensonde.adapters.torch.run.state import RunState
from tensonde.adapters.torch.seams.function_mode import unseen
from tensonde.adapters.torch.tensors import values_of, without_values


class Digests:
    def __init__(self, state: RunState) -> None:
        self._state, self._session = state, state.session
        self.device = DeviceDigests()

    def add(self, site: int, tensor: Any, call: int = 0) -> int:
        """Acts on hits where it must. Returns the row, or -1 for a tensor without values, which the coverage then lists.
        The row of a tensor on a device comes later: 0 stands for it."""
        found = values_of(tensor)
        if found is None:
            self._state.unsupported[self._session.sites[site].address] = without_values(tensor)
            return -1
        if found.device.type != "cpu":
            added = self.device.add(self._session.block, site, found, call)
            if added and site in self._session.immediate:
                self.settle()
                self._session.evaluate(tensor)
            return 0 if added else -1
        return self._session.observe(site, found, call)

    def poll(self, *, wait: bool = False) -> None:
        """Sends to the host what was asked of devices, and takes in what has come from there meanwhile."""
        mark = self._session.clock()
        with unseen():
            self.device.send()
            rows = self.device.arrived(wait=wait)
            if rows is not None:
                self._session.late(rows)
        self._session.spent_since(mark)

    def settle(self) -> None:
        """Waits for everything that was asked of devices."""
        if self.device.used:
            self.poll(wait=True)
