"""The tensors of a trace: each has a number, the op that gave it, and its digest for as long as its version is the same.

Nothing here keeps a tensor alive.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from tensonde.adapters.torch.run.state import RunState
from tensonde.adapters.torch.seams.vanishing import Keyed, forgetting
from tensonde.adapters.torch.tensors import dtype_name, shape_of
from tensonde.adapters.torch.tracing.measure import Measure, nonfinite
from tensonde.adapters.torch.tracing.weights import Weights
from tensonde.adapters.torch.twins import TwinFeed
from tensonde.model.trace import TensorFact


class Known(Keyed[Tensor]):
    """A tensor of this trace: its number, the op that gave it, and its digest while its version is the same."""

    __slots__ = ("lent", "number", "producer", "stats", "version")
    lent: str
    """The parameter that it stands in for, if it was met as one."""
    number: int
    producer: int | None
    stats: dict[str, float]
    version: int


class TracedTensors:
    def __init__(self, state: RunState, measure: Measure, weights: Weights, twin: TwinFeed | None) -> None:
        self._state, self._measure, self._weights, self._twin = state, measure, weights, twin
        self._known: dict[int, Known] = {}
        self._dead = forgetting(self._known)
        self._numbers = 0
        self._buffers: dict[int, str] = {}
        self._modules_known = 0

    def facts(self, tensors: list[Tensor]) -> tuple[TensorFact, ...]:
        return tuple(self.fact(tensor) for tensor in tensors)

    def fact(self, tensor: Tensor, producer: int | None = None, *, anew: bool = False) -> TensorFact:
        key = id(tensor)
        known = self._known.get(key)
        if known is None:
            known = Known(tensor, self._dead)
            known.key, known.number, known.producer, known.version, known.lent = key, self._numbers, producer, -1, ""
            self._numbers += 1
            self._known[key] = known
            outside = producer is None and not self._state.stack
            if outside and self._twin is not None and not self._name(key):
                self._twin.met(tensor)
        elif producer is not None:
            known.producer = producer
        version = 0 if tensor.is_inference() else tensor._version
        if known.version != version or anew:
            known.version = version
            seen = None if anew else self._weights.known(tensor, version)
            known.stats = self._measure(tensor) if seen is None else seen
        name = self._name(key)
        if not name:
            name = known.lent = known.lent or self._stands_in_for(key)
        return TensorFact(
            known.number,
            shape_of(tensor),
            dtype_name(tensor),
            tensor.requires_grad,
            name,
            known.producer,
            known.stats,
        )

    def overwritten(self, tensors: list[Tensor]) -> None:
        """Their values may be others now, which their versions do not tell: collectives write past autograd."""
        for tensor in tensors:
            known = self._known.get(id(tensor))
            if known is not None:
                known.version = -1

    def _name(self, key: int) -> str:
        """Of a parameter or buffer; modules may become known in the course of the trace."""
        parameters = self._state.parameters
        if key in parameters.names:
            return parameters.names[key][0]
        if key in self._weights.gradients:
            return self._weights.gradients[key]
        if len(self._state.roster.entries) != self._modules_known:
            self._modules_known = len(self._state.roster.entries)
            for entry in list(self._state.roster.entries.values()):
                module = entry.ref()
                for attribute, held in (module._buffers if module is not None else {}).items():
                    if held is not None:
                        self._buffers.setdefault(id(held), self._prefix(entry.name) + attribute)
        return self._buffers.get(key, "")

    def _stands_in_for(self, key: int) -> str:
        """The parameter of the running module whose place a tensor has: FSDP's gathered weights, those that `functional_call` is given."""
        entry = self._state.stack[-1] if self._state.stack else None
        module = entry.ref() if entry is not None else None
        for attribute, held in (module._parameters if module is not None else {}).items():
            if entry is not None and held is not None and id(held) == key:
                return f"{self._prefix(entry.name)}{attribute}"
        return ""

    def _prefix(self, module: str) -> str:
        return self._state.parameters.prefix_of(module) if module in self._state.roster.roots else f"{module}."

    def spoilt(self) -> list[tuple[int, Tensor]]:
        """Tensors from outside of the trace, no parameters or buffers, that hold NaN or Inf, with their numbers."""
        known = list(
            self._known.values()
        )  # of `items()`, each pair is new: a collection while they are made forgets tensors
        found = [(one, one()) for one in known if one.producer is None]
        return [
            (one.number, tensor)
            for one, tensor in found
            if tensor is not None and nonfinite(one.stats) and not one.lent and not self._name(one.key)
        ]

    def producer(self, tensor: Tensor) -> int | None:
        """The op that gave it, if it is of this trace."""
        known = self._known.get(id(tensor))
        return known.producer if known is not None else None


def measurable(tensor: Any) -> bool:
    kind = type(tensor)
    return kind is Tensor or kind is nn.Parameter or kind is nn.Buffer
