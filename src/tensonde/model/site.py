"""A site is a place where a tensor is observed; its address is `name:role`, or `name:role[index]`."""

from __future__ import annotations

import re
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


_ADDRESS = re.compile(r"(?P<name>.*?)(?::(?P<role>[^:\[\]]*)(?:\[(?P<index>\d+)\])?)?", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Address:
    """The text of an address, taken apart: `blocks.3.attn/softmax#0:out[1]`. What is missing is empty, the index None."""

    name: str
    role: str
    index: int | None

    @classmethod
    def of(cls, text: str) -> Address:
        found = _ADDRESS.fullmatch(text)
        if found is None:
            return cls(text, "", None)
        return cls(found["name"], found["role"] or "", int(found["index"]) if found["index"] else None)

    @property
    def module(self) -> str:
        """The module itself, or the one that calls the op."""
        return self.name.partition("/")[0]

    @property
    def op(self) -> str:
        return self.name.partition("/")[2].rpartition("#")[0]


@dataclass(frozen=True, slots=True)
class Part:
    """How a rank holds a tensor that is distributed over ranks. For each dimension of the mesh: `placements` is `S` (each rank has its own
    part), `R` (each has all of it) or `P` (each has a summand); `mesh` is how many ranks there are, `at` which of them this one is."""

    placements: tuple[str, ...]
    mesh: tuple[int, ...]
    at: tuple[int, ...]

    @property
    def sharded(self) -> bool:
        return "S" in self.placements


@dataclass(frozen=True, slots=True)
class Site:
    """One place where a tensor is observed, with the facts known about it when it was first seen.

    `type` is the class of the module (`Linear`), of the module that owns the parameter, or the op's name.
    `shape` is that of the whole tensor, also where the rank holds a `part` of it.
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
    part: Part | None = None
    device: str = ""
    """Where the tensor was when it was first seen, such as `cuda:1`; empty: in the host's memory."""

    @property
    def address(self) -> str:
        suffix = "" if self.index is None else f"[{self.index}]"
        return f"{self.name}:{self.role}{suffix}"
