"""Encodings that a program makes anew for each of its data sets.

A class or a function that numbers words, classes or categories by what it is given (`{word: k for k, word in enumerate(sorted(set(words)))}`), and that is called for the training's data and again for
those of an evaluation, gives the same word two numbers. So does a scaler or an encoder that is fitted twice. The text alone is no proof: both may hold the same words.
"""

from __future__ import annotations

import ast
from functools import lru_cache

from tensonde.program.syntax import called, parse, spelled, statements

_FITTING = frozenset(("fit_transform", "factorize", "fit_on_texts", "build_vocab_from_iterator"))
_NUMBERING = frozenset(("enumerate", "count"))
_ORDERING = frozenset(("set", "sorted", "list", "dict", "fromkeys", "unique", "Counter"))


@lru_cache(maxsize=4)
def made_for_each(path: str) -> int | None:
    """The line that numbers, or fits, by data that are others in each of several calls."""
    tree = parse(path)
    if tree is None:
        return None
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    functions: list[tuple[str, ast.FunctionDef]] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            functions += [(node.name, m) for m in node.body if isinstance(m, ast.FunctionDef) and m.name == "__init__"]
        elif isinstance(node, ast.FunctionDef) and node.name != "__init__":
            functions.append((node.name, node))
    for name, function in functions:
        given = {ast.unparse(call.args[0]) for call in calls if called(call) == name and call.args}
        line = _numbered(function) if len(given) > 1 else None
        if line is not None:
            return line
    return _fitted_again(calls)


def _numbered(function: ast.FunctionDef) -> int | None:
    """Where it makes a dictionary of numbers, counted up, of something that comes of what it is given."""
    known = {argument.arg for argument in function.args.args if argument.arg != "self"}
    for node in statements(function):
        if not isinstance(node, ast.Assign):
            continue
        if _names(node.value) & known:
            known |= {spelled(target).split(".")[-1] for target in node.targets}
            numbering = any(isinstance(n, ast.Call) and called(n) in _NUMBERING for n in ast.walk(node.value))
            if isinstance(node.value, ast.DictComp) and numbering and _looked_up(function, node):
                return _first(function, node)
    return None


def _first(function: ast.FunctionDef, made: ast.Assign) -> int:
    """Where the words are gathered, if that has a line of its own; else where they are numbered."""
    used = _names(made.value)
    for node in statements(function):
        before = (
            node.lineno < made.lineno and isinstance(node, ast.Assign) and {spelled(t) for t in node.targets} & used
        )
        if before and any(isinstance(n, ast.Call) and called(n) in _ORDERING for n in ast.walk(node)):
            return node.lineno
    return made.lineno


def _looked_up(function: ast.FunctionDef, made: ast.Assign) -> bool:
    """It stays with the object, or is used right here; one that is only handed out may be handed on."""
    names = {spelled(target) for target in made.targets}
    if any(name.startswith("self.") for name in names):
        return True
    looked = [n.value for n in ast.walk(function) if isinstance(n, ast.Subscript)]
    looked += [
        n.func.value
        for n in ast.walk(function)
        if isinstance(n, ast.Call) and isinstance(n.func, ast.Attribute) and n.func.attr == "get"
    ]
    given = [n.value for n in ast.walk(function) if isinstance(n, ast.Return) and n.value is not None]
    parts = [part for value in given for part in (value.elts if isinstance(value, ast.Tuple) else [value])]
    returned = {spelled(part) for part in parts if isinstance(part, ast.Name)}
    return any(spelled(node) in names for node in looked) and not names & returned


def _fitted_again(calls: list[ast.Call]) -> int | None:
    """A second call that fits, of other data than the first."""
    fitting = sorted((call for call in calls if called(call) in _FITTING and call.args), key=lambda call: call.lineno)
    for k, call in enumerate(fitting):
        for earlier in fitting[:k]:
            if ast.unparse(call.func) == ast.unparse(earlier.func) and ast.unparse(call.args[0]) != ast.unparse(
                earlier.args[0]
            ):
                return call.lineno
    return None


def _names(node: ast.AST) -> set[str]:
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name)} | {
        n.attr for n in ast.walk(node) if isinstance(n, ast.Attribute)
    }
