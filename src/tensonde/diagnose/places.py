"""One problem in many places is one finding: the same in every layer, on every rank, or again and again over the steps."""

from __future__ import annotations

import re
from collections.abc import Hashable
from dataclasses import replace

from tensonde.diagnose.told import some
from tensonde.model.finding import Finding, Place

_DOTTED = re.compile(r"[A-Za-z_]\w*(?:\.\w+)+")
_NUMBER = re.compile(r"\d[\d.,]*(?:e[+-]?\d+)?")


def gathered(findings: list[Finding]) -> list[Finding]:
    """The findings, those that say the same joined into the first of them, which names all `places`. Indices are mended.

    The same is: the same rule and severity, and a title that differs in the name of the site only. The numbers in the title
    may differ, too, where it is another site at the same source line, or the same site on another rank.
    """
    groups: list[list[int]] = []
    by_key: dict[Hashable, int] = {}
    target: list[int] = []
    for index, finding in enumerate(findings):
        exact, loose = _keys(finding)
        group = by_key.get(exact)
        here = finding.rank, finding.site
        for key in loose:
            found = by_key.get(key) if group is None else None
            if found is not None and all((findings[k].rank, findings[k].site) != here for k in groups[found]):
                group = found
        if group is None:
            group = len(groups)
            groups.append([])
        groups[group].append(index)
        target.append(group)
        for key in (exact, *loose):
            by_key.setdefault(key, group)
    return [_joined([findings[k] for k in members], number, target) for number, members in enumerate(groups)]


def _keys(finding: Finding) -> tuple[Hashable, list[Hashable]]:
    """What must be equal; and what may be equal instead."""
    title = finding.title
    if finding.site is not None:
        title = title.replace(finding.site.rpartition(":")[0], "@")
    title = _DOTTED.sub("@", title)
    about = finding.rule, finding.severity, finding.caused_by is None
    blurred = about, _NUMBER.sub("#", title)
    loose: list[Hashable] = [(blurred, finding.site)]
    if finding.source is not None:
        loose.append((blurred, finding.source.file, finding.source.line))
    return (about, finding.rank, title), loose


def _joined(found: list[Finding], own: int, target: list[int]) -> Finding:
    cause = found[0].caused_by
    group = None if cause is None or target[cause] == own else target[cause]
    kept = replace(found[0], caused_by=group)
    if len(found) == 1:
        return kept
    return replace(kept, places=tuple(Place(f.rank, f.site, f.step, f.phase, f.source) for f in found))


def places_line(finding: Finding) -> str:
    """`at 0.weight, 1.weight, 2.weight and 4 more; on ranks 0, 1; from step 3 to 99`."""
    sites = list(dict.fromkeys(place.site for place in finding.places if place.site))
    ranks = sorted({place.rank for place in finding.places})
    steps = [place.step for place in finding.places if place.step is not None]
    parts = [f"at {some(sites)}"] if sites else []
    if len(ranks) > 1:
        parts.append(f"on ranks {some(map(str, ranks), 8)}")
    if steps and max(steps) > min(steps):
        parts.append(f"from step {min(steps)} to {max(steps)}")
    return "; ".join(parts)
