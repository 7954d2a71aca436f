"""Replicas that part: parameters that are equal on all ranks, and then are not."""

from __future__ import annotations

from collections.abc import Iterator

from tensonde.diagnose.analysis.courses import Parting, first_parting, told
from tensonde.diagnose.analysis.replicated import replicated
from tensonde.diagnose.case import Case
from tensonde.diagnose.exceptions import raised
from tensonde.diagnose.rule import world_rule
from tensonde.diagnose.told import some
from tensonde.diagnose.world import UNFINISHED, World, differ, same, same_in_step
from tensonde.model.facts import ReplicaFact
from tensonde.model.finding import Finding
from tensonde.model.site import SourceLine
from tensonde.model.trace import WeightRecord
from tensonde.program.gradients import rewrite_between
from tensonde.program.lines import source_line
from tensonde.store.collectives import GRADIENTS

_UNFROZEN = "DistributedDataParallel reduces the gradients of the parameters that require one when it is made. Wrap the model while everything that is ever trained requires a gradient, or wrap it again after unfreezing."


@world_rule("replicas-drift", severity="error", phase="optimizer")
def drift(world: World) -> Iterator[Finding]:
    """A parameter that all ranks share is equal on all of them when a step begins and different when it has ended.

    The first traced step shows where they diverge: after the backward pass (gradients are not reduced), between it
    and the optimizer's step (something changes the gradients on each rank by itself, such as clipping by a rank's own
    norm), or in the step. Later steps are compared by the digests that all ranks took.
    """
    if any(_unfinished(case) for case in world.cases):
        return
    apart = {
        name: records
        for name, records in world.weights.items()
        if replicated(world, name, records)
        and same([record.before for record in records])
        and differ([record.after for record in records])
        and not _sent_back(world, name, records)
    }
    if apart:
        yield _first_step(world, apart)
        return
    yield from _later(world)


def _sent_back(world: World, name: str, records: list[WeightRecord]) -> bool:
    """A rank whose optimizer does not have it gets it all the same, after the step: each rank steps a part of the parameters."""
    facts = [case.facts.parameters.get(name) for case in world.cases]
    return any(
        fact is not None and not fact.optimizers and fact.changed and same([record.before, record.after])
        for fact, record in zip(facts, records, strict=True)
    )


def _unfinished(case: Case) -> bool:
    """DistributedDataParallel still waits for gradients of the first step, so it has reduced none: `unused-in-ddp` says so."""
    event = raised(case)
    return event is not None and UNFINISHED in str(event.get("message", ""))


def _first_step(world: World, apart: dict[str, list[WeightRecord]]) -> Finding:
    name, records = next(iter(apart.items()))
    case = world.first
    optimizer = next(iter(case.stepping), None)
    replica = next((replica for replica in world.replicas if name in replica.parameters), None)
    source = optimizer.step_line if optimizer is not None else None
    raw, gradient = [r.raw for r in records], [r.gradient for r in records]
    if same(gradient):
        why = "with equal gradients"
        advice = "Compare the optimizers of the ranks: learning rate, groups and state must be the same on all of them."
        source = optimizer.made if optimizer is not None else None
        stepped = [
            case.rank.rank for case, one in zip(world.cases, records, strict=True) if not same([one.before, one.after])
        ]
        if len(stepped) < len(records):
            why = f"because only rank {some([str(rank) for rank in stepped], 8)} steps them, and does not send them to the others"
            advice = (
                "Where each rank's optimizer has a part of the parameters, each must send its part to all others after its step "
                "(dist.broadcast with the number of the rank that has it), or use torch.distributed.optim.ZeroRedundancyOptimizer."
            )
            source = _sending(world, name) or source
        if (loaded := world.only_some_load("optimizer")) is not None:
            why, source = (
                f"with equal gradients, because only some ranks load the optimizer's state at {loaded}",
                loaded,
            )
    elif same(raw):
        why = "their gradients are equal after backward() and different at the optimizer's step"
        advice = (
            "Something between backward() and step() changes the gradients on each rank by itself. If it is clipping, every rank "
            "must use the same norm: add up the squares over all ranks (dist.all_reduce), and count replicated parameters once."
        )
        source = case.facts.clipping.line or case.facts.beginning.rewrite or source
    else:
        why, advice = _not_reduced(replica, name, world.same_losses)
        if replica is None and name in world.sent:
            why, advice = (
                "because each rank steps with its own gradient of them",
                "The program sends them from one rank to all before it trains, so the ranks share them, as stages of a pipeline share tied "
                "embeddings. Add up their gradients over these ranks before the step (dist.all_reduce).",
            )
        elif replica is None and world.sharded:
            why, advice = (
                "because they are outside of every fully_shard call, and nothing reduces their gradients",
                "Call fully_shard on the whole model as well, after its parts: it takes care of the parameters that are left.",
            )
        own = (replica.line if name in replica.later else replica.bypass_line) if replica is not None else None
        if replica is None:
            reducing = next((c for c in case.facts.collectives if c.gradients or name in c.copies), None)
            own = reducing.line if reducing is not None else None
            if reducing is None and world.exchanging:
                given = next((c for c in case.facts.collectives if c.before_step and not c.scalar), None)
                own = given.line if given is not None else None
                why, advice = (
                    f"because the result of {given.op if given is not None else 'the exchange'} is a different gradient on each rank",
                    "Every rank must step with the same gradient: choose elements, buckets and scales by what is the same on all ranks.",
                )
            if reducing is not None and reducing.first_step > 0:
                why, advice = (
                    "because their gradients are reduced only after the optimizer's step",
                    "Reduce the gradients between backward() and step().",
                )
            elif reducing is not None and name in reducing.copies:
                why, advice = (
                    f"because {reducing.op} gets a copy of their gradients, and the optimizer does not get the result",
                    "Write the result back into the gradient (`p.grad.copy_(reduced)`), in the same order on all ranks, or reduce `p.grad` itself.",
                )
            if reducing is not None and reducing.group_size == 1:
                why, advice = (
                    "because their gradients are reduced in a group that has one rank only",
                    "Reduce over the group of all ranks that hold the same parameters. Every rank must call dist.new_group for every group.",
                )
        if replica is None and own is None and world.replicas:
            why, advice = (
                f"because they are outside of DistributedDataParallel at {world.replicas[0].line}, and nothing reduces their gradients",
                "Make them a part of the wrapped model, wrap their module as well, or reduce their gradients (dist.all_reduce) before the step.",
            )
            root = case.facts.modules.get(name.partition(".")[0])
            own = root.made if root is not None else None
        source = own or (optimizer.backward_line if optimizer is not None else source)
        if replica is not None and optimizer is not None and optimizer.backward_line is None and own is None:
            why, advice = (
                "because their gradients come from no backward pass, and DistributedDataParallel reduces only those of one",
                "torch.autograd.grad returns gradients and runs no parameter hooks. Call `loss.backward()`, or reduce what you write into "
                "`p.grad` over all ranks (dist.all_reduce) before the step.",
            )
            source = _written_by_hand(optimizer.step_line) or optimizer.step_line
    return case.finding(
        f"Replicas drift apart: {some(list(apart), 3)} differ between the ranks after the first step, {why}",
        advice,
        site=f"{name}:value",
        source=source,
        evidence={
            "parameters": list(apart)[:8],
            "norm_of_gradient": [record.gradient.get("norm") for record in records],
            "norm_after_backward": [record.raw.get("norm") for record in records],
        },
        confidence=0.95,
    )


def _sending(world: World, name: str) -> SourceLine | None:
    """The line that sends other parameters, and not this one."""
    found = [
        one
        for case in world.cases
        for one in case.facts.collectives
        if one.parameters and name not in one.parameters and one.op.startswith(("broadcast", "all_gather"))
    ]
    return found[0].line if found else None


def _not_reduced(replica: ReplicaFact | None, name: str, partial: bool) -> tuple[str, str]:
    if replica is None and partial:
        return (
            "because each rank has only its own part of their gradients",
            "The ranks have the same values, the same input and the same loss, so this is a parameter that all of them hold. Behind it the "
            "model is split: where its output enters the split part, the backward pass must add up the gradients of all ranks (all_reduce).",
        )
    if replica is None:
        return (
            "because their gradients are not reduced",
            "Reduce every gradient over all ranks after each backward pass, or wrap the model in DistributedDataParallel.",
        )
    if name in replica.unfrozen:
        return (
            "because they required no gradient when the model was wrapped",
            _UNFROZEN,
        )
    if name in replica.later:
        return (
            "because they were made after the model was wrapped",
            "DistributedDataParallel reduces the gradients of the parameters that exist when it is made. Build the whole model first.",
        )
    if replica.bypassed and not replica.called:
        return (
            "because the forward bypasses DistributedDataParallel",
            f"Call the wrapper (`{replica.name or 'ddp'}(x)`), not the module inside it (`.module(x)`): only the wrapper's forward "
            "prepares the reduction of gradients.",
        )
    return (
        "because their gradients are not reduced",
        "Look for `no_sync()` around the last backward pass before the step, and for gradients that are computed by torch.autograd.grad.",
    )


def _later(world: World) -> Iterator[Finding]:
    """A parameter that was equal and no longer is."""
    if any(replica.joined for replica in world.replicas):
        return  # the same step of two ranks is not the same
    found: list[tuple[int, str]] = []
    for name, records in world.weights.items():
        if not replicated(world, name, records) or differ([record.before for record in records]):
            continue
        equal = False
        for step, rows in world.common(f"{name}:value"):
            if same_in_step(rows):
                equal = True
            elif equal:
                found.append((step, name))
                break
    if found:
        step, name = min(found)
        names = [other for at, other in found if at == step]
        optimizer = next(iter(world.first.stepping), None)
        why = ""
        advice = "Look for something that only one rank does before this step: a manual update, a skipped step, a loaded state, its own learning rate. `tensonde show --ranks` shows the ranks side by side."
        source = optimizer.step_line if optimizer is not None else None
        replica = next((one for one in world.replicas if set(names) <= set(one.unfrozen)), None)
        loaded = world.only_some_load("weights") or world.only_some_load("optimizer")
        if loaded is not None:
            why, source = f", and only some ranks load a state at {loaded}, or some load it more often", loaded
        elif (loaded := world.all_load(step)) is not None:
            why = f": the ranks load different weights at {loaded}"
            advice = (
                "Every rank must load the same file, after it was written: let the others wait until the rank that writes it is done (dist.barrier()), or load "
                "on one rank and send the weights (dist.broadcast)."
            )
            source = loaded
        if replica is not None:
            why, advice = ", because they required no gradient when the model was wrapped", _UNFROZEN
            source = replica.unfreezing or replica.line
        elif loaded is None and (passes := _unreduced(world, step, names)) is not None:
            why = ", because no backward pass of that step reduces gradients, as those of other steps do"
            advice = "Every step needs a backward pass outside `no_sync()`: the last one before it. If the number of batches per epoch is not a multiple of the accumulated number, the last batch must count as such, too."
            source = passes
        elif loaded is None and (parting := _parted_before(world, step)) is not None:
            why = f": {told(parting)}"
            advice = "Whatever changes the weights must change them on every rank, with the same values."
            _, deed = parting.doer
            by_rank = source_line(deed.line.file, deed.by_rank) if deed.line is not None and deed.by_rank else None
            source = (by_rank if deed.what == "write" else parting.decided) or source
        yield world.first.finding(
            f"Replicas drift apart: {some(names, 3)} differ between the ranks from step {step} on{why}",
            advice,
            step=step,
            site=f"{name}:value",
            source=source,
            evidence={"parameters": names[:8]},
            confidence=0.9,
        )


def _parted_before(world: World, step: int) -> Parting | None:
    """What one rank did to its weights, in this step, and another did not."""
    found = first_parting(world, also=("load", "write"))
    return found if found is not None and found.step <= step else None


def _unreduced(world: World, step: int, names: list[str]) -> SourceLine | None:
    """The line that keeps gradients from being reduced, where no rank has reduced any in this step, and all have in others."""
    if not any(set(names) <= set(replica.parameters) for replica in world.replicas):
        return None
    each = [[call for call in one.calls if call.kind.op == GRADIENTS] for one in world.standings]
    if len(each) < world.size or not all(calls and calls[0].step < step for calls in each):
        return None
    if any(call.step == step for calls in each for call in calls):
        return None
    kind = each[0][-1].kind
    return source_line(kind.file, kind.unsynchronised or kind.line) if kind.file else None


def _written_by_hand(step: SourceLine | None) -> SourceLine | None:
    """The line before a step, in its function, that writes a gradient."""
    found = rewrite_between(step.file, 0, step.line) if step is not None else None
    return source_line(step.file, found) if step is not None and found is not None else None
