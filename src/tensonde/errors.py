"""Errors that Tensonde raises on purpose.

Each message is one sentence that names the subject, what was received and what to do.
`UsageError` and its children mean wrong use: the command line prints them and exits with 2.
"""

from __future__ import annotations


class TensondeError(Exception):
    """Any error of Tensonde's own."""


class UsageError(TensondeError):
    """The user asked for something that cannot be done as asked."""


class SyntaxProblem(UsageError):
    """A site pattern or a condition could not be parsed.

    `text` is what was given, `position` the offset of the problem in it, `hint` a suggestion or "".
    """

    def __init__(self, message: str, *, text: str, position: int, hint: str = "") -> None:
        self.text, self.position, self.hint = text, position, hint
        caret = f"\n  {text}\n  {' ' * position}^"
        super().__init__(message + (f" ({hint})" if hint else "") + caret)


class RecordingError(UsageError):
    """A recording is missing, damaged, or of a newer format."""
