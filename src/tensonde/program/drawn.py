"""Whether a variable holds nothing but random numbers, by what the program's text says about it.

A benchmark trains on `torch.randint(0, 10, (32,))` as labels, often by way of a loader or a function. Nothing of the program is run;
where the way back cannot be read, the answer is no.
"""

from __future__ import annotations

import ast

from tensonde.program.syntax import bindings, class_named, function_named, method, parse, scope_at, statements

_DEPTH = 24
_DRAWS = frozenset((
    "rand", "randn", "randint", "randperm", "rand_like", "randn_like", "randint_like", "bernoulli", "multinomial", "random",
    "normal", "uniform", "standard_normal", "integers", "choice", "random_sample", "randrange", "getrandbits", "random_",
    "normal_", "uniform_", "bernoulli_",
))  # fmt: skip
_KEEPS = frozenset((
    "to", "cuda", "cpu", "long", "int", "float", "double", "half", "bool", "view", "reshape", "squeeze", "unsqueeze",
    "flatten", "contiguous", "clone", "detach", "numpy", "astype", "tolist", "type", "tensor", "as_tensor", "from_numpy",
    "array", "asarray", "stack", "cat", "concatenate", "cycle", "iter", "next", "tqdm", "list", "tuple", "DataLoader",
    "Subset", "random_split", "LongTensor", "FloatTensor", "split", "chunk", "prefetch", "shuffle", "repeat", "abs", "round",
    "item",
))  # fmt: skip
"""What these give holds what they are given first."""
Where = tuple[int, ...]
"""Which part of a value: of a batch, a sample or a tuple."""


def is_drawn(path: str, name: str, line: int) -> bool:
    """What the variable holds on that line of the file."""
    scope = scope_at(path, line)
    return scope is not None and _Way(path).name(name, scope, line, (), _DEPTH)


def generator_of(path: str, value: ast.expr, line: int) -> int:
    """The line that makes the generator which an expression draws from (`torch.randn(8, generator=g)`); 0 where it names none."""
    given = [
        word.value
        for node in ast.walk(value)
        if isinstance(node, ast.Call)
        for word in node.keywords
        if word.arg == "generator" and isinstance(word.value, ast.Name)
    ]
    scope = scope_at(path, line)
    if not given or scope is None:
        return 0
    return max((one.line for one in bindings(scope, given[0].id) if one.line <= line), default=0)


class _Way:
    def __init__(self, path: str) -> None:
        self._path = path

    def name(self, name: str, scope: ast.AST, line: int, where: Where, depth: int) -> bool:
        found = [b for b in bindings(scope, name) if b.line <= line and not b.augmented]
        if found:
            last = found[-1]
            return self.value(last.value, scope, last.line - (not last.loop), (*last.path, *where), depth)
        tree = parse(self._path)
        return tree is not None and tree is not scope and self.name(name, tree, 1 << 30, where, depth)

    def value(self, node: ast.expr, scope: ast.AST, line: int, where: Where, depth: int) -> bool:
        if depth == 0:
            return False

        def again(part: ast.expr, at: Where = where) -> bool:
            return self.value(part, scope, line, at, depth - 1)

        match node:
            case ast.Name(id=name):
                return self.name(name, scope, line, where, depth - 1)
            case ast.Tuple(elts=parts) | ast.List(elts=parts):
                return again(parts[where[0]], where[1:]) if where and where[0] < len(parts) else False
            case ast.ListComp(elt=part) | ast.GeneratorExp(elt=part):
                return again(part)
            case ast.Subscript(value=part, slice=index) if not isinstance(
                index, ast.Tuple
            ):  # rows; a column may be of the inputs
                return again(part)
            case ast.Attribute(value=ast.Name(id="self"), attr=attribute):
                return self._attribute(attribute, line, where, depth - 1)
            case (
                ast.Compare(left=ast.Call() as part, comparators=[ast.Constant()])
                | ast.BinOp(left=ast.Call() as part, right=ast.Constant())
            ):
                return again(part)
            case ast.Call(func=function, args=args):
                return self._called(function, args, scope, line, where, depth)
        return False

    def _called(
        self, function: ast.expr, args: list[ast.expr], scope: ast.AST, line: int, where: Where, depth: int
    ) -> bool:
        called = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
        if called in _DRAWS:
            return True
        if called in _KEEPS:
            first = args[0] if args and not self._is_method(function) else getattr(function, "value", None)
            return isinstance(first, ast.expr) and self.value(first, scope, line, where, depth - 1)
        if called == "enumerate" and args and where[:1] == (1,):
            return self.value(args[0], scope, line, where[1:], depth - 1)
        if called in ("TensorDataset", "zip") and where and where[0] < len(args):
            return self.value(args[where[0]], scope, line, where[1:], depth - 1)
        owner = class_named(self._path, called)
        inner = method(owner, "__getitem__") if owner is not None else function_named(self._path, called)
        if inner is None:
            return False
        given = [s.value for s in statements(inner) if isinstance(s, ast.Return) and s.value is not None]
        return bool(given) and all(self.value(one, inner, one.lineno, where, depth - 1) for one in given)

    def _is_method(self, function: ast.expr) -> bool:
        """`y.to(device)`, not `torch.stack(ys)`."""
        return (
            isinstance(function, ast.Attribute)
            and not (
                isinstance(function.value, ast.Name)
                and function.value.id in ("torch", "np", "numpy", "data", "itertools")
            )
            and not isinstance(function.value, ast.Attribute)
        )

    def _attribute(self, attribute: str, line: int, where: Where, depth: int) -> bool:
        """Of the class that the line stands in, as its methods set it."""
        tree = parse(self._path)
        for owner in (node for node in ast.walk(tree or ast.Module([], [])) if isinstance(node, ast.ClassDef)):
            if owner.lineno <= line <= (owner.end_lineno or 0):
                for part in owner.body:
                    found = bindings(part, f"self.{attribute}") if isinstance(part, ast.FunctionDef) else []
                    if found:
                        return self.value(found[-1].value, part, found[-1].line, (*found[-1].path, *where), depth)
        return False
