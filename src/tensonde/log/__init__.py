"""Tensonde's own log: which lines are said, and where they go. On Python's logging; standard output is never touched.

    TENSONDE_LOG=1                   level: 0 debug, 1 info, 2 warning (default), 3 error, 4 critical
    TENSONDE_LOG=watch=0,store=1     per sub-module; with a bare number among them for the rest: 3,watch=0
    TENSONDE_LOG_FILE=tensonde.log      to a file (or into a folder) instead of standard error
    TENSONDE_LOG_FORMAT=json         one JSON object a line
    TENSONDE_LOG_SIZE=10             megabytes before a file is rotated; five old ones are kept

Where these do not say, MindSpore's variables count with their own meaning: GLOG_v, GLOG_logtostderr, GLOG_log_dir and
MS_SUBMODULE_LOG_v.
"""

from __future__ import annotations

import logging
import os
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tensonde.errors import UsageError
from tensonde.log.lines import FileLine, JsonLine, ScreenLine

LEVELS = (logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR, logging.CRITICAL)
NAMES = ("debug", "info", "warning", "error", "critical")
MODULES = ("adapters", "cli", "debugger", "diagnose", "digest", "session", "store", "train", "tune", "watch")
KEPT = 5

MINDSPORE = {"SESSION": "session", "PYNATIVE": "adapters", "DEBUG": "watch", "MD": "adapters"}
"""Sub-modules of MindSpore whose work is done by one of ours; its others say nothing to us."""


@dataclass(frozen=True, slots=True)
class Log:
    """`modules` are levels of their own; `file` None is standard error."""

    level: int = 2
    modules: Mapping[str, int] = field(default_factory=dict)
    file: Path | None = None
    json: bool = False
    megabytes: float = 10.0

    @staticmethod
    def from_environment(environment: Mapping[str, str]) -> Log:
        """Raises UsageError for what cannot be understood in Tensonde's own variables; MindSpore's are MindSpore's."""
        glog = environment.get("GLOG_v", "").strip()
        level = int(glog) if re.fullmatch("[0-4]", glog) else 2
        modules = _mindspore(environment.get("MS_SUBMODULE_LOG_v", ""))
        text = environment.get("TENSONDE_LOG", "")
        for part in filter(None, (part.strip() for part in text.split(","))):
            name, equals, given = part.rpartition("=")
            if equals and name not in MODULES:
                raise UsageError(f"TENSONDE_LOG names {name!r}; the sub-modules are {', '.join(MODULES)}.")
            if equals:
                modules[name] = _level(given, text)
            else:
                level = _level(part, text)
        form = environment.get("TENSONDE_LOG_FORMAT", "text")
        if form not in ("text", "json"):
            raise UsageError(f"TENSONDE_LOG_FORMAT is {form!r}; it may be text or json.")
        return Log(
            level, modules, _file(environment), form == "json", _size(environment.get("TENSONDE_LOG_SIZE", "10"))
        )


def _level(text: str, whole: str) -> int:
    lowered = text.strip().lower()
    if lowered in NAMES:
        return NAMES.index(lowered)
    if re.fullmatch("[0-4]", lowered):
        return int(lowered)
    raise UsageError(f"TENSONDE_LOG is {whole!r}: {text!r} is no level; the levels are 0 (debug) to 4 (critical).")


def _size(text: str) -> float:
    try:
        size = float(text)
    except ValueError:
        size = 0.0
    if not size > 0:
        raise UsageError(f"TENSONDE_LOG_SIZE is {text!r}; it is a number of megabytes.")
    return size


def _mindspore(text: str) -> dict[str, int]:
    """`{WATCH:0,SESSION:1}`."""
    found: dict[str, int] = {}
    for name, level in re.findall(r"(\w+)\s*:\s*([0-4])", text):
        ours = MINDSPORE.get(name.upper(), name.lower())
        if ours in MODULES:
            found[ours] = int(level)
    return found


def _file(environment: Mapping[str, str]) -> Path | None:
    given = environment.get("TENSONDE_LOG_FILE")
    if not given:
        if environment.get("GLOG_logtostderr", "1").strip() != "0":
            return None
        given = environment.get("GLOG_log_dir")
        if not given:
            raise UsageError("GLOG_logtostderr is 0 and GLOG_log_dir is not set; set it to the folder for the log.")
        Path(given).mkdir(parents=True, exist_ok=True)
    path = Path(given).absolute()
    if path.is_dir() or given.endswith(os.sep):
        path = path / "tensonde.log"
    rank = environment.get("RANK", "0")
    return path if rank == "0" else path.with_name(f"{path.stem}.rank{rank}{path.suffix}")


def set_up_log(*, strict: bool = False) -> None:
    """Once a process; unless `strict`, what is wrong is said in a line and the defaults are used."""
    root = logging.getLogger("tensonde")
    if root.handlers:
        return
    problem: Exception | None = None
    try:
        settings = Log.from_environment(os.environ)
        target = _target(settings)
    except (UsageError, OSError) as error:
        if strict:
            if isinstance(error, OSError):
                raise UsageError(f"the log cannot be written: {error}; see TENSONDE_LOG_FILE.") from None
            raise
        problem, settings = error, Log()
        target = _target(settings)
    root.addHandler(target)
    root.setLevel(LEVELS[settings.level])
    root.propagate = False
    for name, level in settings.modules.items():
        logging.getLogger(f"tensonde.{name}").setLevel(LEVELS[level])
    if problem is not None:
        root.warning("%s", problem)


def _target(settings: Log) -> logging.Handler:
    target: logging.Handler
    if settings.file is None:
        target = logging.StreamHandler(sys.stderr)
        target.setFormatter(JsonLine() if settings.json else ScreenLine())
    else:
        from tensonde.log.file import OwnFile  # it brings sockets and pickle, which most processes do not need

        settings.file.parent.mkdir(parents=True, exist_ok=True)
        target = OwnFile(settings.file, maxBytes=int(settings.megabytes * 1e6), backupCount=KEPT, delay=True)
        target.setFormatter(JsonLine() if settings.json else FileLine())
    return target
