"""What experiments call the ops that MindSpore runs: the names of torch's dispatcher, by which they know layers, comparisons and what only shapes."""

from __future__ import annotations

from typing import Any

from tensonde.adapters.mindspore.tracing.names import primitive

_NAMES = {
    "to": "_to_copy", "reshape": "view", "flatten": "view", "getitem": "index", "linear": "addmm", "matmul": "mm",
    "dropout": "native_dropout", "dropout2d": "native_dropout", "batch_norm": "native_batch_norm",
    "layer_norm": "native_layer_norm", "softmax": "_softmax", "log_softmax": "_log_softmax", "bias_add": "add",
    "tensor_scatter_update": "index_put", "tensor_scatter_elements": "scatter", "sort": "sort", "top_k": "topk",
    "smooth_l1loss": "smooth_l1_loss", "reduce_std": "std", "strided_slice": "slice", "slice": "slice", "reverse": "flip",
    "eq_scalar": "eq", "mse_loss": "mse_loss", "gather_nd": "index", "masked_select": "index",
}  # fmt: skip
_PRIMITIVES = {
    "SparseSoftmaxCrossEntropyWithLogits": "nll_loss_forward",
    "SoftmaxCrossEntropyWithLogits": "softmax_cross_entropy",
    "NLLLoss": "nll_loss_forward",
    "BatchMatMul": "bmm",
    "StridedSlice": "slice",
    "Slice": "slice",
    "GatherNd": "index",
}


def name_of(primitive_name: str, given: list[bool]) -> str:
    """`given` says of each tensor that the op takes whether it is a parameter."""
    if primitive_name == "Gather":
        return "embedding" if given[:1] == [True] else "index_select"
    known = _PRIMITIVES.get(primitive_name)
    if known is not None:
        return known
    name = primitive(primitive_name)
    return _NAMES.get(name, name)


def index_name(index: Any, is_tensor: Any) -> str:
    """Of `x[index]`."""
    parts = index if isinstance(index, tuple) else (index,)
    if any(is_tensor(part) or isinstance(part, list) for part in parts):
        return "index"
    if any(isinstance(part, int) and not isinstance(part, bool) for part in parts):
        return "select"
    return "slice" if any(isinstance(part, slice) and part != slice(None) for part in parts) else "view"
