"""What a rank does by itself before and while it trains, beside collectives: states that it loads, files that it saves, how its variables number words and classes,
tensors that it declares to be the same on all ranks, parameters that are sent to all ranks before the first
step, and the statement that changes gradients after the backward pass. Ranks are compared by it afterwards."""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from types import FrameType, ModuleType
from typing import Any
from weakref import ReferenceType, ref

import torch
from torch import Tensor, nn

from tensonde.adapters.torch.checksum import memory_sum
from tensonde.adapters.torch.observers.origins import KNOWN
from tensonde.adapters.torch.observers.shares import shares
from tensonde.adapters.torch.tensors import values_of
from tensonde.model.site import SourceLine
from tensonde.model.trace import Trace
from tensonde.program.classes import attribute_made, changed_in
from tensonde.program.drawn import generator_of
from tensonde.program.frames import is_user_file, user_frames
from tensonde.program.habits import remainders_of_hashes
from tensonde.program.lines import CodeLine, Json, line_at, line_of
from tensonde.program.surroundings import surroundings
from tensonde.program.syntax import bindings, scope_at

MOST = 32
MOST_SENT = 8192
MOST_KEYS = 64
"""Keys of a numbering that are kept: the same ones on all ranks that have them."""
FEWEST_KEYS, LARGEST = 4, 200_000
MOST_BYTES = 1 << 22
MOST_PARTED = 1 << 28
"""Bytes of parameters that are summed up when they are sharded."""


class Beginnings:
    """One per process: much of it happens before there is a session."""

    def __init__(self) -> None:
        self._loads: dict[tuple[str, CodeLine], list[int]] = {}
        self._sent: dict[tuple[int, int, torch.dtype], CodeLine | None] = {}
        self._saves: dict[tuple[str, CodeLine], int] = {}
        self._declared: list[dict[str, Any]] = []
        self._taken: dict[tuple[int, ...], CodeLine] = {}
        self._numberings: dict[str, dict[str, Any]] | None = None
        self._shares: list[dict[str, Any]] = []
        self._drawn: dict[str, dict[str, Any]] = {}
        self._conditions: dict[SourceLine, dict[str, Any]] = {}
        self._changed: dict[str, dict[str, Any]] = {}
        self._seeds: dict[CodeLine, int] = {}
        self._parted: list[tuple[ReferenceType[Any], int, dict[str, Any]]] = []
        """What keeps a shard, the checksum of that, and what is known about the whole."""
        self._parted_bytes = 0

    def seeded(self, seed: Any, place: CodeLine | None) -> None:
        if place is not None and isinstance(seed, int) and place not in self._seeds and len(self._seeds) < MOST:
            self._seeds[place] = seed

    def whole(self, parameter: Any) -> int | None:
        """The checksum of a parameter that `fully_shard` is about to take a part of; None where it has none yet (meta), or is a part itself."""
        self._parted_bytes += parameter.numel() * parameter.element_size()
        plain = type(parameter.data) is Tensor and parameter.device.type != "meta"
        return memory_sum(parameter.data) if plain and self._parted_bytes <= MOST_PARTED else None

    def parted(self, parameter: Any, digest: int | None, holder: Any, place: CodeLine | None) -> None:
        """`holder` keeps the part."""
        shard = _shard(holder)
        mesh = getattr(getattr(holder, "mesh_info", None), "mesh", None)
        part = memory_sum(shard) if shard is not None and digest is not None else None
        if mesh is None or part is None:
            return
        known = {"shape": list(parameter.shape), "digest": digest, "ranks": mesh.size(), "line": line_of(place)}
        self._parted.append((ref(holder), part, known))

    def begins(self) -> None:
        """Shards that were filled anew since they were made say nothing about the ranks."""
        self._parted = [
            one for one in self._parted if (shard := _shard(one[0]())) is not None and memory_sum(shard) == one[1]
        ]

    def loaded(self, what: str, place: CodeLine | None, step: int) -> None:
        """`what` is `weights` or `optimizer`."""
        if place is not None and ((what, place) in self._loads or len(self._loads) < MOST):
            self._loads.setdefault((what, place), []).append(step)

    def sent(self, tensor: Any, place: CodeLine | None) -> None:
        """A tensor is sent to all ranks. It is known again by its memory: a parameter's `.data` is another object."""
        try:
            held = values_of(tensor) if isinstance(tensor, Tensor) else None
            if held is not None and held.numel() and len(self._sent) < MOST_SENT:
                self._sent[held.data_ptr(), held.numel(), held.dtype] = place
        except Exception:  # there is no session yet whose guard could say so
            self._sent.clear()

    def saved(self, target: Any, place: CodeLine | None) -> None:
        """A file is written by `torch.save`."""
        if place is not None and isinstance(target, str | os.PathLike) and len(self._saves) < MOST:
            key = os.path.abspath(os.fspath(target)), place
            self._saves[key] = self._saves.get(key, 0) + 1

    def declared(
        self, tensor: Any, placements: Any, place: CodeLine | None, step: int, *, backward: bool = False
    ) -> None:
        """A rank's tensor is declared to be one that all ranks have (`DTensor.from_local` with `Replicate()`). In a backward pass, `to_local()` does so
        with the gradient of what it gave."""
        given = placements if isinstance(placements, list | tuple) else ()
        if place is None or len(self._declared) >= MOST or not given or not all(one.is_replicate() for one in given):
            return
        held = values_of(tensor.detach())
        if held is None or held.device.type != "cpu" or not 1 < held.numel() * held.element_size() <= MOST_BYTES:
            return
        content = held.contiguous().view(torch.uint8).numpy().tobytes()
        self._declared.append(
            {
                "step": step,
                "shape": list(held.shape),
                "digest": hashlib.sha256(content).hexdigest()[:16],
                "line": line_of(place),
                "taken": line_of(self._taken.get(tuple(held.shape))) if backward else None,
            }
        )

    def taken(self, tensor: Any, place: CodeLine | None) -> None:
        """The rank's own tensor is taken out of one that all ranks have, and its gradient is said to be the same on all of them, too."""
        alike = all(one.is_replicate() for one in tensor.placements)
        if place is not None and alike and tensor.requires_grad and len(self._taken) < MOST:
            self._taken.setdefault(tuple(tensor.shape), place)

    def numberings(self, frame: FrameType | None) -> None:
        """Variables that number strings, such as `{word: index}`, in the frames of the user's program; once."""
        if self._numberings is not None:
            return
        self._numberings = {}
        self._shares = shares(frame)
        self.begins()
        for one in user_frames(frame):
            for name, value in list(one.f_locals.items()):
                inside = {f"{name}.{key}": held for key, held in _attributes(value).items()}
                for path, held in {name: value, **inside}.items():
                    if len(self._numberings) < MOST and path not in self._numberings and _is_numbering(held):
                        self._numberings[path] = _sample(held) | {"line": _bound(one, name)}

    def models(
        self,
        roots: Iterable[nn.Module],
        parameters: Iterable[tuple[str, Tensor]],
        buffers: Mapping[str, tuple[Callable[[], Any], str]],
    ) -> None:
        """In the first steps: the models may be gone when the program ends."""
        self._drawn |= {
            one["name"]: one for one in _drawn({id(parameter): name for name, parameter in parameters}, roots)
        }
        self._changed |= {one["name"]: one for one in _changed(buffers)}

    def traced(self, trace: Trace) -> None:
        """The first step: which of its lines only some ranks run."""
        for op in trace.ops:
            at = op.source
            if at is not None and at not in self._conditions and any(one.requires_grad for one in op.outputs):
                blocks = surroundings(at.file, at.line) if len(self._conditions) < MOST_SENT else []
                found = next((one for one in blocks if one["what"] == "if" and one["parting"]), None)
                self._conditions[at] = {"first": found["line"], "last": found["end"]} if found is not None else {}

    def facts(self, parameters: Iterable[tuple[str, Tensor]], optimizers: list[dict[str, Any]]) -> dict[str, Any]:
        live = list(parameters)
        sent = [name for name, parameter in live if self._sent and self._is_sent(parameter)]
        names = {id(parameter): name for name, parameter in live}
        return {
            "seeds": [{"seed": seed, "line": line_of(place)} for place, seed in self._seeds.items()],
            "parted": [
                {"name": names.get(id(getattr(holder(), "sharded_param", None)), ""), **known}
                for holder, _, known in self._parted[:256]
            ],
            "loads": [
                {"what": what, "count": len(steps), "steps": steps[:MOST], "line": line_of(place)}
                for (what, place), steps in self._loads.items()
            ],
            "drawn": list(self._drawn.values()),
            "changed": list(self._changed.values()),
            "conditions": [
                {"line": {"file": at.file, "line": at.line, "code": at.code}, **known}
                for at, known in self._conditions.items()
                if known
            ][:MOST_KEYS],
            "hashing": _hashing(),
            "shares": self._shares,
            "sent": sent[:256],
            "saves": [
                {"path": path, "count": count, "line": line_of(place)} for (path, place), count in self._saves.items()
            ],
            "declared": self._declared,
            "numberings": [{"name": name, **found} for name, found in (self._numberings or {}).items()],
            "rewrite": next((one["rewritten"] for one in optimizers if one.get("rewritten")), None),
        }

    def _is_sent(self, parameter: Tensor) -> bool:
        held = values_of(parameter)
        return held is not None and (held.data_ptr(), held.numel(), held.dtype) in self._sent


def _hashing() -> dict[str, Any]:
    lines = [line_at(path, line) for path in sorted(KNOWN.files()) for line in remainders_of_hashes(path)]
    return {"salt": hash("a fixed string") if lines else 0, "line": lines[0] if lines else None}


def _drawn(names: dict[int, str], roots: Iterable[nn.Module]) -> list[dict[str, Any]]:
    """Where classes of the program make parameters, and the generators that their values come from."""
    found: dict[str, dict[str, Any]] = {}
    for root in list(roots):
        for module in root.modules():
            for key, parameter in module._parameters.items():
                name = names.get(id(parameter))
                made = attribute_made(type(module), key) if name and name not in found and len(found) < 256 else None
                if made is not None and name is not None:
                    path, value, line = made
                    at = generator_of(path, value, line)
                    found[name] = {"line": line_at(path, line), "generator": line_at(path, at) if at else None}
    return [{"name": name, **known} for name, known in found.items()]


def _changed(buffers: Mapping[str, tuple[Callable[[], Any], str]]) -> list[dict[str, Any]]:
    """Where classes of the program change buffers while they train."""
    found: list[dict[str, Any]] = []
    for name, (module, key) in list(buffers.items()):
        line = changed_in(type(module()), key) if len(found) < 64 else None
        if line is not None:
            found.append({"name": name, "line": line})
    return found


def _shard(holder: Any) -> Tensor | None:
    kept = getattr(holder, "sharded_param", None)
    found = getattr(kept, "_local_tensor", None)
    return found if isinstance(found, Tensor) else None


def _attributes(value: Any) -> dict[str, Any]:
    """Of an object of the user's own classes, without running any code of theirs."""
    if isinstance(value, type | ModuleType) or not is_user_file(
        getattr(sys.modules.get(type(value).__module__), "__file__", None) or ""
    ):
        return {}
    try:
        found = object.__getattribute__(value, "__dict__")
    except (AttributeError, TypeError):
        return {}
    return dict(found) if type(found) is dict else {}


def _is_numbering(value: Any) -> bool:
    """Each key has a number of its own, from 0 to the last."""
    if type(value) is not dict or not FEWEST_KEYS <= len(value) <= LARGEST:
        return False
    return (
        all(type(key) is str and type(number) is int for key, number in value.items())
        and min(value.values()) == 0
        and max(value.values()) == len(value) - 1
        and len(set(value.values())) == len(value)
    )


def _sample(numbering: dict[str, int]) -> dict[str, Any]:
    """The same keys on all ranks, as far as they have them: those with the smallest checksums."""
    chosen = sorted(numbering, key=lambda key: hashlib.sha256(key.encode(errors="replace")).digest())[:MOST_KEYS]
    return {"size": len(numbering), "keys": {key[:64]: numbering[key] for key in chosen}}


def _bound(frame: FrameType, name: str) -> Json | None:
    path = frame.f_code.co_filename
    scope = scope_at(path, frame.f_lineno) if frame.f_code.co_name != "<module>" else scope_at(path, 0)
    found = [one.line for one in bindings(scope, name) if one.line <= frame.f_lineno] if scope is not None else []
    return line_at(path, found[-1]) if found else None


BEGINNINGS = Beginnings()
