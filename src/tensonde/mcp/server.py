"""The server of the Model Context Protocol, over standard input and output, or mounted in the hub (`mount`)."""

from __future__ import annotations

from pathlib import Path

from mcp.server.mcpserver import MCPServer

from tensonde.mcp.acting import Acting
from tensonde.mcp.bench import Bench
from tensonde.mcp.programs import Programs
from tensonde.mcp.prompts import PROMPTS
from tensonde.mcp.reading import Reading
from tensonde.mcp.tools import described, tools
from tensonde.protocol.address import Address
from tensonde.version import __version__

INSTRUCTIONS = """\
Tensonde watches neural-network trainings (PyTorch, MindSpore) and says what is wrong with them, and at which line.
Begin with run_script (or findings, for a training that was recorded already). Every answer ends with `next`: what to ask next.
Answers are short; max_tokens asks for longer ones, `left_out` says what is missing. A site is `module:out`, `parameter:grad`, `module/op#0:out`, `loss`."""


class Service:
    """One server and what it works on. `close` ends what was started from here."""

    def __init__(self, folder: Path, *, allow_run: bool = False, hub: Address | None = None) -> None:
        self.bench = Bench(folder, allow_run=allow_run, hub=hub)
        self._reading = Reading(self.bench)
        self._programs = Programs(self.bench, self._reading)
        self.tools = tools(self._reading, self._programs, Acting(self.bench, self._programs))
        self.server = self._server()

    def _server(self) -> MCPServer[None]:
        made: MCPServer[None] = MCPServer(
            "tensonde", instructions=INSTRUCTIONS, version=__version__, log_level="ERROR",
            tools=[described(tool) for tool in self.tools],
        )  # fmt: skip
        for function in PROMPTS:
            made.prompt(title=function.__doc__)(function)
        reading = self._reading
        kind = "application/json"
        made.resource("tensonde://runs", mime_type=kind, name="runs", description="the list of runs")(reading.runs_text)
        made.resource("tensonde://runs/{run}/report", mime_type=kind, name="report", description="a run's report")(
            reading.report_of
        )
        made.resource(
            "tensonde://runs/{run}/summary", mime_type=kind, name="summary", description="what a run recorded"
        )(reading.summary_of)
        return made

    def close(self) -> None:
        self._programs.close()
        self.bench.close()


def serve_stdio(folder: Path, *, allow_run: bool, hub: Address | None) -> None:
    """Blocks until standard input ends."""
    service = Service(folder, allow_run=allow_run, hub=hub)
    try:
        service.server.run("stdio")
    finally:
        service.close()
