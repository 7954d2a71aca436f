"""Parameters: who holds them, whether gradients reach them, whether a step changes them, whether units are alike."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.utils.weak import WeakIdKeyDictionary

from tensonde.adapters.torch.observers.origins import KNOWN
from tensonde.adapters.torch.observers.reading import READING, brought
from tensonde.adapters.torch.seams.vanishing import IdRef, Ref
from tensonde.adapters.torch.tensors import dtype_name, is_dense, values_of
from tensonde.program import queries
from tensonde.program.lines import line_at

if TYPE_CHECKING:
    from tensonde.adapters.torch.run.state import RunState

SAMPLE = 2048
MOST = 4000


def looked_at(step: int) -> bool:
    """A handful of the first steps, then ever more rarely."""
    return step in (0, 1, 2, 5) or (step >= 10 and step % 10 == 0 and step <= 100) or (step > 100 and step % 100 == 0)


class Alike:
    """A weight whose units all began with the same values."""

    __slots__ = ("first", "moved", "ref", "spread", "step", "zero")

    def __init__(self, parameter: Tensor) -> None:
        self.ref = Ref(parameter)
        self.first = parameter.detach()[0].clone()
        self.zero = not bool(self.first.any())
        self.spread = 0.0
        self.moved = 0.0
        self.step = 0

    def look(self, step: int) -> None:
        parameter = self.ref()
        if parameter is not None:
            now = parameter.detach()
            READING.later(
                [(now - now[:1]).abs().max(), (now - self.first).abs().max()],
                lambda spread, moved: self._seen(float(spread), float(moved), step),
            )

    def _seen(self, spread: float, moved: float, step: int) -> None:
        self.spread, self.moved, self.step = spread, moved, step


class Holdings:
    def __init__(self, state: RunState) -> None:
        self.state = state
        self.gradients: dict[str, list[int]] = {}
        """Of parameters in no optimizer: how often looked at, with a gradient, with one that is not zero."""
        self.changed: set[str] = set()
        self.known: dict[str, dict[str, Any]] = {}
        self.alike: dict[str, Alike] = {}
        self.steps: dict[str, list[float]] = {}
        """Of parameters in optimizers: looks, elements with a gradient, those of them that did not change."""
        self._before: list[tuple[list[Tensor], Tensor, Tensor]] = []
        """Parameters of one device and dtype; some values of each, one after the other; where their gradients are not zero."""
        self._prints: dict[str, float] = {}
        self._symmetry = False
        self._holders: Any = WeakIdKeyDictionary(ref_type=IdRef)
        """Parameter → the numbers of the optimizers that hold or held it."""

    # -- around an optimizer step ----------------------------------------------------------------

    def before_step(self, optimizer: torch.optim.Optimizer, step: int) -> None:
        held = [p for group in optimizer.param_groups for p in group["params"]][:MOST]
        if step == 0:
            self._find_alike(held)
        if any(_lr(group) for group in optimizer.param_groups):
            alike: dict[Any, list[Tensor]] = {}
            for group in optimizer.param_groups:
                for parameter in group["params"][:512] if _lr(group) else ():
                    gradient = parameter.grad
                    if gradient is not None and _plain(parameter) and _plain(gradient):
                        alike.setdefault((parameter.device, parameter.dtype, gradient.dtype), []).append(parameter)
            self._before = [(some, _some(some), _some([p.grad for p in some]) != 0) for some in alike.values()]

    def after_step(self, step: int) -> None:
        self._left_out()  # not before: a closure (Lightning gives one to every optimizer) makes the gradients within the step
        names = self.state.parameters.names
        for parameters, before, alive in self._before:
            known = [names.get(id(parameter), ("", None))[0] for parameter in parameters]
            sizes = [min(parameter.numel(), SAMPLE) for parameter in parameters]
            same = (_some(parameters) == before) & alive
            READING.later([alive, same], partial(self._stayed, known, sizes))
        self._before = []
        if step:
            for alike in self.alike.values():
                alike.look(step)

    def _stayed(self, names: list[str], sizes: list[int], alive: Tensor, same: Tensor) -> None:
        for name, some, still in zip(names, alive.split(sizes), same.split(sizes), strict=True):
            if name:
                tally = self.steps.setdefault(name, [0, 0, 0])
                tally[0] += 1
                tally[1] += int(some.sum())
                tally[2] += int(still.sum())

    def _find_alike(self, held: list[Tensor]) -> None:
        names = self.state.parameters.names
        places: dict[torch.device, list[Tensor]] = {}
        for parameter in held:
            if parameter.ndim >= 2 and parameter.shape[0] > 1 and _plain(parameter) and id(parameter) in names:
                places.setdefault(parameter.device, []).append(parameter)
        for some in places.values():  # one wait for all of a device
            if not READING.may_wait(some[0]):
                continue
            begin = brought(torch.stack([(p.detach()[0] == p.detach()[1]).all() for p in some])).tolist()
            for parameter, pair in zip(some, begin, strict=True):
                if pair and bool((parameter.detach() == parameter.detach()[:1]).all()):
                    self.alike.setdefault(names[id(parameter)][0], Alike(parameter))

    def _left_out(self) -> None:
        """Parameters that no optimizer holds: does a gradient reach them, does something else change them?"""
        held = {id(p) for o in list(KNOWN.optimizers) for group in o.param_groups for p in group["params"]}
        for name, parameter in list(self.state.parameters.live())[:MOST]:
            if id(parameter) in held or not parameter.requires_grad or not parameter.is_leaf:
                continue  # the result of ops is trained through what it is made of
            tally = self.gradients.setdefault(name, [0, 0, 0])
            tally[0] += 1
            if parameter.grad is not None:
                tally[1] += 1
                values = values_of(parameter.grad)
                if values is None:
                    tally[2] += 1
                elif not READING.seldom(values) or tally[0] < 16:
                    READING.later([values.detach().reshape(-1)[:SAMPLE].any()], partial(_count, tally))
            if _plain(parameter) and (not READING.seldom(parameter) or tally[0] < 16):
                some = parameter.detach().reshape(-1)[:64]
                READING.later([some], partial(self._mark, name, parameter._version))

    def _mark(self, name: str, version: int, some: Tensor) -> None:
        mark = float(some.double().sum()) + version
        if self._prints.setdefault(name, mark) != mark:
            self.changed.add(name)

    # -- at the end ------------------------------------------------------------------------------

    def look(self) -> None:
        """Takes down what is known now: models and optimizers may be gone when the program ends."""
        state = self.state
        inside = {id(m) for root in list(state.roster.roots.values()) for m in root.modules()}
        registered = {id(p) for root in list(state.roster.roots.values()) for p in root.parameters()}
        owners = self._owners()
        holders = self._holders
        for optimizer in optimizers():
            for group in optimizer.param_groups:
                for parameter in group["params"]:
                    holders.setdefault(parameter, {})[KNOWN.number(optimizer)] = None
        living = {KNOWN.number(optimizer) for optimizer in optimizers()}
        shared = _shared([p for _, p in list(state.parameters.live())[:MOST]])
        for name, parameter in list(state.parameters.live())[:MOST]:
            owner = owners.get(id(parameter))
            before = self.known[name]["optimizers"] if name in self.known else []
            gone = [number for number in before if number not in living]
            self.known[name] = {
                "shape": list(parameter.shape),
                "dtype": dtype_name(parameter),
                "requires_grad": parameter.requires_grad,
                "optimizers": list(dict.fromkeys([*gone, *holders.get(parameter, ())])),
                "registered": id(parameter) in registered,
                "owner": owner[0] if owner else "",
                "owner_type": type(owner[1]).__name__ if owner else "",
                "library": bool(owner and type(owner[1]).__module__.startswith("torch.nn")),
                "owner_training": owner[1].training if owner else None,
                "owner_hidden": bool(owner and id(owner[1]) not in inside),
                "made": KNOWN.made.line(owner[1]) if owner else None,
                "filled": KNOWN.filled.line(parameter),
                "recipe": KNOWN.recipes.get(id(parameter)) if KNOWN.filled.place(parameter) else None,
                "loaded": bool(owner and id(owner[1]) in KNOWN.loaded),
                "shares_memory": self._sharing(owner, name, shared.get(id(parameter))),
                "placement": ", ".join(map(str, getattr(parameter, "placements", ()) or ())),
            }

    def facts(self, places: dict[int, int]) -> dict[str, Any]:
        """`places` of optimizers in the list of them, by number."""
        found: dict[str, Any] = {}
        for name, known in self.known.items():
            fact = {**known, "optimizers": [places[number] for number in known["optimizers"] if number in places]}
            if name in self.gradients:
                fact["left_out"] = dict(zip(("looks", "gradients", "nonzero"), self.gradients[name], strict=True))
                fact["changed"] = name in self.changed
            if name in self.steps:
                fact["steps"] = dict(zip(("looks", "elements", "unchanged"), self.steps[name], strict=True))
            if name in self.alike:
                alike = self.alike[name]
                fact["alike"] = {"spread": alike.spread, "moved": alike.moved, "zero": alike.zero, "step": alike.step}
            found[name] = fact
        return found

    def _sharing(
        self, owner: tuple[str, nn.Module] | None, name: str, others: list[int] | None
    ) -> dict[str, Any] | None:
        """The other parameters over the same memory, and where the program made it so."""
        if not others or owner is None:
            return None
        names = self.state.parameters.names
        place = KNOWN.made.place(owner[1])
        path = place[0].co_filename if place else ""
        number = queries.data_assignment(path, owner[0].rpartition(".")[2], name.rpartition(".")[2]) if path else None
        return {
            "with": [names[other][0] for other in others if other in names],
            "line": line_at(path, number) if number else None,
        }

    def _owners(self) -> dict[int, tuple[str, nn.Module]]:
        owners: dict[int, tuple[str, nn.Module]] = {}
        for entry in list(self.state.roster.entries.values()):
            module = entry.ref()
            if module is not None:
                for parameter in module._parameters.values():
                    if parameter is not None:
                        owners.setdefault(id(parameter), (entry.name, module))
        return owners


def optimizers() -> list[torch.optim.Optimizer]:
    """Those that exist, in the order that they were made."""
    return sorted(KNOWN.optimizers, key=KNOWN.number)


def _plain(tensor: Tensor) -> bool:
    return is_dense(tensor) and tensor.numel() > 0


def _some(tensors: list[Any]) -> Tensor:
    """The first values of each, in one op."""
    return torch.cat([tensor.detach().reshape(-1)[:SAMPLE] for tensor in tensors])


def _count(tally: list[int], found: Tensor) -> None:
    tally[2] += bool(found)


def _shared(parameters: list[Tensor]) -> dict[int, list[int]]:
    """By id: the ids of other parameters of the same shape that begin at the same address."""
    at: dict[tuple[int, torch.Size], list[int]] = {}
    for parameter in parameters:
        if _plain(parameter) and parameter.numel() > 1:
            at.setdefault((parameter.data_ptr(), parameter.shape), []).append(id(parameter))
    return {one: [other for other in ids if other != one] for ids in at.values() if len(ids) > 1 for one in ids}


def _lr(group: dict[str, Any]) -> float:
    lr = group.get("lr", 0.0)
    return float(lr) if isinstance(lr, int | float) else 1.0
