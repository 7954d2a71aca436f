"""The interface that an adapter serves: one step of the training as ops and values, which can be computed again with changes.

A step is at rest: the training waits while it is asked, and nothing that is done here reaches it. Arrays are numpy's, whatever the
framework has. All methods belong to the training thread. They raise `NotPossible` where a question has no exact answer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np

from tensonde.model.site import SourceLine

Array = np.ndarray[Any, Any]
Changes = Mapping[int, Array]
"""Values by number, and what they are instead."""


class NotPossible(Exception):
    """The question cannot be asked of this step. The text says why."""


@dataclass(frozen=True, slots=True)
class Value:
    """A tensor of the step."""

    number: int
    shape: tuple[int, ...]
    kind: Literal["float", "int", "bool", "other"]
    origin: Literal["made", "parameter", "buffer", "given"]
    """`given`: it was there before the step, and no module holds it: data, targets, settings."""
    name: str = ""
    """Of a parameter or buffer; of what was given, the variable of the program that holds it."""
    op: int | None = None
    """The op that made it."""
    into_model: bool = False
    """It was handed to a model."""
    read: bool = False
    """Python code looked at its values: what follows from that is not known."""
    made: SourceLine | None = None
    """Of what was given: the line that made it."""
    bound: SourceLine | None = None
    """The line that gave the variable its value."""
    drawn: bool = False
    """The program's text says that it holds nothing but random numbers."""


@dataclass(frozen=True, slots=True)
class Op:
    """A computation of the step, in the order in which it ran."""

    index: int
    name: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    writes: tuple[int, ...]
    """Values that it changes in place; they are among the inputs, and the outputs."""
    module: str
    type: str
    source: SourceLine | None
    grad: bool
    """Whether gradients were on."""
    random: bool
    by_mode: bool = False
    """It computes something else in eval mode."""


@dataclass(frozen=True, slots=True)
class Effect:
    """What a change did to a value."""

    changed: bool
    """Any bit of it."""
    along: tuple[Array, ...]
    """For each dimension: at which indices the value changed by more than rounding."""


@dataclass(frozen=True, slots=True)
class Fit:
    """Constants in the place of values, such that the loss is smallest."""

    loss: float
    constants: Mapping[int, Array]
    """One vector for each value, along its features."""


@dataclass(frozen=True, slots=True)
class Trial:
    """Steps of the optimizer on a clone, on this batch alone."""

    losses: tuple[float, ...]
    """Before the first step, and after each."""
    predicted: float
    """By how much the first step would change the loss if the loss were linear."""
    moved: float
    """The largest change of a parameter by the first step, as a part of its size."""
    cosine: float = 1.0
    """Between the gradients that the optimizer is about to step with and those of this batch, over all parameters."""
    scale: float = 1.0
    """How many times larger the former are."""


@dataclass(frozen=True, slots=True)
class OwnFunction:
    """A function with a backward of the user's own, as the step applied it."""

    name: str
    output: int
    seed: Array
    """What its backward was given: random numbers."""
    gradients: Mapping[int, Array]
    """What it gave for each value that the function was given."""
    source: SourceLine | None
    """The line of the backward that gives them."""


class Step(Protocol):
    number: int
    ops: Sequence[Op]
    values: Sequence[Value]
    loss: int
    """The value that was differentiated."""
    loss_source: SourceLine | None
    """The line of the training that made the loss."""
    optimizer: str
    optimizer_source: SourceLine | None
    rates: tuple[float, ...]
    """Learning rates of the optimizer's groups."""
    decay: float
    """The largest weight decay of the groups."""
    several: bool
    """Several optimizers or losses take turns."""
    batch: int
    """Samples in the batch, where that is known: the first dimension of what was passed to the model; 0 else."""
    idle: Sequence[Value]
    """Fields that came with others that the step uses, and that no op takes."""

    functions: Sequence[OwnFunction]
    """Functions with a backward of the user's own, each as it was first applied."""

    seconds_each: float
    """What one computation of the step takes."""

    def given_twice(self, names: Sequence[str]) -> SourceLine | None:
        """The one call of the program that is given a variable of one of these names twice."""

    def renews_copies(self) -> bool:
        """The program loads a state somewhere under a condition, as when a copy is renewed every so many steps."""

    def array(self, value: int) -> Array:
        """As it was made, or given."""

    def tables(self, value: int, target: int) -> tuple[Array, Array] | None:
        """The arrays of the program that the rows of both were taken from, by the same index, in the order in which they are held."""

    def parting(
        self,
        ones: Sequence[int],
        others: Sequence[int],
        *,
        loose: bool = False,
        whole: bool = False,
        sure: bool = False,
    ) -> SourceLine | None:
        """The line of the program's text that does something to one of two values and not to the other, on their way to the step: what shifts, reorders or chooses rows. The first of
        each that a variable holds is followed. It says where to look, and proves nothing. `loose`: also rows or parts that are chosen on
        lines of their own. `whole`: not what moves things within a sample. `sure`: only orders and shifts."""

    def moved(self, value: int, target: int) -> SourceLine | None:
        """The last line of the program's text that moves one of two values along their positions, or cuts it, and not the other."""

    def last_deed(self, value: int, kind: Literal["division", "join"]) -> SourceLine | None:
        """The line of the program's text that last divides a value on its way to the step, or puts it together."""

    def effects(
        self, changes: Sequence[Changes], *, still_norms: bool = False, inside: bool = False
    ) -> list[dict[int, Effect]]:
        """For each set of changes: what became of each value. `still_norms`: batch norms use what they have gathered, so that
        they do not mix samples. `inside`: ops outside of modules still get what is not changed."""

    def array_with(self, value: int, changes: Changes) -> Array:
        """A value, with others in the place of those that were made or given."""

    def loss_with(self, changes: Changes, *, inside: bool = False) -> float:
        """The loss with these values in the place of those that were made or given. `inside`: ops outside of modules still get what is not changed."""

    def loss_in_eval(self, norms: Sequence[int] | None = None) -> float:
        """The loss of the batch as in eval mode: dropout lets everything pass, and batch norms use what they have gathered. `norms`: only these
        ops do so, and nothing else is changed."""

    def fit(self, values: Mapping[int, int], tied: Mapping[int, int] | None = None) -> Fit:
        """The best constants in the place of these values; each with the dimension of its features. `tied` gives some of them the
        constant of another."""

    def floor(self, values: Sequence[int], enough: float) -> float:
        """The lowest loss that is found when these values may be anything, one by one, beginning with what they are. Below `enough`
        it is not looked any further."""

    def ops_between(self, value: int, inputs: Sequence[int]) -> list[Op]:
        """Ops that have to run to make a value when these are given."""

    def derivatives(self, value: int, seed: Array, inputs: Sequence[int]) -> dict[int, Array]:
        """Of the sum of `seed` times a value, by each of these inputs, op by op, in double precision; a backward of the user's own has no say in
        it. Inputs that the value does not depend on are left out."""

    def quotient(self, value: int, seed: Array, moved: int, direction: Array, distance: float) -> float:
        """By how much the same sum changes per distance when an input moves along a direction, to both sides, in double precision."""

    def weighed(self, factors: Mapping[int, float]) -> AbstractContextManager[None]:
        """While inside, these values are so many times what they are, in all that is computed."""

    def trial(
        self, steps: int, *, rate: float = 1.0, fresh: bool = False, own: bool = False, decay: bool = True
    ) -> Trial:
        """Steps of a copy of the optimizer on copies of the parameters; `rate` times its learning rates. `fresh`: random numbers
        are drawn anew at each step, else they are those of the step. `own`: also the first step has the gradients of this batch, and the copy has no memory
        of earlier ones; else it has what the training is about to step with. `decay`: whether weights decay."""

    def seconds_left(self) -> float:
        """Of the time that may be spent on this step."""
