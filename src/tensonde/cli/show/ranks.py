"""`tensonde show --ranks`: the ranks of a run side by side, and the collectives that they call."""

from __future__ import annotations

from typing import Any

from tensonde.cli.show.screen import console, print_json, table
from tensonde.model.documents import version_of
from tensonde.model.facts import CollectiveFact, facts_in
from tensonde.store.collectives import BUFFERS, GRADIENTS, Call, read_collectives
from tensonde.store.reader import Rank, Recording
from tensonde.store.standing import Standing, members, standings_of, stuck


def show_ranks(recording: Recording, *, as_json: bool, limit: int) -> None:
    there = {standing.rank: standing for standing in standings_of(recording.ranks)}
    ranks = members(recording.ranks)
    rows = [_row(rank, there.get(rank.rank)) for rank in ranks]
    collectives = [(rank.rank, fact) for rank in ranks for fact in _collectives(rank)]
    found = stuck(list(there.values()), after_the_end=not recording.live)
    sentence = found.sentence() if found is not None else None
    if as_json:
        calls = [_call(rank, fact) for rank, fact in collectives]
        print_json({"schema": version_of("ranks"), "run": recording.name, "ranks": rows, "collectives": calls, "stuck": sentence})  # fmt: skip
        return
    out = console()
    columns = ("rank", "state", "steps", "loss", "ms per step", "in collectives", "is at")
    out.print(table(columns, [tuple(_text(row[column]) for column in columns) for row in rows], right=columns[2:6]))
    if sentence is not None:
        out.print(f"\nstuck: {sentence}")
    if collectives:
        out.print("\nCollectives", style="bold")
        names = ("rank", "op", "calls", "seconds", "longest ms", "on", "line")
        shown = collectives[: limit or None]
        out.print(table(names, [_cells(rank, fact) for rank, fact in shown], right=("calls", "seconds", "longest ms")))
        if len(collectives) > len(shown):
            out.print(f"… and {len(collectives) - len(shown)} more (--limit 0 shows all)")
    for replica in facts_in(ranks[0].facts)[0].replicas if ranks else ():
        if replica.buckets:
            sizes = ", ".join(f"{bucket.bytes / 2**20:.2f}" for bucket in replica.buckets[:16])
            out.print(
                f"\nDistributedDataParallel reduces the gradients of {replica.name or 'the model'} in {len(replica.buckets)} buckets of {sizes} MiB"
            )


def _row(rank: Rank, standing: Standing | None) -> dict[str, Any]:
    losses = rank.scalars("loss")["value"].to_pylist()
    seconds = rank.scalars("step_seconds")["value"].to_pylist()
    waited = sum(fact.seconds for fact in _collectives(rank) if fact.op != GRADIENTS)
    where = standing.line if standing is not None and not standing.over else None
    return {
        "rank": rank.rank,
        "state": rank.state,
        "steps": rank.session.get("steps"),
        "loss": losses[-1] if losses else None,
        "ms per step": 1e3 * sorted(seconds)[len(seconds) // 2] if seconds else None,
        "in collectives": waited,
        "is at": str(where) if where is not None else None,
    }


def _collectives(rank: Rank) -> list[CollectiveFact]:
    """As the rank told them when it ended. One that was killed has told none; and the backward passes of DistributedDataParallel are only in its
    last calls."""
    told = facts_in(rank.facts)[0].collectives
    lines: dict[tuple[str, str, int], list[Call]] = {}
    for call in read_collectives(rank.folder):
        if not told or call.kind.op in (GRADIENTS, BUFFERS):
            lines.setdefault((call.kind.op, call.kind.reduce, call.kind.line), []).append(call)
    return [*told, *(_summed(calls) for calls in lines.values())]


def _summed(calls: list[Call]) -> CollectiveFact:
    kind = calls[0].kind
    spent = [call.seconds or 0.0 for call in calls]
    return CollectiveFact(
        op=kind.op, reduce=kind.reduce, group=kind.group, group_size=kind.size, count=len(calls),
        steps=len({call.step for call in calls}), seconds=sum(spent), longest=max(spent), line=kind.source,
    )  # fmt: skip


def _call(rank: int, fact: CollectiveFact) -> dict[str, Any]:
    return {
        "rank": rank, "op": fact.op, "reduce": fact.reduce, "group": fact.group, "ranks": fact.group_size,
        "calls": fact.count, "seconds": fact.seconds, "longest": fact.longest, "gradients": fact.gradients,
        "parameters": fact.parameters, "line": str(fact.line) if fact.line is not None else None,
    }  # fmt: skip


def _cells(rank: int, fact: CollectiveFact) -> tuple[str, ...]:
    name = f"{fact.op} {fact.reduce}".strip()
    on = "gradients" if fact.gradients else "parameters" if fact.parameters else ""
    line = str(fact.line) if fact.line is not None else ""
    return str(rank), name, str(fact.count), f"{fact.seconds:.3f}", f"{1e3 * fact.longest:.1f}", on, line


def _text(value: Any) -> str:
    return "" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)
