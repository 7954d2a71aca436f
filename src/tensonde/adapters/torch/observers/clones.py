"""Layers that torch itself copies (`TransformerEncoder(layer, n)`): a copy was made where its original was made.

A copy is never initialised, so that nobody notes where it comes from; what is to be changed about it is written where the original is.
"""

from __future__ import annotations

from typing import Any

from torch import nn

from tensonde.adapters.torch.observers.origins import KNOWN


def noted(copies: Any, original: nn.Module, *_: Any) -> None:
    """`copies` of a module have been made."""
    for copy in copies:
        for known, module in zip(original.modules(), copy.modules(), strict=False):
            if type(known) is type(module) and KNOWN.made.place(module) is None:
                KNOWN.made.note(module, KNOWN.made.place(known))
