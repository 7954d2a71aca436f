"""What `to_empty()` gives memory, and nothing writes to. New memory is filled here as it may happen to be."""

from __future__ import annotations

import torch
from torch import nn

from tensonde.adapters.torch.observers.emptied import Emptied


def emptied(memory: float) -> tuple[nn.Sequential, Emptied]:
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2, bias=False))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(memory)
    found = Emptied()
    found.noted(model, None)
    return model, found


def told(found: Emptied) -> list[str]:
    return [one["name"] for one in found.facts()]


def test_what_nobody_has_written_is_told_once() -> None:
    model, found = emptied(3e5)
    nn.init.zeros_(model[0].weight)
    for _ in range(3):
        found.called(model)
    assert told(found) == ["0.bias", "1.weight"]


def test_zeros_alone_say_nothing() -> None:
    model, found = emptied(0.0)
    model[0].reset_parameters()
    model[1].weight.data.zero_()  # as adapters begin; neither its content nor its version tells
    found.called(model)
    assert told(found) == []


def test_zeros_of_a_whole_layer_are_told() -> None:
    model, found = emptied(0.0)
    model[1].reset_parameters()
    found.called(model)
    assert told(found) == ["0.weight"]


def test_a_model_is_looked_at_once_while_another_waits() -> None:
    model, found = emptied(3e5)
    other = nn.Linear(2, 2)
    found.noted(other, None)
    found.called(model)
    known = told(found)
    with torch.no_grad():
        next(model.parameters()).fill_(1.0)
    found.called(model)
    found.called(other)
    assert told(found) == [*known, "weight", "bias"]
