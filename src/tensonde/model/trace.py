"""One step (or one call) op by op: what ran, on what, where in the user's code, and what came out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from tensonde.model.moment import Phase
from tensonde.model.site import SourceLine


@dataclass(frozen=True, slots=True)
class TensorFact:
    """A tensor that an op took or gave.

    `id` is the same wherever the same tensor appears in the trace (an in-place op gives its input's id again).
    `name` is that of the parameter or buffer, the address of a parameter's gradient, or "" for anything else. `producer` is the index of the op that
    gave it in this trace, None for what came from outside (data, parameters). `stats` are digest fields.
    """

    id: int
    shape: tuple[int, ...]
    dtype: str
    requires_grad: bool = False
    name: str = ""
    producer: int | None = None
    stats: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class OpRecord:
    """One op of the function API, in execution order.

    `site` is its address without the role (`blocks.3.attn/softmax#0`). `arguments` are the non-tensor arguments by
    name as far as names are known (`dim`, `p`, `training`), else by position ("0", "1"). `training` is the mode of the
    module that runs it. `gradient` are the digest fields of the gradient of its first output, where the backward pass was traced.
    """

    index: int
    op: str
    site: str
    module: str
    module_type: str
    source: SourceLine | None
    inputs: tuple[TensorFact, ...]
    outputs: tuple[TensorFact, ...]
    arguments: Mapping[str, Any] = field(default_factory=dict)
    phase: Phase = Phase.FORWARD
    training: bool | None = None
    grad_enabled: bool = True
    autocast: str | None = None
    gradient: Mapping[str, float] = field(default_factory=dict)
    error: str = ""


@dataclass(frozen=True, slots=True)
class CallRecord:
    """One call of a module, in the order in which calls ended.

    `first` and `last` are the ops that ran meanwhile: those with first <= index < last. `parent` is the place of the call
    around it in the order in which calls *began*, as is `number`. `state` are the module's own buffers after the call.
    """

    number: int
    parent: int | None
    module: str
    type: str
    inputs: tuple[TensorFact, ...]
    outputs: tuple[TensorFact, ...]
    state: tuple[TensorFact, ...] = ()
    first: int = 0
    last: int = 0
    training: bool | None = None
    grad_enabled: bool = True


@dataclass(frozen=True, slots=True)
class WeightRecord:
    """A parameter through the step: digest fields of its value when the step began, of its gradient when the backward
    pass ended (`raw`) and when the optimizer was called (`gradient`; clipped, unscaled), of its value after that, and of what
    the optimizer did to those elements whose gradient is more than rounding (`moved`: an adaptive optimizer makes a full
    step of a gradient that is nothing else). A field is {} where the moment never came.

    `own` is the sketch of what this rank's backward passes gave, before the ranks were brought together: `sketch.0` ... of the sum of all `passes`, and
    `last.sketch.0` ... of the last where there were several. {} where there is one rank."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    trainable: bool
    before: Mapping[str, float] = field(default_factory=dict)
    raw: Mapping[str, float] = field(default_factory=dict)
    gradient: Mapping[str, float] = field(default_factory=dict)
    after: Mapping[str, float] = field(default_factory=dict)
    moved: Mapping[str, float] = field(default_factory=dict)
    own: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Trace:
    """`reason`: why it was made: the first step, a whole step of a stage (the second of the training, or the second with
    an optimizer that was made later), a replay of a bad step, an exception, a call of `inspect`.

    `exact` is False when a replay did not reproduce what the training had computed; `notes` say why.
    """

    step: int
    reason: Literal["first", "stage", "replay", "exception", "following", "inspect"]
    ops: tuple[OpRecord, ...]
    exact: bool = True
    loss: int | None = None
    notes: tuple[str, ...] = ()
    calls: tuple[CallRecord, ...] = ()
    weights: tuple[WeightRecord, ...] = ()
