"""Brace alternatives in patterns: `{a,b}.c` is `a.c` or `b.c`."""

from __future__ import annotations

from itertools import pairwise

from tensonde.errors import SyntaxProblem

MAX_ALTERNATIVES = 256


def expand(half: str, text: str, start: int) -> list[str]:
    """Every brace-free reading of `half`, which begins at offset `start` of `text`; nesting is allowed."""
    depth, opened, commas = 0, -1, list[int]()
    for i, c in enumerate(half):
        if c == "{":
            depth += 1
            if depth == 1:
                opened = i
        elif c == "," and depth == 1:
            commas.append(i)
        elif c == "}":
            depth -= 1
            if depth < 0:
                raise SyntaxProblem("a brace closes that was not opened", text=text, position=min(start + i, len(text)))
            if depth == 0:
                return _product(half, opened, commas, i, text, start)
    if depth:
        raise SyntaxProblem(
            "the brace is not closed",
            text=text,
            position=start + opened,
            hint="alternatives are {a,b}, without spaces",
        )
    return [half]


def _product(half: str, opened: int, commas: list[int], closed: int, text: str, start: int) -> list[str]:
    cuts = [opened, *commas, closed]
    tails = expand(half[closed + 1 :], text, start + closed + 1)
    out: list[str] = []
    for left, right in pairwise(cuts):
        for middle in expand(half[left + 1 : right], text, start + left + 1):
            out += [half[:opened] + middle + tail for tail in tails]
        if len(out) > MAX_ALTERNATIVES:
            raise SyntaxProblem(
                f"the braces give more than {MAX_ALTERNATIVES} alternatives",
                text=text,
                position=start + opened,
                hint="use *",
            )
    return out
