"""Nodes of compiled graphs go by the names of eager mode, and their digests are those of eager mode."""

from __future__ import annotations

from math import isnan
from pathlib import Path

import pytest

from launch import Foundry, Ran, cli

SCRIPT = Path(__file__).parent / "architectures.py"


def trained(foundry: Foundry, tmp_path: Path, architecture: str, backend: str, **options: object) -> Ran:
    folder = tmp_path / f"{architecture}-{backend}"
    folder.mkdir()
    ran = foundry.watched(SCRIPT, folder, argv=(architecture, backend, "static"), **options)  # type: ignore[arg-type]
    assert ran.code == 0, ran.err
    return ran


def numbers(ran: Ran, address: str, *names: str) -> list[list[float]]:
    return [[row[name] for name in names] for row in ran.at(address, step=1)]


@pytest.mark.parametrize(
    ("architecture", "modules"),
    [("convolutional", ["conv", "bn", "head"]), ("attentive", ["head"]), ("broken", ["first", "second"])],
)
def test_modules_inside_compiled_code(architecture: str, modules: list[str], foundry: Foundry, tmp_path: Path) -> None:
    eager = trained(foundry, tmp_path, architecture, "none")
    compiled = trained(foundry, tmp_path, architecture, "aot_eager", graph="full")
    for module in modules:
        expected = numbers(eager, f"{module}:out", "min", "max", "absmax", "norm", "count")
        found = numbers(compiled, f"{module}:out", "min", "max", "absmax", "norm", "count")
        assert found
        assert found[0] == pytest.approx(expected[0], rel=1e-5)
    assert compiled.session["coverage"]["not_watched"] == {}


def test_ops_have_the_names_of_the_function_api(foundry: Foundry, tmp_path: Path) -> None:
    ran = trained(foundry, tmp_path, "convolutional", "aot_eager", graph="full")
    assert {
        "conv/conv2d#0:out",
        "bn/batch_norm#0:out",
        "/relu#0:out",
        "/max_pool2d#0:out",
        "head/linear#0:out",
    } <= ran.addresses
    assert "head/linear-mm#0:grad_in" in ran.addresses
    (site,) = (site for site in ran.rank.sites.values() if site.address == "/relu#0:out")
    assert site.source is not None
    assert site.source.file.endswith("architectures.py")
    assert "F.relu" in site.source.code


def test_only_what_is_watched_by_name_is_computed(foundry: Foundry, tmp_path: Path) -> None:
    ran = trained(
        foundry, tmp_path, "convolutional", "aot_eager",
        watch=[("/relu#0:out", "max > 0"), ("**/linear*:grad_in", "absmax > 0")], budget=0.05,
    )  # fmt: skip
    (forward, backward) = ran.rank.graphs
    assert len(forward.watched) == 1
    assert 1 <= len(backward.watched) <= 4
    hits = {hit.site for hit in ran.rank.hits if hit.watchpoint == 1}
    assert hits == {"/relu#0:out"}
    assert any(hit.site.endswith(":grad_in") for hit in ran.rank.hits)
    partial = [row for row in ran.rows if row["flags"] & 1]
    assert all(isnan(row["mean"]) for row in partial)
    assert all(
        isnan(row["norm"]) != row["address"].endswith("relu#0:out") for row in partial
    )  # only what was asked for


def test_exact_leaves_the_graph_alone(foundry: Foundry, tmp_path: Path) -> None:
    ran = trained(foundry, tmp_path, "attentive", "aot_eager", graph="exact", watch=[("**", "absmax > 1e9")])
    assert all(not graph.watched for graph in ran.rank.graphs)
    assert any("softmax" in address for address in ran.addresses)
    assert not any(row["flags"] for row in ran.rows)


def test_graphs_are_in_the_recording(foundry: Foundry, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    ran = foundry.watched(SCRIPT, folder, argv=("broken", "aot_eager", "dynamic"))
    assert ran.code == 0, ran.err
    graphs = ran.rank.graphs
    assert [graph.phase for graph in graphs].count("forward") >= 2
    first = graphs[0]
    sizes = {len(column) for column in first.nodes.values()}
    assert len(sizes) == 1
    assert all(0 <= a < b < sizes.copy().pop() for a, b in zip(first.edges["from"], first.edges["to"], strict=True))
    place = first.nodes["site"].index("/gelu#0:out")
    assert first.nodes["source"][place].endswith(f":{line_of('F.gelu')}")
    assert first.scopes["name"] == ["first"]
    assert first.guards
    assert any(graph.dynamic for graph in graphs)
    breaks = [event for event in ran.rank.events if event["kind"] == "graph_break"]
    assert breaks
    assert breaks[0]["line"] == line_of("graph_break()")
    shown = cli("show", str(ran.folder), "--graphs", cwd=tmp_path)
    assert shown.code == 0
    assert "compiled:0" in shown.out
    assert "User-inserted graph break" in shown.out


def line_of(text: str) -> int:
    return next(k for k, line in enumerate(SCRIPT.read_text().splitlines(), 1) if text in line)
