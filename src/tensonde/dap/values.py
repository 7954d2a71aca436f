"""Scopes and variables: tensors by their role, with statistics; fetched when somebody unfolds them."""

from __future__ import annotations

import ast
import contextlib
from dataclasses import dataclass
from typing import Any

from tensonde.errors import TensondeError, UsageError
from tensonde.protocol.client import Remote

Json = dict[str, Any]
SCOPES = (
    ("Inputs", (":in", ":grad_in")),
    ("Outputs", (":out",)),
    ("Gradients", (":grad",)),
    ("Parameters", (":value",)),
)
SHOWN = ("min", "max", "mean", "std", "norm", "absmax", "nan", "pos_inf", "neg_inf", "zero", "count")
MOST = 200
ROWS, COLS = 32, 16


@dataclass(frozen=True, slots=True)
class Scope:
    place: Remote
    module: str
    """Empty: any."""
    roles: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Held:
    """A tensor that can be unfolded."""

    place: Remote
    address: str


@dataclass(frozen=True, slots=True)
class Locals:
    """The variables of a Python frame, counted as `where` shows them."""

    place: Remote
    frame: int


class Values:
    """Numbers for what an editor may ask about, good until the training goes on."""

    def __init__(self) -> None:
        self._held: dict[int, Scope | Held | Locals] = {}

    def forget(self) -> None:
        self._held.clear()

    def address_at(self, reference: int, name: str) -> str | None:
        """Of a variable in a scope."""
        return name if isinstance(self._held.get(reference), Scope) else None

    def scopes(self, place: Remote, module: str, frame: int | None) -> list[Json]:
        """Tensors of a module, variables of a Python frame, and everything that is alive."""
        python = (
            [{"name": "Locals", "presentationHint": "locals", "variablesReference": self._keep(Locals(place, frame)), "expensive": False}]
            if frame is not None
            else []
        )  # fmt: skip
        if not module and python:
            return [*python, self._everything(place)]
        shown = [
            {"name": name, "variablesReference": self._keep(Scope(place, module, roles)), "expensive": False}
            for name, roles in SCOPES
        ]
        return [*shown, *python, self._everything(place)]

    def _everything(self, place: Remote) -> Json:
        return {
            "name": "All tensors",
            "variablesReference": self._keep(Scope(place, "", (":",))),
            "expensive": True,
        }

    def variables(self, reference: int, start: int, count: int) -> list[Json]:
        found = self._held.get(reference)
        if isinstance(found, Scope):
            names = self._addresses(found)[start : start + (count or MOST)]
            return [self._variable(found.place, name) for name in names]
        if isinstance(found, Locals):
            return _locals(found)
        return self._inside(found) if isinstance(found, Held) else []

    def described(self, place: Remote, address: str) -> tuple[str, int]:
        """A line about a tensor, and a number to unfold it by. Raises TensondeError where it is not at hand."""
        tile = place.get("tensor", address=address, rows="0:1", cols="0:1")
        return line_of(tile), self._keep(Held(place, address))

    def evaluated(self, place: Remote, text: str) -> tuple[str, int] | None:
        """Of `fc1`, `fc1:out` or `fc1:out norm`. None where that is no tensor at hand."""
        name, _, statistic = text.partition(" ")
        for address in (name,) if ":" in name else (f"{name}:out", f"{name}:value"):
            with contextlib.suppress(TensondeError):
                if not statistic.strip():
                    return self.described(place, address)
                digest = place.get("tensor", address=address, rows="0:1", cols="0:1")["digest"] or {}
                if statistic.strip() in digest:
                    return _short(digest[statistic.strip()]), 0
        return None

    def _keep(self, thing: Scope | Held | Locals) -> int:
        number = len(self._held) + 1
        self._held[number] = thing
        return number

    def _addresses(self, scope: Scope) -> list[str]:
        at_hand = [one["address"] for one in scope.place.get("tensors")]
        return [address for address in at_hand if fits(address, scope)]

    def _variable(self, place: Remote, address: str) -> Json:
        try:
            text, reference = self.described(place, address)
        except TensondeError:  # it has not run yet, or nothing keeps it
            text, reference = "<not at hand at this stop>", 0
        return {
            "name": address,
            "value": text,
            "type": "tensor",
            "variablesReference": reference,
            "evaluateName": address,
        }

    def _inside(self, held: Held) -> list[Json]:
        tile = held.place.get(
            "tensor", address=held.address, rows=f"0:{ROWS}", cols=f"0:{COLS}", index=_first_plane(held)
        )
        digest = tile["digest"] or {}
        facts = [
            {"name": name, "value": _short(digest[name]), "variablesReference": 0} for name in SHOWN if name in digest
        ]
        begin = tile["rows"][0]
        lines = [
            {"name": f"[{begin + k}]", "value": ", ".join(_short(value) for value in row), "variablesReference": 0}
            for k, row in enumerate(tile["values"])
        ]
        return [*facts, *lines]


def fits(address: str, scope: Scope) -> bool:
    """Whether a tensor is of a scope: of its module (or a parameter of it), and in its role."""
    name, colon, role = address.partition(":")
    if not any((colon + role).startswith(wanted) for wanted in scope.roles):
        return False
    if (colon + role).startswith(":grad_in") and ":grad_in" not in scope.roles and ":" not in scope.roles:
        return False
    module = scope.module
    return (
        not module
        or name == module
        or (name.startswith(f"{module}.") and "." not in name[len(module) + 1 :])
        or name == "loss"
    )


def line_of(tile: Json) -> str:
    """`float32 [6, 4]  -0.3 … 1.2, mean 0.1, norm 2.4`, and what is not finite."""
    digest = tile["digest"] or {}
    shape = f"{tile['dtype']} {tile['shape']}"
    if not tile["shape"] and tile["values"]:
        return f"{shape}  {_short(tile['values'][0][0])}"
    bad = ", ".join(
        f"{digest[name]} {label}"
        for name, label in (("nan", "NaN"), ("pos_inf", "+Inf"), ("neg_inf", "-Inf"))
        if digest.get(name)
    )
    if not digest:
        return shape
    numbers = f"{_short(digest['min'])} … {_short(digest['max'])}, mean {_short(digest['mean'])}, norm {_short(digest['norm'])}"
    return f"{shape}  {numbers}" + (f"  ({bad})" if bad else "")


def said(place: Remote, line: str) -> tuple[list[list[str]], bool]:
    """What a command of the debugger says, as pieces of lines, and whether the training goes on. Raises UsageError where it refuses."""
    answer = place.command(line)
    lines = [[piece["text"] for piece in pieces] for pieces in answer["output"]]
    if lines and lines[0][:1] == ["error: "]:
        raise UsageError("".join(lines[0][1:]))
    return lines, bool(answer["resumed"])


def _locals(held: Locals) -> list[Json]:
    lines, _ = said(held.place, f"locals @{held.frame}")
    return [
        {"name": line[0], "value": "".join(line[2:]), "variablesReference": 0, "evaluateName": line[0]}
        for line in lines
        if len(line) > 2
    ]


def only_looks(expression: str) -> bool:
    """Names, attributes and items: what can be evaluated because the mouse rests on it."""
    try:
        tree = ast.parse(expression, mode="eval")
    except (SyntaxError, ValueError):
        return False
    return all(isinstance(node, _LOOKS) for node in ast.walk(tree))


_LOOKS = (ast.Expression, ast.Name, ast.Attribute, ast.Subscript, ast.Constant, ast.Slice, ast.Tuple, ast.UnaryOp, ast.USub, ast.expr_context)  # fmt: skip


def _first_plane(held: Held) -> str:
    shape = held.place.get("tensor", address=held.address, rows="0:1", cols="0:1")["shape"]
    return ",".join(["0"] * (len(shape) - 2) + [":", ":"]) if len(shape) > 2 else ""


def _short(value: Any) -> str:
    return f"{value:.5g}" if isinstance(value, float) else str(value)
