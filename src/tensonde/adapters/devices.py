"""What can be had of a PyTorch training on which device, and what of that has ever run. Nothing is imported here.

`python -m tensonde.adapters.capabilities` writes the table into docs/frameworks.md; `tensonde doctor` says it for the device that is there.
"""

from __future__ import annotations

from typing import Literal

State = Literal["yes", "untested", "no"]
"""`yes`: it has run there, or on the stand-in accelerator of the tests, which is a device like `other`. `untested`: it is written and has not run there."""
Device = Literal["cpu", "cuda", "rocm", "xpu", "mps", "other"]
Ability = Literal[
    "digests", "unwaited", "kernels", "replay", "experiments", "data", "blocking", "memory", "streams", "several",
    "autocast", "graphs", "compiled", "float8",
]  # fmt: skip

NAMES: dict[Device, str] = {
    "cpu": "CPU",
    "cuda": "CUDA",
    "rocm": "ROCm",
    "xpu": "XPU",
    "mps": "MPS",
    "other": "others (the stand-in)",
}
MEANING: dict[Ability, str] = {
    "digests": "digests, watchpoints, stops, dump",
    "unwaited": "a step never waits for Tensonde",
    "kernels": "digests by Tensonde's own kernels (C, Triton)",
    "replay": "a step that went wrong is rerun, and the op and line are named",
    "experiments": "experiments: a step is recomputed with one thing changed",
    "data": "findings that read the values of data and parameters",
    "blocking": "`--blocking`; late errors are traced to their op",
    "memory": "`check --memory`; out-of-memory errors are explained",
    "streams": "streams other than the default one",
    "several": "several devices in one process",
    "autocast": "autocast and GradScaler",
    "graphs": "values inside captured graphs (`torch.cuda.graph`)",
    "compiled": "values inside compiled code",
    "float8": "digests of float8",
}
_UNTESTED: dict[Ability, State] = dict.fromkeys(MEANING, "untested")
_NOWHERE: dict[Ability, State] = {"graphs": "no"}
ABILITIES: dict[Device, dict[Ability, State]] = {
    "cpu": {**dict.fromkeys(MEANING, "yes"), "streams": "no", "several": "no", "graphs": "no"},
    "cuda": {**_UNTESTED, **_NOWHERE},
    "rocm": {**_UNTESTED, **_NOWHERE},
    "xpu": {**_UNTESTED, **_NOWHERE},
    "mps": {**_UNTESTED, **_NOWHERE, "kernels": "no", "streams": "no", "several": "no", "unwaited": "no"},
    "other": {**dict.fromkeys(MEANING, "yes"), **_NOWHERE, "kernels": "no", "compiled": "untested"},
}


def of_type(kind: str, *, hip: bool = False) -> Device:
    """Of torch's name for it; ROCm's devices are called cuda."""
    if kind == "cuda":
        return "rocm" if hip else "cuda"
    found: dict[str, Device] = {"cpu": "cpu", "xpu": "xpu", "mps": "mps"}
    return found.get(kind, "other")


def lacks(device: Device, state: State = "no") -> list[str]:
    """What cannot be had there, or what has not run there."""
    return [MEANING[ability] for ability, found in ABILITIES[device].items() if found == state]


def table() -> str:
    head = f"| | {' | '.join(NAMES.values())} |\n|---|{'---|' * len(NAMES)}\n"
    rows = [
        f"| {text} | {' | '.join(ABILITIES[name][ability] for name in NAMES)} |\n" for ability, text in MEANING.items()
    ]
    return head + "".join(rows)
