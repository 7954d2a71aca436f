"""What a trace says of an op's arguments."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from tensonde.adapters.torch.tracing.arguments import named


@pytest.mark.parametrize(
    ("given", "reduction"),
    [
        ({"size_average": False}, "sum"),
        ({"size_average": True}, "mean"),
        ({"reduce": False}, "none"),
        ({"size_average": False, "reduce": True}, "sum"),
        ({"reduction": "sum"}, "sum"),
        ({"size_average": None, "reduce": None, "reduction": "mean"}, "mean"),
    ],
)
def test_losses_by_their_old_arguments(given: dict[str, object], reduction: str) -> None:
    x = torch.rand(2)
    assert named("binary_cross_entropy", F.binary_cross_entropy, (x, x), given)["reduction"] == reduction
