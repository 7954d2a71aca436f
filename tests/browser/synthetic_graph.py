"""A large graph as /graph answers it: stages of blocks of ops with parameters, and a mask that feeds every block."""

from __future__ import annotations

import math
from typing import Any

OPS = ("layer_norm", "linear", "view", "matmul", "div", "softmax", "matmul", "reshape", "linear", "gelu", "add")


def synthetic(count: int) -> dict[str, Any]:
    nodes: dict[str, list[Any]] = {
        name: [] for name in ("name", "kind", "type", "scope", "source", "phase", "op", "site")
    }
    edges: dict[str, list[int]] = {"from": [], "to": []}
    scopes: dict[str, list[Any]] = {"name": ["model"], "type": ["Model"], "parent": [-1]}

    def node(name: str, kind: str, op: str, scope: int) -> int:
        line = f"model.py:{10 + len(nodes['name']) % 90}" if kind == "op" else None
        site = f"{name}:out" if kind == "op" else f"{name}:value"
        for column, value in zip(nodes, (name, kind, op or "float32", scope, line, "forward", op, site), strict=True):
            nodes[column].append(value)
        return len(nodes["name"]) - 1

    def scope(name: str, type: str, parent: int) -> int:
        for column, value in zip(scopes, (name, type, parent), strict=True):
            scopes[column].append(value)
        return len(scopes["name"]) - 1

    def edge(origin: int, target: int) -> None:
        edges["from"].append(origin)
        edges["to"].append(target)

    mask, last = node("mask", "input", "", -1), node("x", "input", "", -1)
    blocks = math.ceil(count / (len(OPS) + 2))
    stages = max(1, round(math.sqrt(blocks / 4)))
    block = 0
    for stage in range(stages):
        outer = scope(f"model.stage{stage}", "Stage", 0)
        while block < math.ceil((stage + 1) * blocks / stages):
            path = f"model.stage{stage}.{block}"
            inner, start, seen = scope(path, "Block", outer), last, dict[str, int]()
            for k, op in enumerate(OPS):
                nth = seen[op] = seen.get(op, -1) + 1
                weight = node(f"{path}.w{nth}", "parameter", "", inner) if op == "linear" else None
                made = node(f"{path}/{op}#{nth}", "op", op, inner)
                for origin in (last, weight, mask if k == 4 else None, start if k == len(OPS) - 1 else None):
                    if origin is not None:
                        edge(origin, made)
                last = made
            block += 1
    return {
        "source": "trace:0",
        "step": 0,
        "sources": [{"id": "trace:0", "label": "step 0"}],
        "nodes": nodes,
        "edges": edges,
        "scopes": scopes,
    }
