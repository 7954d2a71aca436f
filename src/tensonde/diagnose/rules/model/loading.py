"""States that were loaded and did not arrive."""

from __future__ import annotations

from tensonde.diagnose.case import Case
from tensonde.diagnose.rule import rule
from tensonde.diagnose.told import some
from tensonde.model.facts import FilteredLoad, UnmatchedLoad
from tensonde.model.finding import Finding

FEW = 0.1
"""A load that filled no more of the module than this has failed, whatever it was meant for."""


@rule("state-not-loaded", severity="error")
def not_loaded(case: Case) -> list[Finding]:
    """`load_state_dict(strict=False)` skips keys that have no place, and says so only in its return value. The unused
    keys and the keys that got nothing are the same, name by name and shape by shape, except for what a wrapper puts
    into names (`_orig_mod.` of torch.compile, `module.` of DataParallel), or for a prefix: the intended weights are
    there, and the module keeps its random ones.

    Nobody chooses a wrapper's part of a name, so half of the unused keys are enough. With any other prefix, the rule
    requires that hardly anything of the module was filled. Loading a part on purpose is different: all given keys
    find their place (a backbone into a larger model), or the unused ones fit nowhere (another head). Also silent if a
    later load filled the module.

    Or the program keeps only those keys that the model has as well (`if k in own`), and none are kept, or hardly any,
    although most of the model would be filled if that part of the names were changed.
    """
    return _left_over(case) or _filtered_out(case)


def _left_over(case: Case) -> list[Finding]:
    found = [loaded for loaded in case.facts.loads_unmatched if _failed(loaded)]
    return [_finding(case, loaded) for loaded in found][:1] if case.steps else []


def _failed(loaded: UnmatchedLoad) -> bool:
    left = loaded.given - loaded.matched
    if loaded.would_match < 2 or 2 * loaded.would_match < left:
        return False
    few = loaded.matched <= FEW * loaded.own
    return bool(loaded.how == "wrapper" or (few and 2 * loaded.would_match >= loaded.own))


def _finding(case: Case, loaded: UnmatchedLoad) -> Finding:
    part = loaded.part
    return case.finding(
        (
            f"{loaded.matched} of {loaded.given} keys were loaded into {loaded.type}: {loaded.would_match} others "
            f"differ only by {part!r} in their names, and strict=False leaves them out"
        ),
        (
            f"Save the state of the module inside the wrapper, or take {part!r} out of the keys on one side; and load with "
            "strict=True, or look at the missing_keys that load_state_dict returns."
        ),
        source=loaded.line,
        evidence={
            "matched": loaded.matched,
            "given": loaded.given,
            "own_keys": loaded.own,
            "would_match": loaded.would_match,
            "renaming": f"{'take out' if loaded.how == 'wrapper' else loaded.how} {part!r}",
            "a_given_key": loaded.given_key,
            "a_key_of_the_module": loaded.own_key,
        },
        confidence=0.95,
    )


def _filtered_out(case: Case) -> list[Finding]:
    return [
        _filtered_finding(case, fact)
        for fact in case.facts.loads_filtered
        if fact.kept == 0 or (fact.would_match >= 2 and 2 * fact.would_match >= fact.own)
    ][: 1 if case.steps else 0]


def _filtered_finding(case: Case, fact: FilteredLoad) -> Finding:
    part = fact.part
    return case.finding(
        (
            f"{fact.kept} of {fact.given or 'the'} keys of {fact.source} pass this filter: the model keeps its random weights"
            + (f" ({fact.would_match} keys differ by {part!r} only)" if part else "")
        ),
        (f"Take {part!r} out of the keys on one side first. " if part else "Rename the keys to those of the model. ")
        + "And check how many keys are left before you load them.",
        source=fact.line,
        evidence={
            "given": fact.given,
            "kept": fact.kept,
            "own_keys": fact.own,
            "a_given_key": fact.given_key,
            "a_key_of_the_module": fact.own_key,
            "would_match": fact.would_match,
            "loaded_at": fact.loaded_at.line if fact.loaded_at else None,
        },
        confidence=0.95,
    )


@rule(
    "memory-without-values",
    severity="error",
    phase="init",
    explains=(
        "nan-in-weights",
        "nan-origin",
        "nonfinite",
        "watchpoint",
        "exception",
        "value-not-finite",
        "ranks-start-differently",
    ),
)
def memory_without_values(case: Case) -> list[Finding]:
    """`to_empty()` gave memory to parameters or buffers, for example of a model created on the meta device, and nothing
    has written to them when the model is first called: they hold whatever the memory held.

    Silent for a bias or buffer that is all zero, and for a weight that is all zero if nothing beside it is unwritten:
    zeros may be intended.
    """
    found = case.facts.emptied
    names = [one.name for one in found]
    if not found or not case.steps:
        return []
    return [
        case.finding(
            f"{some(names, 3)} {'has' if len(names) == 1 else 'have'} memory but no values when the model is first called: to_empty() initializes nothing",
            "Initialize the model after to_empty(): call reset_parameters() of every layer or the model's own initialization, or load a state. "
            "Buffers that are computed once, such as rotary frequencies, must be computed again.",
            step=0,
            site=f"{names[0]}:value",
            source=found[0].line,
            evidence={"tensors": names[:8], "count": len(names)},
            confidence=0.95,
        )
    ]
