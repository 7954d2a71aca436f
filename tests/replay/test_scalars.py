"""Numbers that modules read from globals and attributes, as they were in a step that is run again later."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest
from torch import nn

from tensonde.adapters.torch.replay.scalars import Scalars

LIMIT = 1.0
TABLE = {"limit": 1.0}


def limit() -> float:
    return LIMIT


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale, self.unread = 2.0, 7

    def forward(self, x: float) -> Any:
        return x * self.scale + limit() + TABLE["limit"]


def test_they_are_what_they_were_and_then_what_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    net = Net()
    scalars = Scalars()
    noted = scalars.now([net, len])
    assert net(1.0) == 4.0
    net.scale, net.unread = 3.0, 8
    monkeypatch.setattr(f"{__name__}.LIMIT", 5.0)
    assert net(1.0) == 9.0
    with noted.as_then():
        assert net(1.0) == 4.0
        assert net.unread == 8
    assert net(1.0) == 9.0
    alive = weakref.ref(net)
    del net, noted
    gc.collect()
    assert alive() is None
    assert scalars.now([]) is not None


def test_what_has_become_something_else_is_left_alone() -> None:
    net = Net()
    noted = Scalars().now([net])
    table = nn.Parameter()
    del net.scale
    net.scale = table
    with noted.as_then():
        assert net.scale is table
