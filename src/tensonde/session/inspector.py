"""What a debugger may ask of a stopped training, whatever the framework.

Called in the training thread, during a stop. Values come as numpy arrays that the caller owns.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from tensonde.model.graph import GraphCheck
from tensonde.session.session import Session


@dataclass(frozen=True, slots=True)
class Value:
    """A tensor's content. `note` says what is worth knowing, e.g. that it was modified in place since it was seen.

    `step` is when it was seen, where that may not be now.
    """

    address: str
    array: np.ndarray[Any, Any]
    dtype: str
    shape: tuple[int, ...]
    device: str = "cpu"
    note: str = ""
    step: int | None = None


@dataclass(frozen=True, slots=True)
class ModuleNode:
    """One module in the tree, in registration order. `parameters` counts its own and its children's elements."""

    name: str
    type: str
    depth: int
    parameters: int
    trainable: int
    training: bool
    is_root: bool = False


@dataclass(frozen=True, slots=True)
class OptimizerNode:
    """One optimizer. `groups` says what is set for each group; `missing` names trainable parameters in no optimizer."""

    type: str
    groups: tuple[Mapping[str, str], ...]
    missing: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Together:
    """The processes that this rank computes with. `timeout`: seconds after which the back end gives a collective up; None where that is not known."""

    world: int
    backend: str
    timeout: float | None


class Inspector(Protocol):
    session: Session

    def modules(self) -> list[ModuleNode]: ...

    def optimizers(self) -> list[OptimizerNode]: ...

    def addresses(self) -> list[str]:
        """Every address that `value` may know: sites seen, parameters and their gradients, buffers."""

    def value(self, address: str, *, before: bool = False, index: tuple[Any, ...] = ()) -> Value:
        """The tensor at an address now, or at the same site one step before; UsageError where it is not at hand.

        `index` is applied on the device before anything is copied, so that a slice of a huge tensor is cheap.
        """

    def shape(self, address: str, *, before: bool = False) -> tuple[tuple[int, ...], str]:
        """Shape and dtype of what `value` would give, without copying it."""

    def assign(self, address: str, index: tuple[Any, ...], value: float) -> str:
        """Writes into the live tensor and says in one sentence what was changed."""

    def verify(self) -> Iterator[GraphCheck]:
        """Compiled graphs that were called in this step, or else in the one before, against themselves uncompiled; one by one,
        because each may take its time. Empty where none was called, or its inputs are not at hand."""

    def together(self) -> Together | None:
        """None where this process computes alone. Any thread."""

    def aside(self) -> AbstractContextManager[Any]:
        """What is computed within is no part of the training: no trace shows it."""

    def facts(self) -> dict[str, str]:
        """Step, epoch, speed, overhead, device, rank, script: what the status line shows."""
