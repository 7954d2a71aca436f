"""The exception that ended a training."""

from __future__ import annotations

from sonde.diagnose.rule import Case, rule
from sonde.model.finding import Finding
from sonde.model.site import SourceLine


@rule("exception")
def exception_findings(case: Case) -> list[Finding]:
    """The training ended with an exception: where the user's code was, and in which module."""
    for event in case.events:
        if event.get("kind") == "exception" and event.get("type") != "KeyboardInterrupt":
            source = event.get("source")
            module = event.get("module")
            where = f" in {module}" if module else ""
            first_line = str(event.get("message", "")).strip().split("\n")[0]
            return [
                Finding(
                    rule="exception",
                    severity="error",
                    title=f"{event['type']}{where}: {first_line[:200]}",
                    advice="The traceback above starts at the user's line; the named module is where it was raised.",
                    step=event.get("step"),
                    phase=event.get("phase"),
                    rank=case.rank.rank,
                    site=f"{module}:out" if module else None,
                    source=SourceLine(source["file"], source["line"], source["code"]) if source else None,
                    evidence={"type": event["type"], "message": event.get("message", "")[:500]},
                    confidence=0.5,
                )
            ]
    return []
