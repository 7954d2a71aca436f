"""Models that are trained on several ranks without all of their parameters: some get no gradient, or no rank sends them one."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tensonde.diagnose.case import Case
from tensonde.diagnose.exceptions import LAUNCHERS, raised
from tensonde.diagnose.rule import rule, world_rule
from tensonde.diagnose.told import some
from tensonde.diagnose.world import UNFINISHED, World
from tensonde.model.finding import Finding

_TWICE = re.compile(r"[Pp]arameter at index \d+ with name (\S+) has been marked as ready twice")
_CHANGED = "Your training graph has changed in this iteration"
_SHARED = re.compile(r"Parameter '([^']+)' is shared with a parameter already managed by another FSDP group")
_INDICES = re.compile(r"did not receive grad for rank \d+: ([\d ]+)")


@rule("unused-in-ddp", severity="error", explains=("exception",))
def unused(case: Case) -> Iterator[Finding]:
    """DistributedDataParallel waits for the gradient of every parameter, and its second forward fails because some
    never came. The exception has their numbers; the wrapper's parameters give their names.
    """
    event = raised(case)
    if event is None or event.get("type") in LAUNCHERS or UNFINISHED not in str(event.get("message", "")):
        return
    replica = next(iter(case.facts.replicas), None)
    if replica is None:
        return  # ended before it could write its facts; another rank has them
    found = _INDICES.search(str(event["message"]))
    numbers = [int(word) for word in found[1].split()] if found else []
    names = [replica.parameters[k] for k in numbers if k < len(replica.parameters)]
    which = some(names, 4) if names else "some parameters"
    yield case.finding(
        f"{which} got no gradient, but DistributedDataParallel waits for it",
        "Remove what the loss does not use from the model, or freeze it before wrapping (requires_grad_(False)). If the input decides which part is used: DistributedDataParallel(model, find_unused_parameters=True).",
        step=event.get("step"),
        site=f"{names[0]}:grad" if names else None,
        source=replica.line,
        evidence={"parameters": names[:8], "numbers": numbers[:8]},
        confidence=0.95,
    )


@rule("static-graph-changed", severity="error", phase="backward", explains=("exception",))
def static_graph(case: Case) -> Iterator[Finding]:
    """DistributedDataParallel was told that every step uses the same parameters (`static_graph=True`), and a backward
    pass has found that this is not so.
    """
    event = raised(case)
    replica = next(iter(case.facts.replicas), None)
    if event is None or replica is None or event.get("type") in LAUNCHERS or _CHANGED not in str(event.get("message")):
        return
    yield case.finding(
        f"In step {event.get('step')} the model uses different parameters than in the first step, but DistributedDataParallel was told that this never happens (static_graph=True)",
        "Remove static_graph, and pass find_unused_parameters=True if some steps do not use all parameters.",
        step=event.get("step"),
        source=replica.line,
        evidence={"backward": str(event.get("source"))},
        confidence=0.95,
    )


@rule("ready-twice", severity="error", phase="backward", explains=("exception",))
def ready_twice(case: Case) -> Iterator[Finding]:
    """DistributedDataParallel reduces a gradient as soon as it is ready, once per backward pass, and one came twice.
    The exception has the parameter's name; its module runs more than once under a checkpoint that runs backward by
    itself (`use_reentrant=True`), or is used outside the wrapper's forward.
    """
    event = raised(case)
    found = _TWICE.search(str(event.get("message", ""))) if event is not None else None
    if event is None or found is None or event.get("type") in LAUNCHERS:
        return
    name = found[1].strip(".")
    replica = next(iter(case.facts.replicas), None)
    owners = [name.rsplit(".", k)[0] for k in range(1, name.count(".") + 1)]
    prefix = f"{replica.name}." if replica is not None and replica.name else ""
    sites = [site for owner in owners for at in (owner, prefix + owner) if (site := case.sites.get(f"{at}:out"))]
    source = next((site.source for site in reversed(sites) if site.source is not None), None)
    yield case.finding(
        f"{name} gets its gradient twice in one backward pass, and DistributedDataParallel reduces it after the first time",
        "If a checkpointed block is used more than once, avoid reentrant passes: checkpoint(block, x, use_reentrant=False). If what the forward does is "
        "the same in every step, DistributedDataParallel(model, static_graph=True) works, too.",
        step=event.get("step"),
        site=f"{name}:grad",
        source=source or (replica.line if replica is not None else None),
        evidence={"parameter": name, "wrapped_at": str(replica.line) if replica is not None else None},
        confidence=0.9,
    )


@rule("tied-weight-sharded-apart", severity="error", phase="init", explains=("exception",))
def tied_apart(case: Case) -> Iterator[Finding]:
    """One weight has two names in the model, such as an embedding that is also the head, and `fully_shard` was called
    for each of the two modules separately. torch refuses at the first forward; the finding names the second call.
    """
    event = raised(case)
    told = _SHARED.search(str(event.get("message", ""))) if event is not None else None
    if told is None:
        return
    own = next((one for one in case.facts.beginning.parted if one.name == told[1]), None)
    if own is None or own.line is None:
        return
    tied = [
        one.name
        for one in case.facts.beginning.parted
        if one is not own and one.digest and (one.digest, one.shape) == (own.digest, own.shape)
    ]
    yield case.finding(
        f"{told[1]} is tied to {some(tied, 2) if tied else 'another parameter'}, but fully_shard is called separately for their modules",
        "Shard both modules in one call, fully_shard([embedding, head]), or leave them to the call for the whole model.",
        step=None,
        site=f"{told[1]}:value",
        source=own.line,
        evidence={"parameter": told[1], "tied_to": tied[:8]},
        confidence=0.95,
    )


@world_rule(
    "shards-never-reduced", severity="error", phase="backward", explains=("loss-without-graph", "replicas-drift")
)
def never_reduced(world: World) -> Iterator[Finding]:
    """The parameters of a sharded model are gathered in every step, but its gradients are never reduced: gradient
    synchronization was turned off and not on again. The optimizer steps without gradients, or with those of the
    rank's own data.
    """
    case = world.first
    optimizer = next((one for one in case.stepping if one.steps > 2), None)
    used = [one for one in case.facts.collectives if one.group_size == world.size]
    gathers = [one for one in used if one.op.startswith("all_gather") and one.steps > 2]
    if optimizer is None or not gathers or not _fully_sharded(case) or not case.facts.sequence.backwards:
        return
    if any(one.op.startswith(("reduce_scatter", "all_reduce")) for one in case.facts.collectives):
        return
    yield case.finding(
        f"Gradients are never reduced: {optimizer.steps} steps with {sum(one.count for one in gathers)} gathers of parameters, and no reduce_scatter",
        "Turn synchronization on for the last backward pass before each step: `model.set_requires_gradient_sync(last)`.",
        source=optimizer.backward_line or optimizer.step_line,
        evidence={"steps": optimizer.steps, "collectives": sorted({one.op for one in used})},
        confidence=0.95,
    )


@world_rule("shards-reduced-too-early", severity="error", phase="backward")
def reduced_early(world: World) -> Iterator[Finding]:
    """A sharded model is trained with several backward passes per step. In every step, an early one reduces its
    gradients and the last one does not: what the passes in between have computed stays on the rank, and reaches a
    later step or none.
    """
    case = world.first
    sequence = case.facts.sequence
    optimizer = next((one for one in case.stepping if one.steps > 2), None)
    if (
        optimizer is None
        or not _fully_sharded(case)
        or sequence.reduced < 3
        or sequence.reduced_early < sequence.reduced
    ):
        return
    yield case.finding(
        f"Gradients are reduced in an early backward pass of each step and not in the last: {sequence.reduced_early} of {sequence.reduced} steps",
        "Turn synchronization on for the last backward pass before each step, and off for those before: `model.set_requires_gradient_sync(last)`.",
        source=optimizer.step_line or optimizer.backward_line,
        evidence={"steps": optimizer.steps, "backwards": sequence.backwards},
        confidence=0.95,
    )


def _fully_sharded(case: Case) -> bool:
    """All parameters are shards, as `fully_shard` of the whole model makes them: parts of a tensor-parallel model may do without reductions."""
    trained = [fact for fact in case.facts.parameters.values() if fact.requires_grad]
    return bool(trained) and all(fact.placement.startswith(("S(", "Shard")) for fact in trained)


@world_rule("stage-without-gradients", severity="error", phase="backward")
def stage(world: World) -> Iterator[Finding]:
    """A rank sends its model's outputs to another one, and steps its optimizer, but its parameters never have a
    gradient. The rank that gets the tensors computes gradients but sends none back.
    """
    ranks = [(case, optimizer) for case in world.cases for optimizer in case.stepping]
    if not any(optimizer.had_gradients for _, optimizer in ranks):
        return
    for case, optimizer in ranks:
        sent = next((c for c in case.facts.collectives if c.op in ("send", "isend", "batch_isend_irecv")), None)
        if optimizer.had_gradients or optimizer.steps < 2 or optimizer.backward_line is not None or sent is None:
            continue
        yield case.finding(
            f"The stage of rank {case.rank.rank} is not trained: its optimizer made {optimizer.steps} steps, and no parameter ever had a gradient",
            "Receive the gradient of what this rank sends (dist.recv) and continue from it: `out.backward(gradient)`. The rank that gets the "
            "tensor must call requires_grad_() on it and send its `.grad` back.",
            source=sent.line or optimizer.step_line,
            evidence={"steps": optimizer.steps, "step_line": str(optimizer.step_line)},
            confidence=0.9,
        )


@world_rule("stages-step-unequally", severity="error", phase="optimizer")
def unequal_steps(world: World) -> Iterator[Finding]:
    """Two ranks are stages of one pipeline, because gradients go back from one to the other, and the optimizer of one
    makes several steps for each step of the other: its weights change between the micro-batches of one batch.
    """
    back = [case for case in world.cases if case.facts.stages.returned]
    front = [case for case in world.cases if case.facts.stages.used]
    for case, other in ((a, b) for a in back for b in front if a is not b):
        steps = {one.rank.rank: sum(optimizer.steps for optimizer in one.stepping) for one in (case, other)}
        fewest, most = min(steps.values()), max(steps.values())
        if fewest >= 2 and most % fewest == 0 and most > fewest:
            often = case if steps[case.rank.rank] == most else other
            optimizer = next(iter(often.stepping))
            yield often.finding(
                f"The stage of rank {often.rank.rank} steps {most // fewest} times for each step of the other: {most} and {fewest} steps",
                "Step every stage once per batch, after the gradients of all its micro-batches have been accumulated.",
                source=optimizer.step_line,
                evidence={"steps": steps},
                confidence=0.9,
            )
            return


@world_rule("gradient-of-another-micro-batch", severity="error", phase="backward")
def crossed(world: World) -> Iterator[Finding]:
    """A pipeline stage runs backward from what it sent for one micro-batch, with the gradient that the next stage
    computed for another.

    The n-th tensor that a rank sends to another is the n-th that the other receives, so it is known which gradient
    belongs to which tensor.
    """
    cases = {case.rank.rank: case for case in world.cases}
    for case in world.cases:
        for used in case.facts.stages.used:
            other = cases.get(used.peer)
            returned = {
                one.sent: one.received
                for one in (other.facts.stages.returned if other is not None else ())
                if one.peer == case.rank.rank
            }
            meant = returned.get(used.received, -1)
            if meant >= 0 and meant != used.sent:
                yield case.finding(
                    f"Rank {case.rank.rank} runs backward from tensor {used.sent} that it sent to rank {used.peer} with the gradient of tensor {meant}",
                    "Take the gradients in the order in which the next stage sends them: if it processes its micro-batches in reverse, so must this one.",
                    source=used.line,
                    evidence={"sent": used.sent, "gradient_of": meant, "received": used.received},
                    confidence=0.95,
                )
                return
