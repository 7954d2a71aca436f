"""What every adapter must do, whatever the framework. The recording is compared with what the programs note by themselves."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
from frameworks import FRAMEWORKS, NAMES, Framework

from launch import Foundry, Ran
from tensonde.adapters.adapter import Adapter, Training
from tensonde.adapters.capabilities import CAPABILITIES, Capability, page
from tensonde.diagnose.diagnose import diagnose
from tensonde.digest.reference import digest_array
from tensonde.model.moment import Phase
from tensonde.model.site import Kind
from tensonde.store.sources import open_source

PARAMETERS = {"first.weight": (8, 4), "first.bias": (8,), "last.weight": (3, 8), "last.bias": (3,)}
STEPS = 8
ALLOWED = (
    "tensonde.adapters.adapter",
    "tensonde.adapters.capabilities",
    "tensonde.adapters.registry",
    "tensonde.adapters.torch.script.printing",
)
"""The last one for `tensonde.print`, which the compiler reads."""


@pytest.fixture(scope="session", params=FRAMEWORKS)
def framework(request: pytest.FixtureRequest) -> Framework:
    if "device" in request.param:
        request.getfixturevalue("standin")
    return FRAMEWORKS[request.param]


@pytest.fixture(scope="session")
def whole(foundry: Foundry, framework: Framework, tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """The training, every tensor of every step."""
    ran = foundry.watched(framework.programs["training"], tmp_path_factory.mktemp("whole"))
    assert ran.code == 0, ran.err
    assert ran.session["failures"] == {}
    return ran


@pytest.fixture(scope="session")
def bare(foundry: Foundry, framework: Framework, tmp_path_factory: pytest.TempPathFactory) -> Ran:
    ran = foundry.bare(framework.programs["training"], tmp_path_factory.mktemp("bare"))
    assert ran.code == 0, ran.err
    return ran


def noted(ran: Ran) -> dict[tuple[int, str], Any]:
    """What the program kept by itself."""
    with np.load(ran.cwd / "kept.npz") as file:
        return {(int(key.partition(" ")[0]), key.partition(" ")[2]): file[key] for key in file.files}


def needs(framework: Framework, capability: Capability) -> None:
    if capability not in framework.adapter.capabilities:
        pytest.skip(f"the adapter of {framework.adapter.framework} declares no {capability}")


# -- the interface -----------------------------------------------------------------------------------


def test_the_adapter_has_every_member_of_the_interface(framework: Framework) -> None:
    adapter = framework.adapter
    for name, member in _members(Adapter):
        assert hasattr(adapter, name), name
        if member is not None:
            assert list(inspect.signature(getattr(adapter, name)).parameters) == _without_self(member), name
    assert adapter.capabilities == CAPABILITIES[adapter.framework] <= set(get_args(Capability))
    assert set(framework.programs) == set(NAMES)


def test_the_training_has_every_member_of_the_interface(framework: Framework) -> None:
    made: Any = inspect.signature(type(framework.adapter).open, eval_str=True).return_annotation
    for name, member in _members(Training):
        assert hasattr(made, name), name
        if inspect.isfunction(member):
            assert list(inspect.signature(getattr(made, name)).parameters) == ["self", *_without_self(member)], name


def _members(protocol: type) -> Iterator[tuple[str, Any]]:
    for name, member in vars(protocol).items():
        if not name.startswith("_") and (inspect.isfunction(member) or isinstance(member, property)):
            yield name, member if inspect.isfunction(member) else None
    yield from ((name, None) for name in protocol.__annotations__)


def _without_self(member: Any) -> list[str]:
    return list(inspect.signature(member).parameters)[1:]


def test_only_the_interface_is_used_by_others() -> None:
    """Nothing outside of `adapters` imports the inside of an adapter."""
    source = Path(__file__).resolve().parents[2] / "src" / "tensonde"
    reaching = set()
    for path in source.rglob("*.py"):
        if source / "adapters" in path.parents:
            continue
        modules = [
            node.module or "" for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.ImportFrom)
        ]
        reaching |= {
            f"{path.relative_to(source)}: {module}"
            for module in modules
            if module.startswith("tensonde.adapters.") and module not in ALLOWED
        }
    assert reaching == set()


def test_the_page_of_frameworks_is_fresh() -> None:
    written = Path(__file__).resolve().parents[2] / "docs" / "frameworks.md"
    assert written.read_text() == page()


# -- sites, moments, digests -------------------------------------------------------------------------


def test_sites(whole: Ran) -> None:
    sites = {site.address: site for site in whole.rank.sites.values()}
    for name, shape in PARAMETERS.items():
        for role in ("value", "grad"):
            site = sites[f"{name}:{role}"]
            assert (site.kind, site.shape, site.dtype) == (Kind.PARAMETER, shape, "float32")
    for name, shape, type in (("first", (5, 8), "Linear"), ("act", (5, 8), "Tanh"), ("last", (5, 3), "Linear")):
        for role in ("out", "grad"):
            site = sites[f"{name}:{role}"]
            assert (site.kind, site.shape, site.dtype) == (Kind.MODULE, shape, "float32")
            assert type.lower() in {site.type.lower(), "linear" if site.type == "Dense" else ""}
    assert sites["loss:value"].kind is Kind.LOSS
    source = sites["first:out"].source
    assert source is not None
    assert source.file.endswith("script.py")
    assert source.code == "h = self.first(x)"


def test_moments(whole: Ran) -> None:
    phases = {
        "out": {Phase.FORWARD},
        "grad": {Phase.BACKWARD, Phase.OPTIMIZER},
        "value": {Phase.FORWARD, Phase.OPTIMIZER},
    }
    for address in (
        "first:out",
        "first:grad",
        "loss:value",
        *(f"{p}:{role}" for p in PARAMETERS for role in ("grad", "value")),
    ):
        rows = whole.at(address)
        assert [row["step"] for row in rows] == list(range(STEPS)), address
        assert {row["call"] for row in rows} == {0}, address
        assert {Phase(row["phase"]) for row in rows} <= phases[address.rpartition(":")[2]], address
    assert whole.session["steps"] == STEPS


def test_digests_are_those_of_the_values_the_program_computed(whole: Ran) -> None:
    compared = 0
    for (step, address), array in noted(whole).items():
        if address.endswith(":value") and address != "loss:value":
            step -= 1  # a parameter is digested after the optimizer's step, and the program notes it before
            if step < 0:
                continue
        (row,) = whole.at(address, step=step)
        expected = digest_array(array)[0]
        for field in ("count", "nan", "zero", "negative"):
            assert row[field] == expected[field], (step, address, field)
        for field in ("min", "max", "absmax", "mean", "std", "norm"):
            least = 1e-6 * float(expected["absmax"]) if field == "mean" else 1e-12  # sums may be those of float32
            assert row[field] == pytest.approx(float(expected[field]), rel=1e-6, abs=least), (step, address, field)
        compared += 1
    assert compared >= STEPS * (3 + 2 * len(PARAMETERS))


def test_losses_are_recorded_as_they_are(whole: Ran) -> None:
    assert [step for step, _ in whole.scalars("loss")] == list(range(STEPS))
    assert [value for _, value in whole.scalars("loss")] == pytest.approx(whole.result["losses"], rel=1e-7)


def test_an_evaluation_is_no_step(foundry: Foundry, framework: Framework, tmp_path: Path) -> None:
    ran = foundry.watched(framework.programs["evaluation"], tmp_path)
    assert ran.session["steps"] == 6
    assert [value for _, value in ran.scalars("loss")] == pytest.approx(ran.result["losses"], rel=1e-7)


def test_micro_batches_are_one_step(foundry: Foundry, framework: Framework, tmp_path: Path) -> None:
    ran = foundry.watched(framework.programs["accumulation"], tmp_path)
    assert ran.session["steps"] == 4
    assert [(row["step"], row["call"]) for row in ran.at("first:out")] == [(s, c) for s in range(4) for c in range(3)]


# -- hits, stops, control ----------------------------------------------------------------------------


def test_a_watchpoint_hits_where_its_condition_holds(
    foundry: Foundry, framework: Framework, bare: Ran, tmp_path: Path
) -> None:
    norms = {
        step: float(np.abs(array).max()) for (step, address), array in noted(bare).items() if address == "last:out"
    }
    limit = sorted(norms.values())[STEPS // 2]
    ran = foundry.watched(framework.programs["training"], tmp_path, watch=[("last:out", f"absmax > {limit!r}")])
    hits = {hit.moment.step for hit in ran.rank.hits if hit.site == "last:out"}
    above = {step for step, norm in norms.items() if norm > limit}
    assert above
    assert hits == {step for step in above if step - 1 not in above}, "a hit that goes on counts once"


def test_a_watchpoint_that_stops_ends_the_training_there(
    foundry: Foundry, framework: Framework, tmp_path: Path
) -> None:
    ran = foundry.watched(
        framework.programs["training"],
        tmp_path,
        watch=[("first.weight:grad", "norm >= 0")],
        on_hit="stop",
        recommended=False,
    )
    assert ran.code == 1
    assert not (tmp_path / "result.json").exists()
    assert "first.weight:grad" in ran.session["ended"]


def test_the_debugger_stops_where_it_is_told_to(
    foundry: Foundry, framework: Framework, bare: Ran, tmp_path: Path
) -> None:
    commands = "break first\nstep 3\ncontinue\nwhere\nprint first:out\ncontinue\ndelete 1\nuntil loss\nstep\nprint loss\ncontinue\n"
    ran = foundry.watched(framework.programs["training"], tmp_path, debug=True, recommended=False, stdin=commands)
    assert ran.code == 0, ran.err
    assert "● the training begins" in ran.err
    forward = ran.err.index("first:out  float32[5,8]")
    backward = ran.err.index("first:grad  float32[5,8]")
    assert forward < backward < ran.err.index("loss:value")
    assert ran.result == bare.result, "stops have changed the training"


def test_a_change_in_the_forward_pass_lets_gradients_through(
    foundry: Foundry, framework: Framework, tmp_path: Path
) -> None:
    commands = (
        "break first:out\ncontinue\nset first:out[0, 0] = 5\nprint first:out[0, 0]\ndelete\nuntil first:grad\n"
        "until first.weight:grad\nstats\nquit\n"
    )
    ran = foundry.watched(framework.programs["training"], tmp_path, debug=True, recommended=False, stdin=commands)
    assert re.search(r"first:out\[0, 0\]  float32\[\](  .*)?\n(  note: .*\n)?  5\.", ran.err), ran.err
    assert "step 0 · backward · first:grad" in ran.err, ran.err
    norm = ran.err.rpartition("norm      ")[2].split()[0]
    assert float(norm) > 0


def test_a_line_is_stopped_at(foundry: Foundry, framework: Framework, tmp_path: Path) -> None:
    needs(framework, "lines")
    line = framework.line("not a number")
    commands = f"break script.py:{line} if step == 2\ncontinue\nquit\n"
    ran = foundry.watched(framework.programs["not a number"], tmp_path, debug=True, recommended=False, stdin=commands)
    assert f"script.py:{line}" in ran.err
    assert "step 2" in ran.err


def test_an_op_is_stopped_at(foundry: Foundry, framework: Framework, tmp_path: Path) -> None:
    needs(framework, "ops")
    ran = foundry.watched(
        framework.programs["training"], tmp_path, debug=True, recommended=False, stdin="step\nnext op\nwhere\nquit\n"
    )
    assert "step 1 · forward" in ran.err


# -- values ------------------------------------------------------------------------------------------


def test_an_inspector_answers_with_live_values(foundry: Foundry, framework: Framework, tmp_path: Path) -> None:
    ran = foundry.watched(framework.programs["questions"], tmp_path)
    assert ran.code == 0, ran.err
    told = ran.result
    assert [name for name, *_ in told["modules"]][-3:] == ["first", "act", "last"]
    assert told["modules"][0][2] == 8 * 4 + 8 + 3 * 8 + 3
    assert len(told["optimizers"]) == 1
    assert {f"{name}:{role}" for name in PARAMETERS for role in ("value", "grad")} <= set(told["addresses"])
    assert told["first.weight:value"] == ["float32", [8, 4], True]
    assert told["last.bias:grad"] == ["float32", [3], True]
    assert told["slice"] == told["slice of mine"]
    assert told["shape"] == [[8, 4], "float32"]
    assert told["assigned"][1] == 7.5
    assert "last.bias" in told["said"]
    assert "no.such" in told["unknown"]
    assert told["facts"]


# -- trace, replay, facts, dump ------------------------------------------------------------------------


def test_the_first_step_is_traced_op_by_op(framework: Framework, whole: Ran) -> None:
    needs(framework, "trace")
    first = next(trace for trace in whole.rank.traces if trace.step == 0)
    assert {"first", "act", "last"} <= {op.site.partition("/")[0].partition(":")[0] for op in first.ops}
    assert all(op.source is not None for op in first.ops if op.site.startswith("first"))


def test_the_origin_of_a_nan_is_named(foundry: Foundry, framework: Framework, tmp_path: Path) -> None:
    needs(framework, "replay")
    ran = foundry.watched(framework.programs["not a number"], tmp_path, budget=0.05)
    assert ran.code == 0, ran.err
    finding = diagnose(ran.recording)[0]
    assert (finding.severity, finding.step) == ("error", 5)
    assert finding.source is not None
    assert finding.source.line == framework.line("not a number"), finding


def test_experiments_change_nothing_and_find_a_healthy_training_healthy(
    foundry: Foundry, framework: Framework, bare: Ran, tmp_path: Path
) -> None:
    needs(framework, "experiments")
    ran = foundry.watched(framework.programs["training"], tmp_path, budget=0.05, experiments=20.0)
    assert repr(ran.result) == repr(bare.result)
    amiss = [fact for fact in ran.rank.facts["answers"] if fact.get("healthy") is False]
    assert amiss == []


def test_an_exception_is_described(foundry: Foundry, framework: Framework, tmp_path: Path) -> None:
    ran = foundry.watched(framework.programs["exception"], tmp_path)
    assert ran.code == 1
    assert "tensonde" not in ran.err.partition("Traceback")[2], "the traceback shows frames of Tensonde"
    finding = diagnose(ran.recording)[0]
    assert finding.severity == "error"
    assert finding.step == 3


def test_facts_name_parameters_modules_and_optimizers(whole: Ran) -> None:
    facts = whole.rank.facts
    assert set(facts["parameters"]) == set(PARAMETERS)
    assert all(fact["optimizers"] == [0] for fact in facts["parameters"].values())
    assert {"first", "act", "last"} <= set(facts["modules"])
    assert [optimizer["steps"] for optimizer in facts["optimizers"]] == [STEPS]


def test_a_dump_holds_the_values_the_program_computed(foundry: Foundry, framework: Framework, tmp_path: Path) -> None:
    needs(framework, "dump")
    settings = {"common_dump_settings": {"dump_mode": 0}, "async_dump_settings": {"enable": True}}
    ran = foundry.watched(framework.programs["training"], tmp_path, dump=settings)
    source = open_source(tmp_path / "dump")
    assert source.problems == []
    mine = noted(ran)
    compared = 0
    for entry in source.entries:
        address = f"{entry.name}:{entry.role}"
        if (entry.step, address) in mine and address.endswith((":out", ":grad")) and not entry.call:
            np.testing.assert_array_equal(
                source.read(entry), mine[entry.step, address], err_msg=f"{entry.step} {address}"
            )
            compared += 1
    assert compared >= 3 * STEPS


# -- harm --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("budget", [None, 0.05, 0.0])
def test_the_training_is_bit_identical(
    foundry: Foundry, framework: Framework, bare: Ran, tmp_path: Path, budget: float | None
) -> None:
    ran = foundry.watched(framework.programs["training"], tmp_path, budget=budget)
    assert (ran.code, ran.out) == (0, bare.out)
    assert ran.result == bare.result


def test_a_failure_of_ours_stays_ours(foundry: Foundry, framework: Framework, bare: Ran, tmp_path: Path) -> None:
    ran = foundry.watched(framework.programs["sabotage"], tmp_path, strict=False)
    assert ran.code == 0, ran.err
    assert ran.result == bare.result
    assert sum(ran.session["failures"].values()) > 0
    assert "Traceback" not in ran.err
