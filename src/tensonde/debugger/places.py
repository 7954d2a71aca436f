"""FILE:LINE: which file is meant, and whether that line can be stopped at."""

from __future__ import annotations

import difflib
import os
import re
import sys
from collections.abc import Iterator

from tensonde.errors import UsageError
from tensonde.model.stop import Stop
from tensonde.session.lines import check_line

_PLACE = re.compile(r"(?:(?P<file>[^:]+):)?(?P<line>\d+)")


def parse_place(text: str, stop: Stop) -> tuple[str, int] | None:
    """The file and line that `train.py:42`, or `42` in the current file, mean; None if it is no place."""
    match = _PLACE.fullmatch(text.strip())
    if match is None:
        if re.fullmatch(r"[^:*]+\.py(:.*)?", text.strip()):
            raise UsageError(f"{text!r} needs a line number after the file, e.g. {text.partition(':')[0]}:42.")
        return None
    if match["file"] is None:
        if stop.frame is None:
            raise UsageError(f"line {match['line']} of which file? Give FILE:{match['line']}.")
        file = stop.frame.f_code.co_filename
    else:
        file = find_file(match["file"], stop)
    line = int(match["line"])
    check_line(file, line)
    return file, line


def find_file(name: str, stop: Stop) -> str:
    """As given, else beside the code that runs, else a loaded module's file that ends like it."""
    if os.path.isfile(name):
        return os.path.abspath(name)
    files = list(known_files(stop))
    if not os.path.isabs(name):
        for file in files:
            beside = os.path.join(os.path.dirname(file), name)
            if os.path.isfile(beside):
                return os.path.abspath(beside)
        for file in files:
            if file.endswith(os.sep + name):
                return file
    close = difflib.get_close_matches(os.path.basename(name), {os.path.basename(f) for f in files}, n=1, cutoff=0.5)
    hint = f"; did you mean {close[0]}?" if close else "; give the path from where the training was started."
    raise UsageError(f"there is no file {name!r}{hint}")


def known_files(stop: Stop) -> Iterator[str]:
    """Files of the user's stack, innermost first, then of the loaded modules."""
    seen = set()
    frame = stop.frame
    while frame is not None:
        path = os.path.abspath(frame.f_code.co_filename)
        if path not in seen and os.path.isfile(path):
            seen.add(path)
            yield path
        frame = frame.f_back
    for module in list(sys.modules.values()):
        path = getattr(module, "__file__", None) or ""
        if path.endswith(".py") and path not in seen:
            seen.add(path)
            yield path
