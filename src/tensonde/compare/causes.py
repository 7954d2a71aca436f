"""What a difference between a PyTorch original and its MindSpore port comes from: conventions in which the two frameworks differ."""

from __future__ import annotations

from tensonde.compare.verdict import Divergence, Setting, Verdict
from tensonde.model.site import Address

_MOMENTUM = (
    "The momentum of a batch norm is the share of the old statistics in MindSpore and that of the new ones in PyTorch: "
    "PyTorch's 0.1 is momentum=0.9 in MindSpore."
)
_PADDING = (
    "MindSpore's Conv2d pads to the same size unless pad_mode says otherwise, PyTorch's does not pad: "
    "write pad_mode='valid', or pad_mode='pad' with the padding of the original."
)
_BY_SETTING = {
    ("BatchNorm", "momentum"): _MOMENTUM,
    ("Conv", "padding"): _PADDING,
    ("MaxPool", "padding"): "MindSpore's pooling knows pad_mode; padding counts only with pad_mode='pad'.",
    (
        "LayerNorm",
        "eps",
    ): "The epsilon of LayerNorm is 1e-7 in MindSpore and 1e-5 in PyTorch unless the script says it.",
    ("BatchNorm", "eps"): "Write the epsilon in both: a port from another framework may have 1e-3 or 1e-4.",
    (
        "GELU",
        "approximate",
    ): "GELU is the tanh approximation in MindSpore and exact in PyTorch unless approximate says it.",
    (
        "LeakyReLU",
        "negative_slope",
    ): "The slope of LeakyReLU is 0.2 in MindSpore and 0.01 in PyTorch unless the script says it.",
    (
        "Dropout",
        "p",
    ): "PyTorch's number and MindSpore's p are the share that is dropped; keep_prob is the share that is kept.",
    ("CrossEntropyLoss", "reduction"): (
        "SoftmaxCrossEntropyWithLogits does not average unless reduction='mean' is given; PyTorch's losses do."
    ),
    (
        "Loss",
        "reduction",
    ): "One loss is averaged over the batch, the other is not: gradients differ by the size of the batch.",
}
_BIAS = "MindSpore's convolutions have no bias unless has_bias=True, PyTorch's have one unless bias=False."


def cause(verdict: Verdict) -> str:
    """One sentence, or "" where none is known."""
    first = verdict.first
    if first is None:
        return ""
    lead = verdict.settings[0] if verdict.settings else None
    if lead is not None and "bias" in lead.what.rpartition(".")[2] and "absent" in (lead.a, lead.b):
        return _BIAS
    if first.judgement == "optimizer":
        return _of_optimizer(verdict)
    if first.judgement == "init":
        return (
            "The frameworks initialise this kind of layer in other ways; give the port the initialiser of the original."
        )
    if first.judgement == "data":
        return _of_data(first)
    return _of_setting(first, lead) if lead is not None else ""


def _of_setting(first: Divergence, lead: Setting) -> str:
    owner, _, key = lead.what.rpartition(".")
    if owner not in (first.module, Address.of(first.site).name):
        return ""
    kind = str(first.evidence.get("type", ""))
    for (part, setting), sentence in _BY_SETTING.items():
        if setting == key and part in kind:
            return sentence
    return ""


def _of_optimizer(verdict: Verdict) -> str:
    for setting in verdict.settings:
        if setting.what == "optimizer.type" and "AdamWeightDecay" in (setting.a, setting.b):
            return (
                "nn.AdamWeightDecay does not correct the bias of its averages, AdamW does: "
                "use mindspore.experimental.optim.AdamW."
            )
        if setting.what == "optimizer.type" and {setting.a, setting.b} == {"Adam", "AdamW"}:
            return "Adam adds the decay to the gradient, AdamW takes it off the weights: these are two optimizers."
        if setting.what.endswith("weight_decay"):
            return "The optimizers decay weights by other amounts, or other weights."
        if setting.what.endswith("parameters"):
            return (
                "The groups of the optimizers hold other parameters, so other weights are decayed or other rates hold."
            )
    return ""


def _of_data(first: Divergence) -> str:
    mine, theirs = first.evidence.get("shape"), first.evidence.get("other_shape")
    if isinstance(mine, list) and isinstance(theirs, list) and mine != theirs and sorted(mine) == sorted(theirs):
        return "The dimensions come in another order: PyTorch's images are (batch, channels, height, width)."
    return ""
