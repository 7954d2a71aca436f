"""Tools for a live training: watchpoints, breakpoints, stops. The hub refuses what the training cannot do now."""

from __future__ import annotations

import time
from typing import Annotated, Any, Literal

from pydantic import Field

from tensonde.errors import UsageError
from tensonde.mcp import hints
from tensonde.mcp.answer import Answer
from tensonde.mcp.bench import Bench, Found
from tensonde.mcp.programs import Programs
from tensonde.mcp.reading import Rank, Run
from tensonde.protocol.client import HubError

Action = Literal["continue", "pause", "step", "next", "nextop", "until", "finish", "terminate"]
POLL = 0.05
Json = dict[str, Any]


class Acting:
    def __init__(self, bench: Bench, programs: Programs) -> None:
        self._bench, self._programs = bench, programs

    def control(
        self,
        action: Annotated[
            Action,
            Field(
                description="nextop: to the next op; next: to the next module; finish: to the end of the module; step: to the end of the step; until: to a site; terminate: end after the step"
            ),
        ],
        run: Run = "",
        count: Annotated[int, Field(ge=1, description="for step: how many")] = 1,
        sites: Annotated[str, Field(description="for until: a site pattern")] = "",
        wait: Annotated[float, Field(ge=0, le=600, description="seconds to wait for the next stop, or the end")] = 20,
        rank: Rank = None,
    ) -> Answer:
        """Pause, step, continue or end a live training, and say where it stands then. Ends nothing but the training."""
        found = self._live(run, rank)
        before = self._bench.state(found)
        if action == "pause" and before["state"] == "stopped":
            return self._told(found, before)
        if action in ("pause", "terminate") and rank is None:
            found.client.post(f"/runs/{found.run['id']}/control", {"action": action})
        else:
            found.remote.control(action, count=count, sites=sites)
        return self._told(found, self._settled(found, before, wait))

    def state(
        self,
        run: Run = "",
        wait: Annotated[float, Field(ge=0, le=600, description="seconds to wait for a stop, or the end")] = 0,
        rank: Rank = None,
    ) -> Answer:
        """Where a training stands: running or stopped, at which step, at which line, for which watchpoint."""
        found = self._bench.find(run, rank)
        state = self._bench.state(found)
        if state["connected"]:
            self._bench.follow(found)
        if wait and state["state"] == "running":
            state = self._settled(found, {"state": "running", "stop": None}, wait)
        return self._told(found, state)

    def watchpoints(self, run: Run = "", rank: Rank = None) -> Answer:
        """The watchpoints of a run, with what each has reported."""
        found = self._bench.find(run, rank)
        return Answer(
            "watchpoints",
            found.remote.get("watchpoints"),
            [f"Another: watch(run={found.name!r}, sites='**:grad', condition='norm > 1e3')."],
        )

    def watch(
        self,
        sites: Annotated[str, Field(description="a site pattern, such as '**:grad'")],
        condition: Annotated[str, Field(description="such as 'norm > 1e3', 'has nan', 'zeros > 0.9'")],
        action: Annotated[Literal["report", "stop", "pause"], Field(description="what a hit does")] = "report",
        run: Run = "",
        rank: Rank = None,
    ) -> Answer:
        """Set a watchpoint on a live training. On a recorded one, recheck tells what it would have found."""
        found = self._live(run, rank)
        made = found.remote.post("watchpoints", sites=sites, condition=condition, action=action)
        stopped = self._bench.state(found)["state"] == "stopped"
        wait = f"control(run={found.name!r}, action='continue')" if stopped else f"state(run={found.name!r}, wait=60)"
        return Answer(
            "watchpoint",
            made,
            [
                f"Wait for its hit: {wait}.",
                f"Remove it: unwatch(run={found.name!r}, id={made['id']}).",
            ],
        )

    def unwatch(self, id: int, run: Run = "", rank: Rank = None) -> Answer:
        """Remove a watchpoint of a live training."""
        found = self._live(run, rank)
        return Answer("message", found.client.delete(f"{found.remote.path}/watchpoints/{id}"), [])

    def recheck(self, sites: str, condition: str, run: Run = "", rank: Rank = None) -> Answer:
        """What a watchpoint would have found in everything that a run has recorded."""
        found = self._bench.find(run, rank)
        document = found.remote.post("watchpoints/recheck", sites=sites, condition=condition)
        first = document["hits"][0] if document["hits"] else None
        more = (
            [f"How it came: digests(run={found.name!r}, site={first['site']!r})."] if first else ["It holds nowhere."]
        )
        return Answer("recheck", document, more, {"hits_in_all": len(document["hits"])})

    def set_breakpoint(
        self,
        sites: Annotated[str, Field(description="modules or ops to stop at, as a site pattern")] = "",
        file: Annotated[str, Field(description="or a source file")] = "",
        line: Annotated[int, Field(ge=0)] = 0,
        condition: Annotated[
            str, Field(description="only where this holds; a condition over the tensor at the site")
        ] = "",
        run: Run = "",
        rank: Rank = None,
    ) -> Answer:
        """Set a breakpoint in a live training: at modules and ops, or at a line."""
        found = self._live(run, rank)
        made = found.remote.post("breakpoints", sites=sites, file=file, line=line, condition=condition)
        return Answer("breakpoint", made, [f"Go there: control(run={found.name!r}, action='continue')."])

    def remove_breakpoint(self, id: int, run: Run = "", rank: Rank = None) -> Answer:
        """Remove a breakpoint of a live training."""
        found = self._live(run, rank)
        return Answer("message", found.client.delete(f"{found.remote.path}/breakpoints/{id}"), [])

    def debugger(
        self,
        line: Annotated[
            str,
            Field(
                max_length=2000, description="such as 'where', 'locals', 'eval x.shape', 'print loss'; 'help' lists all"
            ),
        ],
        run: Run = "",
        rank: Rank = None,
    ) -> Answer:
        """A line for Tensonde's terminal debugger, at a stop of a live training. It can evaluate Python in the training, so the server must allow programs to be run."""
        self._bench.may_run()
        found = self._live(run, rank)
        said = found.remote.command(line)
        text = ["".join(piece["text"] for piece in pieces) for pieces in said["output"]]
        return Answer(
            "output", {**said, "output": text}, [] if said["resumed"] else ["debugger(line='help') lists the commands."]
        )

    def _live(self, run: str, rank: int | None) -> Found:
        """Raises UsageError where the training is over."""
        found = self._bench.find(run, rank)
        if not found.rank["connected"]:
            raise UsageError(
                f"{found.name} is {found.rank['state']}, and not connected to a hub; this can only be done to a live training: start_script starts one."
            )
        self._bench.follow(found)
        return found

    def _settled(self, found: Found, before: Json, wait: float) -> Json:
        """Its state at the next stop or end, or when the time is over."""
        until = time.monotonic() + wait
        while True:
            try:
                state = self._bench.state(found)
            except HubError as problem:
                if problem.status not in (0, 404):
                    raise
                return self._bench.find(found.name).rank  # its hub has ended with it; ours knows the recording
            moved = state["stop"] is not None and state["stop"] != before["stop"]
            if moved or state["state"] not in ("running", "stopped") or time.monotonic() > until:
                return state
            time.sleep(POLL)

    def _told(self, found: Found, state: Json) -> Answer:
        printed = self._programs.output(found.name)
        beside: Json = {"run": found.name, **({"output": printed[-5:]} if printed else {})}
        return Answer(
            "state",
            {key: value for key, value in state.items() if key not in ("capabilities", "host", "pid")},
            hints.after_state(found.name, state),
            beside,
        )
