"""The sentences around a verdict: its headline, and what to do about it."""

from __future__ import annotations

from tensonde.compare.verdict import Setting, Verdict
from tensonde.model.site import Address


def headline(verdict: Verdict) -> str:
    first = verdict.first
    if verdict.verdict == "incomparable":
        return verdict.notes[0] if verdict.notes else "nothing could be compared."
    most = verdict.coverage.get("largest_rounding", 0.0)
    if first is None and "equal" in verdict.coverage:
        equal, compared = verdict.coverage["equal"], verdict.coverage["compared"]
        if equal == compared:
            return f"all {compared} tensors are equal bit by bit"
        return f"{equal} of {compared} tensors are equal bit by bit, the others differ by {most:.1e} at most: rounding"
    if first is None:
        steps = len(verdict.coverage.get("steps", ()))
        return f"the runs compute the same; rounding makes at most {most:.1e} of difference in {steps} traced steps"
    lead = verdict.settings[0] if verdict.settings and relevant(verdict, verdict.settings[0]) else None
    reason = f", {lead.what} is {lead.a} in A and {lead.b} in B" if lead is not None else ""
    name = {
        "data": "the data differ",
        "init": "initial values differ",
        "forward": "the forward pass differs",
        "backward": "the backward pass differs",
        "optimizer": "the optimizer differs",
        "none": f"{verdict.coverage.get('divergent', 1)} of {verdict.coverage.get('compared', 1)} tensors differ",
    }[first.judgement]
    if first.judgement == "none":
        return f"{name}, the first is {first.site}"
    return f"{name} at {first.site} in step {first.step}{reason}"


def relevant(verdict: Verdict, setting: Setting) -> bool:
    """Whether a setting belongs to the place where the runs part."""
    first = verdict.first
    if first is None:
        return False
    if first.judgement == "optimizer":
        return setting.what.startswith(("optimizer", "clipping", "scheduler"))
    if first.judgement == "data":
        return setting.what.startswith(("loader", "random"))
    if "dtypes" in first.evidence and setting.what in ("autocast", "dtype"):
        return True
    site = Address.of(first.site).name
    if setting.what in (first.module, Address.of(first.other_site).module):
        return True
    return setting.what.startswith((f"{site}.", f"{first.module}.")) if first.module else setting.what.startswith(site)


def advice(verdict: Verdict) -> list[str]:
    first = verdict.first
    if first is None:
        return []
    if verdict.settings and relevant(verdict, verdict.settings[0]):
        return [f"Set {verdict.settings[0].what} to the same value in both, and compare again."]
    told = {
        "none": "",
        "data": "Compare how both make their batches (order, seed, preprocessing); --same-data compares the rest.",
        "init": "Initialise both in the same way, or load one state into both; --same-init compares the rest.",
        "forward": "Compare the two lines above: they are given the same and make something else of it."
        if first.source is not None
        else "Record both with `tensonde run` (and a budget other than 0) to see which op makes the difference.",
        "backward": "The values agree and the gradients do not: look for detach, no_grad, hooks and custom backward passes.",
        "optimizer": "The gradients agree and the steps do not: compare the optimizers' code, groups and schedules.",
    }
    return [told[first.judgement]] if told[first.judgement] else []
