"""A process that did not come to the end of its program: it crashed in native code, or it was killed."""

from __future__ import annotations

from collections.abc import Iterator

from tensonde.diagnose.case import Case
from tensonde.diagnose.rule import rule
from tensonde.model.finding import Finding
from tensonde.store.ending import FAULT, Ending

_ADVICE = {
    "SIGSEGV": "Native code accessed memory that it does not own.",
    "SIGABRT": "Native code aborted; the reason is usually on standard error, above.",
    "SIGBUS": "Memory was not available: a full /dev/shm (DataLoader workers share tensors there) or a truncated file.",
    "SIGFPE": "Native code divided an integer by zero.",
    "SIGILL": "The processor does not know an instruction: a library was built for a different processor.",
}


@rule("crash", severity="error")
def crashed(case: Case) -> Iterator[Finding]:
    """The process ended by SIGSEGV, SIGABRT, SIGBUS, SIGFPE or SIGILL. The line is the program's innermost one in the
    stack that faulthandler wrote into the recording. Without a stack, it is the last recorded call of a module.

    The process was killed (SIGKILL): this is a warning, because it may have been you. The kernel's out-of-memory
    killer does it, too.
    """
    ending = case.rank.ending
    if ending is None or not (ending.is_crash or ending.signal == "SIGKILL"):
        return
    evidence: dict[str, object] = {"signal": ending.signal}
    if ending.module:
        evidence["last module"] = ending.module
    if ending.stack:
        evidence["stack"] = [str(frame) for frame in ending.stack[:20]]
    yield case.finding(
        f"{ending.how} ended the program{_when(ending)}",
        _advice(ending, case.rank.name),
        severity="error" if ending.is_crash else "warning",
        step=ending.step,
        source=ending.source,
        evidence=evidence,
        confidence=1.0 if ending.stack else 0.8,
    )


def _when(ending: Ending) -> str:
    return " after its training had ended" if ending.at_exit else ""


def _advice(ending: Ending, rank: str) -> str:
    if ending.signal == "SIGKILL":
        last = f" The line is the last call of {ending.module} that was noted." if ending.module else ""
        return (
            "SIGKILL comes from outside: the kernel when memory runs out (dmesg says so), a scheduler's limit, or kill -9."
            f"{last}"
        )
    if ending.stack and ending.stack[0].is_ours:
        return f"It happened inside Tensonde, in {ending.stack[0]}. Please report this, with {rank}/{FAULT} of the recording."
    why = _ADVICE.get(ending.signal, "")
    if ending.stack:
        return f"{why} It happened in {ending.stack[0]}; the whole stack is in {rank}/{FAULT} of the recording."
    return f"{why} The line is the last call of a module that was noted; the stack is where the program's own faulthandler writes, if it is on: standard error, unless it was given a file."
