"""What the hub refuses, each with the sentence that the answer carries."""

from __future__ import annotations


class Refusal(Exception):
    """`status` is that of HTTP."""

    status = 400


class NotFound(Refusal):
    status = 404


class NotNow(Refusal):
    """It may be had at another time or by another way; the sentence says how."""

    status = 409


class AgentGone(Refusal):
    """The agent did not answer."""

    status = 504
