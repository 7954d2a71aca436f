"""Which parameters all ranks must have alike."""

from __future__ import annotations

from tensonde.diagnose.world import World, same
from tensonde.model.trace import WeightRecord


def replicated(world: World, name: str, records: list[WeightRecord]) -> bool:
    """DistributedDataParallel holds it, the program reduces its gradient over all ranks, declares it to be the same or has sent it to all of them, or all ranks have the same
    value and the same gradient for it when the first backward pass has ended."""
    if name in world.reduced or any(name in replica.parameters for replica in world.replicas):
        return True
    if name in world.declared:
        return same([record.before for record in records])
    if name in world.sent:
        return drawn(records[0])
    raw = [record.raw for record in records]
    if not same([record.before for record in records]):
        return False
    if same(raw):
        return raw[0].get("norm", 0.0) > 0
    if not drawn(records[0]):
        return (_of_norm(world, name) and world.together and world.same_losses) or _beside_wrapper(world)
    return _left_out(world, name) or world.same_losses


def drawn(record: WeightRecord) -> bool:
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
