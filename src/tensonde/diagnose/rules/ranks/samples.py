"""Which samples the ranks read."""

from __future__ import annotations

import math
from collections.abc import Iterator

from tensonde.diagnose.case import Case
from tensonde.diagnose.rule import rule, world_rule
from tensonde.diagnose.told import some
from tensonde.diagnose.world import World, same_in_step
from tensonde.model.facts import LoaderFact
from tensonde.model.finding import Finding
from tensonde.model.site import Kind, Role, Site

_FEWEST_STEPS = 16
"""Of a schedule: by fewer, a multiple is a coincidence."""
_STEPS = 2
"""Steps in which all ranks must have been looked at."""


@world_rule("same-samples-on-every-rank", severity="warning", phase="data")
def same_samples(world: World) -> Iterator[Finding]:
    """The gradients of all ranks are averaged, and in every step examined all ranks got the same batch: everything
    that the model got. A number that the ranks have in common, such as how many words count in all of them, is not a
    batch.

    The average of equal gradients is the gradient of one rank: the other ranks add nothing.
    """
    case = world.first
    if (not world.replicas and not world.reduced) or world.together:
        return
    roots = set(case.facts.roots)
    for address, site in case.sites.items():
        if site.name not in roots or not _given(site, site.name):
            continue
        steps = list(world.common(address))
        varied = len({tuple(rows[0][0].items())[1:] for _, rows in steps}) > 1
        alike = all(_alike(world, one) for one in case.sites.values() if _given(one, site.name))
        if len(steps) >= _STEPS and varied and alike and math.prod(site.shape) > 1:
            loader = next((loader for loader in case.facts.loaders if loader.steps), None)
            yield case.finding(
                f"All {world.size} ranks train on the same samples",
                "Give each rank its share: `DataLoader(data, sampler=DistributedSampler(data))`, and call "
                "`sampler.set_epoch(epoch)` in every epoch. Data that each rank generates itself needs a different seed per rank.",
                site=address,
                source=(loader.sampler_line or loader.made if loader is not None else None) or site.source,
                evidence={"steps": [step for step, _ in steps][:8], "input": address},
                confidence=0.9,
            )
            return


def _given(site: Site, root: str) -> bool:
    return site.kind is Kind.MODULE and site.role is Role.IN and site.name == root


def _alike(world: World, site: Site) -> bool:
    return all(same_in_step(rows) for _, rows in world.common(site.address))


@world_rule("stages-read-different-samples", severity="error", phase="data")
def stages(world: World) -> Iterator[Finding]:
    """One rank runs backward with gradients that another one computes and sends back, so the two are stages of one
    pipeline: the first has the inputs and the last the targets. Each reads the same data set with its own loader, and
    their first batches contain different samples.
    """
    cases = {case.rank.rank: case for case in world.cases}
    for case in world.cases:
        peers = {used.peer for used in case.facts.stages.used} - {one.peer for one in case.facts.stages.returned}
        for other in (cases[peer] for peer in sorted(peers) if peer in cases):
            if any(one.peer == case.rank.rank for one in other.facts.stages.used):
                continue  # each has a loss: no pipeline
            own, theirs = _training_loader(case), _training_loader(other)
            if own is None or theirs is None or _described(own) != _described(theirs) or own.first == theirs.first:
                continue
            yield case.finding(
                f"Stages of a pipeline read different samples: the first batch is {some([str(k) for k in own.first], 4)} on rank "
                f"{case.rank.rank} and {some([str(k) for k in theirs.first], 4)} on rank {other.rank.rank}",
                "Inputs and targets of a batch must belong to the same samples: let one stage read both and send the targets along, or give both loaders a "
                "generator with the same seed.",
                step=None,
                source=world.seeded_apart or own.made,
                evidence={"first_batches": [own.first[:16], theirs.first[:16]], "made": str(own.made)},
                confidence=0.9,
            )
            return


def _training_loader(case: Case) -> LoaderFact | None:
    return next((one for one in case.facts.loaders if one.steps and one.first), None)


def _described(loader: LoaderFact) -> tuple[str, int | None, int | None]:
    return loader.dataset, loader.length, loader.batch_size


@world_rule("shares-overlap", severity="warning", phase="data")
def overlapping(world: World) -> Iterator[Finding]:
    """Each rank trains on a part of the same data set, and these parts have some samples in common and others not:
    the ranks have not dealt out the data from the same permutation (a DistributedSampler with a different seed on
    each rank), or each has split it in its own way. Some samples are read twice per epoch, others never.
    """
    if not world.replicas and not world.reduced:
        return
    if not world.together and (told := _dealt_by_hand(world)) is not None:
        yield told
        return
    if (told := _seeded_apart(world)) is not None:
        yield told
        return
    loaders = [next((one for one in case.facts.loaders if one.steps and one.share), None) for case in world.cases]
    chosen = [one for one in loaders if one is not None]
    if len(chosen) < len(loaders) or len({(one.share_of, one.dataset) for one in chosen}) > 1:
        return
    shares = [set(one.share) for one in chosen]
    common = set.intersection(*shares[:2])
    whole = chosen[0].share_of or 0
    if len(common) <= world.size or shares[0] == shares[1]:
        return  # what is padded, or one split of all ranks
    yield world.first.finding(
        f"The shares of the ranks overlap: rank 0 has {len(shares[0])} and rank 1 {len(shares[1])} of {whole} samples, {len(common)} of them in common",
        "Every rank must split the same permutation: draw it with a generator of a fixed seed, the same on all ranks "
        "(`torch.randperm(n, generator=torch.Generator().manual_seed(0))`), or use DistributedSampler.",
        step=None,
        source=chosen[0].data_line or chosen[0].made,
        evidence={"common": len(common), "shares": [len(share) for share in shares], "samples": whole},
        confidence=0.9,
    )


def _seeded_apart(world: World) -> Finding | None:
    """DistributedSampler deals out an order that it draws by its seed: with another seed on each rank, there is no common one."""
    loaders = [next((one for one in case.facts.loaders if one.steps), None) for case in world.cases]
    chosen = [one for one in loaders if one is not None and one.shuffled and one.dealt_by is not None]
    seeds = [one.dealt_by for one in chosen]
    if len(chosen) < len(loaders) or len({_described(one) for one in chosen}) > 1 or len(set(seeds)) == 1:
        return None
    return world.first.finding(
        f"The shares of the ranks overlap: DistributedSampler has a different seed on each rank ({some([str(seed) for seed in seeds], 8)})",
        "Give the sampler the same seed on all ranks: it draws one order of all samples, and each rank takes its part of that. Otherwise some samples are read twice per epoch, and others never.",
        step=None,
        source=chosen[0].sampler_line or chosen[0].made,
        evidence={"seeds": seeds, "samples": chosen[0].length},
        confidence=0.95,
    )


def _dealt_by_hand(world: World) -> Finding | None:
    """A variable that holds the rank's part of a whole, and has items of another rank's among its own."""
    tables = [{(one.name, one.line): one for one in case.facts.beginning.shares} for case in world.cases]
    for key, one in tables[0].items():
        other = tables[1].get(key)
        if other is None or not one.items or not other.items or one.items == other.items:
            continue
        last = min(one.items[-1], other.items[-1])
        common = [item for item in set(one.items) & set(other.items) if item <= last]
        if len(common) > world.size:
            return world.first.finding(
                f"The shares of the ranks overlap: {one.name} has {one.size} items on rank 0 and {other.size} on rank 1, {len(common)} of those examined are the same",
                "Every rank must take its part of the same whole: draw the order with a generator of a fixed seed, the same on all ranks, and let no rank draw its own random numbers before that; or use DistributedSampler.",
                step=None,
                source=one.line,
                evidence={"common": len(common), "sizes": [one.size, other.size], "variable": one.name},
                confidence=0.9,
            )
    return None


@world_rule("more-shares-than-ranks", severity="warning", phase="data")
def too_many_shares(world: World) -> Iterator[Finding]:
    """DistributedDataParallel averages over all ranks, and the sampler splits the data into more shares than there
    are ranks: no rank reads the others.
    """
    for loader in world.first.facts.loaders if world.replicas else ():
        if loader.steps and loader.shares > world.size:
            yield world.first.finding(
                f"The sampler splits the data into {loader.shares} shares, and there are {world.size} ranks: {loader.shares - world.size} shares are never read",
                "Leave num_replicas out, or give dist.get_world_size().",
                step=None,
                source=loader.sampler_line or loader.made,
                evidence={"shares": loader.shares, "ranks": world.size},
                confidence=0.95,
            )
            return


@world_rule("schedule-counts-all-ranks", severity="warning", phase="optimizer")
def schedule(world: World) -> Iterator[Finding]:
    """A learning-rate schedule is made for exactly as many times the training's steps as there are ranks, and a
    sampler splits the data: the steps were counted over the whole data set. The schedule never reaches its end.
    """
    case = world.first
    if not any(one.steps and one.dealt for one in case.facts.loaders) or any(one.failed for one in world.standings):
        return
    for one in case.facts.schedulers:
        total = one.numbers.get("total_steps") or one.numbers.get("T_max")
        made = one.steps
        if total and made >= _FEWEST_STEPS and int(total) == made * world.size:
            yield case.finding(
                f"{one.type} is made for {int(total)} steps, and each of the {world.size} ranks makes {made}",
                "Count the steps of one rank: `epochs * len(loader)`, where the loader has the rank's share.",
                step=None,
                source=one.made,
                evidence={"total": int(total), "steps": made, "ranks": world.size},
                confidence=0.85,
            )
            return


@world_rule("dealt-out-twice", severity="warning", phase="data")
def dealt_twice(world: World) -> Iterator[Finding]:
    """A sampler splits the data set over the ranks, as if all ranks had the same one, but the data set of each rank
    has different samples. It was already split, so each rank never reads most of its own share.
    """
    loaders = [next((one for one in case.facts.loaders if one.steps and one.dealt), None) for case in world.cases]
    chosen = [one for one in loaders if one is not None and one.content is not None]
    if len(chosen) < len(loaders) or len({(one.dataset, one.length) for one in chosen}) > 1:
        return
    if len({one.content for one in chosen}) == world.size:
        yield world.first.finding(
            f"The data are split over the ranks twice: the {chosen[0].dataset} of each rank has different samples, and its sampler keeps one in {world.size} of them",
            "Give every rank the whole data set and let the sampler split it, or remove the sampler.",
            step=None,
            source=chosen[0].data_line or chosen[0].made,
            evidence={"samples": chosen[0].length, "sampler": chosen[0].sampler},
            confidence=0.85,
        )


@rule("sampler-epoch-never-set", severity="warning", phase="data")
def epoch_never_set(case: Case) -> Iterator[Finding]:
    """A DistributedSampler shuffles by its seed and its epoch. Passes over the data with the same epoch have the same
    order.
    """
    for loader in case.facts.loaders:
        epochs = loader.epochs or []
        if loader.shuffled and loader.steps and len(epochs) > 1 and len(set(epochs)) == 1:
            yield case.finding(
                f"The order of the samples is the same in every epoch: {len(epochs)} passes with epoch {epochs[0]} of the sampler",
                "Call `sampler.set_epoch(epoch)` at the beginning of every epoch, before the loader is iterated.",
                step=None,
                source=loader.loop or loader.iterated or loader.made,
                evidence={"sampler": loader.sampler, "epochs": epochs, "passes": loader.passes},
                confidence=1.0,
            )
