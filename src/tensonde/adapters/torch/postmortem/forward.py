"""The forward line behind an error of the backward pass."""

from __future__ import annotations

import ast
import re
from typing import Any

from tensonde.adapters.torch.postmortem.rerun import rerun
from tensonde.adapters.torch.postmortem.roots import root_call
from tensonde.adapters.torch.postmortem.traceback import Failure
from tensonde.program import syntax
from tensonde.program.lines import line_at, to_json


def forward_line(failure: Failure) -> dict[str, Any] | None:
    """By the node that the message names (`Function MulBackward0 returned ...`), or by the user's own
    autograd.Function."""
    inside = False
    for place in failure.places:
        inside |= place.function == "_engine_run_backward"
        if inside and place.is_user and place.function == "backward":
            return _own_function(failure, place.path, place.line)
    named = re.search(r"\b(\w+Backward\d*)\b", failure.message)
    call = root_call(failure)
    if named is None or call is None:
        return None
    run = rerun(call[0].module, call[0].args, call[0].kwargs)
    found = [op for op in run.ops if op.made is not None and type(op.made).__name__ == named[1]]
    if not found:
        return None
    lines = {(op.line.file, op.line.line) for op in found if op.line is not None}
    op = found[-1]
    module = failure.name_of(op.module) if op.module is not None else None
    return {"op": op.name, "line": to_json(op.line), "module": module, "only": len(lines) == 1}


def _own_function(failure: Failure, path: str, line: int) -> dict[str, Any] | None:
    for owner in syntax.walk(path):
        if isinstance(owner, ast.ClassDef) and owner.lineno <= line <= (owner.end_lineno or 0):
            for file in dict.fromkeys([path, *(place.path for place in failure.user)]):
                for node in syntax.walk(file):
                    if (
                        isinstance(node, ast.Attribute)
                        and node.attr == "apply"
                        and ast.unparse(node.value).endswith(owner.name)
                    ):
                        return {
                            "op": owner.name,
                            "line": line_at(file, node.lineno),
                            "only": True,
                            "own": True,
                        }
    return None
