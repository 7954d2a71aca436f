"""The stand-in itself: what a program can see of it."""

from __future__ import annotations

import time

import pytest
import torch
from torch import nn

import standin

ON = "standin"


def trained(device: str, steps: int = 5, **make: object) -> list[torch.Tensor]:
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Dropout(0.1), nn.Linear(144, 5)
    )
    x, y = torch.randn(8, 1, 8, 8), torch.randint(0, 5, (8,))
    model, x, y = model.to(device), x.to(device), y.to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2, foreach=True)
    torch.manual_seed(1)  # of the device's generator, too
    for _ in range(steps):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
    return [parameter.detach().cpu() for parameter in model.parameters()]


def test_a_training_gives_the_weights_of_the_cpu() -> None:
    for here, there in zip(trained("cpu"), trained(ON), strict=True):
        assert torch.equal(here, there)


def test_an_op_is_a_launch_and_waits_for_nothing() -> None:
    x = torch.ones(4, device=ON)
    with standin.counting() as seen:
        y = (x + 1).view(2, 2).t() * 2
        torch._foreach_mul_([x, y], 2)
    assert seen == {"launches": 3, "asynchronous": 3}
    with standin.counting() as seen:
        assert y.sum().item() == 32
    assert (seen["launches"], seen["host_reads"], seen["synchronisations"]) == (1, 1, 1)


def test_a_copy_arrives_when_somebody_has_waited() -> None:
    x = torch.arange(4, dtype=torch.float32, device=ON)
    target = torch.zeros(4, pin_memory=True)
    with standin.held():
        target.copy_(x, non_blocking=True)
        event = torch.Event(device=ON)
        event.record()
        assert target.isnan().all()
        assert not event.query()
        x.fill_(9)
        event.synchronize()
        assert event.query()
        assert target.tolist() == [0, 1, 2, 3]


def test_a_copy_to_common_memory_is_waited_for() -> None:
    x = torch.ones(2, device=ON)
    with standin.counting() as seen:
        assert torch.empty(2).copy_(x, non_blocking=True).tolist() == [1, 1]
    assert (seen["host_reads"], seen["synchronisations"], seen["bytes_to_host"]) == (1, 1, 8)


def test_ops_take_their_time_and_the_host_does_not() -> None:
    standin.ext.set_delay(20_000)
    try:
        x = torch.ones(2, device=ON)
        began = time.perf_counter()
        for _ in range(5):
            x = x + 1
        assert time.perf_counter() - began < 0.05
        torch.accelerator.synchronize()
        assert time.perf_counter() - began > 0.1
    finally:
        standin.ext.set_delay(0)


def test_streams_wait_for_events_only() -> None:
    standin.ext.set_delay(30_000)
    try:
        side, first = torch.Stream(device=ON), torch.Event(device=ON)
        with side:
            x = torch.ones(2, device=ON) + 1
            first.record(side)
        own = torch.Event(device=ON)
        own.record()
        assert own.query()
        assert not first.query()
        torch.accelerator.current_stream().wait_event(first)
        own.record()
        assert not own.query()
        own.synchronize()
        assert first.query()
        assert x.sum().item() == 4
    finally:
        standin.ext.set_delay(0)


def test_values_come_when_the_device_has_done_it() -> None:
    x = torch.zeros(3, device=ON)
    torch.accelerator.synchronize()
    with standin.held():
        y = x + 1
        x.fill_(5)
        assert y.sum().item() == 3, "the order of one stream is kept, and item() waits for it"


def test_a_stream_that_does_not_wait_for_another_reads_too_early() -> None:
    side = torch.Stream(device=ON)
    x = torch.zeros(3, device=ON)
    torch.accelerator.synchronize()
    with standin.held():
        x.fill_(7)
        with side:
            early = x + 1
            side.synchronize()
        late = torch.Event(device=ON)
        late.record()
        with side:
            side.wait_event(late)
            right = x + 1
            side.synchronize()
    torch.accelerator.synchronize()
    assert early.tolist() == [1, 1, 1]
    assert right.tolist() == [8, 8, 8]


def test_pinned_memory_that_is_overwritten_before_it_was_copied() -> None:
    source, target = torch.ones(3).pin_memory(), torch.empty(3, device=ON)
    torch.accelerator.synchronize()
    with standin.held():
        target.copy_(source, non_blocking=True)
        source.fill_(9)
    assert target.tolist() == [9, 9, 9]


def test_memory_that_another_stream_still_reads_is_gone() -> None:
    """Unless `record_stream` says so, as with CUDA's allocator."""
    side = torch.Stream(device=ON)
    for recorded in (False, True):
        with standin.held():
            x = torch.ones(1000, device=ON)
            torch.accelerator.current_stream().synchronize()
            with side:
                y = x * 2
            if recorded:
                x.record_stream(side)
            del x
            z = torch.ones(3, device=ON)
            torch.accelerator.current_stream().synchronize()
            side.synchronize()
        assert z.sum().item() == 3
        assert y.sum().item() == 2000 if recorded else y.isnan().all()


def test_an_index_out_of_range_surfaces_at_the_next_wait() -> None:
    table = torch.randn(4, 3, device=ON)
    found = nn.functional.embedding(torch.tensor([1, 9], device=ON), table)
    after = found * 2
    assert after.shape == (2, 3)
    with pytest.raises(RuntimeError, match=r"device-side assert(.|\n)*index out of range"):
        torch.accelerator.synchronize()
    torch.accelerator.synchronize()


def test_shapes_are_checked_at_once() -> None:
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        torch.ones(2, 3, device=ON) @ torch.ones(2, 3, device=ON)


def test_devices_do_not_mix() -> None:
    with pytest.raises(RuntimeError, match="same device"):
        torch.ones(2, device=ON) + torch.ones(2)
    with pytest.raises(RuntimeError, match="same device"):
        torch.ones(2, device="standin:0") + torch.ones(2, device="standin:1")
    assert (torch.ones(2, device=ON) + torch.tensor(1.0)).device.type == ON
    assert torch.ones(2, device="standin:1").to("standin:0").device.index == 0


def test_memory_is_counted_and_limited() -> None:
    before = standin.memory()[0]
    x = torch.empty(1000, device=ON)
    assert standin.memory()[0] - before == 4096
    assert torch.accelerator.memory_allocated() == standin.memory()[0]
    with (
        standin.limited(standin.memory()[0] + 4096),
        pytest.raises(torch.OutOfMemoryError, match="Tried to allocate 8000"),
    ):
        torch.empty(2000, device=ON)
    del x
    assert standin.memory()[0] == before


def test_an_op_can_be_made_to_fail() -> None:
    standin.ext.fail_at("aten::relu", True)
    y = torch.relu(torch.ones(3, device=ON))
    for _ in range(2):  # as on CUDA, the device is lost
        with pytest.raises(RuntimeError, match="a test asked for"):
            y.sum().item()
    standin.ext.set_sticky(False)
    with pytest.raises(RuntimeError):
        torch.accelerator.synchronize()
    assert torch.ones(3, device=ON).sum().item() == 3
