"""Errors around a training: tensors made of lists, data sets, layers and schedules that are built, numbers that leave torch, checkpoints."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from tensonde.diagnose.exceptions import Cause, Event, family, message

_Words = Callable[[re.Match[str], Mapping[str, Any]], tuple[str, str]]


def _told(event: Event, table: list[tuple[str, _Words]]) -> Cause | None:
    """The title and the advice of the first message that fits."""
    for pattern, words in table:
        found = re.search(pattern, f"{event.get('type')}: {message(event)}", re.DOTALL)
        if found:
            title, advice = words(found, event.get("arguments") or {})
            return Cause(title=title, advice=advice, confidence=0.9)
    return None


@family("tensor-of-lists")
def tensor_of_lists(event: Event) -> Cause | None:
    """`torch.tensor` and `torch.from_numpy` need numbers in rows of equal length. Pad rows of different lengths;
    convert text and Python objects to numbers first.
    """
    return _told(
        event,
        [
            (
                r"expected sequence of length (\d+) at dim (\d+) \(got (\d+)\)",
                lambda m, a: (
                    f"the rows have different lengths: {m[1]} and {m[3]}",
                    "Pad them to one length: torch.nn.utils.rnn.pad_sequence([torch.tensor(row) for row in rows], batch_first=True), "
                    "and keep the lengths for a mask.",
                ),
            ),
            (
                r"too many dimensions 'str'|invalid data type 'str'",
                lambda m, a: (
                    "a tensor is made from text",
                    "Convert the text to numbers first: float(cell) for a table (without its header), a vocabulary for words.",
                ),
            ),
            (
                r"Could not infer dtype of (\w+)",
                lambda m, a: (
                    f"a tensor is made from {m[1]} objects",
                    "Make it from numbers. "
                    + (
                        "An item is None: drop it, or give it a value."
                        if m[1] == "NoneType"
                        else "Take the numbers out of each object first."
                    ),
                ),
            ),
            (
                r"can't convert np\.ndarray of type numpy\.object_",
                lambda m, a: (
                    "the array holds Python objects, not numbers",
                    "Its columns have several types, or its rows several lengths: choose the columns of numbers and use "
                    ".astype(np.float32), or pad the rows.",
                ),
            ),
            (
                r"only one element tensors can be converted to Python scalars",
                lambda m, a: ("a tensor is made from a list of tensors", "Use torch.stack(list), or torch.cat(list)."),
            ),
        ],
    )


@family("tensor-to-numpy")
def tensor_to_numpy(event: Event) -> Cause | None:
    """A tensor is converted to numpy although it has a graph, is on a device, or has a dtype that numpy does not
    have.
    """
    return _told(
        event,
        [
            (
                r"Can't call numpy\(\) on Tensor that requires grad",
                lambda m, a: (
                    "a tensor with a graph is converted to an array",
                    "Write .detach().cpu().numpy(), or compute it under torch.no_grad() if you need no gradient.",
                ),
            ),
            (
                r"unsupported ScalarType (\w+)",
                lambda m, a: (f"numpy has no {m[1].lower()}", "Write .float().numpy()."),
            ),
            (
                r"can't convert (\S+) device type tensor to numpy",
                lambda m, a: (
                    f"a tensor on {m[1]} is converted to an array",
                    "Copy it to the host first: .detach().cpu().numpy().",
                ),
            ),
        ],
    )


@family("data-set-sizes")
def data_set_sizes(event: Event) -> Cause | None:
    """The parts of a data set do not fit each other: tensors have different numbers of rows, or the lengths of a
    split do not add up.
    """
    return _told(
        event,
        [
            (
                r"AssertionError: Size mismatch between tensors",
                lambda m, a: (
                    "the tensors of a TensorDataset have different numbers of rows"
                    + "".join(f"; {name} {fact['shape']}" for name, fact in (event.get("inputs") or {}).items()),
                    "Every tensor needs one row per sample: look for a filter or shift that only one of them went through.",
                ),
            ),
            (
                r"Sum of input lengths does not equal the length",
                lambda m, a: (
                    "the lengths of random_split do not add up to the data set's",
                    "Give fractions (random_split(data, [0.8, 0.2])), or use the rest as the last length: len(data) - first.",
                ),
            ),
            (
                r"num_samples should be a positive integer value, but got num_samples=0",
                lambda m, a: (
                    "the data set is empty",
                    "Look at the path, pattern or filter that chooses its samples: it leaves none.",
                ),
            ),
        ],
    )


@family("layer-arguments")
def layer_arguments(event: Event) -> Cause | None:
    """A layer or module is built in a way that it does not allow."""
    return _told(
        event,
        [
            (
                r"cannot assign \w+ before Module\.__init__\(\) call",
                lambda m, a: (
                    "a layer is assigned before nn.Module is initialized",
                    "Call super().__init__() in the first line of __init__.",
                ),
            ),
            (
                r"embed_dim must be divisible by num_heads",
                lambda m, a: (
                    "the width of the attention is not a multiple of its number of heads"
                    + "".join(f"; {name} = {value}" for name, value in list(a.items())[:3]),
                    "Choose a width that the number of heads divides, or a different number of heads.",
                ),
            ),
            (
                r"(\w+) must be divisible by (\w+)",
                lambda m, a: (
                    f"{m[1]} is not a multiple of {m[2]}"
                    + "".join(f"; {name} = {value}" for name, value in list(a.items())[:4]),
                    f"Choose {m[1]} as a multiple of {m[2]}.",
                ),
            ),
        ],
    )


@family("optimizer-arguments")
def optimizer_arguments(event: Event) -> Cause | None:
    """An optimizer or a schedule is built or stepped with the wrong arguments: the model instead of its parameters, a
    rate that a configuration file has as text, a schedule that ends before the training does.
    """
    if (
        re.search(r"params argument given to the optimizer|object is not iterable", message(event))
        and event.get("class") == "optimizer"
    ):
        return Cause(
            title="the optimizer gets something other than parameters",
            advice="Give it model.parameters(), or tensors in a list.",
            confidence=0.93,
        )
    return _told(
        event,
        [
            (
                r"TypeError: '[<>]=?' not supported between instances of '(float|int|str)' and '(float|int|str)'",
                lambda m, a: (
                    "a number is text" + "".join(f": {name} = {v!r}" for name, v in a.items() if isinstance(v, str)),
                    "Convert it to a number where it is read: float(value). YAML reads 1e-3 as text; 1.0e-3 is a number.",
                ),
            ),
            (
                r"You must define either total_steps OR \(epochs AND steps_per_epoch\)",
                lambda m, a: (
                    "OneCycleLR does not know how many steps there are",
                    "Give it total_steps=epochs * len(loader), or both epochs= and steps_per_epoch=len(loader).",
                ),
            ),
            (
                r"Tried to step (\d+) times\. The (?:specified number of total|total number of) steps is (\d+)",
                lambda m, a: (
                    f"the schedule has {m[2]} steps and is stepped a {m[1]}th time",
                    "Make it as long as the training: total_steps=epochs * len(loader), and call scheduler.step() once per batch only if "
                    "its steps are batches.",
                ),
            ),
        ],
    )


@family("loading-refused")
def loading_refused(event: Event) -> Cause | None:
    """A checkpoint cannot be read: it holds objects that are not plain tensors, or tensors of a device that does not
    exist here, or it is not a checkpoint at all.
    """
    return _told(
        event,
        [
            (
                r"Weights only load failed",
                lambda m, a: (
                    "the checkpoint holds Python objects beside its tensors, which torch.load refuses since 2.6",
                    "Save plain values only (state_dict(), numbers, vars(config)). A file that you trust can be read with "
                    "torch.load(path, weights_only=False), or its classes allowed with torch.serialization.add_safe_globals.",
                ),
            ),
            (
                r"Attempting to deserialize object on (?:a )?(\w+)",
                lambda m, a: (
                    f"the checkpoint's tensors are on {m[1]}, which this machine does not have",
                    'Load it with torch.load(path, map_location="cpu").',
                ),
            ),
            (
                r"PytorchStreamReader failed|failed finding central directory|invalid load key",
                lambda m, a: (
                    "the checkpoint is truncated, or is not a checkpoint",
                    "Save to another name and rename it when it is complete; a download may have left an error page.",
                ),
            ),
        ],
    )


@family("unsafe-in-autocast")
def unsafe_in_autocast(event: Event) -> Cause | None:
    """Binary cross entropy on probabilities is refused under autocast, because half precision is too coarse for the
    logarithm.
    """
    if "unsafe to autocast" not in message(event):
        return None
    return Cause(
        title="binary_cross_entropy is called under autocast, where probabilities are too coarse",
        advice="Leave the sigmoid out of the model and use F.binary_cross_entropy_with_logits, or BCEWithLogitsLoss.",
        confidence=0.95,
    )
