"""How exceptions are explained: families, each a rule, that read one event and name the cause where the facts leave
no doubt.

The finding of a family stands first; the exception itself, at the line that raised, follows as its consequence. What
no family explains is reported by the rule `exception` alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from msgspec import to_builtins

from tensonde.diagnose.case import Case
from tensonde.diagnose.rule import rule
from tensonde.diagnose.told import backward_line
from tensonde.model.finding import Finding
from tensonde.program.lines import from_json, to_json

Event = Mapping[str, Any]

LAUNCHERS = ("ProcessRaisedException", "ProcessExitedException", "ChildFailedError")
"""How a process that started ranks says that one of them has failed. Its message holds the other's."""


@dataclass(frozen=True, slots=True)
class Cause:
    """What a family found out. `line` is the user's line that must change, as in the event; None: the one that
    raised."""

    title: str
    advice: str
    line: Mapping[str, Any] | None = None
    evidence: Mapping[str, Any] = field(default_factory=dict)
    module: str | None = None
    op: str | None = None
    confidence: float = 0.8


Explain = Callable[[Event], Cause | None]

FAMILIES: list[tuple[str, Explain]] = []


def family(name: str) -> Callable[[Explain], Explain]:
    """Registers a family as a rule of that name; its docstring is the rule's reasoning."""

    def register(explain: Explain) -> Explain:
        FAMILIES.append((name, explain))

        def check(case: Case) -> list[Finding]:
            event = raised(case)
            found = explanation(event) if event is not None else None
            if event is None or found is None or found[0] != name:
                return []
            return [cause_finding(case, event, found[1]), exception_finding(case, event, caused_by=0)]

        check.__doc__ = explain.__doc__
        rule(name, severity="error")(check)
        return explain

    return register


def raised(case: Case) -> dict[str, Any] | None:
    """The exception that ended the training, with what is known of loss scaling until then. One that the user made
    (Ctrl-C) is none."""
    for event in case.events:
        if event.get("kind") == "exception" and event.get("type") not in ("KeyboardInterrupt", "SystemExit"):
            line = backward_line(case)
            return {
                **event,
                "scaling": to_builtins(case.facts.clipping),
                "backward": to_json(line),
            }
    return None


def explanation(event: Event) -> tuple[str, Cause] | None:
    """The first family that recognises the event."""
    if event.get("type") in LAUNCHERS:
        return None
    for name, explain in FAMILIES:
        try:
            cause = explain(event)
        except (KeyError, IndexError, TypeError, ValueError, AttributeError):
            continue  # an event of an older Tensonde, or one whose facts could not be had
        if cause is not None:
            return name, cause
    return None


def cause_finding(case: Case, event: Event, cause: Cause) -> Finding:
    module = cause.module if cause.module is not None else event.get("module")
    return case.finding(
        cause.title,
        cause.advice,
        step=event.get("step"),
        phase=event.get("phase"),
        site=f"{module}:out" if module else None,
        op=cause.op or event.get("op"),
        source=from_json(cause.line) or from_json(event.get("source")),
        evidence={**inputs_of(event), **cause.evidence},
        confidence=cause.confidence,
    )


def exception_finding(case: Case, event: Event, *, caused_by: int | None = None) -> Finding:
    module, kind = event.get("module"), event.get("class")
    where = f" in {module}" if module else ""
    first_line = str(event.get("message", "")).strip().split("\n")[0]
    return case.finding(
        f"{event['type']}{where}: {first_line[:200]}",
        _advice(event) if caused_by is not None else _own_check(event) or _advice(event) + _looked_at(event),
        rule="exception",
        step=event.get("step"),
        phase=event.get("phase"),
        site=f"{module}:out" if module else None,
        op=event.get("op"),
        source=from_json(event.get("source")),
        evidence={
            "type": event["type"],
            "message": str(event.get("message", ""))[:500],
            **({"class": kind} if kind else {}),
            **inputs_of(event),
        },
        confidence=0.5,
        caused_by=caused_by,
    )


def _advice(event: Event) -> str:
    op, kind = event.get("op"), event.get("class")
    shapes = ", ".join(f"{name} {shape_text(fact)}" for name, fact in (event.get("inputs") or {}).items())
    if kind in ("forward op", "backward op") and op:
        return (
            f"`{op}` was given {shapes}; compare with what this line means to pass."
            if shapes
            else f"`{op}` raised here; see the traceback."
        )
    if kind == "data loading":
        data = event.get("data") or {}
        which = f" for item {data['index']}" if "index" in data else ""
        return f"The data set {data.get('dataset', '')} raised this{which}; load that item alone to see it."
    if kind == "optimizer":
        return "The optimizer raised this; compare what it was given with the model's parameters."
    return _own_check(event) or "Raised by the program's own code at this line."


def _own_check(event: Event) -> str:
    """Of a check that stands in the program: its condition, and what the names in it hold."""
    found = event.get("python") or {}
    if found.get("kind") != "own":
        return ""
    shown = ", ".join(f"{name} = {value}" for name, value in list((found.get("values") or {}).items())[:6])
    holds = "does not hold" if found["asserted"] else "holds"
    return (
        f"The program checks this itself: `{found['condition']}` {holds}{f', with {shown}' if shown else ''}. "
        "Change what makes the value, or the check."
    )


def _looked_at(event: Event) -> str:
    """What is left to do where nothing is known of an error but its message: the plain values that the line was given."""
    given = event.get("arguments") or {}
    shown = ", ".join(
        f"{name} = {str(value)[:60]}" for name, value in list(given.items())[:6] if not name[:1].isdigit()
    )
    return f" It was given {shown}." if shown else ""


def inputs_of(event: Event) -> dict[str, str]:
    """`in.weight: [10, 128] float32`, for every tensor that the failing op took; what an optimizer's step was at."""
    found = {f"in.{name}": shape_text(fact) for name, fact in (event.get("inputs") or {}).items()}
    return {**found, **(held_by_step(event["stepping"]) if event.get("stepping") else {})}


def shape_text(fact: Mapping[str, Any]) -> str:
    device = fact.get("device", "cpu")
    return f"{list(fact['shape'])} {fact['dtype']}" + (f" on {device}" if device != "cpu" else "")


def held_by_step(found: Mapping[str, Any]) -> dict[str, str]:
    """The parameter at which an optimizer raised, its gradient and its state."""
    shown = {"parameter": f"{found['parameter'] or 'of no known name'} {shape_text(found['value'])}"}
    if found["gradient"]:
        shown["gradient"] = shape_text(found["gradient"])
    return {**shown, **{f"state.{key}": shape_text(fact) for key, fact in found["state"].items()}}


def message(event: Event) -> str:
    return str(event.get("message", ""))


def innermost(event: Event) -> Mapping[str, Any]:
    """The module that was running."""
    modules = event.get("modules") or [{}]
    found: Mapping[str, Any] = modules[-1]
    return found


def code(line: Mapping[str, Any] | None) -> str:
    return f"`{line['code']}`" if line and line.get("code") else "this line"
