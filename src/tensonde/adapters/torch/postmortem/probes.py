"""What the families of things made elsewhere need to know, each asked only where its message is met."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor

from tensonde.adapters.torch.postmortem.classes import class_called
from tensonde.adapters.torch.postmortem.domain import out_of_domain
from tensonde.adapters.torch.postmortem.flipped import flipped
from tensonde.adapters.torch.postmortem.halved import halved
from tensonde.adapters.torch.postmortem.leaves import copied, non_leaf, overlapping
from tensonde.adapters.torch.postmortem.nonfinite import first_nonfinite
from tensonde.adapters.torch.postmortem.own_function import own_gradient
from tensonde.adapters.torch.postmortem.packing import unpacked_short
from tensonde.adapters.torch.postmortem.recomputed import recomputed
from tensonde.adapters.torch.postmortem.traceback import Failure

Probe = Callable[[Failure, dict[str, Tensor]], Any]

MADE_ELSEWHERE: list[tuple[str, str, Probe]] = [
    (
        "domain",
        r"Expected parameter \w+ |not positive-definite|probability tensor contains|multinomial distribution|"
        r"expects all elements of std|p_in >= 0|invalid Poisson rate",
        lambda f, t: out_of_domain(f),
    ),
    ("own_gradient", r"unction \w+ returned an (incorrect number of|invalid) gradient", lambda f, t: own_gradient(f)),
    ("non_leaf", r"non-leaf Tensor", lambda f, t: non_leaf(f)),
    ("overlapping", r"written-to tensor refers to a single memory location", lambda f, t: overlapping(f)),
    ("copied", r"graph leaves\) support the deepcopy protocol", lambda f, t: copied(f)),
    (
        "class_called",
        r"Boolean value of Tensor|object has no attribute|must be (a )?Tensor, not |positional argument|must be .*bool",
        lambda f, t: class_called(f),
    ),
    ("halved", r"unscale FP16 gradients", lambda f, t: halved(f)),
    ("recomputed", r"CheckpointError", lambda f, t: recomputed(f)),
    ("flipped", r"stride in the given numpy array is negative|negative strides", lambda f, t: flipped(f)),
    ("nonfinite", r"\b(nan|inf|infinity|infs|nans)\b|non-?finite|not finite", lambda f, t: first_nonfinite(f)),
    ("unpacked", r"size of tensor a|Sizes of tensors must match", lambda f, t: unpacked_short(f)),
]
"""Name of the fact, the message (`Type: text`) that asks for it, and how it is found."""
