"""Everything that Tensonde replaces in torch is in one list, and nothing is replaced twice."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from launch import Ran, python

COMPARED = """
import json, os, sys, types
import torch, torch._dynamo, torch._dynamo.backends.common, torch._dynamo.trace_rules, torch.utils.data
from torch.optim import swa_utils

def code(value):
    return value.__code__ if type(value) is types.FunctionType else None

def attributes():
    found = {}
    ours = [m for n, m in list(sys.modules.items()) if n in ("torch", "multiprocessing.process", "warnings") or n.startswith("torch.")]
    for module in ours:
        if type(module) is not types.ModuleType:
            continue
        for name, value in list(vars(module).items()):
            found[module.__name__, name] = value, code(value)
            if issubclass(type(value), type) and str(value.__module__).startswith(("torch", "multiprocessing.process")):
                for inner, member in list(vars(value).items()):
                    found[f"{value.__module__}.{value.__qualname__}", inner] = member, code(member)
    return found

before = attributes()
from tensonde.adapters.torch.seams import install
from tensonde.adapters.torch import seams
install.install(lambda: None)
after = attributes()
call = "torch.nn.modules.module.Module", "__call__"  # whose code is exchanged, whatever names it has elsewhere
changed = [
    key for key, (value, code) in before.items()
    if key in after and (after[key][0] is not value or after[key][1] is not code)
    and (key == call or value is not before[call][0]) and key[1] != "next_id"  # which counts handles of hooks
]
new = [key for key in after.keys() - before.keys() if not key[1].startswith("__")]
json.dump({
    "changed": sorted(changed), "new": sorted(new),
    "listed": [(seam.owner, seam.attribute) for seam in seams.SEAMS], "why": [seam.why for seam in seams.SEAMS],
}, open(os.environ["RESULT"], "w"))
"""


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    folder: Path = tmp_path_factory.mktemp("seams")
    (folder / "script.py").write_text(COMPARED)
    found = python("script.py", cwd=folder)
    assert found.code == 0, found.err
    return found


def test_the_list_is_what_differs_from_an_untouched_torch(ran: Ran) -> None:
    listed = {tuple(seam) for seam in ran.result["listed"]}
    aliases = {("torch", "compile"), ("torch.nn.utils", "clip_grad_norm_"), ("torch.nn.utils", "clip_grad_value_")}
    assert {tuple(key) for key in ran.result["changed"]} == listed
    assert aliases <= listed
    assert [tuple(key) for key in ran.result["new"]] == [
        ("multiprocessing.process", "_tensonde_failed"),
        ("torch.nn.modules.module", "_tensonde_call"),
    ]


def test_nothing_is_wrapped_twice(ran: Ran) -> None:
    twice = [seam for seam, count in Counter(map(tuple, ran.result["listed"])).items() if count > 1]
    assert twice == []


def test_every_seam_says_what_it_is_for(ran: Ran) -> None:
    assert all(why and why[0].islower() and not why.endswith(".") for why in ran.result["why"])
