"""What became of gradients between backward passes and steps, as `Sequence` counts it, without a session."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

from tensonde.adapters.torch.observers import sequence as module
from tensonde.adapters.torch.observers.sequence import Sequence, Track

Clear = Callable[[torch.optim.Optimizer], None]


def trained(monkeypatch: pytest.MonkeyPatch, clear: Clear, *, after_backward: bool = False, passes: int = 1) -> Track:
    net = nn.Linear(3, 2)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    monkeypatch.setattr(module.KNOWN, "mine", lambda: [optimizer])
    seen = Sequence()
    for _ in range(6):
        if not after_backward:
            clear(optimizer)
        for _ in range(passes):
            seen.before_backward()
            net(torch.randn(4, 3)).square().mean().backward()
            seen.after_backward()
        if after_backward:
            clear(optimizer)
        seen.before_step(optimizer, closure=False)
        optimizer.step()
        seen.after_step(optimizer)
    assert seen.windows == {f"{passes}/0": 6}
    assert seen.steps == 6
    return seen.track(optimizer)


@pytest.mark.parametrize("to_none", [True, False])
def test_gradients_that_are_cleared(monkeypatch: pytest.MonkeyPatch, to_none: bool) -> None:
    track = trained(monkeypatch, lambda optimizer: optimizer.zero_grad(set_to_none=to_none))
    assert (track.steps, track.uncleared, track.emptied, track.without_backward) == (6, 0, 0, 0)
    assert track.ever


def test_gradients_that_are_never_cleared(monkeypatch: pytest.MonkeyPatch) -> None:
    track = trained(monkeypatch, lambda optimizer: None)
    assert (track.steps, track.uncleared) == (6, 5)


def test_gradients_that_are_cleared_before_the_step(monkeypatch: pytest.MonkeyPatch) -> None:
    track = trained(monkeypatch, lambda optimizer: optimizer.zero_grad(), after_backward=True)
    assert (track.steps, track.emptied) == (6, 6)


def test_gradients_that_add_up_over_several_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    track = trained(monkeypatch, lambda optimizer: optimizer.zero_grad(), passes=3)
    assert (track.steps, track.uncleared, track.emptied) == (6, 0, 0)
