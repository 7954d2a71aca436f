"""The one client of a hub: for `tensonde attach`, for scripts, for tests. Only the standard library, and websockets for the live messages."""

from __future__ import annotations

import json
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote, urlencode

from tensonde.errors import UsageError
from tensonde.protocol.address import Address
from tensonde.protocol.trust import WrongCertificate, context_for

ANSWER_SECONDS = 60.0


class HubError(UsageError):
    """What the hub answered instead. `status` is HTTP's; 0 where no hub answered."""

    def __init__(self, sentence: str, status: int) -> None:
        super().__init__(sentence)
        self.status = status


class Client:
    """One thread at a time. Every call raises HubError where the hub refuses or is not there."""

    def __init__(self, address: Address, *, timeout: float = ANSWER_SECONDS) -> None:
        self.address, self._timeout = address, timeout
        self._opener: urllib.request.OpenerDirector | None = None

    def get(self, path: str, **query: Any) -> Any:
        given = {name.rstrip("_"): value for name, value in query.items() if value is not None}
        return json.loads(self._call("GET", path + (f"?{urlencode(given)}" if given else "")))

    def post(self, path: str, content: Any = None) -> Any:
        return json.loads(self._call("POST", path, {} if content is None else content))

    def put(self, path: str, content: Any) -> Any:
        return json.loads(self._call("PUT", path, content))

    def delete(self, path: str) -> Any:
        return json.loads(self._call("DELETE", path))

    def _call(self, method: str, path: str, content: Any = None) -> bytes:
        request = urllib.request.Request(
            f"{self.address.url}/api{path}", method=method,
            data=None if content is None else json.dumps(content).encode(),
            headers={"Authorization": f"Bearer {self.address.token}", "Content-Type": "application/json"},
        )  # fmt: skip
        try:
            if self._opener is None:
                # A proxy in the environment must not see what is meant for this machine.
                secure = urllib.request.HTTPSHandler(context=context_for(self.address))
                self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), secure)
            with self._opener.open(request, timeout=self._timeout) as answer:
                body: bytes = answer.read()
                return body
        except urllib.error.HTTPError as refused:
            raise HubError(_sentence(refused), refused.code) from None
        except WrongCertificate as problem:
            raise HubError(str(problem), 0) from None
        except (OSError, ValueError) as problem:
            reason = getattr(problem, "reason", problem)
            raise HubError(
                f"no hub answers at {self.address.url} ({reason}); start one with `tensonde ui`.", 0
            ) from None

    def runs(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.get("/runs")
        return found

    def place(self, run: str, rank: str) -> Remote:
        return Remote(self, run, rank)

    @contextmanager
    def live(self, *places: tuple[str, str]) -> Iterator[Live]:
        """The hub's messages about these places, and about the list of runs."""
        from websockets.exceptions import InvalidStatus
        from websockets.sync.client import connect

        headers = {"Authorization": f"Bearer {self.address.token}"}
        try:
            opening = connect(
                f"{self.address.socket}/api/live",
                additional_headers=headers,
                max_size=None,
                open_timeout=10,
                proxy=None,
                ssl=context_for(self.address),
            )
            with opening as connection:
                messages = Live(connection)
                for run, rank in places:
                    messages.subscribe(run, rank)
                yield messages
        except InvalidStatus as refused:
            raise HubError(
                f"the hub refused ({refused.response.status_code}); is its token right?", refused.response.status_code
            ) from None
        except WrongCertificate as problem:
            raise HubError(str(problem), 0) from None
        except (ConnectionRefusedError, TimeoutError, ssl.SSLError) as problem:
            raise HubError(
                f"no hub answers at {self.address.url} ({problem}); start one with `tensonde ui`.", 0
            ) from None


class Live:
    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def subscribe(self, run: str, rank: str) -> None:
        self._connection.send(json.dumps({"subscribe": {"run": run, "rank": rank}}))

    def send(self, frame: str | bytes) -> None:
        self._connection.send(frame)

    def receive(self, timeout: float | None = None) -> dict[str, Any]:
        """The next message. Raises TimeoutError, and HubError when the hub is gone."""
        from websockets.exceptions import ConnectionClosed

        try:
            message: dict[str, Any] = json.loads(self._connection.recv(timeout))
            return message
        except ConnectionClosed:
            raise HubError("the hub is gone.", 0) from None


class Remote:
    """One place of the hub."""

    def __init__(self, client: Client, run: str, rank: str) -> None:
        self.client, self.run, self.rank = client, run, rank
        self.path = f"/runs/{quote(run, safe='')}/{quote(rank, safe='')}"

    def get(self, what: str, **query: Any) -> Any:
        return self.client.get(f"{self.path}/{what}", **query)

    def post(self, what: str, **content: Any) -> Any:
        return self.client.post(f"{self.path}/{what}", content)

    def state(self) -> dict[str, Any]:
        for run in self.client.runs():
            for rank in run["ranks"]:
                if run["id"] == self.run and rank["name"] == self.rank:
                    found: dict[str, Any] = rank
                    return found
        raise HubError(f"there is no {self.run}/{self.rank} any more.", 404)

    def control(self, action: str, **more: Any) -> dict[str, Any]:
        found: dict[str, Any] = self.post("control", action=action, **more)
        return found

    def command(self, line: str) -> dict[str, Any]:
        found: dict[str, Any] = self.post("command", line=line)
        return found

    def complete(self, text: str) -> dict[str, Any]:
        found: dict[str, Any] = self.post("complete", text=text)
        return found


def _sentence(refused: urllib.error.HTTPError) -> str:
    try:
        return str(json.loads(refused.read())["error"])
    except (ValueError, KeyError, TypeError, OSError):
        return f"the hub answered {refused.code} {refused.reason}."
