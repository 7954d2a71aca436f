"""The dump configuration: what is accepted, what it means, and what is said about what is wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from launch import cli
from tensonde.errors import UsageError
from tensonde.model.site import Kind, Role, Site
from tensonde.session.dump.choice import Choice
from tensonde.session.dump.iterations import over, parse_iterations, wanted
from tensonde.session.dump.settings import DumpSettings, from_command_line, from_file

SEED = """
{
    "common_dump_settings": {
        "dump_mode": 0,
        "path": "/absolute_path",
        "net_name": "ResNet50",
        "iteration": 0,
        "input_output": 0,
        "kernels": ["Default/Conv-op12"],
        "support_device": [0,1,2,3,4,5,6,7]
    },
    "SECTION": {
        "enable": true,
        "KEY": VALUE
    }
}
"""


def read(tmp_path: Path, content: Any) -> DumpSettings | None:
    path = tmp_path / "dump.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return from_file(path)


def of(**common: Any) -> dict[str, Any]:
    return {"common_dump_settings": {"path": "/d", **common}, "e2e_dump_settings": {"enable": True}}


def test_the_configurations_of_the_documents_are_accepted(tmp_path: Path) -> None:
    text = SEED.replace("SECTION", "e2e_dump_settings").replace("KEY", "trans_flag").replace("VALUE", "false")
    settings = read(tmp_path, text)
    assert settings == DumpSettings(
        "/absolute_path/ResNet50",
        ((0, 0),),
        everything=True,
        ranks=tuple(range(8)),
        asynchronous=False,
        net_name="ResNet50",
    )
    assert settings is not None
    assert DumpSettings.from_json(json.loads(json.dumps(settings.to_json()))) == settings
    text = SEED.replace("SECTION", "async_dump_settings").replace("KEY", "op_debug_mode").replace("VALUE", "3")
    settings = read(tmp_path, text)
    assert settings is not None
    assert (settings.asynchronous, settings.overflow_only) == (True, True)


def test_the_configuration_of_newer_documents_is_accepted(tmp_path: Path) -> None:
    newer = of(
        op_debug_mode=0, dump_mode=0, net_name="ResNet50", iteration="0|5-8|100-120", saved_data="tensor", input_output=0,
        kernels=["Default/Conv-op12"], support_device=[0], statistic_category=["max", "min", "l2norm"], file_format="npy",
        overflow_number=0,
    )  # fmt: skip
    newer["e2e_dump_settings"] |= {
        "trans_flag": True, "stat_calc_mode": "host", "save_kernel_args": False, "sample_mode": 0, "sample_num": 100,
    }  # fmt: skip
    settings = read(tmp_path, newer)
    assert settings is not None
    assert (settings.folder, settings.iterations) == ("/d/ResNet50", ((0, 0), (5, 8), (100, 120)))


def test_switched_off(tmp_path: Path) -> None:
    assert read(tmp_path, {"common_dump_settings": {"path": "/d"}}) is None
    assert read(tmp_path, {"common_dump_settings": {"path": "/d"}, "async_dump_settings": {"enable": False}}) is None


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ({"comon_dump_settings": {}}, "unknown key 'comon_dump_settings'; did you mean 'common_dump_settings'?"),
        (of(dump_moed=0), "unknown key 'dump_moed' in common_dump_settings; did you mean 'dump_mode'?"),
        (of(kernel=[]), "did you mean 'kernels'?"),
        (of(trans_flag=True), "it belongs in e2e_dump_settings."),
        (of(zzz=1), "known are dump_mode"),
        (of(dump_mode=2), "dump_mode is 2; it may be 0 (everything), 1 (kernels)."),
        (of(dump_mode="0"), "dump_mode is '0'"),
        (of(dump_mode=True), "dump_mode is True"),
        (of(dump_mode=1), "kernels must name what to dump; it is empty"),
        (of(dump_mode=1, kernels="Conv"), "it should be a list"),
        (of(dump_mode=1, kernels=["name-regex(+)"]), "no regular expression"),
        (of(dump_mode=1, kernels=["fc:uot"]), "fc:uot"),
        (of(input_output=3), "0 (inputs and outputs), 1 (inputs), 2 (outputs)"),
        (of(saved_data="statistic"), "saved_data is 'statistic'; it may be 'tensor' or 'full'"),
        (of(iteration=-1), "iteration is -1"),
        (of(iteration=[1, "2"]), "iteration is [1, '2']"),
        (of(iteration="5-2"), "the range 5-2, which ends before it begins; write 2-5."),
        (of(iteration="x"), "iteration is 'x'"),
        (of(support_device="0"), "it should be a list of ranks"),
        (of(net_name="../x"), "without slashes"),
        (of(path=""), "path is ''"),
        ({"common_dump_settings": {}, "e2e_dump_settings": {"enable": True}}, "path is None"),
        ({"e2e_dump_settings": {"enable": True}}, "has no common_dump_settings"),
        ({"common_dump_settings": 3}, "it should be an object"),
        ({**of(), "async_dump_settings": {"enable": True}}, "enables both"),
        ({**of(), "async_dump_settings": {"enable": 1}}, "it may be true or false"),
        ({**of(), "async_dump_settings": {"op_debug_mode": 7}}, "op_debug_mode is 7"),
        ([], "holds a list"),
        ("{", "is not JSON"),
    ],
)
def test_what_is_wrong_is_said(tmp_path: Path, content: Any, said: str) -> None:
    with pytest.raises(UsageError) as problem:
        read(tmp_path, content)
    assert said in str(problem.value)
    assert "dump.json" in str(problem.value)


def test_a_missing_file_is_said(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read: No such file"):
        from_file(tmp_path / "nowhere.json")


@pytest.mark.parametrize(
    ("given", "steps"),
    [
        (5, [5]), ([3, 1], [1, 3]), ("0,10-12", [0, 10, 11, 12]), ("0|10-12", [0, 10, 11, 12]), ("all", list(range(20))),
        (" 4 - 5 ".replace(" ", ""), [4, 5]),
    ],
)  # fmt: skip
def test_iterations(given: Any, steps: list[int]) -> None:
    ranges = parse_iterations(given, key="iteration")
    assert [step for step in range(20) if wanted(ranges, step)] == steps
    assert over(ranges, 21) is (given != "all")
    assert not over(ranges, 0) or steps[-1] < 0


def test_the_choice_by_roles() -> None:
    taken = Choice(DumpSettings("d", everything=True, outputs=False))
    given = Choice(DumpSettings("d", everything=True, inputs=False))
    for role, kind, is_taken in [
        (Role.IN, Kind.MODULE, True), (Role.OUT, Kind.MODULE, False), (Role.GRAD, Kind.MODULE, False),
        (Role.VALUE, Kind.PARAMETER, True), (Role.GRAD, Kind.PARAMETER, False), (Role.VALUE, Kind.LOSS, False),
    ]:  # fmt: skip
        site = Site(0, "x", role, kind)
        assert (taken.wants(site), given.wants(site)) == (is_taken, not is_taken)


def test_ops_are_looked_at_only_where_they_may_be_meant() -> None:
    def looks(*sites: str) -> bool:
        return Choice(from_command_line(sites, None, Path("d"))).ops

    assert looks("softmax")
    assert looks("fc/linear#0:out")
    assert not looks("Linear")
    assert not looks("**:out")
    assert not looks("blocks.0.attn")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--dump-steps", "1"], "nothing says what"),
        (["--dump", "a:out", "--dump-config", "x.json"], "both given"),
        (["--dump", "a:otu"], "--dump has 'a:otu'"),
        (["--dump", "a:out", "--dump-steps", "5-1"], "--dump-steps has the range 5-1"),
        (["--dump-config", "nowhere.json"], "nowhere.json"),
    ],
)
def test_wrong_words_on_the_command_line(tmp_path: Path, words: list[str], said: str) -> None:
    (tmp_path / "train.py").write_text("")
    ran = cli("run", *words, "train.py", cwd=tmp_path)
    assert ran.code == 2
    assert said in ran.err
    assert "Traceback" not in ran.err
    assert not (tmp_path / ".tensonde").exists(), "nothing is left behind"
