"""A site is a place where a tensor is observed; its address is `name:role`, or `name:role[index]`."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Role(StrEnum):
    """What is observed at a name. `in out grad_in grad` belong to modules and ops, `value grad update` to parameters."""

    IN = "in"
    OUT = "out"
    GRAD_IN = "grad_in"
    GRAD = "grad"
    VALUE = "value"
    UPDATE = "update"


class Kind(StrEnum):
    """What a name stands for."""

    MODULE = "module"
    OP = "op"
    PARAMETER = "parameter"
    BUFFER = "buffer"
    LOSS = "loss"


@dataclass(frozen=True, slots=True)
class SourceLine:
    """A line of the user's program."""

    file: str
    line: int
    code: str = ""

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


@dataclass(frozen=True, slots=True)
class Site:
    """One place where a tensor is observed, with the facts known about it when it was first seen.

    `type` is the class of the module (`Linear`), of the module that owns the parameter, or the op's name.
    `trainable` is whether the parameter requires a gradient and is in an optimizer's groups (None: not a parameter).
    """

    id: int
    name: str
    role: Role
    kind: Kind
    index: int | None = None
    type: str = ""
    trainable: bool | None = None
    shape: tuple[int, ...] = ()
    dtype: str = ""
    source: SourceLine | None = None
    device: str = ""
    """Where the tensor was when it was first seen, such as `cuda:1`; empty: in the host's memory."""

    @property
    def address(self) -> str:
        suffix = "" if self.index is None else f"[{self.index}]"
        return f"{self.name}:{self.role}{suffix}"
