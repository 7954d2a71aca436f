"""Requests that no browser sends: each gets an answer that is not the hub's failure, and none keeps a connection open."""

from __future__ import annotations

import http.client
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hub_drive import HubProcess

from tensonde.server import patience
from tensonde.server.serve import serve

TOKEN = "a-token-of-the-tests"


@pytest.fixture(scope="module")
def there(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubProcess]:
    made = HubProcess(tmp_path_factory.mktemp("hub"), token=TOKEN)
    yield made
    made.close()


def ask(there: HubProcess, path: str, **headers: str) -> tuple[int, str]:
    """The status, and where it redirects to."""
    connection = http.client.HTTPConnection("127.0.0.1", there.port, timeout=20)
    connection.putrequest("GET", path)
    for name, value in headers.items():
        connection.putheader(name, value)
    connection.endheaders()
    answer = connection.getresponse()
    answer.read()
    connection.close()
    return answer.status, answer.getheader("location") or ""


@pytest.mark.parametrize("origin", ["http://[", "http://[::1", "//", "\xff", "http://]:x", "null"])
def test_an_origin_that_is_no_url_is_another_page(there: HubProcess, origin: str) -> None:
    assert ask(there, "/api/health", Origin=origin)[0] == 403


@pytest.mark.parametrize(
    "path",
    [
        "/%00",
        "/a%00b",
        f"/{'a' * 5000}",
        f"/{'a/' * 3000}",
        "/%2e%2e/%2e%2e/etc/passwd",
        "/%ff%fe",
        "/..%5c..%5cx",
        "/assets",
    ],
)
def test_any_other_path_is_the_page(there: HubProcess, path: str) -> None:
    assert ask(there, path)[0] == 200


@pytest.mark.parametrize(
    "path",
    [
        "/api/%00",
        f"/api/runs/{'a' * 5000}/rank0/sites",
        "/api/runs/%00/%00/source?file=%00",
        "/api/runs/x/y/latest?step=" + "9" * 5000,
    ],
)
def test_an_api_path_that_leads_nowhere_is_said_so(there: HubProcess, path: str) -> None:
    assert ask(there, path, Authorization=f"Bearer {TOKEN}")[0] in (404, 422)


@pytest.mark.parametrize(
    "path", ["//evil.example/", "///evil.example", "/%5cevil.example", "/%5c%5cevil.example/x", "//evil.example%2f.."]
)
def test_the_token_is_exchanged_on_this_site_only(there: HubProcess, path: str) -> None:
    status, where = ask(there, f"{path}?token={TOKEN}")
    assert status == 303
    assert where.startswith("/")
    assert not where.startswith(("//", "/\\"))


@pytest.fixture
def quick(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """The port of a hub in this process that has little patience."""
    monkeypatch.setattr(patience, "HEAD_SECONDS", 0.3)
    monkeypatch.setattr(patience, "BODY_SECONDS", 0.3)
    began, servers, addresses = threading.Event(), list[Any](), list[Any]()

    def ready(address: Any) -> None:
        addresses.append(address)
        began.set()

    runs = threading.Thread(
        target=serve, args=([tmp_path],), kwargs={"token": TOKEN, "ready": ready, "prepare": servers.append}
    )
    runs.start()
    assert began.wait(30)
    yield int(addresses[0].url.rpartition(":")[2])
    servers[0].should_exit = True
    runs.join(30)


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"GET / HTTP/1.1\r\nHost: loc",
        b"GET /api/health HTTP/1.1\r\nHost: localhost\r\n\r\nGET /",
        b"POST /api/runs HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\nabc",
        b"\x16\x03\x01",
    ],
)
def test_a_connection_that_says_nothing_more_is_closed(quick: int, sent: bytes) -> None:
    with socket.create_connection(("127.0.0.1", quick), timeout=30) as connection:
        connection.sendall(sent)
        while connection.recv(4096):
            pass
