"""Prints a hash of what a training leaves behind: weights, buffers, optimizer state and the random-number state.

The programs beside this file import it first, which seeds `random` and numpy, and end with `report(...)`. The hash is the same with and without Tensonde, or Tensonde
changed the training.
"""

from __future__ import annotations

import hashlib
import random
from typing import Any

import numpy as np
import torch

random.seed(0)
np.random.seed(0)


def report(*things: Any) -> None:
    digest = hashlib.sha256()
    for thing in things:
        _feed(digest, thing)
    _feed(digest, torch.get_rng_state())
    digest.update(repr(random.getstate()).encode())
    digest.update(np.random.get_state()[1].tobytes())
    print("fingerprint", digest.hexdigest()[:16])


def _feed(digest: Any, thing: Any) -> None:
    if hasattr(thing, "state_dict"):
        thing = thing.state_dict()
    if isinstance(thing, torch.Tensor):
        if thing.is_sparse:
            thing = thing.coalesce().to_dense()
        digest.update(str((thing.dtype, tuple(thing.shape))).encode())
        digest.update(thing.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
    elif isinstance(thing, dict):
        for key in thing:
            digest.update(str(key).encode())
            _feed(digest, thing[key])
    elif isinstance(thing, list | tuple):
        for item in thing:
            _feed(digest, item)
    else:
        digest.update(repr(thing).encode())
