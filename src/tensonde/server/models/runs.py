"""Runs and their ranks: what a training is doing, and where it stands while it is stopped."""

from __future__ import annotations

from typing import Literal

from tensonde.server.models.common import Model, Number, Source


class Hit(Model):
    """`ord` is its place in the execution order of the rank."""

    ord: int
    watchpoint: int
    site: str
    step: int
    phase: str
    call: int
    condition: str
    preset: dict[str, Number] = {}
    actual: dict[str, Number] = {}
    source: Source | None = None


class Frame(Model):
    """A frame of the user's own code. `path` is the absolute one of `file`, on the training's machine."""

    file: str
    line: int
    function: str = ""
    code: str = ""
    path: str = ""


class Stop(Model):
    """One pause of the training. `site` is an address, `modules` the stack of module names, outermost first;
    `stack` the frames of the user's code, innermost first.

    `number` tells it from all other stops of the session.
    """

    reason: str
    step: int
    phase: str
    call: int = 0
    site: str | None = None
    source: Source | None = None
    modules: list[str] = []
    hits: list[Hit] = []
    breakpoint: int | None = None
    number: int = 0
    stack: list[Frame] = []


class InCollective(Model):
    """Where a rank waits for others: for how long, and how many seconds are `left` until the back end gives up."""

    what: str
    line: str | None = None
    seconds: float
    left: float | None = None


class Together(Model):
    """The process group of a rank: it waits for the others in collectives, and they for it. `timeout` is the back end's, in seconds."""

    world: int
    backend: str
    timeout: float | None = None
    waiting: InCollective | None = None


class RankState(Model):
    """`connected`: an agent speaks for it now. `dropped` counts live digests that were left out, never hits.

    Of two states, the one of the hub that was started later (`hub`, in ms) is newer; of one hub, the one with the larger `version`.
    """

    name: str
    rank: int
    live: bool
    connected: bool = False
    state: Literal["running", "stopped", "finished", "failed", "terminated", "killed", "lost"]
    ended: str | None = None
    """Why, where it did not end by itself."""
    stop: Stop | None = None
    step: int = 0
    steps: int | None = None
    epoch: int | None = None
    phase: str | None = None
    steps_per_second: float | None = None
    overhead: float | None = None
    budget: float | None = None
    device: str | None = None
    framework: str | None = None
    host: str | None = None
    pid: int | None = None
    hits: int = 0
    findings: int | None = None
    """None: no diagnosis was made so far."""
    onlookers: int = 0
    """Browsers and terminals that look at it now."""
    seconds: float | None = None
    loss: list[Number] = []
    """A few values of the loss, from the first step to the last."""
    dropped: int = 0
    last_step_at: str | None = None
    capabilities: list[str] = []
    memory: int | None = None
    """Bytes that the process holds in main memory."""
    together: Together | None = None
    """None: it computes alone, as far as is known."""
    version: int = 0
    hub: int = 0


class Run(Model):
    id: str
    name: str
    script: str | None = None
    framework: str | None = None
    started: str | None = None
    state: Literal["live", "finished", "failed", "terminated", "killed", "empty"]
    command: list[str] = []
    """The script and its arguments."""
    path: str | None = None
    ranks: list[RankState] = []
