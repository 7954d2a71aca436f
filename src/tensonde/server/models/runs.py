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


class Stop(Model):
    """One pause of the training. `site` is an address, `modules` the stack of module names, outermost first."""

    reason: str
    step: int
    phase: str
    call: int = 0
    site: str | None = None
    source: Source | None = None
    modules: list[str] = []
    hits: list[Hit] = []
    breakpoint: int | None = None


class RankState(Model):
    """`connected`: an agent speaks for it now. `dropped` counts live digests that were left out, never hits."""

    name: str
    rank: int
    live: bool
    connected: bool = False
    state: Literal["running", "stopped", "finished", "killed", "lost"]
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
    findings: int = 0
    dropped: int = 0
    last_step_at: str | None = None
    capabilities: list[str] = []


class Run(Model):
    id: str
    name: str
    script: str | None = None
    framework: str | None = None
    started: str | None = None
    state: Literal["live", "finished", "killed", "empty"]
    path: str | None = None
    ranks: list[RankState] = []
