"""The user's Python is read as it is: files, notebook cells, frames, and the objects that they made."""

from __future__ import annotations

import ast
import gc
import inspect
import json
import linecache
import sys
from collections.abc import Iterator
from pathlib import Path
from threading import Thread
from types import ModuleType
from typing import Any

import pytest

import tensonde.program
from tensonde.model.site import SourceLine
from tensonde.program import classes, divisions, filters, habits, lines, origin, queries, reordering, syntax, writes
from tensonde.program.births import Births
from tensonde.program.excerpt import excerpt
from tensonde.program.frames import (
    FRAMEWORK,
    LIBRARY,
    USER,
    _frameworks,
    _owner,
    birth_place,
    owner_of_file,
    register,
    user_frame,
    user_line,
    user_place,
)
from tensonde.program.values import UNKNOWN, evaluate

CELL = "<ipython-input-7-0123abcd>"
SOURCE = """\
import types
torch = types.SimpleNamespace(no_grad=lambda: lambda function: function)
class Data:
    def __init__(self):
        self.images = load() / 255.0

    def __getitem__(self, i):
        'An item.'
        img = self.images[i]
        img -= 0.5
        return img, self.labels[i]

@torch.no_grad()
def evaluate(model, batch):
    return model(batch)

def train(model, data, ckpt, own):
    loader = DataLoader(data, batch_size=4)
    state = {k: v for k, v in ckpt.items() if k in own}
    model.load_state_dict(state)
    model.head.weight.data = model.emb.weight
    layers = [Layer(4)] * 3
    for p in model.parameters():
        p.requires_grad = False
    model.train()
    optimizer.defaults["lr"] = 0.1
    for a, b in zip(one.parameters(), other.parameters()):
        a.mul_(0.9)
    for x, y in loader:
        loss = loss_fn(model(x), y)
        total += loss
        loss.backward()
        x.copy_(y)
    for group in optimizer.param_groups:
        group["lr"] = 0.01
    x = x[torch.randperm(9)]
    y = y[torch.randperm(9)]
    return TensorDataset(x, y)
    for epoch in range(2):
        seen = []
        for row in rows:
            push(row, epoch, row)
def augment(x, y):
    if torch.rand(1) < 0.5:
        x = x.flip(-1)
    return x, y
def average(shadow, model):
    for name, value in model.state_dict().items():
        shadow[name] = 0.9 * shadow[name] + 0.1 * value
def report(model, correct):
    model.head.requires_grad_(True)
    accuracy = correct.float().mean()
    all_reduce(accuracy)
    print(accuracy)
def count(loader, world):
    hits, seen = 0, 0
    for x, y in loader:
        hits += same(x, y)
        seen += len(y)
    all_reduce(hits)
    return hits / seen
def mean(loss, world):
    return loss / world
def bucket(word):
    return hash(word) % 8
"""

ANSWERS: dict[tuple[str, tuple[Any, ...]], Any] = {
    ("queries.assignment", ("loss",)): 30,
    ("queries.attribute_assignment", ("images", 1, 99)): 5,
    ("queries.around_loop", (41,)): 40,
    ("queries.given_twice", (("row",),)): [42],
    ("queries.names_at", (20,)): {"state"},
    ("queries.products", (49,)): [("0.9", "shadow[name]"), ("0.1", "value")],
    ("queries.first_argument", (18, "DataLoader")): "data",
    ("queries.keyword_argument", (18, "DataLoader", "batch_size")): None,
    ("queries.target_name", (30,)): "y",
    ("queries.only_call", ("DataLoader",)): 18,
    ("queries.only_train_call", ()): 25,
    ("queries.no_grad_line", (15,)): 13,
    ("queries.evaluation_start", (15,)): 15,
    ("queries.first_statement", (7,)): 9,
    ("queries.backward_name", (32,)): "loss",
    ("queries.freezes", ()): [24],
    ("queries.data_assignment", ("head", "weight")): 21,
    ("queries.apart_from_training", (39,)): True,
    ("queries.accumulations", (29, 34)): [("total", 31)],
    ("habits.hyperparameter_set", ("defaults", "lr")): [26],
    ("habits.multiplied", (22,)): 22,
    ("habits.averaging_updates", ()): [27, 48],
    ("habits.loads_under_condition", ()): False,
    ("habits.writes_to", ("x",)): [33],
    ("habits.rates_set", ()): [(35, 0.01)],
    ("habits.mirrored_alone", ()): [(45, "x")],
    ("habits.turned_on", ()): [51],
    ("habits.remainders_of_hashes", ()): [65],
    ("divisions.undivided_mean", (53,)): True,
    ("divisions.by_own_count", (60,)): 61,
    ("divisions.divides_around", (60,)): True,
    ("divisions.divides_given", (60,)): True,
    ("divisions.divisions_by_ranks", ()): [63],
    ("divisions.large_divisions", ()): [(5, 255.0, "__init__")],
    ("filters.choices_at", (20,)): [(19, "ckpt")],
    ("filters.chosen", ("state", 20)): [(19, "ckpt")],
    ("writes.kept_writes", (7,)): [("images", 10)],
    ("writes.spoiled_later", (30,)): None,
    ("classes.returned_part", (7, 0)): 10,
    ("origin.argument_line", ("TensorDataset", 0)): {"file": CELL, "line": 36, "code": "x = x[torch.randperm(9)]"},
}


@pytest.fixture
def cell() -> Iterator[str]:
    """A notebook's cell: no file has its source."""
    linecache.cache[CELL] = (len(SOURCE), None, SOURCE.splitlines(keepends=True), CELL)
    syntax.parse.cache_clear()
    yield CELL
    del linecache.cache[CELL]


def _plain(answer: Any) -> Any:
    if isinstance(answer, Iterator):
        answer = list(answer)
    if isinstance(answer, list):
        return (
            [
                (first, ast.unparse(second)) if isinstance(second, ast.AST) else (first, second, *rest)
                for first, second, *rest in answer
            ]
            if answer and isinstance(answer[0], tuple)
            else answer
        )
    return answer


@pytest.mark.parametrize(("query", "given"), ANSWERS, ids=lambda value: value if isinstance(value, str) else "")
def test_a_notebook_cell_answers_as_a_file_does(cell: str, tmp_path: Path, query: str, given: tuple[Any, ...]) -> None:
    module, _, name = query.partition(".")
    ask = getattr(globals()[module], name)
    assert _plain(ask(cell, *given)) == ANSWERS[query, given]
    path = tmp_path / "cell.py"
    path.write_text(SOURCE)
    shown = json.loads(json.dumps(ANSWERS[query, given], default=sorted).replace(CELL, str(path)))
    assert json.loads(json.dumps(_plain(ask(str(path), *given)), default=sorted)) == shown


def test_every_query_that_takes_a_path_is_asked_above() -> None:
    modules: tuple[ModuleType, ...] = (queries, habits, divisions, filters, writes, classes, origin)
    taking = {
        f"{module.__name__.rpartition('.')[2]}.{name}"
        for module in modules
        for name, function in vars(module).items()
        if inspect.isroutine(inspect.unwrap(function))
        and getattr(function, "__module__", "") == module.__name__
        and not name.startswith("_")
        and next(iter(inspect.signature(function).parameters), "") == "path"
    }
    assert taking == {query for query, _ in ANSWERS}


def test_the_classes_of_a_notebook_are_read(cell: str) -> None:
    names: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(SOURCE, cell, "exec"), names)
    kind = names["Data"]
    assert classes.source_file(kind) == cell
    assert (classes.written_last(kind, "images") or {})["line"] == 5
    assert (classes.attribute_line(kind, "images") or {})["line"] == 5
    assert (classes.last_set(kind, "images") or {})["line"] == 5
    assert (classes.set_anywhere("images", [cell]) or {})["line"] == 5
    assert (classes.returned_uncopied(kind, "labels") or {})["line"] == 11
    assert [(classes.item_line(kind, part, object) or {})["line"] for part in (0, 1)] == [10, 11]
    function = syntax.function_of(names["evaluate"].__code__)
    assert function is not None
    assert function.lineno == 14
    assert (classes.returned_line(names["evaluate"], []) or {})["line"] == 15


def test_scopes_loops_and_pairs_of_a_notebook_are_read(cell: str) -> None:
    scope = syntax.scope_at(cell, 32)
    assert isinstance(scope, ast.FunctionDef)
    assert scope.name == "train"
    loop = syntax.loop_around(scope, 32)
    assert loop is not None
    assert (loop.lineno, loop.end_lineno) == (29, 33)
    assert syntax.loop_around(scope, 36) is None
    found = reordering.apart((cell,))
    assert found is not None
    assert (found["names"], found["line"]["line"], found["other"]["line"]) == (["x", "y"], 37, 36)
    assert excerpt(SourceLine(cell, 32, "loss.backward()"), 0) == [(32, "loss.backward()", True)]


def test_an_excerpt_of_a_file_that_changed_is_not_shown(tmp_path: Path) -> None:
    path = tmp_path / "x.py"
    path.write_text("a = 1\nif a:\n    b = 2\n")
    assert excerpt(SourceLine(str(path), 3, "b = 2")) == [(2, "if a:", False), (3, "    b = 2", True)]
    assert excerpt(SourceLine(str(path), 3, "b = 3")) == []
    assert excerpt(SourceLine(str(tmp_path / "gone.py"), 1, "a = 1")) == []


def test_a_loop_around_a_closure_counts() -> None:
    tree = ast.parse("for b in d:\n    def closure():\n        loss.backward()\n    o.step(closure)\n")
    loop = syntax.loop_around(tree, 3)
    assert loop is not None
    assert loop.end_lineno == 4


@pytest.mark.parametrize("line", [SourceLine("train.py", 3, "x = 1"), SourceLine("a/b.py", 1), None])
def test_a_line_comes_back_from_json(line: SourceLine | None) -> None:
    told = lines.to_json(line)
    assert lines.from_json(json.loads(json.dumps(told))) == line
    if line is not None:
        assert told == {"file": line.file, "line": line.line, "code": line.code}
        assert lines.from_text(str(line)) == SourceLine(line.file, line.line)


def test_no_line_is_made_of_nothing() -> None:
    assert lines.from_json({}) is None
    assert lines.from_text("nowhere") is None
    assert lines.line_of(None) is None
    with pytest.raises(KeyError):
        lines.from_json({"file": "x.py"})


def test_whose_code_a_frame_runs(tmp_path: Path) -> None:
    assert owner_of_file(__file__) == USER
    assert owner_of_file(CELL) == USER
    assert owner_of_file(json.__file__) == LIBRARY
    assert owner_of_file(pytest.__file__) == LIBRARY
    assert owner_of_file(lines.__file__) == FRAMEWORK
    assert owner_of_file("<frozen importlib._bootstrap>") == FRAMEWORK
    file = str(tmp_path / "ops" / "add.py")
    assert owner_of_file(file) == USER
    try:
        register("ops", str(tmp_path / "ops" / "__init__.py"))
        assert owner_of_file(file) == FRAMEWORK
    finally:
        _frameworks.pop("ops")
        _owner.clear()


class Thing:
    def __init__(self) -> None:
        self.made = user_place(sys._getframe(), making=self)
        self.inner = user_place(sys._getframe())


def test_the_users_frame_is_the_innermost_of_the_program() -> None:
    frame, line = user_frame(), user_line()
    assert frame is sys._getframe()
    assert line is not None
    assert line.code == "frame, line = user_frame(), user_line()"
    assert json.loads("[1]", object_hook=lambda _: user_frame()) == [1]
    thing = Thing()
    assert thing.made is not None
    assert thing.inner is not None
    assert thing.made[0] is sys._getframe().f_code
    assert thing.inner[0] is Thing.__init__.__code__


def test_births_are_known_as_long_as_their_objects() -> None:
    births = Births()
    first, second = Thing(), Thing()
    births.note(first, first.made)
    births.note(second, (json.loads.__code__, 1))
    assert births.place(first) == first.made
    assert (births.line(first) or {})["code"] == "first, second = Thing(), Thing()"
    assert births.place(second) is None
    assert births.anywhere(second) == (json.loads.__code__, 1)
    assert list(births) == [first, second]
    assert list(births.files) == [__file__]
    del first
    gc.collect()
    assert list(births) == [second]
    assert births.place(Thing()) is None


def test_an_object_that_a_library_made_has_the_librarys_line() -> None:
    """In a thread of its own there is no frame of the user's."""
    names: dict[str, Any] = {"noted": [], "place": birth_place, "frame": sys._getframe}
    exec(compile("def make():\n    noted.append(place(frame(), noted))", json.__file__, "exec"), names)
    thread = Thread(target=names["make"])
    thread.start()
    thread.join()
    assert names["noted"] == [(names["make"].__code__, 2)]
    names["make"]()
    assert names["noted"][1][0] is sys._getframe().f_code


def test_values_are_found_without_running_code() -> None:
    class Sly:
        @property
        def x(self) -> int:
            raise AssertionError("was run")

    sly, held = Sly(), {"a": [1, 2, 3]}
    frame = sys._getframe()

    def value(text: str) -> Any:
        return evaluate(ast.parse(text, mode="eval").body, frame)

    assert value("held['a'][-1] + len(held)") == 4
    assert value("json.loads") is json.loads
    assert value("sly.x") is UNKNOWN
    assert value("held.pop('a')") is UNKNOWN
    assert sly is not None
    assert held == {"a": [1, 2, 3]}


def test_nothing_but_the_standard_library_and_the_model_is_imported() -> None:
    foreign = set()
    for path in Path(tensonde.program.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [str(node.module)] if isinstance(node, ast.ImportFrom) else []
            foreign |= {
                (path.name, name)
                for name in names
                if name.partition(".")[0] not in sys.stdlib_module_names
                and name != "tensonde.program"
                and not name.startswith(("tensonde.program.", "tensonde.model."))
            }
    assert foreign == set()


@pytest.mark.parametrize(
    ("code", "lost"),
    [
        ("shadow[k].mul(d).add_(v)", True),
        ("p.lerp(a, d)", True),
        ("shadow[k].mul_(d).add_(v)", False),
        ("a = a.mul(d)", False),
        ("update(a, b)", False),
        ("if a:", False),
    ],
)
def test_a_result_that_nothing_keeps(code: str, lost: bool) -> None:
    assert habits.gives_away(code) is lost
