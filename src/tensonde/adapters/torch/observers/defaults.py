"""Hyperparameters that are set where no step reads them: `optimizer.defaults`, which only new groups are filled from,
attributes of the optimizer itself, and entries of its groups that are spelt otherwise."""

from __future__ import annotations

from typing import Any

from tensonde.adapters.torch.observers.origins import KNOWN
from tensonde.program.habits import hyperparameter_set, rates_set
from tensonde.program.lines import line_at

_MADE: dict[int, tuple[dict[str, float], list[dict[str, float]]]] = {}
"""By the optimizer's number: its defaults and its groups when it was made."""


_MEANT = {
    "learning_rate": "lr",
    "learningrate": "lr",
    "lrate": "lr",
    "learn_rate": "lr",
    "LR": "lr",
    "wd": "weight_decay",
    "beta": "betas",
}
"""What an entry stands for that no optimizer of torch's reads."""


def noted(optimizer: Any) -> None:
    """An optimizer has just been made."""
    _MADE[KNOWN.number(optimizer)] = (_plain(optimizer.defaults), [_plain(group) for group in optimizer.param_groups])


def unread(optimizer: Any) -> dict[str, Any] | None:
    """A number that has been changed since in a place that nothing reads, while all groups kept theirs."""
    made = _MADE.get(KNOWN.number(optimizer))
    if made is None or len(made[1]) != len(optimizer.param_groups):
        return None  # a group was added: it took its numbers from the defaults
    defaults, groups = made
    changed = [
        ("defaults", key, value) for key, value in _plain(optimizer.defaults).items() if defaults.get(key) != value
    ]
    if type(optimizer).__module__.startswith("torch.optim"):
        own = _plain(vars(optimizer))
        changed += [("attribute", key, value) for key, value in own.items() if key in defaults]
    for where, key, value in changed:
        now = [_plain(group).get(key) for group in optimizer.param_groups]
        if key not in defaults or None in now or value in now or now != [group.get(key) for group in groups]:
            continue
        lines = [(path, number) for path in KNOWN.files() for number in hyperparameter_set(path, where, key)]
        if len({path for path, _ in lines}) == 1:
            return {"where": where, "name": key, "value": value, "used": now[:8], "line": line_at(*lines[0])}
    return _misspelt(optimizer, groups) if type(optimizer).__module__.startswith("torch.optim") else None


def _misspelt(optimizer: Any, made: list[dict[str, float]]) -> dict[str, Any] | None:
    """An entry that the program has put into a group since, beside the one that is read and has stayed as it was."""
    for group, before in zip(optimizer.param_groups, made, strict=True):
        now = _plain(group)
        for key, value in now.items():
            name = _MEANT.get(key)
            if key in before or name not in before or now.get(name) != before[name] or now[name] == value:
                continue
            lines = [(path, number) for path in KNOWN.files() for number, _ in rates_set(path, key)]
            if len(lines) == 1:
                used = [_plain(each)[name] for each in optimizer.param_groups if name in _plain(each)]
                return {
                    "where": f"group {key}",
                    "name": name,
                    "value": value,
                    "used": used[:8],
                    "line": line_at(*lines[0]),
                }
    return None


def made_with(optimizer: Any) -> float | None:
    """The learning rate that it was made with."""
    made = _MADE.get(KNOWN.number(optimizer))
    return max((group["lr"] for group in made[1] if "lr" in group), default=None) if made is not None else None


def _plain(numbers: dict[str, Any]) -> dict[str, float]:
    return {
        key: value
        for key, value in numbers.items()
        if isinstance(value, int | float) and not isinstance(value, bool) and not key.startswith("_")
    }
