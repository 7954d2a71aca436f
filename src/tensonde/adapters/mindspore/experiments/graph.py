"""A recorded pass that can be computed again with changes: `Step` of `experiments/step.py` for MindSpore.

Ops run again as they were recorded, one by one; no code of the user's runs. Derivatives are MindSpore's, of a function that runs the ops. What ops
write to (the statistics of norms) is copied first, so the training's tensors are only read.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import mindspore
import numpy as np
from mindspore import Tensor

from tensonde.adapters.mindspore.experiments.recorder import Node, Recorder, Ref, copy_of, filled, refs
from tensonde.adapters.mindspore.experiments.trials import Trials
from tensonde.adapters.mindspore.observers.origins import KNOWN
from tensonde.adapters.mindspore.tensors import is_tensor, values_of
from tensonde.adapters.mindspore.tracing.tracer import key_of
from tensonde.experiments.relation import MOST_ROWS
from tensonde.experiments.step import Array, Changes, Effect, Fit, NotPossible, Op, OwnFunction, Trial, Value
from tensonde.model.site import SourceLine
from tensonde.program import habits, queries
from tensonde.program.lines import source_line
from tensonde.program.parting import Ways

ROUNDING = 1e-5
"""Changes below this part of the largest value are rounding."""
ITERATIONS = 20
"""Of a descent: constants and free outputs come close to the best in fewer."""
LOOKED_UP = 8
"""Rows of a batch that are looked up in a table."""
_NORM = "native_batch_norm"
Env = dict[int, Any]


class StepGraph:
    def __init__(self, recorder: Recorder, loss: Ref, number: int, deadline: float, clock: Callable[[], float]) -> None:
        self._nodes, self._tensors, self._maker = recorder.nodes, recorder.tensors, recorder.maker
        self._numbers = recorder.numbers
        self.number, self.loss = number, int(loss)
        self.loss_source: SourceLine | None = None
        self.optimizer = ""
        self.optimizer_source: SourceLine | None = None
        self.rates: tuple[float, ...] = ()
        self.decay = 0.0
        self.several = False
        self.batch = 0
        self.seconds_each = 0.0
        self.idle: Sequence[Value] = ()
        self.functions: Sequence[OwnFunction] = ()
        self.held: Callable[[], list[Array]] = list
        """Arrays that variables of the program hold."""
        self.trials: Trials | None = None
        self.left_out = recorder.left_out
        self.deadline, self._clock = deadline, clock
        self.values: Sequence[Value] = ()
        self._arrays: dict[int, Array] = {}
        self._factors: dict[int, float] = {}
        self._evaluating: set[int] = set()
        """Nodes that are computed as in eval mode."""
        self._orders: dict[tuple[Any, ...], list[int]] = {}
        self._written = {int(ref) for node in self._nodes if node.name == _NORM for ref in refs(node.args)[3:5]}
        self.ways = Ways()
        self.places: list[int] = []
        """The op that each node is, or is a part of."""
        self.ops: Sequence[Op] = self._grouped()

    def _grouped(self) -> list[Op]:
        """Nodes of one call of a function that counts as an op are one."""
        groups: list[list[int]] = []
        for index, node in enumerate(self._nodes):
            last = self._nodes[index - 1].frame if index else None
            if node.frame is not None and node.frame is last:
                groups[-1].append(index)
            else:
                groups.append([index])
            self.places.append(len(groups) - 1)
        users: dict[int, set[int]] = {}
        for index, node in enumerate(self._nodes):
            for ref in refs(node.args):
                users.setdefault(int(ref), set()).add(self.places[index])
        found = []
        for place, group in enumerate(groups):
            first = self._nodes[group[0]]
            nodes = [self._nodes[index] for index in group]
            made = [int(ref) for node in nodes for ref in node.outputs if ref is not None]
            given = [int(ref) for ref in (*first.wanted, *(ref for node in nodes for ref in refs(node.args)))]
            outputs = [ref for ref in made if len(group) == 1 or ref == self.loss or users.get(ref, set()) - {place}]
            found.append(
                Op(
                    place,
                    "nll_loss_forward" if first.frame is not None else first.name,
                    tuple(ref for ref in dict.fromkeys(given) if ref not in made),
                    tuple(outputs or made[-1:]),
                    (),
                    first.module,
                    first.type,
                    first.source,
                    True,
                    False,
                    first.name == "native_dropout" or (first.name == _NORM and _trains(first)),
                )
            )
        for node in self._nodes:
            node.frame = None
        return found

    # -- what others ask -------------------------------------------------------------------------

    def seconds_left(self) -> float:
        return self.deadline - self._clock()

    def given_twice(self, names: Sequence[str]) -> SourceLine | None:
        found = {(path, line) for path in KNOWN.files() for line in queries.given_twice(path, names)}
        return source_line(*found.pop()) if len(found) == 1 else None

    def renews_copies(self) -> bool:
        return any(habits.loads_under_condition(path) for path in KNOWN.files())

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

    def array(self, value: int) -> Array:
        found = self._arrays.get(value)
        if found is None:
            found = self._arrays[value] = _array(self._tensors[value])
        return found

    def tables(self, value: int, target: int) -> tuple[Array, Array] | None:
        x, y = self.array(value), self.array(target)
        held = self.held()
        for table in held:
            index = places(table, x)
            if index is None:
                continue
            for other in held:
                same = other.shape[1:] == y.shape[1:] and len(other) == len(table)
                if same and other is not table and np.array_equal(other[index].astype(y.dtype), y[: len(index)]):
                    return table[:MOST_ROWS], other[:MOST_ROWS]
        return None

    def effects(
        self, changes: Sequence[Changes], *, still_norms: bool = False, inside: bool = False
    ) -> list[dict[int, Effect]]:
        self._in_time()
        norms = {index for index, node in enumerate(self._nodes) if node.name == _NORM} if still_norms else set()
        base: Env | None = None
        if norms:
            with self._as_in_eval(norms):
                base = self.compute({}, [], whole=True)
        found = []
        for change in changes:
            with self._as_in_eval(norms):
                env = self._changed(change, inside)
            effect = {
                int(ref): _effect(self.array(ref), array) for ref, array in change.items() if self._maker[ref] < 0
            }
            for ref in range(len(self._tensors)):
                if self._maker[ref] >= 0 and ref in env:
                    was = _array(base[ref]) if base is not None else self.array(ref)
                    effect[ref] = _effect(was, _array(env[ref]))
            found.append(effect)
        return found

    def _changed(self, change: Changes, inside: bool) -> Env:
        tensors = self._tensors_of(change)
        if not inside:
            return self.compute(tensors, [], whole=True)
        self._in_time()
        env = self._start(tensors)
        for index, node in enumerate(self._nodes):
            put = {ref: env[ref] for ref in change} if not node.module else {}
            env |= {ref: self._tensors[ref] for ref in put}
            self._run(index, env, tensors)
            env |= put
        return env

    def array_with(self, value: int, changes: Changes) -> Array:
        return _array(self.compute(self._tensors_of(changes), [value])[value])

    def loss_with(self, changes: Changes, *, inside: bool = False) -> float:
        if inside:
            return float(_array(self._changed(changes, inside)[self.loss]))
        return self._loss_of(self._tensors_of(changes))

    def loss_in_eval(self, norms: Sequence[int] | None = None) -> float:
        if self.left_out:
            raise NotPossible("dropout was left out when the step was run again")
        chosen = range(len(self.ops)) if norms is None else norms
        with self._as_in_eval({index for index, place in enumerate(self.places) if place in chosen}):
            return self._loss_of({})

    @contextlib.contextmanager
    def _as_in_eval(self, nodes: set[int]) -> Iterator[None]:
        before, self._evaluating = self._evaluating, nodes
        try:
            yield
        finally:
            self._evaluating = before

    def ops_between(self, value: int, inputs: Sequence[int]) -> list[Op]:
        order = self._order([value], dict.fromkeys(inputs))
        return [self.ops[place] for place in dict.fromkeys(self.places[index] for index in order)]

    def derivatives(self, value: int, seed: Array, inputs: Sequence[int]) -> dict[int, Array]:
        raise NotPossible("functions with a backward of their own are not compared on MindSpore")

    def quotient(self, value: int, seed: Array, moved: int, direction: Array, distance: float) -> float:
        raise NotPossible("functions with a backward of their own are not compared on MindSpore")

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
        if self.trials is None:
            raise NotPossible("there is no optimizer to try")
        return self.trials.run(self, steps, rate=rate, own=own, decay=decay)

    # -- descents --------------------------------------------------------------------------------

    def fit(self, values: Mapping[int, int], tied: Mapping[int, int] | None = None) -> Fit:
        leaders = {ref: (tied or {}).get(ref, ref) for ref in values}
        best = self._fit(values, leaders, "mean")
        own = self._loss_of({})
        if best is None or own < best.loss < 2 * own:  # else it is clear which of the two is better
            found = self._fit(values, leaders, "zero")
            best = found if best is None or (found is not None and found.loss < best.loss) else best
        if best is None:
            raise NotPossible("no constant makes the loss smallest")
        return best

    def _fit(self, values: Mapping[int, int], leaders: Mapping[int, int], begin: str) -> Fit | None:
        vectors: dict[int, Array] = {}
        for ref in dict.fromkeys(leaders.values()):
            array, dim = self.array(ref).astype(np.float32), values[ref]
            axes = tuple(d for d in range(array.ndim) if d != dim % array.ndim) if array.ndim else ()
            mean: Array = np.asarray(array.mean(axes) if axes else array, dtype=np.float32)
            vectors[ref] = mean if begin == "mean" else np.zeros_like(mean)

        def spread(leaves: Mapping[int, Any]) -> Env:
            return {
                ref: _spread(leaves[leaders[ref]], self._tensors[ref].shape, dim).astype(self._tensors[ref].dtype)
                for ref, dim in values.items()
            }

        last = self._descend(vectors, spread)
        loss = self._loss_of(spread({ref: Tensor(vector) for ref, vector in last.items()}))
        if not np.isfinite(loss) or any(not np.isfinite(vector).all() for vector in last.values()):
            return None
        return Fit(loss, {ref: last[leaders[ref]] for ref in values})

    def floor(self, values: Sequence[int], enough: float) -> float:
        base = {ref: self.array(ref).astype(np.float32) for ref in values}
        draw = np.random.default_rng(0)
        apart = {ref: array + np.asarray(draw.standard_normal(array.shape), np.float32) for ref, array in base.items()}
        found = [self._loss_of({}), self._lowest(base)]
        if min(found) > enough:  # where an activation is off, nothing moves
            found.append(self._lowest(apart))
        return min(loss for loss in found if np.isfinite(loss))

    def _lowest(self, start: dict[int, Array]) -> float:
        def put(leaves: Mapping[int, Any]) -> Env:
            return {ref: leaf.astype(self._tensors[ref].dtype) for ref, leaf in leaves.items()}

        last = self._descend(start, put)
        return self._loss_of(put({ref: Tensor(array) for ref, array in last.items()}))

    def _descend(self, start: dict[int, Array], changed: Callable[[Mapping[int, Any]], Env]) -> dict[int, Array]:
        """Moves arrays from where they are until the loss is smallest with what `changed` makes of them."""
        from scipy.optimize import minimize  # type: ignore[import-untyped]  # MindSpore needs it

        numbers, shapes = list(start), [start[ref].shape for ref in start]
        cuts = np.cumsum([start[ref].size for ref in numbers])[:-1]

        def apart(flat: Array) -> list[Array]:
            parts = zip(np.split(flat.astype(np.float32), cuts), shapes, strict=True)
            return [part.reshape(shape) for part, shape in parts]

        def loss(*leaves: Any) -> Any:
            return self.compute(changed(dict(zip(numbers, leaves, strict=True))), [self.loss])[self.loss]

        slope = mindspore.value_and_grad(loss, tuple(range(len(numbers))))

        def closure(flat: Array) -> tuple[float, Array]:
            value, gradients = slope(*map(Tensor, apart(flat)))
            found = gradients if isinstance(gradients, tuple | list) else (gradients,)
            return float(_array(value)), np.concatenate([_array(g).reshape(-1).astype(np.float64) for g in found])

        began = np.concatenate([start[ref].reshape(-1) for ref in numbers]).astype(np.float64)
        out = minimize(
            closure, began, jac=True, method="L-BFGS-B", options={"maxiter": ITERATIONS, "maxfun": ITERATIONS + 8}
        )
        return dict(zip(numbers, apart(out.x), strict=True))

    # -- computing -------------------------------------------------------------------------------

    def _in_time(self) -> None:
        if self.seconds_left() <= 0:
            raise NotPossible("there was no time")

    def compute(self, changes: Env, wanted: Sequence[int], *, whole: bool = False) -> Env:
        """The values wanted, with others in the place of those that were made or given."""
        self._in_time()
        env = self._start(changes)
        for index in range(len(self._nodes)) if whole else self._order(wanted, changes):
            self._run(index, env, changes)
        return env

    def _tensors_of(self, changes: Changes) -> Env:
        return {
            int(ref): Tensor(np.ascontiguousarray(array), dtype=self._tensors[ref].dtype)
            for ref, array in changes.items()
        }

    def _start(self, changes: Env) -> Env:
        env = dict(changes)
        for ref, maker in enumerate(self._maker):
            if maker < 0 and ref not in env:
                env[ref] = copy_of(self._tensors[ref]) if ref in self._written else self._tensors[ref]
        return env

    def _order(self, wanted: Sequence[int], changes: Mapping[int, Any]) -> list[int]:
        """The nodes that have to run."""
        key = (tuple(wanted), tuple(sorted(changes)))
        if key not in self._orders:
            needed: set[int] = set()
            waiting = list(wanted)
            while waiting:
                ref = waiting.pop()
                index = self._maker[ref]
                if ref not in changes and index >= 0 and index not in needed:
                    needed.add(index)
                    waiting += refs(self._nodes[index].args)
            self._orders[key] = sorted(needed)
        return self._orders[key]

    def _run(self, index: int, env: Env, changes: Mapping[int, Any]) -> None:
        node = self._nodes[index]
        args = filled(node.args, env)
        if index in self._evaluating and node.name == _NORM:
            args = (*args[:2], (*args[2][:5], False, *args[2][6:]))
        try:
            out = node.func(*args)
        except NotPossible:
            raise
        except Exception as problem:  # shapes that depend on values, for one
            raise NotPossible(f"{node.name} does not take the changed values: {problem}"[:200]) from None
        given = out if isinstance(out, tuple | list) else (out,)
        for ref, tensor in zip(node.outputs, given, strict=False):
            if ref is not None and int(ref) not in changes:
                factor = self._factors.get(int(ref)) if self._factors else None
                env[int(ref)] = in_own_memory(tensor) if factor is None else tensor * factor

    def _loss_of(self, changes: Env) -> float:
        return float(_array(self.compute(changes, [self.loss])[self.loss]))

    def number_of(self, tensor: Any) -> int | None:
        """Of a tensor that was there before the step."""
        found = self._numbers.get(key_of(tensor))
        return int(found) if found is not None and self._maker[found] < 0 else None


def places(table: Array, rows: Array) -> Array | None:
    """Where a table has the first of these rows, each in one place only."""
    if table.shape[1:] != rows.shape[1:] or len(table) <= len(rows):
        return None
    found = []
    for row in rows[:LOOKED_UP]:
        same = (table.astype(rows.dtype) == row).reshape(len(table), -1).all(1).nonzero()[0]
        if len(same) != 1:
            return None
        found.append(int(same[0]))
    return np.array(found)


def in_own_memory(tensor: Any) -> Any:
    """An op that is run again would take the memory of a view as it lies, from its beginning."""
    if not is_tensor(tensor) or (tensor.is_contiguous() and not tensor.storage_offset()):
        return tensor
    if not tensor.storage_offset():
        return tensor.contiguous()
    return tensor.logical_or(tensor) if tensor.dtype == mindspore.bool_ else tensor + 0


def _trains(node: Node) -> bool:
    return isinstance(node.args, tuple) and len(node.args) > 2 and node.args[2][5] is True


def _spread(vector: Any, shape: tuple[int, ...], dim: int) -> Any:
    if not shape:
        return vector.reshape(())
    at = [1] * len(shape)
    at[dim % len(shape)] = -1
    return vector.reshape(tuple(at)).broadcast_to(tuple(shape))


def _array(tensor: Any) -> Array:
    array = values_of(tensor)
    if array is None:
        raise NotPossible("a value of the step has no numbers")
    return array.astype(np.float32) if array.dtype == np.float16 else array.copy()


def _effect(before: Array, after: Array) -> Effect:
    if before.shape != after.shape:
        return Effect(True, tuple(np.ones(size, dtype=bool) for size in after.shape))
    apart = before != after
    if before.dtype.kind == "f":
        apart &= ~(np.isnan(before) & np.isnan(after))
    if not apart.any():
        return Effect(False, tuple(np.zeros(size, dtype=bool) for size in before.shape))
    if before.dtype.kind == "f":
        finite = np.abs(before[np.isfinite(before)])
        scale = float(finite.max()) if finite.size else 0.0
        with np.errstate(invalid="ignore"):
            apart &= ~(np.abs(before - after) <= ROUNDING * scale)
    axes = range(before.ndim)
    return Effect(True, tuple(apart.any(tuple(other for other in axes if other != dim)) for dim in axes))
