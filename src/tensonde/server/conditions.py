"""The watch language for people who choose from lists: named conditions with parameters, and fields."""

from __future__ import annotations

from typing import Any

from tensonde.watch.conditions import CONDITIONS
from tensonde.watch.named import Condition
from tensonde.watch.vocabulary import CONTEXT, DERIVED, STORED

_RANGE = {"low": -1.0, "high": 1.0, "below": 0.5}


def catalogue() -> dict[str, Any]:
    fields = {**STORED, **{name: meaning for name, (meaning, _) in DERIVED.items()}, **CONTEXT}
    return {
        "conditions": [_condition(condition) for condition in CONDITIONS],
        "fields": [{"name": name, "meaning": meaning} for name, meaning in fields.items()],
    }


def _condition(condition: Condition) -> dict[str, Any]:
    fits, example = _example(condition)
    return {
        "name": condition.name,
        "parameters": [
            {"name": p.name, "default": p.default, "meaning": p.meaning, "choices": list(p.choices)}
            for p in condition.parameters
        ],
        "fits": fits,
        "help": condition.meaning + (f". {condition.note}" if condition.note else ""),
        "example": example,
    }


def _example(condition: Condition) -> tuple[list[str], str]:
    """What it fits, and how it is written with limits where it needs some."""
    defaults: dict[str, Any] = {p.name: p.default for p in condition.parameters}
    first = condition.parameters[0].name if condition.parameters else ""
    for given in ({}, {first: 10}, _RANGE):
        try:
            cases = condition.cases({**defaults, **given})
        except (ValueError, KeyError, TypeError):
            continue
        shown = given or {name: value for name, value in defaults.items() if value is not None}
        inside = ", ".join(f"{name}={value:g}" for name, value in shown.items())
        return [where.words for where, _ in cases], f"{condition.name}({inside})" if inside else condition.name
    return [], condition.name
