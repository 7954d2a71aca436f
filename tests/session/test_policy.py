"""The budget holds in the long run, is used up, and what is watched by name goes first. Costs are simulated."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tensonde.session.policy import GLANCE_EVERY, OWED, PATIENCE, UNSEEN, Level, Policy


def simulate(
    policy: Policy, costs: dict[Level, float], *, bare: float = 10e6, steps: int = 3000, noise: float = 0.0
) -> float:
    """Trains so many steps at these costs, of which a part can be measured; the share of the bare time that Tensonde took,
    after the first step."""
    chance = random.Random(0)
    spent = base = 0.0
    for step in range(steps):
        cost = costs[policy.level] * (1 + noise * chance.uniform(-1, 1))
        wall = bare * (1 + noise * chance.uniform(-1, 1)) + cost
        policy.finish_step(wall, cost / UNSEEN, counted=step > 0)
        if step:
            spent += cost
            base += wall - cost
    return spent / base


COSTS = {Level.REST: 0.01e6, Level.SENTINEL: 0.05e6, Level.WATCHED: 0.4e6, Level.FULL: 3e6}


@pytest.mark.parametrize("noise", [0.0, 0.5])
@pytest.mark.parametrize("budget", [0.01, 0.05, 0.2])
def test_the_share_comes_close_to_the_budget_from_below(budget: float, noise: float) -> None:
    policy = Policy(budget)
    share = simulate(policy, COSTS, noise=noise)
    assert 0.85 * budget <= share <= 1.03 * budget
    assert policy.ratio == pytest.approx(1 + share, abs=0.2 * budget)  # estimated from what was timed
    assert policy.taken[Level.FULL] > 0
    assert sum(policy.taken.values()) == 3000


def test_the_first_step_is_seen_in_full() -> None:
    assert Policy(0.05).level is Level.FULL
    assert Policy(None).level is Level.FULL


def test_off_is_everything_at_every_step() -> None:
    policy = Policy(None)
    simulate(policy, COSTS, steps=50)
    assert {level: n for level, n in policy.taken.items() if n} == {Level.FULL: 50}


def test_zero_glances_at_most_short_steps_once_their_start_was_seen() -> None:
    costs = {**COSTS, Level.GLANCE: 0.02e6, Level.SENTINEL: 1e6}
    short, long, watched, held = Policy(0), Policy(0), Policy(0), Policy(0)
    for policy, bare in ((short, 10e6), (long, 100e6), (watched, 10e6), (held, 10e6)):
        policy.may_rest = policy is not held
        policy.has_watched = policy is watched
        simulate(policy, costs, bare=bare, steps=PATIENCE)
        assert policy.taken[Level.GLANCE] == 0
        simulate(policy, costs, bare=bare, steps=640)
    assert (short.taken[Level.REST], short.taken[Level.FULL]) == (0, 0)
    assert short.taken[Level.GLANCE] == pytest.approx(640 * 62 / 64, abs=4)
    assert long.taken[Level.GLANCE] == watched.taken[Level.GLANCE] == held.taken[Level.GLANCE] == 0


def test_zero_is_the_sentinel_and_what_is_watched_by_name() -> None:
    policy = Policy(0)
    simulate(policy, COSTS, steps=50)
    assert {level: n for level, n in policy.taken.items() if n} == {Level.SENTINEL: 50}
    policy = Policy(0, watched=True)
    policy.has_watched = True
    simulate(policy, COSTS, steps=50)
    assert {level: n for level, n in policy.taken.items() if n} == {Level.WATCHED: 49, Level.FULL: 1}


def test_a_sentinel_dearer_than_the_budget_leaves_nothing_for_more() -> None:
    policy = Policy(0.01)
    simulate(policy, {Level.REST: 0.01e6, Level.SENTINEL: 0.3e6, Level.WATCHED: 1e6, Level.FULL: 5e6}, steps=500)
    assert policy.taken[Level.FULL] <= 3


def test_modules_are_seen_now_and_then_whatever_the_sentinel_costs() -> None:
    policy = Policy(0.05)
    costs = {Level.REST: 0.1e6, Level.SENTINEL: 0.6e6, Level.WATCHED: 1e6, Level.FULL: 5e6}
    simulate(policy, costs, steps=100)
    before = policy.taken[Level.FULL]
    simulate(policy, costs, steps=1000)
    assert policy.taken[Level.FULL] - before == pytest.approx(1000 * OWED * 0.05 * 10e6 / 5e6, abs=2)


DEAR = {Level.GLANCE: 0.1e6, Level.SENTINEL: 0.3e6, Level.WATCHED: 0.5e6, Level.FULL: 2e6}


def rest(
    policy: Policy,
    costs: dict[Level, float],
    *,
    bare: float,
    steps: int,
    unseen: float = 3,
    noise: float = 0.0,
    lasting: float = 0.0,
) -> float:
    """The same for a training that may rest; only one part in `unseen` of a cost can be timed. A look makes the steps after
    it longer by `lasting`, which halves every ten steps."""
    chance = random.Random(0)
    policy.may_rest = True
    spent, done, since = 0.0, 0, 0
    while done < steps:
        after = lasting * bare * 0.5 ** (since / 10)
        if policy.level is Level.REST:
            times = []
            for _ in range(policy.stretch):
                times.append(bare * (1 + noise * chance.random()) + (after := lasting * bare * 0.5 ** (since / 10)))
                spent += after
                since += 1
            done += policy.stretch
            first = policy.cold
            policy.rested(policy.stretch, sum(times), sum(times), first=first, first_ns=sum(times[:first]))
        else:
            cost = costs[policy.level] + after
            wall = bare * (1 + noise * chance.random()) + cost
            spent += cost
            done += 1
            since = 0
            policy.finish_step(wall, cost / unseen, cpu_ns=wall)
    return spent / (done * bare)


@pytest.mark.parametrize("lasting", [0.0, 0.1])
@pytest.mark.parametrize("noise", [0.0, 0.5])
@pytest.mark.parametrize("bare", [0.5e6, 1.3e6, 2.5e6])
def test_where_even_the_sentinel_is_too_dear_the_training_rests(bare: float, noise: float, lasting: float) -> None:
    policy = Policy(0.05)
    rest(policy, DEAR, bare=bare, steps=PATIENCE + 4000, noise=noise, lasting=lasting)
    assert policy.resting
    before = dict(policy.taken)
    share = rest(policy, DEAR, bare=bare, steps=10_000, noise=noise, lasting=lasting)
    assert share <= 0.05
    assert policy.taken[Level.GLANCE] - before[Level.GLANCE] >= 10_000 / GLANCE_EVERY - 100
    assert policy.taken[Level.FULL] > before[Level.FULL]
    measured = policy.measured
    assert measured is not None
    assert abs(measured[0] - 1 - share) <= 0.01 + 3 * measured[1]  # the truth, although a third of it was timed


def test_the_start_of_a_training_is_seen_whole() -> None:
    policy = Policy(0.05)
    rest(policy, DEAR, bare=1e6, steps=PATIENCE - 1)
    assert policy.taken[Level.REST] == 0


def test_long_steps_are_measured_and_do_not_rest() -> None:
    policy = Policy(0.05)
    rest(policy, COSTS, bare=100e6, steps=3000, noise=0.05)
    assert not policy.resting
    assert 0 < policy.taken[Level.REST] < 0.06 * 3000
    assert policy.measured is not None
    assert policy.ratio <= 1.05


def test_a_cost_that_lasts_beyond_a_short_stretch_is_measured() -> None:
    """Looks make the steps after them slower by 4 %, also those of a short bare stretch. Together with the sentinel that is over the budget."""
    policy = Policy(0.05)
    costs = {Level.GLANCE: 0.02e6, Level.SENTINEL: 0.1e6, Level.WATCHED: 0.1e6, Level.FULL: 0.4e6}
    rest(policy, costs, bare=5e6, steps=3000, lasting=0.04)
    assert policy.resting
    before = policy.taken[Level.REST]
    share = rest(policy, costs, bare=5e6, steps=8000, lasting=0.04)
    assert share <= 0.05
    assert policy.taken[Level.REST] > before + 4000


def test_nothing_rests_that_may_not() -> None:
    policy = Policy(0.05)
    simulate(policy, {**DEAR, Level.REST: 0.0}, bare=1e6, steps=PATIENCE + 500)
    assert policy.taken[Level.REST] == policy.taken[Level.GLANCE] == 0


def test_what_is_watched_by_name_comes_before_the_rest() -> None:
    policy = Policy(0.05)
    policy.has_watched = True
    share = simulate(policy, COSTS)
    assert share <= 1.03 * 0.05
    assert policy.taken[Level.WATCHED] > 5 * policy.taken[Level.FULL]
    assert policy.taken[Level.WATCHED] > policy.taken[Level.SENTINEL]


def test_a_quiet_stretch_does_not_pay_for_a_loud_one() -> None:
    policy = Policy(0.05)
    cheap = dict.fromkeys(Level, 0.001e6)
    simulate(policy, cheap, steps=2000)
    before = policy.taken[Level.FULL]
    simulate(policy, COSTS, steps=100)
    assert policy.taken[Level.FULL] - before < 40


def test_steps_with_a_stop_in_them_say_nothing() -> None:
    policy = Policy(0.05)
    simulate(policy, COSTS, steps=100)
    ratio, counted = policy.ratio, policy.counted
    policy.finish_step(3600e9, 1e9, counted=False)
    assert (policy.ratio, policy.counted) == (ratio, counted)


@settings(max_examples=40, deadline=None)
@given(
    budget=st.floats(0.005, 0.5),
    sentinel=st.floats(0, 1e5),
    full=st.floats(2e5, 2e7),
    bare=st.floats(1e6, 1e8),
)
def test_never_over_budget_while_the_sentinel_fits(budget: float, sentinel: float, full: float, bare: float) -> None:
    if sentinel > 0.5 * budget * bare:
        return
    costs = {Level.REST: sentinel / 4, Level.SENTINEL: sentinel, Level.WATCHED: full / 2, Level.FULL: full}
    steps = 2000
    share = simulate(Policy(budget), costs, bare=bare, steps=steps)
    assert share <= (1 + OWED) * budget + 2 * full / (bare * steps)


def test_resting_is_for_costs_that_were_measured() -> None:
    """A sentinel that would be too dear only by what is added for the unseen does not rest, nor does the tape."""
    policy = Policy(0.05)
    costs = {Level.REST: 0.05e6, Level.SENTINEL: 0.6e6, Level.WATCHED: 1.2e6, Level.FULL: 2e6}
    simulate(policy, costs, bare=10e6, steps=3 * PATIENCE)
    assert not policy.resting
    assert policy.taken[Level.REST] == 0
    assert policy.taken[Level.FULL] < 3 * PATIENCE * OWED * 0.05 * 10e6 / 2e6 + 10
