"""The budget holds in the long run, is used up, and what is watched by name goes first. Costs are simulated."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tensonde.session.policy import OWED, PATIENCE, SENTINEL_EVERY, UNSEEN, Level, Policy


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
    assert policy.ratio == pytest.approx(1 + share / UNSEEN, abs=0.2 * budget)  # what was measured
    assert policy.taken[Level.FULL] > 0
    assert sum(policy.taken.values()) == 3000


def test_the_first_step_is_seen_in_full() -> None:
    assert Policy(0.05).level is Level.FULL
    assert Policy(None).level is Level.FULL


def test_off_is_everything_at_every_step() -> None:
    policy = Policy(None)
    simulate(policy, COSTS, steps=50)
    assert policy.taken == {Level.REST: 0, Level.SENTINEL: 0, Level.WATCHED: 0, Level.FULL: 50}


def test_zero_is_the_sentinel_and_what_is_watched_by_name() -> None:
    policy = Policy(0)
    simulate(policy, COSTS, steps=50)
    assert policy.taken == {Level.REST: 0, Level.SENTINEL: 50, Level.WATCHED: 0, Level.FULL: 0}
    policy = Policy(0, watched=True)
    policy.has_watched = True
    simulate(policy, COSTS, steps=50)
    assert policy.taken == {Level.REST: 0, Level.SENTINEL: 0, Level.WATCHED: 49, Level.FULL: 1}


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


def test_where_even_the_sentinel_is_too_dear_some_steps_rest() -> None:
    """Steps of a millisecond: after a while the cost comes down to the budget, and the sentinel still comes by."""
    costs = {Level.REST: 0.02e6, Level.SENTINEL: 0.3e6, Level.WATCHED: 0.5e6, Level.FULL: 2e6}
    policy = Policy(0.05)
    simulate(policy, costs, bare=1e6, steps=PATIENCE + 200)
    assert policy.overdrawn
    late = simulate(policy, costs, bare=1e6, steps=5000)
    assert 0.025 <= late <= 0.05  # in steps that short, even less can be measured
    assert policy.taken[Level.SENTINEL] >= PATIENCE + 5000 / SENTINEL_EVERY


def test_the_sentinel_comes_now_and_then_whatever_it_costs() -> None:
    costs = {Level.REST: 0.2e6, Level.SENTINEL: 1e6, Level.WATCHED: 1e6, Level.FULL: 2e6}
    policy = Policy(0.05)
    simulate(policy, costs, bare=1e6, steps=PATIENCE)
    before = policy.taken[Level.SENTINEL]
    simulate(policy, costs, bare=1e6, steps=640)
    assert policy.taken[Level.SENTINEL] - before == pytest.approx(640 / SENTINEL_EVERY, abs=1)


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
    assert not policy.overdrawn
    assert policy.taken[Level.REST] == 0
    assert policy.taken[Level.FULL] < 3 * PATIENCE * OWED * 0.05 * 10e6 / 2e6 + 10
