"""Collectives: which the program calls, on what, at which lines, and what they do to gradients in the first step."""

from __future__ import annotations

import marshal
import zlib
from dataclasses import dataclass, field
from time import perf_counter_ns
from types import FrameType
from typing import TYPE_CHECKING, Any
from weakref import ReferenceType, ref

import torch
from torch import Tensor

from tensonde.adapters.torch.checksum import memory_sum
from tensonde.adapters.torch.seams.vanishing import Ref
from tensonde.adapters.torch.tensors import dtype_name, shape_of, tensors_in, values_of
from tensonde.model.moment import Phase
from tensonde.program.divisions import by_own_count, divides_around, divides_given, undivided_mean
from tensonde.program.frames import near_way, user_path
from tensonde.program.lines import CodeLine, Json, line_at, line_of
from tensonde.program.results import thrown_away
from tensonde.program.surroundings import caught, skips, statement_after, surroundings, unsynchronised
from tensonde.store.collectives import GRADIENTS, Kind

if TYPE_CHECKING:
    from tensonde.adapters.torch.run.state import RunState

MOST_LINES = 256
MOST_NORMS = 16
"""Gradients and parameters whose size is noted before and after a collective, when it is first called on them."""
MOST_GIVEN, LARGEST_GIVEN = 8, 1 << 22
"""Calls at a line of which the content of the tensor is noted, and its bytes at most."""
MOST_FRAMES = 8
"""Frames of the program that are noted with a call, from the innermost on."""
MOST_UNDER_WAY = 4096
MOST_TAGS = 64
FILLED = ("all_reduce", "broadcast", "all_gather", "all_to_all", "broadcast_object_list")
"""Collectives that fill their first argument on every rank."""
LOOKED_AT = 3
"""Steps with calls at a line in which it is noted whether a tensor is a parameter or a gradient."""


@dataclass(slots=True)
class Line:
    """All calls of one collective at one line."""

    op: str
    place: CodeLine | None
    reduce: str
    group: str
    group_size: int
    count: int = 0
    nanos: int = 0
    longest: int = 0
    first_step: int = 0
    last_step: int = -1
    steps: int = 0
    gradients: dict[str, None] = field(default_factory=dict)
    parameters: dict[str, None] = field(default_factory=dict)
    copies: dict[str, None] = field(default_factory=dict)
    buffers: dict[str, None] = field(default_factory=dict)
    left: int = 0
    """Calls that were never waited for."""
    inside: bool = False
    backward: bool = False
    before_step: bool = False
    roots: dict[str, int] = field(default_factory=dict)
    scalar: bool = True
    norms: dict[str, list[float]] = field(default_factory=dict)
    given: list[int] = field(default_factory=list)
    carried: int = -1
    """The step in which a backward pass began with what it had reduced before."""
    again: bool = False
    touched: int = 0
    """Calls whose tensor was changed before the program waited for them."""
    content: int = 0
    """Of what the first call was given, where the program throws the result away."""
    one_tensor: bool = False


@dataclass(slots=True)
class Call:
    line: Line
    index: int
    began: int
    tensor: tuple[str, Tensor] | None = None
    """Whose norm is wanted when it has ended."""
    spent: int = 0
    """Nanoseconds in its call and in waits for it."""
    parts: int = 0
    """How many waits for it are still to come."""
    given: tuple[Ref[Tensor], int] | None = None
    """What it runs on beside the program, and its version when the call had returned."""
    left: bool = False
    """It runs beside the program, which has neither waited for it nor asked about it."""


class Collectives:
    def __init__(self, state: RunState) -> None:
        self._state = state
        self.inside = False
        """One runs now; it may be made of others."""
        self._lines: dict[tuple[str, tuple[int, int] | None, str, str], Line] = {}
        self._numbers: dict[str, int] = {}
        self._groups: dict[tuple[int, int], tuple[str, int, Any]] = {}
        self._known: dict[int, str] = {}
        self._known_at: tuple[int, Phase | None, int] = (-1, None, -1)
        self._tags = {0}
        self._passes: list[bool] = []
        """Of the backward passes since the last step: whether they reduced shards."""
        self._reduced = self._reduced_early = 0
        self.under_way: dict[int, tuple[Call, ReferenceType[Any]]] = {}
        """Calls that run beside the program, by the key of what it can wait for."""

    def begins(self, op: str, args: tuple[Any, ...], kwargs: dict[str, Any], frame: FrameType) -> Call | None:
        group, size = self._group(args, kwargs)
        first = args[0] if args else None
        tensor = first if isinstance(first, Tensor) else next(iter(tensors_in((args, kwargs))), None)
        reduce = _reduction(args, kwargs) if "reduce" in op else ""
        place, way = near_way(frame)
        at = (id(place[0]), place[1]) if place is not None else None  # a code object takes long to hash
        key = (op, at, reduce, group)
        line = self._lines.get(key)
        if line is None:
            if len(self._lines) >= MOST_LINES:
                return None
            line = self._lines[key] = Line(op, place, reduce, group, size, first_step=self._state.step)
            if op in FILLED and place is not None:
                line.one_tensor = _is_one_tensor(first)
                if thrown_away(place[0].co_filename, place[1], op):
                    line.content = _content_of(first)
        state = self._state
        line.count += 1
        if line.last_step != state.step:
            line.last_step = state.step
            line.steps += 1
        number = self._numbers[group] = self._numbers.get(group, 0) + 1
        if state.stack or state.phase is Phase.BACKWARD:
            state.communicates = line.inside = True
            line.backward = state.phase is Phase.BACKWARD
            if self._passes and state.phase is Phase.BACKWARD and op.startswith("reduce_scatter"):
                self._passes[-1] = True
        elif self._passes:
            line.before_step = True
        session = state.session
        session.whereabouts.moves += 1
        form = (tensor.dtype, tensor.shape) if tensor is not None else None
        peer = peer_of(op, args, kwargs)
        tag = self._tag(args, kwargs) if peer >= 0 else 0
        kind = session.collectives.kind(
            (key, way, state.came_from if state.stack else (), form, peer, tag),
            lambda: kind_of(op, tensor, reduce, group, size, user_path(frame, MOST_FRAMES), peer, tag),
        )
        call = Call(line, session.collectives.begins(kind, number, state.step), perf_counter_ns())
        if tensor is not None and line.steps <= LOOKED_AT:
            line.scalar = line.scalar and tensor.numel() == 1
            if (op == "isend" or kwargs.get("async_op")) and type(tensor) is Tensor and not tensor.is_inference():
                call.given = Ref(tensor), 0
            self._note(call, tensor, args, kwargs)
        return call

    def _tag(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
        """-1 where there are too many of them, as with a new one in every step."""
        tag = kwargs.get("tag", args[3] if len(args) > 3 else 0)
        if tag in self._tags:
            return int(tag)
        if not isinstance(tag, int) or len(self._tags) >= MOST_TAGS:
            return -1
        self._tags.add(tag)
        return tag

    def pass_begins(self) -> None:
        """A backward pass."""
        if self._passes and self._state.step < LOOKED_AT:
            self._carry()
        if len(self._passes) < MOST_UNDER_WAY:
            self._passes.append(False)

    def _carry(self) -> None:
        """It is not the first of the step: gradients may be what a collective made of them."""
        for line in self._lines.values():
            name, norms = next(iter(line.norms.items()), ("", []))
            if len(norms) == 2 and line.last_step == self._state.step and name in line.gradients:
                gradient = next((p.grad for known, p in self._state.parameters.live() if known == name), None)
                if gradient is not None and gradient.layout is torch.strided:
                    now = _norm(gradient)
                    line.carried = self._state.step if abs(now - norms[1]) <= 1e-6 * norms[1] else -1

    def stepped(self) -> None:
        if any(self._passes):
            self._reduced += 1
            self._reduced_early += not self._passes[-1]
        self._passes.clear()

    def pass_facts(self) -> dict[str, int]:
        return {"reduced": self._reduced, "reduced_early": self._reduced_early}

    def launched(self, call: Call, awaited: list[tuple[int, Any]]) -> None:
        """The call has returned; its collective runs on, until the program waits for all that it got."""
        if not awaited:
            self.ended(call)
            return
        call.spent = perf_counter_ns() - call.began
        call.parts = len(awaited)
        if call.given is not None:
            tensor = call.given[0]()
            call.given = (call.given[0], tensor._version) if tensor is not None else None
        call.left = True
        call.line.left += 1
        for key, one in awaited:
            self.under_way[key] = call, ref(one)
        while len(self.under_way) > MOST_UNDER_WAY:
            del self.under_way[next(iter(self.under_way))]
        session = self._state.session
        session.whereabouts.moves += 1
        session.collectives.runs_on(call.index)

    def waits(self, key: int, awaited: Any) -> Call | None:
        """The program waits for what a call gave it. None for one that is not known: keys come back when what had them is gone."""
        found = self.under_way.pop(key, None)
        if found is None or (isinstance(awaited, torch.distributed.Work) and found[1]() is not awaited):
            return None
        call = found[0]
        if call.given is not None:
            tensor, version = call.given[0](), call.given[1]
            call.line.touched += tensor is not None and tensor._version != version
            call.given = None
        call.began = perf_counter_ns()
        _looked_after(call)
        session = self._state.session
        session.whereabouts.moves += 1
        session.collectives.waited_for(call.index)
        return call

    def waited(self, call: Call) -> None:
        call.parts -= 1
        if call.parts > 0:
            call.spent += perf_counter_ns() - call.began
            self._state.session.collectives.runs_on(call.index)
        else:
            self.ended(call)

    def cared_for(self, key: int) -> None:
        """The program asks about it; it may still wait for it."""
        found = self.under_way.get(key)
        if found is not None:
            _looked_after(found[0])

    def ended(self, call: Call) -> None:
        spent = call.spent + perf_counter_ns() - call.began
        session = self._state.session
        session.whereabouts.moves += 1
        session.collectives.ended(call.index, spent * 1e-9)
        call.line.nanos += spent
        call.line.longest = max(call.line.longest, spent)
        if call.tensor is not None:
            name, tensor = call.tensor
            call.line.norms[name].append(_norm(tensor))

    def _note(self, call: Call, tensor: Tensor, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        name = self._name(tensor)
        line = call.line
        is_gradient = name.endswith(":grad")
        name = name.removesuffix(":grad")
        if not name:
            if line.steps == 1 and "reduce" in line.op and tensor.is_floating_point() and tensor.numel() > 1:
                line.copies.update(dict.fromkeys(self._copied(tensor)))
                if line.inside and not line.copies and len(line.given) < MOST_GIVEN:
                    line.given.append(_content(tensor))
            return
        if name.endswith(":buffer"):
            line.buffers[name.removesuffix(":buffer")] = None
            return
        if is_gradient and name in line.gradients and line.carried == self._state.step:
            line.again = True
        (line.gradients if is_gradient else line.parameters)[name] = None
        if is_gradient and line.op == "reduce":
            root = kwargs.get("dst", args[1] if len(args) > 1 else None)
            if isinstance(root, int):
                line.roots[name] = root
        first = self._state.step == 0 if is_gradient else line.steps == 1
        wanted = first and line.op == "all_reduce" and not kwargs.get("async_op")
        if wanted and name not in line.norms and len(line.norms) < MOST_NORMS:
            line.norms[name] = [_norm(tensor)]
            call.tensor = name, tensor

    def _name(self, tensor: Tensor) -> str:
        """The parameter whose value or gradient lies at the same address."""
        now = (self._state.step, self._state.phase, len(self._state.parameters.names))
        held = values_of(tensor) if tensor.layout is torch.strided else None
        if held is None or not held.numel():
            return ""
        key = held.data_ptr()
        if self._known_at != now:
            self._known_at = now
            self._known = {}
            for name, parameter in self._state.parameters.live():
                for what, tensor in ((name, parameter), (f"{name}:grad", parameter.grad)):
                    held = values_of(tensor) if tensor is not None and tensor.layout is torch.strided else None
                    if held is not None and held.numel():
                        self._known[held.data_ptr()] = what
            for name, (module, attribute) in list(self._state.parameters.buffers.items()):
                buffer = getattr(module(), attribute, None)
                held = values_of(buffer) if buffer is not None and buffer.layout is torch.strided else None
                if held is not None and held.numel():
                    self._known[held.data_ptr()] = f"{name}:buffer"
        return self._known.get(key, "")

    def _copied(self, tensor: Tensor) -> list[str]:
        """The parameters whose gradients this tensor is a copy of, one or all in a row, in whatever order: up to a factor, as from the division by the number of ranks."""
        held = values_of(tensor)
        known = [
            (name, gradient)
            for name, parameter in self._state.parameters.live()
            if (gradient := parameter.grad) is not None and type(gradient) is Tensor and gradient.is_floating_point()
        ]
        if held is None or type(held) is not Tensor or not known:
            return []
        for name, gradient in known:
            if gradient.shape == held.shape and gradient.device == held.device and _proportional(gradient, held):
                return [name]
        if held.numel() == sum(gradient.numel() for _, gradient in known) and len(known) > 1:
            norm = sum(_norm(gradient) ** 2 for _, gradient in known) ** 0.5
            world = float(torch.distributed.get_world_size())
            own = _norm(held)
            if own > 0 and any(abs(own * factor - norm) <= 1e-5 * norm for factor in (1.0, world)):
                return [name for name, _ in known]
        return []

    def _group(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[str, int]:
        """Its name, and how many ranks it has."""
        group = kwargs.get("group")
        if group is None:
            for arg in args[1:] if args and isinstance(args[0], Tensor) else args:
                if _is_group(arg):
                    group = arg
                    break
            else:
                group = torch.distributed.group.WORLD
        mesh, dim = group if type(group) is tuple else (group, -1)
        key = id(mesh), dim
        known = self._groups.get(key)
        if known is None or known[2] is not mesh:
            found = _resolved(mesh, dim)
            known = self._groups[key] = (
                getattr(found, "group_name", "") or "default",
                found.size() if found else 1,
                mesh,
            )
        return known[:2]

    def facts(self) -> list[dict[str, Any]]:
        return [
            {
                "op": line.op,
                "reduce": line.reduce,
                "group": line.group,
                "group_size": line.group_size,
                "count": line.count,
                "left": line.left,
                "steps": line.steps,
                "seconds": round(line.nanos * 1e-9, 6),
                "longest": round(line.longest * 1e-9, 6),
                "gradients": list(line.gradients)[:64],
                "parameters": list(line.parameters)[:64],
                "copies": list(line.copies)[:64],
                "buffers": list(line.buffers)[:64],
                "buffers_divided": _divides_given(line.place) if line.buffers else False,
                "norms": {name: norms for name, norms in line.norms.items() if len(norms) == 2},
                "first_step": line.first_step,
                "inside": line.inside,
                "backward": line.backward,
                "before_step": line.before_step,
                "roots": line.roots,
                "given": line.given,
                "divided": _divides(line.place) if line.given else False,
                "scalar": line.scalar,
                "again": line.again,
                "touched": line.touched,
                "thrown_away": line.content,
                "one_tensor": line.one_tensor,
                "by_own": _by_own_count(line.place) if line.scalar and "reduce" in line.op else None,
                "undivided_mean": line.scalar and _is_undivided_mean(line.place),
                "line": line_of(line.place),
                "after": _after(line.place) if line.norms else None,
            }
            for line in self._lines.values()
        ]


def _by_own_count(place: CodeLine | None) -> Json | None:
    found = by_own_count(place[0].co_filename, place[1]) if place is not None else 0
    return line_at(place[0].co_filename, found) if found and place is not None else None


def _is_undivided_mean(place: CodeLine | None) -> bool:
    return place is not None and undivided_mean(place[0].co_filename, place[1])


def _divides_given(place: CodeLine | None) -> bool:
    return place is not None and divides_given(place[0].co_filename, place[1])


def _divides(place: CodeLine | None) -> bool:
    return place is not None and divides_around(place[0].co_filename, place[1])


def _content(tensor: Tensor) -> int:
    """A checksum; 0 where all elements are equal, which happens by chance, or where it would take long."""
    held = values_of(tensor)
    if (
        held is None
        or held.numel() * held.element_size() > LARGEST_GIVEN
        or not bool((held != held.flatten()[0]).any())
    ):
        return 0
    return memory_sum(held) or 0


def _content_of(given: Any) -> int:
    """A checksum of a tensor, or of a list of plain values; 0 where there is none. No code of the program runs for it."""
    if isinstance(given, Tensor):
        held = values_of(given)
        return memory_sum(held) or 0 if held is not None and held.numel() * held.element_size() <= LARGEST_GIVEN else 0
    try:
        return zlib.crc32(marshal.dumps(given)) or 1
    except ValueError:  # something else than Python's own values
        return 0


def _is_one_tensor(outputs: Any) -> bool:
    """Whether tensors that a collective fills lie at the same place."""
    held = [values_of(one) for one in outputs if isinstance(one, Tensor)] if isinstance(outputs, list | tuple) else []
    places = [one.data_ptr() for one in held if one is not None and one.numel()]
    return len(set(places)) < len(places)


def _looked_after(call: Call) -> None:
    call.line.left -= call.left
    call.left = False


def kind_of(
    op: str,
    tensor: Tensor | None,
    reduce: str,
    group: str,
    size: int,
    way: list[CodeLine],
    peer: int = -1,
    tag: int = 0,
) -> Kind:
    """With what the lines stand in that led to the call, in the program's own functions: `way`, innermost first."""
    places = [(code.co_filename, line) for code, line in way]
    path, line = places[0] if places else ("", 0)
    what = f"{dtype_name(tensor)}{list(shape_of(tensor))}" if tensor is not None else ""
    around = [{"file": file, **one} for file, at in reversed(places) for one in surroundings(file, at)]
    if op != GRADIENTS or not path:
        return Kind(op, what, reduce, group, size, path, line, around, peer, [], tag)
    left_out = skips(path, line) or caught(path, line)
    return Kind(op, what, reduce, group, size, path, line, around, peer, left_out, tag, unsynchronised(path, line))


def peer_of(op: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
    """The rank that is sent to or received from, in a call of two."""
    if op not in ("send", "isend", "recv", "irecv", "send_object_list", "recv_object_list"):
        return -1
    given = kwargs.get("dst" if "send" in op else "src", args[1] if len(args) > 1 else None)
    return given if isinstance(given, int) else -1


def _after(place: CodeLine | None) -> Json | None:
    path, line = (place[0].co_filename, place[1]) if place is not None else ("", 0)
    following = statement_after(path, line) if path else 0
    return line_at(path, following) if following else None


def _is_group(argument: Any) -> bool:
    """Functional collectives also take a group's name, a mesh, or a mesh and one of its dimensions."""
    kind = type(argument)
    if kind is str or kind is Tensor or kind is int:  # the usual ones: hasattr of a tensor takes long
        return False
    one = argument[0] if kind is tuple and len(argument) == 2 else argument
    return isinstance(one, torch.distributed.ProcessGroup) or hasattr(one, "mesh_dim_names")


def _resolved(group: Any, dim: int) -> Any:
    """The process group of a mesh, or of one of its dimensions."""
    if not hasattr(group, "mesh_dim_names"):
        return group
    return group.get_group(dim) if dim >= 0 else group.get_group() if group.ndim == 1 else None


def _reduction(args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    given = kwargs.get("op") or kwargs.get("reduceOp")
    if given is None:
        for given in args[1:]:
            if isinstance(given, _OPS):
                break
        else:
            return "SUM"
    return given.upper() if isinstance(given, str) else str(given).rpartition(".")[2]


_OPS: tuple[type, ...] = ()
if torch.distributed.is_available():
    _OPS = (torch.distributed.ReduceOp, type(torch.distributed.ReduceOp.SUM), str)


def _proportional(one: Tensor, other: Tensor) -> bool:
    """Up to the rounding of the coarser of both."""
    finest = max(torch.finfo(tensor.dtype).eps for tensor in (one, other))
    norms = _norm(one) * _norm(other)
    product = float(torch.dot(one.detach().double().flatten(), other.detach().double().flatten()))
    return norms > 0 and product >= (1 - max(1e-9, finest**2)) * norms


def _norm(tensor: Tensor) -> float:
    return float(torch.linalg.vector_norm(tensor.detach().double()))
