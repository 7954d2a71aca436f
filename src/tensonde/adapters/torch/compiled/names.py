"""What a node of an ATen graph is called: by module path, op of the function API and source line, as in eager mode.

The compiler takes `softmax` apart into `amax`, `sub`, `exp`, `sum`, `div`. The last of them gives what softmax gives
and has its name, `blocks.3.attn/softmax#0:out`; the others are `blocks.3.attn/softmax-exp#0:out`. What the backward pass
computes for it is `blocks.3.attn/softmax-mul#0:grad_in`. The last node inside a module is also the module's own output.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch.fx import GraphModule, Node

from tensonde.model.site import Role, SourceLine
from tensonde.program.frames import LIBRARY, USER, owner_of_file
from tensonde.program.lines import source_line

_ROOT = re.compile(r"^[LG]\['([^']*)'\]")
_FRAME = re.compile(r'^\s*File "([^"]+)", line (\d+), in ', re.MULTILINE)
_NUMBERED = re.compile(r"_\d+$")

Known = Callable[[int], str | None]
"""The name of a module that was met already, by its id."""
Owner = Callable[[str], str]
"""From the variable that holds a root (`self`, `model`) to what starts the names of its parts ("" or ending in a dot)."""


@dataclass(frozen=True, slots=True)
class NodeName:
    """`name` is the site's, without the role. `whole`: the node gives what its op of the function API gives."""

    name: str
    role: Role
    op: str
    aten: str
    module: str
    module_type: str
    source: SourceLine | None
    whole: bool
    modules: tuple[tuple[str, str], ...] = ()
    """Path and type of the modules whose output this is."""

    @property
    def address(self) -> str:
        return f"{self.name}:{self.role}"


class Names:
    """The names of one compiled region: its forward and its backward graph share the numbering."""

    def __init__(self, owner: Owner, own: Owner, known: Known = lambda _: None, home: str = "") -> None:
        """`own` names a root itself. `known` goes first: after a graph break, `self` may be any module, and then it is `home`."""
        self._owner = owner
        self._own = own
        self._known = known
        self._home = home
        self._keys: dict[tuple[str, str], str] = {}
        self._numbers: dict[tuple[str, str], int] = {}
        self._next: Counter[tuple[str, str]] = Counter()
        self.modules: dict[str, str] = {}
        """Path and type of every module that was met."""

    def of(self, gm: GraphModule, *, backward: bool, returned: slice = slice(None)) -> dict[Node, NodeName]:
        """The name of every node that computes something. `returned`: which outputs the program itself asked for."""
        (out,) = (node for node in gm.graph.nodes if node.op == "output")
        asked = frozenset(node for node in out.args[0][returned] if isinstance(node, Node))
        nodes = [node for node in gm.graph.nodes if node.op == "call_function"]
        last: dict[tuple[str, str], Node] = {}
        left: dict[str, tuple[Node, str]] = {}
        for node in () if backward else nodes:
            if _side_result(node):
                continue
            whose = self._call(node)
            if whose not in last or node in asked or any(self._call(user) != whose for user in _readers(node)):
                last[whose] = node
            for path, kind in self._stack(node):
                if path not in left or node in asked or any(path not in dict(self._stack(u)) for u in _readers(node)):
                    left[path] = (node, kind)
        outputs: defaultdict[Node, list[tuple[str, str]]] = defaultdict(list)
        for path, (node, kind) in left.items():
            outputs[node].append((path, kind))
        repeated: Counter[tuple[str, str, str]] = Counter()
        made = {}
        for node in nodes:
            module, call = key = self._call(node)
            stack = self._stack(node)
            op, aten = _NUMBERED.sub("", call).removesuffix("_default"), aten_name(node)
            whole = last.get(key) is node
            number = self._number(module, call, op)
            role = Role.GRAD_IN if backward and not _recomputed(node) else Role.OUT
            if whole or op == aten:
                text = op
            else:
                text = f"{op}-{aten}"
            again = repeated[module, call, f"{text}{role}"]
            repeated[module, call, f"{text}{role}"] += 1
            suffix = f"_{again}" if again and not whole else ""
            made[node] = NodeName(
                f"{module}/{text}{suffix}#{number}", role, op, aten, module, stack[-1][1] if stack else "",
                source_of(node), whole, tuple(outputs.get(node, ())),
            )  # fmt: skip
        return made

    def _number(self, module: str, call: str, op: str) -> int:
        key = (module, call)
        if key not in self._numbers:
            self._numbers[key] = self._next[module, op]
            self._next[module, op] += 1
        return self._numbers[key]

    def _call(self, node: Node) -> tuple[str, str]:
        """The module and the call of the function API that a node belongs to."""
        stack = self._stack(node)
        made = node.meta.get("source_fn_stack") or node.meta.get("fwd_source_fn_stack")
        call = str(made[-1][0]) if made else aten_name(node)
        return (stack[-1][0] if stack else self._home), call

    def _stack(self, node: Node) -> list[tuple[str, str]]:
        stack = [(name, kind) for _, name, kind in self.calls(node)]
        self.modules.update(stack)
        return stack

    def calls(self, node: Node) -> list[tuple[str, str, str]]:
        """The calls of modules around a node, outermost first: what tells the call from others, the module's path and type."""
        held = node.meta.get("nn_module_stack") or node.meta.get("fwd_nn_module_stack") or {}
        return [
            (str(key), self._named(str(key), str(path)), getattr(kind, "__name__", str(kind).rpartition(".")[2]))
            for key, (path, kind) in held.items()
        ]

    def member(self, path: str, name: str) -> str:
        """A parameter or a buffer of the module that Dynamo knows as `path`."""
        found = _ROOT.match(path)
        if found is not None and found.end() == len(path.replace("._orig_mod", "")):
            return self._owner(found.group(1)) + name
        return f"{self._path(path)}.{name}"

    def _named(self, key: str, path: str) -> str:
        """Dynamo's key is the module's id, with the number of the call after an @."""
        if (key, path) not in self._keys:
            number = key.partition("@")[0]
            known = self._known(int(number)) if number.isdecimal() else None
            self._keys[key, path] = known if known is not None else self._path(path)
        return self._keys[key, path]

    def _path(self, path: str) -> str:
        """`L['self'].blocks.0.attn` as Tensonde calls it."""
        found = _ROOT.match(path)
        root = found.group(1) if found else ""
        rest = path[found.end() :] if found else f".{path}"
        rest = re.sub(r"\._modules\['([^']+)'\]", r".\1", rest)
        rest = re.sub(r"\['?([^'\]]+)'?\]", r".\1", rest).replace("._orig_mod", "").lstrip(".")
        return self._owner(root) + rest if rest else self._own(root)


def aten_name(node: Node) -> str:
    """`add` for `aten.add.Tensor`; for an item of several results, the op that gave them."""
    schema = getattr(node.target, "_schema", None)
    if schema is not None:
        return str(schema.name).rpartition("::")[2].strip("_")
    bare = str(getattr(node.target, "__name__", node.target))
    if bare.startswith(("auto_functionalized", "with_effects")):  # an op inside of another
        inner = next((arg for arg in node.args if hasattr(arg, "_schema")), None)
        return bare if inner is None else str(inner._schema.name).rpartition("::")[2].strip("_")
    if bare == "getitem" and isinstance(node.args[0], Node) and node.args[0].op == "call_function":
        return aten_name(node.args[0])
    return bare


def source_of(node: Node) -> SourceLine | None:
    """The innermost line of the user's own code in the node's stack trace; of a library where there is none."""
    frames = _FRAME.findall(node.meta.get("stack_trace") or "")
    for wanted in (USER, LIBRARY):
        for file, line in reversed(frames):
            if owner_of_file(file) == wanted:
                return source_line(file, int(line))
    return None


def _side_result(node: Node) -> bool:
    """One of several results and not the first: statistics, indices, what is kept for the backward pass."""
    return getattr(node.target, "__name__", "") == "getitem" and node.args[1] != 0 and aten_name(node) not in _PARTS


def _readers(node: Node) -> list[Node]:
    return [user for user in node.users if user.op == "call_function" and aten_name(user) != "copy_"]


_PARTS = frozenset({"unbind", "split", "split_with_sizes", "chunk"})


def _recomputed(node: Node) -> bool:
    """Of the forward pass, run again in the backward graph rather than kept."""
    tag: Any = node.meta.get("partitioner_tag")
    return tag == "is_forward" if tag else bool(node.meta.get("nn_module_stack"))
