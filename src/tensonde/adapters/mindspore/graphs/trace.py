"""A compiled step as a trace: the kernels of the exported graph, with their cells, lines and the values that MindSpore dumped."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

import numpy as np
from mindspore import nn

from tensonde.adapters.mindspore.graphs.ir import Node, read_graph
from tensonde.adapters.mindspore.graphs.taps import TAPS
from tensonde.adapters.mindspore.tracing.measure import Measure
from tensonde.adapters.mindspore.tracing.names import primitive
from tensonde.model.moment import Phase
from tensonde.model.site import SourceLine
from tensonde.model.trace import OpRecord, TensorFact, Trace
from tensonde.program.frames import is_user_file
from tensonde.program.lines import source_line

MOST_OPS = 20_000
_NO_OPS = frozenset({"TupleGetItem", "MakeTuple", "Return", "Depend", "UpdateState", "Load", "Partial", "Switch"})
"""They compute nothing; edges go through them."""

Parts = tuple[tuple[str, str], ...]
"""The cells around a kernel, from the outside in: attribute and type of each."""


def trace_of(folder: Path, step: int, parameters: Collection[str]) -> Trace | None:
    """`folder` is what a dump wrote. None: there is no graph in it. Raises ValueError and OSError for files that cannot be read."""
    nodes = [node for file in sorted(folder.rglob("graphs/*.pb")) for node in read_graph(file)]
    if not nodes:
        return None
    ops = tuple(_records(nodes, _dumped(folder), parameters))
    return Trace(step, "inspect", ops, notes=("what MindSpore compiled, kernel by kernel",))


def _records(nodes: Sequence[Node], values: dict[str, list[Path]], parameters: Collection[str]) -> Iterator[OpRecord]:
    measure, counts = Measure(), defaultdict[str, Counter[str]](Counter)
    wrapped = wrappers([_parts(node.scope) for node in nodes], parameters)
    through = {node.name: node.inputs[0] for node in nodes if _passes_on(node) and node.inputs}
    given: dict[str, TensorFact] = {}
    number = 0
    for index, node in enumerate([node for node in nodes if not _passes_on(node)][:MOST_OPS]):
        path, kind = _module(_parts(node.scope), wrapped)
        op = primitive(node.op)
        outputs = []
        for file in values.get(node.full.replace("/", "_"), ()):
            array = np.load(file)
            outputs.append(TensorFact(number, array.shape, array.dtype.name, False, "", index, measure(array)))
            number += 1
        inputs = []
        for name in node.inputs:
            while name in through:
                name = through[name]
            if name in given:
                inputs.append(given[name])
        if outputs:
            given[node.name] = outputs[0]
        yield OpRecord(
            index, op, f"{path}/{op}#{counts[path][op]}", path, kind, _line(node), tuple(inputs), tuple(outputs),
            phase=_phase(node),
        )  # fmt: skip
        counts[path][op] += 1


def _passes_on(node: Node) -> bool:
    """It computes nothing, or is a tap of Tensonde's."""
    return node.op in _NO_OPS or (node.op == "Custom" and any(file == TAPS for file, _ in node.lines))


def _dumped(folder: Path) -> dict[str, list[Path]]:
    """Files with outputs, by the kernel's name with `_` for `/`: `MatMul.Default_fc1-Dense_MatMul-op0.0.0.TIME.output.0.FORMAT.TYPE.npy`."""
    found: dict[str, list[Path]] = {}
    for path in sorted(folder.rglob("*.output.*.npy"), key=lambda path: path.name.partition(".output.")[2]):
        words = path.name.partition(".output.")[0].split(".")
        found.setdefault(".".join(words[1:-3]), []).append(path)
    return found


# -- cells -----------------------------------------------------------------------------------------


def _parts(scope: str) -> Parts:
    """`Default/network-WithLossCell/_backbone-Net/fc1-Dense`, without its first word; what the backward pass adds does not count."""
    words = [word.partition("-") for word in scope.split("/") if "-" in word]
    return tuple((name, kind) for name, _, kind in words)


def wrappers(scopes: Sequence[Parts], parameters: Collection[str]) -> set[Parts]:
    """What stands around the model (`network-WithLossCell/_backbone-Net`): what is left over of the path of a cell with parameters."""
    owners = {name.rpartition(".")[0] for name in parameters}
    found = set()
    for parts in set(scopes):
        for k in range(len(parts)):
            if ".".join(name for name, _ in parts[k:]) in owners:
                found.add(parts[:k])
                break
    return found


def _module(parts: Parts, wrapped: Collection[Parts]) -> tuple[str, str]:
    """Path and type of a cell."""
    around = max((prefix for prefix in wrapped if parts[: len(prefix)] == prefix), key=len, default=())
    inside = parts[len(around) :]
    return ".".join(name for name, _ in inside), parts[-1][1] if parts else ""


def _phase(node: Node) -> Phase:
    if node.scope.startswith("Gradients"):
        return Phase.BACKWARD
    kinds = [getattr(nn, kind, None) for _, kind in _parts(node.scope)]
    inside = any(isinstance(kind, type) and issubclass(kind, nn.Optimizer) for kind in kinds)
    return Phase.OPTIMIZER if inside else Phase.FORWARD


def _line(node: Node) -> SourceLine | None:
    return next((source_line(file, number) for file, number in node.lines if is_user_file(file)), None)
