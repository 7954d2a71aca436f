"""A run of MindSpore in PyTorch's words, so that it can be compared with a run of PyTorch as any two runs are.

Types of modules, names of parameters, settings and optimizers are translated; what only one of the frameworks says of itself is
left out. `judge` brings the names of a verdict back.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from tensonde.compare.side import Side
from tensonde.model.trace import CallRecord, OpRecord, TensorFact, Trace

TYPES = {
    "Dense": "Linear", "SequentialCell": "Sequential", "CellList": "ModuleList", "CellDict": "ModuleDict",
    "Conv1dTranspose": "ConvTranspose1d", "Conv2dTranspose": "ConvTranspose2d", "Conv3dTranspose": "ConvTranspose3d",
    "SeLU": "SELU", "HSwish": "Hardswish", "HSigmoid": "Hardsigmoid", "EmbeddingLookup": "Embedding",
    "SoftmaxCrossEntropyWithLogits": "CrossEntropyLoss", "FastGelu": "GELU",
}  # fmt: skip
OPTIMIZERS = {"Momentum": "SGD", "RMSProp": "RMSprop", "AdaMax": "Adamax"}
_WEIGHTS = {
    "gamma": "weight", "beta": "bias", "moving_mean": "running_mean", "moving_variance": "running_var",
    "embedding_table": "weight",
}  # fmt: skip
_GROUP = ("lr", "weight_decay", "momentum", "nesterov", "betas", "eps", "dampening", "alpha", "parameters")
_ARGUMENTS = frozenset(
    {"dim", "p", "eps", "reduction", "label_smoothing", "ignore_index", "approximate", "negative_slope"}
)
_CONVOLUTION = ("kernel_size", "stride", "padding", "dilation", "groups", "in_channels", "out_channels")
_POOLING = ("kernel_size", "stride", "padding")
_SAID_BY_BOTH: dict[str, tuple[str, ...]] = {
    "Linear": ("in_features", "out_features"),
    "Conv1d": _CONVOLUTION, "Conv2d": _CONVOLUTION, "Conv3d": _CONVOLUTION,
    "ConvTranspose1d": _CONVOLUTION, "ConvTranspose2d": _CONVOLUTION, "ConvTranspose3d": _CONVOLUTION,
    "BatchNorm1d": ("eps", "momentum", "num_features"), "BatchNorm2d": ("eps", "momentum", "num_features"),
    "BatchNorm3d": ("eps", "momentum", "num_features"), "LayerNorm": ("eps",), "GroupNorm": ("eps", "num_groups"),
    "Dropout": ("p",), "MaxPool1d": _POOLING, "MaxPool2d": _POOLING, "AvgPool2d": _POOLING, "GELU": ("approximate",),
    "LeakyReLU": ("negative_slope",), "Embedding": ("num_embeddings", "embedding_dim"),
    "CrossEntropyLoss": ("reduction", "label_smoothing", "ignore_index"), "MSELoss": ("reduction",),
    "L1Loss": ("reduction",), "NLLLoss": ("reduction", "ignore_index"), "BCELoss": ("reduction",),
    "BCEWithLogitsLoss": ("reduction",), "LSTM": ("hidden_size", "num_layers", "dropout", "bidirectional", "batch_first"),
    "GRU": ("hidden_size", "num_layers", "dropout", "bidirectional", "batch_first"),
    "MultiheadAttention": ("num_heads", "dropout", "batch_first"),
}  # fmt: skip
_MODAL = ("BatchNorm", "InstanceNorm", "Dropout", "LSTM", "GRU", "RNN", "Attention", "Transformer")
"""Types that have a mode. A cell is in evaluation mode until `set_train`, also those that compute the same in both."""


def is_foreign(a: Side, b: Side) -> bool:
    return bool(a.framework and b.framework and a.framework != b.framework)


def common(a: Side, b: Side) -> tuple[Side, Side]:
    """Both in PyTorch's words, and with what both frameworks say."""
    mine, theirs = (_translated(side) if side.framework == "mindspore" else side for side in (a, b))
    one, other = _reduced(mine), _reduced(theirs)
    _match_optimizers(one.facts, other.facts)
    return one, other


def epsilon_of_adam(a: Side, b: Side) -> float:
    """MindSpore's nn.Adam adds epsilon before it corrects the bias, PyTorch's after that. 0: neither is compared with the other."""
    found = []
    for side in (a, b):
        known = side.facts.get("optimizers") or [{}]
        groups = known[0].get("groups") or [{}]
        if not is_foreign(a, b) or known[0].get("type") != "Adam":
            return 0.0
        found.append(float(groups[0].get("eps") or 0.0))
    return max(found)


# -- names -----------------------------------------------------------------------------------------


def _translated(side: Side) -> Side:
    native: dict[str, str] = {}

    def name(own: str) -> str:
        """Of a parameter or buffer, with or without a role behind it."""
        path, colon, role = own.partition(":")
        owner, dot, attribute = path.rpartition(".")
        word = _WEIGHTS.get(attribute)
        if word is None or (owner and not _has(side, owner)):
            return own
        native[f"{owner}{dot}{word}"] = path
        return f"{owner}{dot}{word}{colon}{role}"

    facts = dict(side.facts)
    facts["parameters"] = {name(own): fact for own, fact in side.parameters.items()}
    facts["modules"] = {own: _module(fact) for own, fact in side.modules.items()}
    facts["optimizers"] = [
        {**one, "type": OPTIMIZERS.get(one.get("type", ""), one.get("type"))}
        for one in side.facts.get("optimizers") or []
    ]
    traces = {step: _trace(trace, name) for step, trace in side.traces.items()}
    gradients = {name(own): norms for own, norms in side.gradients.items()}
    return replace(side, facts=facts, traces=traces, gradients=gradients, native=native)


def _has(side: Side, owner: str) -> bool:
    """Whether a cell of the library holds it: `gamma` of a cell of the user's own is no batch norm's."""
    return bool(side.modules.get(owner, {}).get("library", True))


def _trace(trace: Trace, name: Callable[[str], str]) -> Trace:
    def fact(one: TensorFact) -> TensorFact:
        return replace(one, name=name(one.name)) if one.name else one

    def facts(some: tuple[TensorFact, ...]) -> tuple[TensorFact, ...]:
        return tuple(map(fact, some))

    ops = tuple(
        replace(
            op,
            inputs=facts(op.inputs),
            outputs=facts(op.outputs),
            module_type=TYPES.get(op.module_type, op.module_type),
        )
        for op in trace.ops
    )
    calls = tuple(
        replace(
            c, inputs=facts(c.inputs), outputs=facts(c.outputs), state=facts(c.state), type=TYPES.get(c.type, c.type)
        )
        for c in trace.calls
    )
    weights = tuple(replace(weight, name=name(weight.name)) for weight in trace.weights)
    return replace(trace, ops=ops, calls=calls, weights=weights)


# -- settings --------------------------------------------------------------------------------------


def _module(fact: Mapping[str, Any]) -> dict[str, Any]:
    kind = TYPES.get(fact.get("type", ""), fact.get("type", ""))
    if not fact.get("library"):
        return dict(fact)
    settings: dict[str, Any] = dict(fact.get("settings") or {})
    settings["groups"] = settings.pop("group", 1)
    if kind == "Dropout" and settings.get("p") is None:
        settings["p"] = 1 - settings.get("keep_prob", 1)
    if kind == "GELU":
        settings["approximate"] = "tanh" if settings.get("approximate", True) in (True, "tanh") else "none"
    if kind == "CrossEntropyLoss":
        settings.setdefault("label_smoothing", 0.0)
        settings.setdefault("ignore_index", -100)
    if "pad_mode" in settings:
        settings |= _padding(kind, settings)
    return {**fact, "type": kind, "settings": settings}


def _padding(kind: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Windows as PyTorch says them. A `pad_mode` of "same" is a number of theirs where that is the same on both ends."""
    width = 1 if kind.endswith("1d") else 3 if kind.endswith("3d") else 2
    found: dict[str, Any] = {
        key: _wide(settings[key], width) for key in ("kernel_size", "stride", "dilation") if key in settings
    }
    mode = str(settings["pad_mode"]).lower()
    if mode == "valid":
        found["padding"] = [0] * width
    elif mode == "pad":
        padding = settings.get("padding", 0)
        if isinstance(padding, list) and len(padding) == 2 * width:
            padding = padding[::2] if padding[::2] == padding[1::2] else padding
        found["padding"] = _wide(padding, width)
    else:
        reach = [d * (k - 1) for k, d in zip(found["kernel_size"], found.get("dilation", [1] * width), strict=False)]
        even = all(r % 2 == 0 for r in reach) and all(s == 1 for s in found.get("stride", [2]))
        found["padding"] = [r // 2 for r in reach] if even else "same"
    return found


def _wide(value: Any, width: int) -> list[Any]:
    """One size for each dimension; MindSpore's Conv1d has two."""
    return list(value)[-width:] if isinstance(value, list | tuple) else [value] * width


def _reduced(side: Side) -> Side:
    """Without what only one of the frameworks says."""
    gone = ("random", "threads", "dtype", "loaders", "clipping", "schedulers")
    facts = {key: value for key, value in side.facts.items() if key not in gone}
    facts["modules"] = {name: _said(fact) for name, fact in side.modules.items()}
    keys = ("shape", "requires_grad", "optimizers", "owner", "made", "filled")
    facts["parameters"] = {
        name: {key: fact[key] for key in keys if key in fact} for name, fact in side.parameters.items()
    }
    traces = {step: _plain(trace) for step, trace in side.traces.items()}
    return replace(side, facts=facts, traces=traces)


def _said(fact: Mapping[str, Any]) -> dict[str, Any]:
    keys = _SAID_BY_BOTH.get(fact.get("type", ""), ()) if fact.get("library") else ()
    settings = {key: value for key, value in (fact.get("settings") or {}).items() if key in keys}
    width = 1 if str(fact.get("type", "")).endswith("1d") else 3 if str(fact.get("type", "")).endswith("3d") else 2
    for key in ("kernel_size", "stride", "padding", "dilation"):
        if key in settings and not isinstance(settings[key], str):
            settings[key] = _wide(settings[key], width)
    return {**fact, "settings": {key: _rounded(value) for key, value in settings.items()}}


def _plain(trace: Trace) -> Trace:
    """Sizes of 1 do not count, and labels may have any integer dtype."""

    def fact(one: TensorFact) -> TensorFact:
        dtype = "int64" if one.dtype.startswith(("int", "uint")) else one.dtype
        return replace(one, shape=_squeezed(one.shape), dtype=dtype)

    def op(one: OpRecord) -> OpRecord:
        arguments = {key: _rounded(value) for key, value in one.arguments.items() if key in _ARGUMENTS}
        inputs, outputs = tuple(map(fact, one.inputs)), tuple(map(fact, one.outputs))
        return replace(one, arguments={**arguments, "partial": True}, inputs=inputs, outputs=outputs)

    def call(one: CallRecord) -> CallRecord:
        mode = one.training if any(part in one.type for part in _MODAL) else None
        inputs, outputs = tuple(map(fact, one.inputs)), tuple(map(fact, one.outputs))
        return replace(one, inputs=inputs, outputs=outputs, state=tuple(map(fact, one.state)), training=mode)

    weights = tuple(replace(weight, shape=_squeezed(weight.shape)) for weight in trace.weights)
    return replace(trace, ops=tuple(map(op, trace.ops)), calls=tuple(map(call, trace.calls)), weights=weights)


def _squeezed(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(size for size in shape if size != 1)


def _match_optimizers(a: Mapping[str, Any], b: Mapping[str, Any]) -> None:
    """In both groups of a pair, the settings that both have."""
    for mine, theirs in zip(a.get("optimizers") or [], b.get("optimizers") or [], strict=False):
        groups, others = mine.get("groups") or [], theirs.get("groups") or []
        for group in (*groups, *others):
            group.update({key: _rounded(value) for key, value in group.items()})
        for one, other in zip(groups, others, strict=False):
            both = {key for key in _GROUP if key in one and key in other}
            for group in (one, other):
                kept = {key: value for key, value in group.items() if key in both}
                group.clear()
                group.update(kept)


def _rounded(value: Any) -> Any:
    """To what float32 holds: MindSpore keeps its settings in it."""
    if isinstance(value, float):
        return float(f"{value:.6g}")
    return [_rounded(one) for one in value] if isinstance(value, list | tuple) else value
