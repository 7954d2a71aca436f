"""Where the program made its cells, optimizers and data sets, noted from the moment that MindSpore is imported."""

from __future__ import annotations

import weakref
from typing import Any

from tensonde.adapters.mindspore.observers.schedules import rate_at
from tensonde.adapters.mindspore.tensors import is_tensor, values_of
from tensonde.program.births import Births


class Known:
    """What was made so far in this process."""

    def __init__(self) -> None:
        self.made = Births()
        """Cells and optimizers."""
        self.described = Births()
        """Data sets, by the lines that describe them."""
        self.evaluated = Births()
        """Cells, by the last call of `set_train(False)`."""
        self.cast = Births()
        """Cells, by the call that changed their dtype."""
        self.loaded: set[int] = set()
        """Parameters that a checkpoint was loaded into, by id."""
        self._optimizers: weakref.WeakSet[Any] = weakref.WeakSet()
        self._numbers: dict[int, int] = {}

    def optimizer_made(self, optimizer: Any) -> None:
        self._optimizers.add(optimizer)
        self._numbers[id(optimizer)] = len(self._numbers)

    def optimizers(self) -> list[Any]:
        """Those that exist, in the order made."""
        return sorted(self._optimizers, key=self.number)

    def number(self, optimizer: Any) -> int:
        return self._numbers.get(id(optimizer), -1)

    def files(self) -> list[str]:
        """The user's files that made cells and optimizers."""
        return list(self.made.files)[:8]


KNOWN = Known()

_SETTINGS = ("weight_decay", "momentum", "nesterov", "use_nesterov", "beta1", "beta2", "eps", "loss_scale", "dampening")


def groups_of(optimizer: Any) -> list[dict[str, Any]]:
    """The groups of an optimizer of any kind, each with its `params` and its plain hyperparameters by PyTorch's names."""
    groups = getattr(optimizer, "param_groups", None)
    if isinstance(groups, list):  # mindspore.mint and mindspore.experimental
        return [
            {name: plain_number(value) if name != "params" else list(value) for name, value in g.items()}
            for g in groups
        ]
    found = {name: plain_number(value) for name in _SETTINGS if (value := getattr(optimizer, name, None)) is not None}
    if "beta1" in found and "beta2" in found:
        found["betas"] = (found.pop("beta1"), found.pop("beta2"))
    found["nesterov"] = bool(found.pop("use_nesterov", found.get("nesterov", False)))
    kept = {name: value for name, value in found.items() if isinstance(value, int | float | tuple)}
    if kept.get("loss_scale") == 1.0:
        del kept["loss_scale"]
    parameters = list(optimizer.parameters)
    if not getattr(optimizer, "is_group", False):
        rate = rate_of(getattr(optimizer, "learning_rate", None), optimizer)
        flags = getattr(optimizer, "decay_flags", ()) if kept.get("weight_decay") else ()
        spared = {id(p) for p, decays in zip(parameters, flags, strict=False) if not decays}  # gamma and beta
        rest = [p for p in parameters if id(p) not in spared]
        if not spared or not rest:
            return [{"params": parameters, "lr": rate, **kept}]
        without = {**kept, "params": [p for p in parameters if id(p) in spared], "lr": rate, "weight_decay": 0.0}
        return [{"params": rest, "lr": rate, **kept}, without]
    rates = list(getattr(optimizer, "group_lr", []) or [])
    decays = list(getattr(optimizer, "group_weight_decay", []) or [])
    by_setting: dict[tuple[Any, Any], list[Any]] = {}
    for k, parameter in enumerate(parameters):
        lr = rate_of(rates[k], optimizer) if k < len(rates) else rate_of(optimizer.learning_rate, optimizer)
        decay = plain_number(decays[k]) if k < len(decays) else kept.get("weight_decay", 0.0)
        by_setting.setdefault((lr, decay if isinstance(decay, int | float) else 0.0), []).append(parameter)
    return [{**kept, "params": held, "lr": lr, "weight_decay": decay} for (lr, decay), held in by_setting.items()]


def rate_of(rate: Any, optimizer: Any) -> float | None:
    """A learning rate now; None where it is a schedule of the program's that only running it would tell."""
    number = plain_number(rate)
    if isinstance(number, int | float):
        return float(number)
    steps = getattr(optimizer, "global_step", None)
    counted = values_of(steps) if is_tensor(steps) else None
    step = int(counted.reshape(-1)[0]) if counted is not None else 0
    series = getattr(rate, "learning_rate", None)  # one value for each step
    values = values_of(series) if is_tensor(series) else None
    if values is not None and values.ndim == 1 and len(values):
        return float(values[min(step, len(values) - 1)])
    return rate_at(rate, step)


def plain_number(value: Any) -> Any:
    if is_tensor(value):
        array = values_of(value)
        return float(array.reshape(-1)[0]) if array is not None and array.size == 1 else value
    return value
