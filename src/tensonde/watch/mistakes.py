"""What people write by mistake in a condition, and what to tell them."""

from __future__ import annotations

import ast
import re

from tensonde.errors import SyntaxProblem

USAGE = {
    **dict.fromkeys(("avg", "med", "lowest", "highest", "trend"), "field, n"),
    "prev": "field", "abs": "x", "sqrt": "x", "log10": "x", "min": "x, y", "max": "x, y",
    "seen": "", "inside": "low, high", "spread": "field",
}  # fmt: skip

_SLIPS = (
    (re.compile(r"&&"), "&& is not an operator", "write and"),
    (re.compile(r"\|\|"), "|| is not an operator", "write or"),
    (re.compile(r"!(?!=)"), "! is not an operator", "write not"),
    (re.compile(r"=[<>]"), "the comparison is the wrong way round", "write <= or >="),
    (re.compile(r"<>"), "<> is not an operator", "write !="),
    (
        re.compile(r"\d\s*%\s*(?=$|\)|and\b|or\b)"),
        "a share is a number from 0 to 1, not a percentage",
        "write 0.99 for 99%",
    ),
    (re.compile(r"(?<![=<>!])=(?!=)"), "= does not compare", "write =="),
)


def explain(text: str, position: int) -> SyntaxProblem:
    """The problem of a text that is not a Python expression."""
    for slip, message, hint in _SLIPS:
        found = slip.search(text)
        if found:
            return SyntaxProblem(message, text=text, position=found.start(), hint=hint)
    if re.search(r"(\b(and|or|not)|[-+*/%<>=(,])\s*$", text):
        return SyntaxProblem("the condition ends too early", text=text, position=len(text.rstrip()))
    at = min(position, len(text))
    rest = text[at:].split()
    if not rest:
        return SyntaxProblem("the condition ends too early", text=text, position=len(text))
    return SyntaxProblem(f"{rest[0]!r} cannot stand here", text=text, position=at)


def unsupported(node: ast.AST) -> tuple[str, str]:
    """Message and hint for Python syntax that is not in the language."""
    match node:
        case ast.BinOp(op=ast.BitAnd()):
            return "& is not an operator", "write and"
        case ast.BinOp(op=ast.BitOr()):
            return "| is not an operator", "write or"
        case ast.BinOp(op=ast.BitXor()):
            return "^ is not an operator", "a power is **"
        case ast.BinOp(op=ast.FloorDiv()):
            return "// is not an operator", "write /"
        case ast.BinOp():
            return "this operator is not part of a condition", "there are + - * / % ** and comparisons"
        case ast.UnaryOp(op=ast.Invert()):
            return "~ is not an operator", "write not"
        case ast.Attribute():
            return "a dot cannot stand here", "fields are plain names, such as absmean"
        case ast.Constant(value=str()):
            return "text is not part of a condition", "fields are written without quotes"
        case ast.IfExp():
            return "if is not part of a condition", "use and, or"
        case ast.Lambda():
            return "lambda is not part of a condition", ""
        case ast.Tuple():
            return "a comma cannot stand here", "join conditions with and, or"
        case ast.Subscript():
            return "brackets cannot stand here", "the index belongs to the site, such as lstm:out[1]"
    return f"{type(node).__name__} is not part of a condition", "see docs/watch-language.md"
