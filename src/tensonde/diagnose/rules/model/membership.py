"""Who is trained: parameters and optimizers that do not know of each other."""

from __future__ import annotations

from math import prod

from msgspec import to_builtins

from tensonde.diagnose.case import Case
from tensonde.diagnose.rule import rule
from tensonde.diagnose.told import common, gradient_rows, some
from tensonde.model.facts import LeftOut, OptimizerFact, ParameterFact
from tensonde.model.finding import Finding
from tensonde.model.ops import Trait, modules
from tensonde.model.site import SourceLine

ROUNDING = 1e-4
"""Gradients that are smaller than this part of the largest are not told from 0 with certainty."""


def _left_out(case: Case) -> dict[str, ParameterFact]:
    """Parameters that want and get gradients, that nothing changes, and that are in no optimizer.

    A parameter whose module is gone (a layer that `forward` makes and drops) is not one of them: no optimizer could hold it.
    """
    found = {}
    for name, fact in case.facts.parameters.items():
        tally = fact.left_out
        if fact.optimizers or not fact.requires_grad or not fact.owner or not tally:
            continue
        if tally.nonzero and tally.nonzero >= tally.looks / 2 and not fact.changed:
            found[name] = fact
    return found | _passed_by(case)


def _passed_by(case: Case) -> dict[str, ParameterFact]:
    """Where the program makes updates itself: parameters that get gradients and never change, while others do."""
    if case.facts.optimizers or case.facts.by_hand.updates < 10:
        return {}
    still: dict[str, ParameterFact] = {}
    moving = 0
    usual: dict[str, float] = {}
    for name, fact in case.facts.parameters.items():
        norms = {
            (row["norm"], row["absmax"], row["mean"])
            for row in case.digests(f"{name}:value", ("norm", "absmax", "mean"))
        }
        rows = gradient_rows(case, name)
        if len(rows) >= 10:
            usual[name] = sorted(row["absmax"] for row in rows)[len(rows) // 2]
        moving += len(norms) > 5
        if len(norms) == 1 and fact.requires_grad and fact.owner:
            still[name] = fact
    # What is but rounding, as the gradient of a bias before batch norm, moves nothing.
    least = ROUNDING * max(usual.values(), default=0.0)
    return {name: fact for name, fact in still.items() if usual.get(name, 0.0) > least} if moving else {}


def _unasked(case: Case) -> dict[str, ParameterFact]:
    """Parameters with their first values that the loss depends on, that nothing changes, that no optimizer holds and whose gradients the program does not ask for."""
    return {
        name: fact
        for name, fact in case.facts.parameters.items()
        if (tally := fact.left_out) is not None
        and tally.reached
        and not (fact.optimizers or fact.changed or fact.loaded)
        and fact.requires_grad
        and fact.owner
    }


@rule("module-not-registered", severity="error")
def hidden_modules(case: Case) -> list[Finding]:
    """A module runs inside another one that does not know it as a child: it is kept in a plain list, tuple or dict.

    `parameters()`, `to()`, `state_dict()` and `train()` of the model skip it. The outer module was seen to call it,
    gradients reach it, or would if the program asked for them, and no optimizer holds it, so its weights stay at
    their initial values.
    """
    missing = {**_unasked(case), **_left_out(case)}
    hidden = {n: f for n, f in missing.items() if not f.registered and f.owner_hidden}
    if not hidden:
        return []
    owners = list(dict.fromkeys(f.owner for f in hidden.values()))
    first = next(iter(hidden.values()))
    holder = owners[0].rsplit(".", 1)[0] if "." in owners[0] else owners[0]
    return [
        case.finding(
            f"{some(owners)} ({first.owner_type}) hidden in a plain Python list or dict ({holder}): never trained",
            (
                "Keep them in nn.ModuleList or nn.ModuleDict (or assign each as an attribute), so that "
                f"model.parameters() and the optimizer see them; {len(hidden)} parameters are in no optimizer."
            ),
            site=f"{owners[0]}:out",
            source=first.made,
            evidence={
                "parameters": list(hidden)[:20],
                "in_optimizer": False,
                "registered": False,
                **to_builtins(first.left_out or LeftOut()),
            },
            confidence=0.95,
        )
    ]


@rule("tensor-not-registered", severity="error")
def strangers(case: Case) -> list[Finding]:
    """A module keeps a tensor that requires and gets a gradient but is not an `nn.Parameter`: `parameters()` does not
    return it, so no optimizer holds it; nothing ever changes it, and a checkpoint leaves it out. A result computed
    from a parameter (`nn.Parameter(x) * 0.02`, `nn.Parameter(x).to(device)`) is not a parameter either.
    """
    return [
        case.finding(
            f"{stranger.name} of {stranger.module} ({stranger.type}) requires a gradient but is not an nn.Parameter: never trained",
            f"Compute first, then wrap the result: self.{stranger.name} = nn.Parameter(x * 0.02), nothing around it."
            if stranger.computed
            else f"self.{stranger.name} = nn.Parameter(...); if it is a constant, register_buffer without a gradient.",
            site=f"{stranger.module}:out",
            source=stranger.line,
            evidence={"shape": stranger.shape, "in_optimizer": False, "parameter": False, "gradient": True},
            confidence=0.93,
        )
        for stranger in case.facts.strangers
        if stranger.gradient and stranger.version <= 1 and case.steps >= 3 and case.stepping
    ][:3]


@rule("optimizer-holds-old-parameters", severity="error")
def stale_parameters(case: Case) -> list[Finding]:
    """An optimizer holds parameters that belong to no running module, while parameters of the same shapes, which do
    run and get gradients, are in no optimizer: a module or model was replaced (or created again) after the optimizer
    was built.
    """
    return [
        case.finding(
            (
                f"{optimizer.type} holds {len(optimizer.unknown)} parameters that no module uses any more; "
                f"{some(matched)} are not trained"
            ),
            (
                "Build the optimizer after the last change to the model's modules, or add the new "
                "parameters with add_param_group."
            ),
            site=f"{matched[0]}:value",
            source=optimizer.made,
            evidence={"unused_in_optimizer": len(optimizer.unknown), "parameters": matched[:20]},
            confidence=0.92,
        )
        for optimizer, matched in _replaced(case)
    ]


def _replaced(case: Case) -> list[tuple[OptimizerFact, list[str]]]:
    """Optimizers that hold parameters of modules that were replaced, and the parameters that run instead: those of the same shapes, and those that
    the loss depends on and whose gradients the program does not ask for."""
    unasked = _unasked(case)
    missing = _left_out(case) | unasked
    found = []
    for optimizer in case.facts.optimizers:
        shapes = optimizer.unknown
        matched = [name for name, fact in missing.items() if fact.shape in shapes or (shapes and name in unasked)]
        if matched and len(matched) >= len(missing) / 2:
            found.append((optimizer, matched))
    return found


@rule("parameter-not-in-optimizer", severity="error")
def left_out(case: Case) -> list[Finding]:
    """A parameter requires a gradient and gets one that is not zero, nothing changes it, and no optimizer holds it;
    or the program's own updates leave it out.

    Target networks and averaged copies are not reported: they get no gradient, or something changes them. Nor is
    anything frozen on purpose: requires_grad is False, or it runs in eval mode while the rest is in train mode.
    """
    missing = {n: f for n, f in _left_out(case).items() if f.registered or not f.owner_hidden}
    old = {name for _, matched in _replaced(case) for name in matched[:20]}
    training = any(f.owner_training for f in case.facts.parameters.values() if f.optimizers)
    missing = {n: f for n, f in missing.items() if n not in old and not (training and f.owner_training is False)}
    active = case.stepping
    if not missing or not (active or case.facts.by_hand.updates):
        return []
    owners = list(dict.fromkeys(f.owner for f in missing.values()))
    within = common(missing) or owners[0]
    made_later = any(f.owner in _made_in_forward(case) for f in missing.values())
    names = list(missing)
    first = missing[names[0]]
    return [
        case.finding(
            f"{some(owners)} {'get gradients but are' if len(owners) > 1 else 'gets a gradient but is'} "
            + ("in no optimizer: never updated" if active else "left out of the program's own updates"),
            (
                f"{'Pass these parameters to the optimizer' if active else 'Update these parameters'} as well (all of {within}, or model.parameters()); "
                "if they are frozen on purpose, set requires_grad_(False)."
                + (" They are made in forward, after the optimizer was built." if made_later else "")
            ),
            site=f"{names[0]}:grad",
            source=(_doubled(case) or active[0].made) if active else case.facts.by_hand.backward_line,
            evidence={
                "parameters": names[:20],
                "count": len(names),
                "of": len(case.facts.parameters),
                "requires_grad": True,
                "in_optimizer": False,
                **to_builtins(first.left_out or LeftOut()),
            },
            confidence=0.85 if first.loaded else 0.95,
        )
    ]


def _doubled(case: Case) -> SourceLine | None:
    """The optimizer that holds nothing but what another one holds already: it was given the wrong parameters."""
    holders = [set(fact.optimizers) for fact in case.facts.parameters.values() if fact.optimizers]
    for k in range(len(case.facts.optimizers) - 1, 0, -1):
        own = [held for held in holders if k in held]
        if own and all(min(held) < k for held in own):
            return case.facts.optimizers[k].made
    return None


def _made_in_forward(case: Case) -> set[str]:
    return {f"{made.parent}.{made.type}" for made in case.facts.made_in_forward}


@rule("layer-made-in-forward", severity="error")
def made_in_forward(case: Case) -> list[Finding]:
    """A module with parameters is created anew in the forward pass of step after step: it starts from random weights
    each time.
    """
    return [
        case.finding(
            f"{made.parent} makes a new {made.type} in every forward: its weights are random, never learned",
            "Create the layer once in __init__ and call it in forward.",
            site=f"{made.parent}:out",
            source=made.line,
            evidence={"made": made.count, "steps": made.steps},
            confidence=0.95,
        )
        for made in case.facts.made_in_forward
        if made.steps >= 3 and (made.parameters or made.type in _WITH_PARAMETERS)
    ][:3]


_WITH_PARAMETERS = modules(Trait.WEIGHTED)


@rule("freeze-without-effect", severity="warning")
def freeze_without_effect(case: Case) -> list[Finding]:
    """`module.requires_grad = False` sets an attribute of the module that nobody reads; its parameters are still
    trained.
    """
    found = []
    for name, module in case.facts.modules.items():
        if module.settings.get("requires_grad") is not False:
            continue
        inside = [
            n
            for n, f in case.facts.parameters.items()
            if (f.owner == name or n.startswith(f"{name}.")) and f.requires_grad
        ]
        if inside:
            found.append(
                case.finding(
                    f"{name}.requires_grad = False freezes nothing: {len(inside)} parameters are still trained",
                    f"Call {name}.requires_grad_(False), or set it on each parameter.",
                    site=f"{name}:out",
                    source=case.facts.freezes or module.made,
                    evidence={"parameters": inside[:20]},
                    confidence=0.95,
                )
            )
    return found[:1]


@rule("last-layer-frozen", severity="warning")
def last_layer_frozen(case: Case) -> list[Finding]:
    """The last layer does not require a gradient although an optimizer holds it, and layers before it are trained.
    Deliberate freezing starts from the front; a frozen random last layer is an accident, such as freezing after the
    head was made. If most layers are frozen, as with adapters, it counts as a choice.
    """
    facts = case.facts
    weights = [
        (n, f)
        for n, f in case.facts.parameters.items()
        if len(f.shape) >= 2 and f.library and f"{f.owner}:out" in case.sites
    ]
    if len(weights) < 2 or case.steps < 3:
        return []
    name, last = max(weights, key=lambda pair: case.sites[f"{pair[1].owner}:out"].id)
    trained = [n for n, f in weights if f.requires_grad and f.optimizers and case.digests(f"{n}:grad", ("step",))]
    size = {n: prod(f.shape) for n, f in weights if n != name}
    if sum(size.get(n, 0) for n in trained) < 0.5 * sum(size.values()):
        return []  # who trains little on purpose (adapters, norms) may well leave the head alone
    if (
        last.requires_grad
        or last.loaded
        or not last.optimizers
        or not trained
        or case.digests(f"{name}:grad", ("step",))
    ):
        return []
    return [
        case.finding(
            f"{last.owner} ({last.owner_type}), the last layer, is frozen while {some(trained, 2)} are trained",
            "Set requires_grad_(True) on it, or freeze by name more narrowly.",
            site=f"{name}:value",
            source=facts.freezes or last.made,
            evidence={"requires_grad": False, "in_optimizer": True},
            confidence=0.75,
        )
    ]


@rule("parameters-share-memory", severity="error", phase="optimizer")
def shared_memory(case: Case) -> list[Finding]:
    """Two parameters of an optimizer share the same memory, as after `a.weight.data = b.weight.data`: each gets its
    own gradient, and the optimizer changes the same numbers twice per step. To tie weights, use one parameter.
    """
    for name, fact in case.facts.parameters.items():
        shared = fact.shares_memory
        if not shared or not shared.others or not fact.requires_grad or not fact.optimizers:
            continue
        if shared.line or name > shared.others[0]:
            return [
                case.finding(
                    f"{name} and {some(shared.others)} are two parameters that share memory: each step changes it twice",
                    "Tie weights with one parameter: `a.weight = b.weight`, not `a.weight.data = b.weight.data`.",
                    site=f"{name}:value",
                    source=shared.line or fact.made,
                    evidence={"parameters": [name, *shared.others][:10], "shape": fact.shape},
                    confidence=0.95,
                )
            ]
    return []
