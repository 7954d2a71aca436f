"""What a compiled graph is given, by the user's names: parameters, buffers, arguments; what the forward pass has saved for the backward one.

AOTAutograd calls them `primals_3`, and numbers them as Dynamo's graph has its inputs, which know their source in the program.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from torch.fx import Node

from tensonde.adapters.torch.compiled.names import Names

_PRIMAL = re.compile(r"primals_(\d+)$")
_TANGENT = re.compile(r"tangents_(\d+)$")
_HELD = re.compile(r"^(.*)\._(parameters|buffers)\['([^']+)'\]$")
_LOCAL = re.compile(r"^L\['([^']+)'\](.*)$")


@dataclass(frozen=True, slots=True)
class Given:
    """`kind` is parameter, buffer or input. `name` is the parameter's path, or how the code calls the argument."""

    kind: str
    name: str


def of_dynamo(mod: Any, names: Names) -> list[Given | None]:
    """The inputs of Dynamo's graph, in order; None for those that it does not tell about."""
    graph = getattr(mod, "graph", None)
    places = [node for node in graph.nodes if node.op == "placeholder"] if graph is not None else []
    return [_of_source(_source(node), names) for node in places]


def _source(node: Node) -> str:
    """`L['self']._modules['0']._parameters['weight']`; newer torch has the name as a value, older ones as a method."""
    source = getattr(node, "_dynamo_source", None) or getattr(node.meta.get("grapharg"), "source", None)
    name = getattr(source, "name", "")
    return str(name() if callable(name) else name or "")


def _of_source(source: str, names: Names) -> Given | None:
    held = _HELD.match(source)
    if held:
        module, kind, name = held.groups()
        return Given(kind.removesuffix("s"), names.member(module, name))
    local = _LOCAL.match(source)
    return Given("input", local.group(1) + local.group(2)) if local else None


def find(node: Node, given: list[Given | None], saved: dict[str, str]) -> Given | None:
    """What a placeholder of an ATen graph is. `saved`: the names of nodes of the forward graph, by the compiler's own."""
    if node.op != "placeholder":
        return None
    index = getattr(node.meta.get("desc"), "idx", None)
    primal = _PRIMAL.match(node.name)
    if primal:
        k = index if isinstance(index, int) else int(primal.group(1)) - 1
        return given[k] if 0 <= k < len(given) else None
    tangent = _TANGENT.match(node.name)
    if tangent:
        return Given("input", f"gradient of output {int(tangent.group(1)) - 1}")
    return Given("input", f"{saved[node.name]} (saved)") if node.name in saved else None
