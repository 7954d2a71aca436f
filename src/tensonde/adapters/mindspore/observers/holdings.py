"""Parameters: who holds them, whether gradients reach them, whether a step changes them, whether units are alike."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tensonde.adapters.mindspore.observers.origins import KNOWN, groups_of
from tensonde.adapters.mindspore.run.naming import cells_in, parameters_in
from tensonde.adapters.mindspore.tensors import dtype_name, is_tensor, shape_of, values_of

if TYPE_CHECKING:
    from tensonde.adapters.mindspore.run.pynative import PyNative

SAMPLE = 2048
MOST = 4000


def looked_at(step: int) -> bool:
    """A handful of the first steps, then ever more rarely."""
    return step in (0, 1, 2, 5) or (step >= 10 and step % 10 == 0 and step <= 100) or (step > 100 and step % 100 == 0)


class Holdings:
    def __init__(self, training: PyNative) -> None:
        self.training = training
        self.known: dict[str, dict[str, Any]] = {}
        self._left_out: dict[str, list[int]] = {}
        """Of parameters in no optimizer: how often looked at, with a gradient, with one that is not zero."""
        self._changed: set[str] = set()
        self._prints: dict[str, float] = {}
        self._steps: dict[str, list[int]] = {}
        """Of parameters in optimizers: looks, elements with a gradient, those of them that did not change."""
        self._alike: dict[str, dict[str, Any]] = {}
        self._firsts: dict[str, NDArray[Any]] = {}
        self._filled: set[str] = set()
        self._before: list[tuple[str, Any, NDArray[Any], NDArray[Any]]] = []

    # -- around an optimizer step ----------------------------------------------------------------

    def before_step(self, optimizer: Any, gradients: Sequence[Any], step: int) -> None:
        names = self.training.parameters.names
        held = list(optimizer.parameters)[:MOST]
        if step == 0:
            self._find_alike(held)
            self._find_filled(held)
        rates = {id(p): group.get("lr") for group in groups_of(optimizer) for p in group["params"]}
        for parameter, gradient in list(zip(held, gradients, strict=False))[:512]:
            known = names.get(id(parameter))
            if known is None or not is_tensor(gradient) or rates.get(id(parameter)) == 0:
                continue
            value, slope = values_of(parameter), values_of(gradient)
            if value is not None and slope is not None and value.size:
                flat = value.reshape(-1)[:SAMPLE].copy()
                self._before.append((known[0], parameter, flat, slope.reshape(-1)[:SAMPLE] != 0))

    def after_step(self, step: int) -> None:
        self._look_at_left_out()
        for name, parameter, before, alive in self._before:
            value = values_of(parameter)
            if value is None or len(alive) != len(before):
                continue
            same = (value.reshape(-1)[:SAMPLE] == before) & alive
            tally = self._steps.setdefault(name, [0, 0, 0])
            tally[0] += 1
            tally[1] += int(alive.sum())
            tally[2] += int(same.sum())
        self._before.clear()
        if step:
            self._look_at_alike(step)

    def _find_alike(self, held: list[Any]) -> None:
        names = self.training.parameters.names
        for parameter in held:
            known = names.get(id(parameter))
            if known is None or parameter.ndim < 2 or parameter.shape[0] < 2:
                continue
            value = values_of(parameter)
            if value is not None and value.size and bool((value == value[:1]).all()):
                self._firsts[known[0]] = value[0].copy()
                self._alike[known[0]] = {"spread": 0.0, "moved": 0.0, "zero": not value[0].any(), "step": 0}

    def _find_filled(self, held: list[Any]) -> None:
        """Biases that begin at a number other than 0, which no layer gives them unless it is told to."""
        for parameter in held:
            known = self.training.parameters.names.get(id(parameter))
            value = values_of(parameter) if known is not None and parameter.ndim == 1 and parameter.size > 1 else None
            if known is None or value is None or not known[0].endswith("bias"):
                continue
            if value[0] != 0 and bool((value == value[0]).all()):
                self._filled.add(known[0])

    def _look_at_alike(self, step: int) -> None:
        live = dict(self.training.parameters.live()) if self._alike else {}
        for name, fact in self._alike.items():
            value = values_of(live[name]) if name in live else None
            if value is not None:
                fact["spread"] = float(np.abs(value - value[:1]).max())
                fact["moved"] = float(np.abs(value - self._firsts[name]).max())
                fact["step"] = step

    def _look_at_left_out(self) -> None:
        """Parameters that no optimizer holds: does a gradient reach them, does something else change them?"""
        held = {id(p) for optimizer in KNOWN.optimizers() for p in optimizer.parameters}
        for name, parameter in list(self.training.parameters.live())[:MOST]:
            if id(parameter) in held or not parameter.requires_grad:
                continue
            tally = self._left_out.setdefault(name, [0, 0, 0])
            tally[0] += 1
            gradient = self.training.parameters.gradient(name)
            if gradient is not None:
                slope = values_of(gradient)
                tally[1] += 1
                tally[2] += slope is None or bool(slope.reshape(-1)[:SAMPLE].any())
            value = values_of(parameter)
            if value is not None:
                mark = float(value.reshape(-1)[:64].astype(np.float64).sum())
                if self._prints.setdefault(name, mark) != mark:
                    self._changed.add(name)

    # -- at the end ------------------------------------------------------------------------------

    def look(self) -> None:
        """Takes down what is known now: models and optimizers may be gone when the program ends."""
        training = self.training
        roots = list(training.roster.roots.values())
        inside = {id(cell) for root in roots for _, cell in cells_in(root)}
        registered = {id(p) for root in roots for p in parameters_in(root)}
        holders: dict[int, list[int]] = {}
        for optimizer in KNOWN.optimizers():
            for parameter in optimizer.parameters:
                holders.setdefault(id(parameter), []).append(KNOWN.number(optimizer))
        for name, parameter in list(training.parameters.live())[:MOST]:
            owner_name, reference = training.parameters.owners.get(id(parameter), ("", lambda: None))
            owner = reference()
            before = self.known[name]["optimizers"] if name in self.known else []
            if owner is None and name in self.known:  # the network is gone, its parameters are not
                self.known[name]["optimizers"] = list(dict.fromkeys([*before, *holders.get(id(parameter), [])]))
                continue
            self.known[name] = {
                "shape": list(shape_of(parameter)),
                "dtype": dtype_name(parameter),
                "requires_grad": bool(parameter.requires_grad),
                "optimizers": list(dict.fromkeys([*before, *holders.get(id(parameter), [])])),
                "registered": id(parameter) in registered,
                "owner": owner_name,
                "owner_type": type(owner).__name__ if owner is not None else "",
                "library": owner is not None and type(owner).__module__.startswith("mindspore."),
                "owner_training": bool(owner.training) if owner is not None else None,
                "owner_hidden": owner is not None and id(owner) not in inside,
                "made": KNOWN.made.line(owner) if owner is not None else None,
                "loaded": id(parameter) in KNOWN.loaded,
            }

    def facts(self, places: dict[int, int]) -> dict[str, Any]:
        """`places` of optimizers in the list of them, by number."""
        found: dict[str, Any] = {}
        for name, known in self.known.items():
            fact = {**known, "optimizers": [places[number] for number in known["optimizers"] if number in places]}
            if name in self._left_out:
                fact["left_out"] = {
                    **dict(zip(("looks", "gradients", "nonzero"), self._left_out[name], strict=True)),
                    "reached": name in self.training.parameters.reached,
                }
                fact["changed"] = name in self._changed
            if name in self._steps:
                fact["steps"] = dict(zip(("looks", "elements", "unchanged"), self._steps[name], strict=True))
            if name in self._filled:
                fact["filled"] = known["made"]
            if name in self._alike:
                fact["alike"] = self._alike[name]
            found[name] = fact
        return found
