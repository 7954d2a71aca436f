"""Text from files and programs, made fit for a terminal: a name must not move the cursor, set the title or hide what follows."""

from __future__ import annotations

import re

_DANGEROUS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
"""Control characters but for line feed and tab, what reverses the direction of writing, and halves of characters."""


def printable(text: str) -> str:
    """The same text with such characters spelt out: `\\x1b[31m`."""
    return _DANGEROUS.sub(_spelt, text) if _DANGEROUS.search(text) else text


def _spelt(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"
