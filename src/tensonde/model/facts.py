"""The facts of a training beside its tensors, as they stand in facts.json (docs/facts.md is made from this file).

An adapter observes them during the run; rules read them afterwards. Every field has a default, so that recordings of an older
Tensonde and of adapters that observe less can be read: a rule must take a default for "not known". A line is a line of the user's
program.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from tensonde.model import versions
from tensonde.model.site import SourceLine

SCHEMA = versions.FACTS
"""Of facts.json as it is written now; `upgraded` reads the older ones."""

Number = int | float
Line = SourceLine | None


class Record(msgspec.Struct, frozen=True):
    """One record of facts."""


class RandomFact(Record, frozen=True):
    """Randomness of the framework."""

    seed: int | None = None
    """Of the global generator."""
    deterministic: bool = False
    """Whether deterministic algorithms are requested."""
    matmul_precision: str = ""
    """Of products of float32 matrices on a GPU: highest, or high or medium, which allow TF32 and less."""
    convolution_tf32: bool | None = None
    """Whether cuDNN may compute convolutions of float32 in TF32; null without a GPU of NVIDIA's, as are the next two."""
    cudnn_benchmark: bool | None = None
    """Whether cuDNN tries several algorithms and uses the fastest, so that two runs may compute differently."""
    cudnn_deterministic: bool | None = None
    """Whether cuDNN may only use deterministic algorithms."""


# -- optimizers ------------------------------------------------------------------------------------


class OwnDivision(Record, frozen=True):
    """A line at which the step of an optimizer of the user's divides."""

    file: str = ""
    line: int = 0
    code: str = ""
    kind: str = "other"
    """`power`, `root` or `other`: the divisor."""

    @property
    def source(self) -> SourceLine:
        return SourceLine(self.file, self.line, self.code)


class UnreadFact(Record, frozen=True):
    """A hyperparameter that was changed where no step reads it."""

    where: str = ""
    """`defaults`, `attribute`, or `group` and the entry that nobody reads."""
    name: str = ""
    value: Number = 0
    used: list[Number] = []
    """The values that the groups have."""
    line: Line = None


class OptimizerFact(Record, frozen=True):
    """An optimizer. Other facts name it by its index in the list."""

    type: str = ""
    made: Line = None
    groups: list[dict[str, Any]] = []
    """Hyperparameters of each group, and its number of `parameters`."""
    parameters: int = 0
    divisions: list[OwnDivision] = []
    unknown: list[list[int]] = []
    """Shapes of parameters that it holds and that are in no root."""
    unread: UnreadFact | None = None
    made_with: Number | None = None
    """The largest learning rate of its groups when it was made."""
    steps: int = 0
    looked_at: int = 0
    """Steps in which the next fields were observed: the first 200."""
    uncleared: int = 0
    """Steps whose gradients were still there at the next backward pass."""
    added_up: Line = None
    """The line that steps with gradients that the program accumulates itself."""
    emptied: int = 0
    """Steps before which the gradients had been cleared."""
    without_backward: int = 0
    """Steps without a backward pass since the last one."""
    closure: bool = False
    had_gradients: bool = False
    step_line: Line = None
    backward_line: Line = None
    """Of the backward pass before the step."""
    rewritten: Line = None
    """The line between the two that changes gradients."""
    steps_after_loop: bool = False
    """The step comes after the loop of that backward pass."""


class ByHandFact(Record, frozen=True):
    """Updates that the script makes itself, without an optimizer."""

    updates: int = 0
    looked_at: int = 0
    """Steps in which the next fields were observed: the first 200."""
    uncleared: int = 0
    unchanged: int = 0
    parameters: int = 0
    backward_line: Line = None


class RenewedFact(Record, frozen=True):
    """A line that made more than one optimizer for the same parameters."""

    type: str = ""
    count: int = 0
    steps: int = 0
    """Of all of them."""
    remembers: bool = False
    """Whether they keep a state."""
    line: Line = None


class RefilledFact(Record, frozen=True):
    """An optimizer whose weight matrices were reinitialized after steps."""

    optimizer: int = 0
    times: int = 0
    matrices: int = 0
    of: int = 0
    """Matrices that it holds."""
    last_after_steps: int = 0
    line: Line = None


class ResumedFact(Record, frozen=True):
    """An optimizer that loaded a state in the middle of its schedule."""

    optimizer: int = 0
    lr: Number = 0
    initial_lr: Number = 0
    rates: list[Number] = []
    """The first learning rates that it then stepped with."""
    line: Line = None


class MirroredFact(Record, frozen=True):
    """A line that mirrors or rotates one variable at random, in a function that mirrors nothing else."""

    name: str = ""
    line: Line = None


class RateSet(Record, frozen=True):
    """A line that sets `["lr"]` of an optimizer's group."""

    file: str = ""
    line: int = 0
    code: str = ""
    value: Number | None = None
    """The number, if it is a literal there."""

    @property
    def source(self) -> SourceLine:
        return SourceLine(self.file, self.line, self.code)


class WatchedValue(Record, frozen=True):
    """The value that a scheduler watches."""

    mode: str = "min"
    first: Number = 0
    improved: int = 0
    worsened: int = 0
    last: Number | None = None


class GivenNumber(Record, frozen=True):
    """A variable of the user's program that was passed to a scheduler."""

    value: Number = 0
    line: Line = None


class SchedulerFact(Record, frozen=True):
    """A scheduler of learning rates."""

    type: str = ""
    made: Line = None
    optimizer: int | None = None
    """Its index."""
    base_lrs: list[Number] = []
    numbers: dict[str, Number] = {}
    """Its attributes that are numbers."""
    names: dict[str, GivenNumber] = {}
    steps: int = 0
    before_optimizer: bool = False
    """Whether it stepped before the optimizer's first step."""
    line: Line = None
    """Of its first `step()`."""
    watched: WatchedValue | None = None


# -- modules and parameters ------------------------------------------------------------------------


class LeftOut(Record, frozen=True):
    """Looks at a parameter that no optimizer has."""

    looks: int = 0
    gradients: int = 0
    """Looks at which it had a gradient."""
    nonzero: int = 0
    reached: bool = False
    """The loss of a traced step leads back to it, although the program may not ask for its gradient."""


class Unchanged(Record, frozen=True):
    """Elements of a parameter before and after steps."""

    looks: int = 0
    elements: int = 0
    """Elements with a gradient."""
    unchanged: int = 0
    """Those that the step did not change."""


class Alike(Record, frozen=True):
    """Units of a layer that are equal at the start."""

    spread: Number = 0
    moved: Number = 0
    zero: bool = False
    step: int = 0


class SharedMemory(Record, frozen=True):
    """Other parameters in the same memory."""

    others: list[str] = msgspec.field(default_factory=list, name="with")
    line: Line = None


class ParameterFact(Record, frozen=True):
    """A parameter, by name."""

    shape: list[int] = []
    dtype: str = ""
    requires_grad: bool = False
    optimizers: list[int] = []
    """Indices of the optimizers that hold it."""
    registered: bool = False
    """Whether it is a parameter of a root."""
    owner: str = ""
    """The module that has it."""
    owner_type: str = ""
    library: bool = False
    """Whether the owner's class is the framework's."""
    owner_training: bool | None = None
    owner_hidden: bool = False
    """Whether the owner is in no root."""
    made: Line = None
    filled: Line = None
    """Of the last call that initialized it."""
    recipe: str | None = None
    """That call."""
    loaded: bool = False
    """Whether its owner was filled by `load_state_dict`."""
    shares_memory: SharedMemory | None = None
    placement: str = ""
    """How a DTensor lies on its mesh, such as `Shard(dim=0)`; "" for a plain tensor."""
    left_out: LeftOut | None = None
    changed: bool = False
    """Whether it changed although no optimizer has it."""
    steps: Unchanged | None = None
    alike: Alike | None = None


class ModuleFact(Record, frozen=True):
    """A module, by name."""

    type: str = ""
    library: bool = False
    """Whether its class is the framework's."""
    installed: bool = False
    """Whether its `forward` is written in a library."""
    made: Line = None
    cast: Line = None
    """Where its dtype was chosen."""
    training: bool = False
    hidden: bool = False
    """Whether it is in no root."""
    settings: dict[str, Any] = {}
    """Its plain attributes."""


class RepeatedFact(Record, frozen=True):
    """A container that holds one module with parameters several times."""

    container: str = ""
    type: str = ""
    part: str = ""
    part_type: str = ""
    times: int = 0
    of: int = 0
    """Parts of the container."""
    multiplied: Line = None
    """Where it is made inside a list that is multiplied."""
    line: Line = None


class PartLeft(Record, frozen=True):
    """A part of a root that was in train mode, and has since been in eval mode while the root was trained."""

    part: str = ""
    since: int = 0
    line: Line = None
    """The `eval()` of it, or of what holds it."""


class RootFact(Record, frozen=True):
    """A root (a module that the script calls itself), by name."""

    sensitive: dict[str, str] = {}
    """Parts that depend on the mode (dropout, batch norm): path and type."""
    trained: dict[str, int] = {}
    """Steps in `train` and `eval` mode."""
    first_eval_step: int | None = None
    last_train_step: int | None = None
    partial: dict[str, int] = {}
    """Steps in which a part was in eval mode and the root in train mode, by part."""
    left: list[PartLeft] = []
    apart: bool = False
    """Whether, in the program's text, its calls without gradients are outside the loops that run backward."""
    evaluated: dict[str, int] = {}
    """Calls without gradients, by mode."""
    evaluated_steps: dict[str, int] = {}
    eval_mode_seen: bool = False
    made: Line = None
    eval_line: Line = None
    """The `eval()` that it was then trained in."""
    train_line: Line = None
    """The only `train()` of that file."""
    evaluated_line: Line = None
    """Where an evaluation in train mode begins."""


class StrangerFact(Record, frozen=True):
    """A tensor with a gradient that a module keeps and that is not a parameter."""

    module: str = ""
    type: str = ""
    name: str = ""
    shape: list[int] = []
    version: int = 0
    gradient: bool = False
    computed: bool = False
    """Whether it is computed from one that no module holds."""
    line: Line = None


class MadeInForward(Record, frozen=True):
    """A module that is made while another one runs."""

    parent: str = ""
    type: str = ""
    count: int = 0
    last_step: int = -1
    steps: int = 0
    line: Line = None
    parameters: bool = False
    """Whether it has parameters."""


class HookFact(Record, frozen=True):
    """A line that registers hooks of modules in several steps."""

    kind: str = ""
    line: Line = None
    library: str = ""
    """The package whose code registers them, if it is not the user's own."""
    registered: int = 0
    module: str = ""
    alive: int = 0
    """Hooks on that module that are still there."""
    steps: int = 0
    """Steps in which these were registered."""
    first_step: int = 0
    last_step: int = 0


class LoadedItself(Record, frozen=True):
    """A line that loads a module from its own tensors."""

    type: str = ""
    count: int = 0
    line: Line = None
    kept: Line = None
    """Where the state was put into a variable."""


class UnfilledFact(Record, frozen=True):
    """An optimizer's state that a distributed checkpoint was read into while it had no tensors, though the checkpoint has some."""

    name: str = ""
    """In the checkpoint."""
    stored: int = 0
    """How many values the checkpoint has of it."""
    step: int = 0
    line: Line = None


class EmptiedFact(Record, frozen=True):
    """A parameter or buffer that `to_empty()` gave memory, and that nothing had written to when the model was first called."""

    name: str = ""
    buffer: bool = False
    line: Line = None


class UnmatchedLoad(Record, frozen=True):
    """A load with `strict=False` that left keys over which match when renamed."""

    type: str = ""
    own: int = 0
    """Keys of the module."""
    given: int = 0
    matched: int = 0
    how: str = ""
    """`wrapper`, `take off` or `put on`: the renaming."""
    part: str = ""
    """The part of the names that differs."""
    would_match: int = 0
    given_key: str | None = None
    own_key: str | None = None
    line: Line = None


class FilteredLoad(Record, frozen=True):
    """A load of a state whose keys were filtered by an `in` test that left almost nothing."""

    line: Line = None
    """Of the choice."""
    source: str = ""
    """The expression that the keys come from."""
    given: int | None = None
    kept: int = 0
    own: int = 0
    how: str = ""
    part: str = ""
    would_match: int = 0
    given_key: str | None = None
    own_key: str | None = None
    loaded_at: Line = None


class HeldBy(Record, frozen=True):
    """A variable of the user's."""

    name: str = ""
    line: Line = None


class FrozenNorms(Record, frozen=True):
    """A part without a trained parameter that has batch norms in train mode."""

    branch: str = ""
    variable: HeldBy | None = None
    """Of a whole model: the variable that holds it."""
    norms: list[str] = []
    since: int = 0
    looks: int = 0
    drifted: int = 0
    """Looks at which their statistics had changed."""
    experienced: bool = False
    """Whether they had statistics before."""


class UntouchedNorms(Record, frozen=True):
    """A model that is evaluated with untouched batch norms, although its weights change."""

    root: str = ""
    type: str = ""
    made: Line = None
    trained: bool = False
    """Whether an optimizer has its parameters."""
    norms: list[str] = []
    count: int = 0
    looks: int = 0
    changes: int = 0
    """Looks between which weights had changed."""
    updates: int = 0
    """Changes of weights in place."""
    step: int = 0
    called: Line = None
    update_line: Line = None
    """The line that averages parameters."""


# -- data ------------------------------------------------------------------------------------------


class WeightedSampler(Record, frozen=True):
    """A sampler that draws by weights."""

    weights: int = 0
    draws: int = 0
    line: Line = None


class WorkerInit(Record, frozen=True):
    """The `worker_init_fn` of a loader."""

    seeds: bool = False
    uses_worker: bool = False
    """Whether its seed depends on the worker."""
    line: Line = None


class HeldGenerator(Record, frozen=True):
    """A random generator that each worker gets a copy of."""

    holder: str = ""
    name: str = ""
    type: str = ""
    line: Line = None


class RewrittenFact(Record, frozen=True):
    """An attribute of a data set that its `__getitem__` writes into."""

    dataset: str = ""
    attribute: str = ""
    line: Line = None
    compared: int = 0
    """Passes compared."""
    changed: int = 0
    """Passes after which values had changed."""


class LoaderFact(Record, frozen=True):
    """A loader that the training has iterated over."""

    made: Line = None
    batch_size: int | None = None
    sampler: str = ""
    weighted: WeightedSampler | None = None
    epochs: list[int] | None = None
    """Of a sampler that gives each rank its share: its `epoch` in each of the first passes."""
    shuffled: bool = False
    """Whether such a sampler shuffles."""
    dealt_by: int | None = None
    """Of a DistributedSampler: the seed of its order."""
    own_batch_sampler: bool = False
    drop_last: bool = False
    dealt: bool = False
    """Whether its sampler gives each rank a share of its own."""
    shares: int = 0
    """In how many shares such a sampler splits the data."""
    sampler_line: Line = None
    """Where such a sampler was made."""
    content: int | None = None
    """Of such a loader: a checksum of the tensors that its data set keeps, one row per sample; None where it keeps none, or too much."""
    seed: int | None = None
    """Of its own generator."""
    workers: int = 0
    persistent: bool = False
    worker_init: WorkerInit | None = None
    dataset: str = ""
    length: int | None = None
    first: list[int] = []
    """The samples of its first batch."""
    share_of: int | None = None
    """Of a Subset: how many samples the data set has that it is taken from."""
    share: list[int] = []
    """Of a Subset: the samples that it takes; [] where there are too many."""
    sample_line: Line = None
    """The user's `__getitem__`."""
    data_line: Line = None
    """Where the variable that it was given got its value."""
    holds: list[str] | None = None
    """The dtypes of a TensorDataset."""
    generators: list[HeldGenerator] = []
    passes: int = 0
    steps: int = 0
    """Optimizer steps made while it was the last one iterated."""
    iterated: Line = None
    loop: Line = None
    """Where an epoch begins: the first line in the loop around its own. Only for samplers that give each rank its share."""
    rewritten: RewrittenFact | None = None
    made_anew: int = 0
    """How often the same line made it again."""


class Feature(Record, frozen=True):
    """The feature of a table with the largest values."""

    index: int = 0
    absmax: Number = 0
    usual: Number = 0
    """The median of all features."""
    widest: int = 0
    """The feature with the largest standard deviation."""
    spread: Number = 0
    usual_spread: Number = 0
    """The median of all features' standard deviations."""


class InputFact(Record, frozen=True):
    """A tensor that was passed to a root."""

    root: str = ""
    index: int = 0
    step: int = 0
    shape: list[int] = []
    absmax: Number = 0
    mean: Number = 0
    std: Number = 0
    same_rows: bool = False
    """Whether all samples are equal."""
    sum: Number = 0
    features: Feature | None = None


class ValueTargets(Record, frozen=True):
    """Float targets that a loader gave."""

    batches: int = 0
    elements: int = 0
    constant: bool = True
    """Whether all are one value."""
    value: Number | None = None
    line: Line = None


class SharedBuffer(Record, frozen=True):
    """The one buffer of a data set behind samples that are all equal."""

    dataset: str = ""
    buffer: str | None = None
    kept_in: str | None = None
    line: Line = None


class Compared(Record, frozen=True):
    """Targets held against inputs."""

    looked_at: int = 0
    same: int = 0


class Shifted(Record, frozen=True):
    """Targets compared with the inputs of the last root, one position ahead."""

    looked_at: int = 0
    same: int = 0
    root: str = ""
    shape: list[int] = []
    length: int = 0


class Repeats(Record, frozen=True):
    """Training calls compared with the first, until one differs."""

    looked_at: int = 0
    differ: int = 0


class BatchesFact(Record, frozen=True):
    """Batches that were looked at."""

    labels: list[list[int]] = []
    """For each batch: how many labels, how many of the most frequent class, which class."""
    label_line: Line = None
    target_line: Line = None
    """Where targets were made that are the inputs."""
    value_targets: ValueTargets = msgspec.field(default_factory=ValueTargets)
    copies: Compared = msgspec.field(default_factory=Compared)
    """How often integer targets were the inputs themselves."""
    shifted: Shifted = msgspec.field(default_factory=Shifted)
    sizes: dict[str, int] = {}
    """Batch size: how often."""
    inputs: list[InputFact] = []
    shared: SharedBuffer | None = None
    repeats: dict[str, Repeats] = {}
    """By root."""
    call_line: Line = None
    taken_again: Line = None
    """The line around the call that takes the same batch again: a loop whose variables its body never reads, or a new iterator's first."""


class Spread(Record, frozen=True):
    """Mean and deviation of an input, by feature or channel."""

    step: int = 0
    samples: int = 0
    shape: list[int] = []
    mean: list[Number] = []
    std: list[Number] = []
    line: Line = None
    """Where the input of an evaluation was made."""
    scaled: Line = None
    """Where the program's text may scale it differently from the training's."""


class ScaleFact(Record, frozen=True):
    """Scales of the first input of a root that is trained and evaluated."""

    trained: list[Spread] = []
    evaluated: list[Spread] = []


class TokensFact(Record, frozen=True):
    """Ids given to a root with one embedding."""

    module: str = ""
    padding_idx: int = 0
    """-1: none."""
    size: int = 0
    """Rows of the table."""
    looks: int = 0
    rows: int = 0
    padded: int = 0
    """Rows with a run of one `other` id at the end that stands nowhere else."""
    ends: int = 0
    """Rows that end (or begin) with a run of the padding index."""
    inside: int = 0
    """Rows with the padding index between other ids."""
    lengths: list[int] = []
    other: int | None = None
    """That id; -1: none."""


class OrdersApart(Record, frozen=True):
    """Two variables that are used as a pair but put into two orders."""

    names: list[str] = []
    order: str = ""
    """How one of them is sorted, flipped or rolled; empty: both are in a random order of their own."""
    line: Line = None
    other: Line = None


class DivisionFact(Record, frozen=True):
    """A line that divides by a constant of 100 or more, such as 255 for images."""

    line: Line = None
    by: Number = 1
    function: str = ""


# -- passes ----------------------------------------------------------------------------------------


class SequenceFact(Record, frozen=True):
    """Backward passes, clearing and steps."""

    backwards: int = 0
    wasted: int = 0
    """Backward passes whose gradients were cleared before a step."""
    wasted_line: Line = None
    cleared_line: Line = None
    windows: dict[str, int] = {}
    """`passes/wasted` of a step: how often."""
    foreign_leaves: bool = False
    """Whether losses depend on tensors with a gradient that are not parameters."""
    reduced: int = 0
    """Steps in which a backward pass reduced gradients of shards (`reduce_scatter`)."""
    reduced_early: int = 0
    """Those among them in which the last backward pass before the step did not."""
    steps: int = 0
    backward_line: Line = None
    """The line that asked for the first backward pass."""


class ScalerFact(Record, frozen=True):
    """A scaler of losses."""

    scale: Number = 1
    enabled: bool = False


class ClippingFact(Record, frozen=True):
    """Clipping and scaling of gradients."""

    calls: int = 0
    looked_at: int = 0
    kind: str = ""
    limit: Number | None = None
    median_norm: Number | None = None
    scaled: int = 0
    """Calls on gradients that were still scaled."""
    scale: Number | None = None
    scaled_losses: int = 0
    without_backward: int = 0
    """Calls without a backward pass since the last step."""
    line: Line = None
    steps_on_scaled_gradients: int = 0
    step_line: Line = None
    scalers: list[ScalerFact] = []


class BesideLoss(Record, frozen=True):
    """What a function returns besides its loss and is differentiated with it."""

    shapes: list[list[int]] = []
    line: Line = None
    """The line that returns them."""


class GraphHolder(Record, frozen=True):
    """The variable that holds graphs."""

    name: str = ""
    function: str = ""


class DiscardedCall(Record, frozen=True):
    """Calls in train mode whose graph no backward pass used."""

    root: str = ""
    calls: int = 0
    line: Line = None


class GraphsFact(Record, frozen=True):
    """Autograd graphs."""

    alive: int = 0
    unused_peak: int = 0
    wasted_peak: int = 0
    spent_peak: int = 0
    """Graphs alive that a backward pass of an earlier step had used, at most."""
    old: list[list[int]] = []
    """Step, and graphs of older steps that are alive."""
    rss: list[list[int]] = []
    """Step, and megabytes of the process."""
    holder: GraphHolder | None = None
    line: Line = None
    """Where the variable grows."""
    discarded: list[DiscardedCall] = []


class WithoutGrad(Record, frozen=True):
    """A module that ran without gradients inside a root that ran with them."""

    kind: str = ""
    """`no_grad` or `reentrant checkpoint`."""
    line: Line = None


class CarelessFunction(Record, frozen=True):
    """One of the user's autograd functions, whose backward reads none of its gradients."""

    name: str = ""
    line: Line = None


class NoiseFact(Record, frozen=True):
    """Dropout that was active in an evaluation."""

    op: str = ""
    p: Number = 0
    module: str = ""
    type: str = ""
    module_training: bool = False
    registered: bool = True
    """Whether the module is in the root."""
    library: bool = False
    line: Line = None


# -- ranks -----------------------------------------------------------------------------------------


class CollectiveFact(Record, frozen=True):
    """All calls of one collective at one line."""

    op: str = ""
    reduce: str = ""
    """`SUM`, `AVG`, ...; "" for a collective that reduces nothing."""
    group: str = ""
    group_size: int = 0
    count: int = 0
    steps: int = 0
    seconds: Number = 0.0
    """Spent in it, and in waits for it."""
    longest: Number = 0.0
    left: int = 0
    """Calls with `async_op=True` that the program never waited for."""
    gradients: list[str] = []
    """Parameters whose gradients it was called on, in the first steps."""
    parameters: list[str] = []
    """Parameters that it was called on, in the first steps."""
    copies: list[str] = []
    """In the first step with such a call: parameters for which it was called on a copy of the gradient, that is, on a tensor with other memory and the same values, up to a factor."""
    buffers: list[str] = []
    """Buffers of modules that it was called on, in the first steps with such a call."""
    buffers_divided: bool = False
    """Whether the function that calls it there divides them."""
    norms: dict[str, list[Number]] = {}
    """Of gradients in the first step, and of parameters where it is first called on them: their norm before and after."""
    first_step: int = 0
    inside: bool = False
    """Whether it was called in a module's forward or in a backward pass."""
    backward: bool = False
    """Whether this was a backward pass."""
    before_step: bool = False
    """Whether it was called between a backward pass and the step of an optimizer."""
    roots: dict[str, int] = {}
    """Of gradients that it reduces to one rank: this rank."""
    given: list[int] = []
    """Checksums of what it reduces in a forward or backward pass, of the first calls in the first step; 0 for equal elements."""
    divided: bool = False
    """Whether the program divides what is reduced there, before or afterwards."""
    scalar: bool = False
    """Whether everything it was called on has one element."""
    by_own: Line = None
    """The line that divides its result, a number counted over batches, by another such number from this rank alone."""
    again: bool = False
    """Whether, in one step, it was called on gradients that still held its earlier result, together with those of another backward pass."""
    touched: int = 0
    """Calls with `async_op=True` in the first steps whose tensor was changed before the program waited for them."""
    undivided_mean: bool = False
    """Whether it is called on a mean, and the program only prints or compares the result."""
    thrown_away: int = 0
    """A checksum of the first call's argument, if that was created for the call, so that nobody can read the result; 0 otherwise."""
    one_tensor: bool = False
    """Whether tensors that it fills are at the same place in memory."""
    line: Line = None
    after: Line = None
    """The statement that follows when all gradients are reduced."""


class StateLoad(Record, frozen=True):
    """A line that loads a state."""

    what: str = ""
    """`weights` or `optimizer`."""
    count: int = 0
    steps: list[int] = []
    """In which steps; of the first loads."""
    line: Line = None


class StateSave(Record, frozen=True):
    """A file that a line writes with `torch.save`."""

    path: str = ""
    count: int = 0
    line: Line = None


class Declared(Record, frozen=True):
    """A tensor of a rank that is declared to be the same on all ranks; in the first steps."""

    step: int = 0
    shape: list[int] = []
    digest: str = ""
    line: Line = None
    taken: Line = None
    """Of a gradient: the line that takes a parameter of this shape out of its DTensor."""


class Numbering(Record, frozen=True):
    """A variable that numbers words or classes: a dictionary from strings to 0, 1, 2, ..."""

    name: str = ""
    size: int = 0
    keys: dict[str, int] = {}
    """Some of them, selected in the same way on all ranks."""
    line: Line = None


class Seeding(Record, frozen=True):
    """A line that seeds torch's generators, and the seed that it first gave."""

    seed: int = 0
    line: Line = None


class Parted(Record, frozen=True):
    """A parameter of which `fully_shard` kept this rank's part, and that is still that part when the training begins."""

    name: str = ""
    shape: list[int] = []
    digest: int = 0
    """Of the whole parameter, as this rank had it."""
    ranks: int = 0
    line: Line = None


class Drawn(Record, frozen=True):
    """A parameter that a class of the program creates itself: the line, and the line that creates the generator of its values."""

    name: str = ""
    line: Line = None
    generator: Line = None


class Changed(Record, frozen=True):
    """A buffer that a class of the program changes while it trains: the line."""

    name: str = ""
    line: Line = None


class Share(Record, frozen=True):
    """A variable that holds a rank's part of a whole (`order[rank::world]`), when the training begins."""

    name: str = ""
    size: int = 0
    items: list[int] = []
    """Checksums of its items, the smallest first; if two ranks have the same items, they have the same checksums here."""
    line: Line = None


class RankCondition(Record, frozen=True):
    """A line of the first step that computes with gradients, under a condition that reads the rank, with the first and last line of that condition."""

    line: Line = None
    first: int = 0
    last: int = 0


class Hashing(Record, frozen=True):
    """Python's `hash`, which gives different numbers for strings in every process, unless that is turned off."""

    salt: int = 0
    """The hash of a fixed string."""
    line: Line = None
    """The first that takes the remainder of a hash."""


class BeginningFact(Record, frozen=True):
    """What a rank does on its own, to be compared with other ranks."""

    seeds: list[Seeding] = []
    parted: list[Parted] = []
    loads: list[StateLoad] = []
    saves: list[StateSave] = []
    declared: list[Declared] = []
    numberings: list[Numbering] = []
    drawn: list[Drawn] = []
    changed: list[Changed] = []
    shares: list[Share] = []
    conditions: list[RankCondition] = []
    hashing: Hashing = msgspec.field(default_factory=Hashing)
    sent: list[str] = []
    """Parameters that were sent to all ranks (`broadcast`) before the first step."""
    rewrite: Line = None
    """The statement that changes gradients between the backward pass and the optimizer's step."""


class Around(Record, frozen=True):
    """A loop or a condition around a line."""

    file: str = ""
    what: str = ""
    """`for`, `while` or `if`."""
    line: int = 0
    end: int = 0
    """Its last line."""


class Deed(Record, frozen=True):
    """What a rank does to its model at a line."""

    what: str = ""
    """`backward`, `step`, `schedule`, `load`, `freeze` (or its opposite), `group` (parameters are given to an optimizer), or `write`: the program has
    written weights itself since the last step."""
    line: Line = None
    around: list[Around] = []
    """Outermost first."""
    skips: list[int] = []
    """Earlier lines in the surrounding loops that continue with the next iteration."""
    by_rank: int = 0
    """The first line in the surrounding loops that only some ranks run, and that does more than print or save."""


class Stretch(Record, frozen=True):
    """Equal steps from this one on: the deeds of each, by their index."""

    step: int = 0
    did: list[int] = []


class CourseFact(Record, frozen=True):
    """What a rank does, step by step, if there are several."""

    deeds: list[Deed] = []
    stretches: list[Stretch] = []
    pending: list[int] = []
    """Since the last step."""
    whole: bool = True
    """False if there was too much of it."""


class EvaluatedWeights(Record, frozen=True):
    """A model that is run without gradients: the trained one, or one with parameters of the same shapes."""

    name: str = ""
    looks: list[list[int]] = []
    """Steps, and the checksum of all its parameters then."""
    made: Line = None
    called: Line = None
    update_line: Line = None
    """The first line of the program that averages parameters in place."""
    statistics: list[int] = []
    """A step at which its running statistics were those that `update_bn` had computed, and their checksum."""
    renewed: Line = None
    """The line that called `update_bn`."""


class GradientReturned(Record, frozen=True):
    """A rank sends the gradient of a tensor that it has received: the `sent`-th that it sends to that rank, for the `received`-th from it."""

    peer: int = 0
    sent: int = 0
    received: int = 0


class GradientUsed(Record, frozen=True):
    """A rank runs backward from the `sent`-th tensor that it has sent to that rank, with the `received`-th that it has received from it."""

    peer: int = 0
    sent: int = 0
    received: int = 0
    line: Line = None


class StagesFact(Record, frozen=True):
    """Gradients that go back between ranks, as between stages of a pipeline; the first ones."""

    returned: list[GradientReturned] = []
    used: list[GradientUsed] = []


class BucketFact(Record, frozen=True):
    """Gradients that DistributedDataParallel reduces together."""

    bytes: int = 0
    parameters: list[str] = []


class ReplicaFact(Record, frozen=True):
    """A model in DistributedDataParallel."""

    name: str = ""
    ranks: int = 0
    sync_buffers: bool = True
    """Whether rank 0's buffers are sent to the others before each forward."""
    parameters: list[str] = []
    later: list[str] = []
    """Parameters that were created after the model was wrapped."""
    buckets: list[BucketFact] = []
    """In the order in which they are reduced."""
    unfrozen: list[str] = []
    """Parameters that required no gradient when the wrapper was first called, and do now."""
    unfreezing: Line = None
    """The first line of the wrapper's file that turns gradients on."""
    called: int = 0
    """Calls of the wrapper in train mode."""
    bypassed: int = 0
    """Calls of the wrapped module itself, in train mode."""
    bypass_line: Line = None
    """The first of them."""
    evaluated: bool = False
    """Whether it was put into eval mode after its training began."""
    hooked: bool = False
    """Whether the program reduces its gradients with its own function (`register_comm_hook`)."""
    joined: bool = False
    """Whether it was called inside `join()`, where the ranks may make different numbers of steps."""
    line: Line = None


class CopyFact(Record, frozen=True):
    """A copy of the trained model that is evaluated and that no optimizer holds. Distances are parts of the size of the
    trained weights at the first evaluation."""

    type: str = ""
    looks: int = 0
    """Steps after which it was evaluated."""
    first: int = 0
    last: int = 0
    moved: Number = 0
    """How far it has moved since the first evaluation."""
    trained_moved: Number = 0
    """How far the trained weights have moved."""
    gap: Number = 0
    """Between the two at the end."""
    way: Number = 0
    """Between its start and the trained weights."""
    as_at_start: bool = False
    """Whether, when it was first evaluated, it equalled the trained weights from before their first step, bit for bit."""
    trained_before: Number = 0
    """How far the trained weights had moved by then."""
    line: Line = None
    """That evaluates it."""
    update_line: Line = None
    """The line that averages parameters."""


class LoadedOver(Record, frozen=True):
    """A line that loads a state into a module which an optimizer has trained."""

    type: str = ""
    times: int = 0
    same: int = 0
    """How often the state was the same as the time before."""
    steps: list[int] = []
    """Steps of the optimizer until then."""
    set_back: bool = False
    """The last load gave the weights from before the first step, bit for bit, and the last evaluation was of these."""
    line: Line = None


class AnswerFact(Record, frozen=True):
    """What an experiment found in a step."""

    experiment: str = ""
    """Its name; "" where nothing could be asked of the step, and `why` says the reason."""
    question: str = ""
    step: int = 0
    healthy: bool | None = None
    """None: the step does not show it."""
    why: str = ""
    """In a few words: what was seen, or why it was not asked."""
    numbers: dict[str, Number] = {}
    names: list[str] = []
    """Values, parameters or ops that the answer is about."""
    line: Line = None
    module: str = ""
    op: str = ""
    part: str = ""
    """In which of several ways the answer is bad."""


# -- memory ----------------------------------------------------------------------------------------


class MemoryPart(Record, frozen=True):
    """Who holds memory at the peak, and how much."""

    use: str = ""
    """`parameters`, `gradients`, `optimizer`, `buffers`, `data`, `activations` (what forward passes have computed) or `workspace` (what
    backward passes and optimizers compute in between)."""
    bytes: int = 0
    tensors: int = 0
    module: str = ""
    type: str = ""
    line: Line = None


class MemoryStep(Record, frozen=True):
    """One observed step."""

    step: int = 0
    peak: int = 0
    left: int = 0
    """In use when it has ended."""


class MemoryPlace(Record, frozen=True):
    """What the training does at a point of a step: the op that took memory last."""

    phase: str = ""
    op: str = ""
    module: str = ""
    line: Line = None


class MemoryCourse(Record, frozen=True):
    """Memory over the step that has the peak. Lists have one entry per point, at most 400; points in between are left out, but never the
    lowest or the highest of their stretch."""

    step: int = 0
    length: int = 0
    """How many times the step takes memory or gives it back."""
    at: list[int] = []
    """Which of these times a point is, from 0 on."""
    peak: int = 0
    """The point that is the peak."""
    places: list[MemoryPlace] = []
    place: list[int] = []
    """Which of `places` a point is at."""
    uses: dict[str, list[int]] = {}
    """Bytes in use, by what they are for."""
    modules: dict[str, list[int]] = {}
    """Activations and workspace by the module that computed them, the largest at the peak first. `""`: other modules, and code outside modules."""


class KeeperFact(Record, frozen=True):
    """A variable of the program that keeps tensors from step to step."""

    name: str = ""
    bytes: int = 0
    """Bytes in use because of it."""
    tensors: int = 0
    graphs: int = 0
    """Tensors in it that have a graph, which holds all that their step has computed."""
    line: Line = None
    """The line that puts things into it."""


class MemoryFact(Record, frozen=True):
    """How much of a device's memory a step takes: bytes of tensors, as an allocator without fragmentation would count them. Measured by `tensonde check --memory`."""

    device: str = ""
    """The one that takes most; the host only where no other is used."""
    others: dict[str, int] = {}
    """Peaks of other devices."""
    peak: int = 0
    step: int = 0
    phase: str = ""
    op: str = ""
    module: str = ""
    line: Line = None
    """Which op takes the memory at the peak."""
    uses: dict[str, int] = {}
    parts: list[MemoryPart] = []
    """By module and use, the largest first; buffers, gradients and the like belong to no module."""
    lines: list[MemoryPart] = []
    """Activations and workspace by line, the largest first."""
    steps: list[MemoryStep] = []
    course: MemoryCourse | None = None
    growth: int = 0
    """Bytes that every step leaves behind; 0: none."""
    keepers: list[KeeperFact] = []
    """The largest first."""
    batch: int = 0
    """Samples of a batch; 0: not known."""
    envelope: list[list[Number]] = []
    """With batches of b samples, the peak is the largest of `fixed + b * each` over these pairs. Empty: not known."""
    why: str = ""
    """Why the envelope is not known, or why nothing is."""


class Facts(Record, frozen=True):
    """All facts of one process."""

    schema: int = SCHEMA
    steps: int = 0
    """Steps so far."""
    compiled: bool = False
    """Whether `torch.compile` was used."""
    random: RandomFact = msgspec.field(default_factory=RandomFact)
    threads: int = 0
    """CPU threads."""
    dtype: str = ""
    """The default dtype."""
    optimizers: list[OptimizerFact] = []
    """In the order made."""
    by_hand: ByHandFact = msgspec.field(default_factory=ByHandFact)
    renewed: list[RenewedFact] = []
    schedulers: list[SchedulerFact] = []
    parameters: dict[str, ParameterFact] = {}
    modules: dict[str, ModuleFact] = {}
    repeated: list[RepeatedFact] = []
    roots: dict[str, RootFact] = {}
    loaders: list[LoaderFact] = []
    sequence: SequenceFact = msgspec.field(default_factory=SequenceFact)
    clipping: ClippingFact = msgspec.field(default_factory=ClippingFact)
    batches: BatchesFact = msgspec.field(default_factory=BatchesFact)
    scales: dict[str, ScaleFact] = {}
    """By root."""
    tokens: list[TokensFact] = []
    frozen_norms: list[FrozenNorms] = []
    untouched_norms: list[UntouchedNorms] = []
    graphs: GraphsFact = msgspec.field(default_factory=GraphsFact)
    without_grad: dict[str, WithoutGrad] = {}
    """By module, in the first step."""
    reached: list[str] = []
    """Parameters that the loss leads to, by autograd, in the first three backward passes."""
    leaf_loss: Line = None
    """Where a loss is made that has no history."""
    beside_loss: BesideLoss | None = None
    strangers: list[StrangerFact] = []
    freezes: Line = None
    """The line that turns `requires_grad` off, if there is only one."""
    train_call: Line = None
    """The line that calls `train()`, if there is only one."""
    loaded_itself: list[LoadedItself] = []
    loads_unmatched: list[UnmatchedLoad] = []
    unfilled: list[UnfilledFact] = []
    emptied: list[EmptiedFact] = []
    loads_filtered: list[FilteredLoad] = []
    refilled: list[RefilledFact] = []
    resumed: list[ResumedFact] = []
    careless_functions: list[CarelessFunction] = []
    divisions: list[DivisionFact] = []
    rates_set: list[RateSet] = []
    mirrored: list[MirroredFact] = []
    orders_apart: OrdersApart | None = None
    noise: list[NoiseFact] = []
    copies: list[CopyFact] = []
    loaded_over: list[LoadedOver] = []
    answers: list[AnswerFact] = []
    """Of experiments, in the order asked."""
    made_in_forward: list[MadeInForward] = []
    collectives: list[CollectiveFact] = []
    replicas: list[ReplicaFact] = []
    stages: StagesFact = msgspec.field(default_factory=StagesFact)
    evaluated_weights: list[EvaluatedWeights] = []
    """Of a training with several ranks."""
    divided_by_ranks: list[int] = []
    """Lines of the files of the optimizers' backward passes that divide by the number of ranks, as their text says."""
    beginning: BeginningFact = msgspec.field(default_factory=BeginningFact)
    course: CourseFact = msgspec.field(default_factory=CourseFact)
    hooks: list[HookFact] = []
    memory: MemoryFact | None = None


def upgraded(document: Mapping[str, Any]) -> dict[str, Any]:
    """A document of any schema as one of this schema.

    Schema 1 had the line of an optimizer twice, as `made` and as `source`.
    """
    found = {name: value for name, value in document.items() if value is not None}
    if found.get("schema", 1) == 1:
        made = found.get("optimizers")
        if isinstance(made, list):
            found["optimizers"] = [_one_line(one) if isinstance(one, dict) else one for one in made]
        found["schema"] = SCHEMA
    return found


def _one_line(optimizer: dict[str, Any]) -> dict[str, Any]:
    rest = {name: value for name, value in optimizer.items() if name != "source"}
    return {**rest, "made": optimizer.get("made") or optimizer.get("source")}


def facts_in(document: Mapping[str, Any]) -> tuple[Facts, list[Exception]]:
    """The facts, and why some could not be understood: these have their defaults. One damaged key does not cost the others."""
    known = upgraded(document)
    found: dict[str, Any] = {}
    problems: list[Exception] = []
    for field in msgspec.structs.fields(Facts):
        if field.name in known:
            try:
                found[field.name] = msgspec.convert(known[field.name], field.type)
            except msgspec.ValidationError as problem:
                problems.append(ValueError(f"{field.name}: {problem}"))
    return Facts(**found), problems
