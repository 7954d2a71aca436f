"""The autograd graph of what was differentiated: why it has no gradient, and what of an earlier graph it still
holds."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from tensonde.adapters.torch.postmortem.definition import roots
from tensonde.adapters.torch.postmortem.origin import origin
from tensonde.adapters.torch.postmortem.rerun import rerun
from tensonde.adapters.torch.postmortem.roots import root_call
from tensonde.adapters.torch.postmortem.traceback import Failure
from tensonde.adapters.torch.tensors import tensors_in
from tensonde.program import syntax
from tensonde.program.classes import attribute_line, source_file, user_class
from tensonde.program.lines import line_at, to_json
from tensonde.program.values import FrameState, evaluate

MOST_NODES = 200_000


def differentiated(failure: Failure) -> Tensor | None:
    """The tensor whose backward pass was asked for."""
    for place in failure.places:
        if place.function == "backward" and isinstance(found := place.frame.f_locals.get("self"), Tensor):
            return found
        if place.function in ("backward", "grad") and "autograd" in place.path:
            for name in ("tensors", "outputs"):
                given = tensors_in(place.frame.f_locals.get(name))
                if given:
                    return given[0]
    return None


def nodes(tensors: Iterable[Tensor]) -> dict[Any, None]:
    """Every node that can be reached, breadth first."""
    found: dict[Any, None] = {}
    waiting = [tensor.grad_fn for tensor in tensors if tensor.grad_fn is not None]
    while waiting and len(found) < MOST_NODES:
        following = []
        for node in waiting:
            if node not in found:
                found[node] = None
                following += [inner for inner, _ in node.next_functions if inner is not None and inner not in found]
        waiting = following
    return found


# -- nothing requires a gradient -------------------------------------------------------------------


def without_gradient(failure: Failure) -> dict[str, Any]:
    given = _asked_for(failure)
    if given is not None:
        return given
    owned = {id(p): p for root in roots(failure) for p in root.parameters()}
    fact: dict[str, Any] = {
        "parameters": len(owned),
        "trainable": sum(p.requires_grad for p in owned.values()),
        "grad_enabled": torch.is_grad_enabled(),
    }
    if owned and not fact["trainable"]:
        fact |= _frozen_by(failure)
    else:
        fact |= _no_grad_block(failure) or _cut_in_forward(failure) or _cut_in_frame(failure) or {}
    return fact


def _asked_for(failure: Failure) -> dict[str, Any] | None:
    """Of `torch.autograd.grad(outputs, inputs)`: the input that does not require a gradient."""
    if "differentiated Tensors does not require grad" not in failure.message:
        return None
    for place in failure.places:
        if place.function == "grad" and "autograd" in place.path:
            for tensor in tensors_in(place.frame.f_locals.get("inputs")):
                if not tensor.requires_grad:
                    where = origin(tensor, failure) or {}
                    return {"asked_for": where.get("name", "an input"), "line": where.get("line")}
    return None


def _files(failure: Failure) -> list[str]:
    found = [place.path for place in reversed(failure.user)]
    for root in roots(failure):
        for module in root.modules():
            path = source_file(type(module))
            if path:
                found.append(path)
    return list(dict.fromkeys(found))


def _frozen_by(failure: Failure) -> dict[str, Any]:
    """The line that switches the gradients off, and what its filter by name matches."""
    for path in _files(failure):
        for node in syntax.walk(path):
            match node:
                case ast.Assign(targets=[ast.Attribute(attr="requires_grad")], value=value) if not _is_true(value):
                    return {
                        "line": line_at(path, node.lineno),
                        "how": "requires_grad",
                        **_filter(value, failure),
                    }
                case ast.Call(func=ast.Attribute(attr="requires_grad_"), args=args, keywords=keywords):
                    values = [*args, *(keyword.value for keyword in keywords)]
                    if values and not _is_true(values[0]):
                        return {
                            "line": line_at(path, node.lineno),
                            "how": "requires_grad",
                            **_filter(values[0], failure),
                        }
    return {}


def _is_true(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is True


def _filter(node: ast.expr, failure: Failure) -> dict[str, Any]:
    """`"lora_" in name`, `name.startswith("head")`: the text, and names of parameters that it was held against."""
    text = None
    match node:
        case ast.Compare(left=ast.Constant(value=str(found)), ops=[ast.In()]):
            text = found
        case ast.Call(func=ast.Attribute(attr="startswith" | "endswith"), args=[ast.Constant(value=str(found))]):
            text = found
    if text is None:
        return {}
    names = [name for root in roots(failure) for name, _ in root.named_parameters()]
    groups = list(dict.fromkeys(name.partition(".")[0] for name in names))
    return {"filter": text, "matches": sum(text in name for name in names), "groups": groups[:12]}


_OFF = ("no_grad", "inference_mode")


def _no_grad_block(failure: Failure) -> dict[str, Any] | None:
    """A `with torch.no_grad():` (or decorator, or set_grad_enabled(False)) around the call of the root."""
    for place in reversed(failure.user):
        scope = syntax.scope_at(place.path, place.line)
        if scope is None:
            continue
        for decorator in getattr(scope, "decorator_list", ()):
            if _switches_off(decorator):
                return {"line": line_at(place.path, decorator.lineno), "how": "no_grad"}
        for node in syntax.statements(scope):
            if (
                isinstance(node, ast.With)
                and node.lineno <= place.line
                and any(_switches_off(item.context_expr) for item in node.items)
            ):
                inside = [inner for inner in ast.walk(node) if isinstance(inner, ast.Call)]
                if any(
                    isinstance(evaluate(inner.func, place.frame), nn.Module) for inner in inside
                ) and _feeds_backward(node, scope, place):
                    return {"line": line_at(place.path, node.lineno), "how": "no_grad"}
        if not torch.is_grad_enabled():
            for call in syntax.walk(place.path):
                if (
                    isinstance(call, ast.Call)
                    and isinstance(call.func, ast.Attribute)
                    and call.func.attr == "set_grad_enabled"
                ):
                    return {"line": line_at(place.path, call.lineno), "how": "no_grad"}
    return None


def _switches_off(node: ast.expr) -> bool:
    called = node.func if isinstance(node, ast.Call) else node
    name = called.attr if isinstance(called, ast.Attribute) else called.id if isinstance(called, ast.Name) else ""
    if name == "set_grad_enabled":
        return (
            isinstance(node, ast.Call)
            and bool(node.args)
            and isinstance(node.args[0], ast.Constant)
            and node.args[0].value is False
        )
    return name in _OFF


def _feeds_backward(block: ast.With, scope: ast.AST, place: FrameState) -> bool:
    """What is differentiated is computed in the block, or from a name that the block binds."""
    bound = {
        target.id
        for node in ast.walk(block)
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    wanted: set[str] = {
        inner.id for inner in ast.walk(_statement_at(scope, place.line) or ast.Pass()) if isinstance(inner, ast.Name)
    }
    for _ in range(6):  # names that the wanted ones are made of
        wanted |= {
            inner.id
            for name in list(wanted)
            for binding in syntax.bindings(scope, name)
            if not binding.loop
            for inner in ast.walk(binding.value)
            if isinstance(inner, ast.Name)
        }
    return bool(bound & wanted)


def _statement_at(scope: ast.AST, line: int) -> ast.stmt | None:
    best = None
    for node in syntax.statements(scope):
        if node.lineno <= line <= (node.end_lineno or 0):
            best = node
    return best


def _cut_in_forward(failure: Failure) -> dict[str, Any] | None:
    """The op of the root's forward after which no gradient is required any more."""
    found = root_call(failure)
    if found is None:
        return None
    run = rerun(found[0].module, found[0].args, found[0].kwargs)
    outputs = tensors_in(run.output)
    if not outputs or any(tensor.requires_grad for tensor in outputs):
        return None
    for op in reversed(run.ops):
        if any(tensor.requires_grad for tensor in op.inputs) and not any(tensor.requires_grad for tensor in op.outputs):
            return {
                "line": to_json(op.line),
                "how": op.name,
                "module": failure.name_of(op.module) if op.module is not None else None,
                "rerun": True,
            }
    return None


_CUTS = (
    "detach",
    "item",
    "data",
    "argmax",
    "numpy",
    "long",
    "int",
    "tensor",
    "round",
    "tolist",
    "as_tensor",
    "from_numpy",
)
"""What gives no gradient on, as a method or a function."""


def _cut_in_frame(failure: Failure) -> dict[str, Any] | None:
    """The assignment that reads tensors with a gradient and gives one without."""
    for place in reversed(failure.user):
        scope = syntax.scope_at(place.path, place.line)
        loss = differentiated(failure)
        names = [name for name, held in place.frame.f_locals.items() if held is loss]
        waiting, seen = [*names], set(names)
        while waiting:
            name = waiting.pop(0)
            for binding in reversed(
                [b for b in (syntax.bindings(scope, name) if scope is not None else ()) if b.line < place.line]
            ):
                read = [inner.id for inner in ast.walk(binding.value) if isinstance(inner, ast.Name)]
                held = [place.frame.f_locals.get(other) for other in read]
                live = any(isinstance(value, Tensor) and value.requires_grad for value in held)
                calls = any(
                    isinstance(inner, ast.Call)
                    and isinstance(module := evaluate(inner.func, place.frame), nn.Module)
                    and any(p.requires_grad for p in module.parameters())
                    for inner in ast.walk(binding.value)
                )
                cut = [
                    word
                    for inner in ast.walk(binding.value)
                    if (word := getattr(inner, "attr", getattr(inner, "id", ""))) in _CUTS
                    and not isinstance(inner, ast.Constant)
                ]
                if live or calls or cut:
                    line = line_at(place.path, binding.line)
                    return {"line": line, "how": cut[0] if cut else "", "variable": name}
                for other in read:
                    if other not in seen:
                        seen.add(other)
                        waiting.append(other)
                break
    return None


# -- a graph that is gone --------------------------------------------------------------------------


def used_twice(failure: Failure) -> dict[str, Any]:
    """What ties the graph to an earlier, freed one: another loss, a state carried over iterations, something computed
    once."""
    loss = differentiated(failure)
    for place in reversed(failure.user):
        scope = syntax.scope_at(place.path, place.line)
        if scope is None or loss is None:
            continue
        found = _other_loss(loss, scope, place) or _carried(loss, scope, place)
        if found:
            return found
    return _kept_by_module(loss, failure) or {"kind": "unknown"}


def _reaches(loss: Tensor, value: Any) -> bool:
    reachable = nodes([loss])
    return any(tensor.grad_fn in reachable for tensor in tensors_in(value) if tensor.grad_fn is not None)


def _other_loss(loss: Tensor, scope: ast.AST, place: FrameState) -> dict[str, Any] | None:
    mine = {node for node in nodes([loss]) if not hasattr(node, "variable")}
    for node in ast.walk(scope):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr == "backward"
            and node.lineno < place.line
            and not any(k.arg == "retain_graph" and _is_true(k.value) for k in node.keywords)
        ):
            other = evaluate(node.func.value, place.frame)
            if not isinstance(other, Tensor):
                continue
            shared = mine & set(nodes([other]))
            if not shared:
                continue
            fact: dict[str, Any] = {
                "kind": "loss",
                "variable": ast.unparse(node.func.value),
                "line": line_at(place.path, node.lineno),
            }
            tie = _tie(shared, node, scope, place)
            return {**fact, **tie} if tie else fact
    return None


def _tie(shared: set[Any], backward: ast.Call, scope: ast.AST, place: FrameState) -> dict[str, Any] | None:
    """The newest variable that both losses were computed from, and the line that uses it for the first loss."""
    held = [
        (value.grad_fn._sequence_nr(), name)
        for name, value in place.frame.f_locals.items()
        if isinstance(value, Tensor) and value.grad_fn is not None and value.grad_fn in shared
    ]
    for _, name in sorted(held, reverse=True):
        bound = [binding.line for binding in syntax.bindings(scope, name) if binding.line < backward.lineno]
        uses = [
            node.lineno
            for node in syntax.statements(scope)
            if bound
            and bound[-1] < node.lineno < backward.lineno
            and isinstance(node, ast.Assign | ast.Expr)
            and syntax.reads(node, name)
        ]
        if uses:
            return {"tie": name, "tie_line": line_at(place.path, uses[0])}
    return None


def _carried(loss: Tensor, scope: ast.AST, place: FrameState) -> dict[str, Any] | None:
    """A name that the loop reads before it binds it, or one that it never binds, and that holds a graph.

    A recurrent layer's state need not lead to the loss itself (its output does): what leads there is preferred.
    """
    loop = syntax.loop_around(scope, place.line)
    if loop is None:
        return None
    names = {inner.id for inner in ast.walk(loop) if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Load)}
    held = {name: place.frame.f_locals.get(name) for name in sorted(names)}
    graphs = {name: value for name, value in held.items() if any(t.grad_fn is not None for t in tensors_in(value))}
    found: list[tuple[bool, dict[str, Any]]] = []
    for name, value in graphs.items():
        inside = [b for b in syntax.bindings(loop, name) if not b.loop]
        before = [b for b in syntax.bindings(scope, name) if b.line < loop.lineno]
        if inside and before and (inside[0].augmented or syntax.reads(inside[0].value, name)):
            kind, line = "carried", inside[0].line
        elif not inside and before:
            kind, line = "outside", before[-1].line
        else:
            continue
        fact = {"kind": kind, "variable": name, "line": line_at(place.path, line)}
        found.append((value is loss or _reaches(loss, value), fact))
    found.sort(key=lambda entry: not entry[0])
    return found[0][1] if found and (found[0][0] or found[0][1]["kind"] == "carried") else None


def _kept_by_module(loss: Tensor | None, failure: Failure) -> dict[str, Any] | None:
    """A tensor with a graph that a module keeps. A recurrent layer's state need not lead to the loss itself (its output
    does): it counts where the module's own code reads it again, and nothing else leads there."""
    state: dict[str, Any] | None = None
    for root in roots(failure):
        for module in root.modules():
            for name, held in vars(module).items():
                if name in ("_parameters", "_buffers", "_modules"):
                    continue
                kept = [tensor for tensor in tensors_in(held) if tensor.grad_fn is not None]
                if kept and (loss is None or _reaches(loss, kept)):
                    line = _set_in_forward(type(module), name)
                    return {"kind": "attribute", "variable": name, "module": failure.name_of(module), "line": line}
                if kept and state is None and _read_again(type(module), name):
                    line = _set_in_forward(type(module), name)
                    state = {"kind": "attribute", "variable": name, "module": failure.name_of(module), "line": line}
            for name, buffer in module._buffers.items():
                if buffer is not None and buffer.grad_fn is not None:
                    line = _set_in_forward(type(module), name)
                    return {"kind": "attribute", "variable": name, "module": failure.name_of(module), "line": line}
    return state


def _read_again(kind: type, name: str) -> bool:
    """The class reads `self.name` in the statement that sets it: `out, self.state = self.rnn(x, self.state)`."""
    owner = user_class(kind)
    return owner is not None and any(
        isinstance(inner, ast.Attribute) and inner.attr == name and isinstance(inner.ctx, ast.Load)
        for binding in syntax.attribute_set(owner[1], name)
        for inner in ast.walk(binding.value)
    )


def _set_in_forward(kind: type, name: str) -> dict[str, Any] | None:
    """The line outside of `__init__` that keeps something computed in the attribute."""
    found_class = user_class(kind)
    if found_class is not None:
        path, owner = found_class
        found = [b for b in syntax.attribute_set(owner, name) if not isinstance(b.value, ast.Constant)]
        start = syntax.method(owner, "__init__")
        last = (start.end_lineno or 0) if start is not None else 0
        computed = [b for b in found if not (start is not None and start.lineno <= b.line <= last)]
        if computed:
            return line_at(path, computed[-1].line)
    return attribute_line(kind, name)
