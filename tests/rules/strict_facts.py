"""Reads facts as strictly as can be: every key must have a field, every value its type."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from msgspec import to_builtins

from tensonde.model.facts import facts_in, upgraded


def misfits(document: dict[str, Any]) -> list[str]:
    """Keys that no record has, and values that are of another type than their field."""
    facts, problems = facts_in(document)
    return [*_unknown(upgraded(document), to_builtins(facts), ""), *map(str, problems)]


def _unknown(given: Any, kept: Any, path: str) -> Iterator[str]:
    if isinstance(given, dict) and isinstance(kept, dict):
        for key, value in given.items():
            if key in kept:
                yield from _unknown(value, kept[key], f"{path}.{key}")
            else:
                yield f"{path}.{key}".removeprefix(".")
    elif isinstance(given, list) and isinstance(kept, list):
        for k, pair in enumerate(zip(given, kept, strict=True)):
            yield from _unknown(*pair, f"{path}[{k}]")
