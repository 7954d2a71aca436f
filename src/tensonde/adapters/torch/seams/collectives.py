"""Collectives of `torch.distributed`, as the program and the libraries in it call them: its own functions, the functional ones that DTensor
is made of, and the waits for those that run beside the program.

What C++ does on its own, such as the gradient buckets of DistributedDataParallel, passes none of these functions.
"""

from __future__ import annotations

import functools
import inspect
import os
import sys
from collections.abc import Callable
from pathlib import Path
from threading import get_ident
from typing import TYPE_CHECKING, Any

import torch
from torch.compiler import is_dynamo_compiling

from tensonde.adapters.torch import seams
from tensonde.adapters.torch.observers.beginnings import BEGINNINGS
from tensonde.adapters.torch.observers.collectives import LOOKED_AT, peer_of
from tensonde.adapters.torch.observers.stages import STAGES
from tensonde.adapters.torch.seams.function_mode import Aside, noticing, unseen
from tensonde.adapters.torch.tensors import tensors_in
from tensonde.model.moment import Phase
from tensonde.program.frames import user_place
from tensonde.program.imported import when_imported
from tensonde.program.lines import CodeLine
from tensonde.session.guard import Guard
from tensonde.session.options import Options
from tensonde.store import meetings
from tensonde.store.standing import PAIRS

if TYPE_CHECKING:
    from tensonde.adapters.torch.run.watcher import Watcher

NAMES = (
    "all_reduce", "broadcast", "reduce", "all_gather", "all_gather_single", "all_gather_into_tensor", "gather", "scatter", "reduce_scatter",
    "reduce_scatter_single", "reduce_scatter_tensor", "all_to_all", "all_to_all_single", "send", "recv", "isend", "irecv", "barrier",
    "monitored_barrier", "all_gather_object", "gather_object", "broadcast_object_list", "scatter_object_list",
    "send_object_list", "recv_object_list", "batch_isend_irecv", "all_reduce_coalesced", "all_gather_coalesced",
)  # fmt: skip
FUNCTIONAL = (
    "all_reduce", "broadcast", "all_gather_single", "all_gather_tensor", "reduce_scatter_single", "reduce_scatter_tensor", "all_to_all_single",
    "permute_tensor", "all_gather_single_autograd", "all_gather_tensor_autograd", "reduce_scatter_single_autograd",
    "reduce_scatter_tensor_autograd", "all_to_all_single_autograd", "all_reduce_coalesced", "all_gather_single_coalesced",
    "all_gather_into_tensor_coalesced", "reduce_scatter_single_coalesced", "reduce_scatter_tensor_coalesced",
)  # fmt: skip
FUNCTIONAL_MODULE = "torch.distributed._functional_collectives"
CARED_FOR = ("get_future", "is_completed", "synchronize", "result")
"""What a program may ask of a collective that runs beside it, other than to wait for it."""
_BEFORE = Guard()
"""Of what is noted before there is a session."""
_WHY = "know which collective a rank is in"
_functional_seen = False
_declarations_seen = False


def observe_collectives(current: Callable[[], Watcher | None], begun: Callable[[], Watcher | None]) -> None:
    """Once in a process. `begun` begins the session where a rank's first deed is a collective: it may wait in it for ever."""
    if not torch.distributed.is_available():
        return
    module = torch.distributed.distributed_c10d
    for name in NAMES:
        original = getattr(module, name, None)
        if original is None:
            continue
        wrapper = _observing(name, original, begun, gives_tensors=False)
        for owner in (module, torch.distributed):
            if getattr(owner, name, None) is original:
                seams.put(owner, name, wrapper, _WHY)
    meeting = _meeting(module.init_process_group)
    for owner in (module, torch.distributed):
        seams.put(owner, "init_process_group", meeting, "know where ranks wait to meet")
    when_imported("torch.distributed.fsdp._fully_shard._fsdp_param", _observe_shards)
    work = torch.distributed.Work
    seams.put(work, "wait", _waiting(work.wait, current, id), _WHY)
    for name in CARED_FOR:
        seams.put(work, name, _caring(getattr(work, name), current), "know whether a program cares for its collectives")


def _meeting(original: Callable[..., Any]) -> Callable[..., Any]:
    signature = inspect.signature(original)

    @functools.wraps(original)
    def init_process_group(*args: Any, **kwargs: Any) -> Any:
        run = None
        try:
            options = Options.from_environment()
            if options is not None and options.run:
                run = Path(options.run)
                meetings.comes(run, _met_at(signature.bind(*args, **kwargs).arguments, user_place(sys._getframe(1))))
        except Exception as problem:
            _BEFORE.contain("noting where ranks meet", problem)
        result = original(*args, **kwargs)
        if run is not None:
            meetings.has_met(run)
        return result

    return init_process_group


def _met_at(given: dict[str, Any], place: CodeLine | None) -> meetings.Meeting:
    """`-1` is what the function itself takes for `not given`."""
    url, environment = given.get("init_method") or "env://", os.environ
    if given.get("store") is not None:
        url = "a store"
    elif url.startswith("env://"):
        url = f"{environment.get('MASTER_ADDR', '?')}:{environment.get('MASTER_PORT', '?')}"
    rank, size = int(given.get("rank", -1)), int(given.get("world_size", -1))
    return meetings.Meeting(
        rank if rank >= 0 else int(environment.get("RANK", "0")),
        size if size >= 0 else int(environment.get("WORLD_SIZE", "1")),
        url,
        place[0].co_filename if place is not None else "",
        place[1] if place is not None else 0,
    )


def observe_functional(current: Callable[[], Watcher | None]) -> None:
    """When a training begins, or later, when the program imports them."""
    when_imported(FUNCTIONAL_MODULE, lambda module: _observe_functional(module, current))
    when_imported("torch.distributed.tensor", lambda module: _observe_declarations(module, current))


def _observe_functional(module: Any, current: Callable[[], Watcher | None]) -> None:
    global _functional_seen
    if _functional_seen:
        return
    _functional_seen = True
    for name in FUNCTIONAL:
        original = getattr(module, name, None)
        if original is not None:
            seams.put(module, name, _observing(name, original, current), _WHY)
    seams.put(module, "wait_tensor", _waiting(module.wait_tensor, current, _memory), _WHY)


def _observe_shards(module: Any) -> None:
    """Parameters of which `fully_shard` takes this rank's part."""
    kind = getattr(module, "FSDPParam", None)
    original = getattr(kind, "_init_sharded_param", None)
    if original is None:
        return

    @functools.wraps(original)
    def init_sharded_param(self: Any, param: Any, *args: Any, **kwargs: Any) -> Any:
        digest = None
        try:
            with unseen():
                digest = BEGINNINGS.whole(param)
        except Exception as problem:
            _BEFORE.contain("noting a parameter", problem)
        result = original(self, param, *args, **kwargs)
        try:
            with unseen():
                BEGINNINGS.parted(param, digest, self, user_place(sys._getframe(1)))
        except Exception as problem:
            _BEFORE.contain("noting a sharded parameter", problem)
        return result

    seams.put(kind, "_init_sharded_param", init_sharded_param, "compare what ranks shard")


def _observe_declarations(module: Any, current: Callable[[], Watcher | None]) -> None:
    """Tensors that a program, or a plan of tensor parallelism, declares to be the same on all ranks."""
    global _declarations_seen
    kind = getattr(module, "DTensor", None)
    if kind is None or _declarations_seen:
        return
    _declarations_seen = True
    original = kind.from_local

    @functools.wraps(original)
    def from_local(*args: Any, **kwargs: Any) -> Any:
        watcher = None if is_dynamo_compiling() else current()
        if watcher is not None and watcher.state.step < LOOKED_AT and watcher.state.thread == get_ident():
            try:
                with unseen():
                    tensor = args[0] if args else kwargs.get("local_tensor")
                    placements = args[2] if len(args) > 2 else kwargs.get("placements")
                    backward = watcher.state.phase is Phase.BACKWARD
                    place = user_place(sys._getframe(1))
                    BEGINNINGS.declared(tensor, placements, place, watcher.state.step, backward=backward)
            except Exception as problem:
                watcher.session.guard.contain("noting a distributed tensor", problem)
        return original(*args, **kwargs)

    taking = kind.to_local

    @functools.wraps(taking)
    def to_local(self: Any, *args: Any, **kwargs: Any) -> Any:
        watcher = None if args or kwargs or is_dynamo_compiling() else current()
        if watcher is not None and watcher.state.step < LOOKED_AT and watcher.state.thread == get_ident():
            try:
                BEGINNINGS.taken(self, user_place(sys._getframe(1)))
            except Exception as problem:
                watcher.session.guard.contain("noting a distributed tensor", problem)
        return taking(self, *args, **kwargs)

    why = "compare what is declared to be the same on all ranks"
    seams.put(kind, "from_local", staticmethod(from_local), why)
    seams.put(kind, "to_local", to_local, why)


def _memory(tensor: Any) -> int:
    """A functional collective is known by the memory of what it gives."""
    with torch._C.DisableTorchFunction():
        return int(tensor.untyped_storage().data_ptr()) if type(tensor) is torch.Tensor else 0


def _observing(
    name: str, original: Callable[..., Any], current: Callable[[], Watcher | None], *, gives_tensors: bool = True
) -> Callable[..., Any]:
    """One that `gives_tensors` is an op like any other, for the tape."""

    @functools.wraps(original)
    def observed(*args: Any, **kwargs: Any) -> Any:
        watcher = None if is_dynamo_compiling() else current()
        if watcher is None or watcher.state.thread != get_ident() or watcher.facts.collectives.inside:
            return original(*args, **kwargs)
        if name == "broadcast" and args and not watcher.facts.modes:  # no model was called yet
            BEGINNINGS.sent(args[0], user_place(sys._getframe(1)))
        collectives = watcher.facts.collectives
        collectives.inside = True
        call = None
        try:
            try:
                if noticing():
                    with unseen():
                        call = collectives.begins(name, args, kwargs, sys._getframe(1))
                else:
                    call = collectives.begins(name, args, kwargs, sys._getframe(1))
            except Exception as problem:
                watcher.session.guard.contain("noting a collective", problem)
            if gives_tensors or watcher.tracing.tracer is not None:
                result = original(*args, **kwargs)
            else:
                with Aside():
                    result = original(*args, **kwargs)
        finally:
            collectives.inside = False
        if watcher.tracing.tracer is not None:
            watcher.tracing.tracer.tensors.overwritten(tensors_in((args, kwargs)))
        if call is not None:
            try:
                if result is None:
                    collectives.ended(call)
                else:
                    collectives.launched(call, _under_way(result))
            except Exception as problem:
                watcher.session.guard.contain("noting a collective", problem)
        return result

    return _counting(name, observed) if name in PAIRS else observed


def _counting(name: str, observed: Callable[..., Any]) -> Callable[..., Any]:
    """Counts calls of the program. Those that one of these functions makes itself, as `recv` calls `irecv`, are not counted again."""

    @functools.wraps(observed)
    def counted(*args: Any, **kwargs: Any) -> Any:
        if STAGES.over or STAGES.inside or is_dynamo_compiling():
            return observed(*args, **kwargs)
        STAGES.inside = True
        try:
            _passes(name, args, kwargs)
            return observed(*args, **kwargs)
        finally:
            STAGES.inside = False

    return counted


def _passes(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """A tensor goes from this rank to another, or comes from it."""
    try:
        with unseen():
            if name not in ("send", "recv", "isend", "irecv"):
                STAGES.over = (
                    True  # what they are made of is not counted here, and the numbers would be others on the other side
                )
                return
            tensor = args[0] if args else kwargs.get("tensor")
            (STAGES.sends if "send" in name else STAGES.receives)(tensor, peer_of(name, args, kwargs))
    except Exception as problem:
        _BEFORE.contain("noting a tensor between stages", problem)


def _under_way(result: Any) -> list[tuple[int, Any]]:
    """What the program may wait for, with the key that `_waiting` finds it by."""
    found: list[tuple[int, Any]] = []
    for one in result if isinstance(result, list | tuple) else (result,):
        if isinstance(one, torch.distributed.Work):
            found.append((id(one), one))
        elif getattr(one, "completed", True) is False and (key := _memory(one.elem)):  # AsyncCollectiveTensor
            found.append((key, one))
    return found


def _waiting(
    original: Callable[..., Any], current: Callable[[], Watcher | None], key: Callable[[Any], int]
) -> Callable[..., Any]:
    @functools.wraps(original)
    def wait(awaited: Any, *args: Any, **kwargs: Any) -> Any:
        watcher = None if is_dynamo_compiling() else current()
        if watcher is None or watcher.state.thread != get_ident() or not watcher.facts.collectives.under_way:
            return original(awaited, *args, **kwargs)
        collectives, call = watcher.facts.collectives, None
        try:
            call = None if collectives.inside else collectives.waits(key(awaited), awaited)
        except Exception as problem:
            watcher.session.guard.contain("noting a collective", problem)
        result = original(awaited, *args, **kwargs)
        if call is not None:
            try:
                collectives.waited(call)
            except Exception as problem:
                watcher.session.guard.contain("noting a collective", problem)
        return result

    return wait


def _caring(original: Callable[..., Any], current: Callable[[], Watcher | None]) -> Callable[..., Any]:
    @functools.wraps(original)
    def asked(work: Any, *args: Any, **kwargs: Any) -> Any:
        watcher = None if is_dynamo_compiling() else current()
        if watcher is not None and watcher.facts.collectives.under_way:
            try:
                watcher.facts.collectives.cared_for(id(work))
            except Exception as problem:
                watcher.session.guard.contain("noting a collective", problem)
        return original(work, *args, **kwargs)

    return asked
