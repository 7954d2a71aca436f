"""Lines of the program that set a learning rate, and such that mirror images."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tensonde.program.habits import mirrored_alone, rates_set
from tensonde.program.lines import line_at

MOST = 16


def rates(files: Iterable[str]) -> list[dict[str, Any]]:
    """As facts hold it: each line with the number that it sets, where that stands there."""
    found = [{**line_at(path, number), "value": value} for path in files for number, value in rates_set(path)]
    return sorted(found, key=lambda line: (line["file"], line["line"]))[:MOST]


def mirrored(files: Iterable[str]) -> list[dict[str, Any]]:
    """Lines that mirror one variable by chance, and no other."""
    found = [{"name": name, "line": line_at(path, number)} for path in files for number, name in mirrored_alone(path)]
    return found[:MOST]
