"""What Tensonde has cost, in words: only what was measured is given as a share of a step."""

from __future__ import annotations

from typing import Any

FEWEST = 20
"""Steps that a share is worth saying from."""
UNCLEAR = 0.02
"""A share with a smaller standard error than this is shown as it is; with a larger one, only if the error is less than half of the share."""
START = 0.05
"""Seconds at the start that are worth a word."""


def overhead_text(overhead: dict[str, Any]) -> str:
    """For the summary of a run, empty where there is nothing to say. `overhead` is what session.json holds, of any version."""
    said, asked = _said(overhead), _number(overhead, "experiments_seconds")
    return f"{said} (experiments: {asked:.1f} s)" if said and asked >= START else said


def _said(overhead: dict[str, Any]) -> str:
    ratio, budget = overhead.get("ratio"), overhead.get("budget")
    if not isinstance(ratio, int | float) or not overhead.get("steps_measured", True):  # older recordings do not say
        return ""
    share = max(0.0, ratio - 1)
    allowed = "budget off" if not isinstance(budget, int | float) else f"budget {budget * 100:g} %"
    start = _number(overhead, "start_seconds")
    if overhead.get("measured", True):
        doubt = _number(overhead, "uncertainty")
        if doubt > max(UNCLEAR, share / 2):
            return f"overhead unclear, as steps differ too much: {share * 100:.0f} ± {doubt * 100:.0f} % per step ({allowed})"
        said = f"overhead {share * 100:.1f} %"
        if isinstance(budget, int | float) and share > budget and "ms_per_step" in overhead:
            said += f" = {overhead['ms_per_step']:.2f} ms"
        said += f" per step ({allowed})"
        return f"{said}, after {start:.1f} s at the start" if start >= START else said
    if _number(overhead, "steps_measured") >= FEWEST and (not isinstance(budget, int | float) or share <= budget):
        first = _number(overhead, "first_step_seconds")
        said = f"overhead about {share * 100:.1f} % per step (estimated; {allowed})"
        return f"{said}, first step {first:.1f} s" if first >= START else said
    whole = _number(overhead, "seconds")
    if whole < START:
        return ""
    # The part of the first step that torch needs anyway is unknown, above all where it compiles.
    return f"Tensonde and the framework's own start took about {min(start, whole):.1f} s of the {whole:.1f} s"


def _number(overhead: dict[str, Any], name: str) -> float:
    """0 where it is not known."""
    value = overhead.get(name)
    return float(value) if isinstance(value, int | float) else 0.0
