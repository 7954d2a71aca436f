"""A recorded step that can be computed again with changes: `Step` of `experiments/step.py` for torch.

Ops run again as they were recorded, one by one; no code of the user's runs. What they would write to is copied first, so the
training's tensors are only read. The random numbers of an op are those of then.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tensonde.adapters.torch.experiments import descent, trials
from tensonde.adapters.torch.experiments.computed import array_of, comparable, effect_of, spread
from tensonde.adapters.torch.experiments.recorder import Node, Recorder, Ref, refs
from tensonde.adapters.torch.observers.origins import KNOWN
from tensonde.adapters.torch.replay.restore.writes import storage_of
from tensonde.experiments.relation import MOST_ROWS
from tensonde.experiments.step import Array, Changes, Effect, Fit, NotPossible, Op, OwnFunction, Trial, Value
from tensonde.model.site import SourceLine
from tensonde.program import habits, queries
from tensonde.program.lines import source_line
from tensonde.program.parting import Ways

_NORMS = {"native_batch_norm": 5, "cudnn_batch_norm": 5, "_native_batch_norm_legit": 5, "_batch_norm_with_update": None}
_SINGLE = frozenset((torch.float32, torch.float16, torch.bfloat16))
LOOKED_UP = 8
"""Rows of a batch that are looked up in a table."""
Env = dict[int, Tensor]


class StepGraph:
    def __init__(self, recorder: Recorder, loss: Ref, number: int, deadline: float, clock: Callable[[], float]) -> None:
        self._nodes, self.tensors = recorder.nodes, recorder.tensors
        self._maker = recorder.maker
        self.number, self.loss = number, int(loss)
        self.loss_source: SourceLine | None = None
        self.optimizer = ""
        self.optimizer_source: SourceLine | None = None
        self.rates: tuple[float, ...] = ()
        self.decay = 0.0
        self.several = False
        self.accumulated = False
        """The optimizer steps with the gradients of other batches, too."""
        self.batch = 0
        self.seconds_each = 0.0
        self.idle: Sequence[Value] = ()
        self.functions: Sequence[OwnFunction] = ()
        self.held: Callable[[], list[Tensor]] = list
        """What variables and datasets of the program hold."""
        self.ways = Ways()
        self.deadline, self._clock = deadline, clock
        self.holder: Any = None
        """The optimizer that is about to step."""
        self._storage = [storage_of(tensor) for tensor in self.tensors]
        self._writers: dict[int, list[int]] = {}
        for index, node in enumerate(self._nodes):
            for ref in node.writes:
                self._writers.setdefault(self._storage[ref], []).append(index)
        outside: dict[int, int] = {}
        for number, storage in enumerate(self._storage):
            if self._maker[number] < 0 and storage in self._writers:
                outside[storage] = outside.get(storage, 0) + 1
        if any(count > 1 for count in outside.values()):
            raise NotPossible("the step writes to memory that several of its tensors share")
        self.values: Sequence[Value] = ()
        self.ops: Sequence[Op] = [
            Op(
                index,
                node.func._opname,
                tuple(dict.fromkeys(int(ref) for ref in refs((node.args, node.kwargs)))),
                tuple(int(ref) for ref in node.outputs if ref is not None),
                tuple(int(ref) for ref in node.writes),
                node.module,
                node.type,
                node.source,
                node.grad,
                node.random is not None,
                _by_mode(node),
            )
            for index, node in enumerate(self._nodes)
        ]
        self.own_backward = any(
            node.outputs
            and not node.grad
            and any(ref is not None and self.tensors[ref].requires_grad for ref in node.outputs)
            for node in self._nodes
        )
        """A backward pass of the user's own is on the way: gradients of this graph are not those of the training."""
        self._arrays: dict[int, Array] = {}
        self._factors: dict[int, float] = {}
        self.fresh = False
        """Random numbers are drawn anew."""
        self._evaluating: set[int] = set()
        """Nodes that are computed as in eval mode."""
        self._exact = False
        """In double precision, and with derivatives of all ops, also inside functions that have a backward of their own."""
        self._orders: dict[tuple[Any, ...], list[Node]] = {}
        self._outside = [
            (ref, self._storage[ref] in self._writers) for ref, maker in enumerate(self._maker) if maker < 0
        ]
        self.tensors = [t if maker < 0 else t.detach() for t, maker in zip(self.tensors, self._maker, strict=True)]

    # -- what others ask -------------------------------------------------------------------------

    def seconds_left(self) -> float:
        return self.deadline - self._clock()

    def given_twice(self, names: Sequence[str]) -> SourceLine | None:
        found = {(path, line) for path in KNOWN.files() for line in queries.given_twice(path, names)}
        return source_line(*found.pop()) if len(found) == 1 else None

    def renews_copies(self) -> bool:
        return any(habits.loads_under_condition(path) for path in KNOWN.files())

    def array(self, value: int) -> Array:
        found = self._arrays.get(value)
        if found is None:
            known = self._storage[value] not in self._writers
            tensor = self.tensors[value] if known else self.compute({}, [value])[value]
            found = self._arrays[value] = array_of(tensor)
        return found

    def tables(self, value: int, target: int) -> tuple[Array, Array] | None:
        x, y = self.tensors[value].detach(), self.tensors[target].detach()
        held = self.held()
        for table in held:
            if table.shape[1:] != x.shape[1:] or table.dtype != x.dtype or len(table) <= len(x):
                continue
            index = _places(table, x)
            if index is None:
                continue
            for other in held:
                same = other.shape[1:] == y.shape[1:] and other.dtype == y.dtype and len(other) == len(table)
                if same and other is not table and torch.equal(other[index], y[: len(index)]):
                    return array_of(table[:MOST_ROWS]), array_of(other[:MOST_ROWS])
        return None

    def parting(
        self,
        ones: Sequence[int],
        others: Sequence[int],
        *,
        loose: bool = False,
        whole: bool = False,
        sure: bool = False,
    ) -> SourceLine | None:
        return self.ways.parting(ones, others, loose=loose, whole=whole, sure=sure)

    def moved(self, value: int, target: int) -> SourceLine | None:
        return self.ways.moved(value, target)

    def last_deed(self, value: int, kind: str) -> SourceLine | None:
        return self.ways.last(value, kind)

    def effects(
        self, changes: Sequence[Changes], *, still_norms: bool = False, inside: bool = False
    ) -> list[dict[int, Effect]]:
        self._in_time()
        envs = [self._start(self._tensors_of(change)) for change in changes]
        before = self._recorded(still_norms)
        """What it was without changes."""
        base = self._start({}) if before is None else {}
        found: list[dict[int, Effect]] = [{} for _ in changes]
        for effect, change, env in zip(found, changes, envs, strict=True):
            for ref in change:
                if self._maker[ref] < 0:
                    effect[ref] = effect_of(self.tensors[ref].detach(), env[ref])
        with torch.no_grad():
            for node in self._order([self.loss], whole=True):
                if before is None:
                    self._run(node, base, {}, still_norms=still_norms)
                for env, change in zip(envs, changes, strict=True):
                    with self._unchanged(env, change, node, inside):
                        self._run(node, env, change, still_norms=still_norms)
                for made in node.outputs:
                    if made is None:
                        continue
                    was = before[made] if before is not None else base.get(int(made))
                    for effect, env in zip(found, envs, strict=True):
                        if comparable(was) and comparable(env.get(int(made))):
                            effect[int(made)] = effect_of(was, env[made])
        return found

    def _recorded(self, still_norms: bool) -> Sequence[Tensor] | None:
        """All values as they were recorded, where that is what the step gives: nothing was written over since, and no norm is to be computed in another way."""
        if self._writers or (still_norms and any(node.func._opname in _NORMS for node in self._nodes)):
            return None
        return self.tensors

    def array_with(self, value: int, changes: Changes) -> Array:
        with torch.no_grad():
            return array_of(self.compute(self._tensors_of(changes), [value])[value])

    def loss_with(self, changes: Changes, *, inside: bool = False) -> float:
        tensors = self._tensors_of(changes)
        if not inside:
            return self.loss_of(tensors)
        self._in_time()
        env = self._start(tensors)
        with torch.no_grad():
            for node in self._order([self.loss]):
                with self._unchanged(env, changes, node, inside):
                    self._run(node, env, changes)
        return float(env[self.loss])

    @contextlib.contextmanager
    def _unchanged(self, env: Env, changes: Changes, node: Node, inside: bool) -> Iterator[None]:
        """Where only modules are to see changes, an op outside of them does not."""
        changed = {ref: env[ref] for ref in changes} if inside and not node.module else {}
        env |= {ref: self.tensors[ref].detach() for ref in changed}
        yield
        env |= changed

    def loss_in_eval(self, norms: Sequence[int] | None = None) -> float:
        chosen = range(len(self._nodes)) if norms is None else norms
        self._evaluating = {id(self._nodes[index]) for index in chosen}
        try:
            return self.loss_of({})
        finally:
            self._evaluating = set()

    def fit(self, values: Mapping[int, int], tied: Mapping[int, int] | None = None) -> Fit:
        return descent.fit(self, values, tied)

    def ops_between(self, value: int, inputs: Sequence[int]) -> list[Op]:
        places = {id(node): index for index, node in enumerate(self._nodes)}
        return [self.ops[places[id(node)]] for node in self._order([value], dict.fromkeys(inputs))]

    def derivatives(self, value: int, seed: Array, inputs: Sequence[int]) -> dict[int, Array]:
        leaves = {ref: torch.from_numpy(self.array(ref).astype(np.float64)).requires_grad_() for ref in inputs}
        with self._exactly(), torch.enable_grad():
            made = self.compute(leaves, [value], grad=True)[value]
            if not made.requires_grad:
                return {}
            found = torch.autograd.grad(made, list(leaves.values()), torch.from_numpy(seed), allow_unused=True)
        return {ref: array_of(gradient) for ref, gradient in zip(leaves, found, strict=True) if gradient is not None}

    def quotient(self, value: int, seed: Array, moved: int, direction: Array, distance: float) -> float:
        start = self.array(moved).astype(np.float64)
        sums = []
        with self._exactly():
            for way in (distance, -distance):
                change = {moved: torch.from_numpy(start + way * direction)}
                sums.append(float((self.compute(change, [value])[value] * torch.from_numpy(seed)).sum()))
        return (sums[0] - sums[1]) / (2 * distance)

    @contextlib.contextmanager
    def _exactly(self) -> Iterator[None]:
        self._exact = True
        try:
            yield
        finally:
            self._exact = False

    @contextlib.contextmanager
    def weighed(self, factors: Mapping[int, float]) -> Iterator[None]:
        before, self._factors = self._factors, dict(factors)
        try:
            yield
        finally:
            self._factors = before

    def trial(
        self, steps: int, *, rate: float = 1.0, fresh: bool = False, own: bool = False, decay: bool = True
    ) -> Trial:
        return trials.trial(self, steps, rate=rate, fresh=fresh, own=own, decay=decay)

    # -- computing -------------------------------------------------------------------------------

    def _in_time(self) -> None:
        if self.seconds_left() <= 0:
            raise NotPossible("there was no time")

    def compute(self, changes: Env, wanted: Sequence[int], *, grad: bool = False) -> Env:
        """The values wanted, with others in the place of those that were made or given."""
        self._in_time()
        env = self._start(changes)
        with torch.set_grad_enabled(grad):
            for node in self._order(wanted, changes):
                self._run(node, env, changes, grad=grad)
        return env

    def _tensors_of(self, changes: Changes) -> Env:
        return {
            ref: torch.from_numpy(np.ascontiguousarray(array)).to(self.tensors[ref].device, self.tensors[ref].dtype)
            for ref, array in changes.items()
        }

    def _start(self, changes: Env) -> Env:
        env = {
            ref: changed.clone() if self._storage[ref] in self._writers else changed for ref, changed in changes.items()
        }
        for ref, written in self._outside:
            if ref not in env:
                tensor = self.tensors[ref].detach()
                if self._exact and tensor.dtype in _SINGLE:
                    tensor = tensor.double()
                env[ref] = tensor.clone() if written else tensor
        return env

    def _order(
        self, wanted: Sequence[int], changes: Mapping[int, Any] | None = None, *, whole: bool = False
    ) -> list[Node]:
        """The nodes that have to run."""
        if whole:
            return self._nodes
        changes = changes or {}
        key = (tuple(wanted), tuple(sorted(changes)))
        if key in self._orders:
            return self._orders[key]
        needed: set[int] = set()
        waiting = [(ref, len(self._nodes)) for ref in wanted]
        seen: dict[int, int] = {}
        while waiting:
            ref, before = waiting.pop()
            if ref in changes or seen.get(ref, -1) >= before:
                continue
            seen[ref] = before
            makers = [self._maker[ref]] if self._maker[ref] >= 0 else []
            makers += [index for index in self._writers.get(self._storage[ref], ()) if index < before]
            for index in makers:
                if index not in needed:
                    needed.add(index)
                    waiting += [(other, index) for other in refs((self._nodes[index].args, self._nodes[index].kwargs))]
        found = self._orders[key] = [self._nodes[index] for index in sorted(needed)]
        return found

    def _run(
        self, node: Node, env: Env, changes: Mapping[int, Any], *, grad: bool = False, still_norms: bool = False
    ) -> None:
        if node.writes and self._writes_over(node, changes):
            return
        if node.random is not None and not self.fresh:
            node.random.put()
        args, kwargs = _filled(node.args, env), _filled(node.kwargs, env)
        still = id(node) in self._evaluating
        place = _NORMS.get(node.func._opname) if still_norms or still else None
        if place is not None and args[3] is not None and len(args) > place:
            args[place] = False
        if still and node.func._opname == "native_dropout":
            args[2] = False
        if self._exact:
            args, kwargs = _doubled(args), _doubled(kwargs)
        try:
            with torch.set_grad_enabled(grad and (node.grad or self._exact)):
                out = node.func(*args, **kwargs)
        except (RuntimeError, IndexError) as problem:  # shapes that depend on values, for one
            raise NotPossible(f"{node.func._opname} does not take the changed values: {problem}"[:200]) from None
        if still and node.func._opname == "bernoulli_" and _chance(node) is not None:
            out.fill_(_chance(node))  # what it is on average, by which dropout divides
        given = out if isinstance(out, tuple | list) else (out,)
        for ref, tensor in zip(node.outputs, given, strict=False):
            if ref is not None and int(ref) not in changes:
                factor = self._factors.get(int(ref)) if self._factors else None
                env[int(ref)] = tensor if factor is None else tensor * factor

    def _writes_over(self, node: Node, changes: Mapping[int, Any]) -> bool:
        """It writes to what is changed, as where a batch is filled row by row. A change is one of what comes of all such ops."""
        written = {self._storage[ref] for ref in node.writes}
        return any(self._maker[ref] >= 0 and self._storage[ref] in written for ref in changes)

    def floor(self, values: Sequence[int], enough: float) -> float:
        return descent.floor(self, values, enough)

    def loss_of(self, changes: Env) -> float:
        with torch.no_grad():
            return float(self.compute(changes, [self.loss])[self.loss])

    def spread(self, value: int, vector: Array, dim: int) -> Array:
        """A constant along the features of a value, in its shape."""
        like = self.tensors[value].detach()
        return array_of(spread(torch.from_numpy(vector).to(like.device), like, dim))


def _filled(value: Any, env: Env) -> Any:
    if isinstance(value, Ref):
        return env[int(value)]
    if isinstance(value, list):
        return [_filled(item, env) for item in value]
    if isinstance(value, dict):
        return {name: _filled(item, env) for name, item in value.items()}
    return value


def _by_mode(node: Node) -> bool:
    name = node.func._opname
    if name in _NORMS:
        place = _NORMS[name]
        return place is not None and len(node.args) > place and node.args[place] is True and node.args[3] is not None
    return name == "native_dropout" or (name == "bernoulli_" and _chance(node) is not None)


def _chance(node: Node) -> float | None:
    """Of a draw by one probability."""
    given = node.args[1] if len(node.args) > 1 else node.kwargs.get("p")
    return float(given) if isinstance(given, float | int) else None


def _doubled(value: Any) -> Any:
    """Arguments that say how precise a result is to be."""
    if isinstance(value, list):
        return [_doubled(item) for item in value]
    if isinstance(value, dict):
        return {name: _doubled(item) for name, item in value.items()}
    return torch.float64 if isinstance(value, torch.dtype) and value in _SINGLE else value


def _places(table: Tensor, rows: Tensor) -> Tensor | None:
    """Where a table has the first of these rows, each in one place only."""
    found = []
    for row in rows[:LOOKED_UP]:
        places = (table == row).flatten(1).all(1).nonzero() if table.ndim > 1 else (table == row).nonzero()
        if len(places) != 1:
            return None
        found.append(int(places[0, 0]))
    return torch.tensor(found)


def bytes_of(tensors: Iterable[Tensor]) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)
