"""Entries of a source by site patterns and steps."""

from __future__ import annotations

from tensonde.errors import TensondeError, UsageError
from tensonde.model.site import Kind, Role, Site
from tensonde.session.dump.iterations import parse_iterations, wanted
from tensonde.store.sources import Entry
from tensonde.watch.pattern import Pattern


def chosen(entries: list[Entry], sites: tuple[str, ...], steps: str | None) -> list[Entry]:
    """Raises UsageError for a pattern or steps that cannot be read."""
    try:
        patterns = [Pattern.parse(text) for text in sites]
    except TensondeError as problem:
        raise UsageError(f"--site: {problem}") from None
    if patterns:
        entries = [entry for entry in entries if any(_matches(pattern, entry) for pattern in patterns)]
    if steps is not None:
        ranges = parse_iterations(steps, key="--steps")
        entries = [entry for entry in entries if wanted(ranges, entry.step)]
    return entries


def _matches(pattern: Pattern, entry: Entry) -> bool:
    if entry.role not in tuple(Role):
        return False
    return pattern.matches(Site(0, entry.name, Role(entry.role), Kind.MODULE, entry.index))
