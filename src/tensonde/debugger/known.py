"""Which sites a pattern may mean: those that were seen, and those that the modules promise."""

from __future__ import annotations

from tensonde.debugger.address import as_site
from tensonde.debugger.context import Context
from tensonde.model.site import Site
from tensonde.session.inspector import Inspector
from tensonde.watch.pattern import Pattern
from tensonde.watch.suggest import nearest

_PROMISED = ("out", "grad", "in", "grad_in")


def known_addresses(inspector: Inspector) -> list[str]:
    promised = [f"{node.name}:{role}" for node in inspector.modules() for role in _PROMISED if node.name]
    return sorted({*inspector.addresses(), *promised})


def names(inspector: Inspector) -> list[str]:
    """Addresses without their roles."""
    return sorted({address.rpartition(":")[0] for address in known_addresses(inspector)})


def matching(pattern: str, inspector: Inspector) -> list[Site]:
    wanted = Pattern.parse(pattern)
    sites = (as_site(address) for address in known_addresses(inspector))
    return [site for site in sites if site is not None and wanted.matches(site)]


def warn_if_unknown(context: Context, pattern: str) -> None:
    """The pattern is kept all the same: modules may be made, and ops be seen, later."""
    module, slash, _ = pattern.partition("/")
    if matching(pattern, context.inspector):
        return
    if slash and (not module or matching(module, context.inspector)):
        return  # ops are known only once somebody looks at them
    known = known_addresses(context.inspector) if ":" in pattern else names(context.inspector)
    close = nearest(module if slash else pattern, known)
    hint = f"; the nearest are {', '.join(close)}" if close else ""
    context.terminal.warning(f"no site matches {pattern!r} so far{hint}. It stays, as modules may come later.")
