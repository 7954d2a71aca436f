"""Puts the adapter into MindSpore: `Cell.__call__`, the executor of PyNative mode, `jit`, optimizers, data sets."""

from __future__ import annotations

import logging
import os

import mindspore
from mindspore import nn

from tensonde.adapters.mindspore.making import observe_making
from tensonde.adapters.mindspore.seams.cells import observed_call, original_call
from tensonde.adapters.mindspore.seams.compiling import wrap_jit
from tensonde.adapters.mindspore.seams.passes import wrap_executor
from tensonde.adapters.mindspore.seams.place import HERE, Opener, current, forked, put
from tensonde.program import frames
from tensonde.session.recursion import make_room

_installed = False


def installed() -> bool:
    return _installed


def install(opener: Opener) -> None:
    """`opener` makes the session when the training begins; None from it means that this process is not to be watched."""
    global _installed
    HERE.opener, HERE.pending = opener, True
    if _installed:
        return
    _installed = True
    make_room()
    frames.register("mindspore", mindspore.__file__)
    put(nn.Cell, "__call__", observed_call, "see what cells give")
    wrap_executor()
    wrap_jit()
    observe_making(put, current)
    os.register_at_fork(after_in_child=forked)
    logging.getLogger("tensonde.adapters").debug("installed into mindspore %s", mindspore.__version__)


def withdraw() -> None:
    """The program ends: what is called from now on is MindSpore's own."""
    HERE.training, HERE.pending = None, False
    if nn.Cell.__call__ is observed_call:
        nn.Cell.__call__ = original_call
