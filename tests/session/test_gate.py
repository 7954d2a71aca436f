"""The gate: why the training stops at a site or at the end of a step, and how it goes on."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tensonde.errors import UsageError
from tensonde.model.moment import Moment, Phase
from tensonde.model.site import Kind, Role, Site
from tensonde.model.stop import Resume, Stop
from tensonde.session.gate import Gate

MOMENT = Moment(0, Phase.FORWARD)
NUMBERS: Iterator[int] = iter(range(10_000))


def site(name: str, role: Role = Role.OUT, kind: Kind = Kind.MODULE) -> Site:
    return Site(next(NUMBERS), name, role, kind)


def gate(*plans: Resume) -> Gate:
    """One whose controller answers with these, one a stop."""
    answers = iter(plans)
    return Gate(lambda stop: next(answers, Resume()))


def stop_at(gate: Gate, where: Site | None = None, **facts: object) -> Resume:
    return gate.stop(Stop("breakpoint", MOMENT, where, **facts), lambda: 0)  # type: ignore[arg-type]


def test_a_gate_without_a_controller_never_stops() -> None:
    made = Gate()
    made.add_breakpoint(sites="**")
    made.request_pause()
    assert not made.attentive
    assert made.end_of_step() is None
    assert not made.wants_ops


def test_breakpoints_stop_where_results_are() -> None:
    made = gate()
    assert not made.attentive
    point = made.add_breakpoint(sites="blocks.*")
    assert made.attentive
    assert made.why(site("blocks.1")) == ("breakpoint", point.id)
    assert made.why(site("blocks.1", Role.GRAD)) == ("breakpoint", point.id)
    assert made.why(site("blocks.1", Role.IN)) is None
    assert made.why(site("head")) is None
    exact = made.add_breakpoint(sites="head:in")
    assert made.why(site("head", Role.IN)) == ("breakpoint", exact.id)
    assert made.why(site("head")) is None
    assert made.remove_breakpoint(point.id)
    assert not made.remove_breakpoint(point.id)
    assert made.why(site("blocks.1")) is None


def test_a_breakpoint_counts_its_hits_and_one_for_once_goes() -> None:
    made = gate()
    point = made.add_breakpoint(sites="a")
    once = made.add_breakpoint(sites="b", once=True)
    stop_at(made, site("a"), breakpoint=point.id)
    stop_at(made, site("a"), breakpoint=point.id)
    stop_at(made, site("b"), breakpoint=once.id)
    assert made.breakpoints[point.id].hit_count == 2
    assert once.id not in made.breakpoints


def test_conditions_are_not_the_gates_to_judge() -> None:
    made = gate()
    point = made.add_breakpoint(sites="a", condition="norm > 1")
    where = site("a")
    assert made.why(where) is None
    assert [found.id for found in made.conditional(where)] == [point.id]
    assert list(made.conditional(site("b"))) == []


def test_a_breakpoint_is_a_site_or_a_line() -> None:
    made = gate()
    with pytest.raises(UsageError):
        made.add_breakpoint()
    with pytest.raises(UsageError):
        made.add_breakpoint(sites="a", file="x.py", line=3)
    line = made.add_breakpoint(file="x.py", line=3)
    assert made.lines == (line,)
    assert not made.attentive


def test_steps_are_counted_down() -> None:
    made = gate(Resume("step", 3), Resume())
    stop_at(made)
    assert [made.end_of_step() for _ in range(3)] == [None, None, "step"]
    stop_at(made)
    assert made.end_of_step() is None


def test_next_until_and_finish() -> None:
    made = gate(Resume("next"), Resume("until", sites="head:grad"), Resume("finish"), Resume("nextop"), Resume())
    stop_at(made)
    assert made.attentive
    assert made.why(site("a", Role.IN)) is None
    assert made.why(site("a.weight", Role.VALUE, Kind.PARAMETER)) is None
    assert made.why(site("a")) == ("next", None)
    stop_at(made)
    assert made.why(site("a")) is None
    assert made.why(site("head")) is None
    assert made.why(site("head", Role.GRAD)) == ("until", None)
    stop_at(made, site("block.a"), modules=("model", "block"))
    assert made.why(site("block.b")) is None
    assert made.why(site("block")) == ("finish", None)
    assert not made.wants_ops
    stop_at(made)
    assert made.wants_ops
    assert made.why(site("block/softmax#0", Role.OUT, Kind.OP)) == ("next", None)
    stop_at(made)
    assert not made.attentive
    assert made.why(site("block/softmax#0", Role.OUT, Kind.OP)) is None


def test_finish_outside_of_modules_is_the_end_of_the_step() -> None:
    made = gate(Resume("finish"))
    stop_at(made)
    assert made.end_of_step() == "step"


def test_a_pause_stops_at_the_next_place_once() -> None:
    made = gate()
    made.request_pause()
    assert made.why(site("anything", Role.IN)) == ("pause", None)
    assert made.end_of_step() == "pause"
    stop_at(made)
    assert made.end_of_step() is None


def test_the_time_of_a_stop_is_counted_and_changes_are_told() -> None:
    made = gate(Resume(), Resume())
    told = []
    made.changed = lambda: told.append(1)
    clock = iter([10, 35])
    made.stop(Stop("entry", MOMENT), lambda: next(clock))
    assert made.stopped_ns == 25
    made.add_breakpoint(sites="a")
    made.request_pause()
    assert len(told) >= 2


def test_a_controller_that_fails_leaves_a_gate_that_lets_pass() -> None:
    def broken(stop: Stop) -> Resume:
        raise RuntimeError("console")

    made = Gate(broken)
    made.request_pause()
    with pytest.raises(RuntimeError):
        stop_at(made)
    assert made.end_of_step() is None
    assert made.plan == Resume()
