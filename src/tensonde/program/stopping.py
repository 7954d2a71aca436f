"""Lines at which the interpreter can stop, and who has its trace function."""

from __future__ import annotations

import dis
import sys
from collections.abc import Iterator
from types import CodeType

_NAMES = {"_pydevd_bundle": "debugpy"}


def other_tracer() -> str:
    """Who follows the lines of this thread, where that is somebody else: debugpy, coverage. One trace function is all that Python has."""
    tracer = sys.gettrace()
    module = getattr(tracer, "__module__", None) or type(tracer).__module__
    name = module.partition(".")[0]
    return "" if tracer is None or name == "tensonde" else f"another debugger ({_NAMES.get(name, name)})"


def code_lines(file: str) -> set[int]:
    """Empty when the file is not Python that compiles."""
    try:
        with open(file, "rb") as source:
            code = compile(source.read(), file, "exec", dont_inherit=True)
    except (OSError, SyntaxError, ValueError):
        return set()
    return {line for inner in _codes(code) for _, line in dis.findlinestarts(inner) if line}


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)
