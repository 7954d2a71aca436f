"""Digests of whole tensors, from those of the shards that the ranks hold (FSDP2, DTensor). Nothing is gathered: digests merge."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from tensonde.digest.layout import COUNTS, DTYPES, STATS
from tensonde.digest.merging import merged
from tensonde.model.moment import Phase
from tensonde.model.site import Part, Site
from tensonde.store.columns import digest_rows
from tensonde.store.reader import Rank
from tensonde.store.standing import members

SCHEMA = pa.schema(
    {
        "run": pa.string(), "step": pa.int64(), "phase": pa.string(), "site": pa.string(), "call": pa.int32(), "dtype": pa.string(),
        "shards": pa.int32(), **dict.fromkeys(COUNTS, pa.int64()), **dict.fromkeys(STATS, pa.float64()),
    }
)  # fmt: skip
"""Without `exponents`, which are a sample of each shard and do not merge to that of the whole."""


def whole_digests(run: str, ranks: list[Rank]) -> pa.Table:
    """Of the sites that are sharded, in the steps that all ranks which hold a shard have looked at. A tensor that the ranks hold summands of
    (`Partial`) has no digest before it is reduced: it is left out."""
    own = members(ranks)
    held: dict[str, list[tuple[Rank, Site]]] = {}
    for rank in own:
        for site in rank.sites.values():
            if site.part is not None and site.part.sharded and "P" not in site.part.placements:
                held.setdefault(site.address, []).append((rank, site))
    tables = [_whole(run, address, holders) for address, holders in held.items()]
    return pa.concat_tables([SCHEMA.empty_table(), *tables])


def _whole(run: str, address: str, holders: list[tuple[Rank, Site]]) -> pa.Table:
    part = holders[0][1].part
    assert part is not None
    chosen = [(rank, site) for rank, site in holders if site.part is not None and _first_copy(site.part)]
    shards = int(np.prod([size for size, kind in zip(part.mesh, part.placements, strict=True) if kind == "S"]))
    if len(chosen) != shards:
        return SCHEMA.empty_table()  # ranks of another machine, or one that has not begun
    found = []
    for rank, site in chosen:
        rows, _ = digest_rows(rank.digests(sites=[site.id]), [site.id])
        found.append({(int(row["step"]), int(row["call"])): row for row in rows})
    common = [key for key in found[0] if all(key in other for other in found[1:])]
    if not common:
        return SCHEMA.empty_table()
    rows = merged(np.array([[table[key] for key in common] for table in found]))
    counts = {name: rows[name] for name in COUNTS}
    stats = {name: [None if value != value else value for value in rows[name].tolist()] for name in STATS}
    return pa.table(
        {
            "run": [run] * len(rows),
            "step": rows["step"],
            "phase": [_phase(code) for code in rows["phase"].tolist()],
            "site": [address] * len(rows),
            "call": rows["call"],
            "dtype": [DTYPES[code] if code < len(DTYPES) else str(code) for code in rows["dtype"].tolist()],
            "shards": [shards] * len(rows),
            **counts,
            **stats,
        },
        schema=SCHEMA,
    )


def _first_copy(part: Part) -> bool:
    """Where several ranks hold the same shard, the first of them is asked."""
    return all(kind == "S" or at == 0 for kind, at in zip(part.placements, part.at, strict=True))


def _phase(code: int) -> str:
    try:
        return str(Phase(code))
    except ValueError:
        return str(code)
