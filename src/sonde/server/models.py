"""What the API answers and takes. The OpenAPI document and the browser's types are generated from here.

Numbers that JSON cannot hold are the strings "NaN", "Infinity" and "-Infinity".
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

Number = float | Literal["NaN", "Infinity", "-Infinity"]
Health = Literal["ok", "warn", "bad", "none"]
Action = Literal["report", "stop", "pause"]


class Model(BaseModel):
    model_config = ConfigDict(populate_by_name=True)


class Problem(Model):
    """One sentence that says what to do."""

    error: str


class Version(Model):
    sonde: str


class Source(Model):
    file: str
    line: int
    code: str = ""


class Hit(Model):
    """`ord` is its place in the execution order of the rank."""

    ord: int
    watchpoint: int
    site: str
    step: int
    phase: str
    call: int
    condition: str
    preset: dict[str, Number] = {}
    actual: dict[str, Number] = {}
    source: Source | None = None


class Stop(Model):
    """One pause of the training. `site` is an address, `modules` the stack of module names, outermost first."""

    reason: str
    step: int
    phase: str
    call: int = 0
    site: str | None = None
    source: Source | None = None
    modules: list[str] = []
    hits: list[Hit] = []
    breakpoint: int | None = None


class RankState(Model):
    """`connected`: an agent speaks for it now. `dropped` counts live digests that were left out, never hits."""

    name: str
    rank: int
    live: bool
    connected: bool = False
    state: Literal["running", "stopped", "finished", "killed", "lost"]
    stop: Stop | None = None
    step: int = 0
    steps: int | None = None
    epoch: int | None = None
    phase: str | None = None
    steps_per_second: float | None = None
    overhead: float | None = None
    budget: float | None = None
    device: str | None = None
    framework: str | None = None
    host: str | None = None
    pid: int | None = None
    hits: int = 0
    findings: int = 0
    dropped: int = 0
    last_step_at: str | None = None
    capabilities: list[str] = []


class Run(Model):
    id: str
    name: str
    script: str | None = None
    framework: str | None = None
    started: str | None = None
    state: Literal["live", "finished", "killed", "empty"]
    path: str | None = None
    ranks: list[RankState] = []


class Site(Model):
    id: int
    address: str
    name: str
    role: str
    kind: str
    index: int | None = None
    type: str = ""
    trainable: bool | None = None
    shape: list[int] = []
    dtype: str = ""
    source: Source | None = None


class GraphSource(Model):
    id: str
    label: str


class GraphNodes(Model):
    """Columns. `scope` is an index into the scopes, -1 for none; `site` the address of the node's first output.

    `health` is that of what it gave in this trace, bad where that has NaN or Inf, none where the trace does not tell.
    """

    name: list[str]
    kind: list[str]
    type: list[str]
    scope: list[int]
    source: list[str | None]
    phase: list[str]
    op: list[str]
    site: list[str | None]
    health: list[Health] = []


class GraphEdges(Model):
    from_: list[int] = Field(alias="from")
    to: list[int]


class GraphScopes(Model):
    name: list[str]
    type: list[str]
    parent: list[int]


class Graph(Model):
    source: str
    step: int | None = None
    sources: list[GraphSource]
    nodes: GraphNodes
    edges: GraphEdges
    scopes: GraphScopes


class Status(Model):
    """The latest digest of each site at or before `step`."""

    step: int
    sites: list[int]
    value: list[Number]
    status: list[Health]


class Digests(Model):
    site: str
    step: list[int]
    call: list[int]
    phase: list[str]
    fields: dict[str, list[Number]]
    thinned: bool


class Latest(Model):
    address: str
    step: int
    call: int
    phase: str
    digest: dict[str, Number]


class Histograms(Model):
    """Magnitudes over time: `edges` has one number more than there are counts in a row."""

    site: str
    step: list[int]
    edges: list[Number]
    counts: list[list[int]]


class Divergence(Model):
    """The first place where inputs agree and outputs do not; `site` of A, `other_site` of B."""

    site: str
    other_site: str
    step: int
    phase: str
    role: str
    why: str
    evidence: dict[str, Any] = {}
    source: Source | None = None
    other_source: Source | None = None


class DifferingSetting(Model):
    what: str
    a: Any = None
    b: Any = None


class Unmatched(Model):
    a: list[str]
    b: list[str]


class ComparedGraphs(Model):
    """The `source` of each side's graph that shows the compared step."""

    a: str
    b: str


class Differences(Model):
    """By column, in the order of execution of A. `a` and `b` are addresses, None where the other run has no such tensor."""

    a: list[str | None]
    b: list[str | None]
    phase: list[str]
    status: list[Literal["equal", "rounding", "different", "origin", "unmatched"]]
    rel_l2: list[Number | None]
    max_abs: list[Number | None]
    cosine: list[Number | None]


class Comparison(Model):
    """As `sonde compare --json`, and how the difference spreads in `step`."""

    verdict: Literal["equivalent", "divergent"]
    judgement: Literal["data", "init", "forward", "backward", "optimizer", "none"]
    a: str
    b: str
    first: Divergence | None = None
    settings: list[DifferingSetting]
    losses: dict[str, Any]
    unmatched: Unmatched
    coverage: dict[str, Any]
    renamed: dict[str, str]
    notes: list[str]
    step: int
    graphs: ComparedGraphs
    differences: Differences


class ScalarNames(Model):
    names: list[str]


class Scalars(Model):
    name: str
    step: list[int]
    value: list[Number]
    thinned: bool = False


class Hits(Model):
    hits: list[Hit]
    total: int


class Finding(Model):
    """As in the report."""

    rule: str
    severity: Literal["error", "warning", "info"]
    title: str
    advice: str
    step: int | None = None
    phase: str | None = None
    rank: int = 0
    site: str | None = None
    op: str | None = None
    source: Source | None = None
    evidence: dict[str, Any] = {}
    confidence: float = 1.0
    caused_by: int | None = None


class Event(Model):
    model_config = ConfigDict(extra="allow")
    ord: int
    kind: str
    time: str = ""


class Events(Model):
    events: list[Event]
    total: int


class Excerpt(Model):
    """Lines of a source file, from `first` on."""

    file: str
    first: int
    lines: list[str]
    line: int


class Port(Model):
    """A tensor that goes into or comes out of a node. `from` is the node that made it."""

    address: str | None = None
    shape: list[int] = []
    dtype: str = ""
    digest: dict[str, Number] | None = None
    from_: str | None = Field(default=None, alias="from")


class Node(Model):
    name: str
    kind: str
    type: str
    module: str = ""
    source: Source | None = None
    training: bool | None = None
    step: int | None = None
    arguments: dict[str, Any] = {}
    inputs: list[Port] = []
    outputs: list[Port] = []
    parameters: list[Port] = []
    before: list[str] = []
    after: list[str] = []


class Settings(Model):
    optimizers: list[dict[str, Any]]
    modules: list[dict[str, Any]]


class Against(Model):
    """The same part of another tensor, and how the two differ over that part."""

    label: str
    values: list[list[Number]]
    difference: list[list[Number]]
    max_abs: Number
    rel_l2: Number
    cosine: Number
    equal: bool


class Tile(Model):
    """A part of a tensor, as rows and columns of the two free dimensions of `index`.

    For an overview, `rows` and `cols` span the whole, `values` hold the largest magnitude of each patch with its sign, and `stride` says
    how many elements a patch covers each way. `min` and `max` are of the whole selected plane as far as it was looked at.
    """

    address: str
    step: int | None
    shape: list[int]
    dtype: str
    index: str
    rows: tuple[int, int]
    cols: tuple[int, int]
    stride: tuple[int, int] = (1, 1)
    plane: tuple[int, int] = (1, 1)
    values: list[list[Number]]
    digest: dict[str, Number] | None = None
    min: Number | None = None
    max: Number | None = None
    note: str = ""
    against: Against | None = None
    steps: list[int] = []


class TensorHistogram(Model):
    edges: list[Number]
    counts: list[int]
    nan: int
    pos_inf: int
    neg_inf: int
    sampled: bool = False


class TensorAtHand(Model):
    address: str
    steps: list[int]
    live: bool
    shape: list[int] = []
    dtype: str = ""


class Control(Model):
    """`count` is for step, `sites` for until."""

    action: Literal["continue", "pause", "step", "next", "nextop", "until", "finish", "terminate"]
    count: int = Field(default=1, ge=1)
    sites: str = ""


class Accepted(Model):
    accepted: bool
    state: str


class NewWatchpoint(Model):
    sites: str = Field(max_length=500)
    condition: str = Field(max_length=2000)
    action: Action = "report"


class ChangedWatchpoint(Model):
    sites: str | None = Field(default=None, max_length=500)
    condition: str | None = Field(default=None, max_length=2000)
    action: Action | None = None
    enabled: bool | None = None


class Watchpoint(Model):
    """`matches` counts the sites it watches, `hits` what it has reported."""

    id: int
    sites: str
    condition: str
    action: Action
    origin: str
    enabled: bool = True
    hits: int = 0
    matches: int = 0


class Recheck(Model):
    """A condition on sites, or the number of a watchpoint; nothing: all watchpoints."""

    sites: str | None = Field(default=None, max_length=500)
    condition: str | None = Field(default=None, max_length=2000)
    id: int | None = None


class Rechecked(Model):
    hits: list[Hit]
    checked: int


class MatchRequest(Model):
    pattern: str = Field(max_length=2000)


class Match(Model):
    count: int
    sites: list[str]


class Parameter(Model):
    name: str
    default: float | None = None
    meaning: str
    choices: list[str] = []


class Condition(Model):
    name: str
    parameters: list[Parameter]
    fits: list[str]
    help: str
    example: str


class FieldMeaning(Model):
    name: str
    meaning: str


class Conditions(Model):
    conditions: list[Condition]
    fields: list[FieldMeaning]


class NewBreakpoint(Model):
    """At sites (a pattern), or at a line of a file."""

    sites: str = Field(default="", max_length=500)
    file: str = Field(default="", max_length=4096)
    line: int = 0
    condition: str = Field(default="", max_length=2000)
    once: bool = False


class Breakpoint(Model):
    id: int
    sites: str = ""
    file: str = ""
    line: int = 0
    condition: str = ""
    once: bool = False
    hit_count: int = 0


class Command(Model):
    line: str = Field(max_length=10_000)


class Piece(Model):
    text: str
    style: str = ""


class Output(Model):
    """Lines of pieces. `resumed`: the command let the training run on. `prompt` is a question that the next line answers."""

    output: list[list[Piece]]
    resumed: bool
    prompt: str | None = None


class CompleteRequest(Model):
    text: str = Field(max_length=10_000)


class Completion(Model):
    """What may stand from `start` on."""

    start: int
    options: list[str]


class Assign(Model):
    address: str = Field(max_length=1000)
    index: str = Field(default="", max_length=200)
    value: Number


class Message(Model):
    message: str


class Subscription(Model):
    run: str
    rank: str


class LiveRequest(Model):
    """What a browser sends on /api/live."""

    subscribe: Subscription | None = None
    unsubscribe: Subscription | None = None


class LiveMessage(Model):
    """What the hub sends on /api/live: one JSON text frame each, told apart by `type`."""

    model_config = ConfigDict(extra="allow")
    type: Literal["runs", "state", "stop", "hit", "finding", "event", "digests", "scalars", "sites", "lagged", "error"]
    run: str | None = None
    rank: str | None = None
    runs: list[Run] | None = None
    state: RankState | None = None
    stop: Stop | None = None
    hit: Hit | None = None
    finding: Finding | None = None
    event: Event | None = None
    step: int | None = None
    sites: list[int] | None = None
    status: list[Health] | None = None
    absmax: list[Number] | None = None
    norm: list[Number] | None = None
    dropped: int | None = None
    values: dict[str, Number] | None = None
    count: int | None = None
