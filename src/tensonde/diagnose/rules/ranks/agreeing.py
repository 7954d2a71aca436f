"""What the ranks say by themselves and must agree on: numbers of words, tensors that all of them have, names of files."""

from __future__ import annotations

from collections.abc import Iterator

from tensonde.diagnose.rule import world_rule
from tensonde.diagnose.world import World
from tensonde.model.facts import Declared
from tensonde.model.finding import Finding
from tensonde.model.site import SourceLine

_Key = tuple[str, int]


def _at(line: SourceLine | None) -> _Key:
    return (line.file, line.line) if line is not None else ("", 0)


@world_rule("numbered-differently", severity="error", phase="data")
def numbered(world: World) -> Iterator[Finding]:
    """The ranks hold one model together, and a variable of the program numbers words or classes (`{word: index}`)
    differently on each of them: the same row of an embedding, or the same output, stands for something else on
    another rank.

    The order of a set of strings differs between processes, and so may the order of the files in a folder.
    """
    if not world.replicas and not world.reduced and not world.sharded and not world.together:
        return
    tables = [{(one.name, _at(one.line)): one for one in case.facts.beginning.numberings} for case in world.cases]
    for key in tables[0]:
        found = [table[key] for table in tables if key in table]
        if len(found) < len(tables):
            continue
        for other in found[1:]:
            apart = [word for word, number in found[0].keys.items() if other.keys.get(word, number) != number]
            if apart:
                word = apart[0]
                yield world.first.finding(
                    f"{key[0]} has different numbers on each rank: {word!r} is {found[0].keys[word]} on one and {other.keys[word]} on another",
                    "Make the order the same on all ranks before it is numbered: `sorted(set(words))`, `sorted(os.listdir(folder))`; or number on "
                    "rank 0 and send the result (dist.broadcast_object_list).",
                    step=None,
                    source=found[0].line,
                    evidence={
                        "variable": key[0],
                        "differ": len(apart),
                        "of": len(found[0].keys),
                        "size": found[0].size,
                    },
                    confidence=0.95,
                )
                return


@world_rule("hashed-differently", severity="warning", phase="data")
def hashed(world: World) -> Iterator[Finding]:
    """The ranks hold one model together, the program takes the remainder of `hash(...)`, for example for a bucket of
    an embedding or for a split, and the ranks hash the same string to different numbers: Python salts the hash of
    strings differently in every process.
    """
    if not world.replicas and not world.reduced and not world.sharded and not world.exchanging:
        return
    found = [case.facts.beginning.hashing for case in world.cases]
    if all(one.line is not None for one in found) and len({one.salt for one in found}) > 1:
        yield world.first.finding(
            "hash() gives different numbers for the same string on each rank: Python salts it differently in every process",
            "Use a hash that is the same everywhere, such as `zlib.crc32(word.encode())`, or set PYTHONHASHSEED for all ranks before they start.",
            step=None,
            source=found[0].line,
            evidence={"salts": [one.salt for one in found]},
            confidence=0.7,
        )


@world_rule("declared-the-same", severity="error", phase="forward", explains=("replicas-drift",))
def declared(world: World) -> Iterator[Finding]:
    """A tensor is declared to be the same on all ranks (`Replicate()`, the default for the input of a tensor-parallel
    layer), but in the first steps it differs between ranks. DTensor does not check this: what is computed from it no
    longer belongs to one model.
    """
    tables = [list(case.facts.beginning.declared) for case in world.cases]
    if len({len(table) for table in tables}) > 1:
        return
    for row in zip(*tables, strict=True):
        first = row[0]
        if len({(_at(one.line), one.step, tuple(one.shape)) for one in row}) > 1:
            return  # the ranks do not go the same way
        if len({one.digest for one in row}) > 1:
            if first.taken is not None:
                yield _taken(world, first)
                return
            yield world.first.finding(
                f"A tensor {first.shape} is declared to be the same on all ranks (Replicate), but differs between ranks",
                "If each rank has a part of the batch, declare that: `Shard(0)`. If the ranks compute one model together, they need the same batch: "
                "seed their data alike, or give the sampler the number of the data-parallel group instead of the rank.",
                step=first.step,
                source=first.line,
                evidence={"digests": [one.digest for one in row], "shape": first.shape},
                confidence=0.95,
            )
            return


def _taken(world: World, one: Declared) -> Finding:
    return world.first.finding(
        f"to_local() says that the gradient {one.shape} is the same on all ranks, but it differs between ranks",
        "Each rank has used the tensor for its own part of the data, so its gradient is a part, too: `to_local(grad_placements=[Partial()])` adds the "
        "parts up, `Partial('avg')` takes their mean.",
        step=one.step,
        source=one.taken,
        evidence={"shape": one.shape, "backward": str(one.line)},
        confidence=0.95,
    )


@world_rule("written-by-every-rank", severity="warning")
def written(world: World) -> Iterator[Finding]:
    """Several ranks of one machine write the same file with `torch.save`. They do so at the same time, and the file
    may be corrupted.
    """
    ranks: dict[tuple[object, str, _Key], list[int]] = {}
    for case in world.cases:
        for one in case.facts.beginning.saves:
            ranks.setdefault((case.rank.session.get("host"), one.path, _at(one.line)), []).append(case.rank.rank)
    for (_, path, _at_line), who in ranks.items():
        if len(who) > 1:
            save = next(one for one in world.first.facts.beginning.saves if one.path == path) if 0 in who else None
            yield world.first.finding(
                f"{len(who)} ranks write the same file: {path}",
                "Let one rank write it (`if dist.get_rank() == 0:`), and let the others wait where they read it (dist.barrier()). With shards, "
                "torch.distributed.checkpoint writes one file per rank.",
                step=None,
                source=save.line if save is not None else None,
                evidence={"ranks": who, "path": path},
                confidence=0.95,
            )
            return


@world_rule("evaluated-weights-differ", severity="error", explains=("initial-weights-evaluated",))
def evaluated(world: World) -> Iterator[Finding]:
    """DistributedDataParallel keeps a model equal on all ranks, or the program reduces its gradients, but in the same
    step the ranks run this model or a copy of it, without gradients, with different weights: a teacher that was
    copied before the ranks had the same weights, an average that only one rank keeps, or a state that was loaded from
    a rank's own memory.
    """
    if (not world.replicas and not world.reduced) or any(one.joined or one.hooked for one in world.replicas):
        return
    tables = [{one.name: one for one in case.facts.evaluated_weights} for case in world.cases]
    for name in tables[0]:
        found = [table[name] for table in tables if name in table]
        looks = [{look[0]: look[1] for look in one.looks} for one in found]
        steps = sorted(set.intersection(*map(set, looks))) if len(found) == len(tables) else []
        apart = next((step for step in steps if len({look[step] for look in looks}) > 1), None)
        if apart is None:
            continue
        one, first = found[0], apart == steps[0] and apart <= 1
        loaded = next(
            (load.line for load in reversed(world.first.facts.beginning.loads) if load.what == "weights"), None
        )
        source = (one.made if first else loaded or one.update_line) or one.called
        yield world.first.finding(
            f"The ranks run different weights of {name} without gradients in step {apart}, although they train the same ones",
            "Copy a model after the ranks have the same weights (after DistributedDataParallel was made, or after dist.broadcast), and update the copy on "
            "every rank; or evaluate it on the one rank that has it.",
            step=apart,
            source=source,
            evidence={"digests": [look[apart] for look in looks], "run_at": str(one.called), "made_at": str(one.made)},
            confidence=0.9,
        )
        return
