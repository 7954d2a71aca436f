"""The event of an exception: what raised, in which pass, at which op, on which tensors, and what the family of the
problem needs to know."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from tensonde.adapters.torch.postmortem.data import dataset_failure, loaders, missing_item, uneven_items, worker_failure
from tensonde.adapters.torch.postmortem.definition import definition, roots
from tensonde.adapters.torch.postmortem.forward import forward_line
from tensonde.adapters.torch.postmortem.graph import _frozen_by, differentiated, used_twice, without_gradient
from tensonde.adapters.torch.postmortem.inplace import modified
from tensonde.adapters.torch.postmortem.late import MESSAGES, late_error
from tensonde.adapters.torch.postmortem.memory import MESSAGES as OUT_OF_MEMORY
from tensonde.adapters.torch.postmortem.memory import memory
from tensonde.adapters.torch.postmortem.misuse import (
    inference_block,
    not_a_tensor,
    optimizer_state,
    plain_number,
    raw_output,
)
from tensonde.adapters.torch.postmortem.moves import moves
from tensonde.adapters.torch.postmortem.origin import attribute_of_self, origin
from tensonde.adapters.torch.postmortem.probes import MADE_ELSEWHERE
from tensonde.adapters.torch.postmortem.shapes import batch_change
from tensonde.adapters.torch.postmortem.stepping import stepping
from tensonde.adapters.torch.postmortem.traceback import Failure, tensor_fact
from tensonde.program import syntax
from tensonde.program.classes import attribute_line
from tensonde.program.lines import line_at, to_json
from tensonde.program.origin import given_line
from tensonde.program.raised import about
from tensonde.program.values import UNKNOWN, evaluate, op_of, operands, plain

_CONFIGURATION = (
    "in_features", "out_features", "in_channels", "out_channels", "kernel_size", "num_embeddings", "embedding_dim",
    "num_features",
    "normalized_shape", "input_size", "hidden_size", "batch_first", "embed_dim", "num_heads", "reduction", "groups",
)  # fmt: skip
_MOST_FRAMES = 8
_MOST_TENSORS = 16


def facts_of(failure: Failure) -> dict[str, Any]:
    """Never fails as a whole: a part that cannot be had is named under `missing`."""
    fact: dict[str, Any] = {}
    missing: dict[str, str] = {}

    def take(name: str, probe: Callable[[], Any]) -> None:
        try:
            found = probe()
        except Exception as problem:
            missing[name] = f"{type(problem).__name__}: {problem}"[:200]
            return
        if found:
            fact[name] = found

    take("class", lambda: class_of(failure))
    op: str | None = None
    given: dict[str, Any] = {}
    try:
        op, given = failing_op(failure)
    except Exception as problem:
        missing["op"] = f"{type(problem).__name__}: {problem}"[:200]
    fact["op"] = op
    tensors = {name: value for name, value in given.items() if isinstance(value, Tensor)}
    take("inputs", lambda: {name: _input(value, failure) for name, value in list(tensors.items())[:_MOST_TENSORS]})
    take("arguments", lambda: {name: value for name, value in given.items() if plain(value)})
    take("modules", lambda: modules(failure))
    take("frames", lambda: frames(failure))
    take("fed_by", lambda: fed_by(failure))
    for name, pattern, probe in _PROBES:
        if re.search(pattern, f"{type(failure.problem).__name__}: {failure.message}", re.IGNORECASE):
            take(name, lambda probe=probe: probe(failure, tensors))  # type: ignore[misc]
    take("python", lambda: about(failure.problem, failure.user))
    take("stepping", lambda: stepping(failure))
    if fact.get("class") == "data loading":
        take("data", lambda: dataset_failure(failure))
    if fact.get("class") == "backward op" and not any(
        name in fact for name in ("modified", "gradient", "twice", "reduction", "own_gradient")
    ):
        take("forward_line", lambda: forward_line(failure))
    if missing:
        fact["missing"] = missing
    return fact


def class_of(failure: Failure) -> str:
    if failure.inside("torch/utils/data/") or "DataLoader worker" in failure.message:
        return "data loading"
    if any(place.function == "_engine_run_backward" for place in failure.places):
        return "backward op"
    if failure.inside("torch/optim/") or failure.inside("torch/amp/grad_scaler"):
        return "optimizer"
    last = failure.last
    if last is None:
        return "user code"
    if not last.is_user and failure.inside("torch/"):
        return "forward op"
    node = last.expression
    if (
        node is not None
        and not isinstance(node, ast.Raise)
        and any(isinstance(v, Tensor | nn.Module) for v in operands(node, last.frame).values())
    ):
        return "forward op"
    if failure.problem.__class__ is RuntimeError and isinstance(node, ast.Call) and "torch" in ast.unparse(node.func):
        return "forward op"
    return "user code"


def failing_op(failure: Failure) -> tuple[str | None, dict[str, Any]]:
    """The op and what it was given; where operands are not simple, all tensors that the expression names."""
    last = failure.last
    if last is None:
        return None, {}
    if any(place.function == "_engine_run_backward" for place in failure.places):
        loss = differentiated(failure)
        found = re.search(r"(?:Function |output \d+ of )(\w+?)(?:Backward\d*)?\b", failure.message)
        return (found[1] if found else "backward"), ({"loss": loss} if loss is not None else {})
    node = last.expression
    if node is None:
        return None, _locals(failure)
    if isinstance(node, ast.Raise) or (isinstance(node, ast.Call) and _raises(node)):
        # torch's own check: the function that it stands in is the op, what it was given are its variables
        return (_function_name(failure) if not last.is_user else None), _locals(failure)
    op = op_of(node)
    if not last.is_user and op is not None and (op.startswith("_") or "functional" in last.path):
        op = last.function if not last.function.startswith("_") else _function_name(failure)
    given = operands(node, last.frame)
    if not any(isinstance(value, Tensor) for value in given.values()):
        for inner in ast.walk(node):
            if isinstance(inner, ast.Name | ast.Attribute | ast.Subscript):
                value = evaluate(inner, last.frame)
                if isinstance(value, Tensor):
                    given.setdefault(ast.unparse(inner)[:60], value)
    return op, given


def _raises(node: ast.Call) -> bool:
    name = node.func.id if isinstance(node.func, ast.Name) else ""
    return name.endswith(("Error", "Exception"))


def _function_name(failure: Failure) -> str | None:
    """The innermost public function of torch's functional API that is running."""
    for place in reversed(failure.places):
        if place.is_user:
            break
        if not place.function.startswith("_") and place.function != "forward":
            return place.function
    return failure.calls[-1].module._get_name() if failure.calls else None


def _locals(failure: Failure) -> dict[str, Any]:
    """The variables of the failing frame, or of the nearest one around it that holds tensors."""
    for place in reversed(failure.places):
        held = {name: value for name, value in place.frame.f_locals.items() if isinstance(value, Tensor)}
        if held or place.is_user:
            return held
    return {}


def _input(tensor: Tensor, failure: Failure) -> dict[str, Any]:
    fact = tensor_fact(tensor)
    known = failure.state.parameters.names.get(id(tensor))
    if known is not None:
        return {**fact, "parameter": known[0]}
    for call in failure.calls[-1:]:
        for name, held in call.module.named_parameters(recurse=False):
            if held is tensor:
                return {**fact, "parameter": f"{call.name}.{name}"}
    for call in reversed(failure.calls):
        if any(given is tensor for given in (*call.args, *call.kwargs.values())):
            fact["input_of"] = call.name
    kept = attribute_of_self(tensor, failure)
    if kept is not None:
        return {**fact, "attribute": kept[0], "line": kept[1]}
    where = origin(tensor, failure)
    if where is not None:
        plain_part = {name: value for name, value in where.items() if name not in ("module", "call", "frame")}
        if isinstance(where.get("module"), nn.Module):
            plain_part["module"] = failure.name_of(where["module"])
        fact["origin"] = plain_part
    return fact


def modules(failure: Failure) -> list[dict[str, Any]]:
    """The modules that were running, outermost first."""
    found = []
    for call in failure.calls[-12:]:
        configuration = {name: value for name in _CONFIGURATION if plain(value := getattr(call.module, name, UNKNOWN))}
        line = definition(call.module, failure)
        given = [tensor_fact(value) for value in (*call.args, *call.kwargs.values()) if isinstance(value, Tensor)]
        found.append(
            {
                "name": call.name,
                "type": type(call.module).__name__,
                "configuration": configuration,
                "made": to_json(line),
                "inputs": given,
            }
        )
    return found


def fed_by(failure: Failure) -> dict[str, Any] | None:
    """The line that made what the innermost module was called with."""
    call = failure.calls[-1] if failure.calls else None
    given = [value for value in (*call.args, *call.kwargs.values()) if isinstance(value, Tensor)] if call else []
    return given_line(given[0], failure.user[-1]) if given and failure.user else None


def frames(failure: Failure) -> list[dict[str, Any]]:
    """The user's frames, outermost first, with the tensors that they hold."""
    found = []
    for place in failure.user[-_MOST_FRAMES:]:
        held = {name: tensor_fact(value) for name, value in place.frame.f_locals.items() if isinstance(value, Tensor)}
        kept = dict(list(held.items())[:_MOST_TENSORS])
        found.append({**(to_json(place.source) or {}), "function": place.function, "tensors": kept})
    return found


# -- what only one family needs --------------------------------------------------------------------


def out_of_range(failure: Failure, tensors: dict[str, Tensor]) -> dict[str, Any] | None:
    """The first index that is too large or negative, of an embedding or among class labels."""
    whole = {name: t for name, t in tensors.items() if not t.is_floating_point() and not t.is_complex() and t.numel()}
    tables = {name: t for name, t in tensors.items() if t.is_floating_point()}
    last = failure.last
    if last is not None and (not whole or not tables):
        held = {name: value for name, value in last.frame.f_locals.items() if isinstance(value, Tensor)}
        whole = whole or {name: t for name, t in held.items() if not t.is_floating_point() and t.numel()}
        tables = tables or {name: t for name, t in held.items() if t.is_floating_point()}
    if not whole or not tables:
        return None
    labels = "target" in whole
    name = "target" if labels else "input" if "input" in whole else next(iter(whole))
    indices = whole[name]
    table = tables.get("input" if labels else "weight", next(iter(tables.values())))
    size = table.shape[1 if labels and table.dim() > 1 else 0]
    ignored = last.frame.f_locals.get("ignore_index") if last is not None else None
    bad = (indices >= size) | (indices < 0)
    if labels and isinstance(ignored, int):
        bad &= indices != ignored
    places = bad.nonzero()
    if not len(places):
        return None
    first = tuple(int(k) for k in places[0])
    fact: dict[str, Any] = {
        "what": "label" if labels else "index",
        "value": int(indices[first]),
        "position": list(first),
        "count": len(places),
        "size": size,
        "min": int(indices.min()),
        "max": int(indices.max()),
    }
    where = origin(indices, failure)
    if where is not None:
        fact["origin"] = {
            key: value for key, value in where.items() if key in ("name", "kind", "line", "dataset", "part")
        }
    if labels:
        fact["made_by"] = _maker_of(table, failure)
    return fact


def _maker_of(output: Tensor, failure: Failure) -> dict[str, Any] | None:
    """The layer that decides how many classes there are: the last one with that many outputs."""
    wanted = output.shape[1] if output.dim() > 1 else output.shape[0]
    for root in roots(failure):
        for module in reversed(list(root.modules())):
            size = getattr(module, "out_features", getattr(module, "out_channels", None))
            if size == wanted:
                return {
                    "module": failure.name_of(module),
                    "type": type(module).__name__,
                    "line": to_json(definition(module, failure)),
                }
    return None


def index_tensor(failure: Failure) -> dict[str, Any] | None:
    """What is used as an index, by its place in the expression: `x.gather(1, HERE)`, `x[HERE]`."""
    last = failure.last
    node = last.expression if last is not None else None
    if isinstance(node, ast.Call):
        within: list[ast.expr] = [*node.args, *(keyword.value for keyword in node.keywords)]
    elif isinstance(node, ast.Subscript):
        within = [node.slice]
    else:
        return None
    found = {
        id(value): value
        for part in within
        for inner in ast.walk(part)
        if isinstance(inner, ast.Name | ast.Attribute)
        and last is not None
        and isinstance(value := evaluate(inner, last.frame), Tensor)
        and value.is_floating_point()
    }
    return _input(next(iter(found.values())), failure) if len(found) == 1 else None


def optimizer_arguments(failure: Failure, tensors: dict[str, Tensor]) -> dict[str, Any]:
    """Modules of the user's frame, how many parameters they have, and which modules they hide in plain lists."""
    found = []
    for root in roots(failure):
        for module in root.modules():
            for name, held in vars(module).items():
                items = list(held.values()) if isinstance(held, dict) else held
                if name.startswith("_") or not isinstance(items, list | tuple):
                    continue
                if any(isinstance(item, nn.Module) for item in items):
                    line = attribute_line(type(module), name)
                    found.append({"attribute": name, "owner": type(module).__name__, "line": line})
    owned = [p for root in roots(failure) for p in root.parameters()]
    fact: dict[str, Any] = {"hidden": found, "parameters": len(owned), "trainable": sum(p.requires_grad for p in owned)}
    if owned and not fact["trainable"]:
        fact |= _frozen_by(failure)
    return fact


def reduction(failure: Failure, tensors: dict[str, Tensor]) -> dict[str, Any]:
    """Who left the loss with more than one value: a criterion or a call with `reduction="none"`."""
    loss = differentiated(failure)
    fact: dict[str, Any] = {"shape": list(loss.shape) if loss is not None else None}
    for place in reversed(failure.user):
        for node in syntax.walk(place.path):
            if (
                isinstance(node, ast.keyword)
                and node.arg == "reduction"
                and isinstance(node.value, ast.Constant)
                and node.value.value == "none"
            ):
                return {
                    **fact,
                    "line": line_at(place.path, node.value.lineno),
                    "how": 'reduction="none"',
                }
        where = origin(loss, failure) if loss is not None else None
        if where is not None:
            return {**fact, "line": where.get("line"), "how": ""}
    return fact


def devices(failure: Failure, tensors: dict[str, Tensor]) -> dict[str, Any]:
    return {name: str(tensor.device) for name, tensor in tensors.items()}


_Probe = Callable[[Failure, dict[str, Tensor]], Any]
_SHAPES = r"size|shape|dimension|batch|channels|input_size|invalid for input"
_DEVICES = r"same device|expected device|on device"
_PROBES: list[tuple[str, str, _Probe]] = [
    (
        "batch",
        rf"(?=.*({_SHAPES}))(?!.*inplace)(?!.*per channel)",
        lambda f, t: batch_change(f) if _rows_differ(f, t) else None,
    ),
    ("modified", r"modified by an inplace operation", lambda f, t: modified(f)),
    ("gradient", r"does not require grad|element 0 of tensors", lambda f, t: without_gradient(f)),
    ("twice", r"backward through the graph a second time|already been freed", lambda f, t: used_twice(f)),
    (
        "index",
        r"Expected dtype int32/int64 for index|used as indices must be|Expected dtype int32 or int64 for index",
        lambda f, t: index_tensor(f),
    ),
    ("range", r"index out of range|out of bounds|out of range|not in the valid range", out_of_range),
    (
        "loaders",
        r"more than 1 value per channel|more than 1 spatial|UnboundLocalError|to match target batch_size",
        lambda f, t: loaders(f),
    ),
    (
        "items",
        r"stack expects each tensor to be equal size|each element in list of batch",
        lambda f, t: uneven_items(f),
    ),
    ("missing_item", r"NoneType", lambda f, t: missing_item(f)),
    ("number", r"'(float|int|float32|float64)' object has no attribute 'backward'", lambda f, t: plain_number(f)),
    ("worker", r"DataLoader worker", lambda f, t: worker_failure(f)),
    ("optimizer", r"empty parameter list|non-leaf Tensor", optimizer_arguments),
    ("reduction", r"implicitly created only for scalar", reduction),
    (
        "not_a_tensor",
        r"must be (a )?Tensor, not |'(tuple|list|dict|NoneType)' object has no attribute",
        lambda f, t: not_a_tensor(f),
    ),
    ("inference", r"Inference tensors? cannot be saved for backward", lambda f, t: inference_block(f)),
    ("optimizer_state", r"loaded state dict (has a different|contains a parameter)", lambda f, t: optimizer_state(f)),
    ("raw_output", r"all elements of input should be between 0 and 1", lambda f, t: raw_output(f)),
    ("devices", _DEVICES, devices),
    ("moves", _DEVICES, moves),
    ("late", MESSAGES, lambda f, t: late_error(f)),
    ("memory", OUT_OF_MEMORY, lambda f, t: memory(f)),
    *MADE_ELSEWHERE,
]


def _rows_differ(failure: Failure, tensors: dict[str, Tensor]) -> bool:
    """Only where the numbers of rows are what does not fit; a re-run would find nothing else."""
    if not re.search(r"batch|must match|size of tensor|target size|same size|broadcast|shape '", failure.message):
        return False
    rows = {tensor.shape[0] for tensor in tensors.values() if tensor.dim()}
    return len(rows) > 1 or (torch.is_grad_enabled() and "batch" in failure.message)
