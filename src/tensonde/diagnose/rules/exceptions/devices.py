"""Errors of devices: those that are reported late, and ops that a device does not have."""

from __future__ import annotations

import re

from tensonde.diagnose.exceptions import Cause, Event, code, family


@family("late-device-error")
def late_device_error(event: Event) -> Cause | None:
    """A device works asynchronously, so its error appears where the program next waits for it, at an unrelated line.
    Tensonde reruns the step and waits for the device after every op; the finding names the op that fails. If the
    device cannot be used after its error, as with CUDA, or the step is gone, the finding says how to get there.
    """
    found = event.get("late")
    if found is None:
        return None
    if found.get("op"):
        where = f" of {found['module']}" if found.get("module") else ""
        said = str(found.get("error", "")).split("\n")
        return Cause(
            title=f"`{found['op']}`{where} failed on the device in step {found['step']}; the error appeared later, at {code(event.get('source'))}",
            advice=f"The device said: {next((text for text in said if 'assert triggered' not in text), said[0])[:200]}",
            line=found["line"],
            module=found.get("module"),
            op=found["op"],
            confidence=0.9,
        )
    why = "the device cannot be used any more" if found["lost"] else "the step could not be run again"
    return Cause(
        title="an op failed on the device before this line, where the program only waited for it",
        advice=f"Run it again with `tensonde run --blocking`: then the error appears at its line ({why}).",
        confidence=0.6,
    )


_MINDSPORE_LACKS = re.compile(r"The kernel (\w+) unregistered|Unsupported op \[(\w+)\] on \w+")
_TORCH_LACKS = re.compile(
    r"Could not run '(?:\w+::)?(\w+)(?:\.\w+)?' with arguments from the '(\w+)' backend|"
    r"The operator '(?:\w+::)?(\w+)(?:\.\w+)?' is not currently implemented for the (\w+) device"
)


@family("op-not-on-device")
def op_not_on_device(event: Event) -> Cause | None:
    """The framework has the op in its Python API, but no code for it on this device, or for this kind of tensor.
    Nothing is wrong with the shapes and values at this line, so the finding says what to call instead, or where to
    compute it.
    """
    message = event.get("message", "")
    if lacks := _MINDSPORE_LACKS.search(message):
        op = lacks[1] or lacks[2]
        return Cause(
            title=f"MindSpore has no code for `{op}` on this device",
            advice="Call the same op or layer of `mindspore.ops` or `mindspore.nn` instead (many of `mindspore.mint` exist for Ascend only), or train on a "
            "device that has it.",
            op=op,
            confidence=0.9,
        )
    if lacks := _TORCH_LACKS.search(message):
        op, kind = lacks[1] or lacks[3], lacks[2] or lacks[4]
        return Cause(
            title=f"PyTorch has no code for `{op}` on {kind} tensors",
            advice="Convert the tensor before this line (`.to_dense()`, `.dequantize()`, `.to(...)`), or compute this op on the CPU.",
            op=op,
            confidence=0.8,
        )
    return None
