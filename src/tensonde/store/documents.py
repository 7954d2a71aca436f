"""Reading the JSON files of a recording, line by line, so that a damaged line costs only itself."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from tensonde.store.damage import read_file, reason

Read = TypeVar("Read")


def read_json(path: Path, kind: type[Read]) -> Read:
    """The JSON value in a file, which must be a `kind`. Raises OSError or ValueError."""
    content = read_text(read_file(path))
    if not isinstance(content, kind):
        raise ValueError(f"it holds a {type(content).__name__} where a {kind.__name__} belongs")
    return content


def read_text(text: str | bytes) -> Any:
    """The JSON value of a text. Raises ValueError."""
    try:
        return json.loads(text)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def json_lines(path: Path, problem: Callable[[str], None]) -> list[dict[str, Any]]:
    """Every whole JSON object of the file; `problem` gets a sentence about the rest. A missing file is empty. Never
    raises."""
    return json_objects(path, dict, problem)


def json_objects(path: Path, decode: Callable[[dict[str, Any]], Read], problem: Callable[[str], None]) -> list[Read]:
    """`decode` of every whole JSON object of the file. As `json_lines`."""
    where = f"{path.parent.name}/{path.name}"
    try:
        lines = read_file(path).split(b"\n")
    except FileNotFoundError:
        return []
    except OSError as error:
        problem(f"{where} cannot be read: {reason(error)}")
        return []
    found: list[Read] = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            found.append(decode(json.loads(line)))
        except Exception as error:  # any text may stand there
            if number == len(lines):
                problem(f"{where} ends in a line that was cut off; it is left out")
            else:
                problem(f"{where} line {number} cannot be read ({reason(error)}); it is left out")
    return found
