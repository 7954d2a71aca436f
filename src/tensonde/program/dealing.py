"""Variables that hold what a program takes for its rank out of a whole: `order[rank::world]`, `parts.chunk(world)[rank]`."""

from __future__ import annotations

import ast
from functools import lru_cache

from tensonde.program.surroundings import reads_rank
from tensonde.program.syntax import attribute_set, bindings, class_named, scope_at


@lru_cache(maxsize=256)
def dealt_variable(path: str, line: int, name: str) -> int:
    """The line that gives a variable of the function around `line` a rank's part; 0 where it is given something else."""
    scope = scope_at(path, line)
    found = bindings(scope, name) if scope is not None else []
    return found[-1].line if found and not found[-1].augmented and takes_part(found[-1].value) else 0


@lru_cache(maxsize=256)
def dealt_attribute(path: str, kind: str, name: str) -> int:
    """The same for an attribute of a class."""
    owner = class_named(path, kind)
    found = attribute_set(owner, name) if owner is not None else []
    return found[-1].line if found and takes_part(found[-1].value) else 0


def takes_part(value: ast.expr) -> bool:
    return any(isinstance(node, ast.Subscript) and reads_rank(node.slice) for node in ast.walk(value))
