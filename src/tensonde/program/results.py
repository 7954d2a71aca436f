"""Whether the program keeps what a call fills."""

from __future__ import annotations

import ast

from tensonde.program.syntax import called, covers, walk

_NEW = (
    "tensor",
    "clone",
    "new_tensor",
    "stack",
    "cat",
    "mean",
    "sum",
    "norm",
    "full",
    "zeros",
    "ones",
    "deepcopy",
)
"""Functions and methods that give a new tensor, whatever they get. `empty` is left out: its values are arbitrary, so such a call only waits for the other ranks."""
_PASSES = (
    "to",
    "cuda",
    "cpu",
    "float",
    "double",
    "half",
    "long",
    "int",
    "detach",
    "view",
    "reshape",
    "flatten",
    "unsqueeze",
    "contiguous",
)
"""Methods that give a new tensor, or one that shares its memory with what they are called on."""


def thrown_away(path: str, line: int, function: str) -> bool:
    """Whether the statement at this line does nothing but call a function of this name, and the first argument, which the function fills, is made for the call:
    `dist.broadcast_object_list([order], src=0)`, `dist.all_reduce(torch.tensor(loss))`. Nobody can read the result."""
    for node in walk(path):
        if not isinstance(node, ast.Expr) or not covers(node, line) or not isinstance(node.value, ast.Call):
            continue
        call = node.value
        if called(call) != function or any(word.arg == "async_op" for word in call.keywords):
            continue
        return bool(call.args) and _is_new(call.args[0])
    return False


def _is_new(node: ast.expr) -> bool:
    match node:
        case ast.List() | ast.ListComp() | ast.BinOp() | ast.UnaryOp(op=ast.USub()):
            return True
        case ast.Call(func=ast.Attribute(value=inner, attr=name)) if name in _PASSES:
            return _is_new(inner)
        case ast.Call():
            return called(node) in _NEW
        case ast.Subscript(value=inner):
            return isinstance(inner, ast.Call) and _is_new(inner)
    return False
