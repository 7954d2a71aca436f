"""Kinds of op and of module: one line says all that rules, comparisons and watchpoints know about an op.

The names are those of traces and sites. They are torch's, in lower case for functions; an adapter of another framework writes the
same names for what is the same. Rules ask by trait, `op.op in ops(Trait.NORM)`; a new op is one line
here. Where two rules mean almost the same, each has its own trait: which ops they differ in can be seen.
"""

from __future__ import annotations

from enum import Flag, auto
from functools import cache


class Trait(Flag):
    """True of an op, or of a class of modules. A trait without words is named by what its ops do."""

    RESHAPES = auto()
    """Gives the same numbers in another shape."""
    FITS = auto()
    """Gives the same numbers in a shape that is asked for."""
    TURNS = auto()
    """Exchanges dimensions."""
    SELECTS = auto()
    """Takes a part."""
    COPIES = auto()
    """Gives the same values."""
    CASTS = auto()
    """Gives the same values in another float type."""
    CASTS_TO_WHOLE = auto()
    """Gives the same values as whole numbers or truth values."""
    REPEATS = auto()
    """Gives values more than once."""
    LAYOUT = auto()
    """Moves values without computing any: a comparison does not begin there."""
    CUTS = auto()
    """Ends the graph."""
    ADDS = auto()
    ADDS_IN_PLACE = auto()
    SUBTRACTS = auto()
    MULTIPLIES = auto()
    MULTIPLIES_IN_PLACE = auto()
    TIMES = auto()
    """Multiplies, in the order written."""
    DIVIDES = auto()
    DIVIDES_INTO = auto()
    """Has the divisor first."""
    NEGATES = auto()
    MIXES = auto()
    """Gives a mixture of two."""
    ARITHMETIC = auto()
    """One of the four, not in place."""
    COMBINES = auto()
    """Makes one loss of several."""
    SUMS_UP = auto()
    """Depends on the order of additions."""
    UNARY = auto()
    """Gives one value for each, by simple means."""
    EXTREMES = auto()
    SQUARES = auto()
    MAGNITUDES = auto()
    DENSITY = auto()
    """Is part of a log-density."""
    NOT = auto()
    PRODUCT = auto()
    """Is a product of matrices."""
    DOT = auto()
    """Is a product of vectors."""
    AFFINE = auto()
    """Is a layer with a weight."""
    FUSED_AFFINE = auto()
    """Is a layer whose weight comes last."""
    TRANSPOSED = auto()
    """Is a transposed convolution."""
    RECURRENT = auto()
    WEIGHTED = auto()
    """Has weights."""
    SEQUENCE = auto()
    """Takes sequences, with `batch_first`."""
    BATCH_NORM = auto()
    NORM = auto()
    """Normalises."""
    ROW_NORM = auto()
    """Normalises each row."""
    ACTIVATION = auto()
    """Is a non-linearity between layers."""
    FLAT_SIDE = auto()
    """Has no slope on one side at least."""
    ZERO_BELOW = auto()
    """Gives 0 on its flat side."""
    CLAMPS = auto()
    CLAMPS_BELOW = auto()
    FLAT = auto()
    """Has no slope anywhere."""
    SQUASHES = auto()
    """Has a bounded range and slopes that vanish."""
    TANH = auto()
    SIGMOID = auto()
    SOFTMAX = auto()
    ELEMENTWISE = auto()
    """Leaves rows as they are."""
    EACH_POSITION = auto()
    """Computes each position of a sequence by itself."""
    WITHIN_POSITION = auto()
    """Does so in most programs, though it need not."""
    TAKES_LOGITS = auto()
    """A loss that applies softmax or sigmoid itself."""
    JOINS = auto()
    """Puts several tensors into one."""
    DISTANCE = auto()
    """Is a loss of differences."""
    VALUE_LOSS = auto()
    """Compares values with targets."""
    ELEMENTWISE_LOSS = auto()
    """Takes targets of the shape of its input."""
    CLASS_LOSS = auto()
    """Takes classes as targets."""
    LOSS_FROM_ZERO = auto()
    """Is never below 0."""
    DROPOUT = auto()
    DROPS_UNITS = auto()
    DROPS = auto()
    """Leaves values out, the rest as they are."""
    FILLS = auto()
    """Writes one value where a mask is true."""
    CHOOSES = auto()
    REPLACES = auto()
    TEMPERS = auto()
    """Changes the size of scores."""
    CAPS = auto()
    """Bounds scores."""
    INSERTS = auto()
    """Puts values in that the script gives (in place or not)."""
    MASKING = auto()
    """Makes or applies a mask."""
    CONSTANT = auto()
    """Makes the same numbers in every step."""
    NOISE = auto()
    """Draws a tensor of random numbers."""
    UNIFORM_IN_PLACE = auto()
    RANDOM = auto()
    """Draws random numbers, or may."""

    PASSES = RESHAPES | FITS | TURNS | SELECTS | COPIES | CASTS
    """Passes the values on, all or some."""
    SCALES = MULTIPLIES | MULTIPLIES_IN_PLACE | DIVIDES
    PLUS = ADDS | ADDS_IN_PLACE
    MASKS = FILLS | CHOOSES
    """Puts other values in by a mask."""
    LAYER = AFFINE | FUSED_AFFINE


OPS: dict[str, Trait] = {
    "view": Trait.RESHAPES | Trait.LAYOUT,
    "reshape": Trait.RESHAPES | Trait.LAYOUT,
    "flatten": Trait.RESHAPES | Trait.LAYOUT,
    "unflatten": Trait.RESHAPES | Trait.LAYOUT,
    "squeeze": Trait.RESHAPES | Trait.LAYOUT,
    "unsqueeze": Trait.RESHAPES | Trait.LAYOUT,
    "expand": Trait.FITS | Trait.LAYOUT,
    "view_as": Trait.FITS,
    "permute": Trait.TURNS | Trait.LAYOUT,
    "transpose": Trait.TURNS | Trait.LAYOUT,
    "T": Trait.TURNS | Trait.LAYOUT,
    "mT": Trait.TURNS | Trait.LAYOUT,
    "t": Trait.TURNS,
    "movedim": Trait.TURNS | Trait.LAYOUT,
    "swapaxes": Trait.TURNS | Trait.LAYOUT,
    "getitem": Trait.SELECTS | Trait.LAYOUT,
    "contiguous": Trait.COPIES | Trait.LAYOUT | Trait.UNARY | Trait.ELEMENTWISE,
    "clone": Trait.COPIES | Trait.LAYOUT | Trait.ELEMENTWISE,
    "float": Trait.CASTS | Trait.ELEMENTWISE,
    "to": Trait.CASTS | Trait.LAYOUT | Trait.ELEMENTWISE,
    "double": Trait.CASTS,
    "half": Trait.CASTS,
    "bfloat16": Trait.CASTS,
    "type": Trait.CASTS,
    "type_as": Trait.CASTS,
    "bool": Trait.CASTS_TO_WHOLE,
    "long": Trait.CASTS_TO_WHOLE,
    "int": Trait.CASTS_TO_WHOLE,
    "repeat": Trait.REPEATS,
    "repeat_interleave": Trait.REPEATS,
    "expand_as": Trait.REPEATS,
    "chunk": Trait.LAYOUT | Trait.WITHIN_POSITION,
    "split": Trait.LAYOUT | Trait.WITHIN_POSITION,
    "unbind": Trait.LAYOUT | Trait.WITHIN_POSITION,
    "detach": Trait.LAYOUT | Trait.CUTS | Trait.ELEMENTWISE,
    "data": Trait.CUTS,
    "detach_": Trait.CUTS,
    "add": Trait.ADDS | Trait.ARITHMETIC | Trait.COMBINES | Trait.SUMS_UP | Trait.EACH_POSITION,
    "radd": Trait.ADDS | Trait.ARITHMETIC | Trait.COMBINES | Trait.EACH_POSITION,
    "add_": Trait.ADDS_IN_PLACE | Trait.SUMS_UP | Trait.WITHIN_POSITION,
    "sub": Trait.SUBTRACTS | Trait.ARITHMETIC | Trait.COMBINES | Trait.SUMS_UP | Trait.EACH_POSITION | Trait.TEMPERS,
    "rsub": Trait.SUBTRACTS | Trait.ARITHMETIC | Trait.COMBINES,
    "sub_": Trait.SUBTRACTS | Trait.SUMS_UP,
    "mul": Trait.MULTIPLIES | Trait.TIMES | Trait.ARITHMETIC | Trait.COMBINES | Trait.EACH_POSITION,
    "rmul": Trait.MULTIPLIES | Trait.ARITHMETIC | Trait.COMBINES | Trait.EACH_POSITION,
    "mul_": Trait.MULTIPLIES_IN_PLACE | Trait.WITHIN_POSITION,
    "div": Trait.DIVIDES | Trait.ARITHMETIC | Trait.COMBINES | Trait.EACH_POSITION,
    "truediv": Trait.DIVIDES | Trait.ARITHMETIC | Trait.COMBINES | Trait.EACH_POSITION,
    "div_": Trait.DIVIDES,
    "rdiv": Trait.DIVIDES_INTO,
    "neg": Trait.NEGATES | Trait.COMBINES | Trait.UNARY | Trait.WITHIN_POSITION,
    "lerp": Trait.MIXES,
    "addcmul": Trait.MIXES,
    "mean": Trait.COMBINES | Trait.SUMS_UP | Trait.WITHIN_POSITION,
    "sum": Trait.COMBINES | Trait.SUMS_UP,
    "stack": Trait.COMBINES | Trait.WITHIN_POSITION | Trait.JOINS,
    "iadd": Trait.SUMS_UP,
    "isub": Trait.SUMS_UP,
    "linear": Trait.SUMS_UP | Trait.AFFINE | Trait.WEIGHTED | Trait.EACH_POSITION,
    "matmul": Trait.SUMS_UP | Trait.PRODUCT | Trait.WITHIN_POSITION,
    "bmm": Trait.SUMS_UP | Trait.PRODUCT | Trait.WITHIN_POSITION,
    "mm": Trait.SUMS_UP | Trait.PRODUCT | Trait.WITHIN_POSITION,
    "addmm": Trait.SUMS_UP | Trait.FUSED_AFFINE | Trait.WEIGHTED,
    "einsum": Trait.SUMS_UP | Trait.PRODUCT | Trait.WITHIN_POSITION,
    "conv1d": Trait.SUMS_UP | Trait.AFFINE | Trait.WEIGHTED,
    "conv2d": Trait.SUMS_UP | Trait.AFFINE | Trait.WEIGHTED,
    "conv3d": Trait.SUMS_UP | Trait.AFFINE | Trait.WEIGHTED,
    "cumsum": Trait.SUMS_UP,
    "mse_loss": Trait.SUMS_UP | Trait.DISTANCE | Trait.VALUE_LOSS | Trait.ELEMENTWISE_LOSS | Trait.LOSS_FROM_ZERO,
    "l1_loss": Trait.SUMS_UP | Trait.DISTANCE | Trait.VALUE_LOSS | Trait.ELEMENTWISE_LOSS | Trait.LOSS_FROM_ZERO,
    "layer_norm": Trait.SUMS_UP | Trait.WEIGHTED | Trait.NORM | Trait.ROW_NORM | Trait.EACH_POSITION,
    "batch_norm": Trait.SUMS_UP | Trait.WEIGHTED | Trait.BATCH_NORM | Trait.NORM,
    "group_norm": Trait.SUMS_UP | Trait.NORM,
    "instance_norm": Trait.SUMS_UP | Trait.NORM,
    "clamp": Trait.UNARY | Trait.CLAMPS | Trait.CLAMPS_BELOW | Trait.TEMPERS,
    "clamp_min": Trait.UNARY | Trait.CLAMPS | Trait.CLAMPS_BELOW,
    "clamp_max": Trait.UNARY | Trait.CLAMPS,
    "exp": Trait.UNARY | Trait.DENSITY,
    "abs": Trait.UNARY | Trait.MAGNITUDES,
    "nan_to_num": Trait.UNARY | Trait.REPLACES,
    "min": Trait.EXTREMES,
    "max": Trait.EXTREMES,
    "minimum": Trait.EXTREMES,
    "maximum": Trait.EXTREMES,
    "pow": Trait.SQUARES | Trait.WITHIN_POSITION,
    "square": Trait.SQUARES,
    "norm": Trait.MAGNITUDES,
    "log": Trait.DENSITY,
    "logical_not": Trait.NOT,
    "bitwise_not": Trait.NOT,
    "invert": Trait.NOT,
    "logical_not_": Trait.NOT,
    "bitwise_not_": Trait.NOT,
    "baddbmm": Trait.PRODUCT,
    "dot": Trait.DOT,
    "conv_transpose1d": Trait.TRANSPOSED,
    "conv_transpose2d": Trait.TRANSPOSED,
    "lstm": Trait.RECURRENT | Trait.WEIGHTED | Trait.RANDOM,
    "gru": Trait.RECURRENT | Trait.WEIGHTED | Trait.RANDOM,
    "rnn_tanh": Trait.RECURRENT | Trait.WEIGHTED | Trait.RANDOM,
    "rnn_relu": Trait.RECURRENT | Trait.WEIGHTED | Trait.RANDOM,
    "embedding": Trait.WEIGHTED | Trait.WITHIN_POSITION,
    "rms_norm": Trait.NORM | Trait.ROW_NORM | Trait.EACH_POSITION,
    "normalize": Trait.NORM | Trait.ROW_NORM,
    "relu": Trait.ACTIVATION | Trait.FLAT_SIDE | Trait.ZERO_BELOW | Trait.ELEMENTWISE | Trait.EACH_POSITION,
    "leaky_relu": Trait.ACTIVATION | Trait.EACH_POSITION,
    "gelu": Trait.ACTIVATION | Trait.ELEMENTWISE | Trait.EACH_POSITION,
    "elu": Trait.ACTIVATION | Trait.EACH_POSITION,
    "selu": Trait.ACTIVATION,
    "celu": Trait.ACTIVATION,
    "silu": Trait.ACTIVATION | Trait.EACH_POSITION,
    "mish": Trait.ACTIVATION | Trait.WITHIN_POSITION,
    "softplus": Trait.ACTIVATION | Trait.WITHIN_POSITION,
    "relu6": Trait.ACTIVATION | Trait.FLAT_SIDE | Trait.ZERO_BELOW,
    "hardswish": Trait.ACTIVATION,
    "relu_": Trait.FLAT_SIDE | Trait.ZERO_BELOW,
    "threshold": Trait.FLAT_SIDE | Trait.ZERO_BELOW,
    "hardtanh": Trait.FLAT_SIDE,
    "clip": Trait.CLAMPS,
    "clamp_": Trait.CLAMPS_BELOW,
    "round": Trait.FLAT,
    "floor": Trait.FLAT,
    "ceil": Trait.FLAT,
    "trunc": Trait.FLAT,
    "fix": Trait.FLAT,
    "sign": Trait.FLAT,
    "sgn": Trait.FLAT,
    "heaviside": Trait.FLAT,
    "sigmoid": Trait.SQUASHES | Trait.SIGMOID | Trait.ELEMENTWISE | Trait.EACH_POSITION,
    "sigmoid_": Trait.SQUASHES | Trait.SIGMOID,
    "tanh": Trait.SQUASHES | Trait.TANH | Trait.ELEMENTWISE | Trait.EACH_POSITION | Trait.TEMPERS | Trait.CAPS,
    "tanh_": Trait.SQUASHES | Trait.TANH,
    "softsign": Trait.SQUASHES,
    "hardsigmoid": Trait.SQUASHES,
    "softmax": Trait.SOFTMAX | Trait.WITHIN_POSITION,
    "log_softmax": Trait.SOFTMAX | Trait.WITHIN_POSITION,
    "softmin": Trait.SOFTMAX,
    "Softmax": Trait.SOFTMAX,
    "LogSoftmax": Trait.SOFTMAX,
    "dropout": Trait.ELEMENTWISE
    | Trait.EACH_POSITION
    | Trait.DROPOUT
    | Trait.DROPS_UNITS
    | Trait.DROPS
    | Trait.TEMPERS
    | Trait.RANDOM,
    "cat": Trait.WITHIN_POSITION | Trait.JOINS,
    "sqrt": Trait.WITHIN_POSITION,
    "rsqrt": Trait.WITHIN_POSITION,
    "masked_fill": Trait.WITHIN_POSITION | Trait.FILLS | Trait.INSERTS | Trait.MASKING,
    "where": Trait.WITHIN_POSITION | Trait.CHOOSES | Trait.INSERTS | Trait.MASKING,
    "smooth_l1_loss": Trait.DISTANCE | Trait.VALUE_LOSS | Trait.ELEMENTWISE_LOSS | Trait.LOSS_FROM_ZERO,
    "huber_loss": Trait.DISTANCE | Trait.VALUE_LOSS | Trait.ELEMENTWISE_LOSS | Trait.LOSS_FROM_ZERO,
    "binary_cross_entropy": Trait.VALUE_LOSS | Trait.ELEMENTWISE_LOSS | Trait.LOSS_FROM_ZERO,
    "binary_cross_entropy_with_logits": Trait.ELEMENTWISE_LOSS | Trait.LOSS_FROM_ZERO | Trait.TAKES_LOGITS,
    "poisson_nll_loss": Trait.ELEMENTWISE_LOSS,
    "cross_entropy": Trait.CLASS_LOSS | Trait.LOSS_FROM_ZERO | Trait.TAKES_LOGITS,
    "nll_loss": Trait.CLASS_LOSS | Trait.LOSS_FROM_ZERO,
    "multi_margin_loss": Trait.CLASS_LOSS,
    "ctc_loss": Trait.LOSS_FROM_ZERO,
    "dropout1d": Trait.DROPS_UNITS | Trait.RANDOM,
    "dropout2d": Trait.DROPS_UNITS | Trait.RANDOM,
    "dropout3d": Trait.DROPS_UNITS | Trait.RANDOM,
    "dropout_": Trait.DROPS | Trait.RANDOM,
    "alpha_dropout": Trait.DROPS | Trait.RANDOM,
    "feature_alpha_dropout": Trait.DROPS | Trait.RANDOM,
    "masked_fill_": Trait.FILLS | Trait.MASKING,
    "full": Trait.INSERTS | Trait.MASKING | Trait.CONSTANT,
    "fill": Trait.INSERTS,
    "setitem": Trait.INSERTS,
    "full_like": Trait.INSERTS | Trait.MASKING,
    "new_full": Trait.INSERTS,
    "masked_scatter": Trait.INSERTS,
    "index_fill": Trait.INSERTS,
    "triu": Trait.INSERTS | Trait.MASKING,
    "tril": Trait.INSERTS | Trait.MASKING,
    "arange": Trait.CONSTANT,
    "linspace": Trait.CONSTANT,
    "logspace": Trait.CONSTANT,
    "zeros": Trait.CONSTANT,
    "ones": Trait.CONSTANT,
    "eye": Trait.CONSTANT,
    "randn": Trait.NOISE | Trait.RANDOM,
    "randn_like": Trait.NOISE | Trait.RANDOM,
    "normal": Trait.NOISE | Trait.RANDOM,
    "normal_": Trait.NOISE | Trait.RANDOM,
    "rand": Trait.NOISE | Trait.RANDOM,
    "rand_like": Trait.NOISE | Trait.RANDOM,
    "uniform_": Trait.UNIFORM_IN_PLACE | Trait.RANDOM,
    "feature_dropout": Trait.RANDOM,
    "bernoulli": Trait.RANDOM,
    "bernoulli_": Trait.RANDOM,
    "rrelu": Trait.RANDOM,
    "multinomial": Trait.RANDOM,
    "gumbel_softmax": Trait.RANDOM,
    "randint": Trait.RANDOM,
    "randint_like": Trait.RANDOM,
    "randperm": Trait.RANDOM,
    "exponential_": Trait.RANDOM,
    "multi_head_attention_forward": Trait.RANDOM,
    "scaled_dot_product_attention": Trait.RANDOM,
    "poisson": Trait.RANDOM,
}

MODULES: dict[str, Trait] = {
    "Linear": Trait.AFFINE | Trait.WEIGHTED,
    "Conv1d": Trait.AFFINE | Trait.WEIGHTED,
    "Conv2d": Trait.AFFINE | Trait.WEIGHTED,
    "Conv3d": Trait.AFFINE | Trait.WEIGHTED,
    "Embedding": Trait.WEIGHTED,
    "LSTM": Trait.WEIGHTED | Trait.SEQUENCE,
    "GRU": Trait.WEIGHTED | Trait.SEQUENCE,
    "RNN": Trait.WEIGHTED | Trait.SEQUENCE,
    "MultiheadAttention": Trait.WEIGHTED | Trait.SEQUENCE,
    "ConvTranspose2d": Trait.WEIGHTED,
    "Bilinear": Trait.WEIGHTED,
    "LSTMCell": Trait.WEIGHTED,
    "GRUCell": Trait.WEIGHTED,
    "BatchNorm1d": Trait.WEIGHTED | Trait.BATCH_NORM,
    "BatchNorm2d": Trait.WEIGHTED | Trait.BATCH_NORM,
    "LayerNorm": Trait.WEIGHTED,
    "TransformerEncoder": Trait.SEQUENCE,
    "TransformerEncoderLayer": Trait.SEQUENCE,
    "BatchNorm3d": Trait.BATCH_NORM,
    "SyncBatchNorm": Trait.BATCH_NORM,
    "ReLU": Trait.ACTIVATION | Trait.FLAT_SIDE,
    "LeakyReLU": Trait.ACTIVATION,
    "GELU": Trait.ACTIVATION,
    "ELU": Trait.ACTIVATION,
    "SELU": Trait.ACTIVATION,
    "CELU": Trait.ACTIVATION,
    "SiLU": Trait.ACTIVATION,
    "Mish": Trait.ACTIVATION,
    "Softplus": Trait.ACTIVATION,
    "ReLU6": Trait.ACTIVATION | Trait.FLAT_SIDE,
    "Hardswish": Trait.ACTIVATION,
    "Tanh": Trait.ACTIVATION,
    "Sigmoid": Trait.ACTIVATION,
    "PReLU": Trait.ACTIVATION,
    "Hardtanh": Trait.FLAT_SIDE,
    "Threshold": Trait.FLAT_SIDE,
}
"""By the name of their class."""

RANGES = {
    "tanh": (-1.0, 1.0),
    "sigmoid": (0.0, 1.0),
    "softmax": (0.0, 1.0),
    "hardtanh": (-1.0, 1.0),
    "hardsigmoid": (0.0, 1.0),
    "softsign": (-1.0, 1.0),
}
"""Least and largest output, where there are such."""

SLOPES = {"Sigmoid": 0.25, "Tanh": 1.0}
"""The largest slope of modules that saturate."""


@cache
def ops(traits: Trait) -> frozenset[str]:
    """The ops that have one of these traits."""
    return frozenset(name for name, own in OPS.items() if own & traits)


@cache
def modules(traits: Trait) -> frozenset[str]:
    """The classes of modules that have one of these traits."""
    return frozenset(name for name, own in MODULES.items() if own & traits)
