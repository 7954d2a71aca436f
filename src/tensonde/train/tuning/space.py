"""What may be tried for one parameter, from the words on a command line.

lr=log:1e-5:1e-1        a number, each order of magnitude as likely as another
dropout=float:0:0.5     a number
layers=int:1:8          a whole number; int:32:256:32 in steps, logint:1:1024 by magnitude
batch=choice:32,64      one of these
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tensonde.errors import UsageError

FORMS = "log:LO:HI, float:LO:HI, int:LO:HI[:STEP], logint:LO:HI or choice:A,B,..."


@dataclass(frozen=True, slots=True)
class Parameter:
    """`environment`: the script gets it as an environment variable and not as `--name VALUE`."""

    name: str
    kind: str
    low: float = 0.0
    high: float = 0.0
    step: int = 1
    choices: tuple[str, ...] = ()
    environment: bool = False

    @staticmethod
    def parse(text: str, *, environment: bool = False) -> Parameter:
        name, equals, form = text.partition("=")
        name = name.strip().lstrip("-")
        if not equals or not name:
            raise UsageError(f"the parameter {text!r} is not NAME=SPACE; write e.g. lr=log:1e-5:1e-1.")
        kind, _, rest = form.partition(":")
        if kind == "choice":
            choices = tuple(choice.strip() for choice in rest.split(","))
            if not all(choices) or len(set(choices)) != len(choices):
                raise UsageError(f"the choices of {text!r} must be different words, separated by commas.")
            return Parameter(name, kind, choices=choices, environment=environment)
        return _numbers(text, name, kind, rest.split(":"), environment)

    def distribution(self, *, numbers: bool = False) -> Any:
        """Optuna's word for it. `numbers`: choices that look like numbers are numbers, as a function is given them."""
        from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

        if self.kind == "choice":
            return CategoricalDistribution([number(choice) for choice in self.choices] if numbers else self.choices)
        if self.kind in ("int", "logint"):
            return IntDistribution(int(self.low), int(self.high), log=self.kind == "logint", step=self.step)
        return FloatDistribution(self.low, self.high, log=self.kind == "log")

    def __str__(self) -> str:
        if self.kind == "choice":
            return f"{self.name}=choice:{','.join(self.choices)}"
        step = f":{self.step}" if self.step != 1 else ""
        return f"{self.name}={self.kind}:{self.low:g}:{self.high:g}{step}"


def _numbers(text: str, name: str, kind: str, words: list[str], environment: bool) -> Parameter:
    most = {"log": 2, "float": 2, "int": 3, "logint": 2}.get(kind)
    if most is None:
        raise UsageError(f"the parameter {text!r} has no space that is known; the forms are {FORMS}.")
    whole = kind in ("int", "logint")
    try:
        values = [int(word) if whole else float(word) for word in words]
    except ValueError:
        values = []
    if not 2 <= len(values) <= most:
        raise UsageError(f"the space of {text!r} needs {'whole ' if whole else ''}numbers; the forms are {FORMS}.")
    low, high = values[0], values[1]
    if not low < high or high - low == float("inf"):
        raise UsageError(f"the space of {text!r} is empty; its first number must be less than its second.")
    if kind.startswith("log") and low <= 0:
        raise UsageError(f"the space of {text!r} begins at {low:g}; by magnitude it must begin above 0.")
    step = int(values[2]) if len(values) > 2 else 1
    if step < 1:
        raise UsageError(f"the space of {text!r} has steps of {step}; they must be at least 1.")
    return Parameter(name, kind, low, high, step, environment=environment)


def number(text: str) -> Any:
    """The number that a word stands for, or the word."""
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def words(value: Any) -> str:
    """As a script reads it: the shortest text that gives the same number."""
    return repr(value) if isinstance(value, float) else str(value)


def short(value: Any) -> str:
    """As a person reads it."""
    return f"{value:.4g}" if isinstance(value, float) else str(value)
