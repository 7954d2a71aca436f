"""Watchpoints from text: `'SITE CONDITION'` on the command line, `[[watch]]` entries in tensonde.toml."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, get_args

from tensonde.errors import SyntaxProblem, UsageError
from tensonde.model.watchpoint import Action, Watchpoint
from tensonde.watch import conditions
from tensonde.watch.pattern import Pattern

EXAMPLE = "'**:grad norm > 1e3'"
KEYS = ("sites", "condition", "on_hit")


def watchpoint(
    text: str, *, id: int, action: Action = "report", origin: Literal["user", "recommended"] = "user"
) -> Watchpoint:
    """The first space parts the sites from the condition; raises SyntaxProblem with a position in `text`."""
    lead = len(text) - len(text.lstrip())
    words = text.split(maxsplit=1)
    if not words:
        raise SyntaxProblem(
            "the watchpoint is empty", text=text, position=0, hint=f"write sites and a condition: {EXAMPLE}"
        )
    if len(words) == 1:
        _explain_single(text, words[0], lead)
    sites, condition = words[0], words[1].rstrip()
    if _is_operator(condition):
        raise SyntaxProblem(
            "the sites are missing", text=text, position=lead, hint=f"write '** {text.strip()}' for all sites"
        )
    start = text.index(condition, lead + len(sites))
    for check, part, at in ((Pattern.parse, sites, lead), (conditions.parse, condition, start)):
        try:
            check(part)
        except SyntaxProblem as problem:
            raise _shifted(problem, text, at) from None
    return _reporting(Watchpoint(id, sites, condition, action, origin))


def _reporting(point: Watchpoint) -> Watchpoint:
    if point.action != "report" and conditions.parse(point.condition).across:
        raise UsageError(
            f"{point.condition!r} compares ranks, which is done when their step is over: it can report, not {point.action}"
        )
    return point


def _is_operator(condition: str) -> bool:
    """A condition that begins like the right half of one: the sites were forgotten."""
    return re.match(r"(<|>|==|!=|\*|/|\+|(and|or)\b)", condition) is not None


def _explain_single(text: str, word: str, lead: int) -> None:
    try:
        conditions.parse(word)
    except SyntaxProblem:
        raise SyntaxProblem(
            "the condition is missing",
            text=text,
            position=len(text.rstrip()),
            hint=f"write sites and a condition: {EXAMPLE}",
        ) from None
    raise SyntaxProblem(
        f"the sites or the condition is missing: {word} is only one of them",
        text=text, position=lead, hint=f"write '** {word}' for all sites",
    )  # fmt: skip


def _shifted(problem: SyntaxProblem, text: str, by: int) -> SyntaxProblem:
    message = str(problem).partition("\n")[0].removesuffix(f" ({problem.hint})")
    return SyntaxProblem(message, text=text, position=min(by + problem.position, len(text)), hint=problem.hint)


def entries(watch: Any, *, file: str, first_id: int = 1) -> list[Watchpoint]:
    """The watchpoints of the parsed `watch` list of a file; errors name the file and the entry."""
    if not isinstance(watch, Sequence) or isinstance(watch, str):
        raise UsageError(f"{file}: watch is a list of tables, so write [[watch]]")
    return [_entry(entry, f"{file}: watch entry {i + 1}", first_id + i) for i, entry in enumerate(watch)]


def _entry(entry: Any, where: str, id: int) -> Watchpoint:
    if not isinstance(entry, Mapping):
        raise UsageError(f"{where} is not a table; write [[watch]] and below it sites, condition")
    for key in entry:
        if key not in KEYS:
            raise UsageError(f"{where} has an unknown key {key!r}; it can have {', '.join(KEYS)}")
    for key in ("sites", "condition"):
        if not isinstance(entry.get(key), str):
            example = "**:grad" if key == "sites" else "nan or inf"
            raise UsageError(f'{where} has no {key} as text; write {key} = "{example}"')
    action = entry.get("on_hit", "report")
    if action not in get_args(Action):
        raise UsageError(f"{where} has on_hit {action!r}; it is one of {', '.join(get_args(Action))}")
    for check, key in ((Pattern.parse, "sites"), (conditions.parse, "condition")):
        try:
            check(entry[key])
        except SyntaxProblem as problem:
            message = str(problem).partition("\n")[0].removesuffix(f" ({problem.hint})")
            raise SyntaxProblem(
                f"{where}, {key}: {message}", text=problem.text, position=problem.position, hint=problem.hint
            ) from None
    return _reporting(Watchpoint(id, entry["sites"], entry["condition"], action))


def loads(text: str, *, file: str = "tensonde.toml", first_id: int = 1) -> list[Watchpoint]:
    """The watchpoints in the text of a tensonde.toml; its other keys belong to others."""
    try:
        content = tomllib.loads(text)
    except tomllib.TOMLDecodeError as problem:
        raise UsageError(f"{file} is not TOML: {problem}") from None
    return entries(content.get("watch", []), file=file, first_id=first_id)


def load(path: str | Path, *, first_id: int = 1) -> list[Watchpoint]:
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as problem:
        raise UsageError(f"{path} cannot be read: {problem}") from None
    return loads(text, file=str(path), first_id=first_id)
