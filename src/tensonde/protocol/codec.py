"""Messages as bytes, and back. What cannot be read is refused with a sentence; nothing else is ever raised."""

from __future__ import annotations

from typing import Any

import msgspec

from tensonde.protocol.messages import LARGEST_FRAME, FromAgent, FromHub, Message


class BadFrame(Exception):
    """What arrived is not a message of this protocol."""


def _plain(value: Any) -> Any:
    """What msgpack does not know: numpy's numbers, enumerations, tuples of them."""
    if hasattr(value, "item"):
        return value.item()
    if hasattr(value, "items"):
        return dict(value)
    return str(value)


_encoder = msgspec.msgpack.Encoder(enc_hook=_plain)
_from_agent = msgspec.msgpack.Decoder(FromAgent)
_from_hub = msgspec.msgpack.Decoder(FromHub)


def encode(message: Message) -> bytes:
    return _encoder.encode(message)


def decode_from_agent(frame: Any) -> FromAgent:
    return _decode(_from_agent, frame)  # type: ignore[no-any-return]


def decode_from_hub(frame: Any) -> FromHub:
    return _decode(_from_hub, frame)  # type: ignore[no-any-return]


def _decode(decoder: Any, frame: Any) -> Any:
    if not isinstance(frame, bytes | bytearray | memoryview):
        raise BadFrame("a text frame arrived where a binary one belongs.")
    if len(frame) > LARGEST_FRAME:
        raise BadFrame(f"a frame of {len(frame)} bytes arrived; {LARGEST_FRAME} are the most.")
    try:
        return decoder.decode(frame)
    except (msgspec.MsgspecError, RecursionError, ValueError, OverflowError) as problem:
        raise BadFrame(f"a frame of {len(frame)} bytes is no message of this protocol: {problem}.") from None
