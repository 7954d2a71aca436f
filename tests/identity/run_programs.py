"""Runs generated programs, each bare and then under Tensonde, and compares all their state bit for bit.

`python run_programs.py FIRST COUNT` in an empty folder; prints one JSON line with what happened. All run in one process, which is
quick; each watched one has a session of its own.
"""

from __future__ import annotations

import array
import collections
import contextlib
import contextvars
import ctypes
import dataclasses
import gc
import io
import json
import os
import random
import shutil
import sys
import traceback
import types
from pathlib import Path
from typing import Any

import numpy as np
import torch
from programs import program

from tensonde.adapters.torch.run.opening import open_watcher
from tensonde.adapters.torch.run.watcher import Watcher
from tensonde.adapters.torch.seams import install
from tensonde.session.options import Options
from tensonde.store.claim import create_run


def run(text: str, path: Path) -> dict[str, Any]:
    """The program's state at its end, in comparable form."""
    torch.manual_seed(0)
    np.random.seed(0)
    random.seed(0)
    module = types.ModuleType(path.stem)
    module.__file__ = str(path)
    sys.modules[path.stem] = module
    out = io.StringIO()
    problem = ""
    try:
        with contextlib.redirect_stdout(out):
            exec(compile(text, str(path), "exec"), vars(module))
    except Exception as failure:  # it fails in the same way, then
        problem = f"{type(failure).__name__}: {failure}"
    finally:
        del sys.modules[path.stem]
    draws = [torch.rand(2), np.random.rand(2), random.random(), torch.get_default_dtype(), torch.get_num_threads()]
    draws += [os.environ.pop("TEST_CALLS", None), getattr(sys.modules.get("fractions"), "seen", None)]
    names = {
        name: plain(value, set())
        for name, value in vars(module).items()
        if not name.startswith("__") and not isinstance(value, types.ModuleType)
    }
    return {**names, "draws": plain(draws, set()), "output": out.getvalue(), "problem": problem}


def plain(value: Any, path: set[int]) -> Any:
    """All that can be compared of a value: bits of tensors with versions and gradients, attributes, closures, generators."""
    if isinstance(value, bool | int | str | bytes | type(None) | torch.dtype):
        return value
    if isinstance(value, float):
        return value.hex()
    if id(value) in path:
        return "..."
    path = path | {id(value)}
    if isinstance(value, torch.Tensor):
        return tensor(value, path)
    if isinstance(value, np.ndarray):
        return [str(value.dtype), value.tobytes()]
    if isinstance(value, dict):
        return [type(value).__name__, [[plain(k, path), plain(v, path)] for k, v in value.items()]]
    if isinstance(value, list | tuple | collections.deque):
        return [type(value).__name__, [plain(item, path) for item in value]]
    if isinstance(value, set | frozenset):
        return sorted(repr(plain(item, path)) for item in value)
    if isinstance(value, array.array):
        return value.tolist()
    if isinstance(value, ctypes.c_long):
        return value.value
    if isinstance(value, contextvars.ContextVar):
        return value.get(None)
    if isinstance(value, Path):
        return value.read_text()
    if isinstance(value, torch.Generator):
        return value.get_state().tolist()
    if isinstance(value, random.Random):
        return plain(value.getstate(), path)
    if isinstance(value, np.random.RandomState):
        return plain(value.get_state(), path)
    if isinstance(value, np.random.Generator):
        return plain(value.bit_generator.state, path)
    if isinstance(value, types.FunctionType):
        cells = [cell.cell_contents for cell in value.__closure__ or ()]
        return [value.__name__, plain(cells, path), plain(value.__defaults__, path)]
    if isinstance(value, io.IOBase):
        return value.tell()
    if isinstance(value, types.GeneratorType):
        return plain(value.gi_frame.f_locals.get("i"), path)
    if isinstance(value, type):
        own = {k: v for k, v in vars(value).items() if not k.startswith("_") and isinstance(v, int | float)}
        return [value.__name__, plain(own, path)]
    if type(value).__name__ in ("count", "cycle"):
        return repr(value) if type(value).__name__ == "count" else next(value)
    slots = getattr(type(value), "__slots__", ())
    if isinstance(slots, tuple) and slots:
        return [plain(getattr(value, name, None), path) for name in slots]
    own = {
        k: list(v.values()) if k.endswith("_hooks") and isinstance(v, dict) else v  # their numbers are given by torch
        for k, v in getattr(value, "__dict__", {}).items()
        if not k.startswith(("_tensonde", "step"))
    }
    return [type(value).__name__, plain(own, path)] if not dataclasses.is_dataclass(value) else plain(vars(value), path)


def tensor(value: torch.Tensor, path: set[int]) -> Any:
    if value.layout is not torch.strided:
        return tensor(value.detach().to_dense(), path)
    bits = value.detach().contiguous().view(-1).view(torch.uint8).numpy().tobytes() if value.numel() else b""
    gradient = plain(value.grad, path) if value.is_leaf and value.grad is not None else None
    return [str(value.dtype), list(value.shape), bits, value._version, value.requires_grad, gradient]


def watched(text: str, path: Path, **how: Any) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    folder = create_run(path.parent / "runs", None, {"script": path.name, "argv": []})
    opened: list[Watcher] = []
    events: list[dict[str, Any]] = []

    def opener() -> Watcher:
        watcher = open_watcher(Options(run=str(folder), recommended=True, **how))
        note = watcher.session.note
        watcher.session.note = lambda kind, **fields: (events.append({"kind": kind, **fields}), note(kind, **fields))[1]  # type: ignore[method-assign,assignment]
        opened.append(watcher)
        return watcher

    install.install(opener)
    try:
        return run(text, path), events
    finally:
        for watcher in opened:
            watcher.detach()
            watcher.session.close(exit={}, coverage={})
        install.close()
        while torch._C._len_torch_function_stack():  # programs that share a process are not to see each other
            torch._C._pop_torch_function_stack()
        shutil.rmtree(folder)


def differences(bare: Any, other: Any, where: str = "") -> list[str]:
    """The places where two states differ."""
    if bare == other:
        return []
    if isinstance(bare, dict) and isinstance(other, dict) and bare.keys() == other.keys():
        return [place for key in bare for place in differences(bare[key], other[key], f"{where}.{key}")]
    if isinstance(bare, list) and isinstance(other, list) and len(bare) == len(other):
        named = len(bare) == 2 and isinstance(bare[0], str) and bare[0] == other[0]
        pairs = enumerate(zip(bare, other, strict=True))
        return [place for i, pair in pairs for place in differences(*pair, f"{where}.{bare[0] if named else i}")]
    return [f"{where}: {str(bare)[:80]} / {str(other)[:80]}"]


def main(first: int, count: int, only: list[str]) -> None:
    os.environ["TENSONDE_STRICT"] = "1"
    torch.set_num_threads(1)
    gc.freeze()  # or each collection walks all of torch
    tally: collections.Counter[str] = collections.Counter()
    failed: list[dict[str, Any]] = []
    reasons: collections.Counter[str] = collections.Counter()
    for seed in range(first, first + count):
        text, how = program(seed, only)
        path = Path.cwd() / f"program{seed}.py"
        path.write_text(text)
        try:
            bare = run(text, path)
            again, events = watched(text, path, **how)
            kinds = collections.Counter(event["kind"] for event in events)
            tally["programs"] += 1
            tally["programs that fail"] += bool(bare["problem"])
            tally["replays"] += kinds["replayed"]
            tally["exact"] += sum(event["exact"] for event in events if event["kind"] == "replayed")
            tally["declined"] += kinds["replay_impossible"]
            tally["unrestored"] += kinds["replay_unrestored"]
            reasons.update(event["why"] for event in events if event["kind"] == "replay_impossible")
            reasons.update(note for event in events if event["kind"] == "replayed" for note in event["notes"])
            tally["programs with a replay"] += kinds["replayed"] > 0
            if found := differences(bare, again):
                failed.append({"seed": seed, "different": found[:5], "how": how})
                continue
        except Exception:
            failed.append({"seed": seed, "error": traceback.format_exc()[-1500:], "how": how})
            continue
        path.unlink()
    print(json.dumps({"tally": tally, "failed": failed, "reasons": reasons}))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:])
