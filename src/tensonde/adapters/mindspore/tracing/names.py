"""What MindSpore's primitives, functions and cells are called in traces: the names of `model/ops.py`."""

from __future__ import annotations

import re

_PRIMITIVES = {
    "AddExt": "add", "Add": "add", "Adds": "add", "AddScalar": "add", "BiasAdd": "add", "AddN": "add", "TensorAdd": "add",
    "SubExt": "sub", "SubScalar": "sub", "Sub": "sub", "Mul": "mul", "Muls": "mul", "MulScalar": "mul",
    "Div": "div", "Divs": "div", "RealDiv": "div", "DivMod": "div", "DivMods": "div", "DivNoNan": "div", "Neg": "neg",
    "MatMul": "matmul", "MatMulExt": "matmul", "BatchMatMul": "bmm", "BatchMatMulExt": "bmm", "Mm": "mm", "Mv": "mv",
    "Dense": "linear", "SumExt": "sum", "ReduceSum": "sum", "MeanExt": "mean", "ReduceMean": "mean",
    "ReduceMax": "max", "ReduceMin": "min", "Max": "max", "Min": "min", "MaxDim": "max", "MinDim": "min", "ProdExt": "prod",
    "ReduceProd": "prod", "Std": "std", "Var": "var", "Softmax": "softmax", "LogSoftmax": "log_softmax",
    "LogSoftmaxExt": "log_softmax", "ReLU": "relu", "ReLU6": "relu6", "GeLU": "gelu", "GeluExt": "gelu", "SiLU": "silu",
    "EluExt": "elu", "Elu": "elu", "SeLUExt": "selu", "LeakyReLUExt": "leaky_relu", "LeakyReLU": "leaky_relu",
    "HSwish": "hardswish", "HSigmoid": "hardsigmoid", "SoftplusExt": "softplus", "Mish": "mish", "Tanh": "tanh",
    "Sigmoid": "sigmoid", "Exp": "exp", "Log": "log", "Log1p": "log1p", "Sqrt": "sqrt", "Rsqrt": "rsqrt", "Square": "square",
    "Pow": "pow", "PowTensorScalar": "pow", "PowScalarTensor": "pow", "Abs": "abs", "Sign": "sign", "Floor": "floor",
    "Ceil": "ceil", "Round": "round", "Trunc": "trunc", "ClampScalar": "clamp", "ClampTensor": "clamp", "ClipByValue": "clamp",
    "Maximum": "maximum", "Minimum": "minimum", "MaskedFill": "masked_fill", "Select": "where", "Where": "where",
    "Reshape": "reshape", "View": "view", "Transpose": "permute", "TransposeExtView": "transpose", "TransposeView": "permute",
    "ExpandDims": "unsqueeze", "ExpandDimsView": "unsqueeze", "Squeeze": "squeeze", "BroadcastTo": "expand",
    "FlattenExt": "flatten", "Flatten": "flatten", "Concat": "cat", "Stack": "stack", "StackExt": "stack", "Split": "split",
    "Chunk": "chunk", "Cast": "to", "Contiguous": "contiguous", "Copy": "clone", "Clone": "clone", "Tile": "repeat",
    "Gather": "index_select", "GatherD": "gather", "GatherNd": "getitem", "Index": "getitem", "StridedSlice": "getitem",
    "Slice": "getitem", "SliceExt": "getitem", "SelectExt": "getitem", "SelectExtView": "getitem", "Embedding": "embedding",
    "Conv1DExt": "conv1d", "Conv2D": "conv2d", "Conv2DExt": "conv2d", "Conv3D": "conv3d", "Conv3DExt": "conv3d",
    "Convolution": "conv2d", "MaxPool": "max_pool2d", "AvgPool": "avg_pool2d", "BatchNorm": "batch_norm",
    "BatchNormExt": "batch_norm", "LayerNorm": "layer_norm", "LayerNormExt": "layer_norm", "GroupNorm": "group_norm",
    "Dropout": "dropout", "DropoutExt": "dropout", "MSELossExt": "mse_loss", "L1LossExt": "l1_loss",
    "SmoothL1Loss": "smooth_l1_loss", "NLLLoss": "nll_loss", "CrossEntropy": "cross_entropy",
    "SoftmaxCrossEntropyWithLogits": "cross_entropy", "SparseSoftmaxCrossEntropyWithLogits": "cross_entropy",
    "BinaryCrossEntropy": "binary_cross_entropy", "BCEWithLogitsLoss": "binary_cross_entropy_with_logits",
    "OneHotExt": "one_hot", "OneHot": "one_hot", "ArgMaxExt": "argmax", "Argmax": "argmax", "CumSum": "cumsum",
    "CumsumExt": "cumsum", "StopGradient": "detach", "Norm": "norm", "LpNormV2": "norm", "Triu": "triu", "Tril": "tril",
    "TrilExt": "tril", "OnesLike": "ones_like", "ZerosLike": "zeros_like", "Fills": "full", "FillScalar": "full",
    "Range": "arange", "Acos": "acos", "AcosExt": "acos", "LogSumExp": "logsumexp", "Equal": "eq", "NotEqual": "ne",
}  # fmt: skip

_FUNCTIONS = {
    "dense": "linear", "concat": "cat", "expand_dims": "unsqueeze", "clip_by_value": "clamp", "clip": "clamp",
    "broadcast_to": "expand", "tile": "repeat", "cast": "to", "astype": "to", "stop_gradient": "detach", "batch_dot": "bmm",
    "reduce_mean": "mean", "reduce_sum": "sum", "real_div": "div", "true_divide": "div", "divide": "div", "subtract": "sub",
    "multiply": "mul", "swapaxes": "transpose", "masked_select": "masked_select", "select": "where", "softmax_ext": "softmax",
    "add_ext": "add", "sub_ext": "sub", "l2_normalize": "normalize", "argmax_ext": "argmax", "max_ext": "max",
    "embedding_lookup": "embedding", "conv2d_ext": "conv2d", "normal_ext": "normal", "standard_normal": "randn",
    "deprecated_tensor_transpose": "permute", "deprecated_tensor_max": "amax", "deprecated_tensor_min": "amin",
    "mse_loss_ext": "mse_loss", "reverse": "flip", "greater": "gt", "less": "lt",
    "greater_equal": "ge", "less_equal": "le", "not_equal": "ne", "split_with_size": "split", "floor_div": "floor_divide",
}  # fmt: skip

CELLS = {
    "Dense": "linear", "Linear": "linear", "Conv1d": "conv1d", "Conv2d": "conv2d", "Conv3d": "conv3d",
    "Conv1dTranspose": "conv_transpose1d", "Conv2dTranspose": "conv_transpose2d", "BatchNorm1d": "batch_norm",
    "BatchNorm2d": "batch_norm", "BatchNorm3d": "batch_norm", "LayerNorm": "layer_norm", "GroupNorm": "group_norm",
    "InstanceNorm1d": "instance_norm", "InstanceNorm2d": "instance_norm", "RMSNorm": "rms_norm", "ReLU": "relu",
    "ReLU6": "relu6", "LeakyReLU": "leaky_relu", "GELU": "gelu", "FastGelu": "gelu", "ELU": "elu", "SeLU": "selu", "CELU": "celu",
    "SiLU": "silu", "Mish": "mish", "Softplus": "softplus", "HSwish": "hardswish", "HSigmoid": "hardsigmoid", "Tanh": "tanh",
    "Sigmoid": "sigmoid", "Softmax": "softmax", "LogSoftmax": "log_softmax", "Softsign": "softsign", "Hardtanh": "hardtanh",
    "Dropout": "dropout", "Dropout1d": "dropout1d", "Dropout2d": "dropout2d", "Dropout3d": "dropout3d", "Embedding": "embedding",
    "EmbeddingLookup": "embedding", "LSTM": "lstm", "GRU": "gru", "RNN": "rnn_tanh", "MSELoss": "mse_loss", "L1Loss": "l1_loss",
    "SmoothL1Loss": "smooth_l1_loss", "HuberLoss": "huber_loss", "CrossEntropyLoss": "cross_entropy",
    "SoftmaxCrossEntropyWithLogits": "cross_entropy", "NLLLoss": "nll_loss", "BCELoss": "binary_cross_entropy",
    "BCEWithLogitsLoss": "binary_cross_entropy_with_logits", "CTCLoss": "ctc_loss", "MaxPool1d": "max_pool1d",
    "MaxPool2d": "max_pool2d", "AvgPool2d": "avg_pool2d", "AdaptiveAvgPool2d": "adaptive_avg_pool2d", "Flatten": "flatten",
    "Identity": "identity", "MultiheadAttention": "multi_head_attention_forward",
}  # fmt: skip
"""Cells of the library that are one op of a trace, by the name of their class."""

_TAIL = re.compile(r"(Ext|View|V2|V3|D)$")
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
IGNORED = frozenset({"typeof", "shape", "Shape", "DType", "Rank", "TupleToTensor", "TensorShape"})
"""Primitives that compute nothing."""


_METHOD = re.compile(r"(deprecated|reduce|tensor)_(tensor_)?")
_KIND = re.compile(r"(_tensor|_scalar|_empty|_dim|dim)+$")
"""`Tensor.sum` is `tensor_sum_ext` or `deprecated_tensor_sum`, by what it is given; `Tensor.clamp` is `tensor_clamp_scalar`."""


def primitive(name: str) -> str:
    known = _PRIMITIVES.get(name)
    if known is not None:
        return known
    return _HUMP.sub("_", _TAIL.sub("", name)).lower()


def function(name: str) -> str | None:
    """The op that a function of the library's stands for; None: its name says nothing."""
    if name.startswith("_") or name in ("construct", "deco", "wrapper", "inner", "staging_specialize"):
        return None
    name = name.removesuffix("_ext")
    if name not in _FUNCTIONS and _METHOD.match(name):
        name = _KIND.sub("", _METHOD.sub("", name))
    return _FUNCTIONS.get(name, name)


_DRAWS = (
    "Random",
    "Normal",
    "Dropout",
    "Uniform",
    "Bernoulli",
    "Multinomial",
    "Gamma",
    "Poisson",
    "Shuffle",
    "Randperm",
)


def draws(name: str) -> bool:
    """Whether a primitive draws random numbers. Those of a CPU cannot be drawn a second time."""
    kind = name.replace("Normalize", "Norm")
    return any(part in kind for part in _DRAWS) and "Norm" not in kind.replace("Normal", "") and "Grad" not in name
