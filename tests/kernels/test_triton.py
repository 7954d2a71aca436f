"""Triton's kernels under its interpreter, against the reference; and compiled for GPUs, which there are none of here."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

if find_spec("triton") is None:
    pytest.skip("there is no Triton; make test-kernels installs it", allow_module_level=True)
os.environ["TRITON_INTERPRET"] = "1"  # before it is imported
sys.path.insert(0, str(Path(__file__).parent.parent / "digest"))

import torch
from agreement import assert_same_digest

from tensonde.adapters.torch.digests.device import fused
from tensonde.adapters.torch.digests.device.digests import FLOAT8, _real
from tensonde.adapters.torch.digests.device.fused import Fused, collapsed
from tensonde.digest import DTYPES
from tensonde.digest.reference import digest_array

torch.manual_seed(0)
SIZES = (1, 2, 31, 512, 513, 1000, 2048, 2049, 8192, 8193, 50_000)
TENSORS = {
    "offset": torch.randn(1000) * 1e-3 + 7,
    "far offset": torch.randn(50_000) * 1e-2 + 1000,
    "broken": torch.tensor([1.0, float("nan"), float("inf"), -float("inf"), -0.0, 1e-42, -3.0]),
    "broken rows": torch.where(torch.rand(50_000) < 0.3, float("nan"), torch.randn(50_000)),
    "late nan": torch.cat([torch.randn(20_000), torch.full((3,), float("nan"))]),
    "all nan": torch.full((5,), float("nan")),
    "all inf": torch.full((30_000,), float("-inf")),
    "scalar": torch.tensor(-2.0),
    "constant": torch.full((9000,), 0.1),
    "zeros": torch.zeros(7),
    "denormal": torch.rand(700) * 1e-40,
    "some denormal": torch.cat([torch.rand(700) * 1e-40, torch.rand(100)]),
    "huge": torch.randn(9000, dtype=torch.float64) * 1e300,
    "tiny": torch.randn(600, dtype=torch.float64) * 1e-300,
    "denormal double": torch.rand(600, dtype=torch.float64) * 1e-310,
    "huge float": torch.rand(20_000) * 1e37,
    "wide range": torch.randn(20_000) * torch.logspace(-30, 30, 20_000),
    "transposed": torch.randn(200, 300).t(),
    "strided": torch.randn(40, 500)[::3, 1::2],
    "channels last": torch.randn(2, 3, 40, 50).to(memory_format=torch.channels_last),
    "expanded": torch.randn(5, 1).expand(5, 7),
    "five dimensions": torch.randn(3, 4, 5, 6, 7).permute(4, 2, 0, 3, 1)[:, ::2, :, ::3],
    "six dimensions": torch.randn(2, 3, 4, 5, 3, 2)[:, ::2, :, ::2, ::2].transpose(0, 3),
}


def reference(tensor: torch.Tensor) -> np.ndarray:
    if tensor.dtype is torch.bfloat16:
        return digest_array(tensor.contiguous().view(torch.int16).numpy().view(np.uint16), "bfloat16")[0]
    if tensor.dtype in FLOAT8:
        return digest_array(tensor.view(torch.uint8).numpy(), str(tensor.dtype).removeprefix("torch."))[0]
    return digest_array(tensor.numpy())[0]


def digested(*tensors: torch.Tensor) -> np.ndarray:
    reducer = Fused(torch.device("cpu"))
    reducer.take([_real(tensor) for tensor in tensors])
    found = np.concatenate([summed.rows(summed.values.numpy()) for summed in reducer.done()])
    found["dtype"] = [DTYPES.index(str(tensor.dtype).removeprefix("torch.")) for tensor in tensors]
    return found


def of_kind(name: str, size: int) -> torch.Tensor:
    dtype = getattr(torch, name)
    if dtype in FLOAT8:
        return torch.randint(0, 256, (size,), dtype=torch.uint8).view(dtype)
    if dtype.is_floating_point:
        return torch.randn(size).to(dtype)
    if dtype is torch.bool:
        return torch.arange(size) % 3 == 0
    low = 0 if name.startswith("u") else -100
    return torch.randint(low, 100, (size,)).to(dtype)


@pytest.mark.parametrize("size", SIZES)
def test_sizes(size: int) -> None:
    tensor = torch.randn(size)
    assert_same_digest(digested(tensor)[0], reference(tensor))


@pytest.mark.parametrize("name", [name for name in DTYPES if not name.startswith("complex")])
def test_kinds_of_elements(name: str) -> None:
    for size in (1, 700, 9001):
        tensor = of_kind(name, size)
        assert_same_digest(digested(tensor)[0], reference(tensor))


@pytest.mark.parametrize("name", TENSORS)
def test_tensors(name: str) -> None:
    tensor = TENSORS[name]
    assert_same_digest(digested(tensor)[0], reference(tensor))


@pytest.mark.parametrize("name", ["float32", "bfloat16", "float16", "float64", "int64", "bool"])
def test_many_in_one_launch(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    launched: list[object] = []
    plain = fused.kernels.digest_many

    class Counted:
        def __getitem__(self, grid: object) -> object:
            launched.append(grid)
            return plain[grid]

    monkeypatch.setattr(fused.kernels, "digest_many", Counted())
    tensors = [of_kind(name, size) for size in (1, 9000, 513, 7, 20_000, 64)]
    for row, tensor in zip(digested(*tensors), tensors, strict=True):
        assert_same_digest(row, reference(tensor))
    assert len(launched) == 1


def test_a_mixture_keeps_its_order() -> None:
    tensors = [torch.randn(5), torch.randn(9000), torch.randn(30, 40).t(), torch.arange(9), torch.randn(3).double()]
    for row, tensor in zip(digested(*tensors), tensors, strict=True):
        assert_same_digest(row, reference(tensor))


def test_what_does_not_fit_is_added_up_in_between(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fused, "SLOTS", 4)
    tensors = [torch.randn(k * 100 + 1) for k in range(11)]
    for row, tensor in zip(digested(*tensors), tensors, strict=True):
        assert_same_digest(row, reference(tensor))


def test_dimensions_that_follow_each_other_are_one() -> None:
    assert collapsed([(2, 12), (3, 4), (4, 1)]) == [(24, 1)]
    assert collapsed([(2, 24), (3, 4), (4, 1)]) == [(2, 24), (12, 1)]
    assert collapsed([(1, 7)]) == [(1, 1)]


COMPILED = """
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from tensonde.adapters.torch.digests.device import kernels

ints = {name: "i64" for name in "n m1 m2 m3 u0 u1 u2 u3 n1 n2 n3 t0 t1 t2 t3".split()}
for target in (GPUTarget("cuda", 75, 32), GPUTarget("cuda", 80, 32), GPUTarget("cuda", 90, 32), GPUTarget("hip", "gfx90a", 64), GPUTarget("hip", "gfx942", 64)):
    for kind, wide in (("fp32", False), ("fp16", False), ("bf16", False), ("fp64", True), ("i64", True), ("u8", False)):
        flags = {"BLOCK": 1024 if wide else 2048, "WIDE": wide}
        one = {"x": "*" + kind, **ints, "parts": "*fp64", "spans": "*i32", "halves": "*i16", "slot": "i32", "first": "i32"}
        for flat in (True, False):
            options = {**flags, "DENSE": flat, "FLAT": flat}
            made = triton.compile(ASTSource(kernels.digest_one, {**one, **dict.fromkeys(options, "constexpr")}, options), target=target)
        many = {"table": "*i64", "owners": "*i32", "parts": "*fp64", "spans": "*i32", "halves": "*i16", "slot": "i32", "first": "i32"}
        options = {**flags, "ELEMENT": kernels.element({"fp32": "float32", "fp16": "float16", "bf16": "bfloat16", "fp64": "float64", "i64": "int64", "u8": "uint8"}[kind])}
        triton.compile(ASTSource(kernels.digest_many, {**many, **dict.fromkeys(options, "constexpr")}, options), target=target)
    last = {"parts": "*fp64", "spans": "*i32", "whole": "*i64", "stats": "*fp64"}
    triton.compile(ASTSource(kernels.combine, {**last, "MOST": "constexpr"}, {"MOST": 512}), target=target)
    print(target.backend, target.arch, sorted(made.asm))
"""


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_gpus_have_code_for_them() -> None:
    """Compiled to machine code; not run."""
    env = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    done = subprocess.run([sys.executable, "-c", COMPILED], env=env, capture_output=True, text=True, timeout=880)
    assert done.returncode == 0, done.stderr[-4000:]
    lines = done.stdout.splitlines()
    assert len(lines) == 5
    assert all("cubin" in line if "cuda" in line else "hsaco" in line for line in lines)
