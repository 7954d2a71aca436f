"""Compiled graphs against themselves, on request: each is run compiled and node by node on the same inputs.

The inputs are those of its last call. What the optimizer has changed since is as it is now: any inputs will do, as long as they
are the same for both. The backward graph gets what the compiled forward graph just gave. The training sees nothing of it.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from tensonde.adapters.torch.compiled import interpret, verify
from tensonde.adapters.torch.compiled.watched import CompiledGraph
from tensonde.model.graph import GraphCheck

if TYPE_CHECKING:
    from tensonde.adapters.torch.compiled.graphs import Graphs
    from tensonde.adapters.torch.compiled.region import Region

log = logging.getLogger("tensonde.graph")

PRINTS = "it prints, or talks to other ranks, which a second run would do again"
RANDOM = "it draws random numbers, and compiled ones are others"
SAME_RANDOM = " (not with torch._inductor.config.fallback_random)"


class Comparison:
    """Belongs to the training thread, between two calls of compiled graphs or at a stop inside of one."""

    def __init__(self, graphs: Graphs) -> None:
        self._graphs = graphs

    def checks(self) -> Iterator[GraphCheck]:
        """Of every graph that was called in this step, or else in the one before, as far as its inputs are at hand."""
        for region in self._graphs.regions:
            if region.forward is not None and region.forward.recent is not None:
                yield from self._region(region, region.forward)

    def _region(self, region: Region, forward: CompiledGraph) -> Iterator[GraphCheck]:
        recent = forward.recent
        assert recent is not None
        made: Sequence[Any] = ()
        check, made = self._compared(forward, recent.args, recent.random)
        yield check
        backward = region.backward
        if backward is None or backward.recent is None or not made:
            return
        known = dict(zip(forward.placeholders, recent.args, strict=True)) | {
            name: value for name, value in zip(forward.outputs, made, strict=False) if name is not None
        }
        known |= {theirs: known[ours] for theirs, ours in forward.random_states.items()}
        args, missing = self._backward_inputs(backward, known)
        if missing:
            yield self._check(backward, "skipped", why=f"what the forward pass kept for it is not at hand ({missing})")
        else:
            yield self._compared(backward, args, None)[0]

    @staticmethod
    def _backward_inputs(backward: CompiledGraph, known: Mapping[str, Any]) -> tuple[list[Any], str]:
        recent = backward.recent
        assert recent is not None
        args = []
        for name, arg in zip(backward.placeholders, recent.args, strict=True):
            if arg is None and name not in known:
                return [], name
            args.append(known[name] if arg is None else arg)
        return args, ""

    def _compared(
        self, graph: CompiledGraph, args: Sequence[Any], random: Tensor | None
    ) -> tuple[GraphCheck, Sequence[Any]]:
        """How the two runs compare, and what the compiled one gave (empty where it could not be made)."""
        if not interpret.repeatable(graph.plain):
            return self._check(graph, "skipped", why=PRINTS), ()
        try:
            with self._apart():
                state = random if random is not None else torch.default_generator.get_state()
                torch.default_generator.set_state(state)
                right = interpret.results(graph.plain, args)
                torch.default_generator.set_state(state)
                given = interpret.copies(args)
                written = [given[k] for k in interpret.writes(graph.plain)]
                made = graph.again(given)
                if graph.random and not _same_random(graph.region.backend):
                    hint = SAME_RANDOM if graph.region.backend == "inductor" else ""
                    return self._check(graph, "skipped", why=RANDOM + hint), made
                return self._judged(graph, right, made, written, args), made
        except Exception as problem:
            log.debug("graph %d could not be run again", graph.number, exc_info=problem)
            return self._check(graph, "skipped", why=f"it could not be run again: {_first_line(problem)}"), ()

    def _judged(
        self,
        graph: CompiledGraph,
        right: Sequence[Any],
        made: Sequence[Any],
        written: Sequence[Any],
        args: Sequence[Any],
    ) -> GraphCheck:
        found = self._graphs.departure(graph, right, made, written, args)
        if found is None:
            distance, largest = verify.furthest(right, [*made, *written])
            outcome = "rounding" if distance or largest else "same"
            return self._check(graph, outcome, distance=distance, max_abs=largest)
        _, name = self._graphs.node(graph, found)
        return self._check(
            graph, "departs", distance=found.distance, max_abs=found.max_abs, exact=found.exact,
            site=name.address if name is not None else found.node, source=name.source if name is not None else None,
        )  # fmt: skip

    @staticmethod
    def _check(graph: CompiledGraph, outcome: Any, **facts: Any) -> GraphCheck:
        phase = "backward" if graph.backward else "forward"
        return GraphCheck(graph.number, phase, graph.region.backend, len(graph.names), outcome, **facts)

    @contextlib.contextmanager
    def _apart(self) -> Iterator[None]:
        graphs = self._graphs
        active, graphs.active = graphs.active, False
        devices = list(range(torch.cuda.device_count())) if torch.cuda.is_initialized() else []
        try:
            with torch.no_grad(), torch.random.fork_rng(devices=devices):
                yield
        finally:
            graphs.active = active


def _same_random(backend: str) -> bool:
    if backend != "inductor":
        return backend == "aot_eager"
    from torch._inductor import config

    return bool(config.fallback_random)


def _first_line(problem: Exception) -> str:
    text = str(problem).strip().partition("\n")[0][:160]
    return f"{type(problem).__name__}: {text}" if text else type(problem).__name__
