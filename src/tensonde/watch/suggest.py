"""Which addresses a pattern that matched nothing may have meant."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable

_CUT = re.compile(r"[./:]+")
_GLOBS = re.compile(r"[*?{}\[\],]+")


def nearest(text: str, addresses: Iterable[str], count: int = 3) -> list[str]:
    """The addresses most like `text`, best first: like it as a whole, or with the same segments in order."""
    wanted = _GLOBS.sub("", text).lower()
    parts = [part for part in _CUT.split(wanted) if part]
    if not parts:
        return []
    matcher = difflib.SequenceMatcher(autojunk=False)
    matcher.set_seq2(wanted)
    scored: list[tuple[float, str]] = []
    for address in addresses:
        score = _path_score(parts, address.lower())
        matcher.set_seq1(address.lower())
        if matcher.real_quick_ratio() > max(score, 0.6) and matcher.quick_ratio() > max(score, 0.6):
            score = max(score, matcher.ratio())
        if score > 0.6:
            scored.append((score, address))
    scored.sort(key=lambda pair: (-pair[0], len(pair[1]), pair[1]))
    return [address for _, address in scored[:count]]


def _path_score(parts: list[str], address: str) -> float:
    """How many of `parts` the address has as segments, in order; a part may also begin or end a segment."""
    segments = [part for part in _CUT.split(address) if part]
    got, at = 0.0, 0
    for part in parts:
        for j in range(at, len(segments)):
            if segments[j] == part or (len(part) > 2 and part in segments[j]):
                got += 1.0 if segments[j] == part else 0.7
                at = j + 1
                break
    return 0.95 * got / len(parts)
