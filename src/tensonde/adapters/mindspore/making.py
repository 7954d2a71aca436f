"""Notes where the program makes cells and optimizers, where it changes their mode, and when it begins a pass over data."""

from __future__ import annotations

import functools
import logging
import sys
import weakref
from collections.abc import Callable
from threading import get_ident
from typing import Any

import mindspore
from mindspore import nn
from mindspore.dataset.engine.datasets import Dataset
from mindspore.dataset.engine.iterators import Iterator
from mindspore.train import serialization
from mindspore.train.dataset_helper import _DatasetIterNormal

from tensonde.adapters.mindspore.observers.feeding import LOADERS
from tensonde.adapters.mindspore.observers.origins import KNOWN
from tensonde.adapters.mindspore.run import naming
from tensonde.adapters.mindspore.run.pynative import PyNative
from tensonde.program.frames import birth_place, user_place

Put = Callable[[Any, str, Any, str], None]
_first_pass: weakref.ref[Any] | None = None
"""The data set that was iterated last before the training began."""


def first_pass() -> Any:
    """That data set, if it is alive."""
    return _first_pass() if _first_pass is not None else None


def observe_making(put: Put, current: Callable[[], PyNative | None]) -> None:
    """Once in a process."""
    init, set_train = nn.Cell.__init__, nn.Cell.set_train

    @functools.wraps(init)
    def noted_init(self: Any, *args: Any, **kwargs: Any) -> None:
        init(self, *args, **kwargs)
        try:
            KNOWN.made.note(self, birth_place(sys._getframe(1), self))
            training = current()
            if training is not None and training.stack and training.thread == get_ident():
                training.facts.cell_made(self, user_place(sys._getframe(1)))
            if naming.is_optimizer(self):
                KNOWN.optimizer_made(self)
                if training is not None:
                    training.session.steps.optimizer_exists(id(self))
        except Exception as problem:
            logging.getLogger("tensonde.adapters").debug("a cell could not be noted: %s", problem)

    @functools.wraps(set_train)
    def noted_set_train(self: Any, mode: bool = True) -> Any:
        if mode is False:
            KNOWN.evaluated.note(self, user_place(sys._getframe(1)))
        return set_train(self, mode)

    passes, passed, begun = Iterator.__iter__, _DatasetIterNormal.__iter__, Iterator.__init__

    described = Dataset.__init__

    @functools.wraps(described)
    def noted_dataset(self: Any, *args: Any, **kwargs: Any) -> None:
        described(self, *args, **kwargs)
        _noted(KNOWN.described.note, self, birth_place(sys._getframe(1), self))

    @functools.wraps(begun)
    def noted_iterator(self: Any, dataset: Any, *args: Any, **kwargs: Any) -> None:
        _noted(LOADERS.made, self, dataset)
        begun(self, dataset, *args, **kwargs)

    @functools.wraps(passes)
    def observed_iter(self: Any) -> Any:
        dataset = getattr(self, "_Iterator__ori_dataset", None)
        _noted(LOADERS.iterated, self, dataset)
        _pass_begins(current(), dataset)
        return passes(self)

    @functools.wraps(passed)
    def observed_normal_iter(self: Any) -> Any:
        _pass_begins(current(), getattr(self, "dataset", None))
        return passed(self)

    put(Dataset, "__init__", noted_dataset, "know where data sets are made")
    put(Iterator, "__init__", noted_iterator, "see passes over data")
    put(Iterator, "__iter__", observed_iter, "see passes over data")
    _observe_loading(put, current)
    put(_DatasetIterNormal, "__iter__", observed_normal_iter, "see the epochs of Model.train")
    put(nn.Cell, "__init__", noted_init, "know where cells and optimizers are made")
    put(nn.Cell, "set_train", noted_set_train, "know where a cell is put into eval mode")


def _observe_loading(put: Put, current: Callable[[], PyNative | None]) -> None:
    load = serialization.load_param_into_net

    @functools.wraps(load)
    def noted_load(net: Any, parameter_dict: Any, *args: Any, **kwargs: Any) -> Any:
        out = load(net, parameter_dict, *args, **kwargs)
        KNOWN.loaded |= {id(held) for _, cell in naming.cells_in(net) for _, held in naming.own_parameters(cell)}
        training = current()
        if training is not None and training.thread == get_ident():
            _noted(training.facts.loaded, net, parameter_dict, user_place(sys._getframe(1)))
        return out

    for owner in (serialization, mindspore.train, mindspore):
        if getattr(owner, "load_param_into_net", None) is load:
            put(owner, "load_param_into_net", noted_load, "see weights that are loaded")


def _noted(note: Callable[..., None], *things: Any) -> None:
    try:
        note(*things)
    except Exception as problem:
        logging.getLogger("tensonde.adapters").debug("%s could not be noted: %s", type(things[0]).__name__, problem)


def _pass_begins(training: PyNative | None, dataset: Any) -> None:
    global _first_pass
    try:
        if dataset is None:
            return
        if training is None:
            _first_pass = weakref.ref(dataset)
        elif training.thread == get_ident():
            training.epoch_begins(dataset)
    except Exception as problem:
        logging.getLogger("tensonde.adapters").debug("a pass over data could not be noted: %s", problem)
