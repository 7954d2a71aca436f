"""The health of tensors: bad, warn, ok, or none where nothing is known. The same rows get the same health, live and recorded."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from tensonde.model.ops import Trait, ops
from tensonde.model.site import Kind, Role, Site
from tensonde.model.trace import OpRecord
from tensonde.model.watchpoint import Hit

Array = np.ndarray[Any, Any]
COLUMNS = ("step", "nan", "pos_inf", "neg_inf", "absmax", "zero", "count")
"""The columns of digests that health needs."""
LARGE = 65504.0
"""The largest float16: a larger magnitude soon leaves half precision."""
MASKING = ops(Trait.MASKING)
"""Ops that make the -inf of a mask, which is intended. A softmax over a row of nothing else is not."""
_TAKE_MASKS = ops(Trait.SOFTMAX) | {"scaled_dot_product_attention"}
"""Ops that a mask is made for: in their parts, as a compiler takes them apart, its -inf is there as well."""


def health(sites: Array, columns: Mapping[str, Array] | Array, known: Mapping[int, Site], hit_at: Array) -> list[str]:
    """Of one row per site.

    bad: NaN, Inf, or a hit at the row's step or later. warn: an earlier hit, a magnitude beyond float16's, a gradient that is all zero.
    `hit_at` has the step of each site's last hit, -1 for none. A site that is not known yet has no role and no type to judge it by:
    it is never warned about for its numbers. Nobody trains a buffer, so a zero gradient of one is fine.
    """
    bad = (columns["nan"] + columns["pos_inf"] + columns["neg_inf"]) > 0
    for k in np.flatnonzero((columns["neg_inf"] > 0) & ((columns["nan"] + columns["pos_inf"]) == 0)).tolist():
        site = known.get(int(sites[k]))
        bad[k] = site is None or not (_may_mask(site.name) or _is_mask(site, float(columns["absmax"][k])))
    large = np.nan_to_num(columns["absmax"], nan=0.0) > LARGE
    empty = (columns["zero"] == columns["count"]) & (columns["count"] > 1)
    bad |= (hit_at >= 0) & (hit_at >= columns["step"])
    warn = (hit_at >= 0) & ~bad
    for k in np.flatnonzero((large | empty) & ~bad & ~warn).tolist():
        site = known.get(int(sites[k]))
        if site is not None:
            warn[k] = (large[k] and _is_floating(site)) or (empty[k] and _is_gradient(site))
    found: list[str] = np.where(
        bad, "bad", np.where(warn, "warn", np.where(columns["count"] > 0, "ok", "none"))
    ).tolist()
    return found


def last_hits(sites: Array, known: Mapping[int, Site], hits: Iterable[Hit], until: int) -> Array:
    """The step of each site's last hit up to a step; -1 for none."""
    steps: dict[str, int] = {}
    until = min(until, np.iinfo(np.int64).max)
    for hit in hits:
        if hit.moment.step <= until:
            steps[hit.site] = max(steps.get(hit.site, -1), hit.moment.step)
    found = (known.get(id) for id in sites.tolist())
    return np.array([-1 if site is None else steps.get(site.address, -1) for site in found], np.int64)


def health_of_op(op: OpRecord) -> str:
    """Of the outputs of a traced op."""
    stats = [tensor.stats for tensor in op.outputs]
    if op.op in MASKING and not any(one.get("nan") or one.get("pos_inf") for one in stats):
        stats = [{**one, "neg_inf": 0} if one else one for one in stats]
    return health_of_stats(stats)


def health_of_stats(stats: Iterable[Mapping[str, float]]) -> str:
    """Of tensors of a traced step, which has neither hits nor sites."""
    known = [one for one in stats if one]
    if any(one.get("nan", 0) or one.get("pos_inf", 0) or one.get("neg_inf", 0) for one in known):
        return "bad"
    return "ok" if known else "none"


def health_of_row(address: str, row: Any) -> str:
    """Of a tensor as it is now, in a stopped training."""
    stats = {name: int(row[name]) for name in ("nan", "pos_inf", "neg_inf")}
    if not stats["nan"] and not stats["pos_inf"] and _may_mask(address.rpartition(":")[0]):
        stats["neg_inf"] = 0
    return health_of_stats([stats])


def _may_mask(name: str) -> bool:
    """An op whose -inf is that of a mask; `softmax-sub` is a part of a softmax in a compiled graph."""
    op, dash, _ = name.rpartition("/")[2].partition("#")[0].partition("-")
    return "/" in name and (op in MASKING or (bool(dash) and op in _TAKE_MASKS))


def _is_mask(site: Site, absmax: float) -> bool:
    """A buffer of zeros and -inf, which a module keeps to add it to scores."""
    return site.kind is Kind.BUFFER and absmax == 0


def _is_gradient(site: Site) -> bool:
    return site.role in (Role.GRAD, Role.GRAD_IN) and site.kind is not Kind.BUFFER


def _is_floating(site: Site) -> bool:
    return site.dtype.startswith(("float", "bfloat", "complex"))
