"""Site patterns: globs over both halves of `name:role[index]`.

A name is a row of segments separated by `.` and `/`. `*` and `?` stay within a segment, `**` is any number
of segments (also none), `[abc]` one of some characters, `{a,b}` alternatives. The role half is a glob over
the roles and may be left out (any role); so may the index (any index).
"""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass
from functools import lru_cache

from tensonde.errors import SyntaxProblem
from tensonde.model.site import Role, Site
from tensonde.watch.braces import expand

MAX_LENGTH = 500
MAX_DEEP, MAX_STARS = 4, 4  # matching backtracks; these keep it quick on any name
_GLOB = frozenset("*?[{")
_EVERY_NAME = "(?:.*)"
_INDEX = re.compile(r"\[(\d+)\]$")
_SEGMENT = re.compile(r"[./]|[^./\[]*(?:\[[^\]]*\][^./\[]*)*")


@dataclass(frozen=True, slots=True)
class Pattern:
    """A parsed pattern. `literal` is the name when the name half has no glob, else None."""

    text: str
    literal: str | None
    roles: frozenset[Role]
    index: int | None
    name: re.Pattern[str] | None

    @classmethod
    def parse(cls, text: str) -> Pattern:
        """The pattern that `text` says; raises SyntaxProblem."""
        return _parse(text)

    @property
    def any_name(self) -> bool:
        """The name and the index of a site do not matter."""
        return self.name is not None and self.name.pattern == _EVERY_NAME and self.index is None

    def matches(self, site: Site) -> bool:
        if site.role not in self.roles or (self.index is not None and self.index != site.index):
            return False
        if self.name is None:
            return site.name == self.literal
        return self.name.fullmatch(site.name) is not None

    def __str__(self) -> str:
        return self.text


@lru_cache(maxsize=256)
def _parse(text: str) -> Pattern:
    if not text:
        raise SyntaxProblem("the site pattern is empty", text=text, position=0, hint="** is every site")
    if len(text) > MAX_LENGTH:
        raise SyntaxProblem(f"a site pattern has at most {MAX_LENGTH} characters", text=text, position=MAX_LENGTH)
    space = re.search(r"\s", text)
    if space:
        raise SyntaxProblem("a site pattern has no spaces", text=text, position=space.start(), hint="write {a,b}")
    name, colon, role = text.rpartition(":")
    if not colon:
        name, role = text, ""
        bare = _INDEX.search(text)
        if bare:
            raise SyntaxProblem(
                "an index follows a role",
                text=text,
                position=bare.start(),
                hint=f"write {text[: bare.start()]}:*{bare[0]}",
            )
    elif not role:
        raise SyntaxProblem(
            "no role follows the colon",
            text=text,
            position=len(text),
            hint="leave the colon out for any role",
        )
    if ":" in name:
        raise SyntaxProblem(
            "a site has one colon",
            text=text,
            position=name.index(":"),
            hint="give alternatives as {a,b}:{out,grad}",
        )
    roles, index = _roles(role, text, len(text) - len(role)) if colon else (frozenset(Role), None)
    if not _GLOB & set(name):
        stray = re.search(r"[\]}]", name)
        if stray:
            raise SyntaxProblem("a bracket closes that was not opened", text=text, position=stray.start())
        return Pattern(text, name, roles, index, None)
    unclosed = re.search(r"\[[^\]]*$", name)
    if unclosed:
        raise SyntaxProblem("the bracket is not closed", text=text, position=unclosed.start())
    if name.count("**") > MAX_DEEP or max(map(_stars, re.split(r"[./]", name))) > MAX_STARS:
        raise SyntaxProblem(
            f"a pattern has at most {MAX_DEEP} ** and {MAX_STARS} * in a segment",
            text=text,
            position=text.index("*"),
        )
    regex = "|".join(_regex(alternative, text) for alternative in expand(name, text, 0))
    return Pattern(text, None, roles, index, re.compile(regex))


def _stars(segment: str) -> int:
    return segment.replace("**", "").count("*")


def _roles(half: str, text: str, start: int) -> tuple[frozenset[Role], int | None]:
    found = _INDEX.search(half)
    index = int(found[1]) if found else None
    glob = half[: found.start()] if found else half
    if "[" in glob or "]" in glob:
        at = start + min(glob.find(c) for c in "[]" if c in glob)
        raise SyntaxProblem("an index is a number in brackets", text=text, position=at, hint="such as :out[1]")
    roles: set[Role] = set()
    for alternative in expand(glob, text, start):
        regex = re.compile("".join({"*": ".*", "?": "."}.get(c, re.escape(c)) for c in alternative))
        matched = {role for role in Role if regex.fullmatch(role)}
        if not matched:
            near = difflib.get_close_matches(alternative.lower(), [str(role) for role in Role], 1, 0.4)
            hint = f"did you mean {near[0]}?" if near else "roles are " + ", ".join(Role)
            at = start + max(glob.find(alternative), 0)
            raise SyntaxProblem(f"there is no role {alternative!r}", text=text, position=at, hint=hint)
        roles |= matched
    return frozenset(roles), index


def _regex(name: str, text: str) -> str:
    """One brace-free name glob as a regular expression. `**` takes the separator before it along."""
    pieces = [piece for piece in _SEGMENT.findall(name) if piece]
    for i in range(len(pieces) - 3, -1, -1):  # `**.**` says no more than `**`
        if pieces[i] == "**" and pieces[i + 2 : i + 3] == ["**"]:
            del pieces[i : i + 2]
    out: list[str] = []
    swallowed = False  # a leading `**` has already matched its following separator
    for i, piece in enumerate(pieces):
        following = pieces[i + 1] if i + 1 < len(pieces) else ""
        if piece == "**":
            if out and out[-1] in (r"\.", "/"):
                out[-1] = r"(?:[./].*)?"
            elif not out:
                out.append(f"(?:.*{re.escape(following)})?" if following else ".*")
                swallowed = bool(following)
        elif piece in "./":
            if not swallowed:
                out.append(r"\." if piece == "." else "/")
            swallowed = False
        elif piece == "*":
            out.append(r"[^./]+")
        else:
            out.append(_segment(piece, text))
    return f"(?:{''.join(out)})"


def _segment(piece: str, text: str) -> str:
    if "**" in piece:
        at = max(text.find("**"), 0)
        raise SyntaxProblem("** stands for whole segments", text=text, position=at, hint="write * inside a segment")
    out, i = [], 0
    while i < len(piece):
        c = piece[i]
        if c == "[":
            end = piece.find("]", i + 2)
            if end < 0:
                raise SyntaxProblem("the brackets are empty", text=text, position=max(text.find("[]"), 0))
            body = piece[i + 1 : end]
            negated = body[0] in "!^"
            chars = body[1:] if negated else body
            escaped = re.sub(r"([\\\[\]^&~|])", r"\\\1", chars)
            out.append(f"[^./{escaped}]" if negated else f"[{escaped}]")
            i = end
        elif c == "]":
            raise SyntaxProblem("a bracket closes that was not opened", text=text, position=max(text.find("]"), 0))
        else:
            out.append({"*": "[^./]*", "?": "[^./]"}.get(c, re.escape(c)))
        i += 1
    return "".join(out)
