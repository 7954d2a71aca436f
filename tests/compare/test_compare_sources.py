"""Stored tensors: the measures are those of numpy, rounding is no divergence, and damage is said in a sentence."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from safetensors.numpy import save_file

from launch import cli
from tensonde.compare import stream
from tensonde.compare.sources import compare_sources, tolerance
from tensonde.compare.verdict import Verdict
from tensonde.errors import RecordingError
from tensonde.store.sources import Entry, open_source

Tensors = dict[str, np.ndarray[Any, Any]]


def weights(seed: int = 0, dtype: str = "float32") -> Tensors:
    rng = np.random.default_rng(seed)
    return {f"layers.{k}.weight": rng.standard_normal((8, 4 + k)).astype(dtype) for k in range(4)}


def verdict_of(folder: Path, a: Tensors, b: Tensors, chosen: dict[str, str] | None = None) -> Verdict:
    save_file(a, folder / "a.safetensors")
    save_file(b, folder / "b.safetensors")
    with open_source(folder / "a.safetensors") as one, open_source(folder / "b.safetensors") as other:
        return compare_sources(one, other, chosen)


def test_equal_is_equivalent_and_one_other_tensor_is_named(tmp_path: Path) -> None:
    assert verdict_of(tmp_path, weights(), weights()).verdict == "equivalent"
    other = weights()
    other["layers.2.weight"] = other["layers.2.weight"] * np.float32(1.01)
    verdict = verdict_of(tmp_path, weights(), other)
    assert verdict.first is not None
    assert verdict.first.site == "layers.2.weight:value"
    assert verdict.first.evidence["rel_l2"] == pytest.approx(0.01 / 1.01, rel=1e-4)
    assert verdict.coverage["equal"] == 3


def test_a_last_bit_is_rounding_and_a_tenth_of_a_permille_is_not(tmp_path: Path) -> None:
    near = {name: np.nextafter(value, np.float32(9)) for name, value in weights().items()}
    verdict = verdict_of(tmp_path, weights(), near)
    assert verdict.verdict == "equivalent"
    assert verdict.coverage["equal"] == 0
    assert verdict.coverage["largest_rounding_ulp"] == 1
    far = {name: value * np.float32(1.0001) for name, value in weights().items()}
    assert verdict_of(tmp_path, weights(), far).verdict == "divergent"


def test_other_names_are_paired_by_order_and_shape(tmp_path: Path) -> None:
    other = {name.replace("layers.", "blocks.").replace("weight", "kernel"): value for name, value in weights().items()}
    verdict = verdict_of(tmp_path, weights(), other)
    assert verdict.verdict == "equivalent"
    assert verdict.renamed["layers.1.weight"] == "blocks.1.kernel"


def test_what_the_map_says_is_compared(tmp_path: Path) -> None:
    square = {name: np.full((2, 2), k, np.float32) for k, name in enumerate(("a", "b"))}
    swapped = {"x": square["b"], "y": square["a"]}
    assert verdict_of(tmp_path, square, swapped).verdict == "divergent"
    assert verdict_of(tmp_path, square, swapped, {"a": "y", "b": "x"}).verdict == "equivalent"


def test_shapes_dtypes_and_missing_tensors_are_told(tmp_path: Path) -> None:
    other = weights()
    other["layers.0.weight"] = other["layers.0.weight"][:4]
    del other["layers.3.weight"]
    verdict = verdict_of(tmp_path, weights(), other)
    assert verdict.first is not None
    assert verdict.first.evidence["other_shape"] == [4, 4]
    assert verdict.unmatched_a == ("layers.3.weight:value",)
    half = verdict_of(tmp_path, weights(), weights(dtype="float16"))
    assert (half.settings[0].a, half.settings[0].b) == ("float32", "float16")


def test_nan_on_one_side_only_is_a_difference(tmp_path: Path) -> None:
    one, other = weights(), weights()
    one["layers.1.weight"][0, 0] = other["layers.1.weight"][0, 0] = np.nan
    assert verdict_of(tmp_path, one, other).verdict == "equivalent"
    other["layers.1.weight"][0, 1] = np.inf
    verdict = verdict_of(tmp_path, one, other)
    assert verdict.verdict == "divergent"
    assert verdict.first is not None
    assert verdict.first.evidence["nonfinite"] == 1


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(["float32", "float64", "float16", "int32"]).flatmap(
        lambda kind: st.tuples(*[arrays(kind, 37, elements={"allow_nan": False} if kind[0] == "f" else None)] * 2)
    )
)
def test_measures_are_those_of_numpy(tmp_path_factory: pytest.TempPathFactory, pair: tuple[Any, Any]) -> None:
    a, b = pair
    folder = tmp_path_factory.mktemp("pair")
    save_file({"w": a}, folder / "a.safetensors")
    save_file({"w": b}, folder / "b.safetensors")
    with open_source(folder / "a.safetensors") as one, open_source(folder / "b.safetensors") as other:
        found = stream.measure(one, one.entries[0], other, other.entries[0])
    x, y = a.astype(np.float64), b.astype(np.float64)
    fine = np.isfinite(x) & np.isfinite(y)
    with np.errstate(all="ignore"):
        apart = math.sqrt(float(np.square(np.where(fine, x - y, 0.0)).sum()))
        largest = float(np.abs(np.where(fine, x - y, 0.0)).max())
    assert found.count == 37
    assert found.equal == bool(np.array_equal(x, y))
    if math.isfinite(apart) and not np.array_equal(x, y):
        assert math.sqrt(found.apart) == pytest.approx(apart, rel=1e-4, abs=1e-300)
        assert found.max_abs == pytest.approx(largest, rel=1e-6)


def test_large_tensors_go_through_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "PIECE", 1 << 12)
    rng = np.random.default_rng(3)
    a = {"w": rng.standard_normal(100_003, np.float32)}
    b = {"w": a["w"].copy()}
    b["w"][-1] += 1
    verdict = verdict_of(tmp_path, a, b)
    assert verdict.first is not None
    assert verdict.first.evidence["max_abs"] == pytest.approx(1, rel=1e-5)


def test_rounding_may_grow_with_depth_and_dtype() -> None:
    def entry(dtype: str, step: int = 0, phase: str = "forward") -> Entry:
        return Entry("x:out", dtype, (4,), 16, step=step, phase=phase)

    single, half = entry("float32"), entry("bfloat16")
    assert tolerance(single, single, 0) < tolerance(single, single, 50) < tolerance(half, single, 50)
    assert tolerance(single, single, 5) < tolerance(entry("float32", phase="backward"), single, 5)
    assert tolerance(half, half, 10_000) <= 0.05


def test_nothing_in_common_and_damage_end_with_2(tmp_path: Path) -> None:
    save_file(weights(), tmp_path / "a.safetensors")
    save_file({"other": np.zeros((3, 3, 3), np.int64)}, tmp_path / "b.safetensors")
    content = (tmp_path / "a.safetensors").read_bytes()
    (tmp_path / "short.safetensors").write_bytes(content[:-40])
    (tmp_path / "index.json").write_text("{}")
    ran = cli("compare", "--json", "a.safetensors", "b.safetensors", cwd=tmp_path)
    assert ran.code == 2
    assert "no tensor in common" in json.loads(ran.out)["notes"][0]
    for other in ("short.safetensors", "index.json", "missing.pt"):
        ran = cli("compare", "a.safetensors", other, cwd=tmp_path)
        assert ran.code == 2, other
        assert ran.err.startswith("tensonde: ")
        assert "Traceback" not in ran.err
    assert (tmp_path / "a.safetensors").read_bytes() == content


def test_a_file_that_shrinks_meanwhile_is_an_error(tmp_path: Path) -> None:
    save_file(weights(), tmp_path / "a.safetensors")
    with open_source(tmp_path / "a.safetensors") as one, open_source(tmp_path / "a.safetensors") as other:
        entries = one.entries
        assert other.entries
        (tmp_path / "a.safetensors").write_bytes(b"")
        with pytest.raises(RecordingError, match="truncated"):
            stream.measure(one, entries[0], other, other.entries[0])


@pytest.mark.slow
@pytest.mark.timeout(170)
def test_a_ray_cluster_of_two_workers_says_the_same(tmp_path: Path) -> None:
    ray = pytest.importorskip("ray")
    from tensonde.compare.ray import Ray

    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    try:
        other = weights()
        other["layers.3.weight"] = other["layers.3.weight"] + np.float32(0.5)
        here = verdict_of(tmp_path, weights(), other)
        with open_source(tmp_path / "a.safetensors") as a, open_source(tmp_path / "b.safetensors") as b:
            there = compare_sources(a, b, work=Ray())
        assert there.document() == here.document()
    finally:
        ray.shutdown()
