"""Steering a training: how it goes on, and the debugger's commands."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from tensonde.server.models.common import Model


class Control(Model):
    """`count` is for step, `sites` for until. `alone`: only this rank, or not at all."""

    action: Literal["continue", "pause", "step", "next", "nextop", "until", "finish", "terminate"]
    count: int = Field(default=1, ge=1)
    sites: str = ""
    alone: bool = False


class Accepted(Model):
    accepted: bool
    state: str


class Command(Model):
    line: str = Field(max_length=10_000)


class Piece(Model):
    text: str
    style: str = ""


class Output(Model):
    """Lines of pieces. `resumed`: the command let the training run on. `prompt` is a question that the next line answers."""

    output: list[list[Piece]]
    resumed: bool
    prompt: str | None = None


class CompleteRequest(Model):
    text: str = Field(max_length=10_000)


class Completion(Model):
    """What may stand from `start` on."""

    start: int
    options: list[str]
