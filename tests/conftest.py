"""What every test of Tensonde as a whole needs: a place to run scripts in, and a CPU that behaves."""

from __future__ import annotations

import atexit
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

# Kernels for AMX die of an illegal instruction on some virtual machines, with and without Tensonde.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")
# The compiler's headers are compiled once for all tests (and for all of xdist's processes, which inherit this).
if "TORCHINDUCTOR_CACHE_DIR" not in os.environ:
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = tempfile.mkdtemp(prefix="tensonde-inductor-")
    atexit.register(shutil.rmtree, os.environ["TORCHINDUCTOR_CACHE_DIR"], ignore_errors=True)

import pytest

from launch import QUICK, Foundry, skip_if_quick


class WithoutTorch:
    """First on `sys.meta_path`: torch is not there. Tests that need it are skipped, and no other test pays for it."""

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: Any = None) -> None:
        if name == "torch":
            raise ModuleNotFoundError("--quick leaves torch out", name="torch")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--quick", action="store_true", help="only tests that need neither torch nor a training")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--quick"):
        os.environ[QUICK] = "1"
        sys.meta_path.insert(0, WithoutTorch())


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Iterator[None]:
    report: Any = yield
    if collector.config.getoption("--quick") and report.failed and "--quick leaves torch out" in str(report.longrepr):
        report.outcome, report.longrepr = "skipped", (str(collector.path), 0, "Skipped: it needs torch")
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    report: Any = yield
    problem = call.excinfo.value if call.excinfo is not None else None
    if item.config.getoption("--quick") and isinstance(problem, ModuleNotFoundError) and problem.name == "torch":
        report.outcome, report.longrepr = "skipped", (str(item.path), 0, "Skipped: it needs torch")
    return report


@pytest.fixture(scope="session")
def foundry() -> Iterator[Foundry]:
    made = Foundry()
    yield made
    made.close()


@pytest.fixture(scope="session")
def standin() -> None:
    """The stand-in accelerator is built: a script that imports it has no time for that."""
    skip_if_quick()
    folder = Path(__file__).parent / "standin"
    subprocess.run([sys.executable, "-c", "import standin"], cwd=folder, check=True, timeout=170)
