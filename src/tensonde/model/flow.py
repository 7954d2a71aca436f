"""What feeds a module and what it feeds, in one trace: other modules where a tensor is theirs, else ops."""

from __future__ import annotations

from tensonde.model.moment import Phase
from tensonde.model.trace import CallRecord, TensorFact, Trace

Tensor = tuple[int, int | None]
"""Which tensor, and which op gave it: an in-place op gives its input's id again."""


def around_module(trace: Trace, name: str) -> tuple[list[str], list[str]] | None:
    """Names of nodes before and after it; None where the trace has no call of it."""
    calls = [call for call in trace.calls if call.module == name]
    if not calls:
        return None
    before: dict[str, None] = {}
    after: dict[str, None] = {}
    for call in calls:
        flow = _Flow(trace, call)
        before.update(dict.fromkeys(flow.givers()))
        after.update(dict.fromkeys(flow.takers()))
    return list(before), list(after)


def users_of(trace: Trace, parameter: str) -> list[str]:
    """The ops that take a parameter or buffer."""
    return list(dict.fromkeys(op.site for op in trace.ops if any(tensor.name == parameter for tensor in op.inputs)))


def inputs_of(trace: Trace) -> dict[int, str]:
    """Tensors that came from outside of the step and are no parameters: their ids, and the names that they go by, in the order used."""
    found: dict[int, str] = {}
    for op in trace.ops:
        for tensor in op.inputs if op.phase is not Phase.BACKWARD else ():
            if tensor.producer is None and not tensor.name:
                found.setdefault(tensor.id, f"input#{len(found)}")
    return found


class _Flow:
    def __init__(self, trace: Trace, call: CallRecord) -> None:
        self.trace, self.call = trace, call
        self._inputs = inputs_of(trace)
        self._numbered = {one.number: one for one in trace.calls}
        self._outer = self._above(call)

    def givers(self) -> list[str]:
        ops = {op.index: op.site for op in self.trace.ops}
        found: list[str] = []
        for tensor in self.call.inputs:
            if tensor.producer is None:
                found.append(self._inputs.get(tensor.id, ""))
                continue
            # Calls are in the order in which they ended: the last that gave it is the outermost.
            theirs = [
                one for one in self.trace.calls
                if one.number < self.call.number and one.number not in self._outer and _key(tensor) in _keys(one.outputs)
            ]  # fmt: skip
            found.append(theirs[-1].module if theirs else ops.get(tensor.producer, ""))
        return [name for name in dict.fromkeys(found) if name]

    def takers(self) -> list[str]:
        given = _keys(self.call.outputs)
        calls = {
            one.number: one for one in self.trace.calls
            if one.number > self.call.number and given & _keys(one.inputs) and self.call.number not in self._above(one)
        }  # fmt: skip
        outermost = [one for one in calls.values() if not self._above(one) & calls.keys()]
        found = [(one.first, one.module) for one in outermost]
        for op in self.trace.ops:
            inside = any(one.first <= op.index < one.last for one in outermost)
            if op.index >= self.call.last and not inside and given & _keys(op.inputs):
                found.append((op.index, op.site))
        return list(dict.fromkeys(name for _, name in sorted(found)))

    def _above(self, call: CallRecord) -> set[int]:
        """The numbers of the calls around it."""
        found: set[int] = set()
        parent = call.parent
        while parent is not None and parent not in found:
            found.add(parent)
            parent = self._numbered[parent].parent if parent in self._numbered else None
        return found


def _key(tensor: TensorFact) -> Tensor:
    return tensor.id, tensor.producer


def _keys(tensors: tuple[TensorFact, ...]) -> set[Tensor]:
    return {_key(tensor) for tensor in tensors if tensor.producer is not None}
