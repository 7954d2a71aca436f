"""Which tensors: by site pattern, by type of module or op, by name, or by regular expression.

An entry of `kernels` (or of `--dump`) is one of
  * a site pattern, told by its colon or a glob: `blocks.*.attn:out`, `**:grad`;
  * `name-regex(EXPRESSION)`, MindSpore's way, over the whole name;
  * a bare word: the name of a module, a module's class (`Linear`) or an op's type (`softmax`);
  * a dotted or slashed name, exactly.
Where an entry names no role, `input_output` decides: inputs are what a step takes (inputs of modules and ops, values of
parameters), outputs what it gives (outputs, the loss, gradients).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tensonde.errors import TensondeError, UsageError
from tensonde.model.site import Kind, Role, Site
from tensonde.watch.pattern import Pattern

if TYPE_CHECKING:
    from tensonde.session.dump.settings import DumpSettings

TAKEN = frozenset({Role.IN, Role.VALUE})
GIVEN = frozenset({Role.OUT, Role.GRAD})
_REGEX = re.compile(r"name-regex\((.*)\)")
_WORD = re.compile(r"\w+")
_GLOB = frozenset("*?[{:")


def part(site: Site) -> Role:
    """Its role in the step: the value of a loss is something given."""
    return Role.OUT if site.kind is Kind.LOSS else site.role


@dataclass(frozen=True, slots=True)
class Rule:
    """One entry. `ops`: it may mean ops, which are looked at only then."""

    text: str
    pattern: Pattern | None = None
    regex: re.Pattern[str] | None = None
    with_role: bool = False
    ops: bool = False

    def matches(self, site: Site, roles: frozenset[Role]) -> bool:
        if not self.with_role and part(site) not in roles:
            return False
        if self.pattern is not None:
            return self.pattern.matches(site)
        if self.regex is not None:
            return self.regex.fullmatch(site.name) is not None
        return self.text in (site.name, site.type)


def rule(text: str) -> Rule:
    """Raises SyntaxProblem or re.error."""
    told = _REGEX.fullmatch(text)
    if told is not None:
        return Rule(text, regex=re.compile(told[1]), ops="/" in told[1])
    if _GLOB & set(text):
        pattern = Pattern.parse(text)
        return Rule(text, pattern, with_role=":" in text, ops="/" in text)
    word = _WORD.fullmatch(text) is not None
    return Rule(text, ops="/" in text or (word and not text[0].isupper()))


def check_kernel(text: str, *, where: str) -> None:
    """Raises UsageError for what cannot be an entry."""
    try:
        rule(text)
    except re.error as problem:
        raise UsageError(f"{where} has {text!r}, which is no regular expression: {problem}.") from None
    except TensondeError as problem:
        raise UsageError(f"{where} has {text!r}: {problem}") from None


class Choice:
    """Asked once for every site. `unmatched` are the entries that have matched nothing so far."""

    def __init__(self, settings: DumpSettings) -> None:
        self.everything = settings.everything
        roles = (TAKEN if settings.inputs else frozenset()) | (GIVEN if settings.outputs else frozenset())
        self.roles: frozenset[Role] = frozenset(roles)
        self.rules = [rule(text) for text in (*settings.sites, *settings.kernels)]
        self.unmatched = {entry.text for entry in self.rules}
        self.possible: frozenset[Role] = (
            frozenset().union(*map(self._roles_of, self.rules)) if self.rules else self.roles
        )
        """Roles that may be wanted at all."""
        self.ops = (self.everything and not settings.overflow_only) or any(entry.ops for entry in self.rules)
        self._known: dict[tuple[str, Role, int | None, Kind, str], bool] = {}

    def _roles_of(self, entry: Rule) -> frozenset[Role]:
        return entry.pattern.roles if entry.with_role and entry.pattern is not None else self.roles

    def wants(self, site: Site) -> bool:
        key = (site.name, site.role, site.index, site.kind, site.type)
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = self._decide(site)
        return known

    def _decide(self, site: Site) -> bool:
        if self.everything:
            return part(site) in self.roles
        found = [entry for entry in self.rules if entry.matches(site, self.roles)]
        self.unmatched -= {entry.text for entry in found}
        return bool(found)
