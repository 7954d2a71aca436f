"""How much of the training was looked at: which modules, and why not the others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tensonde.adapters.torch.entry import is_container
from tensonde.session.policy import Level

if TYPE_CHECKING:
    from tensonde.adapters.torch.eager import Eager


def coverage(eager: Eager) -> dict[str, Any]:
    named = {
        name: module
        for root in eager.roots.values()
        for name, module in ((eager.entries[id(m)].name, m) for m in root.modules() if id(m) in eager.entries)
        if not is_container(module)
    }
    seen = {entry.name for entry in eager.entries.values() if entry.step >= 0 or entry.eval_step >= 0}
    seen |= eager.graphs.modules
    taken = eager.session.policy.taken
    if taken[Level.FULL] or taken[Level.WATCHED]:
        missing = {name: eager.unsupported.get(name, "was never called") for name in named if name not in seen}
    else:  # only the sentinel looked, as asked: what it did not see may well have run
        missing = {}
    return {
        "modules": len(named),
        "modules_watched": len(named.keys() & seen),
        "parameters": len(eager.parameters.names),
        "not_watched": {**dict(list(missing.items())[:50]), **eager.unsupported},
        "calls_from_other_threads": eager.other_threads,
        "rows_dropped": eager.block.dropped,
    }
