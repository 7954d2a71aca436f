"""What a debugger can look back at: the last two tensors of a site, previous parameters and gradients."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from tensonde.adapters.torch.debugging import kept as module
from tensonde.adapters.torch.debugging.kept import Kept
from tensonde.adapters.torch.seams.hooks import hook


class Live:
    """Named parameters, as the adapter gives them."""

    def __init__(self, **named: nn.Parameter) -> None:
        self.named = named

    def live(self) -> list[tuple[str, nn.Parameter]]:
        return list(self.named.items())


NONE = Live()


def test_the_newest_and_the_one_of_the_step_before() -> None:
    kept = Kept()
    kept.put(7, torch.tensor([1.0]))
    kept.turn(NONE, 1)  # type: ignore[arg-type]
    kept.put(7, torch.tensor([2.0]))
    kept.put(7, torch.tensor([3.0]))
    latest, before = kept.get(7), kept.get(7, before=True)
    assert latest is not None
    assert before is not None
    assert (latest.tensor.item(), latest.step) == (3.0, 1)
    assert (before.tensor.item(), before.step) == (1.0, 0)


def test_what_did_not_run_yet_is_of_the_step_before_and_then_forgotten() -> None:
    kept = Kept()
    kept.put(7, torch.tensor([1.0]))
    kept.turn(NONE, 1)  # type: ignore[arg-type]
    assert kept.get(7).step == 0  # type: ignore[union-attr]
    assert kept.get(7, before=True) is None
    kept.turn(NONE, 2)  # type: ignore[arg-type]
    kept.turn(NONE, 3)  # type: ignore[arg-type]
    assert kept.get(7) is None


def test_the_memory_is_bounded_and_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LIMIT", 100)
    kept = Kept()
    kept.put(1, torch.zeros(20))
    kept.put(2, torch.zeros(20))
    assert kept.get(1) is not None
    assert kept.get(2) is None
    for _ in range(5):
        kept.put(1, torch.zeros(20))
    kept.put(1, torch.zeros(1))
    kept.put(2, torch.zeros(20))
    assert kept.get(2) is not None


def test_an_in_place_change_shows_in_the_version() -> None:
    kept = Kept()
    tensor = torch.zeros(2)
    kept.put(1, tensor)
    tensor.add_(1)
    seen = kept.get(1)
    assert seen is not None
    assert seen.tensor._version != seen.version


def test_gradients_before_know_whether_the_script_has_computed_new_ones() -> None:
    parameter = nn.Parameter(torch.zeros(1))
    live = Live(w=parameter)
    kept = Kept()
    for step, value in ((1, 10.0), (2, 20.0)):
        parameter.grad = torch.tensor([value])
        kept.turn(live, step)  # type: ignore[arg-type]
    now = kept.gradient("w", parameter.grad, before=False)
    before = kept.gradient("w", parameter.grad, before=True)
    assert now is not None
    assert before is not None
    assert (now.item(), before.item()) == (20.0, 10.0)
    assert kept.gradient("w", None, before=False).item() == 20.0  # type: ignore[union-attr]
    assert kept.gradient("w", None, before=True).item() == 10.0  # type: ignore[union-attr]
    fresh = torch.tensor([30.0])
    assert kept.gradient("w", fresh, before=True).item() == 20.0  # type: ignore[union-attr]


def test_parameters_before_are_copies() -> None:
    parameter = nn.Parameter(torch.zeros(1))
    kept = Kept()
    kept.snapshot(Live(w=parameter))  # type: ignore[arg-type]
    parameter.data.fill_(1.0)
    kept.turn(Live(w=parameter), 1)  # type: ignore[arg-type]
    assert kept.value_before("w").item() == 0.0  # type: ignore[union-attr]


def test_gradient_hooks_are_called_in_order() -> None:
    leaf = torch.ones(2, requires_grad=True)
    inner = leaf * 2
    called: list[str] = []
    hook(inner, lambda _: called.append("first"))
    hook(inner, lambda _: called.append("second"))
    (inner * 3).sum().backward()
    assert called == ["first", "second"]
    assert leaf.grad is not None
    assert leaf.grad.tolist() == [6.0, 6.0]
