"""One conversation with an editor: requests in, responses and events out."""

from __future__ import annotations

import contextlib
import logging
import re
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tensonde.dap.breakpoints import FILTERS, RECOMMENDED, Breakpoints, data_wish
from tensonde.dap.debuggee import Debuggee
from tensonde.dap.values import Values, only_looks, said
from tensonde.dap.wire import Broken, Wire
from tensonde.debugger.commands import TABLE
from tensonde.errors import TensondeError, UsageError
from tensonde.protocol.following import Message

Json = dict[str, Any]
log = logging.getLogger("tensonde.dap")
REASONS = {
    "entry": "entry", "breakpoint": "function breakpoint", "line": "breakpoint", "code": "breakpoint", "hit": "data breakpoint",
    "step": "step", "next": "step", "until": "step", "finish": "step", "pause": "pause",
}  # fmt: skip
CAPABILITIES = {
    "supportsConfigurationDoneRequest": True, "supportsFunctionBreakpoints": True, "supportsConditionalBreakpoints": True,
    "supportsDataBreakpoints": True, "supportsEvaluateForHovers": True, "supportsTerminateRequest": True,
    "supportTerminateDebuggee": True, "supportsExceptionInfoRequest": True, "supportsDelayedStackTraceLoading": False,
    "exceptionBreakpointFilters": [
        *({"filter": name, "label": label, "default": on} for name, label, _, on in FILTERS),
        {"filter": RECOMMENDED, "label": "Recommended watchpoints", "default": True},
    ],
}  # fmt: skip
FRAMES = 1000
"""A frame's number is its thread's times this, and its place."""


_FRAMELESS = re.compile(r"(eval|locals)\b\s*(?!@)")


class DebugSession:
    """`converse` blocks until the editor has gone, and ends what was launched."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._debuggee = Debuggee(
            lambda category, text: wire.event("output", category=category, output=text), self._heard
        )
        self._breakpoints = Breakpoints()
        self._values = Values()
        self._stops: dict[int, Json] = {}
        self._told: dict[int, int] = {}
        """By thread, the number of the last stop that the editor was told of."""
        self._telling = threading.Lock()
        self._launched = False
        self._stop_on_entry = True
        self._configured = threading.Event()
        self._over = threading.Lock()
        self._terminated = False
        self._handlers: dict[str, Callable[[Json], Json | None]] = {
            "initialize": self._initialize, "launch": self._launch, "attach": self._attach,
            "configurationDone": self._configuration_done, "threads": self._threads, "stackTrace": self._stack_trace,
            "scopes": self._scopes, "variables": self._variables, "evaluate": self._evaluate,
            "setBreakpoints": self._set_lines, "setFunctionBreakpoints": self._set_functions,
            "dataBreakpointInfo": self._data_info, "setDataBreakpoints": self._set_data,
            "setExceptionBreakpoints": self._set_filters, "exceptionInfo": self._exception_info,
            "continue": self._continue, "pause": self._pause, "stepIn": self._step("nextop"), "next": self._step("next"),
            "stepOut": self._step("step"), "terminate": self._terminate, "disconnect": self._disconnect,
        }  # fmt: skip

    def converse(self) -> None:
        try:
            while True:
                message = self._wire.receive()
                if message is None or self._answer(message) == "disconnect":
                    return
        except Broken as problem:
            log.warning("the editor sent %s", problem)
        finally:
            with contextlib.suppress(TensondeError):
                self._breakpoints.clear()
            self._debuggee.close(terminate=self._launched)

    def _answer(self, message: Json) -> str:
        command = str(message.get("command", ""))
        response: Json = {"type": "response", "request_seq": message.get("seq", 0), "command": command, "success": True}
        handler = self._handlers.get(command)
        try:
            if handler is None:
                raise UsageError(f"Tensonde does not know the request {command!r}.")
            body = handler(message.get("arguments") or {})
            self._wire.send({**response, **({"body": body} if body is not None else {})})
        except TensondeError as problem:
            error = {
                "id": 1,
                "format": str(problem).replace("{", "(").replace("}", ")"),
                "showUser": command in ("launch", "attach"),
            }
            self._wire.send({**response, "success": False, "message": str(problem), "body": {"error": error}})
        except (KeyError, TypeError, ValueError, AttributeError) as problem:
            self._wire.send({**response, "success": False, "message": f"{command} cannot be answered: {problem!r}"})
        if command in ("launch", "attach") and self._debuggee.run:
            self._wire.event("initialized")
        return command

    # -- beginning and end -----------------------------------------------------------------------

    def _initialize(self, arguments: Json) -> Json:
        return CAPABILITIES

    def _launch(self, arguments: Json) -> None:
        self._stop_on_entry = bool(arguments.get("stopOnEntry", False))
        self._launched = True
        self._debuggee.launch(arguments)

    def _attach(self, arguments: Json) -> None:
        self._debuggee.attach(arguments)

    def _configuration_done(self, arguments: Json) -> None:
        standing = [rank for rank in self._debuggee.ranks if rank["stop"] is not None]
        if self._launched and not self._stop_on_entry:
            self._told = {rank["rank"] + 1: rank["stop"]["number"] for rank in standing}  # nobody asked for these
            self._configured.set()
            self._resume_all("continue")
            return
        self._configured.set()
        for rank in standing:
            self._stopped(rank["rank"], rank["stop"])

    def _terminate(self, arguments: Json) -> None:
        self._debuggee.control("terminate")
        for place in self._debuggee.places():
            if place.state()["state"] == "stopped":
                place.control("continue")

    def _disconnect(self, arguments: Json) -> None:
        self._launched = bool(arguments.get("terminateDebuggee", self._launched))

    # -- what the training does ------------------------------------------------------------------

    def _heard(self, message: Message) -> None:
        """In another thread. The first message about a rank is its state: a rank may have stopped before anybody listened."""
        kind = message["type"]
        stop = message["stop"] if kind == "stop" else message["state"].get("stop") if kind == "state" else None
        if stop is not None and self._configured.is_set():
            name = message["rank"]
            found = [rank["rank"] for rank in self._debuggee.run["ranks"] if rank["name"] == name]
            self._stopped(found[0] if found else 0, stop)
        elif kind == "state" and message["state"]["state"] not in ("running", "stopped"):
            if not any(
                rank["state"] in ("running", "stopped")
                for rank in self._debuggee.ranks
                if rank["name"] != message["rank"]
            ):
                self._end()
        elif kind == "exited":
            self._wire.event("exited", exitCode=message["code"])
            self._end()
        elif kind == "gone":
            self._end()

    def _end(self) -> None:
        with self._over:
            if self._terminated:
                return
            self._terminated = True
        self._wire.event("terminated")

    def _stopped(self, rank: int, stop: Json) -> None:
        """Tells the editor, once, however often it is heard of."""
        thread = rank + 1
        with self._telling:
            if stop["number"] <= self._told.get(thread, -1):
                return
            self._told[thread] = stop["number"]
        self._values.forget()
        self._stops[thread] = stop
        reason = REASONS.get(stop["reason"], stop["reason"])
        site = f" at {stop['site']}" if stop["site"] else ""
        text = "; ".join(f"{hit['site']} {hit['condition']}" for hit in stop["hits"]) or f"step {stop['step']}{site}"
        body: Json = {
            "reason": reason,
            "description": f"Paused: {text}",
            "text": text,
            "threadId": thread,
            "allThreadsStopped": False,
        }
        if stop["hits"] or stop["breakpoint"] is not None:
            with contextlib.suppress(TensondeError):
                body["hitBreakpointIds"] = self._breakpoints.hit(stop, self._debuggee.place(thread))
        self._wire.event("stopped", **body)

    # -- looking ---------------------------------------------------------------------------------

    def _threads(self, arguments: Json) -> Json:
        return {"threads": [{"id": rank["rank"] + 1, "name": f"rank {rank['rank']}"} for rank in self._debuggee.ranks]}

    def _stop(self, thread: int) -> Json:
        found = self._stops.get(thread)
        if found is None:
            raise UsageError("the training runs; pause it first.")
        return found

    def _stack_trace(self, arguments: Json) -> Json:
        """The modules, innermost first, at the line that runs; then the Python frames of the user's code."""
        thread = int(arguments["threadId"])
        stop = self._stop(thread)
        source = stop["source"]
        here = (str(Path(source["file"]).absolute()), source["line"]) if source else ("", 0)
        python = stop.get("stack") or []
        if python:
            here = (python[0]["path"], python[0]["line"]) if stop["phase"] != "backward" or not source else here
        file, line = here
        frames = [
            self._frame(name, file, line, "subtle" if k else "normal") for k, name in enumerate(_module_frames(stop))
        ]
        frames += [self._frame(frame["function"], frame["path"], frame["line"]) for frame in python]
        begin = int(arguments.get("startFrame") or 0)
        count = int(arguments.get("levels") or len(frames))
        numbered = [{"id": thread * FRAMES + k, **frame} for k, frame in enumerate(frames)]
        return {"stackFrames": numbered[begin : begin + count], "totalFrames": len(frames)}

    def _frame(self, name: str, file: str, line: int, hint: str = "normal") -> Json:
        shown: Json = {"name": name, "line": line, "column": 0, "presentationHint": hint}
        return {**shown, "source": {"name": Path(file).name, "path": file}} if file else shown

    def _scopes(self, arguments: Json) -> Json:
        frame = int(arguments["frameId"])
        thread, place = divmod(frame, FRAMES)
        stop = self._stop(thread)
        chain = _chain(stop)
        module = chain[place] if place < len(chain) else ""
        return {"scopes": self._values.scopes(self._debuggee.place(thread), module, _python_frame(stop, place))}

    def _variables(self, arguments: Json) -> Json:
        start, count = int(arguments.get("start") or 0), int(arguments.get("count") or 0)
        return {"variables": self._values.variables(int(arguments["variablesReference"]), start, count)}

    def _evaluate(self, arguments: Json) -> Json:
        """A tensor by its address or name, or one of its statistics, or Python; in the console, also a command of the debugger."""
        text = str(arguments["expression"]).strip()
        thread, at = divmod(int(arguments.get("frameId") or 0), FRAMES)
        thread = thread or next(iter(self._stops), 1)
        stop = self._stop(thread)
        place = self._debuggee.place(thread)
        context, frame = arguments.get("context"), _python_frame(stop, at)
        if context == "repl" and frame is not None and _FRAMELESS.match(text):
            text = _FRAMELESS.sub(rf"\1 @{frame} ", text)  # of the frame that is chosen in the editor
        if context == "repl" and TABLE.knows(text.partition(" ")[0]):
            lines, resumed = said(place, text)
            if resumed:
                self._went_on(thread)
            return {"result": "\n".join("".join(line) for line in lines), "variablesReference": 0}
        found = self._values.evaluated(place, text)
        if found is not None:
            return {"result": found[0], "type": "tensor", "variablesReference": found[1]}
        if context == "hover" and not only_looks(text):
            raise UsageError(f"{text} is not evaluated while the mouse rests on it; put it under Watch.")
        if frame is None:
            raise UsageError(f"{text} is no tensor at hand, and no Python of yours is on the stack here.")
        lines, _ = said(place, f"eval @{frame} {text}")
        return {"result": "\n".join("".join(line) for line in lines), "variablesReference": 0}

    def _exception_info(self, arguments: Json) -> Json:
        stop = self._stop(int(arguments["threadId"]))
        hits = [f"{hit['site']}: {hit['condition']} at step {hit['step']}" for hit in stop["hits"]]
        return {
            "exceptionId": stop["hits"][0]["condition"] if stop["hits"] else stop["reason"],
            "description": "; ".join(hits),
            "breakMode": "always",
        }

    # -- breakpoints -----------------------------------------------------------------------------

    def _set_lines(self, arguments: Json) -> Json:
        file = str((arguments.get("source") or {}).get("path") or "")
        wishes = [
            {"file": file, "line": one["line"], "condition": one.get("condition")}
            for one in arguments.get("breakpoints") or []
        ]
        return {"breakpoints": self._breakpoints.replace(f"lines of {file}", wishes, self._debuggee.places())}

    def _set_functions(self, arguments: Json) -> Json:
        wishes = [{"sites": one["name"], "condition": one.get("condition")} for one in arguments["breakpoints"]]
        return {"breakpoints": self._breakpoints.replace("functions", wishes, self._debuggee.places())}

    def _data_info(self, arguments: Json) -> Json:
        name = str(arguments["name"])
        reference = int(arguments.get("variablesReference") or 0)
        address = self._values.address_at(reference, name) if reference else name
        if address is None or ":" not in address:
            return {"dataId": None, "description": f"{name} is no tensor of a scope"}
        return {
            "dataId": address,
            "description": f"{address}, when it has NaN or Inf, or as the condition says",
            "accessTypes": ["write"],
        }

    def _set_data(self, arguments: Json) -> Json:
        wishes = [data_wish(one) for one in arguments["breakpoints"]]
        return {"breakpoints": self._breakpoints.replace("data", wishes, self._debuggee.places())}

    def _set_filters(self, arguments: Json) -> Json:
        self._breakpoints.filters([str(name) for name in arguments["filters"]], self._debuggee.places())
        return {}

    # -- going on --------------------------------------------------------------------------------

    def _went_on(self, thread: int) -> None:
        self._stops.pop(thread, None)
        self._values.forget()

    def _resume_all(self, action: str) -> None:
        for rank in self._debuggee.ranks:
            self._went_on(rank["rank"] + 1)
        self._debuggee.control(action)

    def _continue(self, arguments: Json) -> Json:
        self._resume_all("continue")
        return {"allThreadsContinued": True}

    def _pause(self, arguments: Json) -> None:
        self._debuggee.control("pause")

    def _step(self, action: str) -> Callable[[Json], None]:
        """Ranks may wait for each other, so all of them take the step."""

        def step(arguments: Json) -> None:
            self._stop(int(arguments["threadId"]))
            self._resume_all(action)

        return step


def _chain(stop: Json) -> list[str]:
    """The modules around the stop, innermost first, and before them whatever the tensor belongs to that it stands at."""
    own = str(stop["site"] or "").partition(":")[0].partition("/")[0]
    modules = list(reversed(stop["modules"]))
    return [own, *modules] if own and own not in modules else modules


def _python_frame(stop: Json, place: int) -> int | None:
    """Which of the Python frames a frame of the editor is: that of a module has the innermost. None where there is none."""
    return max(0, place - len(_chain(stop))) if stop.get("stack") else None


def _module_frames(stop: Json) -> list[str]:
    """The first is named with the tensor or op that it stands at."""
    names = [f"module {name}" for name in _chain(stop)]
    at = stop["site"]
    return [f"{at} in {names[0]}", *names[1:]] if at and names else names
