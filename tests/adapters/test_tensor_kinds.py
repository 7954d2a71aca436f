"""Every kind of tensor in every mode: digested where it has values, told of where not, and the training is as without Tensonde."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from launch import Foundry, Ran
from tensonde.store.sources import open_source

SCRIPT = Path(__file__).parent / "tensor_kinds.py"
WITHOUT = {"meta", "fake", "opaque"}
"""Kinds that have no values, or do not show them."""
DIGESTED = {
    "coo", "coo_uncoalesced", "csr", "csc", "bsr", "bsc", "nested", "jagged", "quantised", "complex", "dtensor", "scaled", "masked",
    "tagged", "f16", "negated", "expanded", "zero_dim",
}  # fmt: skip
COMMANDS = (
    ["step", "break branches.*", *["continue"] * 30, "delete 1", "step", "until branches.csr.give:out"]
    + [f"print branches.{kind}.give:out" for kind in sorted(DIGESTED | WITHOUT)]
    + ["print frozen", "diff frozen", "print adjacency", "next", "next op", "next op", "break **/*", *["continue"] * 60]
    + ["delete 2", "continue"]
)
MODES: dict[str, dict[str, Any]] = {
    "default": {"budget": 0.05},
    "everything": {"watch": [("**", "nan"), ("**:in", "nan"), ("**:update", "norm > 1e30"), ("**/*", "nan")]},
    "sentinel": {"budget": 0.0},
    "dump": {
        "dump": {
            "common_dump_settings": {"dump_mode": 1, "kernels": ["**:*", "**/*:*"]},
            "async_dump_settings": {"enable": True},
        }
    },
    "act at once": {"watch": [("**", "norm > 1e30")], "on_hit": "stop", "recommended": False},
    "debugger": {"debug": True, "on_hit": "pause", "recommended": False, "stdin": "\n".join(COMMANDS) + "\n"},
}


@pytest.fixture(scope="module")
def bare(foundry: Foundry, tmp_path_factory: pytest.TempPathFactory) -> Ran:
    ran = foundry.bare(SCRIPT, tmp_path_factory.mktemp("kinds"))
    assert ran.code == 0, ran.err
    return ran


@pytest.mark.parametrize("mode", MODES)
def test_every_kind_of_tensor(mode: str, bare: Ran, foundry: Foundry, tmp_path: Path) -> None:
    ran = foundry.watched(SCRIPT, tmp_path, **MODES[mode])
    assert ran.code == 0, ran.err
    assert ran.out == bare.out
    assert ran.session["failures"] == {}
    if mode == "sentinel":
        return
    assert {kind for kind in DIGESTED if ran.at(f"branches.{kind}.give:out")} >= DIGESTED
    told = ran.session["coverage"]["not_watched"]
    for kind in WITHOUT:
        assert not ran.at(f"branches.{kind}.give:out")
        assert f"branches.{kind}.give:out" in told, told
    assert not [name for name in told if name.split(".")[1:2] and name.split(".")[1] in DIGESTED], told
    if mode == "dump":
        dumped = {entry.site for entry in open_source(tmp_path / "dump").entries}
        assert {kind for kind in DIGESTED if any(f"branches.{kind}.give:out" in name for name in dumped)} == DIGESTED
    if mode == "debugger":
        assert ran.err.count("cannot be shown") + ran.err.count("no value of") >= len(WITHOUT)


def test_the_values_of_a_sparse_tensor_are_those_that_it_holds(bare: Ran, foundry: Foundry, tmp_path: Path) -> None:
    ran = foundry.watched(SCRIPT, tmp_path, budget=None)
    dense = [row["norm"] for row in ran.at("branches.zero_dim.give:out")]
    assert len(dense) == 6
    whole = ran.norms("branches.coo.give:out")
    for kind in ("csr", "csc", "bsr", "bsc", "nested", "jagged", "dtensor", "scaled", "tagged"):
        assert ran.norms(f"branches.{kind}.give:out") == pytest.approx(whole, rel=1e-6), kind
    assert [row["norm"] > 0 for row in ran.at("embedding.weight:grad")] == [True] * 6
