"""What rules share: reading places from facts, and short lists of names."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tensonde.diagnose.case import Case
from tensonde.model.site import SourceLine
from tensonde.model.trace import OpRecord


def some(names: Iterable[str], most: int = 3) -> str:
    """`a, b, c and 4 more`."""
    found = list(names)
    rest = len(found) - most
    return ", ".join(found[:most]) + (f" and {rest} more" if rest > 0 else "")


def common(names: Iterable[str]) -> str:
    """The module path that all these parameters have in common, "" if none."""
    paths = [name.split(".")[:-1] for name in names]
    if not paths:
        return ""
    shared = paths[0]
    for path in paths[1:]:
        k = 0
        while k < min(len(shared), len(path)) and shared[k] == path[k]:
            k += 1
        shared = shared[:k]
    return ".".join(shared)


def ended_by_itself(case: Case) -> bool:
    """The training came to its own end: not stopped early by the user, an exception or a kill."""
    session = case.rank.session
    failure = (session.get("exit") or {}).get("exception")
    return bool(session.get("closed")) and not session.get("ended") and not failure


def gradient_rows(case: Case, name: str) -> list[dict[str, Any]]:
    return case.digests(f"{name}:grad", ("step", "count", "zero", "norm", "absmax", "absmean"))


def backward_line(case: Case) -> SourceLine | None:
    """Where the training calls `backward()`."""
    loss = case.sites.get("loss:value")
    return loss.source if loss is not None else None


def chosen(case: Case, op: OpRecord) -> SourceLine | None:
    """Where an op of a library's module was chosen: the line that made the module, where it stands in a list of modules and no line of
    the program calls it by its name; else the line that calls it."""
    fact = case.module(op.module)
    name = op.module.rpartition(".")[2]
    called = op.source is not None and not name.isdigit() and f"{name}(" in op.source.code
    return op.source if called or not fact.library or fact.made is None else fact.made


def where(op: OpRecord) -> str:
    return f" in {op.module}" if op.module else ""
