"""What may be asked of a stopped training: its tensors, its breakpoints, how a command may go on."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import numpy as np

from tensonde.errors import UsageError
from tensonde.model.stop import Stop
from tensonde.protocol.messages import Request
from tensonde.session.inspector import Inspector
from tensonde.session.serving.answers import Answers
from tensonde.session.serving.commands import Commands

LARGEST_PART = 8 << 20


class Questions:
    """In the training thread. Raises TensondeError with what is wrong with a question."""

    def __init__(self, inspector: Inspector, commands: Commands, answers: Answers) -> None:
        self._inspector, self._commands, self._answers = inspector, commands, answers

    def answer(self, request: Request, stop: Stop) -> None:
        if request.kind == "tensor":
            self._answers.give(request, *self._tensor(request.arguments, stop))
        else:
            self._answers.give(request, self._found(request.kind, request.arguments))

    def _found(self, kind: str, given: dict[str, Any]) -> Any:
        inspector, gate = self._inspector, self._inspector.session.gate
        if kind == "complete":
            text = str(given.get("text", ""))
            length, options = self._commands.complete(text)
            return {"start": len(text) - length, "options": options[:200]}
        if kind == "assign":
            index = index_in(given.get("index") or [])
            return {"message": inspector.assign(str(given["address"]), index, float(given["value"]))}
        if kind == "shape":
            shape, dtype = inspector.shape(str(given["address"]), before=bool(given.get("before")))
            return {"shape": list(shape), "dtype": dtype}
        if kind == "tensors":
            return inspector.addresses()
        if kind == "break":
            words = {name: given[name] for name in ("sites", "file", "line", "condition", "once") if given.get(name)}
            return asdict(gate.add_breakpoint(**words))
        if kind == "unbreak":
            if not gate.remove_breakpoint(int(given["id"])):
                raise UsageError(
                    f"there is no breakpoint {given['id']}; there are: {', '.join(map(str, gate.breakpoints)) or 'none'}."
                )
            return {}
        raise UsageError(f"{kind!r} is not known here; use the same version of Tensonde on both sides.")

    def _tensor(self, given: dict[str, Any], stop: Stop) -> tuple[dict[str, Any], bytes]:
        before, index = bool(given.get("before")), index_in(given.get("index") or [])
        value = self._inspector.value(str(given["address"]), before=before, index=index)
        array = np.ascontiguousarray(value.array)
        if array.nbytes > LARGEST_PART:
            raise UsageError(f"{array.nbytes} bytes are too many for one answer; {LARGEST_PART} are the most.")
        facts = {
            "address": value.address, "shape": list(array.shape), "numpy": array.dtype.str, "dtype": value.dtype,
            "note": value.note, "step": stop.moment.step if value.step is None else value.step,
        }  # fmt: skip
        return facts, array.tobytes()


def index_in(parts: list[Any]) -> tuple[Any, ...]:
    """Numbers, and [start, stop, step] for slices."""
    return tuple(slice(*part) if isinstance(part, list) else int(part) for part in parts)
