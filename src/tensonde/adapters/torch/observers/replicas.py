"""Models that DistributedDataParallel keeps equal on all ranks: how they are wrapped, and whether their forward is the wrapper's."""

from __future__ import annotations

import sys
from time import perf_counter_ns
from typing import Any

from torch import nn

from tensonde.adapters.torch.observers.collectives import MOST_FRAMES, kind_of
from tensonde.adapters.torch.observers.origins import KNOWN
from tensonde.adapters.torch.run.state import RunState
from tensonde.program.frames import user_path, user_place, way_of
from tensonde.program.habits import turned_on
from tensonde.program.lines import Json, line_at, line_of
from tensonde.store.collectives import BUFFERS, GRADIENTS

MOST = 16


class Replicas:
    def __init__(self, state: RunState) -> None:
        self._state = state
        self._known: dict[int, dict[str, Any]] = {}
        self._passes = 0
        self._synchronisations = 0
        self._waiting = False
        self._index = self._began = 0
        self._problem: BaseException | None = None
        self._inner: dict[int, int] = {}
        """The wrapper of a module that was wrapped, by ids."""

    def root_called(self, root: nn.Module) -> None:
        """With gradients, in train mode."""
        if len(KNOWN.replicated) != len(self._known):
            for module in list(KNOWN.replicated):
                self._meet(module)
        key = id(root)
        if key in self._known:
            self._known[key]["called"] += 1
            self._known[key]["joined"] |= bool(getattr(getattr(root, "_join_config", None), "enable", False))
        elif key in self._inner:
            known = self._known[self._inner[key]]
            known["bypassed"] += 1
            if known["bypass_line"] is None:
                known["bypass_line"] = line_of(user_place(sys._getframe(1)))

    def put_into_eval_mode(self, module: nn.Module) -> None:
        key = self._inner.get(id(module), id(module))
        if key in self._known:
            self._known[key]["evaluated"] = True

    def pass_begins(self) -> None:
        """A backward pass, in which DistributedDataParallel averages gradients over the ranks."""
        self._waiting = any(module.require_backward_grad_sync for module in list(KNOWN.replicated))
        if self._waiting:
            self._passes += 1
            session = self._state.session
            session.whereabouts.moves += 1
            path = user_path(sys._getframe(1), MOST_FRAMES)
            key = GRADIENTS, way_of(path)
            kind = session.collectives.kind(key, lambda: kind_of(GRADIENTS, None, "AVG", "", 0, path))
            self._began = perf_counter_ns()
            self._problem = sys.exc_info()[1]
            self._index = session.collectives.begins(kind, self._passes, self._state.step)

    def pass_ends(self) -> None:
        """Or has failed: then this rank has never come out of it."""
        if self._waiting:
            self._waiting = False
            if sys.exc_info()[1] is not self._problem:
                return
            self.ended(self._index)

    def buffers_begin(self) -> int:
        """Rank 0 sends its buffers to the others."""
        self._synchronisations += 1
        self._began = perf_counter_ns()
        session, path = self._state.session, user_path(sys._getframe(2), MOST_FRAMES)
        session.whereabouts.moves += 1
        kind = session.collectives.kind((BUFFERS, way_of(path)), lambda: kind_of(BUFFERS, None, "", "", 0, path))
        return session.collectives.begins(kind, self._synchronisations, self._state.step)

    def ended(self, index: int) -> None:
        session = self._state.session
        session.whereabouts.moves += 1
        session.collectives.ended(index, (perf_counter_ns() - self._began) * 1e-9)

    def look(self) -> None:
        """At the wrappers that exist now; they may be gone when the program ends."""
        for module in list(KNOWN.replicated):
            if self._meet(module):
                self._known[id(module)] |= self._described(module)

    def _meet(self, module: Any) -> bool:
        if id(module) not in self._known and len(self._known) < MOST and "module" in module._modules:
            self._known[id(module)] = {
                "called": 0,
                "bypassed": 0,
                "bypass_line": None,
                "evaluated": False,
                "joined": False,
                "wrapped": _wrapped(module),
                "was_frozen": frozenset(id(p) for p in module.module.parameters() if not p.requires_grad),
            }
            self._inner[id(module.module)] = id(module)
        return id(module) in self._known

    def _described(self, module: Any) -> dict[str, Any]:
        entry = self._state.roster.entries.get(id(module)) or self._state.roster.entries.get(id(module.module))
        wrapped, frozen = (self._known[id(module)][name] for name in ("wrapped", "was_frozen"))
        names = {id(p): name for name, p in module.module.named_parameters() if p.requires_grad}
        known = self._state.parameters.names
        made = KNOWN.made.line(module)
        unfrozen = [known[key][0] for key in names if key in known and key in frozen]
        return {
            "name": entry.name if entry is not None else "",
            "ranks": module.process_group.size(),
            "sync_buffers": bool(getattr(module, "forward_sync_buffers", getattr(module, "broadcast_buffers", True))),
            "parameters": [known[key][0] for key in names if key in known],
            "later": [known[key][0] for key in names if key in known and key not in wrapped],
            "unfrozen": unfrozen,
            "unfreezing": _unfreezing(made["file"]) if unfrozen and made is not None else None,
            "buckets": _buckets(module),
            "hooked": bool(getattr(module, "_comm_hooks", None)),
            "line": made,
        }

    def facts(self) -> list[dict[str, Any]]:
        return [
            {k: v for k, v in known.items() if k not in ("wrapped", "was_frozen")}
            for known in self._known.values()
            if "ranks" in known
        ]


def _unfreezing(path: str) -> Json | None:
    lines = sorted(turned_on(path))
    return line_at(path, lines[0]) if lines else None


def _buckets(module: Any) -> list[dict[str, Any]]:
    """In which parts the gradients are reduced, first to last, as DistributedDataParallel says itself; [] before its first backward pass."""
    ask = getattr(module, "_get_ddp_logging_data", None)
    said = ask() if ask is not None else {}
    sizes, members = (
        str(said.get(name) or "") for name in ("rebuilt_bucket_sizes", "rebuilt_per_bucket_param_indices")
    )
    names = [name for name, parameter in module.module.named_parameters() if parameter.requires_grad]
    if not sizes or not members:
        return []
    return [
        {"bytes": int(size), "parameters": [names[k] for k in map(int, part.split()) if k < len(names)][:64]}
        for size, part in zip(sizes.split(","), members.split(","), strict=False)
    ][:256]


def _wrapped(module: Any) -> frozenset[int]:
    """The parameters that the wrapper knows: those that were there when it was made."""
    known = getattr(module, "_module_parameters", None) or module.module.parameters()
    return frozenset(id(parameter) for parameter in known)
