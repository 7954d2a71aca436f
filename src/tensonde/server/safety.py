"""Who may talk to the hub: whoever has the token, under a name that is this machine's, from a page that is the hub's own.

A page of another site can make a browser send requests to this machine, and can give its own name this machine's address (DNS rebinding).
So a request must carry the token or the cookie that it was exchanged for, `Host` must be an address or one of the hub's names, and `Origin`,
where the browser sends it, must be the same as `Host`.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import html
import ipaddress
import json
import logging
import re
import socket
from collections.abc import Iterable
from http.cookies import CookieError, SimpleCookie
from typing import Any
from urllib.parse import parse_qs, quote, urlencode, urlsplit

from tensonde.server import patience

log = logging.getLogger("tensonde.hub")

LARGEST_BODY = 1 << 20
MOST_DRAINED = 64 << 20
OPEN = ("/api/health",)
_HEADERS = [
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"content-security-policy", b"default-src 'self'; img-src 'self' data: blob:; style-src 'self' 'unsafe-inline'; worker-src 'self' blob:; "
     b"connect-src 'self'; frame-ancestors 'self' http://localhost:* http://127.0.0.1:*"),
]  # fmt: skip


def host_of(text: str) -> str:
    """`localhost:8000` → `localhost`; `[::1]:8000` → `::1`; "" where it is no host."""
    try:
        return (urlsplit(f"//{text}").hostname or "").rstrip(".").lower()
    except ValueError:
        return ""


def _netloc(url: str) -> str:
    """`host:port` of a URL; "" where it is none."""
    try:
        return urlsplit(url).netloc.lower()
    except ValueError:
        return ""


def own_names(host: str) -> frozenset[str]:
    names = {"localhost", host.lower(), socket.gethostname().lower()}
    if host in ("0.0.0.0", "::", ""):
        names.add(socket.getfqdn().lower())
    return frozenset(name for name in names if name)


class Safety:
    """ASGI middleware, for requests and WebSockets alike."""

    def __init__(self, app: Any, *, token: str, names: Iterable[str]) -> None:
        self.app, self.names = app, frozenset(names)
        self._token = token.encode()
        self._ticket = hmac.new(self._token, b"tensonde cookie 1", hashlib.sha256).hexdigest()
        """What a browser's cookie holds: it says nothing about the token, and is good for a hub that was started again with the same one."""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self.app(scope, receive, send)
            return
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        if not self._named(headers.get("host", "")):
            shown = headers.get("host", "")[:100]
            await refuse(
                scope,
                receive,
                send,
                403,
                f"this hub does not answer to the name {shown!r}; use its address, or localhost.",
            )
            return
        origin = headers.get("origin")
        if origin is not None and _netloc(origin) != headers["host"].lower():
            await refuse(scope, receive, send, 403, f"a page of {origin[:100]!r} may not use this hub.")
            return
        query = parse_qs(scope["query_string"].decode("latin-1"))
        cookie = f"tensonde-{scope['server'][1] if scope.get('server') else 0}"
        given = query.get("token", [""])[0]
        if scope["type"] == "http" and scope["method"] == "GET" and given and not scope["path"].startswith("/api/"):
            await self._exchange(scope, send, given, query, cookie)
            return
        if scope["path"] not in OPEN and scope["path"].startswith("/api/") and not self._known(headers, cookie):
            await refuse(
                scope,
                receive,
                send,
                401,
                "this needs the hub's token: open the URL that `tensonde ui` printed, or send it as `Authorization: Bearer TOKEN`.",
            )
            return
        await self.app(scope, receive, _with_headers(send) if scope["type"] == "http" else send)

    def _named(self, host: str) -> bool:
        name = host_of(host)
        if name in self.names:
            return True
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return True  # an address is no name that somebody else could own

    def _known(self, headers: dict[str, str], cookie: str) -> bool:
        kind, _, given = headers.get("authorization", "").partition(" ")
        if kind.lower() == "bearer" and hmac.compare_digest(given.strip().encode(), self._token):
            return True
        try:
            found = SimpleCookie(headers.get("cookie", "")).get(cookie)
        except CookieError:
            return False
        return found is not None and hmac.compare_digest(found.value.encode(), self._ticket.encode())

    async def _exchange(self, scope: Any, send: Any, given: str, query: dict[str, list[str]], cookie: str) -> None:
        if not hmac.compare_digest(given.encode(), self._token):
            sentence = "the token in this URL is not this hub's; open the URL that `tensonde ui` printed last."
            accept = dict(scope["headers"]).get(b"accept", b"")
            if b"text/html" in accept:
                await _page(send, 401, sentence)
            else:
                await _answer(send, 401, {"error": sentence})
            return
        rest = urlencode({name: values for name, values in query.items() if name not in ("token", "pin")}, doseq=True)
        secure = "; Secure" if scope.get("scheme") == "https" else ""
        value = f"{cookie}={self._ticket}; Path=/; HttpOnly; SameSite=Strict{secure}"
        # One slash: `//evil.example/` is another site to a browser, and so is `/\\evil.example`, which quoting makes a name.
        where = "/" + quote(scope["path"].lstrip("/")) + (f"?{rest}" if rest else "")
        headers = [
            (b"location", where.encode("ascii", "replace")),
            (b"set-cookie", value.encode()),
            (b"cache-control", b"no-store"),
        ]
        await send({"type": "http.response.start", "status": 303, "headers": [*headers, *_HEADERS]})
        await send({"type": "http.response.body", "body": b""})


def _with_headers(send: Any) -> Any:
    async def sending(message: Any) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message.get("headers", []), *_HEADERS]}
        await send(message)

    return sending


class BodyLimit:
    """Refuses a request whose body is larger than anything that the API takes, before it is in memory."""

    def __init__(self, app: Any, *, largest: int = LARGEST_BODY) -> None:
        self.app, self.largest = app, largest

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        length = dict(scope["headers"]).get(b"content-length", b"0")
        sentence = f"the request is larger than {self.largest >> 20} MiB, which nothing here needs."
        if not length.isdigit() or int(length) > self.largest:
            await _drain(receive)
            await refuse(scope, receive, send, 413, sentence)
            return
        body, more = b"", scope["method"] not in ("GET", "HEAD", "OPTIONS")
        while more:
            try:
                message = await asyncio.wait_for(receive(), patience.BODY_SECONDS)
            except TimeoutError:
                await refuse(scope, receive, send, 408, "the rest of the request did not come.")
                return
            if message["type"] != "http.request":
                return
            body += message.get("body", b"")
            more = message.get("more_body", False)
            if len(body) > self.largest:
                await _drain(receive)
                await refuse(scope, receive, send, 413, sentence)
                return
        given = False

        async def again() -> Any:
            nonlocal given
            if given:
                return await receive()
            given = True
            return {"type": "http.request", "body": body, "more_body": False}

        await self.app(scope, again, send)


async def _drain(receive: Any) -> None:
    """Throws the rest of a body away, so that who sends it gets to the answer; not endlessly."""
    left, more = MOST_DRAINED, True
    while more and left > 0:
        try:
            message = await asyncio.wait_for(receive(), patience.BODY_SECONDS)
        except TimeoutError:
            return
        left -= len(message.get("body", b""))
        more = message["type"] == "http.request" and message.get("more_body", False)


async def refuse(scope: Any, receive: Any, send: Any, status: int, sentence: str) -> None:
    log.warning("refused %s from %s: %s", scope["path"][:200], (scope.get("client") or ["?"])[0], sentence)
    if scope["type"] == "websocket":
        await receive()  # the handshake
        if "websocket.http.response" in scope.get("extensions", {}):
            body = json.dumps({"error": sentence}).encode()
            headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
            await send({"type": "websocket.http.response.start", "status": status, "headers": headers})
            await send({"type": "websocket.http.response.body", "body": body})
        else:
            await send({"type": "websocket.close", "code": 1008, "reason": sentence[:120]})
        return
    await _answer(send, status, {"error": sentence})


PAGE = """<!doctype html><html lang="en"><meta charset="utf-8"><title>Tensonde</title>
<meta name="viewport" content="width=device-width">
<style>body{{font:16px/1.5 system-ui;max-width:40em;margin:12vh auto;padding:0 1em;color-scheme:light dark}}
code{{background:#8883;padding:.1em .3em;border-radius:4px}}</style>
<h1>This page needs the token of its hub</h1><p>{sentence}</p>
<p>Each hub has its own token. The address is in the terminal where <code>tensonde ui</code> or <code>tensonde run --ui</code> runs.</p>"""


async def _page(send: Any, status: int, sentence: str) -> None:
    """For people: what is wrong and what to do."""
    words = sentence[:1].upper() + html.escape(sentence[1:])
    body = PAGE.format(sentence=re.sub(r"`([^`]*)`", r"<code>\1</code>", words)).encode()
    headers = [
        (b"content-type", b"text/html; charset=utf-8"),
        (b"content-length", str(len(body)).encode()),
        (b"cache-control", b"no-store"),
    ]
    await send({"type": "http.response.start", "status": status, "headers": [*headers, *_HEADERS]})
    await send({"type": "http.response.body", "body": body})


async def _answer(send: Any, status: int, content: dict[str, str]) -> None:
    body = json.dumps(content).encode()
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
        (b"cache-control", b"no-store"),
    ]
    await send({"type": "http.response.start", "status": status, "headers": [*headers, *_HEADERS]})
    await send({"type": "http.response.body", "body": body})
