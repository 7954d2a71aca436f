"""How much of the training was looked at: which modules, and why not the others.

Modules are counted by name, also those that are gone when the program ends, as after a training inside a function.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tensonde.session.policy import Level

if TYPE_CHECKING:
    from tensonde.adapters.torch.run.watcher import Watcher


def coverage(watcher: Watcher) -> dict[str, Any]:
    named = watcher.state.roster.names
    seen = (
        {entry.name for entry in list(watcher.state.roster.entries.values()) if entry.looked_at}
        | watcher.state.roster.gone
        | (watcher.compiled.modules if watcher.compiled is not None else set())
    )
    later = _mended(watcher) if watcher.state.unsupported else set()
    why = {name: reason for name, reason in watcher.state.unsupported.items() if name not in seen | later}
    taken = watcher.session.policy.taken
    missing: dict[str, str] = {}
    if taken[Level.FULL] or taken[Level.WATCHED]:
        missing = {name: why.get(name, "was never called") for name in sorted(named - seen)}
    # Else only the sentinel looked, as asked: what it did not see may well have run.
    return {
        "modules": len(named),
        "modules_watched": len(named & seen),
        "parameters": len(watcher.state.parameters.names),
        "not_watched": {**dict(list(missing.items())[:50]), **why},
        "calls_from_other_threads": watcher.state.other_threads,
        "rows_dropped": watcher.session.block.dropped,
    }


def _mended(watcher: Watcher) -> set[str]:
    """Addresses that had no values at first and have some now: a library may find out shapes by tensors without values."""
    session = watcher.session
    session.evaluate()
    return {site.address for site in session.sites if session.engine.seen(site.id)}
