"""Whether code runs inside torch.func (vmap, grad, ...), asked in a way that leaves no mark.

`torch._C._functorch.maybe_current_level` makes functorch's thread state where there was none, and from then on torch copies that
state with every op that autograd records: some percent of a short step, for as long as the process lives.
"""

from __future__ import annotations

import torch

_included = torch._C._dispatch_tls_is_dispatch_key_included
_front = torch._C.DispatchKey.FuncTorchDynamicLayerFrontMode


def functorch_level() -> bool | None:
    """None outside of function transforms."""
    return True if _included(_front) else None
