"""Layers that are used in several places although each place needs one of its own."""

from __future__ import annotations

from tensonde.diagnose.analysis.flow import ancestors, made_by
from tensonde.diagnose.case import Case
from tensonde.diagnose.rule import rule
from tensonde.diagnose.told import some
from tensonde.model.finding import Finding
from tensonde.model.trace import OpRecord, Trace


@rule("one-layer-held-several-times", severity="error", phase="forward")
def held_several_times(case: Case) -> list[Finding]:
    """A list of layers (ModuleList, Sequential) is one layer, held several times: `[nn.Linear(8, 8)] * 3` makes a
    single layer, and all places share its weights. A comprehension (`[nn.Linear(8, 8) for _ in range(3)]`) makes
    three.

    Weights are also shared on purpose; then the layer first gets a name and is called in a loop, or held under its
    name. So only two cases are a warning: the layer is created inside the list that is multiplied, or its places get
    the very same tensor in one step, so that they compute the same again. Anything else is information.
    """
    found = []
    for fact in case.facts.repeated:
        again = _same_input(case.first, fact.part)
        sure = fact.multiplied is not None or again > 1
        found.append(
            case.finding(
                (
                    f"{fact.times} of {fact.of} entries of {fact.container} ({fact.type}) are one and the same "
                    f"{fact.part_type}: they share their weights"
                ),
                "Create each one: [Layer(...) for _ in range(n)] (or copy.deepcopy(layer)); a list times n repeats one layer."
                if sure
                else "If each place needs its own weights, create a layer for each.",
                severity="error" if sure else "info",
                site=f"{fact.part}:out",
                source=fact.multiplied or fact.line,
                evidence={
                    "entries": fact.of,
                    "the_same": fact.times,
                    "calls_with_the_same_input": again,
                },
                confidence=0.92 if sure else 0.5,
            )
        )
    return sorted(found, key=lambda finding: finding.severity)[:1] if case.steps else []


def _same_input(trace: Trace | None, name: str) -> int:
    """Calls of a module in the first step that were given one and the same tensor."""
    given = (
        [call.inputs[0].id for call in trace.calls if call.module == name and call.inputs] if trace is not None else []
    )
    return max((given.count(one) for one in given), default=0)


@rule("batch-norm-shared-by-layers", severity="error", phase="forward")
def shared_norm(case: Case) -> list[Finding]:
    """One batch norm normalizes the outputs of several consecutive layers. In train mode, each call uses the
    statistics of its own batch, so nothing shows. Its running statistics are a mixture of all of them that fits none,
    and eval mode uses those.

    Two branches that go through the same layers (as in siamese networks) are different: the norm's input then comes
    from one layer. So are a layer that is called repeatedly, and two parallel branches: a norm counts only if its
    input depends on its own output, through a different layer than before.
    """
    trace = case.first
    if trace is None:
        return []
    calls: dict[str, list[tuple[OpRecord, str]]] = {}
    for op in trace.ops:
        weight = _layer_before(trace, op) if _tracks(op) else ""
        if weight:
            calls.setdefault(_tracks(op), []).append((op, weight))
    for statistics, users in calls.items():
        weights = list(dict.fromkeys(weight for _, weight in users))
        if len(weights) > 1 and _follow(trace, users):
            return [_shared_finding(case, statistics, users, weights)]
    return []


def _follow(trace: Trace, users: list[tuple[OpRecord, str]]) -> bool:
    """One of the calls is given what another one, behind another layer, has made."""
    for k, (op, weight) in enumerate(users):
        layer = made_by(trace, op.inputs[0])
        before = ancestors(trace, layer) if layer is not None else set()
        if any(other.index in before and known != weight for other, known in users[:k]):
            return True
    return False


def _tracks(op: OpRecord) -> str:
    """The name of the running mean that an op of batch norm updates, "" if there is none."""
    if op.op != "batch_norm" or not op.training or not op.inputs or not op.inputs[0].requires_grad:
        return ""
    return next((fact.name for fact in op.inputs[1:] if fact.name.endswith("running_mean")), "")


def _layer_before(trace: Trace, op: OpRecord) -> str:
    """The weight of the layer whose output an op takes."""
    layer = made_by(trace, op.inputs[0])
    weights = [fact.name for fact in layer.inputs if fact.name and len(fact.shape) >= 2] if layer is not None else []
    return weights[0] if len(weights) == 1 else ""


def _shared_finding(case: Case, statistics: str, users: list[tuple[OpRecord, str]], weights: list[str]) -> Finding:
    name = users[0][0].module or statistics.rpartition(".")[0]
    fact = case.module(name)
    layers = [weight.rpartition(".")[0] for weight in weights]
    return case.finding(
        (
            f"{name} ({fact.type or 'batch norm'}) normalizes the outputs of {len(layers)} layers ({some(layers)}): its running "
            "statistics fit none of them in eval mode"
        ),
        "Create a separate batch norm for each layer.",
        site=f"{name}:out",
        op="batch_norm",
        source=fact.made or users[0][0].source,
        evidence={
            "calls_in_a_step": len(users),
            "layers": layers[:8],
            "means_before": [float(f"{op.inputs[0].stats.get('mean', 0.0):.3g}") for op, _ in users[:8]],
            "deviations_before": [float(f"{op.inputs[0].stats.get('std', 0.0):.3g}") for op, _ in users[:8]],
        },
        confidence=0.9,
    )
