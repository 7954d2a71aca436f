"""What a callback receives: the run's facts as a dictionary with attributes, and a way to ask for a stop."""

from __future__ import annotations

from typing import Any


class Arguments(dict[str, Any]):
    """`original_args()`: read and write facts as attributes or as items; whatever a callback adds, later ones see.

    train_network, loss_fn, optimizer, train_dataset, batch_num (batches in an epoch; None where the loader has no
    length), epoch_num (epochs asked for), cur_epoch_num and cur_step_num (both from 1; steps go on over epochs),
    net_outputs (the loss of this step, detached), outputs (what the network gave), mode ("train" or "eval"), metrics
    (the latest results of an evaluation), list_callback.
    """

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            there = ", ".join(sorted(self)) or "nothing"
            raise AttributeError(
                f"the run context has no {name!r}; it has {there}, and what callbacks have added"
            ) from None

    def __setattr__(self, name: str, value: Any) -> None:
        self[name] = value

    def __delattr__(self, name: str) -> None:
        del self[name]


class RunContext:
    """Given to every method of a callback."""

    def __init__(self, arguments: Arguments | None = None) -> None:
        self._arguments = arguments if arguments is not None else Arguments()
        self._stop = False

    def original_args(self) -> Arguments:
        return self._arguments

    def request_stop(self) -> None:
        """Ends the training after this step: `step_end` of the other callbacks, `epoch_end` and `end` still come."""
        self._stop = True

    def get_stop_requested(self) -> bool:
        return self._stop


def arguments(**known: Any) -> Arguments:
    """With every fact that callbacks may count on, known or not."""
    return Arguments(
        {
            "mode": "train",
            "train_network": None,
            "loss_fn": None,
            "optimizer": None,
            "train_dataset": None,
            "batch_num": None,
            "epoch_num": 1,
            "cur_epoch_num": 0,
            "cur_step_num": 0,
            "net_outputs": None,
            "outputs": None,
            "metrics": {},
            "list_callback": (),
            **known,
        }
    )
