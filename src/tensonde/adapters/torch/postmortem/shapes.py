"""Where in a root's forward the size of the batch changed."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from tensonde.adapters.torch.postmortem.rerun import Op, rerun
from tensonde.adapters.torch.postmortem.roots import root_call
from tensonde.adapters.torch.postmortem.traceback import Failure
from tensonde.adapters.torch.tensors import tensors_in
from tensonde.program.lines import to_json


def batch_change(failure: Failure) -> dict[str, Any] | None:
    """The op on the way from the root's input to its output whose output first had the output's number of rows."""
    found = root_call(failure)
    if found is None:
        return None
    call, _ = found
    given = [tensor for tensor in tensors_in((call.args, call.kwargs)) if tensor.dim()]
    if not given or not any(tensor.dim() > 1 for tensor in given):
        return None
    run = rerun(call.module, call.args, call.kwargs)
    outputs = [tensor for tensor in tensors_in(run.output) if tensor.dim()]
    if not outputs and run.ops and run.ops[-1].outputs:
        outputs = [tensor for tensor in run.ops[-1].outputs if tensor.dim()]  # it failed again: as far as it came
    if not outputs:
        return None
    rows, batch = outputs[0].shape[0], given[0].shape[0]
    if rows == batch:
        return None
    producers = {id(tensor): op for op in run.ops for tensor in op.outputs}
    for op, taken in _path(outputs[0], producers):
        if taken and taken[0] != rows and op.out_shapes[0][:1] == (rows,):
            return {
                "op": op.name,
                "line": to_json(op.line),
                "module": failure.name_of(op.module) if op.module is not None else None,
                "from": list(taken),
                "to": list(op.out_shapes[0]),
                "batch": batch,
                "rows": rows,
                "output": list(outputs[0].shape),
            }
    return None


def _path(tensor: Tensor, producers: dict[int, Op]) -> list[tuple[Op, tuple[int, ...]]]:
    """From the output back to the input along the first input of each op that another op made."""
    path: list[tuple[Op, tuple[int, ...]]] = []
    seen: set[int] = set()
    op = producers.get(id(tensor))
    while op is not None and id(op) not in seen:
        seen.add(id(op))
        following, taken = None, op.shapes[0] if op.shapes else ()
        for given, shape in zip(op.inputs, op.shapes, strict=True):
            maker = producers.get(id(given))
            if maker is not None and maker is not op and id(maker) not in seen:
                following, taken = maker, shape
                break
        path.append((op, taken))
        op = following
    return path
