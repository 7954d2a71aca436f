"""An agent that plays a fixed plan: the SDK's own client, over a real server process."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from anyio.from_thread import BlockingPortal, start_blocking_portal
from mcp import Client, StdioServerParameters, stdio_client

from launch import environment
from tensonde.protocol.address import Address

TOKENS = 2000


class Refused(Exception):
    pass


class Agent:
    def __init__(self, portal: BlockingPortal, client: Client) -> None:
        self._portal, self._client = portal, client

    def text(self, tool: str, **arguments: Any) -> str:
        """Raises Refused with the sentence."""
        result = self._portal.call(self._client.call_tool, tool, arguments)
        (content,) = result.content
        if result.is_error:
            raise Refused(content.text)
        return str(content.text)

    def ask(self, tool: str, **arguments: Any) -> dict[str, Any]:
        answer: dict[str, Any] = json.loads(self.text(tool, **arguments))
        assert answer["schema"] >= 1
        return answer

    def tools(self) -> list[Any]:
        return list(self._portal.call(self._client.list_tools).tools)

    def prompts(self) -> list[Any]:
        return list(self._portal.call(self._client.list_prompts).prompts)

    def prompt(self, name: str, **arguments: str) -> str:
        (message,) = self._portal.call(self._client.get_prompt, name, arguments).messages
        return str(message.content.text)

    def resource(self, uri: str) -> Any:
        (content,) = self._portal.call(self._client.read_resource, uri).contents
        return json.loads(content.text)


@contextmanager
def over_stdio(folder: Path, *options: str) -> Iterator[Agent]:
    """`tensonde mcp` as an agent starts it."""
    words = ["-m", "tensonde", "mcp", "--folder", str(folder), *options]
    variables = environment({"XDG_RUNTIME_DIR": str(folder)})
    parameters = StdioServerParameters(command=sys.executable, args=words, env=variables, cwd=folder)
    with _agent(stdio_client(parameters)) as agent:
        yield agent


@contextmanager
def over_http(address: Address) -> Iterator[Agent]:
    """At the hub, with its token."""
    import httpx2
    from mcp.client.streamable_http import streamable_http_client

    made = httpx2.AsyncClient(headers={"Authorization": f"Bearer {address.token}"}, timeout=60, trust_env=False)
    with _agent(streamable_http_client(f"{address.url}/api/mcp", http_client=made)) as agent:
        yield agent


@contextmanager
def _agent(transport: Any) -> Iterator[Agent]:
    with start_blocking_portal() as portal, portal.wrap_async_context_manager(Client(transport)) as client:
        yield Agent(portal, client)
