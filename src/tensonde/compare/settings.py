"""What was chosen otherwise: hyperparameters of modules, optimizers, schedules, loaders, dtypes, modes, arguments of ops."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tensonde.compare.choices import arguments, compared
from tensonde.compare.forward import StepPair
from tensonde.compare.pairing import Pairing
from tensonde.compare.side import Side
from tensonde.compare.verdict import Divergence, Setting
from tensonde.model.site import Address
from tensonde.model.trace import Trace

_CHANGING = frozenset(
    {"last_epoch", "num_bad_epochs", "best", "T_cur", "last_lr", "verbose", "base_lrs", "total_iters_done"}
)
_OF_LOADERS = ("batch_size", "sampler", "own_batch_sampler", "drop_last", "seed", "dataset", "length", "workers")
_HARMLESS = ("threads", "loader.workers")


def differing(a: Side, b: Side, pairing: Pairing, steps: Mapping[int, StepPair]) -> list[Setting]:
    found: dict[str, Setting] = {}
    sources = (
        _modules(a, b, pairing),
        _parts(a, b, pairing),
        _arguments(steps),
        _modes(steps),
        _parameters(a, b, pairing),
        _optimizers(a, b),
        _schedulers(a, b),
        _clipping(a, b),
        _precision(steps),
        _loaders(a, b),
        _program(a, b),
    )
    for source in sources:
        for setting in source:
            found.setdefault(setting.what, setting)
    return list(found.values())


def of_program(a: Side, b: Side) -> list[Setting]:
    """What was chosen outside of the model."""
    sources = (_optimizers(a, b), _schedulers(a, b), _clipping(a, b), _loaders(a, b), _program(a, b))
    return list({setting.what: setting for source in sources for setting in source}.values())


def ordered(settings: list[Setting], first: Divergence | None) -> tuple[Setting, ...]:
    """Those of the place where the runs part come first, those that change nothing last."""
    if first is None:
        return tuple(sorted(settings, key=lambda setting: setting.what in _HARMLESS))
    kinds: dict[str, tuple[str, ...]] = {
        "data": ("loader.", "random."),
        "init": (),
        "optimizer": ("optimizer", "clipping", "scheduler"),
        "backward": (),
        "forward": (),
    }
    place = Address.of(first.site).name.partition("[")[0]
    other = Address.of(first.other_site).module
    kinds_wanted = kinds.get(first.judgement, ())

    def rank(setting: Setting) -> tuple[int, int]:
        what = setting.what
        if what in _HARMLESS:
            return 9, 0
        if what in ("autocast", "dtype") and "dtypes" in first.evidence:
            return 0, 0
        if explains(setting, first):
            return -1, 0
        if kinds_wanted:
            return (0, 0) if what.startswith(kinds_wanted) else (5, 0)
        if what.startswith((f"{place}.", f"{place} ")) or what in (place, first.module, other):
            return 0, 0
        if first.module and what.startswith(f"{first.module}.") and "/" not in what:
            return 1, what.count(".")
        if first.module and what.startswith((f"{first.module}.", f"{first.module}/")):
            return 2, what.count(".")
        return (4, 0) if not what.startswith(("optimizer", "scheduler", "clipping", "loader", "random")) else (6, 0)

    return tuple(sorted(settings, key=rank))


def explains(setting: Setting, first: Divergence) -> bool:
    """A learning rate that differs by the same factor as all updates."""
    name, ratio = setting.what.partition(" ")[0].rpartition(".")[2], first.evidence.get("ratio")
    if (
        name != "lr"
        or ratio is None
        or not isinstance(setting.a, int | float)
        or not isinstance(setting.b, int | float)
    ):
        return False
    return bool(abs(setting.b - ratio * setting.a) <= 0.01 * abs(setting.b))


def without_echoes(settings: list[Setting]) -> list[Setting]:
    """A module's setting is also an argument of its op: once is enough."""
    known = {setting.what for setting in settings}

    def echo(what: str) -> bool:
        module, slash, rest = what.partition("/")
        return bool(slash) and f"{module}.{rest.partition('.')[2]}" in known

    return [setting for setting in settings if not echo(setting.what)]


# -- what the model is made of -------------------------------------------------------------------


def _modules(a: Side, b: Side, pairing: Pairing) -> Iterator[Setting]:
    for mine, theirs in pairing.modules.items():
        one, other = a.modules[mine], b.modules[theirs]
        same = one.get("type") == other.get("type")
        if not same and one.get("library") and other.get("library"):
            yield Setting(f"{mine}.type", one.get("type"), other.get("type"))
        yield from compared(f"{mine}.", one.get("settings") or {}, other.get("settings") or {}, union=same)


def _parts(a: Side, b: Side, pairing: Pairing) -> Iterator[Setting]:
    """Modules that only one of them calls."""
    for name in pairing.unmatched_a:
        if a.modules.get(name, {}).get("library"):
            yield Setting(name, a.modules[name].get("type"), "absent")
    called = [
        {call.module for call in side.traces[min(side.traces)].calls} if side.traces else set() for side in (a, b)
    ]
    for mine, theirs in pairing.modules.items():
        if (mine in called[0]) != (theirs in called[1]) and a.modules[mine].get("library"):
            yield Setting(
                mine, *("called" if one else "not called" for one in (mine in called[0], theirs in called[1]))
            )
    for name in pairing.unmatched_b:
        if b.modules.get(name, {}).get("library"):
            yield Setting(name, "absent", b.modules[name].get("type"))


def _arguments(steps: Mapping[int, StepPair]) -> Iterator[Setting]:
    for pair in list(steps.values())[:1]:
        for mine, theirs in pair.ops:
            yield from arguments(mine, theirs)


def _modes(steps: Mapping[int, StepPair]) -> Iterator[Setting]:
    for pair in steps.values():
        for mine, theirs in pair.calls:
            if mine.training != theirs.training:
                yield Setting(f"{mine.module}.training", mine.training, theirs.training)


def _parameters(a: Side, b: Side, pairing: Pairing) -> Iterator[Setting]:
    partners = dict(pairing.weights)
    for mine, theirs in partners.items():
        one, other = a.parameters.get(mine), b.parameters.get(theirs)
        if one is None or other is None:
            continue
        for key in ("dtype", "requires_grad", "loaded"):
            if one.get(key) != other.get(key):
                yield Setting(f"{mine}.{key}", one.get(key), other.get(key))
        if one.get("recipe") != other.get("recipe"):
            yield Setting(f"{mine}.init", one.get("recipe"), other.get("recipe"))
        if bool(one.get("optimizers")) != bool(other.get("optimizers")):
            yield Setting(f"optimizer has {mine}", bool(one.get("optimizers")), bool(other.get("optimizers")))
    taken = set(partners.values())
    for name in _in_first_step(a):
        if name not in partners and name not in b.parameters:
            yield Setting(name, "present", "absent")
    back = {theirs: mine for mine, theirs in pairing.modules.items()}
    for name in _in_first_step(b):
        if name not in taken and name not in a.parameters:
            owner, _, attribute = name.rpartition(".")
            mine = back.get(owner, owner)
            yield Setting(f"{mine}.{attribute}" if mine else attribute, "absent", "present")


def _in_first_step(side: Side) -> list[str]:
    """Parameters that were there from the beginning: what came later may also have gone when facts were taken down."""
    return [weight.name for weight in side.traces[min(side.traces)].weights] if side.traces else []


def _precision(steps: Mapping[int, StepPair]) -> Iterator[Setting]:
    for pair in list(steps.values())[:1]:
        one, other = _autocast(pair.a), _autocast(pair.b)
        if one != other:
            yield Setting("autocast", one, other)


def _autocast(trace: Trace) -> str | None:
    found = {op.autocast for op in trace.ops if op.autocast}
    return ", ".join(sorted(found)) or None


# -- how it is trained ---------------------------------------------------------------------------


def _optimizers(a: Side, b: Side) -> Iterator[Setting]:
    mine, theirs = a.facts.get("optimizers") or [], b.facts.get("optimizers") or []
    if len(mine) != len(theirs):
        yield Setting("optimizers", len(mine), len(theirs))
    for k, (one, other) in enumerate(zip(mine, theirs, strict=False)):
        name = "optimizer" if k == 0 else f"optimizer[{k}]"
        if one.get("type") != other.get("type"):
            yield Setting(f"{name}.type", one.get("type"), other.get("type"))
        groups, others = one.get("groups") or [], other.get("groups") or []
        if len(groups) != len(others):
            yield from _by_group(name, groups, others)
            yield Setting(f"{name}.groups", len(groups), len(others))
        scheduled = bool(a.facts.get("schedulers")) or bool(b.facts.get("schedulers"))
        for g, (group, their) in enumerate(zip(groups, others, strict=False)):
            prefix = f"{name}." if g == 0 else f"{name}.groups[{g}]."
            skip = {"lr", "initial_lr"} if scheduled or k == 0 else {"initial_lr"}
            kept = [{key: value for key, value in each.items() if key not in skip} for each in (group, their)]
            yield from compared(prefix, kept[0], kept[1])
            if "lr" in skip:
                yield from _rate(a, b, g, prefix, group, their)


def _by_group(name: str, groups: Sequence[Mapping[str, Any]], others: Sequence[Mapping[str, Any]]) -> Iterator[Setting]:
    """Numbers that the groups of one optimizer have and those of the other do not: of a parameter, the group is not known."""
    for key in groups[0] if groups and others else ():
        if key in ("parameters", "lr", "initial_lr") or not all(key in group for group in (*groups, *others)):
            continue
        mine, theirs = (
            {group[key] for group in side if isinstance(group[key], int | float)} for side in (groups, others)
        )
        if mine and theirs and mine != theirs:
            told = [" and ".join(f"{value:g}" for value in sorted(side, reverse=True)) for side in (mine, theirs)]
            yield Setting(f"{name}.{key}", told[0], told[1])


def _rate(
    a: Side, b: Side, group: int, prefix: str, one: Mapping[str, Any], other: Mapping[str, Any]
) -> Iterator[Setting]:
    """The learning rate as it was in the first step that they differ in: it may be scheduled."""
    steps = sorted(set(a.rates) & set(b.rates))
    if not steps:
        yield from compared(prefix, {"lr": one.get("lr")}, {"lr": other.get("lr")})
    for step in steps:
        mine, theirs = a.rates[step].get(str(group)), b.rates[step].get(str(group))
        if mine is not None and theirs is not None and abs(mine - theirs) > 1e-6 * max(abs(mine), abs(theirs)):
            yield Setting(f"{prefix}lr" + (f" at step {step}" if step else ""), mine, theirs)
            return


def _schedulers(a: Side, b: Side) -> Iterator[Setting]:
    mine, theirs = a.facts.get("schedulers") or [], b.facts.get("schedulers") or []
    if len(mine) != len(theirs):
        names = [", ".join(entry.get("type", "") for entry in side) or None for side in (mine, theirs)]
        yield Setting("scheduler", names[0], names[1])
        return
    for k, (one, other) in enumerate(zip(mine, theirs, strict=True)):
        name = "scheduler" if k == 0 else f"scheduler[{k}]"
        if one.get("type") != other.get("type"):
            yield Setting(f"{name}.type", one.get("type"), other.get("type"))
        numbers = [
            {key: value for key, value in (each.get("numbers") or {}).items() if key not in _CHANGING}
            for each in (one, other)
        ]
        yield from compared(f"{name}.", numbers[0], numbers[1])
        for key in ("steps", "before_optimizer"):
            if one.get(key) != other.get(key):
                yield Setting(f"{name}.{key}", one.get(key), other.get(key))


def _clipping(a: Side, b: Side) -> Iterator[Setting]:
    mine, theirs = a.facts.get("clipping") or {}, b.facts.get("clipping") or {}
    one = {key: mine.get(key) for key in ("kind", "limit")} if mine.get("calls") else {}
    other = {key: theirs.get(key) for key in ("kind", "limit")} if theirs.get("calls") else {}
    yield from compared("clipping.", one, other)


def _loaders(a: Side, b: Side) -> Iterator[Setting]:
    mine, theirs = a.facts.get("loaders") or [], b.facts.get("loaders") or []
    if len(mine) != len(theirs):
        yield Setting("loaders", len(mine), len(theirs))
    for k, (one, other) in enumerate(zip(mine, theirs, strict=False)):
        name = "loader." if k == 0 else f"loader[{k}]."
        yield from compared(
            name, {key: one.get(key) for key in _OF_LOADERS}, {key: other.get(key) for key in _OF_LOADERS}
        )


def _program(a: Side, b: Side) -> Iterator[Setting]:
    for key in ("dtype", "compiled", "threads"):
        if key in a.facts and key in b.facts and a.facts[key] != b.facts[key]:
            yield Setting(key, a.facts[key], b.facts[key])
    yield from compared("random.", a.facts.get("random") or {}, b.facts.get("random") or {})
