"""The two WebSockets: agents of trainings, and those who look on."""

from __future__ import annotations

import asyncio
import contextlib
import logging

import msgspec
from fastapi import APIRouter, WebSocket
from starlette.websockets import WebSocketDisconnect, WebSocketState

from tensonde.protocol.codec import BadFrame, decode_from_agent, encode
from tensonde.protocol.messages import PROTOCOL, Ack, Hello, Welcome
from tensonde.server.hub import Hub
from tensonde.server.live import ACK_EVERY, LiveRank
from tensonde.server.onlookers import Onlooker
from tensonde.server.onlookers import encode as text_of

log = logging.getLogger("tensonde.hub")
router = APIRouter(prefix="/api")
HELLO_SECONDS = 10.0
LARGEST_QUESTION = 4096


@router.websocket("/agent")
async def agent(socket: WebSocket) -> None:
    """A training calls. Binary frames, see `tensonde.protocol.messages`."""
    hub: Hub = socket.app.state.hub
    hub.start()
    await socket.accept()
    live: LiveRank | None = None
    acknowledging: asyncio.Task[None] | None = None
    turn = asyncio.Lock()

    async def send(frame: bytes) -> None:
        async with turn:
            await socket.send_bytes(frame)

    try:
        hello = await asyncio.wait_for(_hello(socket), HELLO_SECONDS)
        live = hub.welcome(hello, send)
        await send(encode(Welcome(protocol=PROTOCOL, ack=live.seq, clients=hub.clients)))
        acknowledging = asyncio.create_task(_acknowledge(live, send))
        while True:
            hub.hear(live, decode_from_agent(await _frame(socket)))
    except WebSocketDisconnect:
        pass
    except TimeoutError:
        await _close(socket, 1008, f"no hello within {HELLO_SECONDS:g} s.")
    except BadFrame as problem:
        log.warning("refused a frame of %s: %s", live.name if live is not None else "an unknown agent", problem)
        await _close(socket, 1008, str(problem))
    finally:
        if acknowledging is not None:
            acknowledging.cancel()
        if live is not None:
            last = live.to_acknowledge()
            if last is not None:
                with contextlib.suppress(Exception):
                    await send(encode(Ack(seq=last)))
            hub.left(live, send)


async def _frame(socket: WebSocket) -> bytes | str:
    message = await socket.receive()
    if message["type"] == "websocket.disconnect":
        raise WebSocketDisconnect(message.get("code", 1006))
    frame = message.get("bytes")
    return frame if frame is not None else message.get("text") or ""


async def _hello(socket: WebSocket) -> Hello:
    message = decode_from_agent(await _frame(socket))
    if not isinstance(message, Hello):
        raise BadFrame("the first frame must say hello.")
    if message.protocol != PROTOCOL:
        raise BadFrame(
            f"this hub speaks protocol {PROTOCOL}, not {message.protocol}; use the same version of Tensonde on both sides."
        )
    return message


async def _acknowledge(live: LiveRank, send: object) -> None:
    assert callable(send)
    while True:
        await asyncio.sleep(ACK_EVERY)
        last = live.to_acknowledge()
        if last is not None:
            await send(encode(Ack(seq=last)))


async def _close(socket: WebSocket, code: int, reason: str) -> None:
    with contextlib.suppress(RuntimeError):
        if socket.client_state is not WebSocketState.DISCONNECTED:
            await socket.close(code, reason.encode()[:120].decode(errors="ignore"))


class Place(msgspec.Struct, forbid_unknown_fields=True):
    run: str
    rank: str


class Question(msgspec.Struct, forbid_unknown_fields=True):
    subscribe: Place | None = None
    unsubscribe: Place | None = None


_question = msgspec.json.Decoder(Question)


@router.websocket("/live")
async def live(socket: WebSocket) -> None:
    """Somebody looks on: `LiveRequest` in, `LiveMessage` out, as JSON text frames."""
    hub: Hub = socket.app.state.hub
    hub.start()
    await socket.accept()
    one = Onlooker()
    hub.gallery.onlookers.add(one)
    one.tell(text_of({"type": "runs", "runs": await asyncio.to_thread(hub.runs)}))
    await hub.tell_clients()
    sending = asyncio.create_task(_show(socket, one))
    try:
        while True:
            frame = await _frame(socket)
            try:
                if not isinstance(frame, str) or len(frame) > LARGEST_QUESTION:
                    raise ValueError("it is no text of at most 4096 characters")
                question = _question.decode(frame)
            except (msgspec.MsgspecError, ValueError, RecursionError) as problem:
                sentence = f"this frame is no request ({problem}); send {{'subscribe': {{'run': ..., 'rank': ...}}}}."
                log.warning("refused a frame of an onlooker: %s", problem)
                one.tell(text_of({"type": "error", "error": sentence}))
                continue
            if question.unsubscribe is not None:
                one.places.discard((question.unsubscribe.run, question.unsubscribe.rank))
            if question.subscribe is not None:
                _subscribe(hub, one, question.subscribe)
    except WebSocketDisconnect:
        pass
    finally:
        sending.cancel()
        hub.gallery.onlookers.discard(one)
        await hub.tell_clients()


def _subscribe(hub: Hub, one: Onlooker, place: Place) -> None:
    """The first thing that comes is how the place is now."""
    key = (place.run, place.rank)
    if len(one.places) >= 1000:
        one.tell(text_of({"type": "error", "error": "1000 places are the most that one connection can look at."}))
        return
    one.places.add(key)
    known = hub.live_at(key)
    if known is not None:
        one.tell(text_of({"type": "state", "run": key[0], "rank": key[1], "state": hub.state_of(known)}))


async def _show(socket: WebSocket, one: Onlooker) -> None:
    with contextlib.suppress(WebSocketDisconnect, RuntimeError, OSError):
        while True:
            for text in await one.take():
                await socket.send_text(text)
