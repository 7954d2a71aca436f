"""Buffers that differ between the ranks."""

from __future__ import annotations

from collections.abc import Iterator

from tensonde.diagnose.analysis.together import leads_to
from tensonde.diagnose.rule import world_rule
from tensonde.diagnose.told import some
from tensonde.diagnose.world import World, same, same_in_step
from tensonde.model.finding import Finding
from tensonde.model.site import Kind, Role


@world_rule("buffers-not-synchronised", severity="warning")
def buffers(world: World) -> Iterator[Finding]:
    """DistributedDataParallel was told not to send buffers, they differ between the ranks, and the model is
    evaluated.

    So each rank evaluates a different model: with running statistics of its own share of the data.
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


@world_rule("statistics-of-own-share", severity="warning")
def own_statistics(world: World) -> Iterator[Finding]:
    """`update_bn` computed the running statistics of a model, such as one with averaged weights, on each rank from that
    rank's batches alone. The ranks run the model with equal weights but different statistics.
    """
    if not world.replicas and not world.reduced:
        return
    tables = [{one.name: one for one in case.facts.evaluated_weights if one.statistics} for case in world.cases]
    for name, one in tables[0].items():
        found = [table[name] for table in tables if name in table]
        step = one.statistics[0]
        if len(found) < len(tables) or any(other.statistics[0] != step for other in found):
            continue
        if len({look[1] for other in found for look in other.looks if look[0] == step}) > 1:
            continue  # other weights, which is worse
        if len({other.statistics[1] for other in found}) > 1:
            yield world.first.finding(
                f"The ranks run {name} with different running statistics: on each rank, update_bn computed them from that rank's own batches",
                "Give update_bn the same batches on all ranks, or average the running statistics over the ranks afterwards (dist.all_reduce, then divide by "
                "the number of ranks).",
                step=step,
                source=one.renewed,
                evidence={"run_at": str(one.called)},
                confidence=0.9,
            )
            return


def _changed_by_each(world: World) -> Iterator[Finding]:
    """A buffer of a module outside of DistributedDataParallel that a class of the program changes by a rank's own batch, and that the loss is made of. What has a
    row for each sample, as a state that is carried on, belongs to the rank."""
    trace = world.first.first
    if (
        not (world.replicas or world.reduced or world.exchanging)
        or world.together
        or trace is None
        or trace.loss is None
    ):
        return
    used = {tensor.name for k in leads_to(trace.ops, trace.loss) for tensor in trace.ops[k].inputs if tensor.name}
    wrapped = tuple(f"{replica.name}." for replica in world.replicas if replica.name)
    for one in world.first.facts.beginning.changed:
        rows = [rows for _, rows in world.common(f"{one.name}:value")]
        held = world.first.sites.get(f"{one.name}:value")
        if one.name not in used or not rows or (world.replicas and one.name.startswith(wrapped or (one.name,))):
            continue
        if held is None or set(held.shape[:1]) & _samples(world):
            continue
        if _began_alike(world, one.name):
            yield world.first.finding(
                f"Each rank computes its loss with a different {one.name}: each rank's own batches change it, and nothing synchronizes the ranks",
                "Average what changes it over the ranks (dist.all_reduce, then divide by the number of ranks), or make its module a part of the model that DistributedDataParallel holds.",
                step=None,
                site=f"{one.name}:value",
                source=one.line,
                evidence={"norms": [row[0].get("norm") for row in rows[-1]]},
                confidence=0.85,
            )
            return


def _samples(world: World) -> set[int]:
    """How many samples the batches have."""
    roots = set(world.first.facts.roots)
    inputs = [
        one
        for one in world.first.sites.values()
        if one.kind is Kind.MODULE and one.role is Role.IN and one.name in roots
    ]
    return {one.shape[0] for one in inputs if one.shape}


def _began_alike(world: World, name: str) -> bool:
    """The first step was computed with equal values of it on all ranks."""
    columns = []
    for case in world.cases:
        trace = case.first
        found = [t.stats for op in (trace.ops if trace else ()) for t in op.inputs if t.name == name]
        columns.append(found[0] if found else {})
    last = [rows for _, rows in world.common(f"{name}:value")][-1]
    return same(columns) and not same_in_step(last)
