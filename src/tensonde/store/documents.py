"""Reading the JSON files of a recording, line by line, so that a damaged line costs only itself."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

Read = TypeVar("Read")


def read_json(path: Path, kind: type[Read]) -> Read:
    """The JSON value in a file, which must be a `kind`. Raises OSError or ValueError."""
    try:
        content = json.loads(path.read_bytes())
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    if not isinstance(content, kind):
        raise ValueError(f"it holds a {type(content).__name__} where a {kind.__name__} belongs")
    return content


def json_lines(path: Path, problem: Callable[[str], None]) -> list[dict[str, Any]]:
    """Every whole JSON object of the file; the rest is told to `problem`. A missing file is empty. Never
    raises."""
    return json_objects(path, dict, problem)


def json_objects(path: Path, decode: Callable[[dict[str, Any]], Read], problem: Callable[[str], None]) -> list[Read]:
    """`decode` of every whole JSON object of the file. As `json_lines`."""
    where = f"{path.parent.name}/{path.name}"
    try:
        lines = path.read_bytes().split(b"\n")
    except FileNotFoundError:
        return []
    except OSError as error:
        problem(f"{where} cannot be read: {error}")
        return []
    found: list[Read] = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            found.append(decode(json.loads(line)))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError) as error:
            if number == len(lines):
                problem(f"{where} ends in a line that was cut off; it is left out")
            else:
                problem(f"{where} line {number} cannot be read ({error!r}); it is left out")
    return found
