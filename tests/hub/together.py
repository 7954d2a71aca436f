"""The two ranks of a training at a hub, as the tests of group control drive them."""

from __future__ import annotations

from typing import Any

from hub_drive import LONG, HubProcess, Timeline


class Pair:
    """The two ranks at a hub."""

    def __init__(self, there: HubProcess, live: Any) -> None:
        self.there, self.timeline = there, Timeline(live)
        self.run, self.names = self.timeline.connected(ranks=2)
        for name in self.names:
            live.subscribe(self.run, name)

    def act(self, action: str, **more: Any) -> dict[str, Any]:
        return self.there.client.post(f"/runs/{self.run}/control", {"action": action, **more})

    def states(self) -> dict[str, dict[str, Any]]:
        found = next(run for run in self.there.client.runs() if run["id"] == self.run)
        return {rank["name"]: rank for rank in found["ranks"]}

    def wait(self, fits: Any, timeout: float = LONG) -> dict[str, dict[str, Any]]:
        """Until all states fit; each message may be the reason to look again."""
        while not fits(found := {name: state for name, state in self.states().items() if name in self.names}):
            try:
                self.timeline.live.receive(timeout)
            except TimeoutError:
                raise AssertionError({name: (state["state"], state["step"]) for name, state in found.items()}) from None
        return found

    def both_stopped(self) -> dict[str, dict[str, Any]]:
        return {
            name: state["stop"]
            for name, state in self.wait(lambda found: all(s["stop"] for s in found.values())).items()
        }
