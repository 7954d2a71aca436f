"""What Tensonde does beside its digests on a device: values that are read behind the program, the budget's clock, captures, random numbers."""

from __future__ import annotations

import time

import pytest
import torch
from torch import nn

import standin
from tensonde.adapters.torch.capture import capturing
from tensonde.adapters.torch.digests.device.clock import Stamp, device_clock
from tensonde.adapters.torch.digests.device.digests import DeviceDigests
from tensonde.adapters.torch.observers.reading import EARLY, LATER, MOST_BYTES, Reading
from tensonde.adapters.torch.randomness import Drawn
from tensonde.digest import Block
from tensonde.session.measured import Costs

ON = "standin"


@pytest.fixture
def slow() -> None:
    """An op takes 3 milliseconds; those that the tests use have been called before, which takes longer the first time."""
    x = torch.ones(4, device=ON)
    (x + 1).sum().item()
    standin.ext.set_delay(3000)
    yield
    standin.ext.set_delay(0)


# -- values --------------------------------------------------------------------------------------------


def test_values_are_told_when_they_have_arrived() -> None:
    reading, told = Reading(), []
    x = torch.arange(6.0, device=ON)
    with standin.held(), standin.counting() as counts:
        reading.later([x * 2, x.sum()], lambda *values: told.append(values))
        reading.arrive()
        assert not told
    assert counts["synchronisations"] == 0
    reading.arrive(wait=True)
    assert [value.tolist() for value in told[0]] == [[0, 2, 4, 6, 8, 10], 15]
    assert told[0][0].device.type == "cpu"


def test_what_is_written_afterwards_is_not_read() -> None:
    reading, told = Reading(), []
    x = torch.zeros(3, device=ON)
    reading.later([x], lambda value: told.append(value.tolist()))
    x += 1
    reading.arrive(wait=True)
    assert told == [[0, 0, 0]]


def test_values_of_the_host_are_told_at_once() -> None:
    reading, told = Reading(), []
    x = torch.ones(2)
    reading.later([x], told.append)
    assert told[0] is x
    assert not reading.used


def test_waits_are_counted() -> None:
    reading = Reading()
    x = torch.ones(2, device=ON)
    assert all(reading.may_wait(x) for _ in range(1000))
    reading.step = EARLY
    assert sum(reading.may_wait(x) for _ in range(1000)) == LATER
    assert reading.may_wait(torch.ones(2))


def test_what_is_large_is_not_brought() -> None:
    reading, told = Reading(), []
    reading.later([torch.ones(MOST_BYTES // 4 + 1, device=ON)], told.append)
    reading.arrive(wait=True)
    assert not told


def test_values_of_two_devices_arrive_together() -> None:
    reading, told = Reading(), []
    a, b = torch.ones(2, device="standin:0"), torch.ones(2, device="standin:1")
    with standin.held():
        reading.later([a + 1, b + 2], lambda *values: told.append([value.tolist() for value in values]))
    reading.arrive(wait=True)
    assert told == [[[2, 2], [3, 3]]]


# -- the clock -----------------------------------------------------------------------------------------


def test_the_clock_is_the_devices_and_is_not_waited_for(slow: None) -> None:
    x = torch.ones(4, device=ON)
    torch.standin.synchronize()
    with standin.counting() as counts:
        began, host = device_clock(), time.perf_counter()
        for _ in range(20):
            x = x + 1
        ended, host = device_clock(), time.perf_counter() - host
        assert isinstance(began, Stamp)
        assert isinstance(ended, Stamp)
        lapse = ended - began
        assert lapse.known() is None
    assert counts["synchronisations"] == 0
    torch.standin.synchronize()
    known = lapse.known()
    assert known is not None
    assert known >= 60e6  # 20 ops of 3 ms, in nanoseconds
    assert host < 0.7 * known * 1e-9 or host > 0.06  # far ahead, unless this machine was busy with something else


def test_costs_are_taken_in_when_the_device_has_come_so_far(slow: None) -> None:
    """Steps that are looked at have six ops, bare ones two: four ops are what a look costs."""
    costs = Costs()
    x = torch.ones(4, device=ON)
    with standin.counting() as counts:
        mark = device_clock()
        for k in range(18):
            for _ in range(6 if k % 3 == 0 else 2):
                x = x + 1
            now = device_clock()
            if k % 3 == 0:
                costs.step(1, now - mark)
            else:
                costs.rested(1, now - mark)
            mark = now
        assert costs.of(1) is None, "nothing is known so soon"
    assert counts["synchronisations"] == 0
    torch.standin.synchronize()
    costs.settle()
    found = costs.of(1)
    assert found is not None
    assert costs.bare >= 6e6  # two ops of 3 ms; a busy machine makes them longer
    assert found.ns >= 9e6
    assert found.ns == pytest.approx(2 * costs.bare, rel=0.5)


# -- captures ------------------------------------------------------------------------------------------


def test_a_captured_graph_runs_when_it_is_replayed() -> None:
    x, out = torch.zeros(3, device=ON), torch.zeros(3, device=ON)
    with standin.captured() as graph:
        assert capturing()
        out.copy_(x * 2 + 1)
        with pytest.raises(RuntimeError, match="capturing"):
            out.sum().item()
        with pytest.raises(RuntimeError, match="capturing"):
            out.cpu()
    assert not capturing()
    assert out.tolist() == [0, 0, 0]
    for value in (3.0, 5.0):
        x.fill_(value)
        graph.replay()
        assert out.tolist() == [2 * value + 1] * 3


def test_nothing_of_ours_is_captured_or_spoils_a_capture() -> None:
    block, digests, reading = Block(4), DeviceDigests(), Reading()
    x = torch.ones(3, device=ON)
    assert digests.add(block, 0, x)
    digests.send()
    reading.later([x], lambda value: None)
    with standin.captured() as graph:
        y = x + 1
        assert not digests.add(block, 0, y)
        assert digests.at_once(y) is None
        digests.send()
        assert digests.arrived(wait=True) is None
        reading.later([y], lambda value: None)
        reading.arrive(wait=True)
        assert not reading.may_wait(y)
        lapse = device_clock() - device_clock()
        drawn = Drawn()
        drawn.put()
    assert graph.launches == 1
    assert lapse.known() != lapse.known(), "no time is known of it"
    assert digests.arrived(wait=True) is not None
    reading.arrive(wait=True)


# -- random numbers ------------------------------------------------------------------------------------


def test_generators_of_devices_are_put_back() -> None:
    torch.manual_seed(3)
    x = torch.ones(1000, device=ON)
    drawn = Drawn()
    first, host = nn.functional.dropout(x), torch.rand(3)
    assert not torch.equal(nn.functional.dropout(x), first)
    drawn.put()
    assert torch.equal(nn.functional.dropout(x), first)
    assert torch.equal(torch.rand(3), host)
