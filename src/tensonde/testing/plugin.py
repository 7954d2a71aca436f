"""A test that is marked `tensonde`, or asks for the fixture of that name, fails when its training has an error finding.

Imported by every pytest that runs where Tensonde is installed: nothing heavy up here.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tensonde.testing.watched import Watched

MARK = "tensonde"
KEY = pytest.StashKey["Watched"]()


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        'tensonde(*watch, fail_on="error", experiments=False, budget="off"): the test fails when Tensonde finds an error in its training; '
        'watch holds watchpoints such as "**:grad norm > 1e3", whose hits are errors, too.',
    )


@pytest.fixture
def tensonde(request: pytest.FixtureRequest) -> Watched:
    """The training of this test under Tensonde; `tensonde.findings()` tells what is known so far."""
    watched: Watched = request.node.stash[KEY]
    return watched


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker(MARK) is not None or MARK in getattr(item, "fixturenames", ()):
        item.stash[KEY] = _watched(item)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    watched = item.stash.get(KEY, None)
    if watched is None:
        return (yield)
    watched.begin()
    problem: BaseException | None = None
    try:
        result = yield
    except BaseException as raised:
        problem = raised
        raise
    finally:
        text = watched.end(problem)
        if problem is not None and text:
            item.add_report_section("call", "tensonde", text)
    if text:
        pytest.fail(text, pytrace=False)
    return result


def _watched(item: pytest.Item) -> Watched:
    from tensonde.errors import TensondeError
    from tensonde.testing.watched import Watched

    mark = item.get_closest_marker(MARK)
    given = dict(mark.kwargs) if mark is not None else {}
    watch = mark.args if mark is not None else ()
    try:
        factory = item.config._tmp_path_factory  # type: ignore[attr-defined]
        return Watched(factory.mktemp("tensonde", numbered=True), item.name, watch, **given)
    except (TypeError, TensondeError) as problem:
        raise pytest.UsageError(f"{item.nodeid}: @pytest.mark.tensonde: {problem}") from None
