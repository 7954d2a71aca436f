"""Puts the observers into torch, beside what `install` puts there. Each wrapper passes on everything and only
takes notes.

Notes never raise (the session's guard takes what they throw), and none is taken while torch.compile traces: there the wrappers are transparent.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterable, Mapping
from threading import get_ident
from types import FrameType
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
import torch.nn.utils.clip_grad
import torch.optim.swa_utils
from torch import nn
from torch.compiler import is_dynamo_compiling
from torch.optim import lr_scheduler
from torch.utils.data import DataLoader, WeightedRandomSampler

from tensonde.adapters.torch import seams
from tensonde.adapters.torch.compiled import latehooks
from tensonde.adapters.torch.observers import (
    clones,
    copies,
    defaults,
    evaluated_weights,
    filters,
    loads,
    refills,
    resumes,
)
from tensonde.adapters.torch.observers.beginnings import BEGINNINGS
from tensonde.adapters.torch.observers.emptied import EMPTIED
from tensonde.adapters.torch.observers.hooks import HOOKS, KINDS
from tensonde.adapters.torch.observers.loaders import LOADERS
from tensonde.adapters.torch.observers.origins import KNOWN
from tensonde.adapters.torch.observers.schedules import given, stepped
from tensonde.adapters.torch.seams.function_mode import traced_by_compiler, unseen
from tensonde.adapters.torch.seams.lifted import PATCHES
from tensonde.program.frames import birth_place, user_place
from tensonde.program.imported import when_imported
from tensonde.program.lines import CodeLine
from tensonde.session.guard import Guard

if TYPE_CHECKING:
    from tensonde.adapters.torch.run.watcher import Watcher

Current = Callable[[], "Watcher | None"]


def observe_facts(current: Current, watching: Current) -> None:
    """Once in a process, right after torch is imported. `current` gives the adapter while a training is watched, `watching`
    only while it does not rest."""
    global _session
    _session = current
    _modules(current)
    _hooks(current)
    _initialisers()
    _schedulers()
    _loaders()
    _clearing(watching)
    _clipping(watching)
    _scaling(current)
    _targets(watching)
    _after(torch.optim.swa_utils, "update_bn", _renewed, "know where running statistics come from")
    _after(torch, "save", _saved, "know which files a rank writes")
    when_imported("torch.distributed.checkpoint.default_planner", lambda module: _checkpoints(module, current))
    if hasattr(torch.random, "_manual_seed_impl"):
        _after(torch.random, "_manual_seed_impl", _seeded, "know whether ranks are seeded alike")


def _renewed(_: Any, *args: Any, **kwargs: Any) -> None:
    model = args[1] if len(args) > 1 else kwargs.get("model")
    if isinstance(model, nn.Module):
        evaluated_weights.renewed(model, user_place(sys._getframe(2)))


def _saved(_: Any, *args: Any, **kwargs: Any) -> None:
    BEGINNINGS.saved(args[1] if len(args) > 1 else kwargs.get("f"), user_place(sys._getframe(2)))


def _checkpoints(module: Any, current: Current) -> None:
    def planned(_: Any, self: Any, state_dict: Any, metadata: Any = None, *args: Any, **kwargs: Any) -> None:
        place = user_place(sys._getframe(2))
        loads.read_into(state_dict, getattr(metadata, "state_dict_metadata", None) or (), place, _step(current))

    _after(module.DefaultLoadPlanner, "set_up_planner", planned, "know what a checkpoint is read into")


def _seeded(_: Any, seed: Any) -> None:
    BEGINNINGS.seeded(seed, user_place(sys._getframe(2)))


def made(thing: Any) -> None:
    """An optimizer has just been made, further up the stack."""
    _quietly("a new optimizer", lambda: _note_optimizer(thing, sys._getframe(3)))


def _note_optimizer(optimizer: Any, frame: Any) -> None:
    KNOWN.made.note(optimizer, birth_place(frame, optimizer))
    KNOWN.optimizers.add(optimizer)
    KNOWN.count(optimizer)
    defaults.noted(optimizer)


def _quietly(what: str, note: Callable[[], Any]) -> None:
    try:
        with unseen():
            note()
    except Exception as problem:
        _contain(what, problem)


_session: Current = lambda: None  # noqa: E731  replaced when the observers are put in
_BEFORE = Guard()
"""Of what is noted before there is a session."""


def _contain(what: str, problem: Exception) -> None:
    watcher = _session()
    (watcher.session.guard if watcher is not None else _BEFORE).contain(f"noting {what}", problem)


def _after(owner: Any, name: str, note: Callable[..., None], why: str, *, always: bool = True) -> None:
    """`owner.name` also calls `note(result, *args, **kwargs)`, afterwards; `always`: even while Tensonde rests."""
    original = getattr(owner, name)

    @functools.wraps(original)
    def observed(*args: Any, **kwargs: Any) -> Any:
        if PATCHES.out and not always:
            return original(*args, **kwargs)
        result = original(*args, **kwargs)
        if not is_dynamo_compiling() and not traced_by_compiler():
            try:
                with unseen():
                    note(result, *args, **kwargs)
            except Exception as problem:
                _contain(f"a call of {name}", problem)
        return result

    seams.put(owner, name, observed, why)


def _modules(current: Current) -> None:
    original = nn.Module.__init__

    @functools.wraps(original)
    def init(self: nn.Module, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        if is_dynamo_compiling():
            return
        try:
            place = user_place(sys._getframe(1), making=self)
            KNOWN.made.note(self, place)
            if isinstance(self, nn.parallel.DistributedDataParallel):
                KNOWN.replicated.add(self)
            watcher = current()
            if watcher is not None and watcher.state.stack and watcher.state.thread == get_ident():
                watcher.facts.inside.module_made(self, place)
        except Exception as problem:
            _contain("a new module", problem)

    seams.put(nn.Module, "__init__", init, "know the line that makes a module")

    def loaded(result: Any, self: nn.Module, *args: Any, **kwargs: Any) -> None:
        KNOWN.loaded.update(id(module) for module in self.modules())
        state = args[0] if args else kwargs.get("state_dict")
        if not isinstance(state, Mapping):
            return
        place = user_place(sys._getframe(2))
        loads.noted(self, state, result, place)
        copies.loaded(self, state, place)
        if args[2] if len(args) > 2 else kwargs.get("assign"):
            return
        filters.noted(self, state, sys._getframe(2), place)
        BEGINNINGS.loaded("weights", place, _step(current))
        _did("load", sys._getframe(2), self.parameters())
        if loads.was_read_into(self) or place is None or not _own(self, state):
            return
        if place in KNOWN.loaded_itself or len(KNOWN.loaded_itself) < 16:
            count = KNOWN.loaded_itself.get(place, ("", 0))[1]
            KNOWN.loaded_itself[place] = (type(self).__name__, count + 1)

    def emptied(_: Any, self: nn.Module, *args: Any, **kwargs: Any) -> None:
        EMPTIED.noted(self, user_place(sys._getframe(2)))

    def cast(_: Any, self: nn.Module, *args: Any, **kwargs: Any) -> None:
        if (not args and not kwargs) or any(isinstance(value, torch.dtype) for value in (*args, *kwargs.values())):
            place = user_place(sys._getframe(2))
            for module in self.modules():
                KNOWN.cast.note(module, place)

    def evaluated(_: Any, self: nn.Module) -> None:
        KNOWN.evaluated.note(self, user_place(sys._getframe(2)))
        watcher = current()
        if watcher is None or watcher.state.thread != get_ident():
            return
        watcher.facts.replicas.put_into_eval_mode(self)
        if PATCHES.out and watcher.facts.is_looked_at(self):
            watcher.rest.evaluation_begins()

    def frozen(_: Any, self: nn.Module, *args: Any, **kwargs: Any) -> None:
        _did("freeze", sys._getframe(2), self.parameters())

    _after(nn.Module, "requires_grad_", frozen, "compare what the ranks train")
    _after(nn.Module, "load_state_dict", loaded, "know which weights were loaded, and which were not")
    _after(nn.Module, "eval", evaluated, "know where evaluations begin")
    _after(nn.modules.transformer, "_get_clones", clones.noted, "know which layers begin as copies")
    for name in ("to", "half", "bfloat16", "float", "double"):
        _after(nn.Module, name, cast, "know where a model changes its dtype")
    _after(nn.Module, "to_empty", emptied, "know what has memory and no values")


def _hooks(current: Current) -> None:
    for kind in KINDS:

        def registered(handle: Any, self: nn.Module, *args: Any, _kind: str = kind, **kwargs: Any) -> None:
            watcher = current()
            if watcher is not None and watcher.state.thread == get_ident():
                place = HOOKS.registered(_kind, self, handle, watcher.state.step, sys._getframe(2))
                if watcher.compiled is not None:
                    latehooks.noted(watcher.compiled, self, args[0] if args else kwargs.get("hook"), _kind, place)

        _after(nn.Module, kind, registered, "count hooks, which may pile up")


def _did(what: str, frame: FrameType | None, parameters: Iterable[torch.Tensor] | None = None) -> None:
    """Ranks of one training are compared by what they do. Of `parameters`, one that is trained is enough."""
    watcher = _session()
    if watcher is None or watcher.session.world < 2 or watcher.state.thread != get_ident():
        return
    names = watcher.state.parameters.names
    if parameters is None or any(id(one) in names for one in parameters):
        watcher.facts.course.did(what, user_place(frame))


def _own(module: nn.Module, state: Mapping[str, Any]) -> bool:
    """All parameters lie where the state's tensors lie: loading it changes nothing."""
    own = dict(module.named_parameters())
    return bool(own) and all(
        isinstance(given := state.get(name), torch.Tensor)
        and given.layout is torch.strided
        and given.data_ptr() == parameter.data_ptr() != 0
        for name, parameter in own.items()
    )


def _initialisers() -> None:
    for name in dir(nn.init):
        if name.endswith("_") and not name.startswith("_") and callable(getattr(nn.init, name)):

            def filled(_: Any, *args: Any, _name: str = name, **kwargs: Any) -> None:
                tensor = args[0] if args else kwargs.get("tensor")
                if isinstance(tensor, torch.Tensor):
                    place = user_place(sys._getframe(2))
                    KNOWN.filled.note(tensor, place)
                    refills.noted(tensor, _called_at(sys._getframe(2), place))
                    KNOWN.recipes[id(tensor)] = _recipe(_name, args[1:], kwargs)

            _after(nn.init, name, filled, "know how weights begin")


def _called_at(frame: FrameType | None, place: CodeLine | None) -> CodeLine | None:
    """Of `net.apply(init)`, the line that applies: the initialiser itself is called from there again and again."""
    while frame is not None:
        if frame.f_code is nn.Module.apply.__code__ and frame.f_back is not None:
            return _called_at(frame.f_back, user_place(frame.f_back))
        frame = frame.f_back
    return place


def _recipe(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    """`normal_(std=0.02)`, as far as the arguments are plain."""
    given = [_short(value) for value in args] + [f"{k}={_short(v)}" for k, v in kwargs.items() if k != "tensor"]
    return f"{name}({', '.join(given)})"


def _short(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value) if isinstance(value, int | str) else "..."


def _schedulers() -> None:
    def created(_: Any, self: Any, *args: Any, **kwargs: Any) -> None:
        frame = sys._getframe(2)
        KNOWN.made.note(self, user_place(frame, making=self))
        if self not in KNOWN.schedulers:
            KNOWN.schedulers.add(self)
            KNOWN.count(self)
            for base in type(self).__mro__:  # a step of its own (warm restarts, one cycle, the user's) counts as well
                if "step" in vars(base) and vars(base)["step"] not in _STEPS:
                    _wrap_step(base)
        given(self, frame)

    for kind in (
        lr_scheduler.LRScheduler,
        lr_scheduler.ReduceLROnPlateau,
        lr_scheduler.SequentialLR,
        lr_scheduler.ChainedScheduler,
    ):
        if "__init__" in vars(kind):
            _after(kind, "__init__", created, "know which schedulers there are")
        if "step" in vars(kind):
            _wrap_step(kind)


def _wrap_step(kind: Any) -> None:
    original = kind.step

    @functools.wraps(original)
    def step(self: Any, *args: Any, **kwargs: Any) -> Any:
        caller = sys._getframe(1)
        inner = caller.f_code.co_filename == lr_scheduler.__file__ or caller.f_locals.get("self") is self
        if not inner:
            values = args or tuple(kwargs.values())
            _quietly("a scheduler's step", lambda: stepped(self, lambda: user_place(caller), values))
            _did("schedule", caller)
        return original(self, *args, **kwargs)

    seams.put(kind, "step", step, "count the steps of schedules")
    _STEPS.add(step)


_INIT = torch.optim.Optimizer.__init__.__code__
_STEPS: set[Callable[..., Any]] = set()
"""Our own, so that none is wrapped twice."""


def _loaders() -> None:
    def created(_: Any, self: Any, *args: Any, **kwargs: Any) -> None:
        KNOWN.made.note(self, birth_place(sys._getframe(2), self))

    for kind in (DataLoader, WeightedRandomSampler):
        _after(kind, "__init__", created, "know the line that makes it")


def loader_iterated(loader: Any, frame: FrameType, watcher: Watcher | None) -> None:
    """A pass begins, by the code in `frame`."""
    if PATCHES.out and watcher is not None and watcher.state.thread == get_ident():
        _quietly("the steps of a rest", watcher.rest.settle)  # they belong to the loader that was iterated before
    _quietly("a loader's pass", lambda: LOADERS.iterated(loader, lambda: user_place(frame)))


def _step(current: Current) -> int:
    watcher = current()
    return watcher.state.step if watcher is not None else 0


def gradients_cleared(watcher: Watcher, frame: FrameType) -> None:
    """By `zero_grad`, which the code in `frame` has called."""
    if watcher.facts.sequence.steps < 50:
        _quietly("zero_grad", lambda: setattr(watcher.facts.sequence, "clear_place", user_place(frame)))


def loss_scaled(watcher: Watcher, scaler: Any) -> None:
    _quietly("a scaled loss", lambda: watcher.facts.clipping.scaled_loss(scaler))


def _clearing(current: Current) -> None:
    def cleared(_: Any, *args: Any, **kwargs: Any) -> None:
        watcher = current()
        if watcher is not None:
            gradients_cleared(watcher, sys._getframe(2))

    def resumed(_: Any, self: Any, *args: Any, **kwargs: Any) -> None:
        place = user_place(sys._getframe(2))
        KNOWN.restored.note(self, place)
        resumes.noted(self, place)
        BEGINNINGS.loaded("optimizer", place, _step(current))

    def grouped(_: Any, self: Any, *args: Any, **kwargs: Any) -> None:
        frame = sys._getframe(2)
        if frame.f_code is not _INIT:
            _did("group", frame)

    _after(torch.optim.Optimizer, "add_param_group", grouped, "compare what the ranks train")
    _after(torch.optim.Optimizer, "load_state_dict", resumed, "know where a training resumes")
    _after(nn.Module, "zero_grad", cleared, "know where gradients are cleared", always=False)


def _clipping(current: Current) -> None:
    for name, limit in (("clip_grad_norm_", "max_norm"), ("clip_grad_value_", "clip_value")):

        def clipped(result: Any, *args: Any, _name: str = name, _limit: str = limit, **kwargs: Any) -> None:
            watcher = current()
            if watcher is not None and watcher.state.thread == get_ident():
                limit = args[1] if len(args) > 1 else kwargs.get(_limit)
                busy = watcher.facts.sequence.since_step > 0 or not watcher.facts.sequence.attentive
                place = user_place(sys._getframe(2))
                watcher.facts.clipping.clipped(_name, limit, result, place, backward_since_step=busy)

        why = "know how gradients are clipped"
        _after(torch.nn.utils.clip_grad, name, clipped, why, always=False)
        seams.put(torch.nn.utils, name, getattr(torch.nn.utils.clip_grad, name), why)


def _scaling(current: Current) -> None:
    kind = torch.amp.GradScaler

    def created(_: Any, self: Any, *args: Any, **kwargs: Any) -> None:
        KNOWN.scalers.add(self)

    def updated(_: Any, self: Any, *args: Any, **kwargs: Any) -> None:
        watcher = current()
        if watcher is not None:
            watcher.facts.clipping.updated()

    _after(kind, "__init__", created, "know which scalers there are")
    _after(kind, "update", updated, "know whether the scale is ever updated")


def _targets(current: Current) -> None:
    def targets(_: Any, *args: Any, **kwargs: Any) -> None:
        watcher = current()
        if watcher is not None and torch.is_grad_enabled() and watcher.state.thread == get_ident():
            given = args[0] if args else kwargs.get("input")
            if isinstance(given, torch.Tensor) and given.requires_grad:
                frame = sys._getframe(2)
                watcher.facts.batches.targets(args[1] if len(args) > 1 else kwargs.get("target"), frame)

    def values(_: Any, *args: Any, **kwargs: Any) -> None:
        watcher = current()
        if watcher is not None and torch.is_grad_enabled() and watcher.state.thread == get_ident():
            watcher.facts.batches.value_targets(args[1] if len(args) > 1 else kwargs.get("target"))

    for name in ("cross_entropy", "nll_loss"):
        _after(F, name, targets, "look at targets", always=False)
    for name in ("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "binary_cross_entropy_with_logits"):
        _after(F, name, values, "look at targets", always=False)
