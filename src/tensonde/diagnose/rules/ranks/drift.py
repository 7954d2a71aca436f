"""Replicas: parameters and buffers that must be equal on all ranks."""

from __future__ import annotations

from collections.abc import Iterator

from tensonde.diagnose.analysis.courses import Parting, first_parting
from tensonde.diagnose.analysis.together import leads_to
from tensonde.diagnose.case import Case
from tensonde.diagnose.exceptions import raised
from tensonde.diagnose.rule import world_rule
from tensonde.diagnose.rules.ranks.parting import told
from tensonde.diagnose.told import some
from tensonde.diagnose.world import UNFINISHED, World, differ, same, same_in_step
from tensonde.model.facts import CollectiveFact, OptimizerFact, ReplicaFact
from tensonde.model.finding import Finding
from tensonde.model.site import Kind, Role, SourceLine
from tensonde.model.trace import WeightRecord
from tensonde.program.gradients import rewrite_between
from tensonde.program.lines import source_line
from tensonde.store.collectives import GRADIENTS

_ALONE = 4
"""Steps after which something should have brought the ranks together."""
_UNFROZEN = (
    "DistributedDataParallel reduces the gradients of the parameters that require one when it is made. Wrap the model while all that is "
    "ever trained requires a gradient, or wrap it anew after unfreezing."
)


def _replicated(world: World, name: str, records: list[WeightRecord]) -> bool:
    """DistributedDataParallel holds it, the program reduces its gradient over all ranks, declares it to be the same or has sent it to all of them, or all ranks have the same
    value and the same gradient for it when the first backward pass has ended."""
    if name in world.reduced or any(name in replica.parameters for replica in world.replicas):
        return True
    if name in world.declared:
        return same([record.before for record in records])
    if name in world.sent:
        return _drawn(records[0])
    raw = [record.raw for record in records]
    if not same([record.before for record in records]):
        return False
    if same(raw):
        return raw[0].get("norm", 0.0) > 0
    if not _drawn(records[0]):
        return (_of_norm(world, name) and world.together and world.same_losses) or _beside_wrapper(world)
    return _left_out(world, name) or world.same_losses


def _drawn(record: WeightRecord) -> bool:
    """Its values were drawn: equal ones on two ranks are no coincidence, as those of a bias that begins with zeros may be."""
    return record.before.get("min") != record.before.get("max")


def _of_norm(world: World, name: str) -> bool:
    """A norm's parameters begin with ones and zeros, and are as long as what it normalises: no rank holds a part of them."""
    site = world.first.sites.get(f"{name}:value")
    return site is not None and site.type.endswith(("LayerNorm", "RMSNorm"))


def _beside_wrapper(world: World) -> bool:
    """DistributedDataParallel holds others over all ranks, and no rank has parameters of its own: all that it does not hold begin alike."""
    wrapped = {name for replica in world.replicas for name in replica.parameters}
    others = [records for name, records in world.weights.items() if name not in wrapped]
    alike = all(same([record.before for record in records]) for records in others)
    return bool(wrapped) and alike and not world.together and not world.same_inputs


def _left_out(world: World, name: str) -> bool:
    """Others have gradients that are reduced, or are sharded, or its own is in a group of one rank; and the ranks have data of their own: this
    is no shard."""
    alone = any(
        name in collective.gradients for collective in world.first.facts.collectives if collective.group_size == 1
    )
    beside = bool(world.reduced) or world.exchanging or alone or (bool(world.sharded) and name not in world.sharded)
    return beside and not world.same_inputs


@world_rule("ranks-start-differently", severity="error", phase="init", explains=("replicas-drift",))
def different_start(world: World) -> Iterator[Finding]:
    """The gradient of a parameter is reduced over all ranks, by the program or by DistributedDataParallel, but the ranks begin with
    different values of it.

    Equal updates of different weights stay different: each rank trains a model of its own, with gradients of the others.
    """
    wrapped = {name: replica for replica in world.replicas for name in replica.parameters}
    expected = {name: records for name, records in world.weights.items() if name in world.reduced or name in wrapped}
    wrong = [name for name, records in expected.items() if differ([record.before for record in records])]
    if not wrong:
        yield from _parts_of_others(world)
        return
    first = world.first
    replica = wrapped.get(wrong[0])
    if replica is not None and wrong[0] in replica.later:
        yield first.finding(
            f"{some(wrong, 3)} were made after the model was wrapped, with other values on each rank",
            "DistributedDataParallel sends the parameters of rank 0 to the others when it is made, and reduces the gradients of those "
            "only. Build the whole model first.",
            site=f"{wrong[0]}:value",
            source=replica.line,
            evidence={"parameters": wrong[:8]},
            confidence=0.95,
        )
        return
    optimizer = next(iter(first.stepping), None)
    if replica is None and world.together and len(wrong) < len(expected):
        reducing = next((one for one in first.facts.collectives if wrong[0] in (*one.gradients, *one.copies)), None)
        yield first.finding(
            f"Gradients of different parameters are averaged: {some(wrong, 3)} differ between the ranks before the first step, the other "
            f"{len(expected) - len(wrong)} do not",
            "Where each rank has its own part of the model, such as an expert, its gradients belong to this part alone: leave them out of the reduction "
            "(and divide them by the number of ranks, if the loss of each rank is a mean). If the ranks are to share them, send the weights of rank 0.",
            site=f"{wrong[0]}:value",
            source=reducing.line if reducing is not None else None,
            evidence={"parameters": wrong[:8], "gradients": "reduced over all ranks"},
            confidence=0.9,
        )
        return
    loaded = world.only_some_load("weights")
    why = f", and only some ranks load weights at {loaded}" if loaded is not None else ""
    if loaded is None and replica is not None and (every := _loaded_by_all(world)) is not None:
        yield _loaded_differently(world, wrong, len(expected), every)
        return
    if loaded is None and world.seeded_apart is not None:
        why = f"; they are seeded differently at {world.seeded_apart}"
    yield first.finding(
        f"The ranks start from different weights: {len(wrong)} of {len(expected)} parameters differ before the first step{why}",
        "Send the weights of rank 0 to the others before the optimizer is made: "
        "`for p in model.parameters(): dist.broadcast(p.data, src=0)`. DistributedDataParallel does this by itself. "
        "Seeding all ranks alike helps only if nothing else draws random numbers before.",
        site=f"{wrong[0]}:value",
        source=loaded or (optimizer.made if optimizer is not None else None),
        evidence={"parameters": wrong[:8], "gradients": "reduced over all ranks"},
        confidence=0.95,
    )


def _loaded_by_all(world: World) -> SourceLine | None:
    """The last line at which every rank loads weights."""
    each = [
        [one.line for one in case.facts.beginning.loads if one.what == "weights" and one.line] for case in world.cases
    ]
    return next((line for line in reversed(each[0]) if all(line in lines for lines in each)), None)


def _loaded_differently(world: World, wrong: list[str], known: int, line: SourceLine) -> Finding:
    """DistributedDataParallel sent the weights of rank 0 when it was made, so they were replaced afterwards."""
    return world.first.finding(
        f"The ranks load different weights at {line}: {len(wrong)} of {known} parameters differ before the first step",
        "Every rank must load the same file. DistributedDataParallel sends the weights of rank 0 only when it is made: load before you wrap the model, "
        "or load the file of rank 0 on all ranks.",
        site=f"{wrong[0]}:value",
        source=line,
        evidence={"parameters": wrong[:8], "gradients": "reduced over all ranks"},
        confidence=0.95,
    )


def _parts_of_others(world: World) -> Iterator[Finding]:
    """`fully_shard` keeps this rank's part of what this rank has: it sends nothing. So the parts must be of the same whole."""
    tables = [list(case.facts.beginning.parted) for case in world.cases]
    if len({len(table) for table in tables}) > 1:
        return
    wrong = []
    for row in zip(*tables, strict=True):
        if len({(one.name, tuple(one.shape), one.ranks) for one in row}) > 1:
            return  # the ranks do not shard the same model
        if row[0].ranks == world.size and len({one.digest for one in row}) > 1:
            wrong.append(row[0])
    if not wrong:
        return
    seeded = world.seeded_apart
    why = f": they are seeded differently at {seeded}" if seeded is not None else ""
    yield world.first.finding(
        f"The ranks shard different models: {len(wrong)} of {len(tables[0])} parameters had different values on different ranks before fully_shard{why}",
        "fully_shard keeps each rank's part of the rank's own values. Build the model with the same seed on all ranks and seed by the rank afterwards, or "
        "load one state into all of them (set_model_state_dict with broadcast_from_rank0=True).",
        site=f"{wrong[0].name}:value" if wrong[0].name else None,
        source=seeded or wrong[0].line,
        evidence={"parameters": [one.name for one in wrong[:8]], "sharded_at": str(wrong[0].line)},
        confidence=0.95,
    )


@world_rule("replicas-drift", severity="error", phase="optimizer")
def drift(world: World) -> Iterator[Finding]:
    """A parameter that all ranks share is equal on all of them when a step begins and different when it has ended.

    The first traced step shows where they part: after the backward pass (gradients are not reduced), between it and the
    optimizer's step (something changes the gradients on each rank by itself, such as clipping by a rank's own norm), or
    in the step. Later steps are compared by the digests that all ranks took.
    """
    if any(_unfinished(case) for case in world.cases):
        return
    apart = {
        name: records
        for name, records in world.weights.items()
        if _replicated(world, name, records)
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
                    f"because what each rank makes of {given.op if given is not None else 'the exchange'} is another gradient",
                    "Every rank must step with the same gradient: choose elements, buckets and scales by what is the same on all ranks.",
                )
            if reducing is not None and reducing.first_step > 0:
                why, advice = (
                    "because their gradients are reduced only after the optimizer's step",
                    "Reduce the gradients between backward() and step().",
                )
            elif reducing is not None and name in reducing.copies:
                why, advice = (
                    f"because {reducing.op} gets a copy of their gradients, and the optimizer does not get its result",
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
                "Make them a part of the model that is wrapped, wrap their module as well, or reduce their gradients (dist.all_reduce) before the step.",
            )
            root = case.facts.modules.get(name.partition(".")[0])
            own = root.made if root is not None else None
        source = own or (optimizer.backward_line if optimizer is not None else source)
        if replica is not None and optimizer is not None and optimizer.backward_line is None and own is None:
            why, advice = (
                "because their gradients come from no backward pass, and DistributedDataParallel reduces only those of one",
                "torch.autograd.grad gives gradients back and runs no hook of a parameter. Call `loss.backward()`, or reduce what you write into "
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
        if not _replicated(world, name, records) or differ([record.before for record in records]):
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
        advice = (
            "Look at what only one rank does before this step: an update by hand, a skipped step, a loaded state, a learning rate "
            "of its own. `tensonde show --ranks` shows the ranks side by side."
        )
        source = optimizer.step_line if optimizer is not None else None
        replica = next((one for one in world.replicas if set(names) <= set(one.unfrozen)), None)
        loaded = world.only_some_load("weights") or world.only_some_load("optimizer")
        if loaded is not None:
            why, source = f", and only some ranks load a state at {loaded}, or not equally often", loaded
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
            advice = (
                "Every step needs a backward pass outside of `no_sync()`: the last one before it. Where the batches of an epoch are no multiple of the "
                "number that is accumulated, the last batch must count as such, too."
            )
            source = passes
        elif loaded is None and (parting := _parted_before(world, step)) is not None:
            why = f": {told(parting)}"
            advice = "Whatever changes the weights must do so on every rank, with the same values."
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


@world_rule("ranks-train-alone", severity="error", phase="optimizer")
def alone(world: World) -> Iterator[Finding]:
    """A sampler splits the data over the ranks, all ranks begin with the same weights, and nothing ever combines their gradients or weights: each rank
    trains its own model, on a part of the data.
    """
    case = world.first
    optimizer = next(iter(case.stepping), None)
    if world.replicas or world.reduced or world.sharded or world.sent or optimizer is None or optimizer.steps < _ALONE:
        return
    if any(_brings_together(one, optimizer.steps) for each in world.cases for one in each.facts.collectives):
        return
    if not all(any(one.steps and one.dealt for one in each.facts.loaders) for each in world.cases):
        return
    drawn = {name: records for name, records in world.weights.items() if _drawn(records[0])}
    if not all(same([record.before for record in records]) for records in drawn.values()):
        return
    apart = [name for name, records in drawn.items() if _stays_apart(world, name, records)]
    if apart:
        yield case.finding(
            f"Each of the {world.size} ranks trains its own model: nothing combines their gradients, though a sampler splits the data over the ranks",
            "Wrap the model in DistributedDataParallel (with accelerate: give it to `accelerator.prepare`), or reduce the gradients after each backward pass.",
            site=f"{apart[0]}:grad",
            source=optimizer.backward_line or optimizer.step_line,
            evidence={"parameters": apart[:8], "steps": optimizer.steps},
            confidence=0.9,
        )


@world_rule(
    "stepped-with-own-gradients",
    severity="error",
    phase="optimizer",
    explains=("parameter-not-in-optimizer", "replicas-drift"),
)
def own_gradients(world: World) -> Iterator[Finding]:
    """Each rank's optimizer has a part of the parameters and sends it to the others after its step, so the ranks hold one model; but they have data of their
    own, each steps with the gradients of these, and nothing reduces gradients: every parameter is trained on the data of one rank."""
    case = world.first
    optimizer = next(iter(case.stepping), None)
    if world.replicas or world.reduced or world.sharded or world.together or world.same_inputs or optimizer is None:
        return
    used = [one for each in world.cases for one in each.facts.collectives]
    if any(one.gradients or one.copies or (one.op.startswith("reduce_scatter") and not one.scalar) for one in used):
        return
    if any(one.op == "all_reduce" and not one.scalar for one in used):
        return  # it may carry all gradients in a form of its own
    sent = {
        name
        for one in used
        if one.op.startswith("broadcast") and one.steps >= optimizer.steps // 2 and optimizer.steps >= _ALONE
        for name in one.parameters
    }
    parted = [
        name
        for name in sent
        if len({bool(fact.optimizers) for c in world.cases if (fact := c.facts.parameters.get(name))}) > 1
    ]
    apart = [name for name in parted if name in world.weights and differ([r.gradient for r in world.weights[name]])]
    if apart:
        yield case.finding(
            f"Each rank steps its part of the parameters with its own gradients: nothing reduces them, and {some(sorted(apart), 3)} differ",
            "Reduce the gradients over all ranks before the step (dist.all_reduce, then divide by the number of ranks; or dist.reduce to the rank that has "
            "the parameter).",
            site=f"{min(apart)}:grad",
            source=optimizer.step_line,
            evidence={"parameters": sorted(apart)[:8], "sent": len(sent)},
            confidence=0.9,
        )


def _stays_apart(world: World, name: str, records: list[WeightRecord]) -> bool:
    """The ranks have different gradients of it in the first step, and different values of it in the last."""
    last = [rows for _, rows in world.common(f"{name}:value")][-1:]
    return differ([record.gradient for record in records]) and bool(last) and not same_in_step(last[0])


def _brings_together(one: CollectiveFact, steps: int) -> bool:
    """It may carry gradients or weights."""
    if one.op.startswith(("send", "isend", "recv", "irecv", "batch")):
        return True
    return not one.scalar and (not one.op.startswith(("broadcast", "barrier")) or one.count >= steps // 2)


@world_rule("buffers-not-synchronised", severity="warning")
def buffers(world: World) -> Iterator[Finding]:
    """DistributedDataParallel was told not to send buffers, they differ between the ranks, and the model is evaluated.

    Each rank then evaluates another model: with running statistics of its own share of the data.
    """
    yield from _changed_by_each(world)
    for replica in world.replicas:
        if replica.sync_buffers or not replica.evaluated:
            continue
        wrong = []
        together = {name for one in world.first.facts.collectives for name in one.buffers}
        for address, site in world.first.sites.items():
            if site.kind is Kind.BUFFER and site.role is Role.VALUE and site.name not in together:
                rows = list(world.common(address))
                if rows and not same_in_step(rows[-1][1]):
                    wrong.append(site.name)
        if wrong:
            yield world.first.finding(
                f"The ranks evaluate different models: {some(wrong, 3)} differ between them, and broadcast_buffers is off",
                "Leave broadcast_buffers on, or use nn.SyncBatchNorm.convert_sync_batchnorm(model) before the model is wrapped.",
                step=None,
                site=f"{wrong[0]}:value",
                source=replica.line,
                evidence={"buffers": wrong[:8]},
                confidence=0.9,
            )


def _changed_by_each(world: World) -> Iterator[Finding]:
    """A buffer of a module outside of DistributedDataParallel that a class of the program changes by a rank's own batch, and that the loss is made of."""
    trace = world.first.first
    if not world.replicas or trace is None or trace.loss is None:
        return
    used = {tensor.name for k in leads_to(trace.ops, trace.loss) for tensor in trace.ops[k].inputs if tensor.name}
    wrapped = tuple(f"{replica.name}." for replica in world.replicas if replica.name)
    for one in world.first.facts.beginning.changed:
        rows = [rows for _, rows in world.common(f"{one.name}:value")]
        if one.name not in used or one.name.startswith(wrapped or (one.name,)) or not rows:
            continue
        if _began_alike(world, one.name):
            yield world.first.finding(
                f"Each rank computes its loss with another {one.name}: it is changed by the rank's own batches, and nothing brings the ranks together",
                "Average over the ranks what it is changed by (dist.all_reduce, then divide by the number of ranks), or make its module a part of the "
                "model that DistributedDataParallel holds.",
                step=None,
                site=f"{one.name}:value",
                source=one.line,
                evidence={"norms": [row[0].get("norm") for row in rows[-1]]},
                confidence=0.85,
            )
            return


def _began_alike(world: World, name: str) -> bool:
    """The first step was computed with equal values of it on all ranks."""
    columns = []
    for case in world.cases:
        trace = case.first
        found = [t.stats for op in (trace.ops if trace else ()) for t in op.inputs if t.name == name]
        columns.append(found[0] if found else {})
    last = [rows for _, rows in world.common(f"{name}:value")][-1]
    return same(columns) and not same_in_step(last)


@world_rule("learning-rates-differ", severity="error", phase="optimizer", explains=("replicas-drift",))
def rates(world: World) -> Iterator[Finding]:
    """The gradients of all ranks are averaged, but in the same step the ranks use different learning rates."""
    if not world.replicas and not world.reduced:
        return
    for group in range(8):
        tables = [dict(case.series(f"lr/{group}")) for case in world.cases]
        steps = sorted(set.intersection(*(set(table) for table in tables)))
        apart = next((step for step in steps if len({table[step] for table in tables}) > 1), None)
        if apart is None:
            continue
        case = world.first
        optimizer = next(iter(case.stepping), None)
        scheduler = next(iter(case.facts.schedulers), None)
        later = apart > steps[0] and scheduler is not None
        made = optimizer.made if optimizer is not None else None
        if not case.facts.schedulers and case.facts.rates_set:
            made = case.facts.rates_set[0].source
        yield case.finding(
            f"The ranks use different learning rates from step {apart} on: {some([f'{table[apart]:g}' for table in tables], 8)}",
            "A scheduler that goes by a loss must get the same one on all ranks: average it first (dist.all_reduce). Rates that depend on "
            "the rank are a mistake: all ranks hold the same model.",
            step=apart,
            source=(scheduler.line or scheduler.made) if later and scheduler is not None else made,
            evidence={"rates": [table[apart] for table in tables], "group": group},
            confidence=0.95,
        )
        return


@world_rule(
    "stepped-on-some-ranks",
    severity="error",
    phase="optimizer",
    explains=("replicas-drift", "nan-in-optimizer", "nonfinite"),
)
def stepped(world: World) -> Iterator[Finding]:
    """The ranks step with gradients that they have reduced, and in the same step the scaler of one finds infinities and skips it, that of another does not:
    it has looked for them before the gradients were reduced."""
    if not world.replicas and not world.reduced and not world.sharded:
        return
    skipped = [{step for step, _ in case.series("skipped")} for case in world.cases]
    last = min(case.steps for case in world.cases)
    apart = [
        step for step in sorted(set[int]().union(*skipped).difference(set[int].intersection(*skipped))) if step < last
    ]
    if not apart:
        return
    who = [str(case.rank.rank) for case, steps in zip(world.cases, skipped, strict=True) if apart[0] in steps]
    optimizer = next(iter(world.first.stepping), None)
    yield world.first.finding(
        f"Only rank {some(who, 8)} skips step {apart[0]}, because its gradients are infinite; the other ranks make it",
        "Reduce the gradients before the scaler looks at them: `scaler.unscale_` or `scaler.step` after the last all_reduce, or add up over the ranks what "
        "it has found.",
        step=apart[0],
        source=optimizer.step_line if optimizer is not None else None,
        evidence={"skipped_by": who, "steps": apart[:8]},
        confidence=0.95,
    )


@world_rule(
    "cleared-on-some-ranks",
    severity="error",
    phase="optimizer",
    explains=("gradients-never-cleared", "replicas-drift"),
)
def cleared(world: World) -> Iterator[Finding]:
    """Some ranks clear their gradients in every step, and others never do: the ranks step with different gradients, although these are averaged."""
    never = [case for case in world.cases if any(_never_cleared(one) for one in case.stepping)]
    always = [case for case in world.cases if case.facts.sequence.cleared_line is not None and case not in never]
    if not never or not always or (not world.replicas and not world.reduced):
        return
    case = always[0]
    yield case.finding(
        f"Only rank {some([str(one.rank.rank) for one in always], 8)} clears its gradients; on rank {some([str(one.rank.rank) for one in never], 8)} "
        "every step adds to those of all steps before",
        "Call zero_grad() on every rank, outside of `if rank == 0:`.",
        source=case.facts.sequence.cleared_line,
        evidence={"clear": [one.rank.rank for one in always], "never": [one.rank.rank for one in never]},
        confidence=0.95,
    )


def _never_cleared(optimizer: OptimizerFact) -> bool:
    looked = optimizer.looked_at
    return looked >= _ALONE and optimizer.uncleared >= 0.9 * (looked - 1) and not optimizer.closure


@world_rule("shards-scaled-differently", severity="error", phase="optimizer")
def scaled(world: World) -> Iterator[Finding]:
    """Each rank holds a part of the parameters (FSDP2, DTensor). Between the backward pass and the optimizer's step of the first step, all
    gradients of a rank are scaled by one factor, which is another one on another rank: each rank has clipped by the norm of its own part."""
    parts = sorted(world.sharded)
    factors = [factor_of(case, parts) for case in world.cases]
    values = [factor for factor in factors if factor is not None]
    if len(values) < len(factors) or max(values) - min(values) <= 1e-3 * max(values):
        return
    case = world.first
    optimizer = next(iter(case.stepping), None)
    yield case.finding(
        f"Each rank scales the gradients of its own shards by another factor: {some([f'{value:.4g}' for value in values], 8)}",
        "The norm must be that of all shards: `torch.nn.utils.clip_grad_norm_(model.parameters(), limit)` adds them up, or add up the squares over "
        "all ranks yourself (dist.all_reduce).",
        site=f"{parts[0]}:grad",
        source=case.facts.clipping.line
        or case.facts.beginning.rewrite
        or (optimizer.step_line if optimizer is not None else None),
        evidence={"factors": values},
        confidence=0.9,
    )


def factor_of(case: Case, names: list[str]) -> float | None:
    """By how much all these gradients were scaled before the optimizer's step; None where not by one factor."""
    records = {record.name: record for record in (case.first.weights if case.first else ())}
    found = [
        records[name].gradient["norm"] / records[name].raw["norm"]
        for name in names
        if name in records and records[name].raw.get("norm") and "norm" in records[name].gradient
    ]
    if not found or max(found) - min(found) > 1e-4 * max(found):
        return None
    return found[0]
