"""Exceptions about shapes: what was expected, what came, and where it got that shape."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from tensonde.diagnose.exceptions import Cause, Event, code, family, innermost, message


@family("batch-size-changed")
def batch_size_changed(event: Event) -> Cause | None:
    """Two tensors of one batch have different numbers of rows, and one of them is the output of a module whose input
    had the right number. Tensonde reruns that module's forward and finds the op between input and output that changed
    the number of rows: usually `view(-1, N)` with an N that does not fit, which silently moves surplus elements into
    the batch dimension. Silent if the forward keeps the number of rows, because then the data disagree.
    """
    batch = event.get("batch")
    if not batch or not batch.get("line"):
        return None
    ratio = f"{batch['batch']} samples become {batch['rows']} rows"
    before, after = batch["from"], batch["to"]
    per_sample = 1
    for n in before[1:]:
        per_sample *= n
    advice = f"Keep the batch dimension: `{batch['op']}` should give {batch['batch']} rows"
    if before and before[0] == batch["batch"] and len(after) == 2 and after[1] != per_sample:
        advice += f" of {per_sample} values (e.g. x.flatten(1)),"
        advice += f" and the layer after it must take {per_sample}, not {after[1]}"
    return Cause(
        title=f"`{batch['op']}` in {batch.get('module') or 'the forward'} changes the batch size: {ratio}",
        advice=f"{advice}.",
        line=batch["line"],
        module=batch.get("module"),
        op=batch["op"],
        evidence={
            "op.in": before, "op.out": after, "batch": batch["batch"], "rows": batch["rows"],
            "how": "found by running the root's forward again after the exception",
        },
        confidence=0.95,
    )  # fmt: skip


_CLASSES = re.compile(r"Expected target size \[([\d, ]+)\], got \[([\d, ]+)\]")


@family("class-dimension")
def class_dimension(event: Event) -> Cause | None:
    """cross_entropy expects the classes in dimension 1. The usual mistake is an output of shape [batch, time,
    classes] with labels [batch, time]; the two shapes show it.
    """
    inputs: Mapping[str, Any] = event.get("inputs") or {}
    if not _CLASSES.search(message(event)) or "input" not in inputs or "target" not in inputs:
        return None
    given, target = inputs["input"]["shape"], inputs["target"]["shape"]
    last = len(given) > 2 and given[:-1] == target
    return Cause(
        title=f"{event.get('op')} takes the classes in dimension 1, but is given input {given} for labels {target}",
        advice="Give it output.transpose(1, -1), or output.flatten(0, -2) with labels.flatten()."
        if last
        else "The labels must have the input's shape without dimension 1.",
        confidence=0.95 if last else 0.7,
    )


_HIDDEN = re.compile(r"Expected hidden(?:\[\d\])? size \((\d+), (\d+), (\d+)\), got \[(\d+), (\d+), (\d+)\]")


@family("state-batch-size")
def state_batch_size(event: Event) -> Cause | None:
    """The state passed to a recurrent layer was made for a different batch size than the input has: usually a
    constant, which does not fit the last, smaller batch of an epoch. The finding names the line that makes the state.
    """
    found = _HIDDEN.search(message(event))
    if not found or found[2] == found[5]:
        return None
    inputs: Mapping[str, Any] = event.get("inputs") or {}
    states = [fact for name, fact in inputs.items() if fact["shape"] == [int(found[k]) for k in (4, 5, 6)]]
    line = next((fact.get("line") or (fact.get("origin") or {}).get("line") for fact in states), None)
    return Cause(
        title=f"the state has a batch of {found[5]}, the input of {innermost(event).get('name', 'the layer')} one "
        f"of {found[2]}",
        advice="Create the state with the input's batch size (x.size(0)), or leave it out; drop_last=True only hides this in the last batch.",
        line=line,
        evidence={"state.batch": int(found[5]), "input.batch": int(found[2])},
        confidence=0.9,
    )


_SMALL = re.compile(
    r"Output size is too small|Kernel size can't be greater than actual input size|is too small for|smaller than kernel"
)


@family("feature-map-too-small")
def feature_map_too_small(event: Event) -> Cause | None:
    """A convolution or pooling gets a feature map smaller than its kernel: there are too many strides and poolings
    before it for the size of the input.
    """
    layer = innermost(event)
    if not _SMALL.search(message(event)) or not layer.get("inputs"):
        return None
    return Cause(
        title=f"{layer['name']} ({layer['type']}) is given a map of {layer['inputs'][0]['shape']}, smaller than its "
        "kernel",
        advice="Use larger inputs, padding, or fewer strides and poolings before it.",
        line=layer.get("made"),
        module=layer["name"],
        confidence=0.85,
    )


@family("view-of-strided")
def view_of_strided(event: Event) -> Cause | None:
    """view cannot join dimensions that are not adjacent in memory, as after a transpose."""
    if "view size is not compatible with input tensor's size and stride" not in message(event):
        return None
    return Cause(
        title="`view` of a tensor whose dimensions were exchanged (transpose, permute)",
        advice="Use reshape, or contiguous() before view; and check that the order of the dimensions is what you want.",
        confidence=0.9,
    )


_DIMENSION = re.compile(
    r"Expected (\d)D \(unbatched\) or (\d)D \(batched\) input to (\w+), but got input of size: (\[[^\]]*\])"
)


@family("layer-input-size")
def layer_input_size(event: Event) -> Cause | None:
    """A layer was built for a different size than it gets: in_features of a linear layer, in_channels of a
    convolution, the features of a normalization, input_size of a recurrent layer. The layer's own configuration is
    compared with the shape of the tensor that reached it, so the finding can say which number is which; it names the
    line that builds the layer.
    """
    layer = innermost(event)
    kind, configuration = str(layer.get("type", "")), layer.get("configuration") or {}
    given = (layer.get("inputs") or [None])[0]
    if given is None or event.get("type") not in ("RuntimeError", "ValueError", "AssertionError"):
        return None
    if _DIMENSION.search(message(event)):
        return None  # a dimension is missing: which of those left is which cannot be said
    shape = given["shape"]
    name, expected, actual = _compare(kind, configuration, shape)
    if name is None or expected == actual:
        return None
    made = layer.get("made")
    whole = _samples_split(event, name, expected, shape)
    if whole is not None:
        return Cause(
            title=f"A reshape mixes samples: {whole} enter, {layer['name']} ({kind}) is given {shape[0]} rows of {actual} "
            f"instead of {whole} of {expected}",
            advice="Keep the first dimension when flattening: x.reshape(x.shape[0], -1), or flatten(1).",
            line=event.get("fed_by") or event.get("source"),
            module=layer["name"],
            evidence={f"layer.{name}": expected, "layer.input": shape, "samples": whole},
            confidence=0.93,
        )
    return Cause(
        title=f"{layer['name']} ({kind}) takes {expected} ({name}), but is given {actual}: input {shape}",
        advice="The channels are last: move them before height and width, with x.permute(0, 3, 1, 2) or a ToTensor transform."
        if _channels_last(name, expected, shape)
        else f"Make {name} {actual} where the layer is built, or change its input; with flattened features, the number depends on the size of the input.",
        line=made or event.get("source"),
        module=layer["name"],
        evidence={f"layer.{name}": expected, "layer.input": shape, "given": actual},
        confidence=0.9,
    )


def _samples_split(event: Event, name: str, expected: Any, shape: list[int]) -> int | None:
    """How many samples come in, where a linear layer is given exactly their features, in another number of rows."""
    inputs = (event.get("modules") or [{}])[0].get("inputs") or []
    batch = inputs[0]["shape"][0] if inputs and inputs[0]["shape"] else None
    if name != "in_features" or len(shape) != 2 or not batch or batch == shape[0]:
        return None
    return batch if shape[0] * shape[1] == batch * expected else None


def _channels_last(name: str, expected: Any, shape: list[int]) -> bool:
    """Images as (batch, height, width, channels)."""
    return name == "in_channels" and len(shape) == 4 and shape[-1] == expected and shape[1] > 4


def _compare(kind: str, configuration: Mapping[str, Any], shape: list[int]) -> tuple[str | None, Any, Any]:
    if not shape:
        return None, None, None
    if "in_features" in configuration:
        return "in_features", configuration["in_features"], shape[-1]
    if "in_channels" in configuration:
        unbatched = int(kind[4:5]) + 1 if kind[4:5].isdigit() else 0
        channels = shape[0] if len(shape) == unbatched else shape[1] if len(shape) > 1 else None
        return "in_channels", configuration["in_channels"], channels
    if "num_features" in configuration and len(shape) > 1:
        return "num_features", configuration["num_features"], shape[1]
    if "normalized_shape" in configuration:
        expected = list(configuration["normalized_shape"])
        return "normalized_shape", expected, shape[-len(expected) :]
    if "input_size" in configuration:
        return "input_size", configuration["input_size"], shape[-1]
    if "embed_dim" in configuration and "num_heads" in configuration:
        return "embed_dim", configuration["embed_dim"], shape[-1]
    return None, None, None


_PAIR = re.compile(
    r"The size of tensor a \((\d+)\) must match the size of tensor b \((\d+)\) at non-singleton dimension (\d+)"
)
_SHAPES = re.compile(r"input\.shape = \[([\d, ]+)\] and other\.shape = \[([\d, ]+)\]")
_MATMUL = re.compile(r"shapes cannot be multiplied \((\d+)x(\d+) and (\d+)x(\d+)\)")
_COLUMNS = re.compile(r"'x1_col': (\d+) and 'x2_row': (\d+)")
_TARGET = re.compile(r"target size \(torch\.Size\((\[[^)]*\])\)\).*input size \(torch\.Size\((\[[^)]*\])\)\)")
_CAT = re.compile(
    r"Sizes of tensors must match except in dimension (\d+)\. "
    r"Expected size (\d+) but got size (\d+) for tensor number (\d+)"
)
_VIEW = re.compile(r"shape '\[([^\]]*)\]' is invalid for input of size (\d+)")


@family("shape-mismatch")
def shape_mismatch(event: Event) -> Cause | None:
    """The tensors of one op do not fit each other: element-wise ops, matmul, cat, view, a loss. The message says
    which dimension; the frame's variables say which tensor is which and where it comes from. If tensors are joined,
    the finding names the line that made the first one that differs from those before it.
    """
    text = message(event)
    inputs: Mapping[str, Any] = event.get("inputs") or {}
    names = " and ".join(f"{name} {fact['shape']}" for name, fact in inputs.items())
    of = f": {names}" if names else ""
    op = event.get("op") or "the op"
    if (pair := _pair(text)) is not None:
        dimension, one, other = pair
        return Cause(
            title=f"`{op}` of tensors that differ in dimension {dimension}, {one} against {other}{of}",
            advice="Give both the same shape where they are made, or add the dimension along which one should be repeated.",
            evidence={"dimension": dimension},
            line=_maker(event, inputs),
        )
    if found := _MATMUL.search(text):
        return Cause(
            title=f"`{op}` multiplies {found[1]}x{found[2]} by {found[3]}x{found[4]}: {found[2]} and {found[3]} "
            f"should be equal{of}",
            advice="Transpose one of them, or correct the size of the weight.",
        )
    if found := _COLUMNS.search(text):
        return Cause(
            title=f"`{op}` multiplies a matrix with {found[1]} columns by one with {found[2]} rows{of}",
            advice="Build the layer for the number of features that reaches it, or transpose one of the two.",
            evidence={"columns": int(found[1]), "rows": int(found[2])},
        )
    if found := _TARGET.search(text):
        squeeze = _only_ones(found[1], found[2])
        return Cause(
            title=f"the loss is given a target of shape {found[1]} and an input of shape {found[2]}",
            advice="Squeeze the input's last dimension, or unsqueeze the target."
            if squeeze
            else "Give both the same shape.",
            confidence=0.9,
        )
    if found := _CAT.search(text):
        return Cause(
            title=f"tensor number {found[4]} of `{op}` has {found[3]} where the others have {found[2]}, in a dimension other than {found[1]}",
            advice="All sizes except that of the joined dimension must be equal: check strides, padding and cropping of the joined tensors.",
            line=_joined(inputs, int(found[4])),
            evidence={"dimension": int(found[1]), "expected": int(found[2]), "given": int(found[3])},
        )
    if found := _VIEW.search(text):
        return Cause(
            title=f"`{op}` to [{found[1]}] of {found[2]} values{of}",
            advice="The sizes must multiply to the number of values: take the batch size from the tensor "
            "(x.size(0)), not from a constant, "
            "because the last batch may be smaller.",
            evidence={"values": int(found[2])},
        )
    if "batch_size" in text or "to match target" in text:
        return Cause(
            title=f"input and target of the loss differ in the number of samples{of}",
            advice="Both must come from the same batch; check what reshapes them on the way.",
        )
    return None


def _pair(text: str) -> tuple[int, int, int] | None:
    """The dimension in which two tensors differ, and both sizes, as PyTorch says it or as MindSpore does."""
    if found := _PAIR.search(text):
        return int(found[3]), int(found[1]), int(found[2])
    if found := _SHAPES.search(text):
        shapes = [[int(size) for size in re.findall(r"\d+", part)] for part in found.groups()]
        rank = max(map(len, shapes))
        sizes = zip(*([1] * (rank - len(shape)) + shape for shape in shapes), strict=True)
        return next(((k, a, b) for k, (a, b) in enumerate(sizes) if a != b and 1 not in (a, b)), None)
    return None


def _only_ones(a: str, b: str) -> bool:
    strip = [[n for n in re.findall(r"\d+", text) if n != "1"] for text in (a, b)]
    return strip[0] == strip[1]


def _joined(inputs: Mapping[str, Any], number: int) -> Mapping[str, Any] | None:
    """Where the tensor that differs is made, if it is a variable of the user's."""
    facts = list(inputs.values())
    fact = facts[number] if number < len(facts) else {}
    line: Mapping[str, Any] | None = (fact.get("origin") or {}).get("line")
    return line


def _maker(event: Event, inputs: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """A tensor that an object keeps has the shape that the line setting it gave; otherwise the raising line says it
    best."""
    kept = [fact["line"] for fact in inputs.values() if fact.get("attribute") and fact.get("line")]
    return kept[0] if len(kept) == 1 else None


@family("input-dimensions")
def input_dimensions(event: Event) -> Cause | None:
    """A layer expects a certain number of dimensions and gets one more or less: usually the batch or the channel
    dimension is missing.
    """
    text = message(event)
    layer = innermost(event)
    if found := _DIMENSION.search(text):
        return Cause(
            title=f"{layer.get('name', found[3])} takes {found[2]} dimensions (with the batch), but is given "
            f"{found[4]}",
            advice="Add the missing dimension (x.unsqueeze(1) for one channel, x.unsqueeze(0) for a batch of one) "
            "or drop the extra one.",
            evidence={"layer.input": found[4]},
            confidence=0.85,
        )
    if "dimension" in text and ("expected" in text.lower()) and layer.get("inputs"):
        return Cause(
            title=f"{layer['name']} ({layer['type']}) is given a tensor with the wrong number of dimensions: "
            f"{layer['inputs'][0]['shape']}",
            advice=f"See the documentation of {layer['type']} for the shape that it takes; the tensor comes from "
            f"{code(event.get('source'))}.",
            confidence=0.6,
        )
    return None
