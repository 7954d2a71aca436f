"""A compiled graph as columns for the recording, and what the compiler says about its work: guards, recompilations, breaks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch._guards import TracingContext
from torch.fx import Node

from tensonde.adapters.torch.compiled import given
from tensonde.adapters.torch.compiled.watched import CompiledGraph
from tensonde.model.graph import GraphRecord
from tensonde.program.frames import USER, owner_of_file
from tensonde.program.lines import display_path, line_at

MOST_GUARDS = 200
_TEXT = 300


def recorded(
    graph: CompiledGraph, types: Mapping[str, str], *, step: int, seconds: float, guards: list[str], dynamic: bool
) -> GraphRecord:
    """`types` are those of the modules, by path."""
    scopes = _Scopes(types)
    nodes: dict[str, list[Any]] = {
        name: []
        for name in ("name", "kind", "type", "scope", "source", "phase", "op", "site", "shape", "dtype", "given")
    }
    edges: dict[str, list[int]] = {"from": [], "to": []}
    place: dict[Node, int] = {}
    phase = "backward" if graph.backward else "forward"
    forward = graph.region.forward if graph.backward else None
    saved = {node.name: name.name for node, name in forward.names.items()} if forward is not None else {}
    for node in graph.plain.graph.nodes:
        place[node] = len(place)
        name = graph.names.get(node)
        value = node.meta.get("val")
        kind = {"placeholder": "input", "output": "output", "get_attr": "parameter"}.get(node.op, "op")
        held = given.find(node, graph.region.given, saved)
        if held is not None and held.kind != "input":
            kind = "parameter"
        nodes["name"].append(node.name)
        nodes["given"].append(held.name if held is not None else None)
        nodes["kind"].append(kind)
        nodes["type"].append(name.op if name else kind)
        owner = held.name.rpartition(".")[0] if held is not None and kind == "parameter" else ""
        nodes["scope"].append(scopes.of(name.module if name else owner))
        nodes["source"].append(str(name.source) if name and name.source else None)
        nodes["phase"].append(phase)
        nodes["op"].append(name.aten if name else kind)
        nodes["site"].append(
            name.address if name else f"{held.name}:value" if held is not None and kind == "parameter" else None
        )
        nodes["shape"].append([str(size) for size in value.shape] if isinstance(value, Tensor) else None)
        nodes["dtype"].append(str(value.dtype).removeprefix("torch.") if isinstance(value, Tensor) else None)
        for source in node.all_input_nodes:
            edges["from"].append(place[source])
            edges["to"].append(place[node])
    return GraphRecord(
        graph.number, graph.region.number, phase, graph.region.backend, step,
        str(graph.region.source) if graph.region.source else None, nodes, edges, scopes.columns,
        [*(column.node for column in graph.columns), *graph.leaving], guards, graph.region.reason, round(seconds, 3), dynamic,
    )  # fmt: skip


class _Scopes:
    """Module paths as a tree."""

    def __init__(self, types: Mapping[str, str]) -> None:
        self.columns: dict[str, list[Any]] = {"name": [], "type": [], "parent": []}
        self._types = types
        self._known: dict[str, int] = {}

    def of(self, path: str) -> int:
        if not path:
            return -1
        if path not in self._known:
            parent = self.of(path.rpartition(".")[0])
            self._known[path] = len(self.columns["name"])
            self.columns["name"].append(path)
            self.columns["type"].append(self._types.get(path, ""))
            self.columns["parent"].append(parent)
        return self._known[path]


def guards_now() -> list[str]:
    """What the code that is being compiled was found to depend on."""
    context = TracingContext.try_get()
    if context is None:
        return []
    found = {f"{_made_by(guard)} {guard.name}".strip() for guard in context.guards_context.dynamo_guards}
    texts = sorted(text[:_TEXT] for text in found)
    return texts[:MOST_GUARDS]


def _made_by(guard: Any) -> str:
    """The kind of a guard; older torch has it under another name, or not at all."""
    for name in ("create_fn_name", "inner_create_fn"):
        ask = getattr(guard, name, None)
        if ask is not None:
            kind = ask()
            return kind if isinstance(kind, str) else str(getattr(kind, "__name__", ""))
    return ""


def is_dynamic(inputs: Any) -> bool:
    return any(isinstance(given, torch.SymInt) for given in inputs) or any(
        isinstance(size, torch.SymInt) for given in inputs if isinstance(given, Tensor) for size in given.shape
    )


class Breaks:
    """Graph breaks and recompilations, told once each."""

    def __init__(self) -> None:
        self._breaks = self._metrics = 0

    def news(self) -> list[tuple[str, dict[str, Any]]]:
        """Events since the last time: kind and fields."""
        from torch._dynamo import utils

        found: list[tuple[str, dict[str, Any]]] = []
        reasons = list(utils.graph_break_reasons)
        self._breaks = min(self._breaks, len(reasons))
        found += [
            ("graph_break", {"reason": _plain(reason.reason), **_line(reason.user_stack)})
            for reason in reasons[self._breaks :]
        ]
        self._breaks = len(reasons)
        metrics = utils.get_compilation_metrics()
        self._metrics = min(self._metrics, len(metrics))
        found += [("recompiled", _recompiled(one)) for one in metrics[self._metrics :] if one.recompile_reason]
        self._metrics = len(metrics)
        return found


def _recompiled(metric: Any) -> dict[str, Any]:
    return {
        "function": metric.co_name,
        "file": display_path(metric.co_filename or ""),
        "line": metric.co_firstlineno,
        "reason": str(metric.recompile_reason)[:_TEXT],
    }


def _plain(reason: str) -> str:
    """The first lines say it; the rest is advice for the compiler's developers."""
    lines = [line.strip() for line in reason.strip().splitlines() if line.strip()]
    return "; ".join(lines[:2])[:_TEXT]


def _line(stack: Any) -> dict[str, Any]:
    for frame in reversed(stack or []):
        if owner_of_file(frame.filename) == USER:
            return line_at(frame.filename, frame.lineno)
    return {"file": None, "line": None, "code": ""}
