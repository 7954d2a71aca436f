"""Which gradient a stage of a pipeline takes for what it has sent."""

from __future__ import annotations

import pytest
import torch

from tensonde.adapters.torch.observers.stages import MOST, Stages


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0)])
def test_numbers_tell_whose_gradient_it_is(order: tuple[int, ...]) -> None:
    """Two stages in one process; the last one sends the gradients of its micro-batches from the last to the first."""
    first, last = Stages(), Stages()
    weight = torch.ones(4, requires_grad=True)
    outs, inputs = [], []
    for k in range(3):
        out = weight * k
        first.sends(out.detach(), 1)
        came = out.detach().clone()
        last.receives(came, 0)
        outs.append(out)
        inputs.append(came.requires_grad_())
    back = []
    for came in reversed(inputs):
        came.square().sum().backward()
        last.sends(came.grad, 0)
        assert came.grad is not None
        back.append(came.grad.clone())
    for k, gradient in zip(order, back, strict=True):
        first.receives(gradient, 1)
        first.backward(outs[k], gradient, None)
    returned = {one["sent"]: one["received"] for one in last.facts()["returned"]}
    assert returned == {1: 3, 2: 2, 3: 1}
    right = [returned[one["received"]] == one["sent"] for one in first.facts()["used"]]
    assert right == ([True, True, True] if order == (2, 1, 0) else [False, True, False])


def test_what_is_no_pipeline_is_left_alone() -> None:
    stages = Stages()
    loss = torch.ones(3, requires_grad=True).sum()
    stages.backward(loss, None, None)
    stages.sends(None, 1)
    stages.receives(torch.ones(2), 1)
    stages.backward([loss], [None], None)
    assert stages.facts() == {"returned": [], "used": []}
    for _ in range(2 * MOST):
        stages.sends(torch.ones(2), 1)
    assert len(stages._sent) <= 2 * MOST
