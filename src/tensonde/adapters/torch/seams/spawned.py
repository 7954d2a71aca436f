"""Ranks that `torch.multiprocessing.spawn` or a `Process` started: what ends them is caught there, before anybody else sees it."""

from __future__ import annotations

import ast
import functools
import inspect
import textwrap
from collections.abc import Callable
from importlib import import_module
from multiprocessing.process import BaseProcess
from types import CodeType
from typing import Any

from tensonde.adapters.torch import seams
from tensonde.session.failing import failed


def observe_spawned() -> None:
    """Once in a process, and so in those that are forked from it. In a spawned one, when torch is imported there."""
    module = import_module("torch.multiprocessing.spawn")  # as an attribute, it is hidden by the function of that name
    original = getattr(module, "_wrap", None)
    if original is not None:

        @functools.wraps(original)
        def wrap(fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
            return original(functools.partial(_observed, fn), *args, **kwargs)

        seams.put(module, "_wrap", wrap, "know why a rank fails")
    code = _noting(BaseProcess.run)
    if code is not None:
        BaseProcess.run.__globals__["_tensonde_failed"] = failed
        BaseProcess.run.__code__ = code
        seams.note(BaseProcess, "run", "know why a rank fails")


def _noting(function: Any) -> CodeType | None:
    """The function's own code inside of `try`, each line where it was: the traceback that a failing process prints is the same to the
    letter, which no wrapper could do. None where its source is not at hand."""
    try:
        lines, first = inspect.getsourcelines(function)
    except (OSError, TypeError):
        return None
    tree = ast.parse(textwrap.dedent("".join(lines)))
    (body,) = tree.body
    assert isinstance(body, ast.FunctionDef)
    caught = ast.parse(
        "try: pass\nexcept (Exception, SystemExit) as problem:\n    _tensonde_failed(problem)\n    raise"
    ).body[0]
    assert isinstance(caught, ast.Try)
    caught.body = body.body
    body.body = [caught]
    ast.increment_lineno(tree, first - 1)
    indent = len(lines[0]) - len(lines[0].lstrip())
    for node in ast.walk(tree):  # what dedent took away
        if isinstance(node, ast.stmt | ast.expr | ast.excepthandler | ast.arg | ast.keyword):
            node.col_offset += indent
            node.end_col_offset = (node.end_col_offset or 0) + indent
    made = compile(tree, function.__code__.co_filename, "exec")
    code = next(one for one in made.co_consts if isinstance(one, CodeType))
    return code.replace(co_name=function.__code__.co_name, co_qualname=function.__code__.co_qualname)


def _observed(fn: Callable[..., Any], *args: Any) -> Any:
    try:
        return fn(*args)
    except (Exception, SystemExit) as problem:
        failed(problem)
        raise
