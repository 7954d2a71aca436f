"""What collectives give, and the program does not get."""

from __future__ import annotations

from collections.abc import Iterator

from tensonde.diagnose.rule import world_rule
from tensonde.diagnose.world import World
from tensonde.model.finding import Finding


@world_rule("result-thrown-away", severity="warning", explains=("replicas-drift", "shares-overlap"))
def thrown_away(world: World) -> Iterator[Finding]:
    """A collective fills a tensor or a list that is created for the call, so nobody can read the result, and the
    ranks have passed it different values: each continues with its own. Equal values prove nothing: a program may use
    such a call to wait for the others, or to warm up.
    """
    for one in world.first.facts.collectives:
        given = [
            other.thrown_away
            for case in world.cases
            for other in case.facts.collectives
            if (other.op, other.line) == (one.op, one.line)
        ]
        if one.line is not None and len(given) == len(world.cases) and all(given) and len(set(given)) > 1:
            yield world.first.finding(
                f"The result of {one.op} is thrown away: it fills an object that is created for the call, and each rank continues with its own value",
                "Bind it to a name first, call the collective on that, and read the result from there: `sent = [value]; dist.broadcast_object_list(sent); "
                "value = sent[0]`.",
                step=one.first_step,
                source=one.line,
                evidence={"op": one.op, "calls": one.count},
                confidence=0.95,
            )
            return


@world_rule("gathered-into-one-tensor", severity="error")
def one_tensor(world: World) -> Iterator[Finding]:
    """The tensors that a collective fills, one per rank, are at the same place in memory: all hold what was written
    last.
    """
    for one in world.first.facts.collectives:
        if one.one_tensor and one.group_size > 1:
            yield world.first.finding(
                f"{one.op} writes the tensors of {one.group_size} ranks to the same place: all of them hold the last one",
                "`[tensor] * n` is a list of one tensor. Create one per rank: `[torch.empty_like(x) for _ in range(n)]`.",
                step=one.first_step,
                source=one.line,
                evidence={"op": one.op, "calls": one.count},
                confidence=1.0,
            )
            return
