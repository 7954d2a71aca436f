"""How much of the training was looked at: which modules, and why not the others.

Modules are counted by name, also those that are gone when the program ends, as after a training inside a function.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tensonde.session.policy import Level

if TYPE_CHECKING:
    from tensonde.adapters.torch.run.eager import Eager


def coverage(eager: Eager) -> dict[str, Any]:
    named = eager.roster.names
    seen = (
        {entry.name for entry in eager.entries.values() if entry.looked_at} | eager.roster.gone | eager.graphs.modules
    )
    why = {name: reason for name, reason in eager.unsupported.items() if name not in seen}
    taken = eager.session.policy.taken
    missing: dict[str, str] = {}
    if taken[Level.FULL] or taken[Level.WATCHED]:
        missing = {name: why.get(name, "was never called") for name in sorted(named - seen)}
    # Else only the sentinel looked, as asked: what it did not see may well have run.
    return {
        "modules": len(named),
        "modules_watched": len(named & seen),
        "parameters": len(eager.parameters.names),
        "not_watched": {**dict(list(missing.items())[:50]), **why},
        "calls_from_other_threads": eager.other_threads,
        "rows_dropped": eager.block.dropped,
    }
