"""What is what in a step: weights, layers, what the model gives to the loss, what the loss compares it with."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from typing import ClassVar

from tensonde.experiments.step import Op, Step, Value

CUTS = frozenset(("detach", "detach_", "_local_scalar_dense"))
"""Ops that gradients do not pass."""
SHAPES = frozenset(
    ("zeros_like", "ones_like", "full_like", "empty_like", "rand_like", "randn_like", "new_zeros", "new_ones", "new_full",
     "new_empty", "randint_like", "new_empty_strided", "empty_strided", "arange", "sym_size", "bernoulli_", "normal_", "uniform_",
     "zero_", "fill_", "random_", "exponential_")
)  # fmt: skip
"""Ops whose results do not depend on the values that they are given."""

_SUMS = frozenset(("add", "sub", "rsub"))
RESHAPING = frozenset(
    ("view", "_unsafe_view", "reshape", "alias", "clone", "_reshape_alias", "unsqueeze", "squeeze", "unflatten")
)
"""Ops after which the same numbers stand in the same order."""
PASSING = frozenset(
    ("mean", "sum", "div", "mul", "neg", "view", "squeeze", "unsqueeze", "_to_copy", "clone", "alias", "add", "sub")
)


class Anatomy:
    _known: ClassVar[Anatomy | None] = None

    @classmethod
    def of(cls, step: Step) -> Anatomy:
        """The same for all experiments that are asked of a step, until it is forgotten: it keeps the step, and all its tensors."""
        if cls._known is None or cls._known.step is not step:
            cls._known = cls(step)
        return cls._known

    @classmethod
    def forget(cls) -> None:
        cls._known = None

    def __init__(self, step: Step) -> None:
        self.step = step
        self._makers: dict[int, list[Op]] = {}
        self.users: dict[int, list[Op]] = {}
        for op in step.ops:
            for number in op.outputs:
                self._makers.setdefault(number, []).append(op)
            for number in op.inputs:
                self.users.setdefault(number, []).append(op)

    def makers(self, value: int) -> list[Op]:
        """Ops that made it, or changed it in place."""
        return self._makers.get(value, [])

    def ancestors(self, values: Iterable[int]) -> set[int]:
        """Values that these depend on, by what ops read, and they themselves."""
        found: set[int] = set()
        waiting = list(values)
        while waiting:
            number = waiting.pop()
            if number not in found:
                found.add(number)
                waiting += [given for op in self.makers(number) if op.name not in SHAPES for given in op.inputs]
        return found

    @cached_property
    def before_loss(self) -> set[int]:
        return self.ancestors([self.step.loss])

    @cached_property
    def weights(self) -> set[int]:
        """Parameters, and what is computed of parameters and buffers alone."""
        values = self.step.values
        found = {value.number for value in values if value.origin == "parameter"}
        state = {value.number for value in values if value.origin == "buffer"}
        for op in self.step.ops:
            if op.inputs and all(number in found or number in state for number in op.inputs) and any(
                number in found for number in op.inputs
            ):  # fmt: skip
                found.update(op.outputs)
        return found

    @cached_property
    def trained(self) -> set[int]:
        """Values that a gradient of the loss passes, or could."""
        values = self.step.values
        found = {value.number for value in values if value.origin == "parameter"}
        for op in self.step.ops:
            if (
                op.grad
                and op.name not in CUTS
                and op.name not in SHAPES
                and any(number in found for number in op.inputs)
            ):
                found.update(number for number in op.outputs if values[number].kind == "float")
        return found

    @cached_property
    def computed(self) -> set[int]:
        """Values that depend on a parameter in any way."""
        found = {value.number for value in self.step.values if value.origin == "parameter"}
        for op in self.step.ops:
            if op.name not in SHAPES and any(number in found for number in op.inputs):
                found.update(op.outputs)
        return found

    @cached_property
    def inputs(self) -> list[Value]:
        """What models are handed that is no model's output: batches."""
        return [
            v for v in self.step.values
            if v.into_model and v.origin in ("given", "made") and v.number not in self.computed and v.shape
        ]  # fmt: skip

    @cached_property
    def data(self) -> list[Value]:
        """The same, and what was given beside."""
        known = {v.number for v in self.inputs}
        return [v for v in self.step.values if v.number in known or (v.origin == "given" and v.shape)]

    def is_layer(self, op: Op) -> bool:
        """It brings weights and data together."""
        values, weights = self.step.values, self.weights
        return (
            any(number in weights and values[number].shape for number in op.inputs)
            and any(number not in weights for number in op.inputs)
            and any(_size(values[number].shape) > 1 for number in op.outputs)
        )

    @cached_property
    def outputs(self) -> dict[int, int]:
        """What the model gives to the loss: the last values that layers make on the way to it, each with the dimension of its
        features."""
        found: dict[int, int] = {}
        seen: set[int] = set()
        waiting = [self.step.loss]
        while waiting:
            number = waiting.pop()
            if number in seen or number not in self.trained or number in self.weights:
                continue
            seen.add(number)
            for op in self.makers(number):
                if self.is_layer(op):
                    found[number] = 1 if "conv" in op.name and len(self.step.values[number].shape) > 2 else -1
                else:
                    waiting += op.inputs
        return found

    @cached_property
    def tied(self) -> dict[int, int]:
        """Outputs that one layer makes, of several inputs, each with the first of them: a constant there is one constant. What tells
        them apart (real from made up, right from wrong) is then to be learnt."""
        found: dict[int, int] = {}
        first: dict[tuple[frozenset[int], int], int] = {}
        for number, dim in self.outputs.items():
            given = {n for op in self.makers(number) if self.is_layer(op) for n in op.inputs if n in self.weights}
            parameters = frozenset(n for n in self.ancestors(given) if self.step.values[n].origin == "parameter")
            shape = self.step.values[number].shape
            found[number] = first.setdefault((parameters, shape[dim] if shape else 0), number) if parameters else number
        return found

    @cached_property
    def terms(self) -> list[tuple[int, Op]]:
        """What the loss is a sum of, each with the op that adds it; none where it is no sum."""
        found: list[tuple[int, Op]] = []
        waiting: list[tuple[int, Op | None]] = [(self.step.loss, None)]
        while waiting and len(found) < 16:
            number, adding = waiting.pop()
            made = self.makers(number)
            given = [n for n in made[-1].inputs if n in self.trained] if len(made) == 1 else []
            if len(given) == 2 and made[0].name in _SUMS:
                waiting += [(n, made[0]) for n in given]
            elif len(given) == 1 and made[0].name in PASSING and not self.is_layer(made[0]):
                if adding is not None:  # what is inside a term is its own affair
                    found.append((number, adding))
                else:
                    waiting.append((given[0], adding))
            elif adding is not None:
                found.append((number, adding))
        return found

    def outputs_behind(self, value: int) -> frozenset[int]:
        """What the model gives that a value depends on."""
        found, seen, waiting = set(), set(), [value]
        while waiting:
            number = waiting.pop()
            if number in seen:
                continue
            seen.add(number)
            if number in self.outputs:
                found.add(number)
            else:
                waiting += [n for op in self.makers(number) for n in op.inputs if n in self.trained]
        return frozenset(found)

    def by_samples(self, output: int, rows: int) -> int:
        """The same numbers with a row for each sample: a linear layer takes the positions of all samples as one list, and gives one."""
        waiting = [output]
        while waiting:
            number = waiting.pop(0)
            if self.step.values[number].shape[:1] == (rows,):
                return number
            users = [op for op in self.users.get(number, []) if op.name in RESHAPING]
            waiting += [n for op in users for n in op.outputs if n > number]
        return output

    @cached_property
    def after_outputs(self) -> set[int]:
        """What is made of the model's outputs on the way to the loss, and they themselves."""
        found = set(self.outputs)
        for op in self.step.ops:
            if op.name not in SHAPES and any(n in found for n in op.inputs):
                found.update(n for n in op.outputs if n in self.before_loss)
        return found

    @cached_property
    def compared(self) -> set[int]:
        """What no model has made, and what outputs meet on the way to the loss; not what is handed to a further layer together with them, as a condition is."""
        further = self.ancestors(list(self.outputs))
        return {
            number
            for op in self.step.ops
            if not self.is_layer(op) and any(n in self.before_loss and n not in further for n in op.outputs)
            if any(n in self.after_outputs for n in op.inputs)
            for number in op.inputs
            if number not in self.computed and number not in self.weights and self.step.values[number].shape
        }

    @cached_property
    def targets_by_model(self) -> bool:
        """The loss compares with what a model has computed without gradients."""
        return any(
            self.step.values[number].kind == "float" and number not in self.trained and number not in self.weights
            for number in self.before_loss & self.computed
            if self.step.values[number].op is not None and _size(self.step.values[number].shape) > 1
        )

    @cached_property
    def random_targets(self) -> bool:
        """The targets are random numbers by the program's text, and the model's outputs do not depend on them, as they do where noise is
        added to inputs and is to be found; and so are the inputs: a benchmark, of which nothing can be learnt."""
        behind = self.ancestors(list(self.outputs))
        targets = [
            v
            for v in self.step.values
            if v.origin == "given"
            and v.name
            and not v.into_model
            and v.number in self.before_loss
            and v.number not in behind
        ]
        return bool(targets) and all(v.drawn for v in targets) and self._random_inputs

    @cached_property
    def _random_inputs(self) -> bool:
        """What models are handed is drawn as well, as in a benchmark. Noise that is to be found in data is no benchmark."""
        handed = [v.number for v in self.inputs if v.kind == "float"] or [v.number for v in self.inputs]
        given = [self.step.values[n] for n in self.ancestors(handed) if self.step.values[n].origin == "given"]
        floats = [v for v in given if v.kind == "float" and v.shape] or given
        return not floats or any(v.drawn or not v.name for v in floats)


def _size(shape: tuple[int, ...]) -> int:
    size = 1
    for n in shape:
        size *= n
    return size
