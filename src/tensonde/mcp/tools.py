"""The table of tools: their names, whether they change something, and the answers' way out."""

from __future__ import annotations

import functools
import inspect
import json
from collections.abc import Callable
from typing import Annotated, Any, NamedTuple

from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.mcpserver.tools import Tool as AnyTool
from mcp.types import CallToolResult, TextContent, ToolAnnotations
from pydantic import Field, ValidationError

from tensonde.errors import TensondeError
from tensonde.mcp.acting import Acting
from tensonde.mcp.answer import MOST_TOKENS, TOKENS, Answer
from tensonde.mcp.programs import Programs
from tensonde.mcp.reading import Reading

Tokens = Annotated[int, Field(ge=200, le=MOST_TOKENS, description="how long the answer may be")]


class Tool(NamedTuple):
    function: Callable[..., Answer]
    reads: bool
    """Whether it changes nothing and starts nothing."""

    @property
    def name(self) -> str:
        return str(self.function.__name__)


def tools(reading: Reading, programs: Programs, acting: Acting) -> list[Tool]:
    """In the order in which somebody needs them who knows nothing yet."""
    return [
        Tool(programs.run_script, False),
        Tool(programs.check_script, False),
        Tool(reading.list_runs, True),
        Tool(reading.findings, True),
        Tool(reading.show_run, True),
        Tool(reading.digests, True),
        Tool(reading.query, True),
        Tool(reading.trace, True),
        Tool(reading.node, True),
        Tool(reading.tensors, True),
        Tool(reading.tensor, True),
        Tool(reading.source, True),
        Tool(reading.compare_runs, True),
        Tool(programs.replay, False),
        Tool(programs.start_script, False),
        Tool(acting.state, True),
        Tool(acting.control, False),
        Tool(acting.watchpoints, True),
        Tool(acting.watch, False),
        Tool(acting.unwatch, False),
        Tool(acting.recheck, True),
        Tool(acting.set_breakpoint, False),
        Tool(acting.remove_breakpoint, False),
        Tool(acting.debugger, False),
    ]


def answering(function: Callable[..., Answer]) -> Callable[..., CallToolResult]:
    """The function as the protocol wants it: with `max_tokens`, and refusals as results that say so."""

    @functools.wraps(function)
    def call(*args: Any, max_tokens: int = TOKENS, **given: Any) -> CallToolResult:
        try:
            content = function(*args, **given).fitted(max_tokens)
        except TensondeError as problem:
            return CallToolResult(content=[TextContent(type="text", text=str(problem))], is_error=True)
        text = json.dumps(content, ensure_ascii=False)
        return CallToolResult(content=[TextContent(type="text", text=text)], structured_content=content)

    signature = inspect.signature(function, eval_str=True)
    more = inspect.Parameter("max_tokens", inspect.Parameter.KEYWORD_ONLY, default=TOKENS, annotation=Tokens)
    shown = signature.replace(parameters=[*signature.parameters.values(), more], return_annotation=CallToolResult)
    call.__signature__ = shown  # type: ignore[attr-defined]
    call.__annotations__ = {
        "return": CallToolResult,
        **{name: one.annotation for name, one in shown.parameters.items()},
    }
    return call


class Described(AnyTool):
    """Refuses what the tool does not take: an argument that is passed over gives an answer to another question."""

    async def run(self, arguments: dict[str, Any], *args: Any, **given: Any) -> Any:
        known = list(self.parameters["properties"])
        unknown = [name for name in arguments if name not in known]
        if unknown:
            raise ToolError(f"{self.name} has no argument {', '.join(unknown)}; it takes {', '.join(known)}.")
        try:
            return await super().run(arguments, *args, **given)
        except ToolError as problem:
            if isinstance(problem.__cause__, ValidationError):
                raise ToolError(_wrong(self.name, problem.__cause__)) from None
            raise


def _wrong(tool: str, problem: ValidationError) -> str:
    """Which arguments are wrong and why, in one line."""
    wrong = (
        f"{'.'.join(map(str, error['loc']))} is {error['input']!r:.100}: {error['msg']}"
        if error["type"] != "missing"
        else f"{error['loc'][0]} is missing"
        for error in problem.errors()
    )
    return f"{tool}: {'; '.join(wrong)}."


def described(tool: Tool) -> Described:
    """As clients list it. An agent reads all of them before its first question, so they are short: no titles that repeat names."""
    hints = ToolAnnotations(read_only_hint=tool.reads, open_world_hint=False)
    made = Described.from_function(answering(tool.function), annotations=hints)
    made.parameters = {**_untitled(made.parameters), "additionalProperties": False}
    assert isinstance(made, Described)
    return made


def _untitled(schema: Any) -> Any:
    if isinstance(schema, dict):
        return {
            key: _untitled(value) for key, value in schema.items() if not (key == "title" and isinstance(value, str))
        }
    return [_untitled(one) for one in schema] if isinstance(schema, list) else schema
