"""Watching compiled code changes neither its results nor what the compiler does."""

from __future__ import annotations

from pathlib import Path

import pytest

from launch import Foundry, Ran

SCRIPT = Path(__file__).parent / "architectures.py"
ARCHITECTURES = ("convolutional", "attentive", "recurrent", "broken")


def both(foundry: Foundry, tmp_path: Path, *argv: str, graph: str = "auto") -> tuple[Ran, Ran]:
    env = {"TEST_SECONDS": "280"}
    ran = []
    for name in ("bare", "watched"):
        folder = tmp_path / name
        folder.mkdir()
        if name == "bare":
            ran.append(foundry.bare(SCRIPT, folder, argv=argv, env=env))
        else:
            ran.append(foundry.watched(SCRIPT, folder, argv=argv, env=env, graph=graph))
        assert ran[-1].code == 0, ran[-1].err
    return ran[0], ran[1]


@pytest.mark.parametrize("shapes", ["static", "dynamic"])
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_a_watched_graph_gives_the_same_bits(architecture: str, shapes: str, foundry: Foundry, tmp_path: Path) -> None:
    bare, watched = both(foundry, tmp_path, architecture, "aot_eager", shapes, graph="full")
    assert watched.result == bare.result
    partial = [row for row in watched.rows if row["flags"] & 1]
    assert {row["phase"] for row in partial} == {1, 2}  # forward and backward
    assert not watched.session["failures"]


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_inductor_too_in_every_mode(architecture: str, foundry: Foundry, tmp_path: Path) -> None:
    """By default bit for bit. Where the graph digests itself, fusion may change the last bits, and no more."""
    for graph in ("auto", "full"):
        folder = tmp_path / graph
        folder.mkdir()
        bare, watched = both(foundry, folder, architecture, "inductor", "dynamic", graph=graph)
        assert watched.result["compiler"] == bare.result["compiler"]
        assert watched.result["random"] == bare.result["random"]
        if graph == "auto":
            assert watched.result == bare.result
        else:
            assert watched.result["losses"] == pytest.approx(bare.result["losses"], rel=1e-5)
            assert any(row["flags"] & 1 for row in watched.rows)
        assert not watched.session["failures"]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_compilers_caches_are_not_poisoned(foundry: Foundry, tmp_path: Path) -> None:
    """Bare after watched and watched after bare, with one cache, are as without."""
    cache = tmp_path / "cache"
    results = []
    for k, watched in enumerate((True, False, True, False)):
        folder = tmp_path / str(k)
        folder.mkdir()
        env = {"TORCHINDUCTOR_CACHE_DIR": str(cache), "TEST_SECONDS": "280"}
        argv = ("broken", "inductor", "static")
        ran = (
            foundry.watched(SCRIPT, folder, argv=argv, env=env, graph="full")
            if watched
            else foundry.bare(SCRIPT, folder, argv=argv, env=env)
        )
        assert ran.code == 0, ran.err
        if watched:
            assert any(row["flags"] & 1 for row in ran.rows)
        results.append(ran.result["losses"])
    assert results[0] == results[2]
    assert results[1] == results[3]
    assert results[0] == pytest.approx(results[1], rel=1e-5)
