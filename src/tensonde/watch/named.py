"""What a named condition is: parameters with defaults, and an expression for each sort of site."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from math import isfinite
from typing import TypeAlias

from tensonde.watch.fit import Fit
from tensonde.watch.grammar import Argument

Values: TypeAlias = Mapping[str, Argument | None]
Cases: TypeAlias = Callable[[Values], list[tuple[Fit, str]]]


@dataclass(frozen=True)
class Parameter:
    """`default` None: not used unless it is given. `whole`: a whole number. `choices`: one of these words."""

    name: str
    default: float | None
    meaning: str
    whole: bool = False
    choices: tuple[str, ...] = ()


@dataclass(frozen=True)
class Condition:
    name: str
    meaning: str
    cases: Cases
    parameters: tuple[Parameter, ...] = ()
    aliases: tuple[str, ...] = ()
    note: str = ""

    def bind(self, given: list[Argument], named: Mapping[str, Argument]) -> dict[str, Argument | None]:
        """The value of every parameter; ValueError in words for the user."""
        if len(given) > len(self.parameters):
            raise ValueError(f"{self.name} takes at most {len(self.parameters)} arguments, not {len(given)}")
        values: dict[str, Argument | None] = {p.name: p.default for p in self.parameters}
        for parameter, value in zip(self.parameters, given, strict=False):
            values[parameter.name] = self._checked(parameter, value)
        taken = {p.name for p in self.parameters[: len(given)]}
        for name, value in named.items():
            found = next((p for p in self.parameters if p.name == name), None)
            if found is None:
                names = ", ".join(p.name for p in self.parameters) or "no parameters"
                raise ValueError(f"{self.name} has no parameter {name!r}: it has {names}")
            if name in taken:
                raise ValueError(f"{self.name} got {name} twice")
            values[name] = self._checked(found, value)
        return values

    def _checked(self, parameter: Parameter, value: Argument) -> Argument:
        subject = f"{parameter.name} of {self.name}"
        if parameter.choices:
            if value not in parameter.choices:
                raise ValueError(f"{subject} is one of {', '.join(parameter.choices)}, not {value}")
            return value
        if isinstance(value, str) or not isfinite(value):
            raise ValueError(f"{subject} is a number, not {value}")
        if parameter.whole:
            if value != int(value) or not 1 <= value <= 1000:
                raise ValueError(f"{subject} is a whole number from 1 to 1000, not {value:g}")
            return int(value)
        return value


def plain(*cases: tuple[Fit, str]) -> Cases:
    """Cases whose text has the parameters' names in braces."""
    return lambda values: [(fit, text.format_map(dict(values))) for fit, text in cases]


def limits(fit: Fit, sign: str) -> Cases:
    """One comparison for each of the parameters that is given; at least one must be."""

    def build(values: Values) -> list[tuple[Fit, str]]:
        given = [f"{name} {sign} {value}" for name, value in values.items() if value is not None]
        if not given:
            raise ValueError(f"give at least one limit: {', '.join(values)}")
        return [(fit, " or ".join(given))]

    return build


def statistics(default: float | None = None) -> tuple[Parameter, ...]:
    names: Iterable[str] = ("absmean", "max", "min", "mean")
    return tuple(Parameter(name, default if name == "absmean" else None, f"limit of {name}") for name in names)


def count(default: int, meaning: str = "how many observations before this one") -> Parameter:
    return Parameter("n", default, meaning, whole=True)


SAME = "norm == prev(norm) and absmean == prev(absmean) and mean == prev(mean)"
"""The digest says that nothing changed since the previous observation."""
