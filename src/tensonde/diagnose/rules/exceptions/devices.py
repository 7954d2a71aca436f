"""Errors of devices that are reported late."""

from __future__ import annotations

from tensonde.diagnose.exceptions import Cause, Event, code, family


@family("late-device-error")
def late_device_error(event: Event) -> Cause | None:
    """A device works behind the program, and its error surfaces where the program next waits for it, at a line that has nothing to do with it. The step
    is run again, waiting for the device after every op; the finding names the op that fails. Where the device cannot be used after its error, as with CUDA,
    or the step is gone, it says how to get there."""
    found = event.get("late")
    if found is None:
        return None
    if found.get("op"):
        where = f" of {found['module']}" if found.get("module") else ""
        said = str(found.get("error", "")).split("\n")
        return Cause(
            title=f"`{found['op']}`{where} failed on the device in step {found['step']}; the error surfaced later, at {code(event.get('source'))}",
            advice=f"The device said: {next((text for text in said if 'assert triggered' not in text), said[0])[:200]}",
            line=found["line"],
            module=found.get("module"),
            op=found["op"],
            confidence=0.9,
        )
    why = "the device cannot be used any more" if found["lost"] else "the step could not be run again"
    return Cause(
        title="an op failed on the device before this line, where the program only waited for it",
        advice=f"Run it again with `tensonde run --blocking`, and the error surfaces at its line ({why}).",
        confidence=0.6,
    )
