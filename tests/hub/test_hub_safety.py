"""Who and what the hub refuses, over real sockets; and that it lives on."""

from __future__ import annotations

import contextlib
import http.client
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hub_drive import HubProcess
from hypothesis import given, settings
from hypothesis import strategies as st
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect

from tensonde.protocol.codec import BadFrame, decode_from_agent, encode
from tensonde.protocol.messages import LARGEST_FRAME, PROTOCOL, Digests, Hello, State, Welcome

TOKEN = "a-token-of-the-tests"
GOLDEN = Path(__file__).parent.parent / "golden" / "v1"


@pytest.fixture(scope="module")
def there(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubProcess]:
    folder = tmp_path_factory.mktemp("hub")
    made = HubProcess(folder, token=TOKEN)
    yield made
    made.close()


def ask(
    there: HubProcess, path: str, method: str = "GET", body: bytes | None = None, **headers: str
) -> tuple[int, dict[str, str], bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", there.port, timeout=20)
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    connection.request(method, path, body, given)
    answer = connection.getresponse()
    found = answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read()
    connection.close()
    return found


BEARER = f"Bearer {TOKEN}"


def test_without_the_token_only_health_is_told(there: HubProcess) -> None:
    assert ask(there, "/api/health")[0] == 200
    for path in (
        "/api/runs",
        "/api/conditions",
        "/api/openapi.json",
        "/api/runs/x/y/sites",
        "/api/runs?token=" + TOKEN,
    ):
        status, _, body = ask(there, path)
        assert status == 401, path
        assert "token" in json.loads(body)["error"]
    assert ask(there, "/api/runs", Authorization="Bearer wrong")[0] == 401
    assert ask(there, "/api/runs", Authorization=BEARER)[0] == 200


def test_a_browser_changes_the_token_for_a_cookie(there: HubProcess) -> None:
    assert ask(there, "/?token=wrong")[0] == 401
    status, headers, _ = ask(there, f"/?token={TOKEN}&a=b")
    assert status == 303
    assert headers["location"] == "/?a=b", "the token does not stay in the address bar"
    cookie = headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=Strict" in cookie
    assert TOKEN not in cookie
    assert ask(there, "/api/runs", Cookie=cookie.partition(";")[0])[0] == 200
    assert ask(there, "/api/runs", Cookie=f"tensonde-{there.port}={TOKEN}")[0] == 401


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "", "localhost.evil.example:1"]
)
def test_another_name_is_refused(there: HubProcess, host: str) -> None:
    status, _, body = ask(there, "/api/runs", Host=host, Authorization=BEARER)
    assert status in (400, 403)
    if status == 403:
        assert "name" in json.loads(body)["error"]


@pytest.mark.parametrize("host", ["localhost", "localhost:1234", "127.0.0.1", "[::1]:99", "LOCALHOST"])
def test_its_own_names_are_not(there: HubProcess, host: str) -> None:
    assert ask(there, "/api/runs", Host=host, Authorization=BEARER)[0] == 200


def test_a_foreign_page_is_refused(there: HubProcess) -> None:
    own = f"127.0.0.1:{there.port}"
    for origin in ("http://evil.example", "null", f"http://127.0.0.1:{there.port + 1}", "http://localhost"):
        assert ask(there, "/api/runs", Host=own, Origin=origin, Authorization=BEARER)[0] == 403, origin
    assert ask(there, "/api/runs", Host=own, Origin=f"http://{own}", Authorization=BEARER)[0] == 200
    for path in ("agent", "live"):
        with (
            pytest.raises(InvalidStatus) as refused,
            connect(
                f"ws://{own}/api/{path}",
                additional_headers={"Authorization": BEARER},
                origin="http://evil.example",
                proxy=None,
            ),
        ):
            pass
        assert refused.value.response.status_code == 403


def test_sockets_need_the_token(there: HubProcess) -> None:
    for path in ("agent", "live"):
        with pytest.raises(InvalidStatus) as refused, connect(f"ws://127.0.0.1:{there.port}/api/{path}", proxy=None):
            pass
        assert refused.value.response.status_code == 401
        assert b"token" in refused.value.response.body


def test_what_is_too_large_is_refused(there: HubProcess) -> None:
    path = "/api/runs/x/y/match"
    status, _, body = ask(there, path, "POST", b"x" * (2 << 20), Authorization=BEARER, Content_Type="application/json")
    assert status == 413
    assert "larger" in json.loads(body)["error"]
    small = json.dumps({"pattern": "x" * 5000}).encode()
    assert ask(there, path, "POST", small, Authorization=BEARER, Content_Type="application/json")[0] in (404, 422)
    with agent(there) as socket:
        # The hub says 1009 and hangs up; a client that is still sending may only see the end of the line.
        assert closing(socket, [b"x" * (LARGEST_FRAME + 1)])[0] in (1009, 0)
    assert ask(there, "/api/health")[0] == 200


def agent(there: HubProcess) -> Any:
    return connect(
        f"ws://127.0.0.1:{there.port}/api/agent",
        additional_headers={"Authorization": BEARER},
        max_size=None,
        proxy=None,
    )


def closing(socket: Any, frames: list[Any]) -> tuple[int, str]:
    """With what code and reason the hub closes after these."""
    try:
        for frame in frames:
            socket.send(frame)
        while True:
            socket.recv(20)
    except ConnectionClosed as closed:
        return (closed.rcvd.code, closed.rcvd.reason) if closed.rcvd is not None else (0, "")


def hello(**more: Any) -> Hello:
    facts = {
        "protocol": PROTOCOL, "session": "s", "run": "of-the-tests", "name": "n", "rank": 0, "rank_name": "rank0", "path": "/nowhere",
        "machine": "elsewhere",
    }  # fmt: skip
    return Hello(**{**facts, **more})


@pytest.mark.parametrize(
    ("frames", "reason"),
    [
        ([b"\xc1nonsense"], "no message of this protocol"),
        (["text"], "text frame"),
        ([encode(State(step=1))], "must say hello"),
        ([encode(hello(protocol=99))], "speaks protocol"),
        ([encode(hello()), encode(hello())], "second hello"),
        ([encode(hello()), encode(Digests(ords=b"1", rows=b"12345"))], "bytes of rows"),
        ([encode(hello()), b""], "no message"),
    ],
)
def test_malformed_frames_close_the_connection_with_a_reason(there: HubProcess, frames: list[Any], reason: str) -> None:
    with agent(there) as socket:
        code, told = closing(socket, frames)
        assert code == 1008
        assert reason in told
    with agent(there) as socket:
        socket.send(encode(hello()))
        from tensonde.protocol.codec import decode_from_hub

        assert isinstance(decode_from_hub(socket.recv(20)), Welcome), "the hub lives on"


def test_a_bad_request_of_an_onlooker_is_told_and_no_more(there: HubProcess) -> None:
    with there.client.live() as live:
        assert live.receive(20)["type"] == "runs"
        for frame in ("nonsense", '{"subscribe": 3}', b"\x00\x01", '{"what": {}}', "x" * 10_000):
            live.send(frame)
            while (message := live.receive(20))["type"] != "error":
                pass
            assert "subscribe" in message["error"]


def test_nothing_outside_is_served(there: HubProcess) -> None:
    for path in ("/../../../etc/passwd", "/%2e%2e/%2e%2e/etc/passwd", "/assets/..%2f..%2f..%2fapp.py", "//etc/passwd"):
        _, _, body = ask(there, path, Authorization=BEARER)
        assert b"root:" not in body
        assert b"FastAPI" not in body
    for run in ("..", "%2e%2e", "..%2f..", "a%00b"):
        assert ask(there, f"/api/runs/{run}/rank0/sites", Authorization=BEARER)[0] == 404


@given(st.binary(max_size=300))
@settings(max_examples=300, deadline=None)
def test_no_bytes_break_the_codec(frame: bytes) -> None:
    with contextlib.suppress(BadFrame):
        decode_from_agent(frame)


@given(st.data())
@settings(max_examples=200, deadline=None)
def test_no_bent_message_breaks_the_codec(data: st.DataObject) -> None:
    frame = bytearray(encode(hello(facts={"a": [1, 2.5, None]})))
    for _ in range(data.draw(st.integers(1, 5))):
        frame[data.draw(st.integers(0, len(frame) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(BadFrame):
        decode_from_agent(bytes(frame))
