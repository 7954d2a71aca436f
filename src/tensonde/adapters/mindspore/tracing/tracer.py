"""One step op by op, from what the dispatch mode and the calls of cells show.

An op is what the program calls: a cell of the library (`Dense` is one `linear`), a function (`ops.cross_entropy`), an operator. The
primitives inside of one are not told apart.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from types import FrameType
from typing import TYPE_CHECKING, Any, Literal

from tensonde.adapters.mindspore.run.entry import Entry
from tensonde.adapters.mindspore.run.naming import is_statistic, own_parameters
from tensonde.adapters.mindspore.tensors import (
    bytes_of,
    dtype_name,
    hook,
    is_floating,
    is_tensor,
    joined,
    shape_of,
    tensors_in,
)
from tensonde.adapters.mindspore.tracing import dispatch
from tensonde.adapters.mindspore.tracing.arguments import of_call, of_cell
from tensonde.adapters.mindspore.tracing.measure import Measure, nonfinite
from tensonde.adapters.mindspore.tracing.names import CELLS, function, primitive
from tensonde.adapters.mindspore.tracing.weights import Weights, When
from tensonde.model.moment import Phase
from tensonde.model.ops import Trait, ops
from tensonde.model.site import SourceLine
from tensonde.model.trace import CallRecord, OpRecord, TensorFact, Trace
from tensonde.program.frames import FRAMEWORK, frame_line, is_ours, owner_of, user_frame
from tensonde.session.options import Twin

if TYPE_CHECKING:
    from tensonde.adapters.mindspore.run.pynative import PyNative

MOST_OPS = 20_000
MOST_HELD = 1 << 30
_CUTS = ops(Trait.CUTS)


class Draft:
    __slots__ = ("fields", "gradient", "order")

    def __init__(self, fields: dict[str, Any]) -> None:
        self.fields = fields
        self.gradient: dict[str, float] = {}
        self.order = 0
        """When its gradient came, if that was not finite."""


class Known:
    """A tensor of this trace: its number, the op that gave it, and its digest when it was given."""

    __slots__ = ("followed", "grad", "number", "producer", "stats")

    def __init__(self, number: int, producer: int | None, *, grad: bool) -> None:
        self.number, self.producer, self.grad = number, producer, grad
        self.stats: dict[str, float] = {}
        self.followed = False
        """Its gradient is waited for."""


Key = tuple[int, tuple[int, ...], str]
"""A tensor by its memory, shape and dtype: MindSpore shows an op other objects than the program holds."""


class Tracer:
    """One trace. Belongs to the training thread."""

    def __init__(self, training: PyNative, *, live: bool = False) -> None:
        """`live`: of a step of the training as it runs, which another run may be compared with."""
        self.training = training
        self.loss: int | None = None
        self.notes: list[str] = []
        self.drafts: list[Draft] = []
        self.calls: list[CallRecord] = []
        self._measure = Measure(sketch=live)
        twin = training.session.options.twin
        self._weights = Weights(self._measure, twin or Twin()) if live else None
        self._known: dict[Key, Known] = {}
        self._held: list[Any] = []
        """Tensors of the step, so that no other one gets their memory; up to `MOST_HELD` bytes, and until the step is over."""
        self._room = MOST_HELD
        self._names: dict[Key, tuple[str, bool]] = {}
        self._numbers = 0
        self._counts: dict[int, Counter[str]] = {}
        self._group: tuple[FrameType, Draft] | None = None
        """The function of the library that runs, and the op that it is."""
        self._cells = 0
        """Library cells that are ops and that run now."""
        self._order = 0
        self._arrived: dict[str, dict[str, float]] = {}
        """Of parameters: their gradients."""
        self._open: list[tuple[int, int, tuple[TensorFact, ...]]] = []
        self._call_count = 0

    def begin(self) -> None:
        dispatch.look(self.called)

    def pause(self) -> None:
        dispatch.look_away(self.called)
        self._group = None

    # -- cells -----------------------------------------------------------------------------------

    def entering(self, entry: Entry, cell: Any, args: Any, kwargs: Any) -> None:
        self._counts.pop(id(entry), None)
        self._group = None
        inputs = () if self._cells else tuple(map(self._fact, tensors_in((args, kwargs))))
        self._open.append((self._call_count, len(self.drafts), inputs))
        self._call_count += 1
        self._cells += is_op(cell)

    def left(self, entry: Entry, cell: Any, args: Any, kwargs: Any, out: Any) -> None:
        """`out` is None where the call raised."""
        self._group = None
        number, first, inputs = self._open.pop()
        if is_op(cell):
            self._cells -= 1
            if not self._cells and out is not None and len(self.drafts) < MOST_OPS:
                held = [parameter for _, parameter in own_parameters(cell)]
                given = [*tensors_in((args, kwargs)), *held]
                self._add(CELLS[type(cell).__name__], entry, user_frame(sys._getframe(1)), given, of_cell(cell), cell)
                self._outputs(self.drafts[-1], tensors_in(out))
        if not self._cells:
            outputs = tuple(map(self._fact, tensors_in(out)))
            parent = self._open[-1][0] if self._open else None
            self.calls.append(
                CallRecord(
                    number,
                    parent,
                    entry.name,
                    entry.type,
                    inputs,
                    outputs,
                    self._state(entry, cell),
                    first,
                    len(self.drafts),
                    bool(cell.training),
                    self.training.grad_on,
                )
            )

    def _state(self, entry: Entry, cell: Any) -> tuple[TensorFact, ...]:
        """The statistics that the cell keeps, after the call."""
        if self._weights is None:
            return ()
        return tuple(
            TensorFact(-1, shape_of(held), dtype_name(held), False, f"{entry.name}.{name}", None, self._measure(held))
            for name, held in own_parameters(cell)
            if is_statistic(cell, name, held)
        )

    def weigh(self, when: When, seen: Iterable[tuple[str, Any, Any]]) -> None:
        """Parameters, or their gradients, at a moment of the step."""
        if self._weights is not None:
            self._weights.look(when, seen)

    # -- ops -------------------------------------------------------------------------------------

    def called(self, name: str, args: Any, out: Any, frame: FrameType) -> None:
        """An op has run (see `dispatch.py`)."""
        training = self.training
        if training.phase is not Phase.FORWARD or self._cells or len(self.drafts) >= MOST_OPS:
            return
        try:
            self._called(name, args, out, frame)
        except Exception as problem:
            training.contain("tracing an op", problem)

    def _called(self, name: str, args: Any, out: Any, frame: FrameType) -> None:
        given, made = tensors_in(args), tensors_in(out)
        if not made:
            return
        outermost = _outermost(frame)
        if self._group is not None and outermost is self._group[0]:
            draft = self._group[1]
            if given:
                known = {
                    fact.id for fact in (*draft.fields["inputs"], *draft.fields["inner"], *draft.fields["outputs"])
                }
                more = [fact for fact in map(self._fact, given) if fact.id not in known]
                draft.fields["inputs"] = (*draft.fields["inputs"], *more)
            draft.fields["inner"] = [*draft.fields["inner"], *draft.fields["outputs"]]
            if function(self._group[0].f_code.co_name) is None:
                self._rename(draft, primitive(name))
            self._outputs(draft, made)
            return
        op = function(outermost.f_code.co_name) if outermost is not None else None
        arguments = of_call(outermost if op is not None else None, args, primitive(name))
        entry = training.stack[-1] if (training := self.training).stack else None
        draft = self._add(op or primitive(name), entry, user_frame(frame), given, arguments, None)
        self._outputs(draft, made)
        self._group = (outermost, draft) if outermost is not None else None

    def _add(
        self,
        op: str,
        entry: Entry | None,
        frame: FrameType | None,
        given: list[Any],
        arguments: dict[str, Any],
        cell: Any,
    ) -> Draft:
        """`cell` is the one that is the op, or None."""
        index = len(self.drafts)
        module, kind, training = entry.name if entry else "", entry.type if entry else "", None
        if entry is not None:
            holder = cell if cell is not None else entry.ref()
            training = bool(holder.training) if holder is not None else None
        counter = self._counts.setdefault(id(entry) if entry is not None else 0, Counter())
        source: SourceLine | None = frame_line(frame)
        draft = Draft(
            {
                "index": index,
                "op": op,
                "site": f"{module}/{op}#{counter[op]}",
                "module": module,
                "module_type": kind,
                "source": source,
                "inputs": tuple(map(self._fact, given)),
                "outputs": (),
                "inner": [],
                "arguments": arguments,
                "phase": Phase.FORWARD,
                "training": training,
                "grad_enabled": self.training.grad_on,
            }
        )
        counter[op] += 1
        self.drafts.append(draft)
        return draft

    def _rename(self, draft: Draft, op: str) -> None:
        fields = draft.fields
        module, _, number = fields["site"].rpartition("/")[0], "", fields["site"].rpartition("#")[2]
        fields["op"], fields["site"] = op, f"{module}/{op}#{number}"

    def _outputs(self, draft: Draft, made: list[Any]) -> None:
        index, fields = draft.fields["index"], draft.fields
        grad = fields["op"] not in _CUTS and any(fact.requires_grad for fact in fields["inputs"])
        fields["outputs"] = tuple(self._fact(tensor, index, grad=grad and is_floating(tensor)) for tensor in made)

    def _watcher(self, draft: Draft) -> Any:
        def arrived(gradient: Any) -> None:
            if not is_tensor(gradient):  # of an output that the loss does not depend on
                return
            try:
                draft.gradient = self._measure(gradient)
                if nonfinite(draft.gradient) and not draft.order:
                    self._order += 1
                    draft.order = self._order
            except Exception as problem:
                self.training.contain("tracing a gradient", problem)

        return arrived

    # -- tensors ---------------------------------------------------------------------------------

    def _fact(self, tensor: Any, producer: int | None = None, *, grad: bool = False) -> TensorFact:
        key = key_of(tensor)
        known = self._known.get(key)
        name, trained = self._name(key)
        if known is None:
            stats = self._measure(tensor)
            known = self._copied(tensor, stats) if producer is None and not name else None
            if known is None:
                known = Known(self._numbers, producer, grad=grad or trained)
                self._numbers += 1
            known.stats = stats
            self._known[key] = known
            self._hold(tensor)
        elif producer is not None:
            if known.producer != producer:  # another tensor over the same memory, or one that was written to
                known = self._known[key] = Known(self._numbers, producer, grad=grad)
                self._numbers += 1
                self._hold(tensor)
            known.stats = self._measure(tensor)
        # What is made of the numbers of a tensor may lie in the same memory, and is no part of the graph.
        grad = known.grad and (
            producer is not None or known.producer is None or not self.training.grad_on or joined(tensor)
        )
        if producer is None and known.producer is not None and grad and not known.followed:
            self._follow(tensor, known)
        return TensorFact(known.number, shape_of(tensor), dtype_name(tensor), grad, name, known.producer, known.stats)

    def _copied(self, tensor: Any, stats: dict[str, float]) -> Known | None:
        """What the last op gave, if this is a copy of it: MindSpore brings a view into order before an op takes it."""
        for fact in self.drafts[-1].fields["outputs"] if self.drafts and stats else ():
            if fact.shape == shape_of(tensor) and fact.stats == stats and fact.dtype == dtype_name(tensor):
                return next((known for known in self._known.values() if known.number == fact.id), None)
        return None

    def _hold(self, tensor: Any) -> None:
        self._room -= bytes_of(tensor)
        if self._room > 0:
            self._held.append(tensor)

    def _follow(self, tensor: Any, known: Known) -> None:
        """An op is given this tensor: by now it is part of the graph, which it is not yet when it is made."""
        known.followed = True
        draft = self.drafts[known.producer or 0]
        first = bool(draft.fields["outputs"]) and draft.fields["outputs"][0].id == known.number
        if first and self.training.grad_on:
            hook(tensor, self._watcher(draft))

    def _name(self, key: Key) -> tuple[str, bool]:
        """Of a parameter, and whether it is trained."""
        names = self.training.parameters.names
        if len(self._names) < len(names):
            self._names = {key_of(p): (name, bool(p.requires_grad)) for name, p in self.training.parameters.live()}
        return self._names.get(key, ("", False))

    def differentiated(self, loss: Any) -> None:
        for tensor in tensors_in(loss)[:1]:
            known = self._known.get(key_of(tensor))
            if known is not None:
                self.loss = known.producer

    def arrived(self, weights: Sequence[Any], gradients: Sequence[Any]) -> None:
        """The pass has ended with these gradients."""
        for parameter, gradient in zip(weights, gradients, strict=False):
            name = self._name(key_of(parameter))[0]
            if name and is_tensor(gradient):
                self._arrived[name] = self._measure(gradient)
                self.weigh("raw", [(name, parameter, gradient)])

    def reach(self) -> tuple[set[str], set[str]]:
        """Parameters that want a gradient and took part in the pass: those that the loss leads back to, and the others. Both are empty where the loss leads
        back to none: it was computed where nobody looks."""
        seen = {
            fact.name for draft in self.drafts for fact in draft.fields["inputs"] if fact.name and fact.requires_grad
        }
        waiting, met = [self.loss] if self.loss is not None else [], set[int]()
        reached: set[str] = set()
        while waiting:
            index = waiting.pop()
            if index is None or index in met:
                continue
            met.add(index)
            for fact in self.drafts[index].fields["inputs"]:
                if fact.requires_grad:
                    reached.add(fact.name)
                    waiting.append(fact.producer)
        reached.discard("")
        return reached, seen - reached if reached else set()

    # -- the end ---------------------------------------------------------------------------------

    def finish(
        self,
        step: int,
        reason: Literal["first", "stage", "replay", "exception", "following", "inspect"],
        *,
        exact: bool = True,
    ) -> Trace:
        if len(self.drafts) >= MOST_OPS:
            self.notes.append(f"only the first {MOST_OPS} ops were traced")
        self._gradients_in()
        self._held.clear()
        made = []
        for draft in self.drafts:
            draft.fields.pop("inner")
            made.append(OpRecord(**draft.fields, gradient=draft.gradient))
        weights = self._weights.records() if self._weights is not None else ()
        return Trace(step, reason, tuple(made), exact, self.loss, tuple(self.notes), tuple(self.calls), weights)

    def _gradients_in(self) -> None:
        """The op whose own gradient was finite and that gave one that is not: `in.order` says which came first."""
        for draft in self.drafts:
            if not draft.gradient or nonfinite(draft.gradient):
                continue
            makers = [
                self.drafts[f.producer] for f in draft.fields["inputs"] if f.producer is not None and f.requires_grad
            ]
            bad = [(maker.order, maker.gradient) for maker in makers if maker.order]
            own = [self._arrived.get(fact.name, {}) for fact in draft.fields["inputs"] if fact.name]
            bad += [(self._order + 1 + len(self.drafts) - draft.fields["index"], one) for one in own if nonfinite(one)]
            if bad:
                order, worst = min(bad, key=lambda pair: pair[0])
                draft.gradient["in.order"] = float(order)
                for name, value in worst.items():
                    if name in ("nan", "pos_inf", "neg_inf") or name.startswith("bad_row"):
                        draft.gradient[f"in.{name}"] = value


def is_op(cell: Any) -> bool:
    """A cell of the library that is one op of a trace."""
    kind = type(cell)
    return kind.__name__ in CELLS and kind.__module__.startswith("mindspore.")


def _outermost(frame: FrameType) -> FrameType | None:
    """The function of the library that the program called, of those that run; None where an operator ran at once."""
    found: FrameType | None = None
    walk: FrameType | None = frame
    while walk is not None and owner_of(walk.f_code) == FRAMEWORK:
        if is_ours(walk.f_code) or (walk.f_code.co_name == "__call__" and "cell.py" in walk.f_code.co_filename):
            break  # called by `tensonde.inspect`, or inside of a cell
        found = walk
        walk = walk.f_back
    return found


def key_of(tensor: Any) -> Key:
    return tensor.data_ptr(), shape_of(tensor), dtype_name(tensor)
